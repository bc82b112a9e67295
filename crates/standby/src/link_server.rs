//! What the link needs from the node that serves it: the master, or a standby that other nodes follow or query.

use std::pin::Pin;
use std::sync::Arc;

use holdfast_trail::{Match, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};

use crate::base_copy::BaseCopy;
use crate::cert::CertificateRole;
use crate::identity::Identity;
use crate::mastership::Mastership;
use crate::message::Wants;
use crate::refusal::{Reason, Refusal};
use crate::sync_set::Reached;

/// The node or operator at the other end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The peer's address, for messages.
    pub address: String,
    /// The holder of the peer's certificate, if the link is encrypted.
    pub certificate: Option<Holder>,
}

/// The holder of a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The name of a node or an operator.
    pub name: String,
    pub role: CertificateRole,
}

impl Peer {
    /// Checks whether the peer may request this under this name. A node follows only under its own name; an operator
    /// may not follow. A peer without a certificate, which is possible on this machine only, may request anything.
    pub fn check_role(&self, name: &str, wants: &Wants) -> Result<(), Refusal> {
        let Some(holder) = &self.certificate else { return Ok(()) };
        let refuse = |message: String, advice: &str| Err(Refusal::new(Reason::NotAdmitted, message, advice));
        match (wants, holder.role) {
            (
                Wants::Status
                | Wants::Promote { .. }
                | Wants::Stop { .. }
                | Wants::Start { .. }
                | Wants::Forget { .. }
                | Wants::Dump,
                _,
            ) => Ok(()),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Operator) => refuse(
                format!("the certificate of {} is an operator's and does not have the replication role", holder.name),
                "Create a certificate for the node with: holdfast cert node --name NAME --host HOST",
            ),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Node) if holder.name == name => Ok(()),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Node) => refuse(
                format!("the certificate belongs to {}, but the standby's name is {name}", holder.name),
                "Start the standby with the certificate's name (--name), or create a certificate for it",
            ),
        }
    }
}

/// A pending answer.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// The archive, for what the trail has recycled. Its methods do not block the caller's thread.
pub trait Archived: Send + Sync + 'static {
    /// As [`Trail::ends_with`].
    fn ends_with<'a>(&'a self, lsn: Lsn, checksum: u32) -> Later<'a, Match>;

    /// The checked boxcars of one segment from `lsn` on; `None` if the archive does not have them.
    fn boxcars<'a>(&'a self, lsn: Lsn) -> Later<'a, Option<Box<dyn Boxcars>>>;
}

/// Boxcars one after the other; `None` after the last.
pub trait Boxcars: Send {
    fn next(&mut self) -> Result<Option<Shipped>, Refusal>;
}

/// The serving side of a link. The runtime that ships calls the methods: those that read the disk delay only other
/// links.
pub trait LinkServer: Send + Sync + 'static {
    /// This node's name.
    fn name(&self) -> &str;

    fn identity(&self) -> Identity;

    fn trail(&self) -> &Trail;

    /// The archive with what the trail has recycled, if there is one.
    fn archived(&self) -> Option<Arc<dyn Archived>> {
        None
    }

    /// The position up to which a standby may apply: durable here and, if this node follows another one, also there.
    fn durable(&self) -> Lsn {
        self.trail().durable()
    }

    /// Whether boxcars may leave this node now. A master whose lease has expired may already be deposed: another node may
    /// be master, and what this one ships would part its standbys from that node's history. While it is false, standbys
    /// get heartbeats only. The caller has [`crate::Hub::wake_links`] called when it becomes true.
    fn may_ship(&self) -> bool {
        true
    }

    /// On a standby: the address of the master that it follows, directly or not; empty if unknown.
    fn follows(&self) -> Option<String> {
        None
    }

    /// The masterships of this node's history, the latest first; see [`crate::mastership`].
    fn masterships(&self) -> Vec<Mastership> {
        Vec::new()
    }

    /// True if this is the name of a member of the control plane, which may be promoted. Only that member may follow
    /// under it.
    fn is_member(&self, _standby: &str) -> bool {
        false
    }

    /// Called when a standby returns with less than it has confirmed to be on its disk. It is never called concurrently
    /// for one name; the standby does not follow before this has returned.
    fn fell_back(&self, _standby: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// Called when a node that may follow this one has seen a newer epoch, so that there is a newer master. The node
    /// was refused.
    fn deposed(&self, by: Epoch);

    /// Called when a standby has more of this master's own epoch than the master: this directory was put back from an older
    /// copy, and lacks acknowledged commits. The standby does not follow.
    fn rolled_back(&self, standby: &str, refusal: &Refusal);

    /// Checks whether this peer may have what it requests under this name. Also refuses what this node cannot do in its
    /// role.
    fn admit(&self, peer: &Peer, name: &str, wants: &Wants) -> Result<(), Refusal>;

    /// Keeps the trail from `from` on for a standby until the next call, over restarts. With `begins` it begins to
    /// follow or to copy there, which may be before its earlier position; otherwise it has reached this position.
    fn hold(&self, standby: &str, from: Lsn, begins: bool) -> Result<(), Refusal>;

    /// Stops keeping trail for this standby. False if none was kept.
    fn forget(&self, _standby: &str) -> Result<bool, Refusal> {
        Ok(false)
    }

    /// Reports that the standbys have everything below these ends, by level. That may be more than is durable here; a
    /// commit needs both. Each end is a lower bound; the calls may arrive out of order.
    fn reached(&self, reached: Reached);

    /// Whether enough of the sync set is connected and acknowledges, whenever that changes. If not, commits above local
    /// wait, and the operator has to know; by default from the log.
    fn in_sync(&self, yes: bool) {
        if yes {
            tracing::info!("enough standbys acknowledge: commits above level local continue");
        } else {
            tracing::warn!("too few standbys of synchronous_standby_names acknowledge: commits above level local wait");
        }
    }

    /// Starts an online copy of the current state of all databases.
    fn base_copy(&self, standby: &str) -> Result<Box<dyn BaseCopy>, Refusal>;

    /// Starts an online copy of what readers see in all databases, for a dump.
    fn dump(&self, _name: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        Err(Refusal::new(Reason::NotAdmitted, "dumps are not taken from this node", "Take it from the master"))
    }

    /// The status for `holdfast standby status`, as JSON.
    fn status(&self) -> String;

    /// On a standby: stops following its master in order, or starts again, and returns a text of what was done. `None`
    /// if this node does not follow.
    fn follow_on(&self, _follow: bool) -> Option<Result<String, Refusal>> {
        None
    }

    /// Becomes master, and returns a text of what was done.
    fn promote(&self, accept_divergence: bool) -> Result<String, Refusal>;
}
