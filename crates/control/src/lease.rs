//! The lease: a master may acknowledge and answer current reads only while it holds one.
//!
//! Each renewal is a command in the replicated log, so a lease is granted by a quorum. The master counts it from the
//! moment *before* it asked. A promotion first deposes the master, in the same log: after that no renewal is granted,
//! and the last one was requested earlier. So it is enough to wait as long as a lease can last on the slowest allowed
//! clock, measured on the fastest allowed one:
//!
//! ```text
//! master:    ask ── granted ──────────────── run out          lease_ms on its clock
//! successor:              deposed ─────────────────── promote  lease_ms * (100 + d) / (100 - d) on its clock
//! ```
//! where `d` is the largest error of a clock in per cent. Nothing depends on wall clocks, on the leader of Raft, or on
//! timers: the check is made at the moment of use ([`Lease::valid_now`]), so a process that was stopped finds its lease
//! expired before it can acknowledge anything.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_types::Epoch;
use serde::{Deserialize, Serialize};

use crate::clock::LeaseClock;
use crate::record::RECORD_VERSION_GRANTS;

/// The longest lease, one hour: a typing error must not make failover impossible.
pub const LEASE_MS_MAX: u32 = 3_600_000;
/// The shortest lease: below it a busy disk ends masterships.
pub const LEASE_MS_MIN: u32 = 100;
/// The leases that can be chosen under record 2. The first that has no false alarms on a busy machine is the default.
pub const LEASE_MS_BY_GRANTS: [u32; 5] = [300, 600, 900, 1_500, 3_000];
/// The clock error under record 2: a node whose clock differs by more than half of it is not master.
const DRIFT_PERCENT_BY_GRANTS: u32 = 1;
/// The largest clock error that can be configured.
pub const DRIFT_PERCENT_MAX: u32 = 50;

/// The duration of leases. It is part of the record, so that all nodes use the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseTerms {
    /// The time that one renewal grants, in milliseconds of the master's clock.
    pub lease_ms: u32,
    /// By how many per cent a node's clock may run fast or slow.
    pub drift_percent: u32,
}

impl Default for LeaseTerms {
    fn default() -> LeaseTerms {
        LeaseTerms { lease_ms: 3_000, drift_percent: 10 }
    }
}

impl LeaseTerms {
    /// Why these terms are invalid; `None` if they are valid.
    pub fn flaw(&self) -> Option<String> {
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.lease_ms) {
            return Some(format!("lease_ms = {} is outside {LEASE_MS_MIN} to {LEASE_MS_MAX}", self.lease_ms));
        }
        let too_much = self.drift_percent > DRIFT_PERCENT_MAX;
        too_much
            .then(|| format!("drift_percent = {} is too large; the limit is {DRIFT_PERCENT_MAX}", self.drift_percent))
    }

    /// The terms of a lease by grants, 600 ms unless another one is chosen.
    pub fn by_grants(lease_ms: u32) -> LeaseTerms {
        LeaseTerms { lease_ms, drift_percent: DRIFT_PERCENT_BY_GRANTS }
    }

    /// Why these terms are invalid under that version of the record; `None` if they are valid.
    pub fn flaw_under(&self, record_version: u16) -> Option<String> {
        if record_version < RECORD_VERSION_GRANTS {
            return self.flaw();
        }
        if !LEASE_MS_BY_GRANTS.contains(&self.lease_ms) {
            return Some(format!("lease_ms = {} is not one of 300, 600, 900, 1500, 3000", self.lease_ms));
        }
        let other = self.drift_percent != DRIFT_PERCENT_BY_GRANTS;
        other.then(|| format!("drift_percent = {} is not {DRIFT_PERCENT_BY_GRANTS}", self.drift_percent))
    }

    /// How long a lease lasts after it was asked for, on the master's clock.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.into())
    }

    /// How often it is renewed: a master survives several lost renewals, or a change of Raft's leader.
    pub fn renew_every(&self) -> Duration {
        self.lease() / 6
    }

    /// How long a successor waits, on its own clock, after it has seen the master deposed. Milliseconds, rounded up.
    pub fn wait_out_ms(&self) -> u64 {
        let drift = u64::from(self.drift_percent.min(DRIFT_PERCENT_MAX));
        (u64::from(self.lease_ms) * (100 + drift)).div_ceil(100 - drift)
    }
}

/// Where another process writes down how long this node's lease lasts, and ends it: memory that both share.
pub trait LeasePage: Send + Sync + 'static {
    /// True if the lease lasts at this moment. A lease that was closed never lasts again.
    fn lasts(&self) -> bool;

    /// The remaining time; zero if the lease has expired or was closed.
    fn remaining(&self) -> Duration;
}

/// The lease of one mastership. Clones share it; it ends permanently with the mastership's epoch.
#[derive(Clone)]
pub struct Lease {
    cell: Arc<Cell>,
}

struct Cell {
    epoch: Epoch,
    clock: Arc<dyn LeaseClock>,
    /// Valid while the clock shows less than this. With a page only [`GIVEN_UP`] counts.
    until_ns: AtomicU64,
    /// Another process renews the lease there.
    page: Option<Box<dyn LeasePage>>,
}

impl Lease {
    /// Creates a lease of that epoch that has not been granted yet.
    pub fn new(epoch: Epoch, clock: Arc<dyn LeaseClock>) -> Lease {
        Lease { cell: Arc::new(Cell { epoch, clock, until_ns: AtomicU64::new(0), page: None }) }
    }

    /// The lease of that epoch that another process writes into a page.
    pub fn on_page(epoch: Epoch, clock: Arc<dyn LeaseClock>, page: Box<dyn LeasePage>) -> Lease {
        Lease { cell: Arc::new(Cell { epoch, clock, until_ns: AtomicU64::new(0), page: Some(page) }) }
    }

    /// True if this node may now acknowledge a commit of this epoch or answer a read that claims to be current. It
    /// costs one atomic load and one clock reading, with a page both once more; call it as late as possible before the answer is
    /// sent.
    pub fn valid_now(&self) -> bool {
        let until_ns = self.cell.until_ns.load(Ordering::Acquire);
        match &self.cell.page {
            None => self.cell.clock.now_ns() < until_ns,
            Some(page) => until_ns != GIVEN_UP && page.lasts(),
        }
    }

    /// The remaining time; zero if the lease has expired.
    pub fn remaining(&self) -> Duration {
        let until_ns = self.cell.until_ns.load(Ordering::Acquire);
        match &self.cell.page {
            None => Duration::from_nanos(until_ns.saturating_sub(self.cell.clock.now_ns())),
            Some(_) if until_ns == GIVEN_UP => Duration::ZERO,
            Some(page) => page.remaining(),
        }
    }

    /// The reading of the clock at which the lease ends; `None`: it was not granted yet, or was given up.
    pub fn ends_at_ns(&self) -> Option<u64> {
        Some(self.cell.until_ns.load(Ordering::Acquire)).filter(|until_ns| *until_ns > GIVEN_UP)
    }

    /// The epoch this lease is for.
    pub fn epoch(&self) -> Epoch {
        self.cell.epoch
    }

    /// Records that a renewal requested at `asked_ns` was granted.
    pub(crate) fn granted(&self, asked_ns: u64, terms: &LeaseTerms) {
        let until_ns = asked_ns.saturating_add(terms.lease().as_nanos() as u64);
        // An older grant that arrives late does not shorten the lease, and a released lease stays released.
        let longer = |old: u64| (old != GIVEN_UP && old < until_ns).then_some(until_ns);
        // An error means that nothing was to be changed.
        let _ = self.cell.until_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, longer);
    }

    /// Whether the lease was released, so that no renewal can restore it.
    pub fn is_given_up(&self) -> bool {
        self.cell.until_ns.load(Ordering::Acquire) == GIVEN_UP
    }

    /// Ends the lease at once and permanently.
    pub fn give_up(&self) {
        self.cell.until_ns.store(GIVEN_UP, Ordering::Release);
    }
}

/// Below every clock reading, and told from "not granted yet", which is 0.
const GIVEN_UP: u64 = 1;

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("epoch", &self.epoch()).field("remaining", &self.remaining()).finish()
    }
}

/// Counts the time a successor has waited. A clock that jumps ahead, or a pause of the successor itself, counts as one
/// step: only time it has watched pass is time waited.
pub struct WaitOut {
    clock: Arc<dyn LeaseClock>,
    #[cfg(test)]
    started_ns: u64,
    last_ns: u64,
    waited_ns: u64,
}

impl WaitOut {
    /// How often to call [`WaitOut::step`].
    pub const STEP: Duration = Duration::from_millis(50);

    pub fn start(clock: Arc<dyn LeaseClock>) -> WaitOut {
        let now_ns = clock.now_ns();
        WaitOut {
            clock,
            #[cfg(test)]
            started_ns: now_ns,
            last_ns: now_ns,
            waited_ns: 0,
        }
    }

    /// Counts the time since the last call, at most two steps.
    pub fn step(&mut self) {
        let now_ns = self.clock.now_ns();
        let passed_ns = now_ns.saturating_sub(self.last_ns);
        self.waited_ns += passed_ns.min(2 * Self::STEP.as_nanos() as u64);
        self.last_ns = now_ns;
    }

    /// What a simpler program would do: for the simulation.
    #[cfg(test)]
    pub fn trust_the_clock(&mut self) {
        self.waited_ns = self.last_ns.saturating_sub(self.started_ns);
    }

    /// Milliseconds waited so far, rounded down.
    pub fn waited_ms(&self) -> u64 {
        self.waited_ns / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    struct Hand(AtomicU64);

    impl LeaseClock for Hand {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn at(ms: u64) -> Arc<Hand> {
        Arc::new(Hand(AtomicU64::new(ms * 1_000_000)))
    }

    impl Hand {
        fn set(&self, ms: u64) {
            self.0.store(ms * 1_000_000, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_lease_counts_from_the_asking_and_ends_on_its_own() {
        let (clock, terms) = (at(1_000), LeaseTerms::default());
        let lease = Lease::new(Epoch(4), clock.clone());
        assert!(!lease.valid_now(), "not granted yet");
        lease.granted(1_000_000_000, &terms);
        clock.set(3_999);
        assert!(lease.valid_now());
        assert_eq!(lease.remaining(), Duration::from_millis(1));
        clock.set(4_000);
        assert!(!lease.valid_now(), "run out, and no timer had to fire for it");
    }

    #[test]
    fn an_older_grant_does_not_shorten_and_a_given_up_lease_stays_so() {
        let (clock, terms) = (at(1_000), LeaseTerms::default());
        let lease = Lease::new(Epoch(4), clock.clone());
        lease.granted(2_000_000_000, &terms);
        lease.granted(1_500_000_000, &terms);
        clock.set(4_800);
        assert!(lease.valid_now());
        lease.give_up();
        lease.granted(4_800_000_000, &terms);
        assert!(!lease.valid_now());
    }

    struct Shared(AtomicU64);

    impl LeasePage for Shared {
        fn lasts(&self) -> bool {
            self.remaining() > Duration::ZERO
        }

        fn remaining(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[test]
    fn a_page_decides_until_the_lease_is_given_up_here() {
        let lease = |ms| Lease::on_page(Epoch(4), at(1_000), Box::new(Shared(AtomicU64::new(ms))));
        assert!(!lease(0).valid_now());
        let lease = lease(500);
        assert!(lease.valid_now() && lease.remaining() == Duration::from_millis(500));
        lease.granted(2_000_000_000, &LeaseTerms::default());
        assert_eq!(lease.remaining(), Duration::from_millis(500), "only the page counts");
        lease.give_up();
        assert!(!lease.valid_now() && lease.remaining() == Duration::ZERO);
    }

    #[test]
    fn the_wait_covers_the_slowest_master_and_the_fastest_successor() {
        for (lease_ms, drift_percent) in [(3_000, 10), (100, 0), (3_000, 50), (3_001, 7)] {
            let terms = LeaseTerms { lease_ms, drift_percent };
            let drift = f64::from(drift_percent) / 100.0;
            let longest_real = f64::from(lease_ms) / (1.0 - drift);
            let shortest_wait_real = terms.wait_out_ms() as f64 / (1.0 + drift);
            assert!(shortest_wait_real >= longest_real - 1e-6, "{terms:?}");
        }
        assert_eq!(LeaseTerms::default().wait_out_ms(), 3_667);
    }

    #[test]
    fn only_time_that_was_watched_counts_as_waited() {
        let clock = at(0);
        let mut wait = WaitOut::start(clock.clone());
        clock.set(50);
        wait.step();
        assert_eq!(wait.waited_ms(), 50);
        clock.set(60_000);
        wait.step();
        assert_eq!(wait.waited_ms(), 150, "a jump counts as two steps");
        clock.set(59_000);
        wait.step();
        assert_eq!(wait.waited_ms(), 150);
    }

    #[test]
    fn odd_terms_are_refused() {
        assert_eq!(LeaseTerms::default().flaw(), None);
        assert!(LeaseTerms { lease_ms: 99, drift_percent: 10 }.flaw().is_some());
        assert!(LeaseTerms { lease_ms: 3_000, drift_percent: 51 }.flaw().is_some());
        let waits = LEASE_MS_BY_GRANTS.map(|lease_ms| LeaseTerms::by_grants(lease_ms).wait_out_ms());
        assert_eq!(waits, [307, 613, 919, 1_531, 3_061]);
        for lease_ms in LEASE_MS_BY_GRANTS {
            assert_eq!(LeaseTerms::by_grants(lease_ms).flaw_under(2), None);
        }
        assert!(
            LeaseTerms::by_grants(601).flaw_under(2).is_some() && LeaseTerms::by_grants(601).flaw_under(1).is_none()
        );
        assert!(LeaseTerms { lease_ms: 600, drift_percent: 2 }.flaw_under(2).is_some());
    }
}
