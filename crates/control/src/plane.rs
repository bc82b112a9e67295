//! The control plane as the server sees it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_types::Epoch;
use tokio::sync::watch;

use crate::error::ControlError;
use crate::id::NodeId;
use crate::lease::Lease;
use crate::record::{Position, Record};
use crate::trail_tip::ComparedTrail;

/// What a promotion is based on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A person has asked for it: the master is deposed, and another successor is replaced.
    #[default]
    Asked,
    /// The record names the node as the successor. Refused when it names another one by now; no master is deposed.
    Named,
    /// The server starts and was the last master. Refused while another node is named, or when the record has changed since.
    Starts,
}

/// The node to promote, and the assumptions of the promotion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promotion {
    pub node: NodeId,
    /// The epoch of the record that the decision was made on.
    pub expected_epoch: Epoch,
    /// The new epoch is at least this: one more than the node's trail has seen.
    pub epoch_at_least: Epoch,
    /// Promote a node that may lack acknowledged commits.
    pub accept_loss: bool,
    /// The newest epoch that this node's trail knows and the end of what it has on its disk; `None`: it has no trail.
    pub trail_end: Option<Position>,
    pub basis: Basis,
}

/// The standbys that commits wait for, if it is not all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quorum {
    pub standbys: BTreeSet<NodeId>,
    /// How many of them a commit must reach.
    pub needed: usize,
}

/// A change of the sync set that is about to be asked for. One drawn later wins, whichever is agreed on first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change(pub(crate) u64);

impl Change {
    /// A change that was numbered in another process: the one that has the trail numbers the changes of its mastership, and
    /// survives the process that asks the group.
    pub fn numbered(number: u64) -> Change {
        Change(number)
    }

    pub fn number(self) -> u64 {
        self.0
    }
}

/// The control plane: it decides which node is master, grants its lease, and keeps the sync set.
pub trait ControlPlane: Send + Sync {
    /// The newest record this node has seen; may be old. `None` until it has seen one.
    fn record(&self) -> Option<Arc<Record>>;

    /// A channel with every newer record.
    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>>;

    /// Returns the record that a majority agrees on now.
    fn look(&self) -> BoxFuture<'_, Result<Record, ControlError>>;

    /// The lease of the last mastership that [`ControlPlane::promote`] gave this process; one that is never valid
    /// before that. Keep it and ask [`Lease::valid_now`] before each acknowledgement.
    fn lease(&self) -> Lease;

    /// Whether that lease is held, for those who want to be told; it may tell late, [`Lease::valid_now`] does not.
    fn lease_held(&self) -> watch::Receiver<bool>;

    /// Makes a node master: deposes the old one, waits its lease out, raises the epoch. Returns the new epoch. When the
    /// node is this one, renewing its lease begins at once. After [`ControlError::NoQuorum`] it may still have
    /// happened; promote again on the then current epoch. A node that was the last master keeps its sync set: before its
    /// first answer it removes ([`ControlPlane::shrink`]) every standby that is not known to have all of its trail. Out of a quorum
    /// a node promotes only itself.
    fn promote(&self, promotion: Promotion) -> BoxFuture<'_, Result<Epoch, ControlError>>;

    /// Takes a standby out of the sync set. Only when this has returned `Ok` may a commit of that epoch be
    /// acknowledged without it.
    fn shrink(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>>;

    /// Takes a standby into the sync set. It must have everything acknowledged so far, and commits must already wait
    /// for it.
    fn grow(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>>;

    /// The next change of the sync set. Draw it before looking at what the change is based on.
    fn next_change(&self) -> Change;

    /// Names a quorum as the sync set: so many of these standbys have everything acknowledged so far, and behind it something
    /// that was written in this epoch; and commits already wait for as many of them. The others need not even be there.
    fn name_quorum(&self, epoch: Epoch, quorum: Quorum, change: Change) -> BoxFuture<'_, Result<(), ControlError>>;

    /// Ends this node's lease at once, so that no successor has to wait: it has stopped acknowledging in that epoch.
    fn release(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>>;

    /// Asks a member where it takes the links of other nodes. `None`: it did not say.
    fn link_of(&self, node: NodeId) -> BoxFuture<'_, Result<Option<String>, ControlError>>;

    /// Where this node takes the links of other nodes, HOST:PORT, from now on; `None`: nowhere.
    fn set_link(&self, link: Option<String>);

    /// The leader of Raft that this member hears; may be half a second old.
    fn leader(&self) -> Option<NodeId>;

    /// The other nodes with data that count as lost by their pulses: no commit is to wait for them longer than the group needs
    /// to take them out of the sync set. A channel without a sender where there are no pulses.
    fn lost(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        watch::channel(BTreeSet::new()).1
    }

    /// Tells the group where the trail that was set ends, as the master of `epoch`; before its first answer.
    fn tell_positions(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>>;

    /// This node has returned as a standby by itself, or needs an operator for that: for the events of its supervisor, if it has
    /// one.
    fn returned(&self, _is_done: bool, _text: &str) {}

    /// The trail that is open on this node, while one is: others ask where it ends when one of them is to be promoted out of
    /// a quorum, and it is compared when that is this node.
    fn set_trail(&self, trail: Option<Arc<dyn ComparedTrail>>);
}
