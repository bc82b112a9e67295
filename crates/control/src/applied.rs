//! What this member has applied itself, and when: from when an old lease counts, and for how long a master has been silent.
//!
//! A lease was asked for before the renewal that granted it was applied anywhere. So its time may count from the last renewal,
//! if that moment is taken inside the state machine, entry by entry (rule K1):
//!
//! | applied here | the lease of that epoch counts from |
//! |---|---|
//! | a renewal, or the start of an epoch | now |
//! | Depose, and before it all renewals of its epoch one by one | the last renewal |
//! | a snapshot, or the record that the process starts with | now |
//! | nothing: the record came in an answer of another member | the answer ([`crate::lease::WaitOut`]) |
//!
//! A link that heals brings renewals and Depose in one append: each of these renewals counts from when it is applied, though the
//! master asked for it long ago. Time is *watched*: a turn adds at most 50 ms, so neither a jump of the clock nor a pause of
//! this process counts.
//!
//! Failure: none; a moment that is not known makes a wait longer.

use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Epoch;
use parking_lot::Mutex;

use crate::clock::LeaseClock;
use crate::record::{Mastership, Record};
use crate::sight::TAKEOVERS_WITHIN;

/// How often the clock is looked at.
pub const TURN: Duration = Duration::from_millis(25);
/// What a turn adds at most.
const TURN_MAX_NS: u64 = 50_000_000;
/// What is applied so soon after the start of the process may be the log of earlier times.
const REPLAYED_NS: u64 = 5_000_000_000;

/// Time that passed while this process watched it.
pub struct Watched {
    clock: Arc<dyn LeaseClock>,
    /// The clock and the watched time at the last look.
    last: Mutex<(u64, u64)>,
    #[cfg(test)]
    pub trusts_the_clock: std::sync::atomic::AtomicBool,
}

impl Watched {
    pub fn new(clock: Arc<dyn LeaseClock>) -> Watched {
        let now_ns = clock.now_ns();
        Watched {
            clock,
            last: Mutex::new((now_ns, 0)),
            #[cfg(test)]
            trusts_the_clock: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Watched nanoseconds.
    pub fn now_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        let mut last = self.last.lock();
        let passed_ns = now_ns.saturating_sub(last.0);
        let turn_max_ns = TURN_MAX_NS;
        #[cfg(test)]
        let turn_max_ns = match self.trusts_the_clock.load(std::sync::atomic::Ordering::Relaxed) {
            true => u64::MAX,
            false => turn_max_ns,
        };
        *last = (now_ns.max(last.0), last.1 + passed_ns.min(turn_max_ns));
        last.1
    }
}

#[derive(Default)]
struct State {
    record: Option<Record>,
    /// Of the epoch that serves: how many renewals were applied, and when the last one was.
    renewed: Option<(Epoch, u64, u64)>,
    /// Of the epoch that was deposed: from when its lease counts.
    deposed: Option<(Epoch, u64)>,
    /// Counts the moments at which a renewal, an epoch or a snapshot was applied.
    signs: u64,
    /// The epoch whose master has given it up before another node was named, and when.
    given_up: Option<(Epoch, u64)>,
    /// When another node took over from such a master.
    takeovers_ns: Vec<u64>,
}

impl State {
    /// Counts a takeover from a master whose server has ended. A freeze clears the count, and what is applied when the process starts is
    /// old.
    fn count_takeover(&mut self, record: &Record, now_ns: u64) {
        if record.frozen {
            self.takeovers_ns.clear();
        }
        let before = self.record.as_ref().map(|before| (before.epoch, before.master));
        let is_takeover = before.is_some_and(|(epoch, master)| {
            self.given_up.is_some_and(|(of, _)| of == epoch)
                && record.epoch > epoch
                && master.is_some()
                && record.master != master
        });
        if is_takeover && now_ns >= REPLAYED_NS {
            self.takeovers_ns.push(now_ns);
        }
        let is_given_up = matches!(record.mastership, Mastership::Free { successor: None });
        if is_given_up && self.given_up.is_none_or(|(epoch, _)| epoch != record.epoch) {
            self.given_up = Some((record.epoch, now_ns));
        }
    }
}

/// What this member's own state machine has applied. Clones share it.
#[derive(Clone)]
pub struct Applied {
    watched: Arc<Watched>,
    state: Arc<Mutex<State>>,
}

impl Applied {
    pub fn new(clock: Arc<dyn LeaseClock>) -> Applied {
        Applied { watched: Arc::new(Watched::new(clock)), state: Arc::default() }
    }

    pub fn watched(&self) -> &Watched {
        &self.watched
    }

    /// One entry was applied.
    pub fn entry(&self, record: &Option<Record>) {
        let Some(record) = record else { return };
        let now_ns = self.watched.now_ns();
        let mut state = self.state.lock();
        state.count_takeover(record, now_ns);
        match record.mastership {
            Mastership::Serving { renewals } => {
                if state.renewed.is_none_or(|(epoch, known, _)| (epoch, known) != (record.epoch, renewals)) {
                    state.renewed = Some((record.epoch, renewals, now_ns));
                    state.signs += 1;
                }
                state.deposed = None;
            }
            Mastership::Deposed { .. } if state.deposed.is_some_and(|(epoch, _)| epoch == record.epoch) => {}
            Mastership::Deposed { .. } => {
                let before = state.record.as_ref().map(|record| (record.epoch, record.mastership.clone()));
                let last = state.renewed.filter(|(epoch, renewals, _)| {
                    before == Some((*epoch, Mastership::Serving { renewals: *renewals })) && *epoch == record.epoch
                });
                state.deposed = Some((record.epoch, last.map_or(now_ns, |(_, _, at_ns)| at_ns)));
            }
            Mastership::Free { .. } => state.deposed = None,
        }
        state.record = Some(record.clone());
    }

    /// A record was taken over whole: from a snapshot, or at the start. What it contains may have been asked for just now.
    pub fn whole(&self, record: &Option<Record>) {
        let now_ns = self.watched.now_ns();
        let mut state = self.state.lock();
        state.signs += 1;
        state.record = record.clone();
        (state.renewed, state.deposed) = (None, None);
        match record.as_ref().map(|record| (record.epoch, &record.mastership)) {
            Some((epoch, Mastership::Serving { renewals })) => state.renewed = Some((epoch, *renewals, now_ns)),
            Some((epoch, Mastership::Deposed { .. })) => state.deposed = Some((epoch, now_ns)),
            _ => {}
        }
    }

    /// The record as this member has applied it.
    pub fn record(&self) -> Option<Record> {
        self.state.lock().record.clone()
    }

    /// For how long the mastership of this epoch has been given up; `None`: that was not applied here.
    pub fn given_up_ms(&self, epoch: Epoch) -> Option<u64> {
        let now_ns = self.watched.now_ns();
        let since_ns = self.state.lock().given_up.filter(|(of, _)| *of == epoch)?.1;
        Some(now_ns.saturating_sub(since_ns) / 1_000_000)
    }

    /// How often another node has lately taken over from a server that had ended.
    pub fn takeovers(&self) -> usize {
        let from_ns = self.watched.now_ns().checked_sub(TAKEOVERS_WITHIN.as_nanos() as u64);
        let mut state = self.state.lock();
        state.takeovers_ns.retain(|at_ns| from_ns.is_none_or(|from_ns| *at_ns >= from_ns));
        state.takeovers_ns.len()
    }

    /// Changes whenever the master has shown that it serves.
    pub fn signs(&self) -> u64 {
        self.state.lock().signs
    }

    /// How much of the lease of this epoch is over for sure, if its Depose was applied here.
    pub fn waited_ms(&self, epoch: Epoch) -> Option<u64> {
        let now_ns = self.watched.now_ns();
        let since_ns = self.state.lock().deposed.filter(|(of, _)| *of == epoch)?.1;
        Some(now_ns.saturating_sub(since_ns) / 1_000_000)
    }

    /// For the simulation: the moment of the newest record that was published, and of no entry before it.
    #[cfg(test)]
    pub fn published(&self, record: &Option<Record>) {
        let Some(record) = record else { return };
        let last_ns = self.state.lock().renewed.filter(|(epoch, _, _)| *epoch == record.epoch).map(|last| last.2);
        self.entry(&Some(record.clone()));
        if let (Some(last_ns), Mastership::Deposed { .. }) = (last_ns, &record.mastership) {
            self.state.lock().deposed = Some((record.epoch, last_ns));
        }
    }

    /// For the simulation: the time since the last renewal that was applied here, though Depose was not.
    #[cfg(test)]
    pub fn since_renewal_ms(&self, epoch: Epoch) -> Option<u64> {
        let now_ns = self.watched.now_ns();
        let since_ns = self.state.lock().renewed.filter(|(of, _, _)| *of == epoch)?.2;
        Some(now_ns.saturating_sub(since_ns) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Command, Role, apply};
    use crate::{LeaseTerms, NodeId};
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct Hand(AtomicU64);

    impl LeaseClock for Hand {
        fn now_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A record, the commands that change it, and a clock that is moved by hand and watched in turns.
    struct Bench {
        clock: Arc<Hand>,
        applied: Applied,
        record: Option<Record>,
    }

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    impl Bench {
        /// `a` serves in epoch 1.
        fn serving() -> Bench {
            let clock = Arc::new(Hand::default());
            let mut bench = Bench { applied: Applied::new(clock.clone()), clock, record: None };
            let members =
                BTreeMap::from([(node("a"), Role::Data), (node("b"), Role::Data), (node("w"), Role::Witness)]);
            bench.agree(&Command::Found {
                version: 1,
                group: 7,
                members,
                lease: LeaseTerms::default(),
                pulse_key: None,
            });
            bench.agree(&depose(0, "a"));
            bench.agree(&Command::Promote {
                node: node("a"),
                expected_epoch: Epoch(0),
                epoch_at_least: Epoch(1),
                waited_ms: 0,
                accept_loss: false,
                attempt: 1,
                compared: Default::default(),
                becomes: None,
            });
            bench.agree(&Command::GrowSyncSet { epoch: Epoch(1), by: node("a"), node: node("b"), change: 1 });
            bench
        }

        /// Agreed on, and applied here.
        fn agree(&mut self, command: &Command) {
            apply(&mut self.record, command).unwrap();
            self.applied.entry(&self.record);
        }

        fn pass(&self, ms: u64) {
            for _ in 0..ms / 25 {
                self.clock.0.fetch_add(25_000_000, Ordering::Relaxed);
                self.applied.watched().now_ns();
            }
        }
    }

    fn depose(epoch: u32, successor: &str) -> Command {
        Command::Depose { expected_epoch: Epoch(epoch), successor: node(successor), accept_loss: false, seen: None }
    }

    fn renew() -> Command {
        Command::RenewLease { epoch: Epoch(1), by: node("a"), positions: BTreeMap::new() }
    }

    #[test]
    fn the_wait_counts_from_the_last_renewal_that_was_applied_here() {
        let mut bench = Bench::serving();
        bench.agree(&renew());
        bench.pass(1_000);
        bench.agree(&renew());
        bench.pass(3_000);
        assert_eq!(bench.applied.waited_ms(Epoch(1)), None, "not deposed");
        bench.agree(&depose(1, "b"));
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(3_000));
        // It belongs to the epoch: another successor waits for the rest only.
        bench.pass(500);
        bench.agree(&depose(1, "a"));
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(3_500));
        assert_eq!(bench.applied.waited_ms(Epoch(2)), None);
    }

    #[test]
    fn renewals_that_arrive_together_with_depose_count_from_their_arrival() {
        let mut bench = Bench::serving();
        bench.agree(&renew());
        bench.pass(4_000);
        for command in [renew(), renew(), depose(1, "b")] {
            bench.agree(&command);
        }
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(0));
    }

    #[test]
    fn a_snapshot_and_a_start_count_from_now() {
        let mut bench = Bench::serving();
        bench.agree(&renew());
        bench.pass(4_000);
        bench.applied.whole(&bench.record.clone());
        bench.pass(100);
        bench.agree(&depose(1, "b"));
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(100));
        bench.pass(1_000);
        bench.applied.whole(&bench.record.clone());
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(0), "the Depose itself came in a snapshot");
    }

    #[test]
    fn a_jump_and_a_pause_count_as_one_turn() {
        let mut bench = Bench::serving();
        bench.agree(&renew());
        bench.clock.0.fetch_add(60_000_000_000, Ordering::Relaxed);
        bench.agree(&depose(1, "b"));
        assert_eq!(bench.applied.waited_ms(Epoch(1)), Some(50));
    }

    #[test]
    fn every_renewal_and_every_snapshot_is_a_sign_and_nothing_else() {
        let mut bench = Bench::serving();
        let signs = bench.applied.signs();
        bench.agree(&Command::Look);
        bench.agree(&Command::ShrinkSyncSet { epoch: Epoch(1), by: node("a"), node: node("b"), change: 2 });
        assert_eq!(bench.applied.signs(), signs);
        bench.agree(&renew());
        bench.applied.whole(&bench.record.clone());
        assert_eq!(bench.applied.signs(), signs + 2);
    }
}
