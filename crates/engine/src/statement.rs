//! A prepared statement as all connections share it: its text, what it does, and where it may run.

use crate::temp::TempUse;
use holdfast_store::locking::RowMode;
use holdfast_types::StatementDesc;
use std::sync::Arc;

/// Where a statement may run (RULE 10), judged from SQLite's program for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads by unique key: bounded, on any thread.
    Read,
    /// Reads more than that: on a thread that may take its time.
    Scan,
    /// Writes by unique key or VALUES: bounded, in a boxcar with others.
    Write,
    /// Writes more than that: alone.
    WriteScan,
    /// Changes the schema: alone.
    Ddl,
}

impl Class {
    pub fn is_read(self) -> bool {
        matches!(self, Class::Read | Class::Scan)
    }

    /// May share a boxcar.
    pub fn is_bounded(self) -> bool {
        matches!(self, Class::Read | Class::Write)
    }
}

/// A result column's name and, for a plain column, where it comes from.
pub type OriginColumn = holdfast_store::sqlite::StmtInfo;

/// What to do about a row that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    Wait,
    /// 55P03.
    NoWait,
    /// The row is left out.
    Skip,
}

/// Rows of a result that are to be locked.
#[derive(Clone, Debug, PartialEq)]
pub struct RowLock {
    pub table: String,
    pub mode: RowMode,
    pub wait: LockWait,
    /// Result columns with the rowid, or the primary key of a WITHOUT ROWID table in its order.
    pub key: Vec<usize>,
    /// Result column with the number of rows wanted, where rows may be left out; negative is all.
    pub limit: Option<usize>,
}

/// How the caller wants a statement reported; SQLite does not know.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Handed to the sink with every run.
    pub desc: Arc<StatementDesc>,
    /// Command tag, for example `INSERT 0`.
    pub verb: &'static str,
    /// The tag carries the number of rows.
    pub counts: bool,
    /// Runs as a schema change although SQLite's program does not show it.
    pub ddl: bool,
    /// Runs as a write although it only reads (SELECT ... FOR UPDATE).
    pub write: bool,
    /// Rows it locks. Result columns beyond those of `desc` are not shown.
    pub row_locks: Arc<[RowLock]>,
    /// It takes or gives up advisory locks.
    pub advisory: bool,
    /// The epoch of the schema it was translated under, where it must not run under another.
    pub epoch: Option<u32>,
}

/// One statement of SQLite SQL.
#[derive(Debug)]
pub struct Statement {
    /// Unique in this process; the key of each connection's cache.
    pub id: u64,
    pub sql: String,
    pub param_count: usize,
    pub class: Class,
    /// It changes rows it names by their key or inserts VALUES, looks at nothing else, and changes none only where
    /// none is there.
    pub names_its_rows: bool,
    pub columns: Vec<OriginColumn>,
    pub report: Report,
    /// It uses temporary tables, and is its session's alone.
    pub temp: Option<TempUse>,
}

/// One statement to run with its parameters, in order.
#[derive(Clone, Debug)]
pub struct Step {
    pub stmt: Arc<Statement>,
    pub params: Vec<holdfast_types::Value>,
}
