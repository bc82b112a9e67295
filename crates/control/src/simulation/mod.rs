//! Three members on simulated disks, clocks and an in-memory network, in virtual time on one thread.
//!
//! A node's tasks run behind a [`Gate`] that stops them as SIGSTOP does: nothing of the node runs, its connections stay
//! open, its clock goes on. A crash ends the tasks and cuts the power of the disk. What is checked at every step is in
//! [`invariants`], and in [`commits`] and [`quorum`] that no acknowledged commit is lost; the histories are in [`histories`]. The seed decides what happens to the nodes; openraft and tokio draw
//! some random numbers of their own, so a seed repeats a history closely, not exactly.

mod clock;
mod commits;
mod directed;
mod failover;
mod faults;
pub mod grants;
mod histories;
mod invariants;
mod network;
mod quorum;
mod rolled_back;
mod runtime;
mod world;

pub use runtime::SimRuntime;

use crate::clock::LeaseClock;
use crate::lease::LeaseTerms;
use crate::record::{Mastership, Record};

/// A part of the protocol left out, to see that the simulation notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    None,
    /// A successor does not wait at all.
    NoWait,
    /// A successor waits as long as the lease is on its own clock, as if all clocks were equal.
    NoMargin,
    /// A successor trusts its clock over a jump or a pause of its own.
    JumpCounts,
    /// A node takes Raft's messages for a disk that it has lost.
    AnyDisk,
    /// The master counts its lease from the answer, not from the question.
    LeaseFromAnswer,
    /// The master acknowledges alone while the group has not agreed yet that its standby is out of the sync set.
    AlonePremature,
    /// A master that starts answers reads at once, whatever its standby has.
    ReadsAtOnce,
    /// A node outside the sync set is promoted.
    AnySuccessor,
    /// A successor out of a quorum claims that it has all of the others without asking them.
    NoAsking,
    /// It asks before the old master is deposed only.
    AsksTooEarly,
    /// A standby that has lost what it had confirmed stays in the quorum.
    FallenStays,
    /// A quorum is named before anything was written in the master's epoch.
    NamesTooEarly,
    /// A control directory that was put back from a copy takes part.
    AnyStart,
    /// A start is met whatever its log lacks.
    AnyLog,
    /// As AnyLog, and a member that led Raft leads on after its start, with the log that it finds.
    ResumesLeading,
    /// A node is promoted though the group has seen more of its trail.
    AnyPosition,
    /// Out of a quorum anybody counts, whether it has followed the master since it started or not (K6).
    AnyFollower,
    /// The wait counts from the last renewal that was published, not from the last that was applied (K1).
    WaitFromPublished,
    /// It counts from the last renewal applied here, though Depose was only heard of (K1).
    WaitFromAnswer,
    /// Raft's leader proposes Depose for whatever the record will be then, and again until it is agreed on (K2).
    DeposeWithoutSeen,
    /// Silence counts by the clock, also while this process was stopped (K3).
    SilenceByTheClock,
}

impl Sabotage {
    /// How long to wait, and what to claim if not that.
    pub fn wait_out_ms(self, terms: &LeaseTerms) -> (u64, Option<u64>) {
        let needed_ms = terms.wait_out_ms();
        match self {
            Sabotage::NoWait => (0, Some(needed_ms)),
            Sabotage::NoMargin => (terms.lease_ms.into(), Some(needed_ms)),
            _ => (needed_ms, None),
        }
    }

    /// Whether a successor claims that it has all of the others.
    pub fn claims_all(self, record: &Record) -> bool {
        let serves = matches!(record.mastership, Mastership::Serving { .. });
        self == Sabotage::NoAsking || self == Sabotage::AsksTooEarly && !serves
    }

    pub fn takes_any_log(self) -> bool {
        matches!(self, Sabotage::AnyLog | Sabotage::ResumesLeading)
    }

    /// From when a lease counts.
    pub fn lease_from(self, asked_ns: u64, clock: &dyn LeaseClock) -> u64 {
        if self == Sabotage::LeaseFromAnswer { clock.now_ns() } else { asked_ns }
    }
}
