//! The successor's wait: how long a node that was named as successor waits until the lease of the old master is out.
//!
//! ```text
//! voter        grant ── ending entry appended ── durable
//! successor                                        committed ── asks ── reports ───── promoted
//!              └───────────────── lease * (100 + d) / (100 - d) ──────────────────────┘
//! ```
//! It counts from the youngest grant that a majority reports for exactly the ending entry that is committed; without reports
//! from the commit. A majority that granted and one that has the entry durably share a voter: that one granted before the entry
//! and never after, and its report covers the grant. No wait follows HandOver: the page was closed before it was proposed.
//!
//! Only reports count that answer a pulse sent after this node had applied the entry. An entry that is committed is not cut off;
//! a report from before could be of an entry that was cut off, granted over, and appended again.

use super::pulse::Pulse;
use super::time::Moment;
use super::voters::{LogPosition, NODES_MAX, Voters};
use crate::lease::LeaseTerms;

/// Counts from one committed ending entry. The pulse thread owns it.
#[derive(Clone, Debug)]
pub struct Wait {
    ending: Option<LogPosition>,
    incarnation: u64,
    /// The first pulse that was sent after the commit.
    asked_from: u64,
    needed_ns: u64,
    committed: Moment,
    /// The youngest grant that each voter reports; the end of time if it has not reported.
    grants: [u64; NODES_MAX],
}

impl Wait {
    /// Begins at the moment at which this node has applied the ending entry. `ending`: where it is, if that is known (after a
    /// restart it may be in a snapshot). `next_sequence`: of the next pulse that this incarnation sends.
    pub fn new(
        ending: Option<LogPosition>,
        terms: &LeaseTerms,
        incarnation: u64,
        next_sequence: u64,
        now: Moment,
    ) -> Wait {
        Wait {
            ending,
            incarnation,
            asked_from: next_sequence,
            needed_ns: terms.wait_out_ms() * 1_000_000,
            committed: now,
            grants: [u64::MAX; NODES_MAX],
        }
    }

    /// The entry that this wait follows.
    pub fn ending(&self) -> Option<LogPosition> {
        self.ending
    }

    /// Takes the answer of the node in that slot.
    pub fn answered(&mut self, slot: usize, answer: &Pulse, now: Moment) {
        let Some(answers) = answer.answers else { return };
        if answers.incarnation == self.incarnation && answers.sequence >= self.asked_from {
            self.reported(slot, answer.report, now);
        }
    }

    /// Takes the report of the node in that slot, which was made after the commit: for this node's own.
    pub fn reported(&mut self, slot: usize, report: Option<super::pulse::Report>, now: Moment) {
        let Some(report) = report.filter(|report| Some(report.ending) == self.ending) else { return };
        if let Some(grant) = self.grants.get_mut(slot) {
            // The message was on the way for a time that makes the grant look younger, which is safe.
            *grant = (*grant).min(now.back(report.age_ns).0);
        }
    }

    /// How long this node has waited, in nanoseconds of watched time.
    pub fn waited_ns(&self, voters: &Voters, now: Moment) -> u64 {
        let youngest = voters.majority_within(&self.grants).unwrap_or(u64::MAX);
        now.since(Moment(youngest.min(self.committed.0)))
    }

    /// How long it has to wait in all.
    pub fn needed_ns(&self) -> u64 {
        self.needed_ns
    }

    /// Whether the lease of the old master is out on every allowed clock.
    pub fn is_over(&self, voters: &Voters, now: Moment) -> bool {
        self.waited_ns(voters, now) >= self.needed_ns
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
