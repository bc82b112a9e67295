//! Raft's leader stays at the witness, where successors are named without a person: then the loss of a node with data needs no
//! election before a successor is named.
//!
//! | the witness finds | then |
//! |---|---|
//! | no leader, or itself | nothing |
//! | a node with data that leads one term for [`STEADY_NS`], and a renewal that was just applied, with all of the log | it stands for election |
//! | another election of its own within [`PAUSE_NS`] | nothing |
//!
//! The leader itself grants that vote: its log is no longer than the witness's right after a renewal, and the next one is asked for
//! hundreds of milliseconds later. Times are watched, as in [`crate::failover`].
//!
//! A member that is about to stop hands the lead on ([`hand_on`]): it asks the witness, or else another member, to stand for election
//! right after a renewal was applied, and waits until it is led. Then its stop takes no leader away.
//!
//! Failure: where the log grows in between, the vote is refused and the group has no leader for about a second; a lease lasts three.
//! A lead that is not taken in time stays where it is, and the stop continues.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::applied::TURN;
use crate::core::Core;
use crate::id::NodeId;
use crate::raft::Raft;
use crate::record::Role;
use crate::wire::Request;

/// How long a node with data leads before the witness takes its place.
const STEADY_NS: u64 = 10_000_000_000;
/// The same where leases are granted by pulses: a change of the leader costs no lease.
const STEADY_NS_BY_PULSES: u64 = 2_000_000_000;
/// The pause between two elections that the witness begins.
const PAUSE_NS: u64 = 60_000_000_000;
/// How often the log and the leader are looked at while the lead is handed on.
const STEP: Duration = Duration::from_millis(5);
/// How long a member that is asked to lead may wait for the log, and the member that asks for the election.
const STANDS_MAX: Duration = Duration::from_millis(300);

#[derive(Default)]
struct Watch {
    /// The term that another member leads, and since when.
    since: Option<(u64, u64)>,
    signs: u64,
    elected_ns: Option<u64>,
}

/// What a turn looks at.
#[derive(Clone, Copy)]
struct Look {
    now_ns: u64,
    /// Of another member that leads.
    term: Option<u64>,
    signs: u64,
    all_applied: bool,
    by_pulses: bool,
}

impl Look {
    fn at(core: &Core) -> Look {
        let metrics = core.raft.metrics();
        let metrics = metrics.borrow();
        let is_other = metrics.current_leader.is_some_and(|leader| leader != core.me);
        Look {
            now_ns: core.applied.watched().now_ns(),
            term: is_other.then_some(metrics.current_term),
            signs: core.applied.signs(),
            all_applied: metrics.last_applied.map(|applied| applied.index) == metrics.last_log_index,
            by_pulses: core.is_by_pulses(),
        }
    }
}

impl Watch {
    /// Whether the witness is to stand for election now.
    fn turn(&mut self, look: Look) -> bool {
        let renewed = std::mem::replace(&mut self.signs, look.signs) != look.signs;
        let Some(term) = look.term else {
            self.since = None;
            return false;
        };
        let since_ns = match self.since {
            Some((known, since_ns)) if known == term => since_ns,
            _ => look.now_ns,
        };
        self.since = Some((term, since_ns));
        // Without renewals the log grows seldom.
        let renewed = renewed || look.by_pulses;
        let is_steady = look.now_ns - since_ns >= if look.by_pulses { STEADY_NS_BY_PULSES } else { STEADY_NS };
        let is_rested = self.elected_ns.is_none_or(|at_ns| look.now_ns - at_ns >= PAUSE_NS);
        let is_now = is_steady && is_rested && renewed && look.all_applied;
        if is_now {
            self.elected_ns = Some(look.now_ns);
        }
        is_now
    }
}

/// Takes the lead for the witness. Never returns.
pub async fn keep(core: Arc<Core>) {
    if core.planner.is_none() || core.members.get(&core.me) != Some(&Role::Witness) {
        return std::future::pending().await;
    }
    let mut watch = Watch::default();
    loop {
        sleep(TURN).await;
        if watch.turn(Look::at(&core)) {
            tracing::info!(
                "the witness takes the lead of the control plane, so that the loss of a node with data needs no election"
            );
            if let Err(error) = core.raft.trigger().elect().await {
                tracing::warn!("the witness cannot stand for election: {error}");
            }
        }
    }
}

/// Lets another member lead, if this one does; returns when it is led by another one. Never returns where none takes the lead.
pub async fn hand_on(core: &Core) {
    let leader = || core.raft.metrics().borrow().current_leader;
    let is_witness = |node: &NodeId| core.members.get(node) == Some(&Role::Witness);
    let first = core.others().filter(is_witness);
    let order: Vec<NodeId> = first.chain(core.others().filter(|node| !is_witness(node))).collect();
    for successor in order.iter().cycle() {
        if leader() == Some(core.me) {
            // The next renewal is as far away as can be, so the log does not grow meanwhile. Without renewals it grows seldom.
            let (signs, by_pulses) = (core.applied.signs(), core.is_by_pulses());
            let renewed = async {
                while !by_pulses && core.applied.signs() == signs {
                    sleep(STEP).await;
                }
            };
            // Elapsed: nothing is renewed, and the log does not grow either.
            let _ = timeout(core.terms.renew_every() + STANDS_MAX, renewed).await;
            let log = core.raft.metrics().borrow().last_log_index.unwrap_or(0);
            tracing::info!(%successor, "asked to lead the control plane, because this member is about to stop");
            // Whether it leads is seen here.
            let _ = core.peers.ask(*successor, Request::Lead { log }, STANDS_MAX).await;
        }
        let is_led = async {
            while leader().is_none_or(|leader| leader == core.me) {
                sleep(STEP).await;
            }
        };
        if timeout(STANDS_MAX, is_led).await.is_ok() {
            return;
        }
    }
}

/// Stands for election, because the leader asks for that, when all of its log is here.
pub async fn stand(raft: &Raft, log: u64) {
    let has_all = async {
        while raft.metrics().borrow().last_log_index < Some(log) {
            sleep(STEP).await;
        }
    };
    if timeout(STANDS_MAX / 2, has_all).await.is_ok()
        && let Err(error) = raft.trigger().elect().await
    {
        tracing::warn!("this member cannot stand for election: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witness_stands_right_after_a_renewal_of_a_steady_leader() {
        let mut watch = Watch::default();
        let second = 1_000_000_000;
        let mut look = Look { now_ns: second, term: Some(3), signs: 1, all_applied: true, by_pulses: false };
        let mut at = |watch: &mut Watch, seconds: u64, change: fn(&mut Look)| {
            look.now_ns += seconds * second;
            look.all_applied = true;
            change(&mut look);
            watch.turn(look)
        };
        assert!(!at(&mut watch, 0, |look| look.signs += 1), "it leads since now");
        assert!(!at(&mut watch, 9, |look| look.signs += 1));
        assert!(!at(&mut watch, 1, |_| {}), "nothing was renewed in this turn");
        assert!(!at(&mut watch, 0, |look| (look.signs, look.all_applied) = (look.signs + 1, false)));
        assert!(at(&mut watch, 0, |look| look.signs += 1));
        // It has failed: not again for a minute.
        assert!(!at(&mut watch, 0, |look| look.term = Some(4)));
        assert!(!at(&mut watch, 59, |look| look.signs += 1));
        assert!(at(&mut watch, 1, |look| look.signs += 1));
        // It leads itself.
        assert!(!at(&mut watch, 100, |look| (look.signs, look.term) = (look.signs + 1, None)));
        assert!(!at(&mut watch, 0, |look| (look.signs, look.term) = (look.signs + 1, Some(6))));
    }
}
