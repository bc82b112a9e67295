//! What a leader sees when it decides on a successor, and what is decided and told of that ([`crate::failover`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::record::Record;
use crate::trail_tip::TrailTip;

/// A successor that could be promoted for this time, and was not, is replaced.
pub const SUCCESSOR_MS: u64 = 2_000;
/// How long the leader may take to explain: it asks the nodes with data.
pub const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// After so many takeovers from servers that have ended, the next such server is to start again in place first.
const TAKEOVERS_MAX: usize = 3;
/// Within this time.
pub const TAKEOVERS_WITHIN: Duration = Duration::from_secs(600);
const RESTART_MS_MIN: u64 = 5_000;
const RESTART_MS_MAX: u64 = 30_000;

/// Crashes follow the load, as those by a poisonous statement do: the last master's server is to start again in its place, and another
/// node takes over only when that takes longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartsFirst {
    /// In [`TAKEOVERS_WITHIN`].
    pub takeovers: usize,
    /// For how long no other node is named: twice as long after each further takeover.
    pub pause_ms: u64,
}

impl RestartsFirst {
    /// `None`: another node takes over at once.
    pub fn after(takeovers: usize) -> Option<RestartsFirst> {
        let more = takeovers.checked_sub(TAKEOVERS_MAX)?;
        let pause_ms = RESTART_MS_MIN.saturating_mul(1 << more.min(8)).min(RESTART_MS_MAX);
        Some(RestartsFirst { takeovers, pause_ms })
    }
}

/// What a node with data says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Its trail is open, and ends there.
    Tip(TrailTip),
    /// It answers, and has no trail that could be a master's; why.
    Unfit(String),
    /// It does not answer; since when, as far as this leader watched it.
    Silent { ms: u64 },
}

/// What the leader knows when the mastership is over.
#[derive(Clone, Debug)]
pub struct Sight {
    pub record: Record,
    pub leader: NodeId,
    /// For how long no renewal was applied, where the master counts as silent.
    pub silent_ms: Option<u64>,
    /// Why nothing is decided now, however fit a successor is; `None`: the planner decides.
    pub undecided: Option<Undecided>,
    /// For how long the successor that is named could have been promoted.
    pub late_ms: u64,
    /// Set while the last master, whose server has ended, may start again in place.
    pub restarts_first: Option<RestartsFirst>,
    /// The nodes with data.
    pub heard: BTreeMap<NodeId, Heard>,
    /// What pulses say besides, where leases are granted by them.
    pub by_pulses: ByPulses,
}

/// What nodes say of themselves in their pulses.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ByPulses {
    /// Their clocks differ from those of all others, or were not compared yet.
    pub clock_off: BTreeSet<NodeId>,
    /// A sync of their trails has been under way for too long.
    pub disk_hangs: BTreeSet<NodeId>,
}

/// Why a leader names no node now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Undecided {
    /// The master renews its lease: the last renewal was applied here so long ago.
    Renewed { ms: u64 },
    /// Under leases by pulses: no majority counts the master as silent. `ms`: for how long this leader has not heard it; `None`: it
    /// does.
    Granted { ms: Option<u64> },
    /// The master is this member, and has its lease.
    OwnLease,
    /// A person has named the successor.
    NamedByCommand,
    /// A command has frozen the group.
    Frozen,
    /// No majority has acknowledged this leader lately.
    NoMajority,
    /// It leads for less than a second, or was stopped itself, or has not applied all of its log.
    NotSettled,
}

/// What is decided on a sight, and why.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Decision {
    /// The node to name.
    pub successor: Option<NodeId>,
    /// Why it is that one, or none, in a sentence.
    pub why: String,
    /// The nodes with data, and what keeps each from being the next master; empty: nothing does.
    pub lacks: Vec<(NodeId, Vec<String>)>,
}

/// Decides whom to name.
pub type Planner = Arc<dyn Fn(&Sight) -> Decision + Send + Sync>;

/// Why the master is the master and no other node is, by the member that leads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    pub leader: NodeId,
    pub why: String,
    /// See [`Decision::lacks`].
    pub lacks: Vec<(NodeId, Vec<String>)>,
}

/// What a member finds out about the mastership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Explained {
    /// By the leader.
    Led(Explanation),
    /// This member reaches no leader that has a majority; which members it does not reach, and why.
    NotLed { unreachable: BTreeMap<NodeId, String> },
}

#[cfg(test)]
mod tests {
    use super::RestartsFirst;

    #[test]
    fn after_three_takeovers_pauses_double_up_to_half_a_minute() {
        let pauses: Vec<Option<u64>> =
            (2..9).map(|takeovers| RestartsFirst::after(takeovers).map(|first| first.pause_ms)).collect();
        assert_eq!(pauses[..4], [None, Some(5_000), Some(10_000), Some(20_000)]);
        assert_eq!(pauses[4..], [Some(30_000); 3]);
        assert_eq!(RestartsFirst::after(usize::MAX).unwrap().pause_ms, 30_000);
    }
}
