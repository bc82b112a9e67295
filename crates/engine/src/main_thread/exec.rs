//! MAIN's connection and the steps all its ways of working share: begin, run one statement, commit, hand over.

use super::Request;
use super::large::Ahead;
use crate::batch::{BatchDone, OnDone};
use crate::branch::{MainWatch, OnMain, Presence, is_free};
use crate::cache::StatementCache;
use crate::database::Inner;
use crate::engine::Shared;
use crate::error::OpenError;
use crate::locks::OwnerId;
use crate::run::{Take, run_step, run_step_visiting, schema_to_sql, to_sql};
use crate::statement::{Class, Step};
use holdfast_store::apply::{Applier, Place};
use holdfast_store::capture::{Capture, Mark, flush_virtual_tables};
use holdfast_store::ddl::execute_ddl;
use holdfast_store::schema_map::{PREPARED_TABLE, PositionWriter};
use holdfast_store::schema_read::read_schema;
use holdfast_store::sequences::flush_sequences;
use holdfast_store::sqlite::{CommitGate, Conn, InterruptHandle, SqliteError, StmtId};
use holdfast_store::volume::Volume;
use holdfast_trail::{OnDurable, Reservation, ReserveError};
use holdfast_types::record::{BatchBuilder, TxnHead};
use holdfast_types::schema::Schema;
use holdfast_types::{Level, Row, Sink, SqlError, SqlResult, SqlState, TxnId, Value, ValueRef};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What a client of a deposed master can do.
const DEPOSED_HINT: &str =
    "Connect to the new master. Stop this server and bring it back with holdfast rejoin when the new master is up.";

/// Sizes that follow from the longest append the trail takes, which follows from the size of its segments.
pub(super) struct Sizes {
    /// Trail bytes reserved for a boxcar before it is known how large it gets.
    pub reserve_bytes: u64,
    /// Kept reserved beyond what the record has: what the next request may add before it is noticed.
    pub headroom_bytes: u64,
    /// A boxcar ends when its record is this large.
    pub boxcar_bytes: usize,
    /// Bytes of operations in one fragment of a large transaction.
    pub fragment_bytes: usize,
}

impl Sizes {
    fn new(append_bytes_max: u64) -> Sizes {
        Sizes {
            reserve_bytes: (1 << 20).min(append_bytes_max / 4),
            headroom_bytes: (256 << 10).min(append_bytes_max / 8),
            boxcar_bytes: (4 << 20).min(append_bytes_max as usize / 4),
            fragment_bytes: (4 << 20).min(append_bytes_max as usize / 4),
        }
    }
}

/// MAIN. Lives on its own thread.
pub struct Main {
    pub(super) inner: Arc<Inner>,
    pub(super) conn: Conn,
    pub(super) cache: StatementCache,
    pub(super) control: Control,
    pub(super) gate: CommitGate,
    position: PositionWriter,
    pub(super) sizes: Sizes,
    interrupt: Arc<InterruptHandle>,
    /// The schema as this connection sees it, changes of the open transaction included.
    pub(super) schema: Arc<Schema>,
    /// Trail bytes set aside for the boxcar at work.
    pub(super) reserved: Option<Reservation>,
    /// The open transaction has travelled ahead in fragments, as far as this.
    pub(super) ahead: Option<Ahead>,
    /// A schema change failed half way through its book-keeping; nothing more may be written.
    pub(super) broken: Option<String>,
    /// Puts images of branches on the volume.
    pub(super) applier: Applier,
    /// What the hook is told: whose changes these are, and whether anybody cares.
    pub(super) on: Arc<Mutex<OnMain>>,
    /// Few clients and an empty queue: MAIN writes the boxcar itself, as it would only wait.
    pub(super) nothing_else: bool,
    /// Trail bytes of the boxcar before, until the governor has been told.
    pub(super) last_boxcar_bytes: u64,
    /// Dropped after the connection, which uses its VFS.
    volume: Arc<Volume>,
}

/// Statements that steer transactions.
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

/// An answer waiting for its boxcar.
pub(super) struct Answer {
    pub done: OnDone,
    pub result: BatchDone,
    /// The locks of a transaction that came from a branch: they go as soon as it is published or undone, long before
    /// the answer.
    pub presence: Option<Presence>,
    /// What it waits for, if it is a good one.
    pub level: Level,
}

impl Answer {
    /// What its boxcar has to reach for it.
    fn level_needed(&self) -> Level {
        if self.result.result.is_ok() { self.level } else { Level::Cold }
    }

    pub fn send(self) {
        (self.done)(self.result);
    }

    fn without_locks(mut self) -> Answer {
        self.presence = None;
        self
    }
}

static NEXT_TXN: AtomicU64 = AtomicU64::new(1);

/// The number of a transaction in the trail; which are dead is seen by the epoch in it.
pub fn next_txn(shared: &Shared) -> TxnId {
    TxnId(u64::from(shared.epoch.0) << 32 | NEXT_TXN.fetch_add(1, Ordering::Relaxed))
}

impl Main {
    /// Opens MAIN on the database's volume.
    pub fn open(inner: Arc<Inner>) -> Result<Main, OpenError> {
        let volume = inner.volume();
        let mut conn = volume.open_main()?;
        let name = inner.name.clone();
        let sqlite = |source| OpenError::Sqlite { name: name.clone(), source };
        let schema_error = |source| OpenError::Schema { name: name.clone(), source };
        conn.exec("pragma foreign_keys=on").map_err(sqlite)?;
        // Before any statement is prepared: one prepared earlier may delete without telling (RULE 17).
        conn.install_capture(Capture::new(Arc::default())).map_err(sqlite)?;
        let map = holdfast_store::schema_map::read_map(&mut conn).map_err(schema_error)?;
        let map = Arc::new(map);
        conn.capture().set_map(map.clone());
        let on = Arc::new(Mutex::new(OnMain::default()));
        conn.capture().set_watch(Box::new(MainWatch {
            on: on.clone(),
            locks: inner.shared.locks.clone(),
            volume: inner.id,
            ids: inner.ids.clone(),
            touched: Vec::new(),
        }));
        inner.publish_map(map.clone(), volume.store().newest());
        inner.register(&mut conn)?;
        let gate = conn.install_commit_gate();
        let position = PositionWriter::prepare(&mut conn).map_err(sqlite)?;
        let control = Control::prepare(&mut conn).map_err(sqlite)?;
        let interrupt = Arc::new(conn.interrupt_handle());
        let schema = Arc::new(read_schema(&mut conn, &map).map_err(sqlite)?);
        *inner.schema.write() = schema.clone();
        let cache = StatementCache::default();
        let applier = Applier::for_images(Place::Main, map);
        let sizes = Sizes::new(inner.shared.trail.body_bytes_max());
        Ok(Main {
            inner,
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
            last_boxcar_bytes: 0,
            volume,
        })
    }

    /// Leaves the volume's old file for the one that took its place.
    pub fn reopen(&mut self) -> SqlResult<()> {
        let opened = Main::open(self.inner.clone());
        *self = opened.map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        Ok(())
    }

    /// Refuses everything from now on: what is in memory and on disk no longer belong together.
    pub fn break_off(&mut self, why: String) {
        tracing::error!(database = self.inner.name, "{why}");
        self.broken = Some(why);
    }

    /// Number the boxcar at work will get.
    pub(crate) fn number(&self) -> u64 {
        self.volume.store().newest() + 1
    }

    pub(super) fn sql_error(&self, error: &SqliteError) -> SqlError {
        to_sql(error, "", &self.schema)
    }

    pub(super) fn run_control(&mut self, stmt: StmtId) -> SqlResult<()> {
        self.conn.run(stmt).map_err(|e| to_sql(&e, "", &self.schema))
    }

    /// Begins a transaction and sets trail space aside for it (RULE 7).
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

    /// Branches compare versions with what is registered from here on.
    fn begin_registering(&mut self) {
        let (number, durable) = (self.number(), self.volume.store().durable());
        let registering = self.inner.shared.locks.begin_boxcar(self.inner.id, number, durable);
        if registering {
            self.inner.branches.take_away(&self.inner);
        }
        *self.on.lock() = OnMain { registering, ..OnMain::default() };
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Switches registering on or off within a boxcar; returns what it was.
    pub(crate) fn register(&mut self, registering: bool) -> bool {
        std::mem::replace(&mut self.on.lock().registering, registering)
    }

    /// The request at work has met somebody else's lock.
    pub(super) fn met_a_lock(&self) -> bool {
        self.on.lock().conflict
    }

    /// Whether a request failed over a row that an open transaction may have deleted: a branch would wait for that.
    pub(super) fn may_be_undone_yet(&self, request: &Request, result: &SqlResult<()>) -> bool {
        let constraint = result.as_ref().is_err_and(|e| e.state() == SqlState::UNIQUE_VIOLATION);
        constraint
            && request.merge.is_none()
            && request.presence.is_none()
            && self.inner.shared.locks.has_row_locks(self.inner.id)
    }

    /// From here on the changes are this owner's.
    pub(crate) fn changes_are_of(&mut self, owner: Option<OwnerId>) {
        let mut on = self.on.lock();
        on.owner = owner;
        on.conflict = false;
    }

    /// Sets aside so much that a record of `bytes` fits.
    pub(super) fn reserve(&mut self, bytes: u64) -> SqlResult<()> {
        if self.reserved.as_ref().is_none_or(|r| r.body_bytes() < bytes) {
            // The old reservation is given back first: both together may be more than there is.
            self.reserved = None;
            self.reserved = Some(self.reservation(bytes)?);
        }
        Ok(())
    }

    pub(super) fn reservation(&self, bytes: u64) -> SqlResult<Reservation> {
        self.inner.shared.trail.reserve(bytes).map_err(|e| match e {
            ReserveError::Refused { .. } if self.inner.shared.deposed.load(Ordering::Acquire) => {
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

    /// Undoes the open transaction and forgets what was captured.
    pub(super) fn rollback(&mut self) {
        if !self.conn.autocommit()
            && let Err(e) = self.conn.run(self.control.rollback)
        {
            // Nothing can be undone by hand here; the commit gate keeps the rest from ever being committed.
            tracing::error!(database = self.inner.name, "rollback failed: {e}");
            self.broken = Some(format!("a rollback failed: {e}"));
        }
        self.conn.capture().take();
        self.conn.capture().forget_sequences();
        self.reserved = None;
        self.drop_fragments();
        self.inner.shared.locks.undo_boxcar(self.inner.id);
    }

    /// Runs one statement of a transaction; a schema change takes its own way.
    pub(super) fn run_step(&mut self, number: usize, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        if step.stmt.report.epoch.is_some_and(|epoch| epoch != self.schema.epoch) {
            return Err(SqlError::schema_changed());
        }
        if step.stmt.class == Class::Ddl {
            return self.run_ddl(number, step, sink);
        }
        let schema = self.schema.clone();
        let locks = &step.stmt.report.row_locks;
        let registering = self.on.lock().registering;
        if locks.is_empty() || !registering {
            return run_step(&mut self.conn, &mut self.cache, &schema, number, step, sink);
        }
        // A row that a branch has locked is not for MAIN to return (RULE 21).
        let map = self.conn.capture().map().clone();
        let (inner, on) = (&self.inner, &self.on);
        let mut visit = |row: &dyn Row| {
            let mut on = on.lock();
            on.conflict |= on.owner.is_none() && !is_free(inner, &map, locks, row);
            Ok(Take::Emit)
        };
        run_step_visiting(&mut self.conn, &mut self.cache, &schema, number, step, sink, &mut visit)
    }

    /// RULE 8: the text goes to the trail, the row changes it makes itself do not.
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

    /// Runs a statement of the server's own.
    pub(crate) fn run_with(&mut self, sql: &str, values: &[ValueRef<'_>]) -> SqlResult<()> {
        let stmt = self.conn.prepare(sql).map_err(|e| self.sql_error(&e))?;
        let ran = self.conn.run_with(stmt, values).map_err(|e| self.sql_error(&e));
        self.conn.finalize(stmt);
        ran
    }

    /// The rows of a query of the server's own.
    pub(crate) fn query_rows(&mut self, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
        self.conn.query_rows(sql).map_err(|e| self.sql_error(&e))
    }

    /// Reads the schema anew, as the open transaction sees it.
    pub(super) fn refresh_schema(&mut self) -> SqlResult<()> {
        let map = self.conn.capture().map().clone();
        self.schema = Arc::new(read_schema(&mut self.conn, &map).map_err(|e| self.sql_error(&e))?);
        Ok(())
    }

    /// After a rollback: the schema and the table ids as they were.
    pub(super) fn restore_schema(&mut self) {
        let published = self.inner.schema.read().clone();
        if self.schema.epoch == published.epoch && self.conn.capture().map().epoch == published.epoch {
            return;
        }
        self.schema = published;
        self.forget_ids();
        self.reload_map();
    }

    /// After a schema change was made or undone.
    fn forget_ids(&mut self) {
        self.inner.ids.schema_changed(self.conn.capture().map(), &self.inner.map());
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

    /// AUTOINCREMENT counters that moved are told once per boxcar, as a transaction of their own.
    pub(super) fn flush_counters(&mut self, record: &mut BatchBuilder) -> SqlResult<()> {
        if !self.conn.capture().map().has_sequences {
            return Ok(());
        }
        let head = self.head();
        record.begin_transaction(self.conn.capture().buffer(), head);
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
        self.conn.capture().check().map_err(|e| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, e.to_string()))
    }

    pub(super) fn head(&self) -> TxnHead {
        let shared = &self.inner.shared;
        TxnHead { id: next_txn(shared), site: shared.options.site, hlc: shared.now() }
    }

    pub(super) fn begin_record(&mut self) -> BatchBuilder {
        let number = self.number();
        let (id, epoch) = (self.inner.id, self.inner.schema.read().epoch);
        BatchBuilder::begin(self.conn.capture().buffer(), id, number, epoch)
    }

    /// Commits what was captured as the next boxcar and hands it to the trail. On an error everything is undone and
    /// the answers are given back.
    pub(super) fn commit(
        &mut self,
        record: BatchBuilder,
        started: Instant,
        answers: Vec<Answer>,
    ) -> Result<(), Failed> {
        let number = self.number();
        let body = match self.publish(record) {
            Ok(body) => body,
            Err(e) => {
                let error = self.sql_error(&e);
                self.back_out();
                return Err(Failed { error, answers });
            }
        };
        let answers: Vec<Answer> = answers.into_iter().map(Answer::without_locks).collect();
        self.hand_over(number, body, started, answers);
        Ok(())
    }

    /// Commits what was captured, so that others see it, and returns the record for the trail. On an error the
    /// transaction has to be backed out.
    pub(super) fn publish(&mut self, record: BatchBuilder) -> Result<Vec<u8>, SqliteError> {
        let number = self.number();
        self.position.write(&mut self.conn, number, self.inner.shared.epoch)?;
        if self.changes_schema() {
            self.inner.schema_is_changing(true);
        }
        self.gate.open();
        let committed = self.conn.run(self.control.commit);
        self.gate.close();
        if let Err(e) = committed {
            self.inner.schema_is_changing(false);
            return Err(e);
        }
        record.finish(self.conn.capture().buffer());
        let body = self.conn.capture().take();
        self.last_boxcar_bytes += body.len() as u64;
        self.publish_schema(number);
        self.inner.shared.locks.end_boxcar(self.inner.id);
        Ok(body)
    }

    /// Undoes the open transaction with all it did to the schema.
    pub(super) fn back_out(&mut self) {
        self.rollback();
        self.restore_schema();
    }

    /// Whether the open transaction has changed the schema.
    fn changes_schema(&self) -> bool {
        self.inner.schema.read().epoch != self.schema.epoch
    }

    fn publish_schema(&mut self, number: u64) {
        if self.changes_schema() {
            self.forget_ids();
            // The table of prepared transactions is no business of those who work on older snapshots.
            let only_prepared = self.has_object(PREPARED_TABLE) && self.inner.map().object(PREPARED_TABLE).is_none();
            let number = if only_prepared { self.inner.schema_number() } else { number };
            let mut published = self.inner.schema.write();
            *published = self.schema.clone();
            self.inner.publish_map(self.conn.capture().map().clone(), number);
        }
    }

    /// Appends the boxcar; the answers leave when it is durable and has reached the highest of their levels.
    fn hand_over(&mut self, number: u64, body: Vec<u8>, started: Instant, answers: Vec<Answer>) {
        let bytes = body.len() as u64;
        let inner = self.inner.clone();
        let time_us = started.elapsed().as_micros() as u64;
        let fragments = self.ahead.take().map(|ahead| ahead.txn.0);
        let commits = answers.len();
        let level = answers.iter().map(Answer::level_needed).max().unwrap_or_default();
        inner.shared.stats.boxcar(commits as u64);
        let on_durable: OnDurable = Box::new(move |span| {
            inner.redo.add_after_fragments(number, fragments, span.start, time_us, bytes);
            inner.shared.redo.tell(span.start);
            let shared = inner.shared.clone();
            shared.pass(span.end, level, move || {
                inner.durable_reached(number);
                answers.into_iter().for_each(Answer::send);
            });
        });
        let trail = &self.inner.shared.trail;
        let appended = match self.reserved.take() {
            Some(reservation) if std::mem::take(&mut self.nothing_else) => {
                trail.append_now(reservation.for_commits(commits), body, on_durable)
            }
            Some(reservation) => trail.append(reservation.for_commits(commits), body, on_durable),
            None => trail.append_kept(body, on_durable),
        };
        if let Err(e) = appended {
            // Published, and the trail will never have it: nothing may be answered or written from here on. Only a
            // trail that has failed, or is closed while transactions run, leads here.
            let why = format!("a published boxcar cannot be logged: {e}");
            self.inner.shared.fail(&why);
            self.break_off(why);
        }
    }

    /// Sends answers that need no boxcar of their own, as soon as everything they may have seen is durable.
    pub(super) fn answer_without_boxcar(&mut self, answers: Vec<Answer>) {
        let newest = self.volume.store().newest();
        let answers: Vec<Answer> = answers.into_iter().map(Answer::without_locks).collect();
        self.inner.when_durable(newest, Box::new(move || answers.into_iter().for_each(Answer::send)));
    }

    pub(crate) fn mark(&mut self) -> Mark {
        self.conn.capture().mark()
    }

    /// Lets a cancel interrupt what runs from now on, until [`Main::not_interruptible`].
    pub(super) fn interruptible(&mut self, id: u64) {
        let mut running = self.inner.running.lock();
        running.id = id;
        running.handle = Some(self.interrupt.clone());
    }

    pub(super) fn not_interruptible(&mut self) {
        self.inner.running.lock().id = 0;
    }
}

/// A boxcar that could not be committed.
pub(super) struct Failed {
    pub error: SqlError,
    pub answers: Vec<Answer>,
}
