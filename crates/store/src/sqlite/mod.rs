//! The only code that calls SQLite's C interface, in the only crate with `unsafe`.
//!
//! [`Conn`] owns a connection and all its prepared statements, which are named by [`StmtId`] and never leave it.
//! Stepping takes `&mut Conn`, reading a column `&Conn`. The borrow checker thereby enforces what SQLite requires: a
//! value read from a row is not used after the next step, and one thread at a time uses a connection.
//!
//! This directory makes no decisions about transactions, capture or schemas: what is above passes them in, for example
//! as a [`RowHook`].
//!
//! Failure: every call returns [`SqliteError`] with SQLite's extended result code and message. Nothing here panics on
//! bad input; only a statement id of another connection does, which is a programming error.

#![allow(unsafe_code)]

mod commit_gate;
mod conn;
mod error;
mod file_lock;
mod flags;
mod function_cost;
mod guard;
mod memory;
mod next_id;
mod row_hook;
mod rows_table;
mod scratch_file;
mod serialize;
pub mod sqlstate;
mod temp_file;
mod vfs;

pub use commit_gate::CommitGate;
pub use conn::{Conn, CurrentRow, OpenFlags, StmtId, StmtInfo};
pub use error::SqliteError;
pub use file_lock::FileLock;
pub use flags::{FlagMissing, check_flags, sqlite_version};
pub use function_cost::Bounds;
pub use guard::{Place, Touch, TouchKind};
pub use memory::{bound_large_values, large_values};
#[cfg(test)]
pub(crate) use row_hook::tests::write_through_a_blob_handle;
pub use row_hook::{ChangeKind, RowChange, RowHook};
pub use rows_table::RowsTable;
pub use rusqlite::{InterruptHandle, ffi};
pub use temp_file::{TEMP_SCHEMA, TempPages};
pub use vfs::{Vfs, take_cause};
