//! A shared lock that its owner puts aside while it waits for an application's own lock.
//!
//! Every statement that may change something shares the database's lock, so that the exclusive writer has it to itself. A statement
//! that waits for an advisory lock would keep the exclusive writer out for as long as another session holds that lock: and where
//! that session is the one that wants to write exclusively, each would wait for the other. PostgreSQL has no such conflict.
//!
//! | the owner | then |
//! |---|---|
//! | holds nothing else | the lock is put aside; the statement runs again on what the exclusive writers in between have published |
//! | holds locks of rows, tables or of the schema | it keeps the lock: an exclusive writer takes no heed of those |
//!
//! Failure: none of its own.

use super::manager::{Grant, LockManager};
use super::mode::{LockId, LockMode, OwnerId};

impl LockManager {
    /// Releases the lock if it is all that the owner holds. Returns whether it did.
    pub fn put_aside(&self, owner: OwnerId, id: LockId, mode: LockMode) -> bool {
        let mut s = self.0.lock();
        s.holds_only(owner, id, mode) && s.unlock(owner, id, mode)
    }

    /// Takes a lock that was put aside, also ahead of the owners that wait for it: they would wait if it had been kept. Only a
    /// holder is in the way.
    pub fn take_up(&self, owner: OwnerId, id: LockId, mode: LockMode) -> Grant {
        let mut s = self.0.lock();
        if s.is_held_against(Some(owner), id, mode) {
            return Grant::Blocked;
        }
        s.grant(owner, id, mode);
        Grant::Granted
    }
}
