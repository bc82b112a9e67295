//! The only place that talks to SQLite's C interface, and the only crate with `unsafe`.
//!
//! [`Conn`] owns a connection together with all its prepared statements, which are named by [`StmtId`] and never
//! leave it. Stepping takes `&mut Conn`, reading a column `&Conn`: so the borrow checker sees what SQLite asks for,
//! that a value read from a row is not used after the next step, and that one thread at a time uses a connection.
//!
//! Failure: every call returns [`SqliteError`] with SQLite's extended result code and message. Nothing here panics
//! on bad input; a statement id that is not this connection's is a programming error and does.

#![allow(unsafe_code)]

mod commit_gate;
mod conn;
mod error;
mod file_lock;
mod flags;
mod guard;
mod next_id;
mod preupdate;
mod rows_table;
mod scratch_file;
mod serialize;
mod slow_vfs;
pub mod sqlstate;
mod temp_file;
mod vfs;

pub use commit_gate::CommitGate;
pub use conn::{Conn, CurrentRow, OpenFlags, StmtId, StmtInfo};
pub use error::SqliteError;
pub use file_lock::FileLock;
pub use flags::{FlagMissing, check_flags, sqlite_version};
pub use rows_table::RowsTable;
pub use rusqlite::{InterruptHandle, ffi};
pub use slow_vfs::SlowVfs;
pub use temp_file::{TEMP_SCHEMA, TempPages};
pub use vfs::{Vfs, take_cause};
