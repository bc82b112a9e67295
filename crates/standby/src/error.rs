//! The errors that end a link.

use std::io;
use std::time::Duration;

use holdfast_trail::{ReceiveError, ShippedFlaw, TrailError};
use holdfast_types::{Epoch, Lsn};

use crate::kind::MessageKind;
use crate::refusal::{Reason, Refusal};

/// Every way in which a link can end other than an orderly stop. Bytes from a peer never cause anything else.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link failed: {0}")]
    Io(io::Error),
    #[error("the other side closed the link")]
    Closed,
    #[error("the other side sent nothing for {} ms", .after.as_millis())]
    Silent { after: Duration },
    #[error("the other side took too long to {what}")]
    TooSlow { what: &'static str },
    #[error(
        "the answer does not come from a node without encryption: if the address is the port for nodes (node_listen), \
         name this side's certificates with --certificates; otherwise check the address"
    )]
    NoNode,

    #[error("received a frame of unknown kind {code}")]
    UnknownKind { code: u8 },
    #[error("received a {kind:?} of {bytes} bytes; the limit is {bytes_max}")]
    TooLong { kind: MessageKind, bytes: u64, bytes_max: u64 },
    #[error("received a malformed {kind:?}: {what}")]
    Malformed { kind: MessageKind, what: String },
    #[error("cannot encode a message: {0}")]
    Encode(String),
    #[error("received a {kind:?} instead of {expected}")]
    Unexpected { kind: MessageKind, expected: &'static str },

    #[error("received an invalid boxcar instead of the one at LSN {lsn}: {flaw}")]
    Flaw { lsn: Lsn, flaw: ShippedFlaw },
    #[error("received the boxcar at LSN {found} instead of the one at LSN {expected}")]
    Order { found: Lsn, expected: Lsn },
    #[error("the boxcar at LSN {lsn} does not follow the one before it")]
    Chain { lsn: Lsn },
    #[error(
        "the boxcar at LSN {lsn} is from a deposed master: it has epoch {found}, but epoch {known} is already known"
    )]
    OldEpoch { lsn: Lsn, found: Epoch, known: Epoch },
    #[error("received an invalid ack: {what}")]
    Ack { what: String },
    #[error("the base copy is invalid: {what}")]
    Copy { what: String },

    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Trail(#[from] TrailError),
    /// The standby's own trail refused or failed.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// A part of this node failed: a thread or a file.
    #[error("{0}")]
    Node(String),
}

impl LinkError {
    /// Converts an error of reading or writing. A disconnected peer appears as a broken pipe; over TLS, when its process has
    /// ended without closing the connection, as an unexpected end.
    pub(crate) fn from_io(error: io::Error) -> LinkError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                LinkError::Closed
            }
            _ => LinkError::Io(error),
        }
    }

    /// The refusal to send to the other side; `None` if the link is broken or the other side knows.
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
                (Reason::Failed, "Read the log of the node that refuses")
            }
            _ => {
                (Reason::Protocol, "Compare the versions of both programs; if they are the same, report this as a bug")
            }
        };
        Some(Refusal::new(reason, self.to_string(), advice))
    }

    /// Whether connecting again may succeed without an operator's action.
    pub fn may_pass(&self) -> bool {
        match self {
            LinkError::Io(_) | LinkError::Closed | LinkError::Silent { .. } | LinkError::TooSlow { .. } => true,
            LinkError::Refused(refusal) => refusal.reason.may_pass(),
            // A server that changes its role, or waits for its control plane, answers nodes as it answers clients: 57P03.
            LinkError::NoNode => true,
            // Bytes that were corrupted on the link.
            LinkError::Flaw { .. } => true,
            // This node's own trail has recycled what was searched in it.
            LinkError::Trail(TrailError::Gone { .. }) => true,
            _ => false,
        }
    }

    /// This node's disk is full: the missing part is received when there is room.
    pub fn is_full(&self) -> bool {
        matches!(self, LinkError::Receive(ReceiveError::Full { .. }))
    }
}
