//! The voters: founding the group, and admitting a member whose disk was lost.
//!
//! The set of members is fixed; what changes is on which disk each has its vote and log. A group is founded once, by
//! the first member in order of names, when it has reached all the others and found every directory empty. From then on
//! the leader removes a member that comes back with another disk from the voters and admits it again: its new disk
//! has promised nothing, so it must not count for the old one. The removal needs the agreement of all others.
//!
//! Raft changes voters in two steps: first a majority of the old and of the new ones is needed for everything (a joint
//! configuration), then of the new ones only. A leader that fails between the two leaves the first behind, which needs
//! more nodes than either; so a leader first completes a change that it finds begun.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::sleep;

use crate::core::Core;
use crate::id::NodeId;
use crate::pulse_key::PulseKey;
use crate::raft::Peer;
use crate::record::{Command, RECORD_VERSION_GRANTS};

/// The interval between checks.
const EVERY: Duration = Duration::from_millis(500);
/// The largest lag of a member, in log entries, at which it gets its vote.
const BEHIND_MAX: u64 = 20;

/// Founds the group if that is this node's part, and keeps the voters right while this node leads. Never returns.
pub async fn keep(core: Arc<Core>) {
    let mut told = false;
    loop {
        sleep(EVERY).await;
        *core.holding.leader.lock() = core.raft.metrics().borrow().current_leader;
        if let Some(record) = core.published.get().filter(|record| record.members != core.members && !told) {
            told = true;
            tracing::error!(ours = ?core.members, agreed = ?record.members, "the configured members differ from those of the group");
        }
        if core.raft.is_initialized().await.unwrap_or(true) {
            keep_once(&core).await;
        } else if core.members.keys().next() == Some(&core.me) {
            found(&core).await;
        }
    }
}

async fn found(core: &Core) {
    let mut peers = BTreeMap::from([(core.me, Peer { disk: core.disk })]);
    for node in core.others() {
        match core.peers.look(node).await {
            Ok(welcome) if welcome.founded => {
                tracing::info!(%node, "this directory is new, but the group exists; waiting until the group admits this node");
                return;
            }
            Ok(welcome) => peers.insert(node, Peer { disk: welcome.disk }),
            Err(error) => {
                tracing::info!(%node, "cannot found the group before all members are reachable: {error}");
                return;
            }
        };
    }
    match core.raft.initialize(peers).await {
        Ok(()) => tracing::info!("founded the control group"),
        Err(error) => tracing::warn!("cannot found the control group: {error}"),
    }
}

async fn keep_once(core: &Core) {
    let metrics = core.raft.metrics().borrow().clone();
    if metrics.current_leader != Some(core.me) {
        return;
    }
    if core.published.get().is_none() {
        let group = (core.random)();
        let members = core.members.clone();
        let (version, lease) = (core.record_version, core.terms);
        let pulse_key = (version >= RECORD_VERSION_GRANTS).then(|| PulseKey::random(&*core.random));
        let command = Command::Found { version, group, members, lease, pulse_key };
        if let Err(error) = core.propose(command, Duration::from_secs(2)).await {
            tracing::warn!("cannot found the record: {error}");
        }
        return;
    }
    let membership = metrics.membership_config.membership();
    if membership.get_joint_config().len() > 1 {
        // No further voters: only the second step is left.
        change(core, "all members", ChangeMembers::AddVoterIds(BTreeSet::new())).await;
        return;
    }
    let voters: BTreeSet<NodeId> = membership.voter_ids().collect();
    let last = metrics.last_log_index.unwrap_or(0);
    for node in core.others() {
        let welcomed = core.peers.last_welcome(node);
        let wanted = match (membership.get_node(&node), welcomed) {
            (Some(peer), Some(welcome)) if peer.disk != welcome.disk => {
                tracing::warn!(%node, "the node has returned with another disk; it does not vote until it has caught up");
                leave(node, voters.contains(&node))
            }
            (None, _) => match core.peers.look(node).await {
                Ok(welcome) => ChangeMembers::AddNodes(BTreeMap::from([(node, Peer { disk: welcome.disk })])),
                Err(_) => continue,
            },
            (Some(_), _) if !voters.contains(&node) => {
                let reached = metrics.replication.as_ref().and_then(|all| all.get(&node).copied().flatten());
                if reached.is_none_or(|reached| reached.index + BEHIND_MAX < last) {
                    continue;
                }
                tracing::info!(%node, "the node has caught up and votes again");
                ChangeMembers::AddVoterIds(BTreeSet::from([node]))
            }
            _ => continue,
        };
        // One at a time; what fails is tried again.
        change(core, node.as_str(), wanted).await;
        return;
    }
}

/// Changes the voters. `of`: whom it is about.
async fn change(core: &Core, of: &str, change: ChangeMembers<NodeId, Peer>) {
    match core.change_members(change).await {
        Ok(voters) => tracing::info!(?voters, "the voters have been changed"),
        Err(error) => tracing::warn!(%of, "cannot change the voters: {error}"),
    }
}

fn leave(node: NodeId, votes: bool) -> ChangeMembers<NodeId, Peer> {
    let gone = BTreeSet::from([node]);
    if votes { ChangeMembers::RemoveVoters(gone) } else { ChangeMembers::RemoveNodes(gone) }
}
