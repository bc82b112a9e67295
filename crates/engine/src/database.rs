//! One database: its volume, its MAIN thread, its readers, its schema.

use crate::advisory::{self, Session};
use crate::batch::{Batch, OnDone, Ticket};
use crate::branch::{Interruption, Pool};
use crate::classify::classify;
use crate::engine::Shared;
use crate::ids::Ids;
use crate::main_thread::{Message, Request};
use crate::prepared::Registry;
use crate::reader::{Connection, Reader};
use crate::redo_debt::RedoDebt;
use crate::run::to_sql;
use crate::statement::{Class, LockWait, Report, RowLock, Statement, Step};
use crate::write_txn::{WriteOptions, WriteTxn};
use crossbeam_channel::Sender;
use holdfast_store::schema_map::TableMap;
use holdfast_store::sqlite::{Conn, InterruptHandle, SqliteError};
use holdfast_store::volume::Volume;
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SqlError, SqlResult, SqlState, ValueRef, VolumeId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::oneshot;

/// The SQL function that chooses row ids: `holdfast_next_id(table)`.
const NEXT_ID: &str = "holdfast_next_id";

/// Idle reader connections kept per database.
const READERS_KEPT_MAX: usize = 16;

/// A handle to an opened database. Clones are the same database.
#[derive(Clone)]
pub struct Database(pub(crate) Arc<Inner>);

/// What to do when a boxcar is durable.
type OnReached = Box<dyn FnOnce() + Send>;

pub(crate) struct Inner {
    pub id: VolumeId,
    pub name: String,
    pub dialect: Dialect,
    pub shared: Arc<Shared>,
    /// Replaced as a whole by VACUUM.
    pub volume: RwLock<Arc<Volume>>,
    pub schema: RwLock<Arc<Schema>>,
    /// Tables and ids of the published schema.
    map: RwLock<Published>,
    /// The boxcar that published the present schema: no older snapshot may be worked on.
    pub schema_number: Arc<AtomicU64>,
    /// To MAIN; taken away when the database is closed.
    pub main: RwLock<Option<Sender<Message>>>,
    readers: Mutex<Vec<Connection>>,
    /// Chooses row ids.
    pub ids: Arc<Ids>,
    /// Connections for branches.
    pub branches: Pool,
    /// Statements on branches that a cancel may interrupt, by transaction.
    pub interruptions: Mutex<HashMap<u64, Arc<Interruption>>>,
    pub redo: RedoDebt,
    /// Prepared transactions.
    pub prepared: Mutex<Registry>,
    /// Answers that wait until a boxcar is durable and has reached its level, by boxcar number.
    pub waiting: Mutex<Vec<(u64, OnReached)>>,
    /// What MAIN runs alone right now, for cancel: batch or transaction id, 0 for nothing that may be interrupted.
    pub running: Mutex<Running>,
    /// One checkpoint at a time.
    pub checkpointing: Mutex<()>,
    /// Set under `checkpointing`: nothing is to be written for it any more.
    pub dropped: AtomicBool,
}

/// The published schema, for branches.
#[derive(Default)]
struct Published {
    map: Arc<TableMap>,
    /// A boxcar that changes the schema is being published: the newest snapshot may not go with the map.
    changing: bool,
}

/// What a cancel may interrupt.
#[derive(Default)]
pub(crate) struct Running {
    pub id: u64,
    pub handle: Option<Arc<InterruptHandle>>,
}

impl Inner {
    pub fn new(
        id: VolumeId,
        name: String,
        dialect: Dialect,
        shared: Arc<Shared>,
        volume: Arc<Volume>,
        schema: Schema,
    ) -> Arc<Inner> {
        let redo = RedoDebt::new(shared.redo.clone());
        Arc::new(Inner {
            id,
            name,
            dialect,
            shared,
            volume: RwLock::new(volume),
            schema: RwLock::new(Arc::new(schema)),
            map: RwLock::default(),
            schema_number: Arc::default(),
            main: RwLock::new(None),
            readers: Mutex::default(),
            ids: Arc::default(),
            branches: Pool::default(),
            interruptions: Mutex::default(),
            redo,
            prepared: Mutex::default(),
            waiting: Mutex::default(),
            running: Mutex::default(),
            checkpointing: Mutex::new(()),
            dropped: AtomicBool::new(false),
        })
    }

    pub fn volume(&self) -> Arc<Volume> {
        self.volume.read().clone()
    }

    pub fn map(&self) -> Arc<TableMap> {
        self.map.read().map.clone()
    }

    /// The boxcar that published the present schema: no older snapshot may be worked on.
    pub fn schema_number(&self) -> u64 {
        self.schema_number.load(Ordering::Acquire)
    }

    pub fn publish_map(&self, map: Arc<TableMap>, number: u64) {
        let mut published = self.map.write();
        self.schema_number.store(number, Ordering::Release);
        *published = Published { map, changing: false };
    }

    /// A boxcar that changes the schema is about to be published, or could not be.
    pub fn schema_is_changing(&self, changing: bool) {
        self.map.write().changing = changing;
    }

    /// Whether the snapshot has the schema of that epoch, which was the published one a moment ago.
    pub fn goes_with(&self, epoch: u32, snapshot: u64) -> bool {
        let published = self.map.read();
        !published.changing && published.map.epoch == epoch && self.schema_number() <= snapshot
    }

    /// Ends when boxcar `number` is durable; an error says that it will never be.
    pub async fn durable(&self, number: u64) -> SqlResult<()> {
        if self.volume().store().durable() >= number {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        // Whoever stopped waiting does not want to know.
        self.when_durable(number, Box::new(move || sender.send(()).unwrap_or_default()));
        let failed =
            "the server is stopping, or its trail has failed; whether the transaction's reads are durable is unknown";
        receiver.await.map_err(|_| SqlError::new(SqlState::IO_ERROR, failed))
    }

    /// Blocks this thread until the published schema is durable and has reached its level, and only after a change of it:
    /// for a sync, or for as long as standbys take.
    fn wait_for_schema(&self) {
        let number = self.schema_number();
        if self.volume().store().durable() >= number {
            return;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        // Whoever stopped waiting does not want to know.
        self.when_durable(number, Box::new(move || sender.send(()).unwrap_or_default()));
        // An error means that the trail or the gate is closed, and with it the database.
        receiver.recv().unwrap_or_default();
    }

    /// Runs `answer` as soon as boxcar `number` is durable.
    pub fn when_durable(&self, number: u64, answer: OnReached) {
        {
            let mut waiting = self.waiting.lock();
            // Checked under the lock that `durable_reached` takes, so that none is left behind.
            if self.volume().store().durable() < number {
                if !self.shared.failed.load(Ordering::Acquire) {
                    waiting.push((number, answer));
                }
                return;
            }
        }
        answer();
    }

    /// Boxcar `number` is on disk and has reached its level.
    pub fn durable_reached(&self, number: u64) {
        self.volume().store().set_durable(number);
        let due: Vec<_> = {
            let mut waiting = self.waiting.lock();
            if waiting.is_empty() {
                return;
            }
            let (due, rest) = std::mem::take(&mut *waiting).into_iter().partition(|(n, _)| *n <= number);
            *waiting = rest;
            due
        };
        due.into_iter().for_each(|(_, answer)| answer());
    }

    pub fn send(&self, message: Message) -> SqlResult<()> {
        let sent = self.main.read().as_ref().is_some_and(|main| main.send(message).is_ok());
        if sent { Ok(()) } else { Err(closed(&self.name)) }
    }

    /// Opens a reader connection with functions and virtual tables registered.
    fn connect(self: &Arc<Inner>, volume: &Volume) -> SqlResult<Conn> {
        let mut conn = volume.open_reader().map_err(|e| SqlError::internal(e.to_string()))?;
        self.register(&mut conn)?;
        conn.exec("pragma query_only=1").map_err(|e| to_sql(&e, "", &Schema::default()))?;
        Ok(conn)
    }

    pub fn register(self: &Arc<Inner>, conn: &mut Conn) -> SqlResult<()> {
        let internal = |e: SqliteError| SqlError::internal(e.to_string());
        conn.install_guard().map_err(internal)?;
        let ids = self.ids.clone();
        let refuse = |_: &[ValueRef<'_>]| Err(advisory::not_here());
        conn.register_function(advisory::FUNCTION, 3, false, refuse).map_err(internal)?;
        conn.register_next_id(NEXT_ID, move |table, highest| ids.next(table, highest)).map_err(internal)?;
        match &self.shared.options.connect {
            Some(connect) => connect(conn, &Database(self.clone())),
            None => Ok(()),
        }
    }

    pub fn give_back(&self, connection: Connection) {
        let mut readers = self.readers.lock();
        if readers.len() < READERS_KEPT_MAX && Arc::ptr_eq(&connection.volume, &self.volume()) {
            readers.push(connection);
        }
    }

    pub fn drop_readers(&self) {
        self.readers.lock().clear();
        self.branches.clear();
    }

    pub fn interrupt(&self, id: u64) {
        let branch = self.interruptions.lock().get(&id).cloned();
        if let Some(branch) = branch {
            return branch.interrupt();
        }
        let running = self.running.lock();
        if running.id == id
            && let Some(handle) = &running.handle
        {
            handle.interrupt();
        }
    }
}

pub(crate) fn closed(name: &str) -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, format!("database {name} is being closed"))
}

impl Database {
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn dialect(&self) -> Dialect {
        self.0.dialect
    }

    /// The number PostgreSQL's clients see as the database's OID.
    pub fn oid(&self) -> u32 {
        database_oid(self.0.id)
    }

    /// The newest published schema.
    pub fn schema(&self) -> Arc<Schema> {
        self.0.schema.read().clone()
    }

    /// Prepares one statement of SQLite SQL and judges where it may run. The result may be kept as long as the
    /// schema's epoch stays; after that SQLite would still run it, but its class may be wrong.
    pub fn prepare(&self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        let mut reader = self.reader()?;
        let schema = self.schema();
        describe(reader.conn_to_prepare()?, sql, report).map(Arc::new).map_err(|e| to_sql(&e, sql, &schema))
    }

    /// Runs a one-message transaction. `done` is called when its answer may be sent.
    pub fn submit_with(&self, batch: Batch, done: OnDone) -> SqlResult<u64> {
        let id = next_txn_id();
        if self.0.shared.follow.is_some() {
            return self.submit_on_standby(id, batch, done);
        }
        let alone = !batch.steps.iter().all(|s| s.stmt.class.is_bounded());
        let request = Request { id, batch, merge: None, done, alone, presence: None };
        let waits_its_own_way = |l: &RowLock| l.wait != LockWait::Wait || l.limit.is_some();
        let on_a_branch = |r: &Report| r.advisory || r.row_locks.iter().any(waits_its_own_way);
        // Tables with triggers and virtual tables are MAIN's alone: a branch would find that out at the first row.
        let one = request.batch.steps.len() == 1 && request.batch.any_order;
        let side_by_side = alone && one && !self.0.map().has_alone;
        let on_a_branch = |s: &Step| s.stmt.class == Class::Ddl || on_a_branch(&s.stmt.report);
        if request.batch.steps.iter().any(on_a_branch) {
            crate::rerun::on_a_branch(&self.0, request);
        } else if side_by_side {
            crate::rerun::beside_others(&self.0, request);
        } else {
            self.0.send(Message::Batch(request))?;
        }
        Ok(id)
    }

    /// On a standby: what changes nothing but advisory locks runs on a branch.
    fn submit_on_standby(&self, id: u64, batch: Batch, done: OnDone) -> SqlResult<u64> {
        let changes = |s: &&Step| !s.stmt.class.is_read() || !s.stmt.report.row_locks.is_empty();
        if let Some(step) = batch.steps.iter().find(changes) {
            let verb = step.stmt.sql.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
            self.0.shared.refuse_on_standby(&verb)?;
        }
        let request = Request { id, batch, merge: None, done, alone: true, presence: None };
        crate::rerun::on_a_branch(&self.0, request);
        Ok(id)
    }

    /// Whether a statement can run on a branch, beside others, as far as that can be told; else its transaction had best
    /// begin as the only writer.
    pub fn runs_beside(&self, sql: &str) -> bool {
        let verb = sql.trim_start().get(..6).unwrap_or_default().to_ascii_lowercase();
        let changes_schema = ["create", "alter ", "drop t", "drop v", "drop i"].contains(&verb.as_str());
        !changes_schema || crate::branch::locks_for(sql, &self.0.map(), &self.schema()).is_some()
    }

    /// Runs a one-message transaction: bounded statements share a boxcar with others, anything else runs alone.
    pub fn submit(&self, batch: Batch) -> SqlResult<Ticket> {
        let (done, ticket) = Ticket::new();
        self.submit_with(batch, done)?;
        Ok(ticket)
    }

    /// Interrupts the batch or transaction of that id, if MAIN runs it alone at this moment.
    pub fn interrupt(&self, id: u64) {
        self.0.interrupt(id);
    }

    /// A client's session, known to it under this process number. Needed only for advisory locks, and for messages.
    pub fn session(&self, pid: i32) -> Arc<Session> {
        Arc::new(Session::new(&self.0, pid))
    }

    /// Ends when [`Database::reader`] would not block: the published schema is durable and has reached its level. That
    /// takes as long as standbys take, so whoever must not block a thread awaits this first; above all where that thread
    /// is needed for the standbys' acks.
    pub async fn readable(&self) -> SqlResult<()> {
        self.0.durable(self.0.schema_number()).await
    }

    /// A connection that reads durable snapshots, under the published schema: a change of it that is still being synced, or
    /// waits for its level, is waited for on this thread.
    pub fn reader(&self) -> SqlResult<Reader> {
        self.0.wait_for_schema();
        let kept = self.0.readers.lock().pop();
        let current = self.0.volume();
        if let Some(connection) = kept.filter(|c| Arc::ptr_eq(&c.volume, &current)) {
            return Ok(Reader::new(self.0.clone(), connection));
        }
        let conn = self.0.connect(&current)?;
        Ok(Reader::new(self.0.clone(), Connection::new(conn, current)))
    }

    /// Begins an interactive transaction. Dropping the future gives it up.
    pub async fn begin_write(&self, options: WriteOptions) -> SqlResult<WriteTxn> {
        WriteTxn::begin(self.0.clone(), options).await
    }

    /// The same on a plain thread.
    pub fn begin_write_blocking(&self, options: WriteOptions) -> SqlResult<WriteTxn> {
        self.0.shared.tasks.block_on(WriteTxn::begin(self.0.clone(), options))
    }

    /// Number of the newest snapshot that readers get.
    pub fn durable_snapshot(&self) -> u64 {
        self.0.volume().store().durable()
    }

    /// Counters of the volume's page store.
    pub fn page_stats(&self) -> holdfast_store::pages::PageStats {
        self.0.volume().store().stats()
    }

    /// Brings the file up to the newest durable snapshot now.
    pub fn checkpoint(&self) -> SqlResult<()> {
        crate::checkpointer::checkpoint(&self.0).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))
    }
}

/// For transactions and batches alike: what [`Database::interrupt`] takes.
pub(crate) fn next_txn_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// PostgreSQL keeps OIDs below 16384 for itself.
pub(crate) fn database_oid(id: VolumeId) -> u32 {
    16384 + id.0
}

/// Judged from the text, by what might look at other rows or pass over some; wrongly saying no only costs time.
fn names_its_rows(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    let after = ["insert into", "update ", "delete from"].iter().find_map(|v| sql.trim_start().strip_prefix(v));
    // A second table (UPDATE ... FROM), a subquery, several rows, rows left out.
    let looks_elsewhere = |rest: &str| {
        let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|w| matches!(w, "select" | "from" | "conflict" | "in" | "or" | "exists" | "with"))
    };
    after.is_some_and(|rest| !looks_elsewhere(rest))
}

/// Prepares on `conn` and describes.
pub(crate) fn describe(conn: &mut Conn, sql: &str, report: Report) -> Result<Statement, SqliteError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = conn.guarded(|conn| conn.prepare(sql))?;
    let described = classify(conn, id, sql).map(|class| Statement {
        id: NEXT.fetch_add(1, Ordering::Relaxed),
        sql: sql.to_owned(),
        param_count: conn.param_count(id),
        class: match class {
            _ if report.ddl => Class::Ddl,
            Class::Read if report.write => Class::Write,
            Class::Scan if report.write => Class::WriteScan,
            class => class,
        },
        names_its_rows: class == Class::Write && names_its_rows(sql),
        columns: conn.columns(id),
        report,
        temp: None,
    });
    conn.finalize(id);
    described
}

#[cfg(test)]
mod tests {
    use super::names_its_rows;

    #[test]
    fn what_looks_elsewhere_does_not_only_name_its_rows() {
        assert!(names_its_rows("INSERT INTO t(a) VALUES(?1)"));
        assert!(names_its_rows("update t set a = ?1 where id = ?2 returning a"));
        assert!(names_its_rows("delete from t where id = 1"));
        assert!(!names_its_rows("update t set a = o.a from o where t.id = 1 and o.id = 2"));
        assert!(!names_its_rows("update t set a = (select a from o) where id = 1"));
        assert!(!names_its_rows("insert into t values(1) on conflict do nothing"));
        assert!(!names_its_rows("insert or ignore into t values(1)"));
        assert!(!names_its_rows("update t set a = 1 where id in (1, 2)"));
        assert!(!names_its_rows("delete from t where id=1 or\tid=2"));
    }
}
