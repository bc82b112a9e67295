//! Connections lent to branches: how one is opened, left in its place between two statements, and reclaimed.

use crate::branch::advisory as advisory_call;
use crate::branch::watch::BranchWatch;
use crate::state::advisory;
use crate::state::branch_connection::{Connection, Control, Kept, Pool, error};
use crate::state::database::DatabaseState;
use crate::state::locks::OwnerId;
use crate::state::pin::Pin;
use crate::state::running::Running;
use crate::statement::cache::StatementCache;
use crate::statement::run::{not_opened, on_a_fresh_snapshot};
use holdfast_store::apply::{Applier, ApplyMode};
use holdfast_store::capture::Capture;
use holdfast_store::sqlite::{Conn, SqliteError};
use holdfast_store::volume::Volume;
use holdfast_types::{SqlResult, ValueRef};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections that transactions may leave in their place between two statements, per database; others replay their
/// images.
const KEPT_MAX: usize = 48;

/// How long a connection may stay there: it holds page versions and memory.
const KEPT_TIME_MAX: Duration = Duration::from_millis(100);

/// How long one with many images is left there: they take long to be replayed.
const LARGE_KEPT_TIME_MAX: Duration = Duration::from_secs(5);

/// With more bytes of images than this a connection's changes are undone on another thread.
const MANY_BYTES: usize = 1 << 20;

/// This many images are replayed at little cost.
const FEW_IMAGES: usize = 16;

impl Connection {
    fn open(database: &Arc<DatabaseState>, volume: Arc<Volume>) -> SqlResult<Connection> {
        let mut conn = on_a_fresh_snapshot(|| volume.open_branch().map_err(|e| not_opened(&e)))?;
        conn.bound_memory();
        conn.exec("pragma foreign_keys=on").map_err(|e| error(&e))?;
        let map = database.map();
        // Before any statement is prepared (RULE 17).
        conn.install_capture(Capture::new(map.clone())).map_err(|e| error(&e))?;
        // Under REPEATABLE READ such an update must stop transactions that have not seen it.
        conn.capture().record_unchanged();
        let running = Arc::new(Mutex::new(Running::default()));
        conn.capture().set_watch(Box::new(BranchWatch {
            running: running.clone(),
            locks: database.engine.locks.clone(),
            volume: database.id,
            ids: database.ids.clone(),
            schema_number: database.schema_number.clone(),
            touched: Vec::new(),
        }));
        database.register(&mut conn)?;
        let (on, locks, id) = (running.clone(), database.engine.locks.clone(), database.id);
        let call = move |arguments: &[ValueRef<'_>]| advisory_call::call(&locks, id, &on, arguments);
        conn.register_function(advisory::FUNCTION, 3, false, advisory::COST, call).map_err(|e| error(&e))?;
        // A branch's changes must never be committed, except for temporary tables. What the VFS receives of the
        // volume's pages stays on the branch and vanishes.
        let gate = conn.install_commit_gate();
        let control = Connection::control(&mut conn).map_err(|e| error(&e))?;
        let interrupt = Arc::new(conn.interrupt_handle());
        let applier = Applier::for_images(ApplyMode::Branch, map.clone());
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
}

struct Counted(Arc<DatabaseState>);

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.branches.ending.lock() -= 1;
        self.0.branches.ended.notify_all();
    }
}

impl Pool {
    /// A connection under the published schema.
    pub fn take(&self, database: &Arc<DatabaseState>) -> SqlResult<Connection> {
        let volume = database.volume();
        loop {
            let Some(c) = self.idle.lock().pop() else { return Connection::open(database, volume) };
            if c.epoch == database.map().epoch && Arc::ptr_eq(&c.volume, &volume) {
                return Ok(c);
            }
        }
    }

    /// Gives back a connection with `bytes` of changes. One with many is closed, and no statement should wait for that.
    pub fn end(&self, database: &Arc<DatabaseState>, bytes: usize, connection: Connection) {
        if bytes <= MANY_BYTES {
            return self.give_back(connection);
        }
        *self.ending.lock() += 1;
        let counted = Counted(database.clone());
        drop(database.engine.tasks.spawn_blocking(move || {
            connection.discard();
            drop(counted);
        }));
    }

    /// Leaves the connection as it is for the owner's next statement, which follows soon unless the client pauses.
    /// Another connection would have to replay `images` of `bytes`.
    pub fn keep(
        &self,
        database: &Arc<DatabaseState>,
        owner: OwnerId,
        (images, bytes): (usize, usize),
        connection: Connection,
        pin: Option<Pin>,
    ) {
        let large = bytes > MANY_BYTES;
        let until = Instant::now() + if large { LARGE_KEPT_TIME_MAX } else { KEPT_TIME_MAX };
        self.kept.lock().push(Kept { connection, pin, owner, images, large, until });
        self.take_away(database);
    }

    /// Reclaims connections that were left too long or exceed the limit, those first whose images are replayed fastest.
    pub fn take_away(&self, database: &Arc<DatabaseState>) {
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
        // The writer calls this too.
        gone.into_iter().for_each(|k| self.end(database, if k.large { usize::MAX } else { 0 }, k.connection));
    }
}
