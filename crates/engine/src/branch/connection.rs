//! Connections lent to branches, and the pool they come from.

use super::pin::Pin;
use super::schema::Own;
use super::watch::{BranchWatch, Found, Running};
use crate::advisory;
use crate::cache::StatementCache;
use crate::database::Inner;
use crate::locks::OwnerId;
use crate::run::to_sql;
use crate::temp::TempSpace;
use holdfast_store::apply::{Applier, Place};
use holdfast_store::capture::Capture;
use holdfast_store::sqlite::{CommitGate, Conn, InterruptHandle, SqliteError, StmtId};
use holdfast_store::volume::Volume;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState, ValueRef};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections without a transaction, per database. More than are ever left in their place at once: opening one takes a
/// millisecond.
const IDLE_MAX: usize = 64;

/// Connections left in their place by transactions between two statements, per database; the others put their images
/// on again.
const KEPT_MAX: usize = 48;

/// How long one is left there: it holds page versions and memory.
const KEPT_TIME_MAX: Duration = Duration::from_millis(100);

/// The same for one with many images, which take long to be put on again.
const LARGE_KEPT_TIME_MAX: Duration = Duration::from_secs(5);

/// With more bytes of images than this a connection's changes are undone on a thread beside.
const MANY_BYTES: usize = 1 << 20;

/// So many images are put on again at little cost.
const FEW_IMAGES: usize = 16;

/// Statements that steer a branch.
#[derive(Clone, Copy)]
pub struct Control {
    pub begin: StmtId,
    pub rollback: StmtId,
    pub savepoint: StmtId,
    pub release: StmtId,
    pub rollback_to: StmtId,
}

/// A connection with what is prepared on it.
pub struct Connection {
    pub conn: Conn,
    pub cache: StatementCache,
    /// Statements over temporary tables, for as long as those are attached.
    pub temp_cache: StatementCache,
    temp_attached: bool,
    /// SQLite's page cache holds what was never committed.
    spoiled: bool,
    gate: CommitGate,
    pub applier: Applier,
    pub control: Control,
    pub running: Arc<Mutex<Running>>,
    pub interrupt: Arc<InterruptHandle>,
    /// Of the schema it was opened under.
    epoch: u32,
    /// The schema was changed on it: it is of no use to others, even if the change is undone.
    pub changed: bool,
    /// The schema as it was changed on it.
    pub own: Option<Own>,
    /// Dropped after the connection, which uses its VFS.
    volume: Arc<Volume>,
}

fn error(e: &SqliteError) -> SqlError {
    to_sql(e, "", &Schema::default())
}

impl Connection {
    fn open(inner: &Arc<Inner>, volume: Arc<Volume>) -> SqlResult<Connection> {
        let mut conn = volume.open_branch().map_err(|e| SqlError::internal(e.to_string()))?;
        conn.exec("pragma foreign_keys=on").map_err(|e| error(&e))?;
        let map = inner.map();
        // Before any statement is prepared (RULE 17).
        conn.install_capture(Capture::new(map.clone())).map_err(|e| error(&e))?;
        // Under REPEATABLE READ such an update must stop others who have not seen it.
        conn.capture().record_unchanged();
        let running = Arc::new(Mutex::new(Running::default()));
        conn.capture().set_watch(Box::new(BranchWatch {
            running: running.clone(),
            locks: inner.shared.locks.clone(),
            volume: inner.id,
            ids: inner.ids.clone(),
            schema_number: inner.schema_number.clone(),
            touched: Vec::new(),
        }));
        inner.register(&mut conn)?;
        let (on, locks, id) = (running.clone(), inner.shared.locks.clone(), inner.id);
        let call = move |arguments: &[ValueRef<'_>]| advisory::call(&locks, id, &on, arguments);
        conn.register_function(advisory::FUNCTION, 3, false, call).map_err(|e| error(&e))?;
        // What a branch changes must not be committed: opened for temporary tables only, and what the VFS is given of
        // the volume's pages then stays the branch's and vanishes.
        let gate = conn.install_commit_gate();
        let control = Connection::control(&mut conn).map_err(|e| error(&e))?;
        let interrupt = Arc::new(conn.interrupt_handle());
        let applier = Applier::for_images(Place::Branch, map.clone());
        let cache = StatementCache::default();
        Ok(Connection {
            conn,
            cache,
            temp_cache: StatementCache::default(),
            temp_attached: false,
            spoiled: false,
            gate,
            applier,
            control,
            running,
            interrupt,
            epoch: map.epoch,
            changed: false,
            own: None,
            volume,
        })
    }

    fn control(conn: &mut Conn) -> Result<Control, SqliteError> {
        Ok(Control {
            begin: conn.prepare("begin")?,
            rollback: conn.prepare("rollback")?,
            savepoint: conn.prepare("savepoint holdfast_statement")?,
            release: conn.prepare("release holdfast_statement")?,
            rollback_to: conn.prepare("rollback to holdfast_statement")?,
        })
    }

    /// Begins on a snapshot that the caller holds. A statement whose transaction holds more than `locks_max` will be
    /// stopped.
    pub fn begin(
        &mut self,
        owner: OwnerId,
        session: Option<OwnerId>,
        snapshot: u64,
        locks_max: usize,
        temp: Option<&TempSpace>,
    ) -> SqlResult<()> {
        self.conn.choose_snapshot(snapshot);
        if let Some(temp) = temp {
            self.attach(temp)?;
        }
        // Images put on again are not a statement's.
        self.conn.capture().set_bytes_max(usize::MAX);
        *self.running.lock() = Running { owner: Some(owner), session, snapshot, locks_max, ..Running::default() };
        self.run(self.control.begin)
    }

    /// Epoch of the schema it was opened under.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Makes ready for statements over temporary tables that change nothing else, at a snapshot that the caller holds.
    pub fn begin_without_owner(&mut self, snapshot: u64, temp: &TempSpace) -> SqlResult<()> {
        self.conn.choose_snapshot(snapshot);
        self.conn.capture().set_bytes_max(usize::MAX);
        *self.running.lock() = Running::default();
        self.attach(temp)
    }

    fn attach(&mut self, temp: &TempSpace) -> SqlResult<()> {
        self.conn.attach_temp(temp.pages()).map_err(|e| error(&e))?;
        self.temp_attached = true;
        Ok(())
    }

    /// Ends SQLite's transaction so that what it did to temporary tables stays. Images of permanent tables that were put
    /// on the connection for it vanish, and leave a page cache that is of no more use.
    pub fn keep_temp(&mut self) -> SqlResult<()> {
        if !self.conn.capture().is_empty() {
            return Err(SqlError::internal("a statement changed temporary and permanent tables"));
        }
        if self.conn.deferred_foreign_keys() != 0 {
            let message = "changing a temporary table while a deferred foreign key is violated is not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.spoiled |= self.running.lock().owner.is_some();
        self.gate.open();
        let committed = self.conn.exec("commit").map_err(|e| error(&e));
        self.gate.close();
        committed
    }

    /// Ends SQLite's transaction, if it is still open, as if it had not been.
    pub fn undo_all(&mut self) -> SqlResult<()> {
        if self.conn.autocommit() { Ok(()) } else { self.run(self.control.rollback) }
    }

    pub fn run(&mut self, stmt: StmtId) -> SqlResult<()> {
        self.conn.run(stmt).map_err(|e| error(&e))
    }

    /// A statement with more bytes of images will be stopped.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.conn.capture().set_bytes_max(bytes_max);
    }

    /// Begins to look for what a statement runs into.
    pub fn listen(&mut self) {
        let mut running = self.running.lock();
        running.found = Found::default();
        running.tables.clear();
        running.parents.clear();
        drop(running);
        self.conn.capture().go_on();
    }

    /// What it ran into.
    pub fn found(&mut self) -> Found {
        let found = self.running.lock().found;
        Found { alone: found.alone || self.conn.capture().overflowed(), ..found }
    }

    /// Undoes everything. False when the connection is of no more use.
    pub fn end(&mut self) -> bool {
        let ended = self.conn.autocommit() || self.conn.run(self.control.rollback).is_ok();
        self.conn.capture().go_on();
        self.conn.capture().take();
        self.conn.capture().forget_sequences();
        self.running.lock().owner = None;
        ended && !self.spoiled && self.detach()
    }

    fn detach(&mut self) -> bool {
        self.temp_cache.clear(&mut self.conn);
        !std::mem::take(&mut self.temp_attached) || self.conn.detach_temp().is_ok()
    }
}

/// A connection that a transaction between two statements has left in its place.
pub struct Kept {
    pub connection: Connection,
    /// What it reads, where the transaction does not hold that itself.
    pub pin: Option<Pin>,
    owner: OwnerId,
    /// Images to put on again if it is taken away.
    images: usize,
    /// It has many bytes of them.
    large: bool,
    until: Instant,
}

/// Connections of one database that run no statement at the moment.
#[derive(Default)]
pub struct Pool {
    idle: Mutex<Vec<Connection>>,
    /// Oldest first.
    kept: Mutex<Vec<Kept>>,
    /// Large ones whose changes are being undone on a thread beside.
    ending: Mutex<usize>,
    ended: Condvar,
}

/// A connection on its way to the end, counted until it is gone.
struct Ending {
    connection: Connection,
    _counted: Counted,
}

struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.branches.ending.lock() -= 1;
        self.0.branches.ended.notify_all();
    }
}

impl Pool {
    /// A connection under the published schema.
    pub fn take(&self, inner: &Arc<Inner>) -> SqlResult<Connection> {
        let volume = inner.volume();
        loop {
            let Some(c) = self.idle.lock().pop() else { return Connection::open(inner, volume) };
            if c.epoch == inner.map().epoch && Arc::ptr_eq(&c.volume, &volume) {
                return Ok(c);
            }
        }
    }

    pub fn give_back(&self, mut connection: Connection) {
        if !connection.end() || connection.changed {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// The same for one with so many bytes of changes. To undo many takes as long as to make them (1,000,000 rows: 3 s),
    /// and nobody should wait for that.
    pub fn end(&self, inner: &Arc<Inner>, bytes: usize, connection: Connection) {
        if bytes <= MANY_BYTES {
            return self.give_back(connection);
        }
        *self.ending.lock() += 1;
        let ending = Ending { connection, _counted: Counted(inner.clone()) };
        drop(inner.shared.tasks.spawn_blocking(move || {
            let mut ending = ending;
            ending.connection.end();
        }));
    }

    /// Leaves the connection as it is for the owner's next statement, which comes soon if the client does not think.
    /// `images` of `bytes` would have to be put on another one.
    pub fn keep(
        &self,
        inner: &Arc<Inner>,
        owner: OwnerId,
        (images, bytes): (usize, usize),
        connection: Connection,
        pin: Option<Pin>,
    ) {
        let large = bytes > MANY_BYTES;
        let until = Instant::now() + if large { LARGE_KEPT_TIME_MAX } else { KEPT_TIME_MAX };
        self.kept.lock().push(Kept { connection, pin, owner, images, large, until });
        self.take_away(inner);
    }

    /// What the owner has left here, unless it was taken away.
    pub fn kept(&self, owner: OwnerId) -> Option<Kept> {
        let mut kept = self.kept.lock();
        let at = kept.iter().rposition(|k| k.owner == owner)?;
        Some(kept.remove(at))
    }

    /// Takes back what has been left too long or is too much; those go first whose images are soon on again.
    pub fn take_away(&self, inner: &Arc<Inner>) {
        let mut gone = Vec::new();
        {
            let mut kept = self.kept.lock();
            let now = Instant::now();
            while let Some(old) = kept.iter().position(|k| k.until < now) {
                gone.push(kept.remove(old));
            }
            while kept.len() > KEPT_MAX {
                let few = kept.iter().position(|k| k.images <= FEW_IMAGES);
                gone.push(kept.remove(few.unwrap_or(0)));
            }
        }
        // MAIN calls this, too.
        gone.into_iter().for_each(|k| self.end(inner, if k.large { usize::MAX } else { 0 }, k.connection));
    }

    /// Closes all of them.
    pub fn clear(&self) {
        self.idle.lock().clear();
        self.kept.lock().clear();
        let mut ending = self.ending.lock();
        while *ending > 0 {
            self.ended.wait(&mut ending);
        }
    }
}
