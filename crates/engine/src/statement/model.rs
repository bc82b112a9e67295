//! A prepared statement as all connections share it: its text, what it does, and where it may run.

use crate::statement::temp::tables::TempUse;
use holdfast_store::sqlite::Bounds;
pub use holdfast_store::sqlite::Touch;
use holdfast_types::{Cost, RowLock, StatementDesc, StatementFacts, Value};
use std::sync::Arc;

/// Where a statement may run (RULE 10), determined from SQLite's program for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads by unique key: bounded, on any thread.
    Read,
    /// Reads more than by unique key: on a thread that may take its time.
    Scan,
    /// Writes by unique key or VALUES: bounded, in a batch with others.
    Write,
    /// Writes more than that: in a batch of its own.
    WriteScan,
    /// Changes the schema: on a branch, or in a batch of its own.
    Ddl,
}

impl Class {
    pub fn is_read(self) -> bool {
        matches!(self, Class::Read | Class::Scan)
    }

    /// Whether it may share a batch.
    pub fn is_bounded(self) -> bool {
        matches!(self, Class::Read | Class::Write)
    }
}

/// A result column's name and, for a plain column, its origin.
pub type OriginColumn = holdfast_store::sqlite::StmtInfo;

/// How the caller wants a statement reported; SQLite does not know this.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Passed to the sink with every run.
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
    /// It takes or releases advisory locks.
    pub advisory: bool,
    /// It is the server's own, and may change internal tables.
    pub internal: bool,
    /// A subscription's worker applies it.
    pub applied: bool,
    /// The epoch of the schema it was translated under, if it must not run under another.
    pub epoch: Option<u32>,
    /// What it is by its own words; crate `sql` reads them, a statement of the server's own may have facts made by hand.
    pub facts: StatementFacts,
}

/// One statement of SQLite SQL.
#[derive(Debug)]
pub struct Statement {
    /// Unique in this process; the key of each connection's cache.
    pub id: u64,
    pub sql: String,
    pub param_count: usize,
    pub class: Class,
    /// The highest cost of the functions that it calls.
    pub cost: Cost,
    /// It changes only rows that it names by their key or inserts VALUES, reads no other rows, and skips no row because
    /// of a conflict.
    pub names_its_rows: bool,
    pub columns: Vec<OriginColumn>,
    pub report: Report,
    /// The tables and views that it touches, through which views and triggers.
    pub touched: Box<[Touch]>,
    /// It uses temporary tables, and belongs to its session.
    pub temp: Option<TempUse>,
}

/// The arguments of one function that may be handled where other sessions wait for it, and all parameters of a statement that
/// calls functions: some of them take a millisecond for so much.
const ARGUMENT_BYTES_MAX: usize = 8 << 10;

/// The longest value and row that such a statement may handle.
const VALUE_BYTES_MAX: i32 = 256 << 10;

/// The longest value and row that is read on a network thread.
const ROW_BYTES_MAX: i32 = 1 << 20;

/// One statement to run with its parameters, in order.
#[derive(Clone, Debug)]
pub struct Step {
    pub stmt: Arc<Statement>,
    pub params: Vec<Value>,
}

impl Step {
    /// Whether it may run where other sessions wait for it: on a network thread, or in a batch with others. Something that it reads
    /// may still be too large for that; [`Step::bounds`] detects it.
    pub fn is_bounded(&self) -> bool {
        let params = || self.params.iter().map(Value::bytes).sum::<usize>();
        self.stmt.class.is_bounded()
            && match self.stmt.cost {
                Cost::Constant => true,
                Cost::Linear => params() <= ARGUMENT_BYTES_MAX,
                Cost::Unbounded => false,
            }
    }

    /// The bounds within which it may run in a batch with others. Beyond them it ends with SQLITE_TOOBIG.
    pub fn bounds(&self) -> Option<Bounds> {
        let bounds = Bounds { value_bytes: VALUE_BYTES_MAX, argument_bytes: ARGUMENT_BYTES_MAX };
        (self.stmt.cost != Cost::Constant).then_some(bounds)
    }

    /// The bounds within which it may run on a network thread.
    pub fn bounds_on_a_network_thread(&self) -> Bounds {
        self.bounds().unwrap_or(Bounds { value_bytes: ROW_BYTES_MAX, argument_bytes: usize::MAX })
    }
}
