//! Compares this node's clock with those of the others (rule C9): did this machine stand still, and does its clock run at
//! another rate than all others?
//!
//! Each message carries its sender's `CLOCK_MONOTONIC_RAW`, which no program slews. With D = the other clock minus this one:
//!
//! ```text
//! this node   pulse sent ─────────────── answer read        D is at most   other - sent
//! other                     other clock                     D is at least  other - read
//! ```
//! A message that is late makes the bounds wider, never wrong. A machine that stands still while others do not sees D grow: what
//! is at least D now is more than what was at most D before. Between two answers the rate of D has bounds as well.
//!
//! Failure: a machine that stood still and hears no other node cannot notice it. Then its lease lasts longer by that time.

use super::pulse::Pulse;
use super::time::Reading;
use super::voters::NODES_MAX;

/// A gain of the other clocks that shows that this machine stood still.
pub const STANDSTILL_NS: i64 = 50_000_000;
/// The difference of rates from which a node is neither master nor successor: 0.5 %.
pub const CLOCK_OFF_PPM: i64 = 5_000;
/// The difference of rates that leases allow for: 1 %.
const ALLOWED_PPM: i64 = 10_000;

const RECENT_NS: u64 = 500_000_000;
const BUCKET_NS: u64 = 250_000_000;
const BUCKETS: usize = 64;

/// How this node's clock runs, compared with the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockVerdict {
    /// Not compared well enough, or with one other node only, whose clock differs.
    Unknown,
    /// At least one other clock runs at the same rate.
    Good,
    /// It differs from all others by more than [`CLOCK_OFF_PPM`].
    Off,
}

/// Bounds of D, and when they were taken on this node's clock.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    least: i64,
    most: i64,
    sent_ns: u64,
    read_ns: u64,
}

impl Bounds {
    fn width(&self) -> i64 {
        self.most.saturating_sub(self.least)
    }

    /// The rate at which D grew from `earlier` to here, in millionths: at least, and at most.
    fn rate_since(&self, earlier: &Bounds) -> Option<(i64, i64)> {
        let ns = i128::from(self.sent_ns.checked_sub(earlier.read_ns).filter(|ns| *ns > 0)?);
        let rate = |gain: i64| i128::from(gain) * 1_000_000 / ns;
        let (least, most) =
            (rate(self.least.saturating_sub(earlier.most)), rate(self.most.saturating_sub(earlier.least)));
        Some((clamped(least), clamped(most)))
    }
}

fn clamped(rate: i128) -> i64 {
    rate.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// The clock of one other node.
#[derive(Clone, Copy, Debug)]
struct Peer {
    incarnation: u64,
    /// The smallest upper bounds of D: since `recent_from`, and in the time before.
    recent: [Option<i64>; 2],
    recent_from_ns: u64,
    /// The narrowest bounds of each quarter of a second, and the number of that quarter.
    buckets: [Option<(u64, Bounds)>; BUCKETS],
    /// What is proven about the rate of D, in millionths.
    rate: Option<(i64, i64)>,
}

const NEW: Peer = Peer { incarnation: 0, recent: [None; 2], recent_from_ns: 0, buckets: [None; BUCKETS], rate: None };

/// The clocks of all other nodes. The pulse thread owns it.
#[derive(Clone, Debug)]
pub struct PeerClocks {
    peers: [Peer; NODES_MAX],
    others: usize,
}

impl PeerClocks {
    /// `others`: how many other nodes the group has.
    pub fn new(others: usize) -> PeerClocks {
        PeerClocks { peers: [NEW; NODES_MAX], others }
    }

    /// Takes a message of the node in that slot. `now`: from after it was read; `sent`: when the pulse was sent that it
    /// answers. True: this machine stood still.
    pub fn take(&mut self, slot: usize, message: &Pulse, now: Reading, sent: Option<Reading>) -> bool {
        let Some(peer) = self.peers.get_mut(slot) else { return false };
        if peer.incarnation != message.incarnation {
            // Another run, maybe after a restart of the machine: its clock began again.
            *peer = Peer { incarnation: message.incarnation, rate: peer.rate, ..NEW };
        }
        let difference = |own_ns: u64| message.clock.raw_ns.wrapping_sub(own_ns) as i64;
        let least = difference(now.raw_ns);
        if peer.recent_least_upper().is_some_and(|most| least.saturating_sub(most) >= STANDSTILL_NS) {
            self.peers = std::array::from_fn(|slot| Peer { rate: self.peers[slot].rate, ..NEW });
            return true;
        }
        if let Some(sent) = sent {
            let most = difference(sent.raw_ns);
            peer.note(Bounds { least, most, sent_ns: sent.raw_ns, read_ns: now.raw_ns });
        }
        false
    }

    /// The rate of that node's clock against this one, in millionths: at least, and at most; as far as it is proven.
    pub fn rate_ppm(&self, slot: usize) -> Option<(i64, i64)> {
        self.peers.get(slot).and_then(|peer| peer.rate)
    }

    /// How this node's clock compares.
    pub fn verdict(&self) -> ClockVerdict {
        let rates = || self.peers.iter().filter_map(|peer| peer.rate);
        let is_off = |(least, most): (i64, i64)| least > CLOCK_OFF_PPM || most < -CLOCK_OFF_PPM;
        let agrees = |(least, most): (i64, i64)| !is_off((least, most)) && least > -ALLOWED_PPM && most < ALLOWED_PPM;
        if rates().any(agrees) {
            return ClockVerdict::Good;
        }
        let off = rates().filter(|rate| is_off(*rate)).count();
        if off > 0 && off >= self.others.max(2) { ClockVerdict::Off } else { ClockVerdict::Unknown }
    }
}

impl Peer {
    fn recent_least_upper(&self) -> Option<i64> {
        self.recent.iter().flatten().min().copied()
    }

    fn note(&mut self, bounds: Bounds) {
        if bounds.read_ns.saturating_sub(self.recent_from_ns) >= RECENT_NS {
            self.recent = [None, self.recent[0]];
            self.recent_from_ns = bounds.read_ns;
        }
        self.recent[0] = Some(self.recent[0].map_or(bounds.most, |most| most.min(bounds.most)));
        let number = bounds.read_ns / BUCKET_NS;
        let bucket = &mut self.buckets[number as usize % BUCKETS];
        if bucket.is_none_or(|(of, known)| of != number || bounds.width() < known.width()) {
            *bucket = Some((number, bounds));
            self.compare(number, &bounds);
        }
    }

    /// The tightest bounds of the rate, over all earlier quarters that are remembered.
    fn compare(&mut self, number: u64, newest: &Bounds) {
        let lately = |of: u64| of < number && number - of < BUCKETS as u64;
        let earlier = self.buckets.iter().flatten().filter(|(of, _)| lately(*of));
        let rates = earlier.filter_map(|(_, earlier)| newest.rate_since(earlier));
        let tightest = rates.reduce(|(least, most), rate| (least.max(rate.0), most.min(rate.1)));
        if let Some(rate) = tightest {
            self.rate = Some(rate);
        }
    }
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
