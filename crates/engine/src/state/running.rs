//! The transaction whose statement runs on a branch's connection, and what the hook has found meanwhile.

use crate::state::locks::{LockId, LockMode, OwnerId};
use holdfast_types::TableId;

/// What the hook of a branch found while a statement ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct HookFindings {
    /// A row was changed after the snapshot, last by this batch.
    pub stale: Option<u64>,
    /// Another transaction holds this; the statement was interrupted.
    pub blocked: Option<(LockId, LockMode)>,
    /// The statement changes something that only the writer may change; it was interrupted.
    pub needs_exclusive: bool,
}

/// The transaction whose statement runs on a branch's connection.
#[derive(Default)]
pub struct Running {
    pub owner: Option<OwnerId>,
    pub snapshot: u64,
    /// With more locks than this only the writer may run it.
    pub locks_max: usize,
    /// The transaction's own images are being replayed.
    pub replaying: bool,
    /// Tables that the statement has locked already.
    pub tables: Vec<TableId>,
    /// Tables that it has locked because their rows are referenced.
    pub parents: Vec<TableId>,
    /// Those of both that the transaction has locked as a whole: no other transaction can lock rows of them.
    pub whole: Vec<TableId>,
    /// The owner of advisory locks.
    pub session: Option<OwnerId>,
    /// An advisory lock that was waited for and has not been taken yet.
    pub granted: Option<(LockId, LockMode)>,
    /// Advisory locks taken that end with the transaction.
    pub advisory: Vec<(OwnerId, LockId, LockMode)>,
    pub found: HookFindings,
}
