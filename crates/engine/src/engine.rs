//! A data directory in use: its trail, its databases, its checkpointer.
//!
//! Databases are opened when first asked for, except those that recovery had to redo: a thousand idle ones cost neither
//! time at start nor memory.

mod activity;
mod closing;
mod databases;
mod follow;
mod levels;
mod opening;
mod parameters;
mod shown;

pub use activity::{SnapshotHeld, TransactionStats};
use closing::stop_main;
use databases::{being_dropped, no_such_database};
pub(crate) use follow::Follow;
pub use follow::OnApplied;
pub use levels::Delay;
pub use parameters::{ParameterChange, ParametersOf};
use shown::Shown;

use crate::archiving::Archiving;
use crate::branch::Places;
use crate::checkpointer::{self, Signal};
use crate::database::{Database, Inner, database_oid};
use crate::error::{CloseError, OpenError};
use crate::floor::Floor;
use crate::gate::Gate;
use crate::local::Local;
use crate::locks::LockManager;
use crate::main_thread::{self, Main, Message};
use crate::manifest::{Entry, Manifest, Owner};
use crate::options::Options;
use crate::recovery::{self, Redone};
use crate::redo_debt::Totals;
use crate::stats::Stats;
use crate::tasks::Tasks;
use holdfast_store::pages::Limits;
use holdfast_store::schema_map::create_internal_tables;
use holdfast_store::sqlite::{SqliteError, check_flags, ffi};
use holdfast_store::volume::{self, Volume, VolumeError, stamp_of};
use holdfast_trail::{Recovered, Span, Trail, TrailOptions, TrailStats};
use holdfast_types::record::{Checkpoint, put_volume_create, put_volume_drop};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{Epoch, Hlc, Level, Lsn, SqlError, SqlResult, SqlState, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

/// An opened data directory. Clones are the same one.
#[derive(Clone)]
pub struct Engine(Arc<EngineInner>);

struct EngineInner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    recovered: Recovered,
}

/// What all databases of an engine share.
pub(crate) struct Shared {
    pub options: Options,
    pub dir: PathBuf,
    pub trail: Trail,
    pub epoch: Epoch,
    pub stats: Stats,
    pub redo: Arc<Totals>,
    /// What the trail must keep for others.
    pub floor: Floor,
    pub archiving: Archiving,
    pub locks: Arc<LockManager>,
    /// Between what is durable here and what is answered.
    pub gate: Gate,
    pub tasks: Tasks,
    pub checkpointer: Signal,
    /// What makes this node a standby; `None` on a master.
    pub follow: Option<Follow>,
    /// The file `checkpoints`, where there is one.
    pub local: Mutex<Option<Local>>,
    /// The governor's delay before a boxcar.
    pub delay: OnceLock<Delay>,
    /// Nothing of the trail may be recycled.
    pub keeps_trail: bool,
    /// Held while a database is opened, listed or dropped: a file has one store.
    lifecycle: Mutex<()>,
    /// Held from the record of a database that comes, goes or gets parameters until the list of databases says the same;
    /// and while a base copy takes that list.
    cataloguing: Mutex<()>,
    /// Held while a database is stopped and dropped, which may wait for a standby. Nothing but another drop asks for it.
    dropping: Mutex<()>,
    /// Checkpoint records are appended one after the other: the last one of a volume is the one that counts.
    pub listing: Mutex<()>,
    /// Held while a transaction takes its name for PREPARE TRANSACTION.
    pub preparing: Mutex<()>,
    /// Branches with many images, which are in memory.
    pub large_branches: Places,
    /// Those who send their images ahead at this moment.
    pub sending_ahead: Places,
    /// Another one has taken this master's place: it writes nothing more, see [`Engine::depose`].
    pub deposed: AtomicBool,
    /// Nothing will become durable or reach its level any more: the trail has failed, or the gate was closed with
    /// boxcars before it.
    pub failed: AtomicBool,
    clock: Mutex<Hlc>,
    /// The list of databases that sessions see. Never locked while something is written.
    shown: Arc<Shown>,
    state: Mutex<State>,
}

struct State {
    /// The list of databases on disk.
    manifest: Manifest,
    open: BTreeMap<VolumeId, Open>,
    /// Each volume's last checkpoint record and where it stands.
    checkpoints: BTreeMap<VolumeId, (Checkpoint, Lsn)>,
    closed: bool,
}

struct Open {
    inner: Arc<Inner>,
    /// Taken by who stops it.
    main: Option<JoinHandle<()>>,
}

/// A database in the list on disk.
enum Found {
    Open(Database),
    Closed(Entry),
}

/// A database as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseInfo {
    pub name: String,
    pub dialect: Dialect,
    pub oid: u32,
    /// Where its file is.
    pub path: PathBuf,
}

/// Where in a data directory files go whose content a crash may take.
pub fn scratch_dir(dir: &Path) -> PathBuf {
    dir.join("scratch")
}

impl Shared {
    /// The next reading of the hybrid logical clock.
    pub fn now(&self) -> Hlc {
        let mut clock = self.clock.lock();
        *clock = clock.next(self.options.clock.unix_ms());
        *clock
    }

    /// Nothing may be answered or written from here on; ends the process unless a test wants to see what it leaves.
    pub fn fail(&self, why: &str) {
        (self.options.on_failure)(why);
        self.abandon();
    }

    /// Lets a boxcar through the gate, now or later, see [`Gate::pass`].
    pub fn pass(&self, end: Lsn, level: Level, then: impl FnOnce() + Send + 'static) {
        if !self.gate.pass(end, level, then) {
            self.abandon();
        }
    }

    /// Nobody waits for a standby any more.
    fn close_gate(&self) {
        if !self.gate.close() {
            self.abandon();
        }
    }

    /// Drops the answers that wait for what will not happen.
    fn abandon(&self) {
        self.failed.store(true, Ordering::Release);
        self.shown.wake();
        self.open_databases().into_iter().for_each(|d| d.waiting.lock().clear());
    }

    /// The list of databases as it is on disk.
    pub fn manifest(&self) -> Manifest {
        self.state.lock().manifest.clone()
    }

    /// As long as it lives no database comes or goes.
    pub fn cataloguing(&self) -> MutexGuard<'_, ()> {
        self.cataloguing.lock()
    }

    pub fn open_databases(&self) -> Vec<Arc<Inner>> {
        self.state.lock().open.values().map(|o| o.inner.clone()).collect()
    }

    /// A checkpoint record was written at `lsn`.
    pub fn listed(&self, checkpoint: Checkpoint, lsn: Lsn) {
        self.state.lock().checkpoints.insert(checkpoint.volume, (checkpoint, lsn));
    }

    /// Last checkpoints whose record stands below `lsn`.
    pub fn listed_below(&self, lsn: Lsn) -> Vec<Checkpoint> {
        let state = self.state.lock();
        state.checkpoints.values().filter(|(_, at)| *at < lsn).map(|(c, _)| *c).collect()
    }

    /// Where the oldest of the volumes' last checkpoint records stands.
    pub fn oldest_listing(&self) -> Option<Lsn> {
        self.state.lock().checkpoints.values().map(|(_, at)| *at).min()
    }

    fn limits(&self) -> Limits {
        Limits { memory_bytes_max: self.options.memory_bytes_max, scratch_bytes_max: self.options.scratch_bytes_max }
    }

    pub fn scratch_dir(&self) -> PathBuf {
        scratch_dir(&self.dir)
    }

    pub fn last_checkpoint(&self, id: VolumeId) -> Option<Checkpoint> {
        self.state.lock().checkpoints.get(&id).map(|(c, _)| *c)
    }

    /// Transactions are prepared in this volume from now on: it will be opened at every start.
    pub fn list_as_preparing(&self, id: VolumeId) -> SqlResult<()> {
        let mut state = self.state.lock();
        let mut manifest = state.manifest.clone();
        let Some(entry) = manifest.databases.iter_mut().find(|e| e.volume() == id && !e.prepares) else {
            return Ok(());
        };
        entry.prepares = true;
        manifest
            .write(&*self.options.disk, &self.dir)
            .map_err(|e| SqlError::new(SqlState::IO_ERROR, format!("cannot write the list of databases: {e}")))?;
        state.manifest = manifest;
        Ok(())
    }

    /// Opens a volume's file again after it was replaced.
    pub fn reopen_volume(&self, id: VolumeId) -> SqlResult<Volume> {
        let entry = self.state.lock().manifest.databases.iter().find(|e| e.volume() == id).cloned();
        let entry = entry.ok_or_else(|| SqlError::internal("the database was dropped"))?;
        self.open_volume(&entry).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))
    }

    /// A file that has everything but is not what its last checkpoint record says (a crash came between the file and the
    /// record, or the checkpoint was copied again): it gets a new one. Otherwise the file would be ahead of the trail as
    /// soon as the boxcars between are recycled.
    fn list_again(self: &Arc<Shared>, redone: &Redone) {
        let (number, stamp) = (redone.volume.store().durable(), redone.volume.stamp());
        let checkpoint = Checkpoint {
            volume: redone.entry.volume(),
            number,
            redo_start: self.redo.told(),
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        };
        let same = |last: Checkpoint| Checkpoint { redo_start: checkpoint.redo_start, ..last } == checkpoint;
        if redone.debt.is_none() && !self.last_checkpoint(checkpoint.volume).is_some_and(same) {
            checkpointer::log(self, &[checkpoint]);
        }
    }

    pub(crate) fn open_volume(&self, entry: &Entry) -> Result<Volume, VolumeError> {
        let path = self.dir.join(&entry.file);
        Volume::open(&*self.options.disk, &path, &self.scratch_dir(), entry.volume(), self.limits())
    }
}

impl Engine {
    /// All databases.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let shared = &self.0.shared;
        shared.shown.list().databases.iter().map(|e| info(&shared.dir, e)).collect()
    }

    /// A database by name, opened now if need be.
    pub fn database(&self, name: &str) -> SqlResult<Database> {
        if let Some(follow) = &self.0.shared.follow {
            follow.refuse_before_whole()?;
        }
        let listed = self.0.shared.shown.list().databases.iter().find(|e| e.name == name).map(Entry::volume);
        self.database_by_id(listed.ok_or_else(|| no_such_database(name))?)?.ok_or_else(|| being_dropped(name))
    }

    /// A database by number, opened now if need be; `None`: it is not in the list on disk.
    pub(crate) fn database_by_id(&self, id: VolumeId) -> SqlResult<Option<Database>> {
        match self.find(id) {
            None => return Ok(None),
            Some(Found::Open(database)) => return Ok(Some(database)),
            Some(Found::Closed(_)) => {}
        }
        let _one_at_a_time = self.0.shared.lifecycle.lock();
        let entry = match self.find(id) {
            None => return Ok(None),
            Some(Found::Open(database)) => return Ok(Some(database)),
            Some(Found::Closed(entry)) => entry,
        };
        let refuse = |e: OpenError| SqlError::new(SqlState::DATA_CORRUPTED, e.or_cause().to_string());
        if self.0.shared.follow.is_some() {
            return follow::open_volume(&self.0.shared, &entry).map(Database).map(Some).map_err(refuse);
        }
        let redone = recovery::open_clean(&self.0.shared, &entry, None).map_err(refuse)?;
        self.0.shared.list_again(&redone);
        self.serve(&entry, redone).map(Some).map_err(refuse)
    }

    fn find(&self, id: VolumeId) -> Option<Found> {
        let state = self.0.shared.state.lock();
        let entry = state.manifest.databases.iter().find(|e| e.volume() == id)?;
        Some(match state.open.get(&id) {
            Some(open) => Found::Open(Database(open.inner.clone())),
            None => Found::Closed(entry.clone()),
        })
    }

    pub(crate) fn open_databases(&self) -> Vec<Arc<Inner>> {
        self.0.shared.open_databases()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The trail, to be tapped and asked by who ships it. What is appended to it by anybody but the engine is damage.
    pub fn trail(&self) -> &Trail {
        &self.0.shared.trail
    }

    /// What opening the trail found.
    pub fn recovered(&self) -> &Recovered {
        &self.0.recovered
    }

    pub fn trail_stats(&self) -> TrailStats {
        self.0.shared.trail.stats()
    }

    /// Counters by name, for `holdfast_stat_trail`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let shared = &self.0.shared;
        let disk = shared.options.disk.stats();
        let trail = shared.trail.stats();
        let s = &shared.stats;
        vec![
            ("transactions", s.transactions.load(Ordering::Relaxed)),
            ("volume_boxcars", s.boxcars.load(Ordering::Relaxed)),
            ("boxcars", trail.boxcars),
            ("bytes", trail.body_bytes),
            ("syncs", disk.syncs),
            ("checkpoints", s.checkpoints.load(Ordering::Relaxed)),
            ("checkpoint_pages", s.checkpoint_pages.load(Ordering::Relaxed)),
            ("redo_time_us", shared.redo.time_us.load(Ordering::Relaxed)),
            ("redo_bytes", shared.redo.bytes.load(Ordering::Relaxed)),
            ("statement_restarts", s.restarts.load(Ordering::Relaxed)),
            ("lock_waits", s.lock_waits.load(Ordering::Relaxed)),
            ("deadlocks", shared.locks.deadlocks()),
            ("requests_sent_to_branches", s.sent_to_branches.load(Ordering::Relaxed)),
            ("row_versions_kept", shared.locks.versions_kept() as u64),
        ]
    }
}

fn info(dir: &Path, entry: &Entry) -> DatabaseInfo {
    DatabaseInfo {
        name: entry.name.clone(),
        dialect: entry.dialect.into(),
        oid: database_oid(entry.volume()),
        path: dir.join(&entry.file),
    }
}
