//! A session's temporary tables in one database: prepares statements that use them, and runs what each commit does.

use crate::state::branch_connection::Connection;
use crate::state::database::DatabaseState;
use crate::statement::temp::tables::TempTables;
use holdfast_types::SqlError;
use std::ops::Deref;
use std::sync::Arc;

/// 0A000 for a statement over both kinds of tables that only the writer could run.
pub fn not_the_only_writer() -> SqlError {
    SqlError::unsupported("permanent and temporary tables in one statement of a transaction that is the only writer")
        .with_hint(
            "Such a transaction has changed the schema, a table with triggers or too many rows, or is SERIALIZABLE.",
        )
}

/// The temporary tables of one session in one database.
pub struct TempSpace {
    pub(crate) database: Arc<DatabaseState>,
    pub(crate) tables: Arc<TempTables>,
}

impl Deref for TempSpace {
    type Target = TempTables;

    fn deref(&self) -> &TempTables {
        &self.tables
    }
}

impl TempSpace {
    /// Creates space for the temporary tables of a session; `bytes_max` bounds them, including what a rollback needs.
    pub(crate) fn new(database: &Arc<DatabaseState>, bytes_max: u64) -> Arc<TempSpace> {
        let tables = TempTables::new(database.name.clone(), database.engine.scratch_dir(), bytes_max);
        Arc::new(TempSpace { database: database.clone(), tables })
    }
}

/// SQLite undoes a statement before its pages are restored; otherwise it would undo it again later.
pub fn undo(tables: &TempTables, c: &mut Connection) {
    if let Err(error) = c.undo_all() {
        tables.lose(&error.to_string());
    }
}

/// Runs a statement on a branch: if it succeeds, its changes of temporary tables stay. Returns the result of `run`.
pub fn keep_on_branch<T>(
    tables: &TempTables,
    c: &mut Connection,
    run: impl FnOnce(&mut Connection) -> Result<T, T>,
    failed: impl FnOnce(SqlError) -> T,
) -> T {
    let result = tables.or_undo(|| {
        let kept = run(c).and_then(|done| match c.keep_temp() {
            Ok(()) => Ok(done),
            Err(e) => Err(failed(tables.explained(e))),
        });
        if kept.is_err() {
            undo(tables, c);
        }
        kept
    });
    result.unwrap_or_else(|undone| undone)
}
