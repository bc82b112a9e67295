//! The planner: which node is to have the group `database` next, and why. A pure function, so that the same view always gives
//! the same step, and so that `holdfast cluster explain` shows what decides.
//!
//! Raft's leader evaluates [`plan`] with what it hears of the nodes, and proposes Depose (`supervisor/failover.rs`). The supervisor of a master that ends its own
//! mastership evaluates it with [`View::giving_up`], closes its lease page, and proposes HandOver.
//!
//! | the record says | and | step |
//! |---|---|---|
//! | no master yet | | none: the first server that starts becomes it |
//! | serving | each of a majority of the voters counts silence, and there is a successor | Depose |
//! | serving | its own supervisor gives the mastership up, and there is a successor | HandOver |
//! | serving | the server has ended, and there is no successor | HandOver to the master itself: it restarts in place |
//! | ended for a successor | that one is silent, or was not promoted in 2 s, and there is another one | Depose for the other one |
//! | ended for no successor | there is one | Depose, which only names it |
//! | ended for no successor | servers have ended often lately, and the last master's node is up | none for a while: it restarts in place |
//! | frozen | | none is named; one that is named already is promoted |
//!
//! A mastership that has ended may also return to the last master: its successor died before it was promoted.
//!
//! A successor is a node with data of the sync set that is up, whose server is ready and whose disk moves, whose clock is not
//! off, and which has everything, compared with the others where commits wait for a quorum only. Of several the one with the
//! highest durable tip is taken, then the order of `database.nodes`.
//!
//! Rules of CLUSTER.md: C5 (only the sync set), C6 (each of a majority counts silence itself), C8 (a hung disk is given up only
//! for one that moves), C9 (no clock that is off), C14 (frozen: no move), C17 (a plan ends, and names one owner).
//!
//! Failure: without a successor there is no step, and the explanation names what each node lacks.

mod explain;
mod switchover;
pub use explain::{not_led, undecided};
pub use switchover::switchover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_control::{Command, Mastership, NodeId, Position, Record, RestartsFirst, Role, SUCCESSOR_MS};
use holdfast_types::Epoch;

/// What the planner is given.
#[derive(Clone, Debug)]
pub struct View<'a> {
    pub record: &'a Record,
    /// The nodes with data by preference: `database.nodes`.
    pub order: &'a [NodeId],
    /// All nodes, this one too.
    pub nodes: BTreeMap<NodeId, NodeState>,
    /// What nodes that are up say of why they cannot be promoted.
    pub unfit: BTreeMap<NodeId, String>,
    /// The voters; the second set is empty except while they are being changed.
    pub voters: [BTreeSet<NodeId>; 2],
    /// For how long the present successor could have been promoted.
    pub named_ms: u64,
    /// No moves, by command.
    pub is_frozen: bool,
    /// Set while the last master, whose server has ended, may start again in place.
    pub restarts_first: Option<RestartsFirst>,
    /// Set by the master's own supervisor only.
    pub giving_up: Option<GivingUp>,
}

/// What is known of one node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeState {
    /// It was heard within the last 100 ms, or is this node. What follows is of its newest message.
    pub is_up: bool,
    /// For how long it was not heard.
    pub quiet_ms: u64,
    /// As a voter it counts silence of the master of this epoch.
    pub counts_silence_of: Option<Epoch>,
    pub server_ready: bool,
    /// No sync of its trail has been under way for 600 ms.
    pub disk_moves: bool,
    /// Its clock differs from those of all others by more than 0.5 %.
    pub clock_off: bool,
    /// The end of what is durable in its trail.
    pub tip: Option<Position>,
}

/// Why a master's own supervisor ends the mastership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivingUp {
    /// The server's process has ended, or is ending: its page is closed.
    ServerEnded,
    /// The server does not tick.
    ServerHangs { ms: u64 },
    /// A sync of the trail does not return.
    DiskHangs { ms: u64 },
    /// Its clock differs from those of all others.
    ClockOff,
    /// An operator has asked for it; `to`: for this node.
    Asked { to: Option<NodeId> },
}

/// What is to be proposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Nothing,
    /// By Raft's leader.
    Depose {
        successor: NodeId,
    },
    /// By the master's supervisor, after its page is closed.
    HandOver {
        successor: NodeId,
    },
}

impl Step {
    /// The command that does it in this record.
    pub fn command(self, record: &Record) -> Option<Command> {
        match (self, record.master) {
            (Step::Depose { successor }, _) => {
                Some(Command::Depose { expected_epoch: record.epoch, successor, accept_loss: false, seen: None })
            }
            (Step::HandOver { successor }, Some(by)) => Some(Command::HandOver { epoch: record.epoch, by, successor }),
            _ => None,
        }
    }
}

/// A step, and why it is that one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub step: Step,
    /// Why, in a sentence.
    pub why: String,
    /// Each node with data in the order of preference, and what keeps it from being the successor; empty: nothing does.
    pub candidates: Vec<(NodeId, Vec<String>)>,
}

impl Plan {
    /// The nodes that could be promoted now.
    pub fn fit(&self) -> Vec<NodeId> {
        self.candidates.iter().filter(|(_, lacks)| lacks.is_empty()).map(|(node, _)| *node).collect()
    }
}

/// What is to be done now.
pub fn plan(view: &View) -> Plan {
    let candidates = candidates(view);
    let (step, why) = decide(view, &candidates);
    let lacks = |(node, lacks): (NodeId, Vec<Lack>)| (node, lacks.iter().map(Lack::to_string).collect());
    Plan { step, why, candidates: candidates.into_iter().map(lacks).collect() }
}

/// What keeps a node from being the successor.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Lack {
    IsMaster,
    NotInSyncSet,
    Silent {
        ms: u64,
    },
    /// Why, in the node's words.
    NotReady(Option<String>),
    DiskHangs,
    ClockOff,
    /// Commits wait for a quorum only, and too few others are there to compare with.
    NotCompared,
    /// Another node of the quorum has more.
    Behind(NodeId),
}

type Candidates = Vec<(NodeId, Vec<Lack>)>;

fn candidates(view: &View) -> Candidates {
    let record = view.record;
    let is_data = |node: &NodeId| record.members.get(node) == Some(&Role::Data);
    // A node of the record that the file does not name comes last.
    let rest = record.members.keys().filter(|node| !view.order.contains(node));
    let nodes = view.order.iter().chain(rest).copied().filter(is_data);
    nodes.map(|node| (node, lacks(view, node))).collect()
}

fn lacks(view: &View, node: NodeId) -> Vec<Lack> {
    let record = view.record;
    // A mastership that has ended may return to the last master, with a new epoch.
    if record.master == Some(node) && matches!(record.mastership, Mastership::Serving { .. }) {
        return vec![Lack::IsMaster];
    }
    let mut lacks = lacks_now(view, node);
    if lacks.is_empty() {
        lacks.extend(behind(view, node));
    }
    lacks
}

/// What a node lacks, apart from the comparison with others.
fn lacks_now(view: &View, node: NodeId) -> Vec<Lack> {
    let record = view.record;
    let state = view.nodes.get(&node).copied().unwrap_or_default();
    let mut lacks = Vec::new();
    if !record.sync_set.contains(node) {
        lacks.push(Lack::NotInSyncSet);
    }
    if !state.is_up {
        // Nothing else is known of it now.
        lacks.push(Lack::Silent { ms: state.quiet_ms });
        return lacks;
    }
    let flaws = [
        (!state.server_ready, Lack::NotReady(view.unfit.get(&node).cloned())),
        (!state.disk_moves, Lack::DiskHangs),
        (state.clock_off, Lack::ClockOff),
    ];
    lacks.extend(flaws.into_iter().filter(|(is_so, _)| *is_so).map(|(_, lack)| lack));
    lacks
}

/// Where a commit has reached some of the standbys only: whether the node has all that enough others have.
fn behind(view: &View, node: NodeId) -> Option<Lack> {
    let record = view.record;
    let tip = |node: &NodeId| view.nodes.get(node).filter(|state| state.is_up).and_then(|state| state.tip);
    let own = tip(&node);
    let others = record.sync_set.members().iter().filter(|other| **other != node && Some(**other) != record.master);
    let (mut not_ahead, mut ahead) = (BTreeSet::new(), None);
    for other in others {
        match tip(other) {
            Some(theirs) if own.is_some_and(|own| own >= theirs) => {
                not_ahead.insert(*other);
            }
            Some(_) => ahead = Some(*other),
            None => {}
        }
    }
    if record.has_everything(node, &not_ahead) {
        return None;
    }
    Some(ahead.map_or(Lack::NotCompared, Lack::Behind))
}

/// The best node without a lack, except for these.
fn successor(view: &View, candidates: &Candidates, except: &[Option<NodeId>]) -> Option<NodeId> {
    let tip = |node: NodeId| view.nodes.get(&node).and_then(|state| state.tip);
    let fit = candidates.iter().filter(|(node, lacks)| lacks.is_empty() && !except.contains(&Some(*node)));
    // Of equal ones the first.
    fit.map(|(node, _)| *node).reduce(|best, node| if tip(node) > tip(best) { node } else { best })
}

fn decide(view: &View, candidates: &Candidates) -> (Step, String) {
    let record = view.record;
    let Some(master) = record.master else { return (Step::Nothing, explain::no_master()) };
    match record.mastership {
        Mastership::Serving { .. } => serving(view, candidates, master),
        Mastership::Deposed { successor, .. } => named(view, candidates, Some(successor)),
        Mastership::Free { successor } => named(view, candidates, successor),
    }
}

fn serving(view: &View, candidates: &Candidates, master: NodeId) -> (Step, String) {
    if let Some(why) = view.giving_up {
        return giving_up(view, candidates, master, why);
    }
    let silent = silent(view);
    if !is_majority(view, &silent) {
        return (Step::Nothing, explain::serves(master, &silent));
    }
    if view.is_frozen {
        return (Step::Nothing, explain::frozen(master));
    }
    match successor(view, candidates, &[]) {
        Some(successor) => (Step::Depose { successor }, explain::deposed(master, successor, &silent)),
        None => (Step::Nothing, explain::no_successor(master)),
    }
}

fn giving_up(view: &View, candidates: &Candidates, master: NodeId, why: GivingUp) -> (Step, String) {
    let wanted = match why {
        GivingUp::Asked { to: Some(to) } => {
            let is_fit = candidates.iter().any(|(node, lacks)| *node == to && lacks.is_empty());
            is_fit.then_some(to)
        }
        _ => successor(view, candidates, &[]),
    };
    match wanted.filter(|_| !view.is_frozen) {
        Some(successor) => (Step::HandOver { successor }, explain::hands_over(master, why, successor)),
        // Its page is closed: only a new epoch lets it answer again.
        None if why == GivingUp::ServerEnded => {
            (Step::HandOver { successor: master }, explain::restarts(master, view.is_frozen))
        }
        None if view.is_frozen => (Step::Nothing, explain::frozen(master)),
        None => (Step::Nothing, explain::keeps(master, why)),
    }
}

/// The mastership has ended; `named`: who is to have the next one.
fn named(view: &View, candidates: &Candidates, named: Option<NodeId>) -> (Step, String) {
    if view.is_frozen {
        return (Step::Nothing, explain::frozen_without_master(view.record.master, named));
    }
    let Some(named) = named else {
        let is_up = |node: &NodeId| view.nodes.get(node).is_some_and(|state| state.is_up);
        if let (Some(first), Some(last)) = (view.restarts_first, view.record.master.filter(is_up)) {
            return (Step::Nothing, explain::restarts_first(last, first));
        }
        return match successor(view, candidates, &[]) {
            Some(successor) => (Step::Depose { successor }, explain::released(successor)),
            None => (Step::Nothing, explain::waits()),
        };
    };
    let state = view.nodes.get(&named).copied().unwrap_or_default();
    let is_lost = !state.is_up && state.quiet_ms >= u64::from(view.record.lease.lease_ms);
    let is_late = view.named_ms >= SUCCESSOR_MS;
    if !is_lost && !is_late {
        return (Step::Nothing, explain::awaited(named));
    }
    let why = if is_lost { explain::Replaced::Silent } else { explain::Replaced::Late };
    match successor(view, candidates, &[Some(named)]) {
        Some(successor) => (Step::Depose { successor }, explain::replaced(named, successor, why)),
        None => (Step::Nothing, explain::not_replaced(named, why)),
    }
}

/// The voters that count silence of the present master and were heard lately.
fn silent(view: &View) -> BTreeSet<NodeId> {
    let counts = |state: &NodeState| state.is_up && state.counts_silence_of == Some(view.record.epoch);
    let votes = |node: &NodeId| view.voters.iter().any(|set| set.contains(node));
    let silent = view.nodes.iter().filter(|(node, state)| counts(state) && votes(node));
    silent.map(|(node, _)| *node).collect()
}

/// Whether these are a majority of the voters, of both sets where there are two.
fn is_majority(view: &View, nodes: &BTreeSet<NodeId>) -> bool {
    let sets = || view.voters.iter().filter(|set| !set.is_empty());
    sets().next().is_some() && sets().all(|set| set.intersection(nodes).count() > set.len() / 2)
}
