//! The planner's reasons, in words.

use std::collections::BTreeSet;
use std::fmt;

use holdfast_control::{Heard, NodeId, RestartsFirst, SUCCESSOR_MS, Sight, Undecided};

use super::{GivingUp, Lack, Plan, Step};

/// Why a successor is replaced.
#[derive(Clone, Copy)]
pub enum Replaced {
    Silent,
    Late,
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Replaced::Silent => write!(f, "is silent"),
            Replaced::Late => write!(f, "was not promoted within {SUCCESSOR_MS} ms"),
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::IsMaster => write!(f, "it is the master"),
            Lack::NotInSyncSet => write!(f, "it is not in the sync set: it may lack acknowledged commits"),
            Lack::Silent { ms: 0 } => write!(f, "it does not answer"),
            Lack::Silent { ms } => write!(f, "it was not heard for {ms} ms"),
            Lack::NotReady(None) => write!(f, "its server is not ready"),
            Lack::NotReady(Some(why)) => write!(f, "{why}"),
            Lack::DiskHangs => write!(f, "a sync of its disk does not return"),
            Lack::ClockOff => write!(f, "its clock runs at another rate than those of all others"),
            Lack::NotCompared => write!(f, "too few other standbys of the quorum are up to compare it with"),
            Lack::Behind(other) => write!(f, "{other} has more of the trail"),
        }
    }
}

impl fmt::Display for GivingUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GivingUp::ServerEnded => write!(f, "its server has ended"),
            GivingUp::ServerHangs { ms } => write!(f, "its server has not run for {ms} ms"),
            GivingUp::DiskHangs { ms } => write!(f, "a sync of its trail has lasted {ms} ms"),
            GivingUp::ClockOff => write!(f, "its clock runs at another rate than those of all others"),
            GivingUp::Asked { to: None } => write!(f, "an operator has asked for it"),
            GivingUp::Asked { to: Some(to) } => write!(f, "an operator has asked for {to}"),
        }
    }
}

impl fmt::Display for Plan {
    /// The reason, and a line for each node with data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.why)?;
        for (node, lacks) in &self.candidates {
            match lacks.is_empty() {
                true => writeln!(f, "  {node}: may be promoted")?,
                false => writeln!(f, "  {node}: {}", lacks.join("; "))?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Nothing => write!(f, "nothing"),
            Step::Depose { successor } => write!(f, "depose, for {successor}"),
            Step::HandOver { successor } => write!(f, "hand over to {successor}"),
        }
    }
}

fn listed<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> String {
    nodes.into_iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

pub fn no_master() -> String {
    "there was no master yet; the first server that starts becomes it".to_owned()
}

pub fn serves(master: NodeId, silent: &BTreeSet<NodeId>) -> String {
    match silent.is_empty() {
        true => format!("{master} is the master, and no voter counts silence"),
        false => format!("{master} is the master; only {} counts silence, which is no majority", listed(silent)),
    }
}

/// Why the leader names no node now; `plan`: what it would decide otherwise.
pub fn undecided(sight: &Sight, why: &Undecided, plan: &Plan) -> String {
    let record = &sight.record;
    let (leader, epoch, lease_ms) = (sight.leader, record.epoch, record.lease.lease_ms);
    let Some(master) = record.master else { return no_master() };
    match why {
        Undecided::Renewed { ms } => {
            let is_unheard = master != leader && matches!(sight.heard.get(&master), None | Some(Heard::Silent { .. }));
            // Six renewals are asked for in each lease.
            let renews = if ms * 3 < u64::from(lease_ms) { ": its renewals come through another node" } else { "" };
            let path = match is_unheard {
                true => format!(". {leader}, which leads the control plane, does not reach {master}{renews}"),
                false => String::new(),
            };
            format!(
                "{master} is the master of epoch {epoch}: its lease was renewed {ms} ms ago, and lasts {lease_ms} ms{path}. {}",
                if_lost(master, &plan.fit())
            )
        }
        Undecided::Granted { ms: None } => format!(
            "{master} is the master of epoch {epoch}: {leader}, which leads the control plane, hears it, and no majority of the nodes counts it \
             as silent. Its lease lasts {lease_ms} ms. {}",
            if_lost(master, &plan.fit())
        ),
        Undecided::Granted { ms: Some(ms) } => format!(
            "{leader}, which leads the control plane, {}, but no majority of the nodes counts {master} as silent: it is the \
             master of epoch {epoch}. {}",
            unheard(master, *ms),
            if_lost(master, &plan.fit())
        ),
        Undecided::Frozen => frozen(master),
        Undecided::OwnLease => {
            format!("{master} is the master of epoch {epoch}, leads the control plane, and holds its lease")
        }
        Undecided::NamedByCommand => match record.successor() {
            Some(named) => format!("{named} was named by a command, and is being promoted; no other node replaces it"),
            None => waits(),
        },
        Undecided::NoMajority => {
            format!("{leader} leads the control plane, and no majority of the nodes answers it: nothing can be decided")
        }
        Undecided::NotSettled => format!(
            "{leader} leads the control plane, but not for a second yet, or was stopped itself: it does not know whether {master} \
             is silent"
        ),
    }
}

/// `ms`: [`u64::MAX`] if it was never heard.
fn unheard(node: NodeId, ms: u64) -> String {
    match ms {
        u64::MAX => format!("has had no pulse of {node} since it was started"),
        ms => format!("has had no pulse of {node} for {ms} ms"),
    }
}

fn if_lost(master: NodeId, fit: &[NodeId]) -> String {
    match fit {
        [] => format!("If {master} is lost, no node takes over"),
        [one] => format!("If {master} is lost, {one} takes over"),
        some => format!("If {master} is lost, one of {} takes over", listed(some)),
    }
}

/// A member that hears no leader with a majority.
pub fn not_led<'a>(asked: NodeId, unreachable: impl IntoIterator<Item = (&'a NodeId, &'a String)>) -> String {
    let missing = unreachable.into_iter().map(|(node, why)| format!("{node} ({why})")).collect::<Vec<_>>().join(", ");
    let missing = if missing.is_empty() { String::new() } else { format!(": it does not reach {missing}") };
    format!(
        "{asked} hears no leader of the control plane{missing}. Without a majority of the three nodes no node is named as the \
         successor; a master keeps its lease while a majority hears its pulses"
    )
}

pub fn frozen(master: NodeId) -> String {
    format!(
        "the cluster is frozen by command: {master} is the master, and no node takes its place by itself. To end that: holdfast \
         cluster thaw"
    )
}

/// `last`: the master that has ended.
pub fn frozen_without_master(last: Option<NodeId>, named: Option<NodeId>) -> String {
    let next = match (named, last) {
        (Some(named), _) => format!("{named} is being promoted, and no other node replaces it"),
        (None, Some(last)) => format!("the mastership was given up, and {last} takes it again when its server runs"),
        (None, None) => "the mastership was given up".to_owned(),
    };
    format!("the cluster is frozen by command: {next}. To end that: holdfast cluster thaw")
}

pub fn deposed(master: NodeId, successor: NodeId, silent: &BTreeSet<NodeId>) -> String {
    format!("{master} is silent, by {}; {successor} takes its place when its lease is out", listed(silent))
}

pub fn no_successor(master: NodeId) -> String {
    format!("{master} is silent, and no other node can take its place")
}

pub fn hands_over(master: NodeId, why: GivingUp, successor: NodeId) -> String {
    format!("{master} hands over to {successor}: {why}")
}

pub fn restarts(master: NodeId, is_frozen: bool) -> String {
    let why = if is_frozen { "the cluster is frozen" } else { "no other node can take its place" };
    format!("the server of {master} has ended; it restarts in place: {why}")
}

pub fn restarts_first(last: NodeId, RestartsFirst { takeovers, pause_ms }: RestartsFirst) -> String {
    format!(
        "the mastership was given up, after {takeovers} takeovers from servers that had ended in 10 minutes: {last} starts again in \
         place first, and no other node is named for {pause_ms} ms"
    )
}

pub fn keeps(master: NodeId, why: GivingUp) -> String {
    format!("{master} keeps the database, because no other node can take its place, although {why}")
}

pub fn released(successor: NodeId) -> String {
    format!("the mastership was given up; {successor} takes it")
}

pub fn waits() -> String {
    "the mastership was given up, and no node can take it; the last master can, when its server runs again".to_owned()
}

pub fn awaited(named: NodeId) -> String {
    format!("{named} is being promoted")
}

pub fn replaced(named: NodeId, successor: NodeId, why: Replaced) -> String {
    format!("{named} {why}; {successor} is to be promoted instead")
}

pub fn not_replaced(named: NodeId, why: Replaced) -> String {
    format!("{named} {why}, and no other node can take its place")
}
