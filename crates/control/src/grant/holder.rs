//! The holder's side: until when this node, as master, holds its lease.
//!
//! A lease runs for `lease_ms` from the latest instant such that a majority granted a pulse sent then or later; of both sets
//! while voters are being changed. It is counted from the sending, on the two clocks separately, so that the larger time
//! counts. Each epoch has a holder of its own.
//!
//! | event | the lease | grants so far |
//! |---|---|---|
//! | a grant arrives | ends later, or as before | the voter's newest pulse |
//! | another voter set is in this node's log | as before | void |
//! | this machine stood still | has ended | void: only pulses sent from now on count |
//! | closed | has ended, for good | void |
//!
//! Failure: an answer that is late, repeated, of another incarnation or about a pulse that was forgotten changes nothing.

use holdfast_types::Epoch;

use super::pulse::Pulse;
use super::sent::SentPulses;
use super::time::Reading;
use super::voters::{NODES_MAX, Voters};

/// The lease of one mastership. The pulse thread owns it and copies [`Holder::end`] to the lease page.
#[derive(Clone, Debug)]
pub struct Holder {
    epoch: Epoch,
    lease_ns: u64,
    voters: Voters,
    /// The newest pulse that each voter granted; 0 if it granted none that counts.
    granted: [u64; NODES_MAX],
    /// Pulses up to this one count no more.
    void: u64,
    end: Reading,
    closed: bool,
}

impl Holder {
    /// The lease of `epoch`. `end`: what the page of that epoch shows already, from an earlier run of this program.
    pub fn new(epoch: Epoch, lease_ms: u32, end: Reading) -> Holder {
        Holder {
            epoch,
            lease_ns: u64::from(lease_ms) * 1_000_000,
            voters: Voters::default(),
            granted: [0; NODES_MAX],
            void: 0,
            end,
            closed: false,
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The voters by this node's newest voter set; call it before a pulse is sent that names the set.
    pub fn set_voters(&mut self, voters: Voters, sent: &SentPulses) {
        if voters != self.voters {
            self.voters = voters;
            self.forget(sent);
        }
    }

    /// Takes the answer of the node in that slot. True if the lease now ends later.
    pub fn answered(&mut self, slot: usize, answer: &Pulse, sent: &SentPulses) -> bool {
        let Some(answers) = answer.answers.filter(|answers| answers.granted) else { return false };
        let is_mine = answers.incarnation == sent.incarnation() && answer.epoch == self.epoch;
        is_mine && self.granted(slot, answers.sequence, sent)
    }

    /// The node in that slot has granted this pulse: for this node's own vote. True if the lease now ends later.
    pub fn granted(&mut self, slot: usize, sequence: u64, sent: &SentPulses) -> bool {
        let Some(granted) = self.granted.get_mut(slot) else { return false };
        if self.closed || sequence <= self.void || sequence > sent.newest() {
            return false;
        }
        *granted = (*granted).max(sequence);
        let Some(covered) = self.voters.majority_reached(&self.granted) else { return false };
        let Some(at) = sent.at(sent.incarnation(), covered) else { return false };
        let end = at.plus(self.lease_ns);
        let is_later = self.end.boot_ns < end.boot_ns || self.end.raw_ns < end.raw_ns;
        if is_later {
            self.end = end;
        }
        is_later
    }

    /// This machine stood still while others did not: what was granted before is void (rule C9).
    pub fn stood_still(&mut self, sent: &SentPulses) {
        self.end = Reading::default();
        self.forget(sent);
    }

    /// Ends the lease at once and for good: before HandOver is proposed, or when the page was closed.
    pub fn close(&mut self) {
        self.closed = true;
        self.end = Reading::default();
    }

    fn forget(&mut self, sent: &SentPulses) {
        self.granted = [0; NODES_MAX];
        self.void = sent.newest();
    }

    /// Where the lease ends on both clocks; zeros if it has ended. This is what the page shows.
    pub fn end(&self) -> Reading {
        self.end
    }

    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the lease is held.
    pub fn is_valid(&self, now: Reading) -> bool {
        !self.closed && now.is_before(&self.end)
    }

    /// The time left, by the clock on which it is shorter, in milliseconds rounded up: 0 only when the lease is out.
    pub fn left_ms(&self, now: Reading) -> u32 {
        let left_ns = self.end.shortest_since(&now);
        u32::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX)
    }

    /// For the simulation: what a page would do that is not closed for good.
    #[cfg(test)]
    pub fn reopen(&mut self) {
        self.closed = false;
    }
}

#[cfg(test)]
#[path = "holder_tests.rs"]
mod tests;
