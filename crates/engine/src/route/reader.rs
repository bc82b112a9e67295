//! Reads a visible snapshot, concurrently with writers and without waiting for any.

use crate::state::database::DatabaseState;
use crate::state::pin::{At, Pin};
use crate::state::reader_connection::Connection;
use crate::statement::describe::describe;
use crate::statement::model::{Report, Statement, Step};
use crate::statement::run::{Under, on_a_fresh_snapshot, run_step, to_sql};
use holdfast_store::sqlite::{Conn, InterruptHandle};
use holdfast_store::volume::READER_CACHE_KIB;
use holdfast_types::schema::Schema;
use holdfast_types::{SessionContext, Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Prepares one statement on a reader's connection and determines where it may run.
pub(crate) fn prepare(database: &Arc<DatabaseState>, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
    on_a_fresh_snapshot(|| {
        let mut reader = Reader::open(database)?;
        let schema = database.readable.get();
        describe(reader.conn_to_prepare()?, sql, report.clone()).map(Arc::new).map_err(|e| to_sql(&e, sql, &schema))
    })
}

/// A connection lent by the database. Dropping it ends its transaction and returns the connection.
pub struct Reader {
    database: Arc<DatabaseState>,
    /// Versions newer than its snapshot are kept: the transaction may continue on a branch.
    pin: Option<Pin>,
    connection: Option<Connection>,
}

impl Reader {
    /// Reads under the schema of the newest snapshot that has passed the gate. It waits for nothing.
    pub(crate) fn open(database: &Arc<DatabaseState>) -> SqlResult<Reader> {
        let connection = database.reader()?;
        Ok(Reader { database: database.clone(), pin: None, connection: Some(connection) })
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("present until drop")
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.connection().conn
    }

    /// The connection with the schema of the newest visible snapshot. SQLite compares its copy of the schema when a
    /// statement runs, not when it is prepared: without this an index dropped by another session would still be "already
    /// there", and a table that has become virtual would be judged as a plain one.
    pub(crate) fn conn_to_prepare(&mut self) -> SqlResult<&mut Conn> {
        let c = self.connection();
        let error = |e| to_sql(&e, "", &Schema::default());
        let look = match c.look {
            Some(look) => look,
            None => *c.look.insert(c.conn.prepare("select 1 from sqlite_schema limit 1").map_err(error)?),
        };
        c.conn.run(look).map_err(error)?;
        Ok(&mut c.conn)
    }

    /// Makes all statements until [`Reader::end`] see one snapshot: the newest visible one when the first of them
    /// begins.
    pub fn begin(&mut self) -> SqlResult<()> {
        let c = self.connection();
        let (begin, _) = c.control()?;
        c.conn.run(begin).map_err(|e| to_sql(&e, "", &Schema::default()))
    }

    /// Begins as [`Reader::begin`] does, for a transaction that may write at this snapshot later, on behalf of the
    /// client with process number `pid`.
    pub fn begin_to_write_later(&mut self, pid: i32) -> SqlResult<()> {
        self.pin = Some(self.database.pin(At::Visible, pid));
        self.begin()
    }

    /// Runs one reading statement, which may take its time.
    pub fn run(&mut self, context: &SessionContext, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        refuse_to_write(step)?;
        let database = self.database.clone();
        let schema = database.readable.get();
        let under = Under { schema: &schema, context };
        let Connection { conn, cache, .. } = self.connection();
        let wide = &database.engine.wide_caches;
        wide.run(conn, READER_CACHE_KIB, |conn| run_step(conn, cache, under, number, step, sink))
    }

    /// Runs one reading statement on a network thread. What is too large for that fails with 54000, and can run elsewhere.
    pub fn run_on_a_network_thread(
        &mut self,
        context: &SessionContext,
        number: usize,
        step: &Step,
        sink: &mut dyn Sink,
    ) -> SqlResult<()> {
        refuse_to_write(step)?;
        let schema = self.database.readable.get();
        let under = Under { schema: &schema, context };
        let Connection { conn, cache, .. } = self.connection();
        conn.set_bounds(Some(step.bounds_on_a_network_thread()));
        let ran = run_step(conn, cache, under, number, step, sink);
        conn.set_bounds(None);
        ran
    }

    /// Ends the transaction that [`Reader::begin`] began.
    pub fn end(&mut self) -> SqlResult<()> {
        self.pin = None;
        let c = self.connection();
        if c.conn.autocommit() {
            return Ok(());
        }
        let (_, rollback) = c.control()?;
        c.conn.run(rollback).map_err(|e| to_sql(&e, "", &Schema::default()))
    }

    /// Whether [`Reader::begin`] has begun a transaction that has not ended.
    pub fn in_transaction(&mut self) -> bool {
        !self.conn().autocommit()
    }

    /// The snapshot the open transaction reads; 0 before its first read.
    pub fn snapshot(&mut self) -> u64 {
        self.conn().snapshot()
    }

    /// The snapshot of the open transaction, which begins now if it has read nothing yet.
    pub fn take_snapshot(&mut self) -> SqlResult<u64> {
        self.conn_to_prepare()?;
        Ok(self.snapshot())
    }

    /// Interrupts the statement that this connection runs, from any thread.
    pub fn interrupt_handle(&mut self) -> InterruptHandle {
        self.conn().interrupt_handle()
    }
}

fn refuse_to_write(step: &Step) -> SqlResult<()> {
    match step.stmt.class.is_read() {
        true => Ok(()),
        false => Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, "cannot write on a reading connection")),
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let ended = self.end();
        if let (Ok(()), Some(connection)) = (ended, self.connection.take()) {
            self.database.give_back(connection);
        }
    }
}
