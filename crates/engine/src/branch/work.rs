//! The work that runs on a branch, and how one attempt at it ends.

use crate::state::locks::{LockId, LockMode};
use crate::state::taken_ids::Taken;
use crate::statement::model::{Class, Statement, Step};
use crate::statement::temp::tables::TempUse;
use holdfast_types::{SessionContext, Sink, SqlError, Value};
use std::sync::Arc;

/// The work to run.
pub enum Work {
    Statement {
        number: usize,
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
        /// The ids that it has taken so far.
        ids: Arc<Taken>,
    },
    /// One statement for many rows of parameters, which take effect together or not at all. Its results are dropped.
    Rows {
        stmt: Arc<Statement>,
        rows: Vec<Vec<Value>>,
        /// The row that failed, from 0.
        failed: usize,
        ids: Arc<Taken>,
    },
}

impl Work {
    /// Drops what the statement has returned so far.
    pub fn reset(&mut self) {
        if let Work::Statement { sink, .. } = self {
            sink.reset();
        }
    }

    /// The ids that it has taken so far.
    pub fn ids(&self) -> &Arc<Taken> {
        match self {
            Work::Statement { ids, .. } | Work::Rows { ids, .. } => ids,
        }
    }

    pub fn is_ddl(&self) -> bool {
        matches!(self, Work::Statement { step, .. } if step.stmt.class == Class::Ddl)
    }

    /// How it uses temporary tables.
    pub fn temp(&self) -> Option<&TempUse> {
        match self {
            Work::Statement { step, .. } => step.stmt.temp.as_ref(),
            Work::Rows { stmt, .. } => stmt.temp.as_ref(),
        }
    }

    /// The epoch of the schema it was translated under, if that matters.
    pub fn epoch(&self) -> Option<u32> {
        match self {
            Work::Statement { step, .. } => step.stmt.report.epoch,
            Work::Rows { stmt, .. } => stmt.report.epoch,
        }
    }

    /// It may run on an older snapshot: its changes are checked, or repeated by the writer.
    pub fn may_be_late(&self) -> bool {
        match self {
            Work::Statement { step, .. } if step.stmt.class == Class::Ddl => true,
            Work::Statement { step, .. } => step.stmt.names_its_rows,
            Work::Rows { stmt, .. } => stmt.names_its_rows,
        }
    }
}

/// How an attempt ended.
pub enum Attempt {
    Done,
    /// The statement is undone.
    Failed(SqlError),
    /// Undone; it can be retried when this lock is granted.
    Blocked(LockId, LockMode),
    /// Undone; it has to be retried on a snapshot that shows this batch.
    Stale(u64),
    /// Undone; only the writer can run it.
    NeedsExclusive,
}
