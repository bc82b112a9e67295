//! Temporary tables: private to a session, in no trail and under no lock.
//!
//! A session that has some owns a [`TempSpace`]: pages in scratch ([`holdfast_store::sqlite::TempPages`]), and the
//! definitions of the tables. It holds no connection: the pages are attached to the connection that runs a statement, while
//! it runs. So a statement changes either temporary tables or permanent ones, never both, and it runs
//!
//! | the statement | the transaction has changed permanent tables | runs |
//! |---|---|---|
//! | reads or changes temporary ones only | | on a connection of its own ([`TempRun`]) |
//! | also reads permanent ones | no | on a connection of its own, at the transaction's snapshot |
//! | also reads permanent ones | yes | on the transaction's branch, with its images |
//! | changes or locks permanent ones | | on the transaction's branch |
//! | either of the last two | and is the exclusive writer | refused (0A000): the writer never sees temporary tables |
//!
//! SQLite commits a statement's changes of the pages when it ends; on a branch, the transaction's changes of permanent tables
//! vanish from the connection with that, and another connection replays them for the next statement. When the client's
//! transaction or a savepoint is rolled back, the pages are restored.
//!
//! Failure: a statement that fails leaves the pages as they were. If they cannot be put back, which takes a failing disk,
//! all temporary tables of the session are gone, and its statements fail with an error that says so.

mod run;
mod space;

pub use run::{Snapshot, TempDdl, TempRun};
pub use space::{TempSpace, keep_on_branch, not_the_only_writer};
