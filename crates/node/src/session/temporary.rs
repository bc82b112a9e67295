//! The temporary tables of a session, and what the ends of transactions and savepoints do to them.
//!
//! | event | the tables |
//! |---|---|
//! | the first statement about them in a block | a mark is set, and one more for each savepoint that is set |
//! | SAVEPOINT, RELEASE, ROLLBACK TO | another mark; forgotten; gone back to |
//! | the end of the block, before it is committed | ON COMMIT is done |
//! | committed | the marks are forgotten |
//! | rolled back, or not committed | as they were at the first mark |
//! | DISCARD TEMP, DISCARD ALL, end of the session | dropped |
//!
//! Marks are numbered from 0: the block's own, then one for each savepoint.

use super::blocking::blocking;
use crate::plan::Extra;
use holdfast_engine::temp::{TempSpace, TempUse};
use holdfast_sql::{Entry, StatementCache};
use holdfast_types::SqlResult;
use holdfast_types::schema::Schema;
use std::sync::Arc;

/// At most this many bytes of pages are restored on the worker's own thread.
const UNDO_BYTES_AT_ONCE_MAX: u64 = 1 << 20;

/// A session's temporary tables in one database.
pub(super) struct Space {
    /// The database's number: its name may be given to another database.
    pub oid: u32,
    pub tables: Arc<TempSpace>,
    pub cache: StatementCache<Extra>,
}

/// A session's temporary tables.
#[derive(Default)]
pub struct TemporaryTables {
    pub spaces: Vec<Space>,
    /// The open block has used temporary tables.
    pub touched: bool,
}

impl TemporaryTables {
    pub fn of(&self, oid: u32) -> Option<&Space> {
        self.spaces.iter().find(|s| s.oid == oid)
    }

    /// `permanent`, with the session's temporary tables in the database `oid` added.
    pub fn schema(&self, oid: u32, permanent: Arc<Schema>) -> Arc<Schema> {
        match self.of(oid) {
            Some(space) => space.tables.schema(&permanent),
            None => permanent,
        }
    }

    /// Whether the session may have temporary tables.
    pub fn any(&self) -> bool {
        !self.spaces.is_empty()
    }

    fn marked(&self) -> impl Iterator<Item = &Arc<TempSpace>> {
        self.spaces.iter().map(|s| &s.tables).filter(|t| t.marks() > 0)
    }

    /// A savepoint was set.
    pub fn savepoint(&self) {
        self.marked().for_each(|tables| tables.set_mark());
    }

    /// Savepoint number `at`, from 0, and those after it were released.
    pub fn release(&self, at: usize) {
        self.marked().for_each(|tables| tables.release(at + 1));
    }

    pub async fn roll_back_to(&self, at: usize) {
        for tables in self.marked() {
            undo(tables, at + 1).await;
        }
    }

    /// The block is about to be committed.
    pub async fn before_commit(&self) -> SqlResult<()> {
        for tables in self.marked().cloned().collect::<Vec<_>>() {
            blocking(move || tables.before_commit()).await?;
        }
        Ok(())
    }

    /// The block is over.
    pub async fn end_transaction(&mut self, committed: bool) {
        self.touched = false;
        for tables in self.marked() {
            if !committed {
                undo(tables, 0).await;
            }
            tables.release(0);
        }
    }
}

/// Restores a mark; on another thread where that takes long.
pub(super) async fn undo(tables: &Arc<TempSpace>, mark: usize) {
    if tables.bytes_aside() < UNDO_BYTES_AT_ONCE_MAX {
        return tables.back_to(mark);
    }
    let away = tables.clone();
    // Its only error is that its thread was lost; what the pages hold is unknown then.
    let work = move || {
        away.back_to(mark);
        Ok(())
    };
    if blocking(work).await.is_err() {
        tables.lose("the thread that undid a transaction's changes is gone");
    }
}

/// How a statement uses temporary tables, if it does.
pub(super) fn temp_use(entry: &Entry<Extra>) -> Option<&TempUse> {
    entry.extra.as_ref()?.temp.as_ref()
}

/// Whether the statement uses temporary tables and changes no others.
pub(super) fn is_temporary(entry: &Entry<Extra>) -> bool {
    entry.translated.temp.is_some() || temp_use(entry).is_some_and(|t| !t.changes_main)
}
