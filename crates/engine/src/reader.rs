//! Reading a durable snapshot, beside everybody else and without waiting for anyone.

use crate::branch::{At, Pin};
use crate::cache::StatementCache;
use crate::database::Inner;
use crate::run::{run_step, to_sql};
use crate::statement::Step;
use holdfast_store::sqlite::{Conn, InterruptHandle, StmtId};
use holdfast_store::volume::Volume;
use holdfast_types::schema::Schema;
use holdfast_types::{Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A reader's connection with what is prepared on it; kept by the database between uses.
pub struct Connection {
    conn: Conn,
    cache: StatementCache,
    control: Option<(StmtId, StmtId)>,
    /// Reads something, so that the schema is compared.
    look: Option<StmtId>,
    /// Dropped after the connection, which uses its VFS.
    pub volume: Arc<Volume>,
}

impl Connection {
    pub fn new(conn: Conn, volume: Arc<Volume>) -> Connection {
        Connection { conn, cache: StatementCache::default(), control: None, look: None, volume }
    }

    fn control(&mut self) -> SqlResult<(StmtId, StmtId)> {
        if let Some(control) = self.control {
            return Ok(control);
        }
        let error = |e| to_sql(&e, "", &Schema::default());
        let control = (self.conn.prepare("begin").map_err(error)?, self.conn.prepare("rollback").map_err(error)?);
        self.control = Some(control);
        Ok(control)
    }
}

/// A connection on loan from the database. Dropping it ends its transaction and gives it back.
pub struct Reader {
    inner: Arc<Inner>,
    /// Versions newer than its snapshot are kept: the transaction may go on on a branch.
    pin: Option<Pin>,
    connection: Option<Connection>,
}

impl Reader {
    pub(crate) fn new(inner: Arc<Inner>, connection: Connection) -> Reader {
        Reader { inner, pin: None, connection: Some(connection) }
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("present until drop")
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.connection().conn
    }

    /// The connection with the schema of the newest durable snapshot. SQLite compares its copy of the schema when a
    /// statement runs, not when it is prepared: without this an index dropped by somebody else would still be "already
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

    /// All statements until [`Reader::end`] see one snapshot: the newest durable one when the first of them begins.
    pub fn begin(&mut self) -> SqlResult<()> {
        let c = self.connection();
        let (begin, _) = c.control()?;
        c.conn.run(begin).map_err(|e| to_sql(&e, "", &Schema::default()))
    }

    /// As [`Reader::begin`], for a transaction that may begin to write at this snapshot later.
    /// On behalf of the client that knows itself as process `pid`.
    pub fn begin_to_write_later(&mut self, pid: i32) -> SqlResult<()> {
        self.pin = Some(Pin::new(&self.inner, At::Durable, pid));
        self.begin()
    }

    /// Runs one reading statement.
    pub fn run(&mut self, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        if !step.stmt.class.is_read() {
            return Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, "cannot write on a reading connection"));
        }
        let schema = self.inner.schema.read().clone();
        let c = self.connection();
        run_step(&mut c.conn, &mut c.cache, &schema, number, step, sink)
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

    /// Has [`Reader::begin`] begun a transaction that has not ended?
    pub fn in_transaction(&mut self) -> bool {
        !self.conn().autocommit()
    }

    /// The snapshot the open transaction reads; 0 before its first read.
    pub fn snapshot(&mut self) -> u64 {
        self.conn().snapshot()
    }

    /// The snapshot of the open transaction, which begins with this if it has read nothing yet.
    pub fn take_snapshot(&mut self) -> SqlResult<u64> {
        self.conn_to_prepare()?;
        Ok(self.snapshot())
    }

    /// Interrupts whatever this connection runs, from any thread.
    pub fn interrupt_handle(&mut self) -> InterruptHandle {
        self.conn().interrupt_handle()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let ended = self.end();
        if let (Ok(()), Some(connection)) = (ended, self.connection.take()) {
            self.inner.give_back(connection);
        }
    }
}
