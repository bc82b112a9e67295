//! A statement over temporary tables on a connection of its own, beside the transaction's branch if there is one.

use super::{OnCommit, Shown, Tables, TempSpace};
use crate::branch::{At, Connection, Pin};
use crate::collect::Ignore;
use crate::database::describe;
use crate::run::{run_step, to_sql};
use crate::statement::{Report, Statement, Step};
use holdfast_store::sqlite::{InterruptHandle, TEMP_SCHEMA};
use holdfast_store::temp_schema::read_temp_schema;
use holdfast_types::{Sink, SqlError, SqlResult, Value};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks whether MAIN has published a new schema.
const SCHEMA_PAUSE: Duration = Duration::from_micros(50);

/// What it sees of permanent tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    /// The newest durable one.
    Durable,
    /// That of a transaction that keeps one and holds it.
    Held(u64),
}

/// A schema change of temporary tables.
pub struct TempDdl {
    /// SQLite's statements, in order. The last one takes the parameters and answers.
    pub steps: Vec<String>,
    pub report: Report,
    pub params: Vec<Value>,
    /// The table it creates.
    pub creates: Option<(String, OnCommit)>,
}

/// A connection with the temporary tables attached. Dropping it gives it back.
pub struct TempRun {
    space: Arc<TempSpace>,
    connection: Option<Connection>,
    /// Dropped after the connection has let go of the snapshot.
    pin: Pin,
}

impl TempSpace {
    /// On behalf of the client that knows itself as process `pid`.
    pub fn open(self: &Arc<TempSpace>, snapshot: Snapshot, pid: i32) -> SqlResult<TempRun> {
        self.check()?;
        let (mut connection, pin) = match snapshot {
            Snapshot::Durable => self.newest(pid)?,
            // Perhaps of an older schema, which SQLite finds out by itself; nothing is captured.
            Snapshot::Held(number) => {
                let pin = Pin::new(&self.inner, At::Held(number), pid);
                let mut connection = self.inner.branches.take(&self.inner)?;
                connection.changed |= !self.inner.goes_with(connection.epoch(), number);
                (connection, pin)
            }
        };
        connection.begin_without_owner(pin.snapshot(), self)?;
        Ok(TempRun { space: self.clone(), connection: Some(connection), pin })
    }

    /// A connection and a snapshot of the published schema.
    fn newest(&self, pid: i32) -> SqlResult<(Connection, Pin)> {
        loop {
            // A change of the schema that waits for its level is seen: the answer then waits with it.
            let newest = self.inner.schema_number() > self.inner.volume().store().durable();
            let pin = Pin::new(&self.inner, if newest { At::Newest } else { At::Durable }, pid);
            let connection = self.inner.branches.take(&self.inner)?;
            if self.inner.goes_with(connection.epoch(), pin.snapshot()) {
                return Ok((connection, pin));
            }
            self.inner.branches.give_back(connection);
            // MAIN is publishing a schema at this moment.
            std::thread::sleep(SCHEMA_PAUSE);
        }
    }

    /// What the end of a transaction does to tables that say so. To be called before the transaction is committed.
    pub fn before_commit(self: &Arc<TempSpace>) -> SqlResult<()> {
        let tables = {
            let state = self.state.lock();
            if !state.changed || state.tables.on_commit.is_empty() {
                return Ok(());
            }
            state.tables.clone()
        };
        let mut steps = Vec::new();
        for (table, then) in tables.list.iter().filter_map(|t| tables.on_commit.get(&t.oid).map(|then| (t, then))) {
            let name = format!("{TEMP_SCHEMA}.{}", holdfast_store::schema_map::quote(&table.name));
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
        let tables = self.state.lock().tables.clone();
        let quoted = tables.list.iter().map(|t| holdfast_store::schema_map::quote(&t.name));
        self.change_all(quoted.map(|name| format!("DROP TABLE {TEMP_SCHEMA}.{name}")).collect())
    }

    /// Schema changes that no client has asked for one by one: their order does not matter to foreign keys.
    fn change_all(self: &Arc<TempSpace>, steps: Vec<String>) -> SqlResult<()> {
        if steps.is_empty() {
            return Ok(());
        }
        let mut run = self.open(Snapshot::Durable, 0)?;
        let switch = |run: &mut TempRun, on: &str| {
            let done = run.connection()?.conn.exec(&format!("pragma foreign_keys={on}"));
            done.map_err(|e| to_sql(&e, "", &Default::default()))
        };
        switch(&mut run, "off")?;
        let ddl = TempDdl { steps, report: Report::default(), params: Vec::new(), creates: None };
        let changed = run.change_tables(0, &ddl, &mut Ignore);
        switch(&mut run, "on")?;
        changed
    }

    /// The tables as a schema change has left them.
    fn set_tables(&self, c: &mut Connection, creates: Option<&(String, OnCommit)>) -> SqlResult<()> {
        let list = read_temp_schema(&mut c.conn).map_err(|e| to_sql(&e, "", &Default::default()))?;
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
        Ok(())
    }
}

impl TempRun {
    pub(super) fn connection(&mut self) -> SqlResult<&mut Connection> {
        self.connection.as_mut().ok_or_else(|| SqlError::internal("a connection was lost"))
    }

    /// Interrupts it from any thread.
    pub fn interrupt_handle(&mut self) -> SqlResult<InterruptHandle> {
        Ok(self.connection()?.conn.interrupt_handle())
    }

    /// The rowid of the last row inserted.
    pub fn last_insert_rowid(&self) -> i64 {
        self.connection.as_ref().map_or(0, |c| c.conn.last_insert_rowid())
    }

    /// What a statement saw; its answer has to wait until that is durable.
    pub fn snapshot(&self) -> u64 {
        self.pin.snapshot()
    }

    /// Runs one statement.
    pub fn run(&mut self, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        let schema = self.space.schema(&self.space.inner.schema.read().clone());
        let writes = step.stmt.temp.as_ref().is_some_and(|t| t.writes);
        let _shown = Shown::new(schema.clone());
        self.work(writes, |c| run_step(&mut c.conn, &mut c.temp_cache, &schema, number, step, sink))
    }

    /// Runs one statement for many rows of parameters, which take effect together or not at all. The error says which
    /// row it was.
    pub fn run_rows(&mut self, stmt: &Arc<Statement>, rows: Vec<Vec<Value>>) -> Result<(), (usize, SqlError)> {
        let schema = self.space.schema(&self.space.inner.schema.read().clone());
        let mut at = 0;
        let done = self.work(true, |c| {
            for (i, params) in rows.into_iter().enumerate() {
                at = i;
                let step = Step { stmt: stmt.clone(), params };
                run_step(&mut c.conn, &mut c.temp_cache, &schema, 0, &step, &mut Ignore)?;
            }
            Ok(())
        });
        done.map_err(|e| (at, e))
    }

    /// Runs a schema change.
    pub fn change_tables(&mut self, number: usize, ddl: &TempDdl, sink: &mut dyn Sink) -> SqlResult<()> {
        let schema = self.space.schema(&self.space.inner.schema.read().clone());
        let space = self.space.clone();
        self.work(true, |c| {
            for (i, sql) in ddl.steps.iter().enumerate() {
                let last = i + 1 == ddl.steps.len();
                let report = if last { ddl.report.clone() } else { Report::default() };
                let stmt = describe(&mut c.conn, sql, report).map_err(|e| to_sql(&e, sql, &schema))?;
                let params = if last { ddl.params.clone() } else { Vec::new() };
                let step = Step { stmt: Arc::new(stmt), params };
                let sink: &mut dyn Sink = if last { &mut *sink } else { &mut Ignore };
                run_step(&mut c.conn, &mut c.temp_cache, &schema, number, &step, sink)?;
            }
            space.set_tables(c, ddl.creates.as_ref())
        })
    }

    /// One statement's work, in a transaction of SQLite's.
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
                space.undo_in(c);
            }
            done
        });
        done.map_err(|e| space.told(e))
    }
}

impl Drop for TempRun {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.space.inner.branches.give_back(connection);
        }
    }
}
