//! The newest boxcars, for those that follow the trail while it is written.
//!
//! A boxcar is put here before it is written, so that a standby can receive it while this node's disk is still working.
//! So it may never become durable here: then this process ends, and no later boxcar was sent. The ring is only a short
//! cut: a tap that does not find its position in it reads the segments. While there is no tap, the ring is empty and
//! costs the writer one check.
//!
//! Failure: nothing here fails; a disk that cannot be read is the reader's error.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_types::Lsn;
use parking_lot::Mutex;

use crate::shipped::Shipped;

/// Called by the writing thread after boxcars were handed to taps and after the durable position advanced. It must
/// neither block nor append.
pub type ProgressHook = Arc<dyn Fn() + Send + Sync>;

pub struct Live {
    tapped: AtomicBool,
    ring: Mutex<Ring>,
    watched: AtomicBool,
    hooks: Mutex<Arc<[ProgressHook]>>,
}

#[derive(Default)]
struct Ring {
    taps: usize,
    boxcars: VecDeque<Shipped>,
    bytes: u64,
    bytes_max: u64,
    /// End and checksum of the boxcars that had been handed out but were not durable when the last boxcar was handed
    /// out.
    in_flight: Vec<(Lsn, u32)>,
}

impl Live {
    pub fn new(bytes_max: u64) -> Live {
        Live {
            tapped: AtomicBool::new(false),
            ring: Mutex::new(Ring { bytes_max, ..Ring::default() }),
            watched: AtomicBool::new(false),
            hooks: Mutex::new(Arc::new([])),
        }
    }

    /// Whether a tap wants boxcars before they are durable.
    pub fn is_tapped(&self) -> bool {
        self.tapped.load(Ordering::Relaxed)
    }

    pub fn add_tap(&self) {
        let mut ring = self.ring.lock();
        ring.taps += 1;
        self.tapped.store(true, Ordering::Relaxed);
    }

    pub fn remove_tap(&self) {
        let mut ring = self.ring.lock();
        ring.taps -= 1;
        if ring.taps == 0 {
            self.tapped.store(false, Ordering::Relaxed);
            ring.boxcars.clear();
            ring.bytes = 0;
        }
    }

    /// Hands out a boxcar that is about to be written; all bytes below `durable` are durable.
    pub fn hand(&self, boxcar: Shipped, durable: Lsn) {
        let mut ring = self.ring.lock();
        if ring.taps == 0 {
            return;
        }
        ring.in_flight.retain(|(end, _)| *end > durable);
        ring.in_flight.push((boxcar.end, boxcar.checksum));
        ring.push(boxcar);
    }

    /// The boxcar that starts at `lsn`, if the ring holds it.
    pub fn at(&self, lsn: Lsn) -> Option<Shipped> {
        let ring = self.ring.lock();
        let index = ring.boxcars.partition_point(|boxcar| boxcar.lsn < lsn);
        ring.boxcars.get(index).filter(|boxcar| boxcar.lsn == lsn).cloned()
    }

    /// Whether a tap may have a boxcar with that end and checksum that was not yet durable here when it was handed out.
    pub fn is_in_flight(&self, end: Lsn, checksum: u32) -> bool {
        self.ring.lock().in_flight.contains(&(end, checksum))
    }

    pub fn watch(&self, hook: ProgressHook) {
        let mut hooks = self.hooks.lock();
        *hooks = hooks.iter().cloned().chain([hook]).collect();
        self.watched.store(true, Ordering::Release);
    }

    /// Calls the progress hook. The caller must hold no lock.
    pub fn progress(&self) {
        if self.watched.load(Ordering::Acquire) {
            let hooks = self.hooks.lock().clone();
            hooks.iter().for_each(|hook| hook());
        }
    }
}

impl Ring {
    fn push(&mut self, boxcar: Shipped) {
        // While there was no tap, no boxcars were handed over: older content is not contiguous with this one.
        if self.boxcars.back().is_some_and(|last| last.end != boxcar.lsn) {
            self.boxcars.clear();
            self.bytes = 0;
        }
        self.bytes += boxcar.bytes.len() as u64;
        self.boxcars.push_back(boxcar);
        while self.bytes > self.bytes_max && self.boxcars.len() > 1 {
            let Some(oldest) = self.boxcars.pop_front() else { break };
            self.bytes -= oldest.bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxcar::BoxcarKind;
    use holdfast_types::Epoch;

    fn boxcar(lsn: u64, bytes: usize) -> Shipped {
        Shipped {
            lsn: Lsn(lsn),
            end: Lsn(lsn + 4096),
            kind: BoxcarKind::Data,
            epoch: Epoch(1),
            checksum: lsn as u32,
            previous_checksum: 0,
            bytes: vec![0; bytes].into(),
        }
    }

    #[test]
    fn without_a_tap_nothing_is_kept_and_with_one_the_limit_holds() {
        let live = Live::new(1000);
        live.hand(boxcar(4096, 10), Lsn(4096));
        assert!(!live.is_tapped() && live.at(Lsn(4096)).is_none());
        live.add_tap();
        (1..6).for_each(|n| live.hand(boxcar(n * 4096, 300), Lsn(n * 4096)));
        assert_eq!((1..7).filter(|n| live.at(Lsn(n * 4096)).is_some()).collect::<Vec<_>>(), [3, 4, 5]);
        live.hand(boxcar(6 * 4096, 5000), Lsn(6 * 4096));
        assert!(live.at(Lsn(6 * 4096)).is_some() && live.at(Lsn(5 * 4096)).is_none(), "the newest always stays");
        live.remove_tap();
        assert!(!live.is_tapped() && live.at(Lsn(6 * 4096)).is_none());
    }

    #[test]
    fn a_gap_empties_it_and_what_is_in_flight_is_known() {
        let live = Live::new(1 << 20);
        live.add_tap();
        live.hand(boxcar(4096, 10), Lsn(4096));
        live.hand(boxcar(3 * 4096, 10), Lsn(4096));
        assert!(live.at(Lsn(4096)).is_none() && live.at(Lsn(2 * 4096)).is_none() && live.at(Lsn(3 * 4096)).is_some());
        assert!(live.is_in_flight(Lsn(2 * 4096), 4096) && !live.is_in_flight(Lsn(2 * 4096), 4097));
        live.hand(boxcar(4 * 4096, 10), Lsn(4 * 4096));
        assert!(!live.is_in_flight(Lsn(2 * 4096), 4096) && live.is_in_flight(Lsn(5 * 4096), 4 * 4096));
    }
}
