//! The engine: databases over one trail, the way of a commit, recovery. A library as much as the server's core.
//!
//! ```no_run
//! use holdfast_engine::{Submission, Collect, Engine, Options, Report, Step};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open("data".as_ref(), Options::default())?;
//! let db = engine.database("holdfast")?;
//! let stmt = db.prepare("insert into t values(?)", Report::default())?;
//! let rows = Collect::new();
//! let step = Step { stmt, params: vec![holdfast_types::Value::Int(1)] };
//! let ticket = db.submit(Submission::new(vec![step], Box::new(rows.clone())))?;
//! ticket.wait().expect("not closed").result?; // durable
//! engine.close()?;
//! # Ok(()) }
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod api;
mod background;
mod branch;
mod route;
mod state;
mod statement;
mod tools;
mod writer;

pub use api::activity::{SnapshotHeld, TransactionStats};
pub use api::base_copy::{BaseCopy, BaseReceiver, CopyError, CopyPlan, PageBytes, VolumePlan};
pub use api::database::Database;
pub use api::engine::{DatabaseInfo, Engine};
pub use api::new_history::{NewHistoryError, RESTORING, begin_new_history};
pub use api::prepared::PreparedInfo;
pub use background::archiving::Waiting;
pub use holdfast_store::sqlite::{Place, TouchKind};
pub use holdfast_trail::CommitDelay;
pub use holdfast_types::{LockStrength, LockWait, OnCommit, ParameterChange, RowLock, TableLockMode};
pub use route::multi_database_commit::{commit_with_roles, multi_database_commit};
pub use route::reader::Reader;
pub use route::transaction::{WholeTransaction, WriteIsolation, WriteOptions, WriteTxn};
pub use state::advisory::AdvisoryOwner;
pub use state::engine::{Delay, scratch_dir};
pub use state::error::{CloseError, OpenError};
pub use state::follow::OnApplied;
pub use state::gate::GateInfo;
pub use state::locks::{Blocked, LockInfo, WaitInfo};
pub use state::manifest::{DialectName, Entry, Manifest};
pub use state::options::{ArchiveKeep, BeyondKeep, Connect, ConnectedDatabase, OnFailure, OnGivenUp, Options};
pub use state::queue::{RowsRan, TxnRan};
pub use state::retention::Slot;
pub use state::submission::{Completion, OnCompletion, Submission, Ticket};
pub use state::waiting::Submitted;
pub use statement::collect::{Collect, Outcome};
pub use statement::model::{Class, OriginColumn, Report, Statement, Step, Touch};
pub use statement::viewer::{own_roles, settings, viewer};
pub use tools::{check, import, trail_dump};

/// Temporary tables of a session.
pub mod temp {
    pub use crate::branch::temp::{Snapshot, TempDdl, TempRun, TempSpace, not_the_only_writer};
    pub use crate::statement::temp::shown::{Shown, session_schema};
    pub use crate::statement::temp::tables::{TempTables, TempUse};
}
