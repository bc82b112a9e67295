//! Types that every crate uses: ids, levels, values, errors, statement descriptions, schema, the result sink,
//! what a statement knows of its session, and the locks and parameters that SQL names.
//!
//! This crate does no I/O and depends on no other Holdfast crate. A type belongs here if it is written into a format
//! (ids, the record module) or crosses a boundary between crates (values, errors, descriptions, sinks).

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod access;
pub mod array;
pub mod calendar;
pub mod cancel;
pub mod cost;
pub mod definition;
pub mod desc;
pub mod error;
pub mod facts;
pub mod figures;
pub mod histogram;
pub mod ids;
pub mod inet;
pub mod interval;
pub mod level;
pub mod lsn;
pub mod publication;
pub mod quoting;
pub mod record;
pub mod schema;
pub mod session_context;
pub mod session_settings;
pub mod sink;
pub mod standing;
pub mod subscription;
pub mod value;
pub mod vocabulary;

pub use cost::Cost;
pub use desc::{ColumnDesc, StatementDesc};
pub use error::{SqlError, SqlResult, SqlState};
pub use facts::{SchemaChange, StatementFacts};
pub use ids::{Epoch, Hlc, Lsn, SiteId, TableId, TxnId, VolumeId};
pub use level::{Level, NoSuchLevel};
pub use session_context::SessionContext;
pub use session_settings::{SessionSettings, SettingRow};
pub use sink::{Row, Sink, Tag};
pub use standing::{ArchiveRow, LinkRow, StandbyRow};
pub use value::{Value, ValueRef};
pub use vocabulary::{LockStrength, LockWait, OnCommit, ParameterChange, RowLock, TableLockMode};
