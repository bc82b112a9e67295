//! Leases by grants in virtual time: pulses, voters, holders and successors as [`crate::grant`] has them, over a small Raft.
//!
//! Everything is one queue of events on one thread, and the seed decides all of it, so a seed repeats a history exactly. Each node
//! has two clocks, a disk that may be slow or lose what was not synced, and a pulse loop that may wake late, be stopped, or stand
//! still with its clocks. Messages are lost, delayed, repeated and reordered, in each direction by itself. [`raft`] is Raft with
//! terms, votes, truncation and joint changes of voters, because the interesting moments are rare in openraft: an ending entry
//! that one voter has and that is cut off, a voter that loses its disk in a change of voters. The commands are decided by
//! [`crate::record`].
//!
//! What is checked after every event is in [`world`]: a lease page that is valid while a successor has been promoted, or while
//! another one is valid, breaks the rules. [`stories`] shows for each rule the history that fails without it, [`histories`] draws
//! random ones, [`budget`] measures how long a failover takes.

mod budget;
mod clock;
mod control;
mod histories;
mod node;
mod raft;
mod stories;
mod world;

/// A rule left out, to see that the simulation notices. The names are those of CLUSTER.md, section 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    None,
    /// C1: a voter grants until the end is applied.
    GrantAfterAppend,
    /// C1: a node with an empty disk believes what the pulse says.
    EmptyDiskGrants,
    /// C2: a restarted voter reports that it granted nothing.
    AgeForgotten,
    /// C2: a jump of the clock counts as time that was watched.
    JumpCounts,
    /// C2: a report counts for whatever ending entry is committed.
    StaleReport,
    /// C2: a voter reports before its sync, and the report counts before the commit.
    EarlyReport,
    /// C4: a silent master is taken for dead.
    SilenceIsDeath,
    /// C4: a grant that arrives late opens the page again.
    LateGrantReopens,
    /// C6: the leader's own silence is enough.
    OneSidedView,
    /// C6: a voter counts the time in which it did not run itself as silence.
    BothVotersFrozen,
    /// C9: clocks are not compared.
    SlowClock,
    /// C9: only CLOCK_BOOTTIME is read.
    SlewedClock,
    /// C9: a standstill voids nothing.
    Thaw,
    /// C19: a change of voters does not count as a grant.
    ChangeHidesGrant,
    /// A voter grants though the master does not hear it.
    GrantUnheard,
}

impl Sabotage {
    /// With one clock only, a slewed clock would be noticed by the comparison.
    pub fn compares_no_clocks(self) -> bool {
        matches!(self, Sabotage::SlowClock | Sabotage::SlewedClock)
    }
}
