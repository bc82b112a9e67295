//! Advisory locks: an application's own locks, which have no meaning for the server.
//!
//! A session owns them, also those that end with a transaction, so that a client never waits for itself. The SQL
//! function behind them runs inside a statement and cannot wait there: it records what it needs, the statement is
//! undone, and it runs again when the lock is granted.

use crate::state::locks::{LockManager, OwnerId};
use holdfast_types::{Cost, SqlError};
use std::sync::Arc;

/// The SQL function: `holdfast_advisory(operation, key, space)`.
pub const FUNCTION: &str = "holdfast_advisory";

/// What a call costs; a wait is outside of it.
pub const COST: Cost = Cost::Constant;

/// A client's session, for locks that outlive its transactions. They are released when it is dropped.
pub struct AdvisoryOwner {
    locks: Arc<LockManager>,
    owner: OwnerId,
    pub pid: i32,
}

impl AdvisoryOwner {
    pub(crate) fn new(locks: Arc<LockManager>, pid: i32) -> AdvisoryOwner {
        let owner = locks.new_session(pid);
        AdvisoryOwner { locks, owner, pid }
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Releases all its advisory locks.
    pub fn unlock_all(&self) {
        self.locks.release_all(self.owner);
    }
}

impl Drop for AdvisoryOwner {
    fn drop(&mut self) {
        self.locks.end(self.owner);
    }
}

/// The error where there is no session to own a lock.
pub fn not_here() -> SqlError {
    SqlError::unsupported("an advisory lock in this place")
        .with_hint("Take it outside transactions that change the schema, and not in a library call without a session.")
}
