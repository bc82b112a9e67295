//! The state of one open database: its volume, its schema, its connections, and the way to its writer.

use crate::state::advisory::{self, AdvisoryOwner};
use crate::state::branch_connection::Pool;
use crate::state::engine::EngineState;
use crate::state::ids::Ids;
use crate::state::interruption::Interruption;
use crate::state::lock_owner::LockOwner;
use crate::state::locks::{LockId, OwnerId, Target};
use crate::state::manifest::Entry;
use crate::state::options::ConnectedDatabase;
use crate::state::pin::{At, Pin};
use crate::state::prepared::Registry;
use crate::state::prewritten::FragmentOwner;
use crate::state::queue::{Request, WriterCommand};
use crate::state::readable_schema::ReadableSchema;
use crate::state::reader_connection::Connection;
use crate::state::redo_debt::RedoDebt;
use crate::state::side_log::SideLog;
use crate::state::waiting::Waiting;
use crate::statement::run::{not_opened, on_a_fresh_snapshot, to_sql};
use crossbeam_channel::Sender;
use holdfast_store::schema_map::TableMap;
use holdfast_store::sqlite::{Conn, InterruptHandle, SqliteError};
use holdfast_store::volume::Volume;
use holdfast_trail::Span;
use holdfast_types::record::put_fragment_drop;
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{Cost, SqlError, SqlResult, SqlState, TxnId, ValueRef, VolumeId};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;

/// The SQL function that chooses row ids: `holdfast_next_id(table)`.
const NEXT_ID: &str = "holdfast_next_id";

/// Idle reader connections kept per database.
const READERS_KEPT_MAX: usize = 16;

/// Called when a batch is visible to readers.
type OnReached = Box<dyn FnOnce() + Send>;

/// The databases of an engine that are open.
pub trait Peers: Send + Sync {
    fn all(&self) -> Vec<Arc<DatabaseState>>;
}

/// One database while it is open.
pub struct DatabaseState {
    pub id: VolumeId,
    pub name: String,
    pub dialect: Dialect,
    pub engine: Arc<EngineState>,
    /// All open databases of the engine.
    peers: Weak<dyn Peers>,
    /// Replaced as a whole by VACUUM.
    pub volume: RwLock<Arc<Volume>>,
    /// The newest published schema, for everything that writes.
    pub schema: RwLock<Arc<Schema>>,
    /// The schema for readers.
    pub readable: ReadableSchema,
    /// Tables and ids of the published schema.
    map: RwLock<Published>,
    /// The batch that published the present schema: nothing that may write begins on an older snapshot.
    pub schema_number: Arc<AtomicU64>,
    /// An exclusive transaction has the writer: others wait on a branch for the database's lock.
    pub only_writer: AtomicBool,
    /// To the writer; removed when the database is closed.
    pub queue: RwLock<Option<Sender<WriterCommand>>>,
    readers: Mutex<Vec<Connection>>,
    /// Chooses row ids.
    pub ids: Arc<Ids>,
    /// Connections for branches.
    pub branches: Pool,
    /// Statements on branches that a cancel may interrupt, by transaction.
    pub interruptions: Mutex<HashMap<u64, Arc<Interruption>>>,
    pub redo: RedoDebt,
    /// What the writer publishes while a side copy is being made.
    pub side_log: Arc<SideLog>,
    /// Prepared transactions.
    pub prepared: Mutex<Registry>,
    /// Answers that wait until a batch is visible to readers, by batch number.
    pub waiting: Mutex<Vec<(u64, OnReached)>>,
    /// What the writer runs by itself right now, for cancel: the id of a request or transaction, 0 for nothing that may be interrupted.
    pub running: Mutex<Running>,
    /// One checkpoint at a time.
    pub checkpointing: Mutex<()>,
    /// Set under `checkpointing`: nothing more is written for it.
    pub dropped: AtomicBool,
}

/// The published schema, for branches.
#[derive(Default)]
struct Published {
    map: Arc<TableMap>,
    /// A batch that changes the schema is being published: the newest snapshot may not match the map.
    changing: bool,
}

/// What a cancel may interrupt.
#[derive(Default)]
pub struct Running {
    pub id: u64,
    pub handle: Option<Arc<InterruptHandle>>,
}

impl DatabaseState {
    /// The state of the listed database `entry`.
    pub fn new(
        entry: &Entry,
        engine: Arc<EngineState>,
        peers: Weak<dyn Peers>,
        volume: Arc<Volume>,
    ) -> Arc<DatabaseState> {
        let redo = RedoDebt::new(engine.redo.clone());
        Arc::new(DatabaseState {
            id: entry.volume(),
            name: entry.name.clone(),
            dialect: entry.dialect.into(),
            engine,
            peers,
            volume: RwLock::new(volume),
            schema: RwLock::default(),
            readable: ReadableSchema::default(),
            map: RwLock::default(),
            schema_number: Arc::default(),
            only_writer: AtomicBool::new(false),
            queue: RwLock::new(None),
            readers: Mutex::default(),
            ids: Arc::default(),
            branches: Pool::default(),
            interruptions: Mutex::default(),
            redo,
            side_log: Arc::default(),
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

    /// The number of the batch that published the present schema: nothing that may write begins on an older snapshot.
    pub fn schema_number(&self) -> u64 {
        self.schema_number.load(Ordering::Acquire)
    }

    /// Publishes a schema and its tables. Readers use it when the batch `number` has reached its level.
    pub fn publish_schema(&self, schema: Arc<Schema>, map: Arc<TableMap>, number: u64) {
        let mut published_schema = self.schema.write();
        *published_schema = schema.clone();
        let mut published = self.map.write();
        self.schema_number.store(number, Ordering::Release);
        *published = Published { map, changing: false };
        self.readable.published(schema, number, || self.volume().store().visible());
    }

    /// Records that a batch that changes the schema is about to be published, or could not be.
    pub fn schema_is_changing(&self, changing: bool) {
        self.map.write().changing = changing;
    }

    /// Whether the snapshot has the schema of that epoch, read recently as the published one.
    pub fn goes_with(&self, epoch: u32, snapshot: u64) -> bool {
        let published = self.map.read();
        !published.changing && published.map.epoch == epoch && self.schema_number() <= snapshot
    }

    /// Completes when batch `number` is visible to readers; an error means that it will never be.
    pub async fn until_visible(&self, number: u64) -> SqlResult<()> {
        if self.volume().store().visible() >= number {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        // The receiver is gone when the caller stopped waiting.
        self.when_visible(number, Box::new(move || sender.send(()).unwrap_or_default()));
        let failed =
            "the server is stopping, or its trail has failed; whether the transaction's reads are durable is unknown";
        receiver.await.map_err(|_| SqlError::new(SqlState::IO_ERROR, failed))
    }

    /// Runs `answer` as soon as batch `number` is visible to readers.
    pub fn when_visible(&self, number: u64, answer: OnReached) {
        {
            let mut waiting = self.waiting.lock();
            // Checked under the lock that `now_visible` takes, so that no waiter is missed.
            if self.volume().store().visible() < number {
                if !self.engine.failed.load(Ordering::Acquire) {
                    waiting.push((number, answer));
                }
                return;
            }
        }
        answer();
    }

    /// Batch `number` is on disk and has reached its level: readers see it, and its schema.
    pub fn show_readers(&self, number: u64) {
        let volume = self.volume();
        self.readable.passed(number, || volume.store().set_visible(number));
    }

    /// Readers see batch `number` ([`DatabaseState::show_readers`]): answers those that waited for it.
    pub fn now_visible(&self, number: u64) {
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

    pub fn send(&self, message: WriterCommand) -> SqlResult<()> {
        let sent = self.queue.read().as_ref().is_some_and(|queue| queue.send(message).is_ok());
        if sent { Ok(()) } else { Err(closed(&self.name)) }
    }

    /// Sends the writer a request that has begun elsewhere and begins again there. A cancel reaches it through the interruption,
    /// which stays registered under the request's number until the writer takes it.
    pub fn queue_again(&self, request: Request, interruption: Arc<Interruption>) {
        let id = request.id;
        let waiting = Waiting::new(request);
        self.interruptions.lock().insert(id, interruption.clone());
        if interruption.waits(&waiting) {
            self.interruptions.lock().remove(&id);
            return;
        }
        // A database that is being closed drops the ticket.
        self.send(WriterCommand::Run(waiting)).unwrap_or_default();
    }

    /// Opens a reader connection with functions and virtual tables registered.
    fn connect(self: &Arc<DatabaseState>, volume: &Volume) -> SqlResult<Conn> {
        let mut conn = volume.open_reader().map_err(|e| not_opened(&e))?;
        self.register(&mut conn)?;
        conn.bound_memory();
        conn.exec("pragma query_only=1").map_err(|e| to_sql(&e, "", &Schema::default()))?;
        Ok(conn)
    }

    pub fn register(self: &Arc<DatabaseState>, conn: &mut Conn) -> SqlResult<()> {
        let internal = |e: SqliteError| SqlError::internal(e.to_string());
        conn.install_guard().map_err(internal)?;
        let ids = self.ids.clone();
        let refuse = |_: &[ValueRef<'_>]| Err(advisory::not_here());
        conn.register_function(advisory::FUNCTION, 3, false, advisory::COST, refuse).map_err(internal)?;
        conn.register_next_id(NEXT_ID, Cost::Constant, move |table, highest| ids.next(table, highest))
            .map_err(internal)?;
        match &self.engine.options.connect {
            Some(connect) => {
                let this: Arc<dyn ConnectedDatabase> = self.clone();
                connect(conn, &this)
            }
            None => Ok(()),
        }
    }

    /// A connection that reads visible snapshots: one kept from an earlier use, or a new one.
    pub fn reader(self: &Arc<DatabaseState>) -> SqlResult<Connection> {
        let kept = self.readers.lock().pop();
        let current = self.volume();
        match kept.filter(|c| Arc::ptr_eq(&c.volume, &current)) {
            Some(connection) => Ok(connection),
            None => Ok(Connection::new(on_a_fresh_snapshot(|| self.connect(&current))?, current)),
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
        let found = self.interruptions.lock().get(&id).cloned();
        if let Some(interruption) = found {
            if interruption.interrupt() {
                self.interruptions.lock().remove(&id);
            }
            return;
        }
        let running = self.running.lock();
        if running.id == id
            && let Some(handle) = &running.handle
        {
            handle.interrupt();
        }
    }

    /// Holds a snapshot for the client with process number `pid`; 0 for none.
    pub fn pin(&self, at: At, pid: i32) -> Pin {
        let store = self.volume().store().clone();
        Pin::new(&self.engine.locks, self.id, store, || self.schema_number(), at, pid)
    }

    /// A new transaction in the lock manager. `part_of`: another part of it, in another database.
    pub fn lock_owner(&self, advisory_owner: Option<Arc<AdvisoryOwner>>, part_of: Option<OwnerId>) -> LockOwner {
        LockOwner::new(&self.engine.locks, self.id, advisory_owner, part_of)
    }

    /// The lock that writing branches share and the exclusive writer holds alone.
    pub fn database_lock(&self) -> LockId {
        LockId { volume: self.id, target: Target::Database }
    }

    /// Waits as long as the governor requires after a batch of `bytes`.
    pub fn wait_for_governor(&self, bytes: u64) {
        let Some(governor) = self.engine.delay.get() else { return };
        let mut delay = governor(bytes);
        // The governor is asked until it requires no more delay: that is its hard stop. A database that is being closed
        // does not ask.
        while !delay.is_zero() && self.queue.read().is_some() {
            std::thread::sleep(delay);
            self.engine.stats.governed(delay);
            delay = governor(0);
        }
    }
}

impl Peers for DatabaseState {
    fn all(&self) -> Vec<Arc<DatabaseState>> {
        self.peers.upgrade().map(|peers| peers.all()).unwrap_or_default()
    }
}

impl FragmentOwner for DatabaseState {
    fn drop_fragments(self: Arc<DatabaseState>, txn: TxnId) {
        // A deposed master writes nothing more.
        if self.engine.deposed.load(Ordering::Acquire) {
            return;
        }
        let mut body = Vec::new();
        put_fragment_drop(&mut body, self.id, txn);
        let dropped = self.clone();
        let on_durable = Box::new(move |_: Span| dropped.redo.fragments_dropped(txn.0));
        if let Err(e) = self.engine.trail.append_kept(body, on_durable) {
            // Redo ignores fragments that no commit refers to; the record only lets segments go sooner.
            tracing::warn!(database = self.name, "cannot log the end of a transaction: {e}");
        }
    }
}

impl ConnectedDatabase for DatabaseState {
    fn name(&self) -> &str {
        &self.name
    }

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    fn oid(&self) -> u32 {
        database_oid(self.id)
    }

    fn schema(&self) -> Arc<Schema> {
        self.readable.get()
    }
}

pub fn closed(name: &str) -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, format!("database {name} is being closed"))
}

/// The next id for transactions and submissions alike: what [`Database::interrupt`] takes.
pub fn next_txn_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// PostgreSQL keeps OIDs below 16384 for itself.
pub fn database_oid(id: VolumeId) -> u32 {
    16384 + id.0
}
