//! Raft as this crate uses it: the types that openraft is filled in with, and its settings.

use openraft::SnapshotPolicy;
use serde::{Deserialize, Serialize};

use crate::id::{DiskId, NodeId};
use crate::record::{Answer, Command, Record};

/// What runs Raft's tasks: tokio, and in the simulation a form of it that can pause and kill one node's.
#[cfg(not(test))]
pub type Runtime = openraft::TokioRuntime;
#[cfg(test)]
pub type Runtime = crate::simulation::SimRuntime;

/// What the log says of a member: which disk its vote and log are on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Peer {
    pub disk: DiskId,
}

/// The state that a snapshot carries.
pub type State = Option<Record>;

openraft::declare_raft_types!(
    /// openraft, filled in.
    pub Types:
        D = Command,
        R = Answer,
        NodeId = NodeId,
        Node = Peer,
        Entry = openraft::Entry<Types>,
        SnapshotData = State,
        Responder = openraft::impls::OneshotResponder<Types>,
        AsyncRuntime = Runtime,
);

pub type Raft = openraft::Raft<Types>;
pub type Entry = openraft::Entry<Types>;
pub type LogId = openraft::LogId<NodeId>;
pub type Vote = openraft::Vote<NodeId>;
pub type Membership = openraft::StoredMembership<NodeId, Peer>;
pub type SnapshotMeta = openraft::SnapshotMeta<NodeId, Peer>;
pub type Snapshot = openraft::Snapshot<Types>;
pub type StorageError = openraft::StorageError<NodeId>;
pub type StorageIoError = openraft::StorageIOError<NodeId>;

/// Entries behind the last snapshot after which the next one is made; few in tests, so that it happens there.
const SNAPSHOT_EVERY: u64 = if cfg!(test) { 40 } else { 2_000 };
/// Entries kept before the snapshot, for followers that are a little behind.
const ENTRIES_KEPT: u64 = if cfg!(test) { 10 } else { 200 };

/// A new leader in about two seconds, so that a lease of three outlives the loss of the old one. A heartbeat's interval
/// is also what openraft gives a follower to write and answer, so it must allow for a slow sync.
pub fn settings() -> openraft::Config {
    openraft::Config {
        cluster_name: "holdfast-control".to_owned(),
        heartbeat_interval: 250,
        election_timeout_min: 600,
        election_timeout_max: 900,
        install_snapshot_timeout: 1_000,
        replication_lag_threshold: 2 * SNAPSHOT_EVERY,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_EVERY),
        max_in_snapshot_log_to_keep: ENTRIES_KEPT,
        ..openraft::Config::default()
    }
}
