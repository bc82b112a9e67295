//! The engine: databases over one trail, the way of a commit, recovery. A library as much as the server's core.
//!
//! ```no_run
//! use holdfast_engine::{Batch, Collect, Engine, Options, Report, Step};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open("data".as_ref(), Options::default())?;
//! let db = engine.database("holdfast")?;
//! let stmt = db.prepare("insert into t values(?)", Report::default())?;
//! let rows = Collect::new();
//! let step = Step { stmt, params: vec![holdfast_types::Value::Int(1)] };
//! let ticket = db.submit(Batch::new(vec![step], Box::new(rows.clone())))?;
//! ticket.wait().expect("not closed").result?; // durable
//! engine.close()?;
//! # Ok(()) }
//! ```

mod advisory;
mod archiving;
mod base_copy;
mod batch;
mod branch;
mod cache;
pub mod check;
mod checkpointer;
mod classify;
mod collect;
mod database;
mod engine;
mod error;
mod floor;
mod gate;
mod ids;
pub mod import;
mod local;
mod locks;
mod main_thread;
mod main_txn;
mod manifest;
mod options;
mod prepared;
mod reader;
mod recovery;
mod redo;
mod redo_debt;
mod replace;
mod rerun;
mod run;
mod sent_ahead;
mod sqlite_uri;
mod statement;
mod stats;
mod tasks;
pub mod temp;
mod together;
pub mod trail_dump;
mod vacuum;
mod write_txn;

pub use advisory::Session;
pub use archiving::Waiting;
pub use base_copy::{BaseCopy, BaseReceiver, CopyError, CopyPlan, PageBytes, VolumePlan};
pub use batch::{Batch, BatchDone, OnDone, Ticket};
pub use collect::{Collect, Outcome};
pub use database::Database;
pub use engine::{
    DatabaseInfo, Delay, Engine, OnApplied, ParameterChange, ParametersOf, SnapshotHeld, TransactionStats, scratch_dir,
};
pub use error::{CloseError, OpenError};
pub use floor::Slot;
pub use gate::GateInfo;
pub use holdfast_store::locking::RowMode;
pub use holdfast_trail::CommitDelay;
pub use locks::{Blocked, LockInfo, TableMode};
pub use main_thread::{RowsRan, TxnRan};
pub use manifest::{DialectName, Entry, Manifest};
pub use options::{ArchiveKeep, BeyondKeep, Connect, OnFailure, OnGivenUp, Options};
pub use prepared::PreparedInfo;
pub use reader::Reader;
pub use statement::{Class, LockWait, OriginColumn, Report, RowLock, Statement, Step};
pub use together::commit_together;
pub use write_txn::{Beside, WriteIsolation, WriteOptions, WriteTxn};
