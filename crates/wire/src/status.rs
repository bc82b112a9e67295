//! The state of a session's transaction, as the protocol reports it.

/// The transaction status that ReadyForQuery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Idle,
    InTransaction,
    Failed,
}
