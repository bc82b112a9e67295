//! The control plane of this node: who is master is agreed on by three, and a master acknowledges only while it holds its
//! lease.
//!
//! | event | what this node does |
//! |---|---|
//! | it starts as a master | it is promoted anew, with an epoch of its own, unless another node is the master: then it refuses |
//! | it is to be promoted | the group deposes the old master, waits its lease out and raises the epoch |
//! | the lease cannot be renewed | nothing is acknowledged any more, at any level, and nothing is read (asked at the moment of use) |
//! | it is renewed later | what has waited is let through |
//! | it was deposed | nothing is acknowledged any more; the lease is given up so that nobody has to wait for it |
//! | a standby has everything, and commits wait for it | it is taken into the sync set: it may be promoted without loss |
//! | commits wait for any n of the standbys, and n have everything | the standbys are named as a quorum, those that are away too: who has all that the others have may be promoted |
//! | commits are to go on without a standby | it is taken out first |
//! | it stops in order | it gives up its lease |
//!
//! Failure: without a majority a node neither starts as master nor is promoted; it says so and tries again.

use super::{Certificates, Comparing, Notify, secure_members};
use crate::config::Config;
use holdfast_control::{
    Change, Config as ControlConfig, ControlError, ControlHandle, ControlNode, ControlPlane, LeaseTerms, Machinery,
    Mastership, NodeId, Promotion, Quorum, Record, Refusal, Role, TcpTransport,
};
use holdfast_engine::Engine;
use holdfast_seams::RealDisk;
use holdfast_standby::{Hub, SyncSet};
use holdfast_types::{Epoch, Lsn};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Between two attempts to reach a majority at the start.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub enum ControlSetupError {
    #[error("control_members: {0}; write it as \"a=HOST:PORT, b=HOST:PORT, w=HOST:PORT\"")]
    Members(String),
    #[error("the node's name {name:?} is not among control_members; set node_name")]
    NotAMember { name: String },
    #[error(
        "{master} is the master of epoch {epoch}; bring this server back as its standby with: holdfast rejoin --from HOST:PORT"
    )]
    AnotherIsMaster { master: NodeId, epoch: Epoch },
    #[error(
        "the group has had masters up to epoch {epoch}, and this directory is empty: it would begin a database without \
         anything that was acknowledged. Promote a server that has the data, and make this one its standby with: holdfast \
         standby create; or name the right --data"
    )]
    Empty { epoch: Epoch },
    #[error("control_witness = {0:?} is not among control_members")]
    Witness(String),
    #[error(
        "synchronous_standby_names = \"{names}\" does not go with a control plane: it has to be known who may have what was \
         acknowledged. Leave it empty, which is {all}; or write FIRST n with n of these names, or ANY n with n or more of \
         them: {others}"
    )]
    SyncSet { names: String, all: String, others: String },
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// See the module.
pub struct Control {
    handle: ControlHandle,
    me: NodeId,
    /// Data nodes but this one.
    others: Vec<NodeId>,
}

impl Control {
    /// Starts this node's part, where one is configured.
    pub fn start(
        dir: &Path,
        config: &Config,
        name: &str,
        certificates: Option<&Certificates>,
    ) -> Result<Option<Arc<Control>>, ControlSetupError> {
        if config.control_members.trim().is_empty() {
            return Ok(None);
        }
        let addresses = parse_members(&config.control_members)?;
        let not_a_member = || ControlSetupError::NotAMember { name: name.to_owned() };
        let me: NodeId = name.parse().map_err(|_| not_a_member())?;
        let mine = addresses.get(&me).ok_or_else(not_a_member)?.clone();
        let witness = config.control_witness.trim();
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
        let secure = secure_members(certificates, &addresses);
        let transport = TcpTransport::bind(&mine, addresses, secure)?;
        let config = ControlConfig { node: me, dir: dir.join("control"), members, lease: LeaseTerms::default() };
        let handle = ControlNode::start(config, Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport)))?;
        Ok(Some(Arc::new(Control { handle, me, others })))
    }

    /// The sync set where none is configured: all other data nodes, so that each of them may be promoted.
    pub fn default_sync_set(&self) -> String {
        let names: Vec<String> = self.others.iter().map(|node| format!("\"{node}\"")).collect();
        format!("FIRST {} ({})", names.len(), names.join(", "))
    }

    /// Commits must wait for each of those that may be promoted, FIRST n of n members; or for any n of the members that are
    /// compared before one of them is promoted, ANY n. For no others.
    pub fn check_sync_set(&self, names: &str, sync_set: &SyncSet) -> Result<(), ControlSetupError> {
        // The set has its names in lower case; a standby is admitted under the member's very name only.
        let is_member = |name: &str| self.others.iter().any(|node| node.to_string().to_lowercase() == name);
        let names_or_none = sync_set.all_of().or_else(|| sync_set.any_of());
        if names_or_none.is_some_and(|names| names.iter().all(|name| is_member(name))) {
            return Ok(());
        }
        let others: Vec<String> = self.others.iter().map(NodeId::to_string).collect();
        let (names, all, others) = (names.to_owned(), self.default_sync_set(), others.join(", "));
        Err(ControlSetupError::SyncSet { names, all, others })
    }

    /// The quorum that commits wait for, where that is not all of the standbys named.
    pub fn quorum(&self, sync_set: &SyncSet) -> Option<Quorum> {
        let names = sync_set.any_of()?;
        let is_named = |node: &&NodeId| names.contains(&node.to_string().to_lowercase().as_str());
        let standbys = self.others.iter().filter(is_named).copied().collect();
        Some(Quorum { standbys, needed: sync_set.quorum() })
    }

    /// Is this the name of a data node, but for its case? Standbys are compared without it, members with it.
    pub fn is_mistaken_for_a_member(&self, name: &str) -> bool {
        let alike = |node: &&NodeId| node.to_string().to_lowercase() == name.to_lowercase();
        self.others.iter().find(alike).is_some_and(|node| node.to_string() != name)
    }

    /// A server that has no master to follow starts: it becomes the master of a new epoch, at least one more than `last`,
    /// which its trail has come to, or learns that another one is. `None`: it has no trail. Waits for a majority.
    pub async fn start_as_master(self: Arc<Control>, last: Option<Epoch>) -> Result<Epoch, ControlSetupError> {
        let mut told = false;
        loop {
            match self.promote_unless_other(last).await {
                Err(ControlSetupError::Control(error)) if may_pass(&error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            "waiting for a majority of the control plane before this node may be master: {error}"
                        );
                    }
                    tokio::time::sleep(RETRY).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn promote_unless_other(&self, last: Option<Epoch>) -> Result<Epoch, ControlSetupError> {
        let record = self.handle.look().await?;
        if let Some(master) = record.master.filter(|master| *master != self.me) {
            return Err(ControlSetupError::AnotherIsMaster { master, epoch: record.epoch });
        }
        if last.is_none() && record.epoch > Epoch(0) {
            return Err(ControlSetupError::Empty { epoch: record.epoch });
        }
        let epoch_at_least = Epoch(last.map_or(0, |last| last.0) + 1);
        let promotion = Promotion { node: self.me, expected_epoch: record.epoch, epoch_at_least, accept_loss: false };
        Ok(self.handle.promote(promotion).await?)
    }

    /// Makes this standby the master: returns the new epoch.
    pub async fn promote(&self, epoch_at_least: Epoch, accept_loss: bool) -> Result<Epoch, ControlError> {
        let record = self.handle.look().await?;
        let promotion = Promotion { node: self.me, expected_epoch: record.epoch, epoch_at_least, accept_loss };
        self.handle.promote(promotion).await
    }

    /// Gives up the lease of an epoch: this node acknowledges nothing in it any more.
    pub fn give_up(&self, links: &Handle, epoch: Epoch) {
        if let Err(error) = links.block_on(self.handle.release(epoch)) {
            tracing::info!("the lease could not be given up, it runs out by itself: {error}");
        }
    }

    /// Lets the engine acknowledge only while the lease is held.
    pub fn bind(&self, engine: &Engine) {
        let lease = self.handle.lease();
        engine.set_right(Arc::new(move || lease.valid_now()));
    }

    /// May this standby be promoted without loss, as far as the group knows?
    pub fn is_in_sync_set(&self, name: &str) -> bool {
        let record = self.handle.record();
        record.is_some_and(|record| record.sync_set.members().iter().any(|node| node.to_string() == name))
    }

    /// Is this quorum the sync set, as far as this node knows?
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

    /// The trail that is open here from now on, for comparisons.
    pub fn set_trail(&self, trail: &Comparing) {
        self.handle.set_trail(Some(Arc::new(trail.clone())));
    }

    /// None is open.
    pub fn no_trail(&self) {
        self.handle.set_trail(None);
    }

    /// Takes a standby into the sync set.
    pub async fn grow(&self, epoch: Epoch, name: &str) -> Result<(), ControlError> {
        match self.others.iter().find(|node| node.to_string() == name) {
            Some(node) => self.handle.grow(epoch, *node).await,
            None => Ok(()),
        }
    }

    /// Takes a node out of the sync set, whatever this node knows of the record: it may be behind.
    pub async fn shrink(&self, epoch: Epoch, name: &str) -> Result<(), ControlError> {
        match self.others.iter().find(|node| node.to_string() == name) {
            Some(node) => self.handle.shrink(epoch, *node).await,
            None => Ok(()),
        }
    }

    /// Takes all other nodes out of the sync set; commits may be acknowledged without them when this has returned well.
    pub async fn shrink_to_this(&self, epoch: Epoch) -> Result<(), ControlError> {
        for node in &self.others {
            self.handle.shrink(epoch, *node).await?;
        }
        Ok(())
    }

    /// Is this a data node of the group?
    pub fn is_member(&self, name: &str) -> bool {
        self.others.iter().any(|node| node.to_string() == name)
    }

    /// The agreed record as this node knows it, and its lease, for people.
    pub fn shown(&self) -> serde_json::Value {
        let lease_held = self.handle.lease().valid_now();
        let Some(record) = self.handle.record() else { return serde_json::json!({ "founded": false }) };
        let text = |node: &NodeId| node.to_string();
        serde_json::json!({
            "founded": true,
            "epoch": record.epoch.0,
            "master": record.master.as_ref().map(text),
            "deposed": matches!(record.mastership, Mastership::Deposed { .. } | Mastership::Free { successor: Some(_) }),
            "sync_set": record.sync_set.members().iter().map(text).collect::<Vec<_>>(),
            "quorum": (!record.sync_set.are_all_needed()).then_some(record.sync_set.needed()),
            "lease_held": lease_held,
        })
    }

    /// In a few words, and for the operator.
    fn why_deposed(&self, record: &Record, epoch: Epoch) -> (String, String) {
        let me = self.me;
        match record.mastership {
            Mastership::Deposed { successor, .. } if record.epoch == epoch => (
                format!("it was deposed so that {successor} can be promoted"),
                format!(
                    "{me} was deposed in epoch {epoch} so that {successor} can be promoted; it acknowledges and writes nothing \
                     any more. When {successor} is the master, stop this one and bring it back with: holdfast rejoin. If that \
                     promotion is refused, promote the server that it names, or start this one again"
                ),
            ),
            _ => {
                let master = record.master.map_or_else(String::new, |m| m.to_string());
                let told = format!(
                    "{me} was deposed in epoch {epoch} (the group is at epoch {}, master {master}); it acknowledges and writes \
                     nothing any more. Stop it and bring it back with: holdfast rejoin",
                    record.epoch
                );
                ("another node has become the master".to_owned(), told)
            }
        }
    }

    /// Watches lease and record for a master until `stop`.
    pub async fn watch(
        self: Arc<Control>,
        engine: Engine,
        hub: Arc<Hub>,
        notify: Notify,
        mut stop: watch::Receiver<bool>,
    ) {
        let epoch = engine.trail().epoch();
        let (mut held, mut records) = (self.handle.lease_held(), self.handle.watch());
        let (mut deposed, mut was_held) = (false, true);
        loop {
            let is_held = *held.borrow_and_update();
            if is_held != std::mem::replace(&mut was_held, is_held) && !deposed {
                notify.tell(match is_held {
                    true => "the lease is held again: commits and reads go on",
                    false => {
                        "the lease could not be renewed, a majority of the control plane is away: nothing is \
                              acknowledged and nothing is read until it is"
                    }
                });
            }
            if is_held && !deposed {
                engine.look_at_gate();
            }
            let record = records.borrow_and_update().clone();
            let other = record.filter(|r| {
                let asked_to_go = matches!(r.mastership, Mastership::Deposed { successor, .. } if successor != self.me);
                r.epoch > epoch || (r.epoch == epoch && asked_to_go)
            });
            if let Some(record) = other.filter(|_| !deposed) {
                deposed = true;
                let (reason, told) = self.why_deposed(&record, epoch);
                engine.depose(&reason);
                engine.stop_waiting();
                notify.tell(&told);
                let_arrive(&engine, &hub).await;
                // An error: it runs out by itself.
                drop(self.handle.release(epoch).await);
            }
            tokio::select! {
                _ = held.changed() => {}
                _ = records.changed() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }
}

/// So long standbys may take to receive a deposed master's last boxcars before another one is promoted.
const ARRIVE_MAX: Duration = Duration::from_millis(500);
const ARRIVE_LOOK: Duration = Duration::from_millis(10);

/// Waits until the standbys that are here have all that was written: then they do not part from the one that is promoted.
async fn let_arrive(engine: &Engine, hub: &Hub) {
    let until = Instant::now() + ARRIVE_MAX;
    let has_all = |end: Lsn| hub.standbys().iter().all(|s| s.received_lsn.is_some_and(|received| received >= end.0));
    while !has_all(engine.trail().durable()) && Instant::now() < until {
        tokio::time::sleep(ARRIVE_LOOK).await;
    }
}

/// The group may still be founded, or reached.
fn may_pass(error: &ControlError) -> bool {
    matches!(error, ControlError::NoQuorum | ControlError::Refused(Refusal::NotFounded))
}

fn parse_members(text: &str) -> Result<BTreeMap<NodeId, String>, ControlSetupError> {
    let mut addresses = BTreeMap::new();
    for member in text.split(',').map(str::trim).filter(|member| !member.is_empty()) {
        let wrong = |why: &str| ControlSetupError::Members(format!("{member:?} {why}"));
        let (name, address) = member.split_once('=').ok_or_else(|| wrong("has no \"=\""))?;
        let node: NodeId = name.trim().parse().map_err(|_| wrong("is no name of a node"))?;
        if addresses.insert(node, address.trim().to_owned()).is_some() {
            return Err(wrong("stands there twice"));
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
