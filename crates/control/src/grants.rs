//! What the control plane's thread and the pulse thread of a supervisor share, and how the former promotes, tells positions and sees
//! silence where leases are granted by pulses ([`crate::grant`]).
//!
//! | needed | under record 1 | under record 2, here |
//! |---|---|---|
//! | the old lease is out | time since the last renewal ([`crate::applied`]) | [`Core::wait_out_grants`]: the youngest grant that a majority reports |
//! | a right clock | | [`Core::check_clock`]: a node whose clock was not compared, or differs, is not promoted (rule C9) |
//! | positions against copies that were put back | in each renewal | [`Core::keep_told`], once a second |
//!
//! Failure: without a pulse thread no lease is granted, no master counts as silent, and no wait ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_types::Epoch;
use tokio::time::{Instant, sleep};

use crate::core::{Core, PATIENCE};
use crate::error::ControlError;
use crate::grant::{EndedRuns, NODES_MAX, NodeSet, Roster, Seen, SeenBoard, VoterLog};
use crate::id::NodeId;
use crate::lease::Lease;
use crate::record::{Command, Mastership, RECORD_VERSION_GRANTS, Record};
use crate::starts::Start;

/// How often a wait is looked at.
const STEP: Duration = Duration::from_millis(2);
/// How long a promotion waits until this node's clock was compared with another one.
const CLOCK_PATIENCE: Duration = Duration::from_secs(5);
/// How often the group gets the positions of trails.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Shared by the two threads.
pub struct Grants {
    pub roster: Roster,
    /// The control plane's thread writes it, the pulse thread reads it.
    pub log: Arc<VoterLog>,
    pub ended: Arc<EndedRuns>,
    /// The other way round.
    pub seen: SeenBoard,
}

impl Grants {
    pub fn new(roster: Roster) -> Grants {
        Grants { roster, log: Arc::default(), ended: Arc::default(), seen: SeenBoard::default() }
    }

    /// That node's directory was started again: its runs before that have ended.
    pub fn note_start(&self, node: NodeId, start: &Start) {
        if let Some(slot) = self.roster.slot(node) {
            self.ended.note(slot, &start.before);
        }
    }

    /// The nodes of a set.
    pub fn names(&self, set: NodeSet) -> impl Iterator<Item = NodeId> {
        let names = self.roster.names().iter().enumerate();
        names.filter(move |(slot, _)| set.contains(*slot)).map(|(_, node)| *node)
    }

    /// For how long each other node was not heard, of those that were not heard lately.
    pub fn unheard_ms(&self, seen: &Seen) -> BTreeMap<NodeId, u64> {
        let missing = NodeSet::of((0..NODES_MAX).filter(|slot| !seen.heard.contains(*slot)));
        let quiet = |node: NodeId| self.roster.slot(node).and_then(|slot| seen.quiet_ms[slot]);
        self.names(missing).map(|node| (node, quiet(node).map_or(u64::MAX, u64::from))).collect()
    }
}

impl Record {
    /// Whether voters grant the lease by their answers to pulses.
    pub fn is_by_pulses(&self) -> bool {
        self.version >= RECORD_VERSION_GRANTS
    }
}

impl Core {
    /// Whether voters grant the lease by their answers to pulses.
    pub fn is_by_pulses(&self) -> bool {
        self.published.get().is_some_and(|record| record.is_by_pulses())
    }

    /// Counts until the old lease is over by the reports of voters, or the record has moved on; milliseconds.
    pub async fn wait_out_grants(&self, deposed: &Record) -> Result<u64, ControlError> {
        let needed_ms = deposed.lease.wait_out_ms();
        loop {
            let newest = self.published.get().filter(|newest| newest.revision >= deposed.revision);
            let newest = newest.as_deref().unwrap_or(deposed);
            let waits =
                matches!(newest.mastership, Mastership::Deposed { wait: true, successor } if successor == self.me);
            if newest.epoch != deposed.epoch || !waits {
                // It may be given up, or another node was named: the group will say so.
                return Ok(0);
            }
            let seen = self.grants.seen.look();
            if let Some(waited_ms) = seen.waited_ms.map(u64::from).filter(|_| seen.epoch == deposed.epoch)
                && waited_ms >= needed_ms
            {
                return Ok(waited_ms);
            }
            sleep(STEP).await;
        }
    }

    /// Refuses the promotion of a node whose clock was not compared with another one that agrees: its lease could last longer than
    /// its successor waits.
    pub async fn check_clock(&self) -> Result<(), ControlError> {
        let until = Instant::now() + CLOCK_PATIENCE;
        let me = self.grants.roster.slot(self.me).unwrap_or(NODES_MAX);
        while self.grants.seen.look().clock_off.contains(me) {
            if Instant::now() >= until {
                return Err(ControlError::ClockNotCompared { node: self.me });
            }
            sleep(STEP).await;
        }
        Ok(())
    }

    /// Tells the group the positions of trails while the mastership of that lease lasts.
    pub async fn keep_told(&self, lease: &Lease) {
        let epoch = lease.epoch();
        let mut told = BTreeMap::new();
        while !lease.is_given_up() {
            sleep(TELL_EVERY).await;
            let positions = self.trail.positions(epoch);
            if positions.is_empty() || positions == told {
                continue;
            }
            let command = Command::TellPositions { epoch, by: self.me, positions: positions.clone() };
            match self.propose(command, PATIENCE).await {
                Ok(_) => told = positions,
                Err(ControlError::NoQuorum) => {
                    tracing::warn!(%epoch, "the positions of trails cannot be told: no majority of the members answers")
                }
                Err(error) => {
                    tracing::warn!(%epoch, "the mastership has ended: {error}");
                    return;
                }
            }
        }
    }

    /// The nodes that no pulse came from lately, and for how long; none under record 1.
    pub fn unheard(&self, record: &Record) -> BTreeMap<NodeId, u64> {
        if !record.is_by_pulses() {
            return BTreeMap::new();
        }
        self.grants.unheard_ms(&self.grants.seen.look())
    }

    /// For how long no pulse of the master came, where each of a majority counts it as silent; milliseconds.
    pub fn master_silent_ms(&self, epoch: Epoch, master: NodeId) -> Option<u64> {
        let seen = self.grants.seen.look();
        if !seen.is_silent || seen.epoch != epoch {
            return None;
        }
        Some(self.unheard_ms_of(&seen, master).unwrap_or(0))
    }

    /// For how long that node was not heard; `None`: it was heard lately.
    pub fn unheard_ms_of(&self, seen: &Seen, node: NodeId) -> Option<u64> {
        self.grants.unheard_ms(seen).get(&node).copied()
    }
}
