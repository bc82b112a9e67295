//! Receives the rows of a statement. The engine steps SQLite and calls a [`Sink`]; the protocol implements one that
//! encodes messages. So neither depends on the other, and no row is copied in between.

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
    /// Column `i`, from 0. Valid until the next row.
    fn get(&self, i: usize) -> ValueRef<'_>;
}

/// What a finished statement reports: PostgreSQL's command tag, such as `INSERT 0 1` or `SELECT 3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The words before the count; for example `INSERT 0`, `UPDATE`, `CREATE TABLE`.
    pub verb: &'static str,
    /// Number of rows, for commands that report it.
    pub rows: Option<u64>,
}

/// Receives the results of one batch of statements, in order. `Any` lets a caller that passed a boxed sink to the
/// engine get its own type back.
pub trait Sink: Send + Any {
    /// Statement number `step` (from 0 within its batch) begins to run.
    fn begin(&mut self, step: usize, desc: &Arc<StatementDesc>);
    /// Receives one row of the statement. May block until the client has read earlier rows, unless the caller forbids
    /// that. An error ends the statement.
    fn row(&mut self, row: &dyn Row) -> Result<(), SqlError>;
    /// The statement has ended without an error.
    fn end(&mut self, tag: &Tag);
    /// The statement that has ended last changed so many rows in the trail, with so many bytes of row images.
    fn recorded(&mut self, bytes: u64, images: u64) {
        let _ = (bytes, images);
    }
    /// Makes everything received so far final: [`Sink::reset`] will not discard it.
    fn keep(&mut self);
    /// Discards everything received since the last [`Sink::keep`], or everything, because it is about to run again.
    /// A sink that has passed some of it on ends the statement with an error instead.
    fn reset(&mut self);
}
