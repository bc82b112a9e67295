//! Failovers without a command: what Raft's leader sees becomes the planner's view, and what the planner decides is proposed.
//!
//! | what the leader knows | in the view |
//! |---|---|
//! | no renewal was applied for the lease | the leader counts silence. Every renewal of a lease in the log passes through it, so its own silence is that of a majority, which has acknowledged it lately |
//! | a node's trail is open and can be promoted | ready, with its tip |
//! | a node answers and says why it cannot | up, not ready |
//! | a node does not answer | silent, for how long the leader has watched it |
//!
//! Where commits wait for a quorum only, a standby counts that has followed since its process started: before that its directory
//! may be an older copy (rule K6).
//!
//! Failure: what is not known makes no successor.

use super::Supervisor;
use super::events::Kind;
use crate::planner::{NodeState, Step, View, plan};
use holdfast_control::{ControlPlane, Heard, NodeId, Position, Sight, Successors};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Chooses with the planner; `order`: the nodes with data by preference.
pub fn successors(order: Vec<NodeId>) -> Successors {
    Arc::new(move |sight: &Sight| match plan(&view(sight, &order)).step {
        Step::Depose { successor } => Some(successor),
        Step::HandOver { .. } | Step::Nothing => None,
    })
}

fn view<'a>(sight: &'a Sight, order: &'a [NodeId]) -> View<'a> {
    let record = &sight.record;
    let one = |(node, heard): (&NodeId, &Heard)| (*node, state(heard, !record.sync_set.are_all_needed()));
    let mut nodes: BTreeMap<NodeId, NodeState> = sight.heard.iter().map(one).collect();
    let leader = nodes.entry(sight.leader).or_default();
    leader.is_up = true;
    leader.counts_silence_of = sight.silent_ms.map(|_| record.epoch);
    View {
        record,
        order,
        nodes,
        voters: [BTreeSet::from([sight.leader]), BTreeSet::new()],
        named_ms: sight.late_ms,
        is_frozen: false,
        giving_up: None,
    }
}

fn state(heard: &Heard, is_quorum: bool) -> NodeState {
    let up = NodeState { is_up: true, disk_moves: true, ..NodeState::default() };
    match heard {
        Heard::Tip(tip) if tip.has_followed || !is_quorum => {
            let tip = Position { epoch: tip.epoch, lsn: tip.lsn };
            NodeState { server_ready: true, tip: Some(tip), ..up }
        }
        Heard::Tip(_) | Heard::Unfit(_) => up,
        Heard::Silent { ms } => NodeState { quiet_ms: *ms, ..NodeState::default() },
    }
}

/// Keeps an event for each successor that the group names.
pub async fn tell_successors(supervisor: Arc<Supervisor>) {
    let mut records = supervisor.control.watch();
    let mut told = None;
    loop {
        let record = records.borrow_and_update().clone();
        if let Some(record) = record
            && let Some(successor) = record.successor()
            && told.replace((record.epoch, successor)) != Some((record.epoch, successor))
        {
            let by = if record.automatic { "the group" } else { "a command" };
            let master = record.master.map_or_else(String::new, |master| format!(" of {master}"));
            let text = format!("{successor} is named as the successor{master} in epoch {}, by {by}", record.epoch);
            supervisor.events.add(Kind::Successor, text);
        }
        if records.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_control::{Command, LeaseTerms, Record, Role, TrailTip, apply};
    use holdfast_types::Epoch;

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    /// a serves in epoch 1 and its standbys are in the set: all of them, or any one of them is enough.
    fn record(data: &[&str], quorum: bool) -> Record {
        let mut record = None;
        let mut done = |command: &Command| apply(&mut record, command).unwrap();
        let mut members: BTreeMap<NodeId, Role> = data.iter().map(|name| (node(name), Role::Data)).collect();
        members.entry(node("w")).or_insert(Role::Witness);
        done(&Command::Found { version: 1, group: 7, members, lease: LeaseTerms::default() });
        done(&Command::Depose { expected_epoch: Epoch(0), successor: node("a"), accept_loss: false, seen: None });
        done(&Command::Promote {
            node: node("a"),
            expected_epoch: Epoch(0),
            epoch_at_least: Epoch(1),
            waited_ms: 0,
            accept_loss: false,
            attempt: 1,
            compared: BTreeSet::new(),
            becomes: None,
        });
        let standbys: BTreeSet<NodeId> = data[1..].iter().map(|name| node(name)).collect();
        if quorum {
            done(&Command::NameQuorum { epoch: Epoch(1), by: node("a"), standbys, needed: 1, change: 1 });
        } else {
            for (change, standby) in (1..).zip(standbys) {
                done(&Command::GrowSyncSet { epoch: Epoch(1), by: node("a"), node: standby, change });
            }
        }
        record.unwrap()
    }

    fn tip(lsn: u64, has_followed: bool) -> Heard {
        Heard::Tip(TrailTip { epoch: Epoch(1), lsn, has_followed, ..TrailTip::default() })
    }

    fn named(record: Record, heard: &[(&str, Heard)]) -> Option<NodeId> {
        let heard = heard.iter().map(|(name, heard)| (node(name), heard.clone())).collect();
        let order: Vec<NodeId> = record.members.keys().copied().collect();
        let sight = Sight { record, leader: node("w"), silent_ms: Some(3_000), late_ms: 0, heard };
        successors(order)(&sight)
    }

    #[test]
    fn a_standby_with_an_open_trail_is_named_and_one_that_cannot_is_not() {
        let pair = || record(&["a", "b"], false);
        let silent = || ("a", Heard::Silent { ms: 3_000 });
        assert_eq!(named(pair(), &[silent(), ("b", tip(900, false))]), Some(node("b")));
        let unfit = Heard::Unfit("its base copy is not complete".to_owned());
        assert_eq!(named(pair(), &[silent(), ("b", unfit)]), None);
        assert_eq!(named(pair(), &[silent(), ("b", Heard::Silent { ms: 0 })]), None);
        assert_eq!(named(pair(), &[silent()]), None);
        // A master that still answers does not renew its lease: it is not its own successor.
        assert_eq!(named(pair(), &[("a", tip(1_000, false)), ("b", Heard::Silent { ms: 9_000 })]), None);
    }

    #[test]
    fn out_of_a_quorum_the_one_that_is_ahead_is_named_if_all_have_followed() {
        let three = || record(&["a", "b", "c"], true);
        let silent = || ("a", Heard::Silent { ms: 3_000 });
        let heard = |b, c| [silent(), ("b", b), ("c", c)];
        assert_eq!(named(three(), &heard(tip(900, true), tip(901, true))), Some(node("c")));
        // Two standbys of which any one is enough: both have to be compared.
        assert_eq!(named(three(), &heard(tip(900, true), Heard::Silent { ms: 3_000 })), None);
        // A directory that may be an older copy: it neither becomes the master nor vouches for another one.
        assert_eq!(named(three(), &heard(tip(900, true), tip(901, false))), None);
        assert_eq!(named(three(), &heard(tip(902, false), tip(901, true))), None);
    }
}
