//! Feeds [`VoterLog`] from Raft's storage: what the pulse thread has to know of the log, at the moments that the rules of grants name.
//!
//! | Raft's storage | the pulse thread sees |
//! |---|---|
//! | the process starts: the snapshot, then the entries of the journal behind it | all of it, before the first pulse is answered |
//! | entries are about to be written to the journal | an ending entry: nothing is granted for its epoch from now on (C1); a change of voters (C19) |
//! | they are synced | the ending entry is durable and may be reported (C2) |
//! | the end of the log is cut off | a mastership whose end was there may get grants again |
//! | an entry is applied | the mastership, this node's vote; a refused end is none |
//! | a snapshot of the leader is installed | as at the start |
//!
//! Failure: none of its own. A write that fails ends the process, with its grants.

use std::collections::BTreeSet;
use std::sync::Arc;

use openraft::EntryPayload;

use crate::grant::{Applied, LogPosition, Meaning, NodeSet, Roster, VoterLog, Voters};
use crate::id::{DiskId, NodeId};
use crate::raft::{Entry, LogId, Membership};
use crate::record::Record;

/// Clones feed the same log.
#[derive(Clone)]
pub struct VoterFeed {
    me: NodeId,
    /// The disk of this member's vote and log.
    disk: DiskId,
    roster: Roster,
    log: Arc<VoterLog>,
}

impl VoterFeed {
    pub fn new(me: NodeId, disk: DiskId, roster: Roster, log: Arc<VoterLog>) -> VoterFeed {
        VoterFeed { me, disk, roster, log }
    }

    /// What an entry means for leases.
    pub fn meaning(&self, entry: &Entry) -> Meaning {
        match &entry.payload {
            EntryPayload::Blank => Meaning::Other,
            EntryPayload::Normal(command) => command.ends().map_or(Meaning::Other, Meaning::Ends),
            EntryPayload::Membership(membership) => Meaning::Voters(self.sets(membership.get_joint_config())),
        }
    }

    /// At the start, after the snapshot: these entries are in the journal.
    pub fn replayed<'a>(&self, entries: impl IntoIterator<Item = &'a Entry>) {
        for entry in entries {
            self.log.appended(entry.log_id.into(), self.meaning(entry));
            self.log.durable(entry.log_id.index);
        }
    }

    /// *Before* they are written.
    pub fn appended(&self, entries: &[Entry]) {
        for entry in entries {
            self.log.appended(entry.log_id.into(), self.meaning(entry));
        }
    }

    /// After the sync, *before* Raft confirms them.
    pub fn durable(&self, last: Option<LogId>) {
        if let Some(last) = last {
            self.log.durable(last.index);
        }
    }

    /// Entries from this index on are gone.
    pub fn truncated(&self, index: u64) {
        self.log.truncated(index);
    }

    /// `refused`: the entry changed nothing.
    pub fn applied(
        &self,
        at: LogId,
        meaning: Meaning,
        refused: bool,
        record: Option<&Record>,
        membership: &Membership,
    ) {
        let applied = Applied::of(record, &self.roster, self.votes(membership));
        self.log.applied(at.into(), meaning, refused, applied);
    }

    /// A snapshot that ends at `end` is this node's state.
    pub fn installed(&self, end: Option<LogId>, record: Option<&Record>, membership: &Membership) {
        let at = membership.log_id().map(LogPosition::from).unwrap_or_default();
        let voters = Voters { at, sets: self.sets(membership.membership().get_joint_config()) };
        let applied = Applied::of(record, &self.roster, self.votes(membership));
        self.log.installed(end.map(LogPosition::from).unwrap_or_default(), voters, applied);
    }

    /// Whether this node votes, with the disk that it has.
    fn votes(&self, membership: &Membership) -> bool {
        let membership = membership.membership();
        let is_its_disk = membership.get_node(&self.me).is_some_and(|peer| peer.disk == self.disk);
        is_its_disk && membership.voter_ids().any(|voter| voter == self.me)
    }

    fn sets(&self, joint: &[BTreeSet<NodeId>]) -> [NodeSet; 2] {
        let set =
            |at: usize| joint.get(at).map(|set| NodeSet::of(set.iter().filter_map(|node| self.roster.slot(*node))));
        [set(0).unwrap_or_default(), set(1).unwrap_or_default()]
    }
}
