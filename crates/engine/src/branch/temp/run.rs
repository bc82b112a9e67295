//! A statement over temporary tables on a connection of its own, apart from the transaction's branch if there is one.

use super::space::{TempSpace, undo};
use crate::state::branch_connection::Connection;
use crate::state::pin::{At, Pin};
use crate::statement::collect::Ignore;
use crate::statement::describe::describe;
use crate::statement::model::{Report, Statement, Step};
use crate::statement::run::{Under, run_step, to_sql};
use crate::statement::temp::shown::Shown;
use crate::statement::temp::uses::describe_with;
use holdfast_store::sqlite::{InterruptHandle, TEMP_SCHEMA};
use holdfast_store::temp_schema::read_temp_schema;
use holdfast_types::quoting::quote;
use holdfast_types::{OnCommit, SessionContext, Sink, SqlError, SqlResult, Value};
use std::sync::Arc;

/// The snapshot that it sees of permanent tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The newest one whose commits have all reached their levels.
    Visible,
    /// The snapshot that a transaction keeps and holds.
    Held(u64),
}

/// A schema change of temporary tables.
pub struct TempDdl {
    /// SQLite's statements, in order. The last one takes the parameters and gives the answer.
    pub steps: Vec<String>,
    pub report: Report,
    pub params: Vec<Value>,
    /// The table it creates.
    pub creates: Option<(String, OnCommit)>,
}

/// A connection with the temporary tables attached. Dropping it returns the connection.
pub struct TempRun {
    space: Arc<TempSpace>,
    connection: Option<Connection>,
    /// Dropped after the connection has released the snapshot.
    pin: Pin,
}

impl TempSpace {
    /// Prepares a statement of a session that has temporary tables; [`Statement::temp`] says whether it uses them.
    pub fn prepare(self: &Arc<TempSpace>, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        let permanent = self.database.readable.get();
        let mut run = self.open(Snapshot::Visible, 0)?;
        describe_with(&self.tables, &mut run.connection()?.conn, &permanent, sql, report)
    }

    /// Runs on behalf of the client with process number `pid`.
    pub fn open(self: &Arc<TempSpace>, snapshot: Snapshot, pid: i32) -> SqlResult<TempRun> {
        self.check()?;
        let pin = match snapshot {
            Snapshot::Visible => self.database.pin(At::Visible, pid),
            Snapshot::Held(number) => self.database.pin(At::Held(number), pid),
        };
        // Perhaps under an older schema, which SQLite detects itself; nothing is captured.
        let mut connection = self.database.branches.take(&self.database)?;
        connection.changed |= !self.database.goes_with(connection.epoch(), pin.snapshot());
        connection.begin_without_owner(pin.snapshot(), &self.tables)?;
        Ok(TempRun { space: self.clone(), connection: Some(connection), pin })
    }

    /// Runs the ON COMMIT actions of the tables. Call it before the transaction is committed.
    pub fn before_commit(self: &Arc<TempSpace>) -> SqlResult<()> {
        let Some(tables) = self.changed().filter(|tables| !tables.on_commit.is_empty()) else { return Ok(()) };
        let mut steps = Vec::new();
        for (table, then) in tables.list.iter().filter_map(|t| tables.on_commit.get(&t.oid).map(|then| (t, then))) {
            let name = format!("{TEMP_SCHEMA}.{}", quote(&table.name));
            match then {
                OnCommit::PreserveRows => {}
                OnCommit::DeleteRows => steps.push(format!("DELETE FROM {name}")),
                OnCommit::Drop => steps.push(format!("DROP TABLE {name}")),
            }
        }
        self.change_all(steps)
    }

    /// Drops all tables.
    pub fn drop_all(self: &Arc<TempSpace>) -> SqlResult<()> {
        let tables = self.tables();
        let quoted = tables.list.iter().map(|t| quote(&t.name));
        self.change_all(quoted.map(|name| format!("DROP TABLE {TEMP_SCHEMA}.{name}")).collect())
    }

    /// Schema changes that no client requested one by one: their order does not matter to foreign keys.
    fn change_all(self: &Arc<TempSpace>, steps: Vec<String>) -> SqlResult<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let mut run = self.open(Snapshot::Visible, 0)?;
        let switch = |run: &mut TempRun, on: &str| {
            let done = run.connection()?.conn.exec(&format!("pragma foreign_keys={on}"));
            done.map_err(|e| to_sql(&e, "", &Default::default()))
        };
        switch(&mut run, "off")?;
        let ddl = TempDdl { steps, report: Report::default(), params: Vec::new(), creates: None };
        let changed = run.change_tables(&SessionContext::NONE, 0, &ddl, &|_| Ok(()), &mut Ignore);
        switch(&mut run, "on")?;
        changed
    }
}

impl TempRun {
    pub(super) fn connection(&mut self) -> SqlResult<&mut Connection> {
        self.connection.as_mut().ok_or_else(|| SqlError::internal("a connection was lost"))
    }

    /// Interrupts the statement from any thread.
    pub fn interrupt_handle(&mut self) -> SqlResult<InterruptHandle> {
        Ok(self.connection()?.conn.interrupt_handle())
    }

    /// The rowid of the last row inserted.
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.as_ref().map_or(0, |c| c.conn.last_insert_rowid())
    }

    /// The snapshot that a statement saw; its answer has to wait until that is durable.
    pub fn snapshot(&self) -> u64 {
        self.pin.snapshot()
    }

    /// Runs one statement.
    pub fn run(&mut self, context: &SessionContext, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        let schema = self.space.schema(&self.space.database.readable.get());
        let writes = step.stmt.temp.as_ref().is_some_and(|t| t.writes);
        let _shown = Shown::new(schema.clone());
        let under = Under { schema: &schema, context };
        self.work(writes, |c| run_step(&mut c.conn, &mut c.temp_cache, under, number, step, sink))
    }

    /// Runs one statement for many rows of parameters, which take effect together or not at all. The error names the
    /// row.
    pub fn run_rows(&mut self, stmt: &Arc<Statement>, rows: Vec<Vec<Value>>) -> Result<(), (usize, SqlError)> {
        let schema = self.space.schema(&self.space.database.readable.get());
        let under = Under { schema: &schema, context: &SessionContext::NONE };
        let mut at = 0;
        let done = self.work(true, |c| {
            for (i, params) in rows.into_iter().enumerate() {
                at = i;
                let step = Step { stmt: stmt.clone(), params };
                run_step(&mut c.conn, &mut c.temp_cache, under, 0, &step, &mut Ignore)?;
            }
            Ok(())
        });
        done.map_err(|e| (at, e))
    }

    /// Runs a schema change. `check` decides on each statement after it has been prepared and before it runs.
    pub fn change_tables(
        &mut self,
        context: &SessionContext,
        number: usize,
        ddl: &TempDdl,
        check: &dyn Fn(&Statement) -> SqlResult<()>,
        sink: &mut dyn Sink,
    ) -> SqlResult<()> {
        let schema = self.space.schema(&self.space.database.readable.get());
        let space = self.space.clone();
        self.work(true, |c| {
            for (i, sql) in ddl.steps.iter().enumerate() {
                let last = i + 1 == ddl.steps.len();
                let report = if last { ddl.report.clone() } else { Report::default() };
                let stmt = describe(&mut c.conn, sql, report).map_err(|e| to_sql(&e, sql, &schema))?;
                check(&stmt)?;
                let params = if last { ddl.params.clone() } else { Vec::new() };
                let step = Step { stmt: Arc::new(stmt), params };
                let sink: &mut dyn Sink = if last { &mut *sink } else { &mut Ignore };
                let under = Under { schema: &schema, context };
                run_step(&mut c.conn, &mut c.temp_cache, under, number, &step, sink)?;
            }
            let list = read_temp_schema(&mut c.conn).map_err(|e| to_sql(&e, "", &Default::default()))?;
            space.set_tables(list, ddl.creates.as_ref());
            Ok(())
        })
    }

    /// Runs one statement's work in a transaction of SQLite's.
    fn work(&mut self, writes: bool, work: impl FnOnce(&mut Connection) -> SqlResult<()>) -> SqlResult<()> {
        let space = self.space.clone();
        let c = self.connection()?;
        let begin = c.control.begin;
        if !writes {
            c.run(begin)?;
            let done = work(c);
            let ended = c.undo_all();
            return done.and(ended);
        }
        let done = space.or_undo(|| {
            c.run(begin)?;
            let done = work(c).and_then(|()| c.keep_temp());
            if done.is_err() {
                undo(&space, c);
            }
            done
        });
        done.map_err(|e| space.explained(e))
    }
}

impl Drop for TempRun {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.space.database.branches.give_back(connection);
        }
    }
}
