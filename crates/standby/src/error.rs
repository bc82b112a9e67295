//! What ends a link.

use std::io;
use std::time::Duration;

use holdfast_trail::{ReceiveError, ShippedFlaw, TrailError};
use holdfast_types::{Epoch, Lsn};

use crate::frame::Kind;
use crate::refusal::{Reason, Refusal};

/// Every way a link can end but an orderly one. A peer's bytes never cause anything else.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link failed: {0}")]
    Io(io::Error),
    #[error("the other side closed the link")]
    Closed,
    #[error("nothing came from the other side for {} ms", .after.as_millis())]
    Silent { after: Duration },
    #[error("the other side took too long to {what}")]
    TooSlow { what: &'static str },
    #[error(
        "what answers there is no node that speaks without encryption: if it is a node's port for nodes (node_listen), \
         name this side's certificates with --certificates; else check the address"
    )]
    NoNode,

    #[error("a frame of unknown kind {code}")]
    UnknownKind { code: u8 },
    #[error("a {kind:?} of {bytes} bytes where at most {bytes_max} are allowed")]
    TooLong { kind: Kind, bytes: u64, bytes_max: u64 },
    #[error("a malformed {kind:?}: {what}")]
    Malformed { kind: Kind, what: String },
    #[error("a message could not be encoded: {0}")]
    Encode(String),
    #[error("a {kind:?} where {expected} was due")]
    Unexpected { kind: Kind, expected: &'static str },

    #[error("a boxcar that cannot be, where LSN {lsn} was due: {flaw}")]
    Flaw { lsn: Lsn, flaw: ShippedFlaw },
    #[error("a boxcar at LSN {found} where LSN {expected} was due")]
    Order { found: Lsn, expected: Lsn },
    #[error("the boxcar at LSN {lsn} does not follow the one before it")]
    Chain { lsn: Lsn },
    #[error("the boxcar at LSN {lsn} is of epoch {found}; epoch {known} is known already. A deposed master sent it")]
    OldEpoch { lsn: Lsn, found: Epoch, known: Epoch },
    #[error("an ack that cannot be: {what}")]
    Ack { what: String },
    #[error("a base copy that cannot be: {what}")]
    Copy { what: String },

    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Trail(#[from] TrailError),
    /// The standby's own trail refused or failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The node's own part failed: a thread, a file.
    #[error("{0}")]
    Node(String),
}

impl LinkError {
    /// An error of writing: a peer that is gone shows as a broken pipe.
    pub(crate) fn from_io(error: io::Error) -> LinkError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => LinkError::Closed,
            _ => LinkError::Io(error),
        }
    }

    /// What the other side is told about it; `None` where the link is broken or the other side knows.
    pub fn refusal(&self) -> Option<Refusal> {
        let (reason, advice) = match self {
            LinkError::Io(_) | LinkError::Closed | LinkError::Silent { .. } => return None,
            LinkError::TooSlow { .. } => return None,
            LinkError::Refused(refusal) => return Some(refusal.clone()),
            LinkError::OldEpoch { .. } => {
                (Reason::Deposed, "Stop this server and bring it back as a standby with: holdfast rejoin")
            }
            LinkError::Trail(TrailError::Gone { .. }) => {
                (Reason::Gone, "Take a new base copy with: holdfast standby create")
            }
            LinkError::Trail(_) | LinkError::Receive(_) | LinkError::Node(_) | LinkError::Encode(_) => {
                (Reason::Failed, "See the log of the node that refuses")
            }
            _ => (Reason::Protocol, "Compare the versions of both programs; if they are the same, report it"),
        };
        Some(Refusal::new(reason, self.to_string(), advice))
    }

    /// Whether the link may simply be tried again.
    pub fn may_pass(&self) -> bool {
        match self {
            LinkError::Io(_) | LinkError::Closed | LinkError::Silent { .. } | LinkError::TooSlow { .. } => true,
            LinkError::Refused(refusal) => refusal.reason.may_pass(),
            // Bytes that changed on their way.
            LinkError::Flaw { .. } => true,
            // This node's own trail has recycled what it was looking for in it.
            LinkError::Trail(TrailError::Gone { .. }) => true,
            _ => false,
        }
    }

    /// This node's disk has no room: what is missing comes when there is some.
    pub fn is_full(&self) -> bool {
        matches!(self, LinkError::Receive(ReceiveError::Full { .. }))
    }
}
