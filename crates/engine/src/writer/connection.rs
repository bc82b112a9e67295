//! The writer's connection, and the steps that all its ways of working share: begin, run one statement, roll back.

use super::watch::{WriterWatch, WriterWork, is_free};
use crate::state::database::DatabaseState;
use crate::state::error::OpenError;
use crate::state::locks::OwnerId;
use crate::state::prewritten::Prewritten;
use crate::state::queue::Request;
use crate::statement::cache::StatementCache;
use crate::statement::model::{Class, Step};
use crate::statement::run::{Take, Under, not_captured, run_step, run_step_visiting, schema_to_sql, to_sql};
use holdfast_store::apply::{Applier, ApplyMode};
use holdfast_store::capture::{Capture, Mark, flush_virtual_tables};
use holdfast_store::ddl::execute_ddl;
use holdfast_store::position::PositionWriter;
use holdfast_store::schema_read::read_schema;
use holdfast_store::sequences::flush_sequences;
use holdfast_store::sqlite::{CommitGate, Conn, InterruptHandle, SqliteError, StmtId};
use holdfast_store::volume::Volume;
use holdfast_trail::{Reservation, ReserveError};
use holdfast_types::record::{BatchBuilder, TxnHead};
use holdfast_types::schema::Schema;
use holdfast_types::{Row, SessionContext, Sink, SqlError, SqlResult, SqlState, TxnId, Value, ValueRef};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes back a request that cannot run in the writer as it is, to run it on a branch.
pub type GiveBack = fn(&Arc<DatabaseState>, Request);

/// The hint for a client of a deposed master.
const DEPOSED_HINT: &str =
    "Connect to the new master. Stop this server and bring it back with holdfast rejoin when the new master is up.";

/// Sizes that follow from the longest append the trail takes, which follows from the size of its segments.
pub(super) struct Sizes {
    /// Trail bytes reserved for a batch before its size is known.
    pub reserve_bytes: u64,
    /// Kept reserved beyond the size of the record: what the next request may add before its size is checked.
    pub headroom_bytes: u64,
    /// A batch ends when its record is this large.
    pub batch_bytes: usize,
    /// Bytes of operations in one fragment of a large transaction.
    pub fragment_bytes: usize,
}

impl Sizes {
    fn new(append_bytes_max: u64) -> Sizes {
        Sizes {
            reserve_bytes: (1 << 20).min(append_bytes_max / 4),
            headroom_bytes: (256 << 10).min(append_bytes_max / 8),
            batch_bytes: (4 << 20).min(append_bytes_max as usize / 4),
            fragment_bytes: (4 << 20).min(append_bytes_max as usize / 4),
        }
    }
}

/// The writer. Lives on its own thread.
pub struct Writer {
    /// Takes requests that met a lock of a branch.
    pub(super) give_back: GiveBack,
    pub(super) database: Arc<DatabaseState>,
    pub(super) conn: Conn,
    pub(super) cache: StatementCache,
    pub(super) control: Control,
    pub(super) gate: CommitGate,
    pub(super) position: PositionWriter,
    pub(super) sizes: Sizes,
    interrupt: Arc<InterruptHandle>,
    /// The schema as this connection sees it, including changes of the open transaction.
    pub(super) schema: Arc<Schema>,
    /// Trail bytes reserved for the current batch.
    pub(super) reserved: Option<Reservation>,
    /// The part of the open transaction that is in the trail already, as fragments.
    pub(super) ahead: Option<SentFragments>,
    /// A schema change failed half way through its bookkeeping; nothing more may be written.
    pub(super) broken: Option<String>,
    /// Applies images of branches to the volume.
    pub(super) applier: Applier,
    /// What the hook needs to know: whose changes these are, and whether branches are at work.
    pub(super) on: Arc<Mutex<WriterWork>>,
    /// Few clients and an empty queue: the writer writes the batch itself, because it would only wait.
    pub(super) nothing_else: bool,
    /// Trail bytes of the batch before, until the governor knows.
    pub(super) last_batch_bytes: u64,
    /// Dropped after the connection, which uses its VFS.
    pub(super) volume: Arc<Volume>,
}

/// The part of the open transaction that is in the trail already.
pub(super) struct SentFragments {
    pub txn: TxnId,
    pub fragments: u32,
    /// Bytes of operations.
    pub bytes: u64,
    /// What was prewritten before the merge: the end of each fragment in the images. Emptied when they are applied.
    pub sent: Vec<usize>,
}

impl SentFragments {
    pub fn of(sent: Prewritten) -> SentFragments {
        let (txn, sent) = sent.take();
        SentFragments { txn, fragments: sent.len() as u32, bytes: sent.last().map_or(0, |end| *end as u64), sent }
    }
}

/// Statements that control transactions.
pub(super) struct Control {
    pub begin: StmtId,
    pub commit: StmtId,
    pub rollback: StmtId,
    pub savepoint: StmtId,
    pub release: StmtId,
    pub rollback_to: StmtId,
}

impl Control {
    fn prepare(conn: &mut Conn) -> Result<Control, SqliteError> {
        Ok(Control {
            begin: conn.prepare("begin immediate")?,
            commit: conn.prepare("commit")?,
            rollback: conn.prepare("rollback")?,
            savepoint: conn.prepare("savepoint holdfast_request")?,
            release: conn.prepare("release holdfast_request")?,
            rollback_to: conn.prepare("rollback to holdfast_request")?,
        })
    }
}

impl Writer {
    /// Bytes and number of the row images that the open transactions have recorded.
    pub(super) fn recorded(&mut self) -> (u64, u64) {
        (self.conn.capture().len() as u64, self.conn.capture().ops())
    }

    /// Reports to a statement's sink what was recorded since.
    pub(super) fn report_recorded(&mut self, before: (u64, u64), sink: &mut dyn Sink) {
        let (bytes, images) = self.recorded();
        sink.recorded(bytes.saturating_sub(before.0), images.saturating_sub(before.1));
    }

    /// Opens the writer on the database's volume.
    pub fn open(database: Arc<DatabaseState>, give_back: GiveBack) -> Result<Writer, OpenError> {
        let volume = database.volume();
        let mut conn = volume.open_writer()?;
        let name = database.name.clone();
        let sqlite = |source| OpenError::Sqlite { name: name.clone(), source };
        let schema_error = |source| OpenError::Schema { name: name.clone(), source };
        conn.exec("pragma foreign_keys=on").map_err(sqlite)?;
        // Before any statement is prepared: one prepared earlier may delete rows without calling the hook (RULE 17).
        conn.install_capture(Capture::new(Arc::default())).map_err(sqlite)?;
        let map = holdfast_store::schema_map::read_map(&mut conn).map_err(schema_error)?;
        let map = Arc::new(map);
        conn.capture().set_map(map.clone());
        let on = Arc::new(Mutex::new(WriterWork::default()));
        conn.capture().set_watch(Box::new(WriterWatch {
            on: on.clone(),
            locks: database.engine.locks.clone(),
            volume: database.id,
            ids: database.ids.clone(),
            touched: Vec::new(),
        }));
        database.register(&mut conn)?;
        let gate = conn.install_commit_gate();
        let position = PositionWriter::prepare(&mut conn).map_err(sqlite)?;
        let control = Control::prepare(&mut conn).map_err(sqlite)?;
        let interrupt = Arc::new(conn.interrupt_handle());
        let schema = Arc::new(read_schema(&mut conn, &map).map_err(sqlite)?);
        database.publish_schema(schema.clone(), map.clone(), volume.store().newest());
        let cache = StatementCache::default();
        let applier = Applier::for_images(ApplyMode::Main, map);
        let sizes = Sizes::new(database.engine.trail.body_bytes_max());
        Ok(Writer {
            give_back,
            database,
            conn,
            cache,
            control,
            gate,
            position,
            sizes,
            interrupt,
            schema,
            reserved: None,
            ahead: None,
            broken: None,
            applier,
            on,
            nothing_else: false,
            last_batch_bytes: 0,
            volume,
        })
    }

    /// Switches from the volume's old file to the one that replaced it.
    pub fn reopen(&mut self) -> SqlResult<()> {
        let opened = Writer::open(self.database.clone(), self.give_back);
        *self = opened.map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        Ok(())
    }

    /// Refuses everything from now on: what is in memory and what is on disk no longer match.
    pub fn break_off(&mut self, why: String) {
        tracing::error!(database = self.database.name, "{why}");
        self.broken = Some(why);
    }

    /// The number that the current batch will get.
    pub(crate) fn number(&self) -> u64 {
        self.volume.store().newest() + 1
    }

    pub(super) fn sql_error(&self, error: &SqliteError) -> SqlError {
        to_sql(error, "", &self.schema)
    }

    pub(super) fn run_control(&mut self, stmt: StmtId) -> SqlResult<()> {
        self.conn.run(stmt).map_err(|e| to_sql(&e, "", &self.schema))
    }

    /// Begins a transaction and reserves trail space for it (RULE 7).
    pub(crate) fn begin(&mut self) -> SqlResult<()> {
        if let Some(why) = &self.broken {
            return Err(SqlError::internal(why.clone()).with_hint("Restart the server; nothing acknowledged is lost."));
        }
        self.throttle();
        self.reserve(self.sizes.reserve_bytes)?;
        let begun = self.run_control(self.control.begin);
        match begun {
            Ok(()) => self.begin_registering(),
            Err(_) => self.reserved = None,
        }
        begun
    }

    /// Branches compare versions with the rows registered from here on.
    fn begin_registering(&mut self) {
        let (number, visible) = (self.number(), self.volume.store().visible());
        let registering = self.database.engine.locks.begin_batch(self.database.id, number, visible);
        if registering {
            self.database.branches.take_away(&self.database);
        }
        *self.on.lock() = WriterWork { registering, ..WriterWork::default() };
    }

    pub(crate) fn state(&self) -> &Arc<DatabaseState> {
        &self.database
    }

    /// Switches registering on or off within a batch; returns what it was.
    pub(crate) fn register(&mut self, registering: bool) -> bool {
        std::mem::replace(&mut self.on.lock().registering, registering)
    }

    /// The request at work has met another transaction's lock.
    pub(super) fn met_a_lock(&self) -> bool {
        self.on.lock().conflict
    }

    /// Whether a request failed over a row that an open transaction may have deleted: a branch would wait for that.
    pub(super) fn may_be_undone_yet(&self, request: &Request, result: &SqlResult<()>) -> bool {
        let constraint = result.as_ref().is_err_and(|e| e.state() == SqlState::UNIQUE_VIOLATION);
        constraint
            && request.merge.is_none()
            && request.lock_owner.is_none()
            && self.database.engine.locks.has_row_locks(self.database.id)
    }

    /// Records this owner as the one of all following changes.
    pub(crate) fn changes_are_of(&mut self, owner: Option<OwnerId>) {
        let mut on = self.on.lock();
        on.owner = owner;
        on.conflict = false;
    }

    /// Reserves enough space for a record of `bytes`.
    pub(super) fn reserve(&mut self, bytes: u64) -> SqlResult<()> {
        if self.reserved.as_ref().is_none_or(|r| r.body_bytes() < bytes) {
            // The old reservation is released first: both together may exceed the available space.
            self.reserved = None;
            self.reserved = Some(self.reservation(bytes)?);
        }
        Ok(())
    }

    pub(super) fn reservation(&self, bytes: u64) -> SqlResult<Reservation> {
        self.database.engine.trail.reserve(bytes).map_err(|e| match e {
            ReserveError::Refused { .. } if self.database.engine.deposed.load(Ordering::Acquire) => {
                SqlError::new(SqlState::ADMIN_SHUTDOWN, e.to_string()).with_hint(DEPOSED_HINT)
            }
            ReserveError::TrailFull { .. } | ReserveError::Refused { .. } => {
                SqlError::new(SqlState::DISK_FULL, e.to_string())
            }
            ReserveError::TooLarge { .. } => SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, e.to_string()),
            ReserveError::Closed => SqlError::new(SqlState::ADMIN_SHUTDOWN, e.to_string()),
            ReserveError::Following => SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, e.to_string()),
        })
    }

    /// Undoes the open transaction and drops what was captured.
    pub(super) fn rollback(&mut self) {
        if !self.conn.autocommit()
            && let Err(e) = self.conn.run(self.control.rollback)
        {
            // Nothing can be undone by hand here; the commit gate keeps the rest from ever being committed.
            tracing::error!(database = self.database.name, "rollback failed: {e}");
            self.broken = Some(format!("a rollback failed: {e}"));
        }
        self.conn.capture().take();
        self.conn.capture().forget_sequences();
        self.reserved = None;
        self.drop_fragments();
        self.database.engine.locks.undo_batch(self.database.id);
    }

    /// Runs one statement of a transaction; a schema change is run differently.
    pub(super) fn run_step(
        &mut self,
        context: &SessionContext,
        number: usize,
        step: &Step,
        sink: &mut dyn Sink,
    ) -> SqlResult<()> {
        if step.stmt.report.epoch.is_some_and(|epoch| epoch != self.schema.epoch) {
            return Err(SqlError::schema_changed());
        }
        if step.stmt.class == Class::Ddl {
            return self.run_ddl(number, step, sink);
        }
        let schema = self.schema.clone();
        let under = Under { schema: &schema, context };
        let locks = &step.stmt.report.row_locks;
        let registering = self.on.lock().registering;
        if locks.is_empty() || !registering {
            return run_step(&mut self.conn, &mut self.cache, under, number, step, sink);
        }
        // The writer must not return a row that a branch has locked (RULE 21).
        let map = self.conn.capture().map().clone();
        let (database, on) = (&self.database, &self.on);
        let mut visit = |row: &dyn Row| {
            let mut on = on.lock();
            on.conflict |= on.owner.is_none() && !is_free(database, &map, locks, row);
            Ok(Take::Emit)
        };
        run_step_visiting(&mut self.conn, &mut self.cache, under, number, step, sink, &mut visit)
    }

    /// Runs one statement in a batch with others. Where what it reads is too large for that it counts as one that has met a lock: it
    /// begins again on a branch.
    pub(super) fn run_shared_step(
        &mut self,
        context: &SessionContext,
        number: usize,
        step: &Step,
        sink: &mut dyn Sink,
    ) -> SqlResult<()> {
        let Some(bounds) = step.bounds() else { return self.run_step(context, number, step, sink) };
        self.conn.set_bounds(Some(bounds));
        let ran = self.run_step(context, number, step, sink);
        self.conn.set_bounds(None);
        if ran.as_ref().is_err_and(|e| e.state() == SqlState::PROGRAM_LIMIT_EXCEEDED) {
            self.on.lock().conflict = true;
        }
        ran
    }

    /// RULE 8: the text goes to the trail, the row changes that it causes do not.
    fn run_ddl(&mut self, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        sink.begin(number, &step.stmt.report.desc);
        self.change_schema(&step.stmt.sql)?;
        sink.end(&holdfast_types::Tag { verb: step.stmt.report.verb, rows: None });
        Ok(())
    }

    pub(crate) fn change_schema(&mut self, sql: &str) -> SqlResult<()> {
        let map = execute_ddl(&mut self.conn, sql).map_err(|e| schema_to_sql(&e, sql, &self.schema))?;
        self.cache.clear(&mut self.conn);
        self.refresh_schema()?;
        debug_assert_eq!(map.epoch, self.schema.epoch);
        Ok(())
    }

    /// Whether the schema, as this connection sees it, has a table of that name.
    pub(crate) fn has_object(&mut self, name: &str) -> bool {
        self.conn.capture().map().object(name).is_some()
    }

    /// Runs one of the server's own statements.
    pub(crate) fn run_with(&mut self, sql: &str, values: &[ValueRef<'_>]) -> SqlResult<()> {
        let stmt = self.conn.prepare(sql).map_err(|e| self.sql_error(&e))?;
        let ran = self.conn.run_with(stmt, values).map_err(|e| self.sql_error(&e));
        self.conn.finalize(stmt);
        ran
    }

    /// The rows of one of the server's own queries.
    pub(crate) fn query_rows(&mut self, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
        self.conn.query_rows(sql).map_err(|e| self.sql_error(&e))
    }

    /// Reads the schema again, as the open transaction sees it.
    pub(super) fn refresh_schema(&mut self) -> SqlResult<()> {
        let map = self.conn.capture().map().clone();
        self.schema = Arc::new(read_schema(&mut self.conn, &map).map_err(|e| self.sql_error(&e))?);
        Ok(())
    }

    /// Restores the schema and the table ids after a rollback.
    pub(super) fn restore_schema(&mut self) {
        let published = self.database.schema.read().clone();
        if self.schema.epoch == published.epoch && self.conn.capture().map().epoch == published.epoch {
            return;
        }
        self.schema = published;
        self.forget_ids();
        self.reload_map();
    }

    /// Reads the table ids again after a schema change was made or undone.
    pub(super) fn forget_ids(&mut self) {
        self.database.ids.schema_changed(self.conn.capture().map(), &self.database.map());
    }

    pub(super) fn reload_map(&mut self) {
        match holdfast_store::schema_map::read_map(&mut self.conn) {
            Ok(map) => self.conn.capture().set_map(Arc::new(map)),
            Err(e) => self.broken = Some(format!("the table ids cannot be read: {e}")),
        }
    }

    /// What must hold before a transaction's images count as complete.
    pub(super) fn finish_transaction(&mut self) -> SqlResult<()> {
        flush_virtual_tables(&mut self.conn).map_err(|e| self.sql_error(&e))?;
        flush_sequences(&mut self.conn).map_err(|e| self.sql_error(&e))?;
        self.check_capture()
    }

    /// AUTOINCREMENT counters that moved are logged once per batch, as a transaction of their own.
    pub(super) fn flush_counters(&mut self, record: &mut BatchBuilder) -> SqlResult<()> {
        if !self.conn.capture().map().has_sequences {
            return Ok(());
        }
        let head = self.head();
        record.begin_transaction(self.conn.capture().buffer(), head, None);
        let before = self.conn.capture().len();
        flush_sequences(&mut self.conn).map_err(|e| self.sql_error(&e))?;
        let start = record.transaction_start();
        let buffer = self.conn.capture().buffer();
        if buffer.len() > before {
            record.end_transaction(buffer);
        } else {
            buffer.truncate(start);
        }
        Ok(())
    }

    pub(super) fn check_capture(&mut self) -> SqlResult<()> {
        self.conn.capture().check().map_err(not_captured)
    }

    pub(super) fn head(&self) -> TxnHead {
        let engine = &self.database.engine;
        TxnHead { id: engine.next_txn(), site: engine.options.site, hlc: engine.now() }
    }

    pub(super) fn begin_record(&mut self) -> BatchBuilder {
        let number = self.number();
        let (id, epoch) = (self.database.id, self.database.schema.read().epoch);
        BatchBuilder::begin(self.conn.capture().buffer(), id, number, epoch)
    }

    pub(crate) fn mark(&mut self) -> Mark {
        self.conn.capture().mark()
    }

    /// Lets a cancel interrupt what runs from now on, until [`Writer::not_interruptible`].
    pub(super) fn interruptible(&mut self, id: u64) {
        let mut running = self.database.running.lock();
        running.id = id;
        running.handle = Some(self.interrupt.clone());
    }

    pub(super) fn not_interruptible(&mut self) {
        self.database.running.lock().id = 0;
    }
}
