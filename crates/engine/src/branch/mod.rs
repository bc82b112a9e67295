//! Branches: private copies of a volume in which interactive transactions run, many at a time.
//!
//! A branch is its images (what the transaction has changed so far), its locks and, where the isolation level keeps
//! one, its snapshot. A connection is lent to it while a statement runs; before that the images are replayed on the
//! snapshot that the statement must see. The connection is left in place for the next statement, for a limited time and up to a
//! limited number. So an idle transaction costs next to nothing, and one that waits for a lock holds no connection and no
//! thread (RULE 26).
//!
//! ```text
//! statement --> connection at its snapshot, images replayed --> run, rows locked by the hook
//!     done      --> new images kept, connection given back
//!     blocked   --> everything undone; wait for the lock; again on the newest snapshot
//!     stale     --> READ COMMITTED: undone, again on the newest snapshot, locks kept; else 40001
//!     exclusive --> the transaction moves to the writer with its images and continues there (`route/transaction.rs`)
//! commit    --> the images go to the writer, which applies them in the common batch
//! ```
//!
//! Answers: what a statement saw may not be durable after a restart; its answer then waits (RULE 27).
//!
//! This floor imports the floors of state and statements. It knows neither the writer nor the routes, which decide when a
//! transaction leaves its branch; what it needs of the writer, the end of a batch, comes through the lock manager.

pub mod advisory;
pub mod attempt;
pub mod connection;
pub mod execute;
pub mod locking_read;
pub mod replay;
pub mod schema;
pub mod schema_change;
pub mod schema_locks;
pub mod size;
pub mod snapshot;
pub mod state;
pub mod temp;
pub mod waits;
pub mod watch;
pub mod work;
