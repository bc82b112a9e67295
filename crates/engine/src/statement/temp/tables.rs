//! The temporary tables of one session: their definitions and their pages.
//!
//! A statement that uses them carries them with it, so this module knows no database and no connection pool.

use holdfast_store::sqlite::TempPages;
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{OnCommit, SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The tables at one point in time.
#[derive(Default)]
pub struct Tables {
    pub list: Vec<Arc<Table>>,
    /// By OID; absent where the rows stay at commit.
    pub on_commit: HashMap<u32, OnCommit>,
}

struct State {
    tables: Arc<Tables>,
    /// The tables as they were when each mark was set.
    marks: Vec<Arc<Tables>>,
    /// Something was changed since the first mark.
    changed: bool,
    /// Belongs to the last schema built.
    epoch: u32,
    /// The permanent tables and these together, with the inputs it was built from.
    combined: Option<(Arc<Schema>, Arc<Tables>, Arc<Schema>)>,
    lost: bool,
}

/// How a statement uses its session's temporary tables.
#[derive(Clone, Debug)]
pub struct TempUse {
    pub tables: Arc<TempTables>,
    /// It names some of them. Otherwise it only lists what exists.
    pub uses: bool,
    /// It changes their rows.
    pub writes: bool,
    /// It uses permanent tables as well.
    pub main: bool,
    /// It changes or locks permanent tables.
    pub changes_main: bool,
}

/// The temporary tables of one session in one database.
pub struct TempTables {
    /// The database's name, for messages.
    database: String,
    pages: Arc<TempPages>,
    state: Mutex<State>,
}

impl std::fmt::Debug for TempTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TempTables").field("database", &self.database).finish_non_exhaustive()
    }
}

impl TempTables {
    /// Creates space for tables in the directory `scratch`; `bytes_max` bounds them, including what a rollback needs.
    pub fn new(database: String, scratch: PathBuf, bytes_max: u64) -> Arc<TempTables> {
        let pages = TempPages::new(scratch, bytes_max);
        let state =
            State { tables: Arc::default(), marks: Vec::new(), changed: false, epoch: 0, combined: None, lost: false };
        Arc::new(TempTables { database, pages, state: Mutex::new(state) })
    }

    /// The tables as they are now.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.state.lock().tables.clone()
    }

    /// The tables, if something was changed since the first mark.
    pub(crate) fn changed(&self) -> Option<Arc<Tables>> {
        let state = self.state.lock();
        state.changed.then(|| state.tables.clone())
    }

    /// Records the tables as a schema change has left them; `creates` names the one that it created.
    pub(crate) fn set_tables(&self, list: Vec<Arc<Table>>, creates: Option<&(String, OnCommit)>) {
        let mut state = self.state.lock();
        let mut on_commit = state.tables.on_commit.clone();
        on_commit.retain(|oid, _| list.iter().any(|t| t.oid == *oid));
        if let Some((name, then)) = creates
            && let Some(new) = list.iter().find(|t| t.name.eq_ignore_ascii_case(name))
            && !state.tables.list.iter().any(|t| t.oid == new.oid)
        {
            on_commit.insert(new.oid, *then);
        }
        state.tables = Arc::new(Tables { list, on_commit });
    }

    /// True if there is no table.
    pub fn is_empty(&self) -> bool {
        self.state.lock().tables.list.is_empty()
    }

    /// A schema that includes the temporary tables; the returned value stays the same while nothing changes.
    pub fn schema(&self, permanent: &Arc<Schema>) -> Arc<Schema> {
        let mut state = self.state.lock();
        if state.tables.list.is_empty() {
            return permanent.clone();
        }
        if let Some((of, tables, combined)) = &state.combined
            && Arc::ptr_eq(of, permanent)
            && Arc::ptr_eq(tables, &state.tables)
        {
            return combined.clone();
        }
        state.epoch += 1;
        let combined = Arc::new(permanent.with_temporary(state.epoch, &state.tables.list));
        state.combined = Some((permanent.clone(), state.tables.clone(), combined.clone()));
        combined
    }

    pub(crate) fn check(&self) -> SqlResult<()> {
        match self.state.lock().lost {
            true => Err(SqlError::new(SqlState::IO_ERROR, "the temporary tables of this session were lost")
                .with_hint("DISCARD TEMP lets it make new ones.")),
            false => Ok(()),
        }
    }

    /// Sets a mark to go back to.
    pub fn set_mark(&self) {
        let mut state = self.state.lock();
        if state.marks.is_empty() {
            state.changed = false;
        }
        let tables = state.tables.clone();
        state.marks.push(tables);
        self.pages.set_mark();
    }

    /// How many marks there are.
    pub fn marks(&self) -> usize {
        self.state.lock().marks.len()
    }

    /// Drops mark `number`, counted from 0, and those after it. Later changes stay.
    pub fn release(&self, number: usize) {
        self.state.lock().marks.truncate(number);
        self.pages.release(number);
    }

    /// Undoes the changes since mark `number`, counted from 0. The mark stays.
    pub fn back_to(&self, number: usize) {
        let mut state = self.state.lock();
        let Some(tables) = state.marks.get(number).cloned() else { return };
        if let Err(error) = self.pages.back_to(number) {
            self.log_loss(&error.to_string());
            state.lost = true;
        }
        state.marks.truncate(number + 1);
        state.tables = tables;
    }

    /// What a return to the first mark has to restore.
    pub fn bytes_aside(&self) -> u64 {
        self.pages.bytes_aside()
    }

    /// What the pages hold is no longer known.
    pub fn lose(&self, why: &str) {
        self.log_loss(why);
        self.state.lock().lost = true;
    }

    fn log_loss(&self, why: &str) {
        tracing::error!(database = self.database, why, "temporary tables of a session are lost");
    }

    /// Runs a statement's work on the connection, or undoes its changes to the tables.
    pub(crate) fn or_undo<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mark = self.marks();
        self.set_mark();
        let result = work();
        if result.is_err() {
            self.back_to(mark);
        } else {
            self.state.lock().changed = true;
        }
        self.release(mark);
        result
    }

    /// The error of a statement, reported as the limit if that was the cause.
    pub(crate) fn explained(&self, error: SqlError) -> SqlError {
        if !self.pages.take_overflow() {
            return error;
        }
        let message = format!("temporary tables of a session exceed scratch_bytes_max ({})", self.pages.bytes_max());
        SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            .with_hint("Drop some, or commit: what a rollback needs counts as well.")
    }

    pub(crate) fn pages(&self) -> &TempPages {
        &self.pages
    }
}
