//! Where the rows of a statement go. The engine steps SQLite and calls a [`Sink`]; the protocol implements one that
//! encodes messages. So neither needs to know the other, and no row is copied in between.

use crate::desc::StatementDesc;
use crate::error::SqlError;
use crate::value::ValueRef;
use std::any::Any;
use std::sync::Arc;

/// The current row of a running statement.
pub trait Row {
    /// Number of columns.
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Column `i` from 0. Valid until the next row.
    fn get(&self, i: usize) -> ValueRef<'_>;
}

/// What a finished statement reports: PostgreSQL's command tag, such as `INSERT 0 1` or `SELECT 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The words before the count, for example `INSERT 0`, `UPDATE`, `CREATE TABLE`.
    pub verb: &'static str,
    /// Rows, where the command reports them.
    pub rows: Option<u64>,
}

/// Receives the results of one batch of statements, in order. `Any` lets whoever lent a boxed sink to the engine get
/// its own type back.
pub trait Sink: Send + Any {
    /// Statement number `step` (from 0 within its batch) begins to run.
    fn begin(&mut self, step: usize, desc: &Arc<StatementDesc>);
    /// One row of it. May block until the client has taken earlier rows, except where the caller said that it must
    /// not. An error ends the statement.
    fn row(&mut self, row: &dyn Row) -> Result<(), SqlError>;
    /// The statement has ended well.
    fn end(&mut self, tag: &Tag);
    /// What was received so far stands: [`Sink::reset`] will not forget it.
    fn keep(&mut self);
    /// Forget everything received since the last [`Sink::keep`], or all of it: that is about to be run again. Only
    /// called on sinks from which nothing has been sent yet.
    fn reset(&mut self);
}
