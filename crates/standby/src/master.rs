//! What the link asks of the node that is asked: the master, or a standby that others follow or ask for its status.

use std::pin::Pin;
use std::sync::Arc;

use holdfast_trail::{Match, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};

use crate::base_copy::BaseCopy;
use crate::cert::CertificateRole;
use crate::identity::Identity;
use crate::message::Wants;
use crate::refusal::{Reason, Refusal};
use crate::sync_set::Reached;

/// Who is at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// For messages.
    pub address: String,
    /// Whose certificate it has shown, where the link is encrypted.
    pub certificate: Option<Holder>,
}

/// Who holds a certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// A node's name, or a person's.
    pub name: String,
    pub role: CertificateRole,
}

impl Peer {
    /// May whoever this is ask for that under this name? A node follows under its own name only, an operator not at all.
    /// Without a certificate, which is on this machine only, everybody may.
    pub fn check_role(&self, name: &str, wants: &Wants) -> Result<(), Refusal> {
        let Some(holder) = &self.certificate else { return Ok(()) };
        let refuse = |message: String, advice: &str| Err(Refusal::new(Reason::NotAdmitted, message, advice));
        match (wants, holder.role) {
            (
                Wants::Status | Wants::Promote { .. } | Wants::Stop { .. } | Wants::Start { .. } | Wants::Forget { .. },
                _,
            ) => Ok(()),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Operator) => refuse(
                format!("the certificate of {} is an operator's and has not the replication role", holder.name),
                "Make one for the node: holdfast cert node --name NAME --host HOST",
            ),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Node) if holder.name == name => Ok(()),
            (Wants::Follow(_) | Wants::BaseCopy, CertificateRole::Node) => refuse(
                format!("the certificate is that of {}, and the standby calls itself {name}", holder.name),
                "Give the standby the certificate's name with --name, or make it a certificate of its own",
            ),
        }
    }
}

/// An answer that is on its way.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// What the trail has recycled and an archive still has. Nothing that blocks is done by the caller's thread.
pub trait Archived: Send + Sync + 'static {
    /// As [`Trail::ends_with`].
    fn ends_with<'a>(&'a self, lsn: Lsn, checksum: u32) -> Later<'a, Match>;

    /// The boxcars of one segment, from `lsn` on, checked; `None` when they are not there either.
    fn boxcars<'a>(&'a self, lsn: Lsn) -> Later<'a, Option<Box<dyn Boxcars>>>;
}

/// Boxcars one after the other, `None` behind the last.
pub trait Boxcars: Send {
    fn next(&mut self) -> Result<Option<Shipped>, Refusal>;
}

/// The asked side. Methods are called by the runtime that ships: those that read the disk hold up only other links.
pub trait Master: Send + Sync + 'static {
    /// This node's name.
    fn name(&self) -> &str;

    fn identity(&self) -> Identity;

    fn trail(&self) -> &Trail;

    /// What it has recycled, where there is an archive.
    fn archived(&self) -> Option<Arc<dyn Archived>> {
        None
    }

    /// What a standby may apply: durable here, and where this node follows another itself, there.
    fn durable(&self) -> Lsn {
        self.trail().durable()
    }

    /// Of a standby: the address of the master that it follows, directly or not; empty where it is not known.
    fn follows(&self) -> Option<String> {
        None
    }

    /// Is this the name of a member of the control plane, which may be promoted? Only that member may follow under it.
    fn is_member(&self, _standby: &str) -> bool {
        false
    }

    /// This standby comes back with less than it has confirmed to be on its disk. Not called by two at a time for one
    /// name; it does not follow before this has returned.
    fn fell_back(&self, _standby: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// A node that may follow this one has seen a newer epoch: there is a newer master. It was refused.
    fn deposed(&self, by: Epoch);

    /// May this peer, under this name, have what it wants? Also refuses what this node cannot give in its role.
    fn admit(&self, peer: &Peer, name: &str, wants: &Wants) -> Result<(), Refusal>;

    /// Keeps the trail from `from` on for a standby until told otherwise, over restarts. `begins`: it begins to follow, or
    /// a copy, there, which may be in front of where it once was; otherwise it has come so far.
    fn hold(&self, standby: &str, from: Lsn, begins: bool) -> Result<(), Refusal>;

    /// Keeps nothing for this standby any more. False: nothing was kept.
    fn forget(&self, _standby: &str) -> Result<bool, Refusal> {
        Ok(false)
    }

    /// The standbys have everything below these ends, by level: which may be more than is durable here, and a commit
    /// needs both. Each is a lower bound; they may come out of order.
    fn reached(&self, reached: Reached);

    /// Whether enough of the sync set is connected and acknowledges, whenever that changes. If not, commits above cold
    /// wait, and the operator has to know; by default from the log.
    fn in_sync(&self, yes: bool) {
        if yes {
            tracing::info!("enough standbys acknowledge: commits above level cold go on");
        } else {
            tracing::warn!("too few standbys of synchronous_standby_names acknowledge: commits above level cold wait");
        }
    }

    /// An online copy of all databases, as of now.
    fn base_copy(&self, standby: &str) -> Result<Box<dyn BaseCopy>, Refusal>;

    /// For `holdfast standby status`: JSON.
    fn status(&self) -> String;

    /// Of a standby: stops following its master in order, or starts again; what was done, in words. `None`: this node
    /// follows nobody.
    fn follow_on(&self, _follow: bool) -> Option<Result<String, Refusal>> {
        None
    }

    /// Becomes master; what was done, in words.
    fn promote(&self, accept_divergence: bool) -> Result<String, Refusal>;
}
