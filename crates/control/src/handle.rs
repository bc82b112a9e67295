//! What the process that runs a member asks it: a handle, whose requests run on the member's thread ([`crate::node`]).
//!
//! Failure: a member that has stopped answers every request with [`ControlError::Stopped`].

use std::collections::BTreeMap;
#[cfg(test)]
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use holdfast_types::Epoch;
use tokio::sync::{mpsc, oneshot, watch};

use crate::core::{Core, Holding, PATIENCE};
use crate::error::ControlError;
use crate::failover;
use crate::grants::Grants;
#[cfg(test)]
use crate::id::DiskId;
use crate::id::NodeId;
use crate::leads;
use crate::lease::Lease;
use crate::machine::Published;
use crate::plane::{Change, ControlPlane, Promotion, Quorum};
use crate::record::{Command, Record};
use crate::sight::{Explained, Heard, RestartsFirst};
use crate::trail_tip::{ComparedTrail, LinkSlot, TrailSlot};

/// Something the handle asks of the node's thread.
pub type Job = Box<dyn FnOnce(Arc<Core>) -> BoxFuture<'static, ()> + Send>;

/// A running member. Clones are the same member; it stops when all are dropped.
#[derive(Clone)]
pub struct ControlHandle {
    pub(crate) jobs: mpsc::UnboundedSender<Job>,
    pub(crate) published: Published,
    pub(crate) holding: Arc<Holding>,
    pub(crate) trail: TrailSlot,
    pub(crate) link: LinkSlot,
    pub(crate) grants: Arc<Grants>,
    pub(crate) incarnation: u64,
}

/// Who votes, as far as a member knows.
#[cfg(test)]
pub struct Voters {
    /// The member's own disk.
    pub own_disk: DiskId,
    /// Two when a change of voters is half done.
    pub sets: Vec<BTreeSet<NodeId>>,
    /// The disks that the log speaks of.
    pub disks: BTreeMap<NodeId, DiskId>,
}

impl ControlHandle {
    /// Runs something on the member's thread.
    fn ask<T, F, R>(&self, job: F) -> BoxFuture<'_, Result<T, ControlError>>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Core>) -> R + Send + 'static,
        R: Future<Output = Result<T, ControlError>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |core| {
            Box::pin(async move {
                // The caller may have gone.
                let _ = answer.send(job(core).await);
            })
        });
        let sent = self.jobs.send(job);
        Box::pin(async move {
            let stopped = || ControlError::Stopped("its thread has ended; see the log".to_owned());
            sent.map_err(|_| stopped())?;
            answered.await.map_err(|_| stopped())?
        })
    }

    /// Asks a member where it takes the links of other nodes. `None`: it did not say.
    pub fn link_of(&self, node: NodeId) -> BoxFuture<'_, Result<Option<String>, ControlError>> {
        self.ask(move |core| async move {
            let welcome = core.peers.look(node).await.map_err(ControlError::io("reach", node.as_str()))?;
            Ok(welcome.link)
        })
    }

    /// What this member shares with the pulse thread of its process.
    pub fn grants(&self) -> Arc<Grants> {
        self.grants.clone()
    }

    /// The mark of this start of the control directory, which its pulses name.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The leader of Raft that this member hears; may be half a second old.
    pub fn leader(&self) -> Option<NodeId> {
        *self.holding.leader.lock()
    }

    /// Any command, as it is.
    #[cfg(test)]
    pub fn command(&self, command: Command) -> BoxFuture<'_, Result<Record, ControlError>> {
        self.propose(command)
    }

    #[cfg(test)]
    pub fn voters(&self) -> BoxFuture<'_, Result<Voters, ControlError>> {
        self.ask(|core| async move {
            let metrics = core.raft.metrics().borrow().clone();
            let membership = metrics.membership_config.membership();
            let disks = membership.nodes().map(|(node, peer)| (*node, peer.disk)).collect();
            Ok(Voters { own_disk: core.disk, sets: membership.get_joint_config().clone(), disks })
        })
    }

    /// Where this node takes links from now on; see [`crate::Config::link`].
    pub fn set_link(&self, link: Option<String>) {
        self.link.set(link);
    }

    /// Renews the lease of a mastership that this member's process had before it was started again, for a server that has
    /// been running since then in that epoch. Refused if the group has moved on.
    pub fn resume(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        self.ask(move |core| async move { core.resume(epoch).await })
    }

    /// [`ControlPlane::shrink`] as a change that was numbered in another process.
    pub fn shrink_as(&self, epoch: Epoch, node: NodeId, change: Change) -> BoxFuture<'_, Result<(), ControlError>> {
        self.change_sync_set(change, move |by, change| Command::ShrinkSyncSet { epoch, by, node, change })
    }

    /// [`ControlPlane::grow`] as a change that was numbered in another process.
    pub fn grow_as(&self, epoch: Epoch, node: NodeId, change: Change) -> BoxFuture<'_, Result<(), ControlError>> {
        self.change_sync_set(change, move |by, change| Command::GrowSyncSet { epoch, by, node, change })
    }

    fn propose(&self, command: Command) -> BoxFuture<'_, Result<Record, ControlError>> {
        self.ask(move |core| async move { core.propose(command, PATIENCE).await })
    }

    /// `command` gets this node and the number of the change.
    fn change_sync_set(
        &self,
        Change(change): Change,
        command: impl FnOnce(NodeId, u64) -> Command + Send + 'static,
    ) -> Asked<'_> {
        self.ask(move |core| async move { core.propose(command(core.me, change), PATIENCE).await.map(drop) })
    }

    /// Lets another member lead Raft, if this one does; returns when it is led by another one, and never where none takes the lead.
    pub fn hand_on_lead(&self) -> Asked<'_> {
        self.ask(move |core| async move {
            leads::hand_on(&core).await;
            Ok(())
        })
    }

    /// Whether a server that ends now is to start again in place before another node is named.
    pub fn restarts_first(&self) -> BoxFuture<'_, Result<Option<RestartsFirst>, ControlError>> {
        self.ask(|core| async move { Ok(RestartsFirst::after(core.applied.takeovers())) })
    }

    /// Names no successor without a person from now on, or permits that again.
    pub fn freeze(&self, frozen: bool) -> Asked<'_> {
        self.ask(move |core| async move { core.propose(Command::Freeze { frozen }, PATIENCE).await.map(drop) })
    }

    /// What the nodes with data say of themselves now; the master is given as much time as the others.
    pub fn heard(&self, record: Record) -> BoxFuture<'_, Result<BTreeMap<NodeId, Heard>, ControlError>> {
        self.ask(move |core| async move { Ok(failover::heard(&core, &record).await) })
    }

    /// Names the successor of a master that serves, because a person has asked for it: refused if the record has moved since it was
    /// looked at. A successor that is not promoted is replaced, as one that the group has named.
    pub fn hand_over(&self, seen: &Record, successor: NodeId) -> Asked<'_> {
        let (expected_epoch, seen) = (seen.epoch, Some(seen.revision));
        let command = Command::Depose { expected_epoch, successor, accept_loss: false, seen };
        self.ask(move |core| async move { core.propose(command, PATIENCE).await.map(drop) })
    }

    /// Why the master is the master and no other node is: the leader's view, asked of it or of a member that reaches it.
    pub fn explain(&self) -> BoxFuture<'_, Result<Explained, ControlError>> {
        self.ask(|core| async move { Ok(failover::explained(&core).await) })
    }

    /// Tells the group where the trail that was set ends, as the master of `epoch`; before its first answer.
    pub fn tell_positions(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        self.ask(move |core| async move { core.tell_positions(epoch).await })
    }

    /// The trail that is open on this node, while one is: others ask where it ends when one of them is to be promoted out of
    /// a quorum, and it is compared when that is this node.
    pub fn set_trail(&self, trail: Option<Arc<dyn ComparedTrail>>) {
        self.trail.set(trail);
    }
}

type Asked<'a> = BoxFuture<'a, Result<(), ControlError>>;

impl ControlPlane for ControlHandle {
    fn record(&self) -> Option<Arc<Record>> {
        self.published.get()
    }

    fn watch(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.published.subscribe()
    }

    fn look(&self) -> BoxFuture<'_, Result<Record, ControlError>> {
        self.propose(Command::Look)
    }

    fn lease(&self) -> Lease {
        self.holding.lease.lock().clone()
    }

    fn lease_held(&self) -> watch::Receiver<bool> {
        self.holding.held.subscribe()
    }

    fn promote(&self, promotion: Promotion) -> BoxFuture<'_, Result<Epoch, ControlError>> {
        self.ask(move |core| async move { core.promote(promotion).await })
    }

    fn shrink(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        self.shrink_as(epoch, node, self.next_change())
    }

    fn grow(&self, epoch: Epoch, node: NodeId) -> BoxFuture<'_, Result<(), ControlError>> {
        self.grow_as(epoch, node, self.next_change())
    }

    fn next_change(&self) -> Change {
        // In one order with what is looked at after it.
        Change(self.holding.sync_changes.fetch_add(1, Ordering::SeqCst) + 1)
    }

    fn name_quorum(&self, epoch: Epoch, quorum: Quorum, change: Change) -> BoxFuture<'_, Result<(), ControlError>> {
        let Quorum { standbys, needed } = quorum;
        self.change_sync_set(change, move |by, change| Command::NameQuorum { epoch, by, standbys, needed, change })
    }

    fn release(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        self.ask(move |core| async move { core.release(epoch).await })
    }

    fn link_of(&self, node: NodeId) -> BoxFuture<'_, Result<Option<String>, ControlError>> {
        ControlHandle::link_of(self, node)
    }

    fn set_link(&self, link: Option<String>) {
        ControlHandle::set_link(self, link);
    }

    fn leader(&self) -> Option<NodeId> {
        ControlHandle::leader(self)
    }

    fn tell_positions(&self, epoch: Epoch) -> BoxFuture<'_, Result<(), ControlError>> {
        ControlHandle::tell_positions(self, epoch)
    }

    fn set_trail(&self, trail: Option<Arc<dyn ComparedTrail>>) {
        ControlHandle::set_trail(self, trail);
    }
}
