//! The voter's side: which pulse is granted, when the last grant was given, and what is reported when a mastership has ended.
//!
//! | a pulse is granted if | otherwise |
//! |---|---|
//! | it belongs to this group and asks for a lease | `NotAsked` |
//! | this node is a voter with this disk, in the membership that it has applied | `NoVote` |
//! | its sender is the master of the epoch that this node has applied, which is not deposed, under record 2 | `NotMaster` |
//! | no ending entry of that epoch is in this node's log, committed or not | `Ended` |
//! | its sender's newest voter set is this node's newest | `OtherVoters` |
//! | its sender hears this node | `Unheard` |
//! | the log did not change after the time of the grant was stored | `LogMoves` |
//!
//! `Unheard`: a grant that does not arrive gives no lease, but a successor has to wait it out. A master that sends and does not
//! hear would keep the grants young, and failover would take twice as long (docs/grants.md).
//!
//! A report says how much watched time has passed since the last grant, or since this run began, or since the newest voter set
//! was appended, whichever is latest. So nothing has to survive a restart.

use holdfast_types::Epoch;

use super::log::{LogView, Stage, VoterLog, Word};
use super::pulse::{Pulse, Report};
use super::time::Moment;
use super::voters::{NODES_MAX, Roster};
use crate::record::RECORD_VERSION_GRANTS;

/// Why a pulse is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotGranted {
    NotAsked,
    NoVote,
    NotMaster,
    Ended,
    OtherVoters,
    Unheard,
    LogMoves,
}

/// One node as a voter. The pulse thread owns it.
#[derive(Clone, Debug)]
pub struct Voter {
    me: usize,
    roster: Roster,
    pub(crate) view: LogView,
    /// The last grant, or what counts as one.
    pub(crate) granted: Moment,
    /// Since when no pulse that reports a lease was granted.
    silent_since: Moment,
    /// Incarnation and sequence of the newest pulse of each node.
    newest: [(u64, u64); NODES_MAX],
}

impl Voter {
    /// Begins a run, after the lock of the control directory was taken: that counts as a grant. `me`: the slot of this node.
    pub fn new(me: usize, roster: Roster, now: Moment) -> Voter {
        Voter { me, roster, view: LogView::default(), granted: now, silent_since: now, newest: [(0, 0); NODES_MAX] }
    }

    /// Takes over what the log says; call it once in each turn, before the pulses are judged.
    pub fn look<W: Word>(&mut self, log: &VoterLog<W>, now: Moment) -> &LogView {
        if let Some(view) = log.look() {
            if view.voters.at != self.view.voters.at {
                // A grant by the old set may be hidden behind the new one (rule C19).
                self.granted = self.granted.max(now);
            }
            let (old, new) = (&self.view.applied, &view.applied);
            if (old.epoch, old.stage) != (new.epoch, new.stage) {
                self.silent_since = now;
            }
            self.view = view;
        }
        &self.view
    }

    /// Judges a pulse, of another node or of this node itself. After `Ok` the answer is to be sent at once.
    pub fn ask<W: Word>(&mut self, pulse: &Pulse, log: &VoterLog<W>, now: Moment) -> Result<(), NotGranted> {
        self.may_grant(pulse)?;
        self.granted = self.granted.max(now);
        if !log.store_grant(self.granted, &self.view) {
            return Err(NotGranted::LogMoves);
        }
        self.note(pulse, now);
        Ok(())
    }

    fn may_grant(&self, pulse: &Pulse) -> Result<(), NotGranted> {
        let applied = &self.view.applied;
        if !pulse.asks || pulse.answers.is_some() || pulse.cluster != applied.cluster {
            return Err(NotGranted::NotAsked);
        }
        if !applied.votes {
            return Err(NotGranted::NoVote);
        }
        let is_master = applied.master.is_some() && applied.master == self.roster.slot(pulse.node);
        let by_grants = u16::from(applied.record_version) >= RECORD_VERSION_GRANTS;
        if !is_master || !by_grants || applied.stage != Stage::Serving || pulse.epoch != applied.epoch {
            return Err(NotGranted::NotMaster);
        }
        if self.view.ended >= applied.epoch {
            return Err(NotGranted::Ended);
        }
        if pulse.voters_at != self.view.voters.at {
            return Err(NotGranted::OtherVoters);
        }
        if applied.master != Some(self.me) && !pulse.heard.contains(self.me) {
            return Err(NotGranted::Unheard);
        }
        Ok(())
    }

    /// A pulse that was delayed, or a copy of one, says nothing about the master now.
    fn note(&mut self, pulse: &Pulse, now: Moment) {
        let Some(newest) = self.view.applied.master.and_then(|slot| self.newest.get_mut(slot)) else { return };
        let is_newer = newest.0 != pulse.incarnation || newest.1 < pulse.sequence;
        if is_newer {
            *newest = (pulse.incarnation, pulse.sequence);
        }
        if is_newer && pulse.lease_left_ms > 0 {
            self.silent_since = now;
        }
    }

    /// Whether this voter counts silence of the master: for the time of a lease it granted no pulse, or only such that report
    /// no lease.
    pub fn is_silent(&self, now: Moment) -> bool {
        let applied = &self.view.applied;
        let by_grants = u16::from(applied.record_version) >= RECORD_VERSION_GRANTS;
        let lease_ns = u64::from(applied.lease_ms) * 1_000_000;
        by_grants && applied.votes && applied.stage == Stage::Serving && now.since(self.silent_since) >= lease_ns
    }

    /// The epoch of which [`Voter::is_silent`] speaks.
    pub fn epoch(&self) -> Epoch {
        self.view.applied.epoch
    }

    /// What this voter reports in every message: the ending entry that is durable here, and the time since the last grant.
    pub fn report(&self, now: Moment) -> Option<Report> {
        self.view.durable_ending.map(|ending| Report { ending, age_ns: now.since(self.granted) })
    }
}

#[cfg(test)]
#[path = "voter_tests.rs"]
mod tests;
