//! Time as the rules of leases use it: readings of two clocks, and watched time.
//!
//! No clock is right by itself. `CLOCK_BOOTTIME` counts a suspend, but chrony may slew it by 8 %; `CLOCK_MONOTONIC_RAW`
//! is never slewed, but stands still in a suspend. So the holder of a lease takes the larger of the two times, and a node
//! that waits takes the smaller.
//!
//! A node's own freeze, or a clock that jumps ahead, is not time that the node has watched. [`Watch`] counts what passes in
//! the turns of a loop; a turn of more than [`TURN_NS_MAX`] counts nothing. To count a part of it would give a clock that jumps
//! that part, and a lease has a margin of 13 ms only (docs/grants.md).
//!
//! Failure: a loop whose turns all last longer counts nothing, and takes no lease over.

/// The longest turn of the pulse loop that counts, 50 ms.
pub const TURN_NS_MAX: u64 = 50_000_000;

/// One look at both clocks, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reading {
    /// `CLOCK_BOOTTIME`.
    pub boot_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub raw_ns: u64,
}

impl Reading {
    /// The larger of the times that passed on the two clocks: for the holder of a lease.
    pub fn longest_since(&self, earlier: &Reading) -> u64 {
        let (boot_ns, raw_ns) = self.since(earlier);
        boot_ns.max(raw_ns)
    }

    /// The smaller of the times that passed on the two clocks: for a node that waits.
    pub fn shortest_since(&self, earlier: &Reading) -> u64 {
        let (boot_ns, raw_ns) = self.since(earlier);
        boot_ns.min(raw_ns)
    }

    fn since(&self, earlier: &Reading) -> (u64, u64) {
        (self.boot_ns.saturating_sub(earlier.boot_ns), self.raw_ns.saturating_sub(earlier.raw_ns))
    }

    /// Both clocks, that much later.
    pub fn plus(&self, ns: u64) -> Reading {
        Reading { boot_ns: self.boot_ns.saturating_add(ns), raw_ns: self.raw_ns.saturating_add(ns) }
    }

    /// Whether both clocks show less than `end`: a lease that ends there is still held.
    pub fn is_before(&self, end: &Reading) -> bool {
        self.boot_ns < end.boot_ns && self.raw_ns < end.raw_ns
    }
}

/// A moment in watched time, in nanoseconds since the watch began. It has a meaning on this node and in this run only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Moment(pub u64);

impl Moment {
    /// The watched time from `earlier` to this moment.
    pub fn since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment that long ago, at the earliest the beginning of the watch: a later moment is the safe side.
    pub fn back(self, ns: u64) -> Moment {
        Moment(self.0.saturating_sub(ns))
    }
}

/// Counts watched time. One thread owns it and calls [`Watch::turn`] in each turn of its loop, with a reading that it took
/// *after* it had read all queued pulses: a pulse of this turn was then sent before this moment.
#[derive(Clone, Debug)]
pub struct Watch {
    last: Reading,
    watched_ns: u64,
    /// For the simulation: what a simpler program would do.
    #[cfg(test)]
    pub trusts_jumps: bool,
}

impl Watch {
    /// Begins to watch.
    pub fn new(now: Reading) -> Watch {
        Watch {
            last: now,
            watched_ns: 0,
            #[cfg(test)]
            trusts_jumps: false,
        }
    }

    /// Counts the time since the last turn on the slower clock, unless it is more than [`TURN_NS_MAX`] on either; returns the
    /// moment.
    pub fn turn(&mut self, now: Reading) -> Moment {
        let (shortest_ns, longest_ns) = (now.shortest_since(&self.last), now.longest_since(&self.last));
        #[cfg(test)]
        let longest_ns = if self.trusts_jumps { 0 } else { longest_ns };
        if longest_ns <= TURN_NS_MAX {
            self.watched_ns += shortest_ns;
        }
        self.last = now;
        self.now()
    }

    /// The moment of the last turn.
    pub fn now(&self) -> Moment {
        Moment(self.watched_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot_ms: u64, raw_ms: u64) -> Reading {
        Reading { boot_ns: boot_ms * 1_000_000, raw_ns: raw_ms * 1_000_000 }
    }

    #[test]
    fn the_holder_takes_the_larger_time_and_a_waiting_node_the_smaller() {
        let (then, now) = (at(1_000, 500), at(1_108, 600));
        assert_eq!((now.longest_since(&then), now.shortest_since(&then)), (108_000_000, 100_000_000));
        let end = then.plus(105_000_000);
        assert!(!now.is_before(&end), "one of the clocks is past the end");
        assert!(at(1_104, 600).is_before(&end));
    }

    #[test]
    fn a_turn_of_more_than_50_ms_and_a_clock_that_goes_back_count_nothing() {
        let mut watch = Watch::new(at(1_000, 1_000));
        assert_eq!(watch.turn(at(1_030, 1_025)), Moment(25_000_000));
        assert_eq!(watch.turn(at(9_030, 9_025)), Moment(25_000_000), "a freeze of its own, or a jump");
        assert_eq!(watch.turn(at(9_090, 9_045)), Moment(25_000_000), "of one clock");
        assert_eq!(watch.turn(at(9_090, 8_000)), Moment(25_000_000));
        assert_eq!(watch.turn(at(9_140, 8_050)), Moment(75_000_000));
    }
}
