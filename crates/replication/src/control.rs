//! This node's part in the control plane: three nodes agree which of them is master, and a master acknowledges only while it
//! holds its lease.
//!
//! | event | what this node does |
//! |---|---|
//! | it starts as a master | it is promoted to a new epoch; if another node is the master, it refuses to start |
//! | it is to be promoted | the group deposes the old master, waits its lease out and raises the epoch |
//! | the lease cannot be renewed | nothing is acknowledged at any level, and nothing is read (checked at the moment of use) |
//! | it is renewed later | waiting commits are acknowledged |
//! | it was deposed | nothing is acknowledged any more; the lease is released so that the new master need not wait for its end |
//! | a standby has everything, and commits wait for it | it is taken into the sync set: it may be promoted without loss |
//! | commits wait for any n of the standbys, and n have everything | the standbys are named as a quorum, those that are away too: the one that has all that the others have may be promoted |
//! | commits are to continue without a standby | it is taken out of the sync set first |
//! | it stops cleanly | it releases its lease |
//!
//! The group's member runs in this process, or in its supervisor's (`holdfast cluster run`).
//!
//! Failure: without a majority a node neither starts as master nor is promoted; it logs that and retries.

mod returning;
mod takeover;

pub use returning::{ServingMaster, Terms};

use crate::certificates::{Certificates, secure_members};
use crate::link_address::seen_from_here;
use crate::notify::Notify;
use crate::rejoin_command::rejoin_command;
use crate::role::RoleEvent;
use crate::trail_comparison::TrailComparison;
use holdfast_control::{
    Basis, Change, Config as ControlConfig, ControlError, ControlNode, ControlPlane, LeaseTerms, Machinery, Mastership,
    NodeId, Position, Promotion, Quorum, Record, Refusal, Role, TcpTransport,
};
use holdfast_engine::Engine;
use holdfast_seams::RealDisk;
use holdfast_standby::{Hub, SyncSet};
use holdfast_types::{Epoch, Lsn};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

/// Pause between two attempts to reach a majority at the start.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum ControlSetupError {
    #[error("control_members: {0}; write it as \"a=HOST:PORT, b=HOST:PORT, w=HOST:PORT\"")]
    Members(String),
    #[error("the node's name {name:?} is not among control_members; set node_name")]
    NotAMember { name: String },
    #[error("{master} is the master of epoch {epoch}; bring this server back as its standby with: {command}")]
    AnotherIsMaster { master: NodeId, epoch: Epoch, command: String },
    #[error(
        "this directory is empty, but the group has had masters up to epoch {epoch}: this server would begin without the data \
         that they acknowledged. Promote a server that has the data and make this one its standby with: holdfast standby \
         create; or start with the right --data"
    )]
    Empty { epoch: Epoch },
    #[error("control_witness = {0:?} is not among control_members")]
    Witness(String),
    #[error(
        "synchronous_standby_names = \"{names}\" cannot be used with a control plane: the group has to know which standbys may \
         have what was acknowledged. Leave it empty, which means {all}; or write FIRST n with n of these names, or ANY n \
         with n or more of them: {others}"
    )]
    SyncSet { names: String, all: String, others: String },
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// This node's part in the control plane.
pub struct Control {
    handle: Arc<dyn ControlPlane>,
    me: NodeId,
    /// All data nodes except this one.
    others: Vec<NodeId>,
    /// The control addresses of all members.
    addresses: BTreeMap<NodeId, String>,
    /// The data directory.
    dir: PathBuf,
    /// The member runs in a supervisor's process: the servers that the record names promote themselves. A deposed
    /// master returns by itself.
    is_supervised: bool,
}

impl Control {
    /// Starts this node's part in the group of `members` (`NAME=HOST:PORT, ...`); `None`: none are configured. `link`: where
    /// this node takes links. `supervised`: the group's member runs in the supervisor's process, and is reached through this.
    pub fn start(
        dir: &Path,
        members: &str,
        witness: &str,
        name: &str,
        certificates: Option<&Certificates>,
        link: Option<String>,
        supervised: Option<Arc<dyn ControlPlane>>,
    ) -> Result<Option<Arc<Control>>, ControlSetupError> {
        if members.trim().is_empty() {
            return Ok(None);
        }
        let addresses = parse_members(members)?;
        let not_a_member = || ControlSetupError::NotAMember { name: name.to_owned() };
        let me: NodeId = name.parse().map_err(|_| not_a_member())?;
        let mine = addresses.get(&me).ok_or_else(not_a_member)?.clone();
        let witness = witness.trim();
        if !witness.is_empty() && !addresses.keys().any(|node| node.to_string() == witness) {
            return Err(ControlSetupError::Witness(witness.to_owned()));
        }
        let role = |node: &NodeId| match node.to_string() == witness {
            true => Role::Witness,
            false => Role::Data,
        };
        let members: BTreeMap<NodeId, Role> = addresses.keys().map(|node| (*node, role(node))).collect();
        let data = members.iter().filter(|(node, role)| **role == Role::Data && **node != me);
        let others = data.map(|(node, _)| *node).collect();
        let is_supervised = supervised.is_some();
        let handle: Arc<dyn ControlPlane> = match supervised {
            Some(plane) => {
                plane.set_link(link);
                plane
            }
            None => {
                let secure = secure_members(certificates, &addresses);
                let transport = TcpTransport::bind(&mine, addresses.clone(), secure)?;
                let (dir, lease) = (dir.join("control"), LeaseTerms::default());
                let config = ControlConfig { node: me, dir, members, lease, by_pulses: false, link };
                let machinery = Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport));
                Arc::new(ControlNode::start(config, machinery)?)
            }
        };
        Ok(Some(Arc::new(Control { handle, me, others, addresses, dir: dir.to_owned(), is_supervised })))
    }

    /// The sync set where none is configured: all other data nodes, so that any of them may be promoted.
    pub fn default_sync_set(&self) -> String {
        let names: Vec<String> = self.others.iter().map(|node| format!("\"{node}\"")).collect();
        format!("FIRST {} ({})", names.len(), names.join(", "))
    }

    /// Checks that commits wait for members only: for each that may be promoted (FIRST n of n members), or for any n of the
    /// members that are compared before one of them is promoted (ANY n).
    pub fn check_sync_set(&self, names: &str, sync_set: &SyncSet) -> Result<(), ControlSetupError> {
        // The set has its names in lower case; a standby is admitted only under the member's exact name.
        let is_member = |name: &str| self.others.iter().any(|node| node.to_string().to_lowercase() == name);
        let names_or_none = sync_set.all_of().or_else(|| sync_set.any_of());
        if names_or_none.is_some_and(|names| names.iter().all(|name| is_member(name))) {
            return Ok(());
        }
        let others: Vec<String> = self.others.iter().map(NodeId::to_string).collect();
        let (names, all, others) = (names.to_owned(), self.default_sync_set(), others.join(", "));
        Err(ControlSetupError::SyncSet { names, all, others })
    }

    /// The quorum that commits wait for; `None` where they wait for all standbys that are named.
    pub fn quorum(&self, sync_set: &SyncSet) -> Option<Quorum> {
        let names = sync_set.any_of()?;
        let is_named = |node: &&NodeId| names.contains(&node.to_string().to_lowercase().as_str());
        let standbys = self.others.iter().filter(is_named).copied().collect();
        Some(Quorum { standbys, needed: sync_set.quorum() })
    }

    /// Whether the name differs from a data node's only in case. Names of standbys ignore case, names of members do not.
    pub fn is_mistaken_for_a_member(&self, name: &str) -> bool {
        let alike = |node: &&NodeId| node.to_string().to_lowercase() == name.to_lowercase();
        self.others.iter().find(alike).is_some_and(|node| node.to_string() != name)
    }

    /// Makes a starting server, which follows no master, the master of a new epoch, or finds that another node is the master.
    /// The epoch is higher than the last one in its trail (`None`: it has no trail). Waits for a majority. Refused if the trail
    /// is known to lack acknowledged commits, unless `accept_loss`.
    pub async fn start_as_master(
        self: Arc<Control>,
        trail_end: Option<Position>,
        accept_loss: bool,
    ) -> Result<Epoch, ControlSetupError> {
        let (mut warned, mut waits_for) = (false, None);
        loop {
            match self.promote_unless_other(trail_end, accept_loss).await {
                Err(ControlSetupError::Control(ControlError::Refused(refusal)))
                    if self.is_supervised && self.waits_after(&refusal, &mut waits_for) =>
                {
                    tokio::time::sleep(RETRY).await;
                }
                Err(ControlSetupError::Control(error)) if may_pass(&error) => {
                    if !std::mem::replace(&mut warned, true) {
                        tracing::warn!(
                            "this node waits for a majority of the control plane before it may be master: {error}"
                        );
                    }
                    tokio::time::sleep(RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn promote_unless_other(
        &self,
        trail_end: Option<Position>,
        accept_loss: bool,
    ) -> Result<Epoch, ControlSetupError> {
        let record = self.handle.look().await?;
        if let Some(master) = record.master.filter(|master| *master != self.me) {
            let command = self.rejoin_command(Some(master)).await;
            return Err(ControlSetupError::AnotherIsMaster { master, epoch: record.epoch, command });
        }
        if trail_end.is_none() && record.epoch > Epoch(0) {
            return Err(ControlSetupError::Empty { epoch: record.epoch });
        }
        let epoch_at_least = Epoch(trail_end.map_or(0, |end| end.epoch.0) + 1);
        self.let_others_go_first(&record).await;
        let (node, expected_epoch) = (self.me, record.epoch);
        let basis = if self.is_supervised { Basis::Starts } else { Basis::Asked };
        let promotion = Promotion { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis };
        Ok(self.handle.promote(promotion).await?)
    }

    /// Makes this standby the master. Returns the new epoch.
    pub async fn promote(&self, trail_end: Position, accept_loss: bool, basis: Basis) -> Result<Epoch, ControlError> {
        let record = self.handle.look().await?;
        let epoch_at_least = Epoch(trail_end.epoch.0 + 1);
        let (node, expected_epoch, trail_end) = (self.me, record.epoch, Some(trail_end));
        self.handle.promote(Promotion { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis }).await
    }

    /// See [`ControlPlane::tell_positions`].
    pub async fn tell_positions(&self, epoch: Epoch) -> Result<(), ControlError> {
        loop {
            match self.handle.tell_positions(epoch).await {
                // Nothing is answered without the lease anyway.
                Err(ControlError::NoQuorum) => {
                    tracing::warn!("this master waits for a majority of the control plane before it answers");
                }
                told => return told,
            }
        }
    }

    /// Releases the lease of an epoch, in which this node acknowledges nothing any more.
    pub fn release_lease(&self, links: &Handle, epoch: Epoch) {
        links.block_on(self.release(epoch));
    }

    /// As [`Control::release_lease`].
    pub async fn release(&self, epoch: Epoch) {
        if let Err(error) = self.handle.release(epoch).await {
            tracing::info!("the lease could not be released; it expires by itself: {error}");
        }
    }

    /// Lets the engine acknowledge only while the lease is held.
    pub fn bind(&self, engine: &Engine) {
        let lease = self.handle.lease();
        engine.set_right(Arc::new(move || lease.valid_now()));
    }

    /// The epoch of the record as this node knows it; 0 before it knows one.
    pub fn epoch(&self) -> Epoch {
        self.handle.record().map_or(Epoch(0), |record| record.epoch)
    }

    /// Whether this node holds the lease of its last mastership now.
    pub fn holds_lease(&self) -> bool {
        self.handle.lease().valid_now()
    }

    /// Whether this standby may be promoted without loss, as far as this node knows the record.
    pub fn is_in_sync_set(&self, name: &str) -> bool {
        let record = self.handle.record();
        record.is_some_and(|record| record.sync_set.members().iter().any(|node| node.to_string() == name))
    }

    /// The newest record that this node knows, whenever that changes.
    pub fn records(&self) -> watch::Receiver<Option<Arc<Record>>> {
        self.handle.watch()
    }

    /// The master that a standby of this name follows, whose trail has seen `epoch`; `None`: this node, or none is known.
    pub fn master_to_follow(&self, epoch: Epoch) -> Option<NodeId> {
        let record = self.handle.record()?;
        let serves = matches!(record.mastership, Mastership::Serving { .. }) && record.epoch >= epoch;
        record.master.filter(|master| serves && *master != self.me)
    }

    /// Asks a member where it takes links. `None`: it takes none, or at an address that is of no use here.
    pub async fn link_of(&self, node: NodeId) -> Result<Option<String>, ControlError> {
        let reported = self.handle.link_of(node).await?;
        let known = self.addresses.get(&node);
        Ok(reported.zip(known).and_then(|(reported, known)| seen_from_here(known, &reported)))
    }

    /// The command that brings this server back as the standby of `master`, with its address if it reports that soon.
    async fn rejoin_command(&self, master: Option<NodeId>) -> String {
        let address = match master {
            Some(master) => {
                tokio::time::timeout(ADDRESS_MAX, self.link_of(master)).await.ok().and_then(Result::ok).flatten()
            }
            None => None,
        };
        rejoin_command(address.as_deref(), &self.dir, &self.me.to_string())
    }

    /// See [`ControlPlane::lost`].
    pub fn lost(&self) -> watch::Receiver<BTreeSet<NodeId>> {
        self.handle.lost()
    }

    /// Whether each other node with data counts as lost.
    pub fn are_others_lost(&self) -> bool {
        let lost = self.handle.lost();
        let lost = lost.borrow();
        !self.others.is_empty() && self.others.iter().all(|node| lost.contains(node))
    }

    /// Whether this quorum is the sync set, as far as this node knows the record.
    pub fn is_named(&self, quorum: &Quorum) -> bool {
        let is_it = |record: Arc<Record>| {
            let others = record.sync_set.members().iter().filter(|node| **node != self.me);
            others.eq(&quorum.standbys) && record.sync_set.needed() == quorum.needed
        };
        self.handle.record().is_some_and(is_it)
    }

    /// See [`ControlPlane::next_change`].
    pub fn next_change(&self) -> Change {
        self.handle.next_change()
    }

    /// See [`ControlPlane::name_quorum`].
    pub async fn name_quorum(&self, epoch: Epoch, quorum: &Quorum, change: Change) -> Result<(), ControlError> {
        self.handle.name_quorum(epoch, quorum.clone(), change).await
    }

    /// Sets the trail that is open here, for comparisons with other members.
    pub fn set_trail(&self, trail: &TrailComparison) {
        self.handle.set_trail(Some(Arc::new(trail.clone())));
    }

    /// No trail is open from now on.
    pub fn clear_trail(&self) {
        self.handle.set_trail(None);
    }

    /// Takes a standby into the sync set.
    pub async fn grow(&self, epoch: Epoch, name: &str) -> Result<(), ControlError> {
        match self.others.iter().find(|node| node.to_string() == name) {
            Some(node) => self.handle.grow(epoch, *node).await,
            None => Ok(()),
        }
    }

    /// Takes a node out of the sync set, even if it is not in the record as this node knows it, which may be old.
    pub async fn shrink(&self, epoch: Epoch, name: &str) -> Result<(), ControlError> {
        match self.others.iter().find(|node| node.to_string() == name) {
            Some(node) => self.handle.shrink(epoch, *node).await,
            None => Ok(()),
        }
    }

    /// Takes all other nodes out of the sync set; when this succeeds, commits may be acknowledged without them.
    pub async fn shrink_to_this(&self, epoch: Epoch) -> Result<(), ControlError> {
        for node in &self.others {
            self.handle.shrink(epoch, *node).await?;
        }
        Ok(())
    }

    /// Whether this is another data node of the group.
    pub fn is_member(&self, name: &str) -> bool {
        self.others.iter().any(|node| node.to_string() == name)
    }

    /// The agreed record as this node knows it, and whether it holds the lease, as JSON for the status.
    pub fn shown(&self) -> serde_json::Value {
        let lease_held = self.handle.lease().valid_now();
        let Some(record) = self.handle.record() else { return serde_json::json!({ "founded": false }) };
        let text = |node: &NodeId| node.to_string();
        let being_deposed =
            matches!(record.mastership, Mastership::Deposed { .. } | Mastership::Free { successor: Some(_) });
        serde_json::json!({
            "founded": true,
            "epoch": record.epoch.0,
            "master": record.master.as_ref().map(text),
            "deposed": being_deposed,
            "sync_set": record.sync_set.members().iter().map(text).collect::<Vec<_>>(),
            "quorum": (!record.sync_set.are_all_needed()).then_some(record.sync_set.needed()),
            "positions": record.positions.iter().map(|(node, at)| (text(node), at.lsn)).collect::<BTreeMap<_, _>>(),
            "lease_held": lease_held,
            "leader": self.handle.leader().as_ref().map(text),
        })
    }

    /// Reports to the operator that this node was deposed, and what to do.
    async fn report_deposed(&self, record: &Record, epoch: Epoch, notify: &Notify) {
        let (me, successor) = (self.me, successor_in(record, epoch));
        let command = self.rejoin_command(successor.or(record.master)).await;
        notify.warn(&match successor {
            Some(successor) => format!(
                "{me} was deposed in epoch {epoch} so that {successor} can be promoted; it no longer acknowledges or \
                 writes anything. If the promotion is refused, promote the server that the refusal names, or start this one \
                 again. When {successor} is the master, stop this server and bring it back with: {command}"
            ),
            None => format!(
                "{me} was deposed in epoch {epoch} (the group is at epoch {}, master {}); it no longer acknowledges or \
                 writes anything. Stop it and bring it back with: {command}",
                record.epoch,
                record.master.map_or_else(String::new, |master| master.to_string())
            ),
        });
    }

    /// Watches lease and record for a master until `stop`.
    pub async fn watch(
        self: Arc<Control>,
        engine: Engine,
        hub: Arc<Hub>,
        notify: Notify,
        events: mpsc::UnboundedSender<RoleEvent>,
        mut stop: watch::Receiver<bool>,
    ) {
        let epoch = engine.trail().epoch();
        let (mut held, mut records) = (self.handle.lease_held(), self.handle.watch());
        let (mut deposed, mut was_held, mut returns) = (false, true, false);
        loop {
            let is_held = *held.borrow_and_update();
            if is_held != std::mem::replace(&mut was_held, is_held) && !deposed {
                match is_held {
                    true => notify.info("the lease is held again: commits and reads continue"),
                    false => notify.warn(
                        "the lease could not be renewed: no majority of the control plane answers. Until it is renewed nothing \
                         is acknowledged and nothing is read",
                    ),
                }
            }
            if is_held && !deposed {
                engine.let_through();
                // Shipping continues, too.
                hub.wake_links();
            }
            let record = records.borrow_and_update().clone();
            let other = record.filter(|r| {
                let asked_to_go = matches!(r.mastership, Mastership::Deposed { successor, .. } if successor != self.me);
                r.epoch > epoch || (r.epoch == epoch && asked_to_go)
            });
            if let Some(record) = other.filter(|_| !deposed) {
                deposed = true;
                if engine.has_right() {
                    end_sessions(&events).await;
                }
                engine.depose(&match successor_in(&record, epoch) {
                    Some(successor) => format!("it was deposed so that {successor} can be promoted"),
                    None => "another node has become the master".to_owned(),
                });
                engine.stop_waiting();
                wait_for_standbys(&engine, &hub).await;
                // On an error the lease expires by itself.
                drop(self.handle.release(epoch).await);
                // Last: it asks for an address, and the promotion does not wait for that.
                self.report_deposed(&record, epoch, &notify).await;
            }
            if deposed && self.is_supervised && !returns && self.serving_other(epoch).is_some() {
                returns = true;
                // An error means that the role ends already.
                drop(events.send(RoleEvent::Return));
            }
            tokio::select! {
                _ = held.changed() => {}
                _ = records.changed() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// How long a deposed master lets its sessions end while it holds its lease. It is released afterwards, so that a promotion
/// need not wait for its end.
const SESSIONS_END_MAX: Duration = Duration::from_millis(1500);

/// Ends the sessions: what they have begun to commit is finished and answered, because standbys still receive it and the lease
/// is still held.
async fn end_sessions(events: &mpsc::UnboundedSender<RoleEvent>) {
    let (ended, all_ended) = oneshot::channel();
    // An error means that the role ends already, or that it takes too long: what waits then is not answered.
    if events.send(RoleEvent::EndSessions(ended)).is_ok() {
        drop(tokio::time::timeout(SESSIONS_END_MAX, all_ended).await);
    }
}

/// How long a message waits for the address of another node, and a new master for the answer of a third one.
const ADDRESS_MAX: Duration = Duration::from_secs(1);

/// The node for which the master of this epoch is being deposed; `None`: there is a newer master.
fn successor_in(record: &Record, epoch: Epoch) -> Option<NodeId> {
    match record.mastership {
        Mastership::Deposed { successor, .. } if record.epoch == epoch => Some(successor),
        _ => None,
    }
}

/// How long a deposed master waits for its standbys to receive its last boxcars, before another server is promoted.
const ARRIVE_MAX: Duration = Duration::from_millis(500);
const ARRIVE_LOOK: Duration = Duration::from_millis(10);
/// The number of looks for which nothing more is written.
const ARRIVE_LOOKS: usize = 4;

/// Waits until the connected standbys have everything that was written: then their trails do not diverge from the new
/// master's, and a candidate that compares itself with this node has all of it. The trail writes an empty boxcar shortly after
/// its last one, and nothing is shipped once the lease is released: so the end has to stay the same for some looks.
async fn wait_for_standbys(engine: &Engine, hub: &Hub) {
    let until = Instant::now() + ARRIVE_MAX;
    let has_all = |end: Lsn| hub.standbys().iter().all(|s| s.received_lsn.is_some_and(|received| received >= end.0));
    let (mut last, mut unchanged) = (engine.trail().durable(), 0);
    while unchanged < ARRIVE_LOOKS && Instant::now() < until {
        tokio::time::sleep(ARRIVE_LOOK).await;
        let end = engine.trail().durable();
        unchanged = if end == last && has_all(end) { unchanged + 1 } else { 0 };
        last = end;
    }
}

/// Whether a later attempt may succeed: the group may be founded, or become reachable.
fn may_pass(error: &ControlError) -> bool {
    matches!(error, ControlError::NoQuorum | ControlError::Refused(Refusal::NotFounded))
}

fn parse_members(text: &str) -> Result<BTreeMap<NodeId, String>, ControlSetupError> {
    let mut addresses = BTreeMap::new();
    for member in text.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let wrong = |why: &str| ControlSetupError::Members(format!("{member:?} {why}"));
        let (name, address) = member.split_once('=').ok_or_else(|| wrong("has no \"=\""))?;
        let node: NodeId = name.trim().parse().map_err(|_| wrong("does not begin with the name of a node"))?;
        if addresses.insert(node, address.trim().to_owned()).is_some() {
            return Err(wrong("repeats a name"));
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::parse_members;

    #[test]
    fn members_are_read_or_refused() {
        let members = parse_members("a=127.0.0.1:1, b = h:2,w=h:3,").unwrap();
        let shown: Vec<String> = members.iter().map(|(node, address)| format!("{node} {address}")).collect();
        assert_eq!(shown, ["a 127.0.0.1:1", "b h:2", "w h:3"]);
        for bad in ["a", "a=x, a=y", "a/b=x"] {
            assert!(parse_members(bad).is_err(), "{bad}");
        }
    }
}
