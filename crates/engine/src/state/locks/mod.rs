//! The lock manager: one for all volumes of an engine.
//!
//! An owner is a transaction; it holds locks until it ends, or until a savepoint set before them is rolled back to
//! (RULE 26). Waiters queue first in, first out, and a freed lock is handed over. The writer never waits: it asks whether
//! another transaction holds what it is about to change, and registers the new version of it in the same critical section in
//! which branches lock and compare versions (RULE 21).
//!
//! | file | holds |
//! |---|---|
//! | [`mode`] | what conflicts with what |
//! | [`manager`] | locks, queues, hand-over |
//! | [`aside`] | a lock put aside for as long as its owner waits |
//! | [`deadlock`] | the wait-for graph |
//! | [`list`], [`holders`] | what views show |
//! | [`versions`] | which batch changed what last, per volume |
//! | [`released`] | what was released a moment ago, for its next owner |
//!
//! Failure: none of its own; a wait ends by a grant, a deadlock (40P01), or because its owner gives it up.

mod aside;
mod deadlock;
mod holders;
mod list;
mod manager;
mod mode;
mod released;
mod versions;

pub use holders::HolderId;
pub use list::{Blocked, LockInfo};
pub use manager::{Checked, Grant, LockManager, Mark, WaitInfo};
pub use mode::{LockId, LockMode, OwnerId, Target};
