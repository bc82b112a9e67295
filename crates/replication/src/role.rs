//! What ends a server's role. The node takes the server down to its listening socket and opens it again in the next role.

use crate::accepted_loss::AcceptedLoss;
use crate::replaced::Replaced;
use holdfast_standby::identity::Tip;
use holdfast_types::Epoch;
use tokio::sync::oneshot;

/// Where the result of a promotion goes, in words for the operator.
pub type Reply = std::sync::mpsc::Sender<Result<String, String>>;

/// An event that ends the present role.
pub enum RoleEvent {
    Promote(Promotion),
    /// What the master never made durable is cut off this standby's trail.
    CutBack(Tip),
    /// This master was deposed in order, and still holds its lease: the sessions end, each after the answer to what it is doing.
    /// The channel receives a message when all have ended. The links stay.
    EndSessions(oneshot::Sender<()>),
    /// This deposed master's supervisor lets it return by itself: another node serves.
    Return,
}

/// A standby becomes the master.
pub struct Promotion {
    /// Given by the control plane.
    pub epoch: Option<Epoch>,
    /// Set when the operator accepts that something may be lost.
    pub accepted_loss: Option<AcceptedLoss>,
    /// The master that it replaces, where no control plane deposes that one.
    pub replaced: Option<Replaced>,
    pub reply: Reply,
}
