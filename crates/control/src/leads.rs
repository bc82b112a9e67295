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
//! Failure: where the log grows in between, the vote is refused and the group has no leader for about a second; a lease lasts three.

use std::sync::Arc;

use tokio::time::sleep;

use crate::applied::TURN;
use crate::core::Core;
use crate::record::Role;

/// How long a node with data leads before the witness takes its place.
const STEADY_NS: u64 = 10_000_000_000;
/// The pause between two elections that the witness begins.
const PAUSE_NS: u64 = 60_000_000_000;

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
        let is_steady = look.now_ns - since_ns >= STEADY_NS;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witness_stands_right_after_a_renewal_of_a_steady_leader() {
        let mut watch = Watch::default();
        let second = 1_000_000_000;
        let mut look = Look { now_ns: second, term: Some(3), signs: 1, all_applied: true };
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
