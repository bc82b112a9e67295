//! Branches: private copies of a volume in which interactive transactions run, many at a time.
//!
//! A branch is its images (what the transaction has changed so far), its locks and, where the isolation level keeps
//! one, its snapshot. A connection is lent to it while a statement runs; before that the images are put on top of the
//! snapshot the statement is to see. It is left in its place for the next statement, but not for long and not with too
//! many. So an idle transaction costs next to nothing, and one that waits for a lock holds no connection and no thread
//! (RULE 26).
//!
//! ```text
//! statement --> connection at its snapshot, images replayed --> run, rows locked by the hook
//!     done     --> new images kept, connection given back
//!     blocked  --> everything undone; wait for the lock; again on the newest snapshot
//!     stale    --> READ COMMITTED: undone, again on the newest snapshot, locks kept; else 40001
//!     alone    --> the transaction moves to MAIN with its images and goes on there ([`crate::write_txn`])
//! commit    --> the images go to MAIN, which applies them in the common boxcar
//! ```
//!
//! Answers: what a statement saw may not be durable after a restart; its answer then waits (RULE 27).

mod connection;
mod core;
mod locking_read;
mod pin;
mod place;
mod replay;
mod schema;
mod size;
mod txn;
mod watch;

pub use connection::{Connection, Pool};
pub use core::{Core, Work};
pub use locking_read::is_free;
pub use pin::{At, Pin, Presence};
pub use replay::image_error;
pub use schema::{locks_for, schema_lock};
pub use size::Places;
pub use txn::{Branch, Ended, Interruption, cancelled, wait_for};
pub use watch::{MainWatch, OnMain, Running};
