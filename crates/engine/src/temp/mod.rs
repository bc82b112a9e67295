//! Temporary tables: private to a session, in no trail and under no lock.
//!
//! A session that has some owns a [`TempSpace`]: pages in scratch ([`holdfast_store::sqlite::TempPages`]), and what is
//! known of the tables. It holds no connection: the pages are attached to the one that runs a statement, for as long as
//! that runs. So a statement changes either temporary tables or permanent ones, never both, and it runs
//!
//! | it | the transaction has changed permanent tables | runs |
//! |---|---|---|
//! | reads or changes temporary ones only | | on a connection of its own ([`TempRun`]) |
//! | reads permanent ones, too | no | the same, at the transaction's snapshot |
//! | reads permanent ones, too | yes | on the transaction's branch, with its images |
//! | changes or locks permanent ones | | on the transaction's branch |
//! | either of the last two | and is the only writer | refused (0A000): MAIN never sees temporary tables |
//!
//! SQLite commits what a statement has done to the pages when it ends; on a branch, what the transaction has done to
//! permanent tables vanishes from the connection with that, and is put on another one for the next statement. What the
//! client's transaction and its savepoints undo is undone in the pages.
//!
//! Failure: a statement that fails leaves the pages as they were. If they cannot be put back, which takes a failing disk,
//! all temporary tables of the session are gone and it is told so.

mod run;
mod shown;
mod uses;

pub use run::{Snapshot, TempDdl, TempRun};
pub use shown::{Shown, session_schema};
pub use uses::TempUse;

use crate::branch::Connection;
use crate::database::{Inner, describe};
use crate::run::to_sql;
use crate::statement::{Report, Statement};
use crate::{Class, Database};
use holdfast_store::sqlite::{Conn, TempPages};
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What becomes of a temporary table at each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCommit {
    PreserveRows,
    DeleteRows,
    Drop,
}

/// 0A000 for a statement over both kinds of tables where MAIN would have to run it.
pub fn not_the_only_writer() -> SqlError {
    SqlError::unsupported("permanent and temporary tables in one statement of a transaction that is the only writer")
        .with_hint("That is one that has changed the schema, tables with triggers or very much, or is SERIALIZABLE.")
}

/// The tables at one moment.
#[derive(Default)]
struct Tables {
    list: Vec<Arc<Table>>,
    /// By OID; absent where the rows stay.
    on_commit: HashMap<u32, OnCommit>,
}

struct State {
    tables: Arc<Tables>,
    /// What they were when each mark was set.
    marks: Vec<Arc<Tables>>,
    /// Something was changed since the first mark.
    changed: bool,
    /// Of the last schema made.
    epoch: u32,
    /// The permanent tables and these together, with what that was made of.
    combined: Option<(Arc<Schema>, Arc<Tables>, Arc<Schema>)>,
    lost: bool,
}

/// The temporary tables of one session in one database.
pub struct TempSpace {
    inner: Arc<Inner>,
    pages: Arc<TempPages>,
    state: Mutex<State>,
}

impl std::fmt::Debug for TempSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TempSpace").field("database", &self.inner.name).finish_non_exhaustive()
    }
}

impl Database {
    /// Room for the temporary tables of a session; `bytes_max` bounds them with what a rollback needs.
    pub fn temp_space(&self, bytes_max: u64) -> Arc<TempSpace> {
        let pages = TempPages::new(self.0.shared.scratch_dir(), bytes_max);
        let state =
            State { tables: Arc::default(), marks: Vec::new(), changed: false, epoch: 0, combined: None, lost: false };
        Arc::new(TempSpace { inner: self.0.clone(), pages, state: Mutex::new(state) })
    }

    /// Ends when what a statement saw at this snapshot is durable.
    pub async fn until_durable(&self, snapshot: u64) -> SqlResult<()> {
        self.0.durable(snapshot).await
    }
}

impl TempSpace {
    /// There is no table.
    pub fn is_empty(&self) -> bool {
        self.state.lock().tables.list.is_empty()
    }

    /// A schema with the temporary tables in it; the same one as long as nothing changes.
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

    /// Prepares a statement of a session that has temporary tables; [`Statement::temp`] says whether it uses them.
    pub fn prepare(self: &Arc<TempSpace>, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        let permanent = self.inner.schema.read().clone();
        let mut run = self.open(Snapshot::Durable, 0)?;
        self.describe(&mut run.connection()?.conn, &permanent, sql, report)
    }

    /// On a connection to which they are attached, and that has the schema `permanent`.
    pub(crate) fn describe(
        self: &Arc<TempSpace>,
        conn: &mut Conn,
        permanent: &Arc<Schema>,
        sql: &str,
        report: Report,
    ) -> SqlResult<Arc<Statement>> {
        let schema = self.schema(permanent);
        let error = |e| to_sql(&e, sql, &schema);
        let mut statement = describe(conn, sql, report).map_err(error)?;
        statement.temp = uses::temp_use(conn, self, &statement).map_err(error)?;
        if let Some(temp) = &statement.temp {
            statement.class = if temp.changes_main { Class::WriteScan } else { Class::Scan };
            statement.names_its_rows = false;
        }
        Ok(Arc::new(statement))
    }

    fn check(&self) -> SqlResult<()> {
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

    /// Forgets mark `number`, from 0, and those after it. What has been done since stays.
    pub fn release(&self, number: usize) {
        self.state.lock().marks.truncate(number);
        self.pages.release(number);
    }

    /// Undoes what has been done since mark `number`, from 0, which stays.
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

    /// What going back to the first mark has to put back.
    pub fn bytes_aside(&self) -> u64 {
        self.pages.bytes_aside()
    }

    /// Nobody knows any more what the pages hold.
    pub fn lose(&self, why: &str) {
        self.log_loss(why);
        self.state.lock().lost = true;
    }

    fn log_loss(&self, why: &str) {
        tracing::error!(database = self.inner.name, why, "temporary tables of a session are lost");
    }

    /// Runs a statement's work on the connection, or undoes what it has done to the tables.
    fn or_undo<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
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

    /// SQLite undoes a statement before its pages are put back, or it would undo it again later.
    fn undo_in(&self, c: &mut Connection) {
        if let Err(error) = c.undo_all() {
            self.lose(&error.to_string());
        }
    }

    /// The error of a statement, said in terms of the limit where that was the cause.
    fn told(&self, error: SqlError) -> SqlError {
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

    /// On a branch: a statement that ran well keeps what it did to temporary tables. Returns what `run` does.
    pub(crate) fn on_branch<T>(
        &self,
        c: &mut Connection,
        run: impl FnOnce(&mut Connection) -> Result<T, T>,
        failed: impl FnOnce(SqlError) -> T,
    ) -> T {
        let result = self.or_undo(|| {
            let kept = run(c).and_then(|done| match c.keep_temp() {
                Ok(()) => Ok(done),
                Err(e) => Err(failed(self.told(e))),
            });
            if kept.is_err() {
                self.undo_in(c);
            }
            kept
        });
        result.unwrap_or_else(|undone| undone)
    }
}
