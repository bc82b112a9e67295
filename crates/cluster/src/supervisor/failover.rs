//! Failovers without a command: what Raft's leader sees becomes the planner's view, and what the planner decides is proposed.
//!
//! | what the leader knows | in the view |
//! |---|---|
//! | each of a majority of the voters says in its pulses that it counts silence | the leader counts silence |
//! | with record 1: no renewal was applied for the lease | the leader counts silence. Every renewal of a lease in the log passes through it, so its own silence is that of a majority, which has acknowledged it lately |
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
use crate::message::Explained;
use crate::planner::{NodeState, Step, View, not_led, plan, undecided};
use holdfast_control::{
    ControlError, ControlPlane, Decision, Explained as Found, Heard, NodeId, Planner, Position, RestartsFirst, Sight,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Decides with the planner, and says why; `order`: the nodes with data by preference.
pub fn planner(order: Vec<NodeId>) -> Planner {
    Arc::new(move |sight: &Sight| {
        let plan = plan(&view(sight, &order));
        let (successor, why) = match (&sight.undecided, plan.step) {
            (Some(why), _) => (None, undecided(sight, why, &plan)),
            (None, Step::Depose { successor }) => (Some(successor), plan.why),
            (None, Step::HandOver { .. } | Step::Nothing) => (None, plan.why),
        };
        Decision { successor, why, lacks: plan.candidates }
    })
}

pub(super) fn view<'a>(sight: &'a Sight, order: &'a [NodeId]) -> View<'a> {
    let record = &sight.record;
    let one = |(node, heard): (&NodeId, &Heard)| (*node, state(heard, !record.sync_set.are_all_needed()));
    let mut nodes: BTreeMap<NodeId, NodeState> = sight.heard.iter().map(one).collect();
    for (node, state) in &mut nodes {
        state.clock_off = sight.by_pulses.clock_off.contains(node);
        state.disk_moves &= !sight.by_pulses.disk_hangs.contains(node);
    }
    let leader = nodes.entry(sight.leader).or_default();
    leader.is_up = true;
    leader.counts_silence_of = sight.silent_ms.map(|_| record.epoch);
    View {
        record,
        order,
        nodes,
        unfit: sight.heard.iter().filter_map(|(node, heard)| Some((*node, unfit(heard)?))).collect(),
        voters: [BTreeSet::from([sight.leader]), BTreeSet::new()],
        named_ms: sight.late_ms,
        is_frozen: record.frozen,
        restarts_first: sight.restarts_first,
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

fn unfit(heard: &Heard) -> Option<String> {
    match heard {
        // Of these the tip counts where every standby is needed.
        Heard::Tip(tip) if !tip.has_followed => Some(
            "it has not followed a master since its process started: its directory may be an older copy".to_owned(),
        ),
        Heard::Unfit(why) => Some(why.clone()),
        Heard::Tip(_) | Heard::Silent { .. } => None,
    }
}

impl Supervisor {
    fn tell_frozen(&self, is_frozen: bool) {
        match is_frozen {
            true => self.events.warn(Kind::Frozen, "the cluster was frozen: no node takes over by itself".to_owned()),
            false => {
                self.events.add(Kind::Thawed, "the cluster was thawed: a standby takes over by itself again".to_owned())
            }
        }
    }

    /// This node has given the mastership up.
    async fn tell_crashes(&self) {
        if let Ok(Some(RestartsFirst { takeovers, pause_ms })) = self.control.restarts_first().await {
            let text = format!(
                "{takeovers} takeovers from servers that had ended in 10 minutes: the server of {} starts again in place first, and no \
                 other node is named for {pause_ms} ms. Look for a statement that ends servers",
                self.node
            );
            self.events.warn(Kind::Crashes, text);
        }
    }

    /// Why the master is the master, and no other node is.
    pub(super) async fn explain(&self) -> Result<Explained, ControlError> {
        Ok(match self.control.explain().await? {
            Found::Led(led) => Explained { leader: Some(led.leader), why: led.why, lacks: led.lacks },
            Found::NotLed { unreachable } => {
                Explained { leader: None, why: not_led(self.node, &unreachable), lacks: Vec::new() }
            }
        })
    }
}

/// Keeps an event for each successor that the group names, for a freeze and its end, and for crashes that follow the load.
pub async fn tell_successors(supervisor: Arc<Supervisor>) {
    let mut records = supervisor.control.watch();
    let (mut told, mut frozen, mut crashed) = (None, None, None);
    loop {
        let record = records.borrow_and_update().clone();
        if let Some(is_frozen) = record.as_ref().map(|record| record.frozen)
            && frozen.replace(is_frozen).unwrap_or(false) != is_frozen
        {
            supervisor.tell_frozen(is_frozen);
        }
        if let Some(record) = &record
            && record.is_given_up_by(supervisor.node)
            && crashed.replace(record.epoch) != Some(record.epoch)
        {
            supervisor.tell_crashes().await;
        }
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
pub(super) mod tests {
    use super::*;
    use holdfast_control::{ByPulses, Command, LeaseTerms, Record, Role, TrailTip, Undecided, apply};
    use holdfast_types::Epoch;

    pub fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    /// a serves in epoch 1 and its standbys are in the set: all of them, or any one of them is enough.
    pub fn record(data: &[&str], quorum: bool) -> Record {
        let mut record = None;
        let mut done = |command: &Command| apply(&mut record, command).unwrap();
        let mut members: BTreeMap<NodeId, Role> = data.iter().map(|name| (node(name), Role::Data)).collect();
        members.entry(node("w")).or_insert(Role::Witness);
        done(&Command::Found { version: 1, group: 7, members, lease: LeaseTerms::default(), pulse_key: None });
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
        let (leader, silent_ms) = (node("w"), Some(3_000));
        let sight = Sight {
            record,
            leader,
            silent_ms,
            undecided: None,
            late_ms: 0,
            restarts_first: None,
            heard,
            by_pulses: ByPulses::default(),
        };
        planner(order)(&sight).successor
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

    /// What `holdfast cluster explain` says where w leads.
    fn explained(record: Record, undecided: Option<Undecided>, heard: &[(&str, Heard)]) -> String {
        let heard = heard.iter().map(|(name, heard)| (node(name), heard.clone())).collect();
        let order: Vec<NodeId> = record.members.keys().copied().collect();
        let silent_ms = undecided.is_none().then_some(3_000);
        let Decision { why, lacks, .. } = planner(order)(&Sight {
            record,
            leader: node("w"),
            silent_ms,
            undecided,
            late_ms: 0,
            restarts_first: None,
            heard,
            by_pulses: ByPulses::default(),
        });
        let lines = lacks.iter().map(|(node, lacks)| format!("\n{node}: {}", lacks.join("; ")));
        format!("{why}{}", lines.collect::<String>())
    }

    #[test]
    fn each_case_is_explained() {
        let pair = || record(&["a", "b"], false);
        let alone = || {
            let mut record = Some(pair());
            apply(&mut record, &Command::ShrinkSyncSet { epoch: Epoch(1), by: node("a"), node: node("b"), change: 9 })
                .unwrap();
            record.unwrap()
        };
        let renewed = || Some(Undecided::Renewed { ms: 412 });
        let unfit = |why: &str| Heard::Unfit(why.to_owned());
        let (up, silent) = (|| ("a", tip(900, false)), || ("a", Heard::Silent { ms: 3_400 }));
        let serves = "a is the master of epoch 1: its lease was renewed 412 ms ago, and lasts 3000 ms";
        let gone = "a is silent, and no other node can take its place\na: it is the master\nb: ";
        let not_in_set = "it is not in the sync set: it may lack acknowledged commits";
        let cut_off = "w, which leads the control plane, does not reach a: its renewals come through another node";
        let cases = [
            // All is well.
            (
                explained(pair(), renewed(), &[up(), ("b", tip(900, true))]),
                format!("{serves}. If a is lost, b takes over\na: it is the master\nb: "),
            ),
            // The standby is not in the sync set, before and after the master is lost.
            (
                explained(alone(), renewed(), &[up(), ("b", tip(900, true))]),
                format!("{serves}. If a is lost, no node takes over\na: it is the master\nb: {not_in_set}"),
            ),
            (explained(alone(), None, &[silent(), ("b", tip(900, true))]), format!("{gone}{not_in_set}")),
            // It has half a base copy, was stopped, or is gone as well.
            (
                explained(alone(), None, &[silent(), ("b", unfit("its base copy is not complete"))]),
                format!("{gone}{not_in_set}; its base copy is not complete"),
            ),
            (
                explained(
                    pair(),
                    None,
                    &[silent(), ("b", unfit("an operator has stopped it (holdfast standby stop)"))],
                ),
                format!("{gone}an operator has stopped it (holdfast standby stop)"),
            ),
            (
                explained(pair(), None, &[silent(), ("b", Heard::Silent { ms: 5_000 })]),
                format!("{gone}it was not heard for 5000 ms"),
            ),
            // The master is cut off from the leader only.
            (
                explained(pair(), renewed(), &[("a", Heard::Silent { ms: 0 }), ("b", tip(900, true))]),
                format!("{serves}. {cut_off}. If a is lost, b takes over\na: it is the master\nb: "),
            ),
        ];
        let lately = Some(Undecided::Renewed { ms: 1_000 });
        let text = explained(pair(), lately, &[("a", Heard::Silent { ms: 0 }), ("b", tip(900, true))]);
        assert!(
            text.contains("w, which leads the control plane, does not reach a. If a is lost, b takes over"),
            "{text}"
        );
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
        let no_majority = explained(pair(), Some(Undecided::NoMajority), &[silent()]);
        assert!(
            no_majority.starts_with("w leads the control plane, and no majority of the nodes answers it"),
            "{no_majority}"
        );
        let unreachable = BTreeMap::from([(node("a"), "refused".to_owned()), (node("w"), "timed out".to_owned())]);
        let not_led = not_led(node("b"), &unreachable);
        let start =
            "b hears no leader of the control plane: it does not reach a (refused), w (timed out). Without a majority";
        assert!(not_led.starts_with(start), "{not_led}");
        let named = {
            let mut record = Some(pair());
            let depose =
                |seen| Command::Depose { expected_epoch: Epoch(1), successor: node("b"), accept_loss: false, seen };
            apply(&mut record, &depose(None)).unwrap();
            explained(record.unwrap(), Some(Undecided::NamedByCommand), &[silent(), ("b", tip(900, true))])
        };
        assert!(named.starts_with("b was named by a command, and is being promoted"), "{named}");
    }

    #[test]
    fn out_of_a_quorum_a_directory_that_may_be_old_is_explained() {
        let three = record(&["a", "b", "c"], true);
        let silent = ("a", Heard::Silent { ms: 3_000 });
        let text = explained(three, None, &[silent, ("b", tip(900, true)), ("c", tip(901, false))]);
        assert!(text.contains("\nc: it has not followed a master since its process started"), "{text}");
        assert!(text.contains("\nb: too few other standbys of the quorum are up to compare it with"), "{text}");
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
