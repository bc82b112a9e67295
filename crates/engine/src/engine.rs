//! A data directory in use: its trail, its databases, its checkpointer.
//!
//! Databases are opened when first asked for, except those that recovery had to redo: a thousand idle ones cost neither
//! time at start nor memory.

mod activity;
mod databases;
mod parameters;

pub use activity::{SnapshotHeld, TransactionStats};
use databases::no_such_database;
pub use parameters::{ParameterChange, ParametersOf};

use crate::checkpointer::{self, Signal};
use crate::database::{Database, Inner, database_oid};
use crate::error::{CloseError, OpenError};
use crate::gate::Gate;
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
use parking_lot::Mutex;
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
    pub locks: Arc<LockManager>,
    /// Between what is durable here and what is answered.
    pub gate: Gate,
    pub tasks: Tasks,
    pub checkpointer: Signal,
    /// Nothing of the trail may be recycled.
    pub keeps_trail: bool,
    /// Held while a database is opened, listed or dropped: a file has one store.
    lifecycle: Mutex<()>,
    /// Checkpoint records are appended one after the other: the last one of a volume is the one that counts.
    pub listing: Mutex<()>,
    /// Held while a transaction takes its name for PREPARE TRANSACTION.
    pub preparing: Mutex<()>,
    /// Nothing will become durable or reach its level any more: the trail has failed, or the gate was closed with
    /// boxcars before it.
    pub failed: AtomicBool,
    clock: Mutex<Hlc>,
    state: Mutex<State>,
}

struct State {
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

/// A database by name.
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

/// Whether anything was ever logged. If not, no database was ever complete: the first start was interrupted before it had
/// made one.
fn holds_records(trail: &Trail, recovered: &Recovered) -> Result<bool, OpenError> {
    for boxcar in trail.read(recovered.first)? {
        if !boxcar?.body.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
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
        self.open_databases().into_iter().for_each(|d| d.waiting.lock().clear());
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

    pub(crate) fn open_volume(&self, entry: &Entry) -> Result<Volume, VolumeError> {
        let path = self.dir.join(&entry.file);
        Volume::open(&*self.options.disk, &path, &self.scratch_dir(), entry.volume(), self.limits())
    }
}

impl Engine {
    /// Opens a data directory, making it when it does not exist, and recovers it.
    pub fn open(dir: &Path, options: Options) -> Result<Engine, OpenError> {
        Engine::open_setting_aside(dir, options, None)
    }

    /// The same, but leaves one database as it is, unrecovered and unserved, and keeps all of the trail: that database
    /// was changed by another program, which would keep the directory shut, and its file is about to be adopted.
    pub(crate) fn open_setting_aside(
        dir: &Path,
        options: Options,
        aside: Option<VolumeId>,
    ) -> Result<Engine, OpenError> {
        check_flags()?;
        let disk = options.disk.clone();
        let io = |what| move |source| OpenError::Io { what, path: dir.display().to_string(), source };
        for sub in ["", "volumes", "scratch"] {
            disk.create_dir(&dir.join(sub)).map_err(io("create"))?;
        }
        let failing = Arc::new(OnceLock::<Weak<Shared>>::new());
        let (trail, recovered) = {
            let failing = failing.clone();
            let fail = options.on_failure.clone();
            let mut trail = trail_options(dir, &options);
            trail.on_failure = Arc::new(move |failure| {
                fail(&format!("cannot {} {}: {}", failure.what, failure.file.display(), failure.error));
                failing.get().and_then(Weak::upgrade).into_iter().for_each(|shared| shared.abandon());
            });
            Trail::open(disk.clone(), options.clock.clone(), trail)?
        };
        let manifest = match Manifest::read(&*disk, dir)? {
            Some(manifest) => manifest,
            None if recovered.fresh || !holds_records(&trail, &recovered)? => {
                let begun = Manifest::begun();
                begun.write(&*disk, dir).map_err(io("write the list of databases of"))?;
                begun
            }
            None => {
                let path = crate::manifest::path(dir).display().to_string();
                let message = "missing, but the directory has a trail; put back a copy of it".to_owned();
                return Err(OpenError::Manifest { path, message });
            }
        };
        let unfinished = manifest.unfinished;
        let epoch = trail.epoch();
        let state = State { manifest, open: BTreeMap::new(), checkpoints: BTreeMap::new(), closed: false };
        let shared = Arc::new(Shared {
            options,
            dir: dir.to_owned(),
            trail,
            epoch,
            stats: Stats::default(),
            redo: Arc::default(),
            locks: Arc::default(),
            gate: Gate::default(),
            tasks: Tasks::start().map_err(io("start a thread for"))?,
            checkpointer: Signal::default(),
            keeps_trail: aside.is_some(),
            lifecycle: Mutex::default(),
            listing: Mutex::default(),
            preparing: Mutex::default(),
            failed: AtomicBool::new(false),
            clock: Mutex::default(),
            state: Mutex::new(state),
        });
        failing.get_or_init(|| Arc::downgrade(&shared));
        shared.redo.tell(recovered.end);
        let engine = Engine(Arc::new(EngineInner { shared, threads: Mutex::default(), recovered }));
        engine.recover(aside)?;
        engine.remove_orphans().map_err(io("clean up"))?;
        if unfinished {
            engine.create_initial()?;
        }
        engine.open_preparing(aside);
        engine.start_checkpointer().map_err(io("start a thread for"))?;
        Ok(engine)
    }

    fn recover(&self, aside: Option<VolumeId>) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let mut manifest = shared.state.lock().manifest.clone();
        manifest.databases.retain(|e| Some(e.volume()) != aside);
        let found = recovery::survey(&shared.trail, self.0.recovered.first, &manifest)?;
        *shared.clock.lock() = found.clock;
        shared.state.lock().checkpoints = found.checkpoints.clone();
        for redone in recovery::redo(&shared.trail, &manifest.databases, &found, |e| shared.open_volume(e))? {
            let entry = redone.entry.clone();
            self.list_again(&redone);
            self.serve(&entry, redone)?;
        }
        self.look_at_changed_files(&manifest)
    }

    /// A file whose size or time is not as recorded is looked at now and not when somebody asks for it: another program
    /// may have changed it (RULE 13). One look at each file's directory entry; nothing is opened that is as it was.
    fn look_at_changed_files(&self, manifest: &Manifest) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        for entry in &manifest.databases {
            let open = shared.state.lock().open.contains_key(&entry.volume());
            let path = shared.dir.join(&entry.file);
            let Ok(stamp) = stamp_of(&*shared.options.disk, &path) else { continue };
            let recorded =
                shared.last_checkpoint(entry.volume()).map(|c| (c.file_size_bytes, i128::from(c.file_mtime_ns)));
            if !open && recorded != Some((stamp.bytes, stamp.modified_unix_ns)) {
                let redone = recovery::open_clean(shared, entry)?;
                self.list_again(&redone);
                self.serve(entry, redone)?;
            }
        }
        Ok(())
    }

    /// Makes the databases of a new directory, those that an interrupted first start has not made. Nobody is served
    /// before the list says that all are there.
    fn create_initial(&self) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        for (name, dialect) in shared.options.initial_databases.clone() {
            let listed = shared.state.lock().manifest.databases.iter().any(|entry| entry.name == name);
            if !listed {
                self.create_database(&name, dialect)?;
            }
        }
        let mut state = shared.state.lock();
        state.manifest.unfinished = false;
        let written = state.manifest.write(&*shared.options.disk, &shared.dir);
        written.map_err(|source| OpenError::Io { what: "write", path: shared.dir.display().to_string(), source })
    }

    /// Databases that may hold prepared transactions. One that cannot be opened says so to whoever asks for it.
    fn open_preparing(&self, aside: Option<VolumeId>) {
        let listed = self.0.shared.state.lock().manifest.databases.clone();
        for entry in listed.into_iter().filter(|e| e.prepares && Some(e.volume()) != aside) {
            if let Err(e) = self.database(&entry.name) {
                tracing::error!(database = entry.name, "cannot open it for its prepared transactions: {e}");
            }
        }
    }

    /// Files of databases whose creation or removal a crash interrupted.
    fn remove_orphans(&self) -> std::io::Result<()> {
        let shared = &self.0.shared;
        let disk = &shared.options.disk;
        let dir = shared.dir.join("volumes");
        let manifest = shared.state.lock().manifest.clone();
        for name in disk.list(&dir)?.into_iter().filter(|name| manifest.owner(name) == Owner::Orphan) {
            tracing::warn!(file = name, "removing a file of a database that does not exist");
            disk.remove(&dir.join(name))?;
        }
        Ok(())
    }

    fn start_checkpointer(&self) -> std::io::Result<()> {
        let shared = self.0.shared.clone();
        let thread =
            std::thread::Builder::new().name("checkpointer".into()).spawn(move || checkpointer::serve(&shared))?;
        self.0.threads.lock().push(thread);
        Ok(())
    }

    /// All databases.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let shared = &self.0.shared;
        let state = shared.state.lock();
        state.manifest.databases.iter().map(|e| info(&shared.dir, e)).collect()
    }

    /// A database by name, opened now if need be.
    pub fn database(&self, name: &str) -> SqlResult<Database> {
        if let Found::Open(database) = self.find(name)? {
            return Ok(database);
        }
        let _one_at_a_time = self.0.shared.lifecycle.lock();
        let entry = match self.find(name)? {
            Found::Open(database) => return Ok(database),
            Found::Closed(entry) => entry,
        };
        let refuse = |e: OpenError| SqlError::new(SqlState::DATA_CORRUPTED, e.to_string());
        let redone = recovery::open_clean(&self.0.shared, &entry).map_err(refuse)?;
        self.list_again(&redone);
        self.serve(&entry, redone).map_err(refuse)
    }

    fn find(&self, name: &str) -> SqlResult<Found> {
        let state = self.0.shared.state.lock();
        let entry = state.manifest.databases.iter().find(|e| e.name == name).ok_or_else(|| no_such_database(name))?;
        Ok(match state.open.get(&entry.volume()) {
            Some(open) => Found::Open(Database(open.inner.clone())),
            None => Found::Closed(entry.clone()),
        })
    }

    /// A file that has everything but is not what its last checkpoint record says (a crash came between the file and the
    /// record, or the checkpoint was copied again): it gets a new one. Otherwise the file would be ahead of the trail as
    /// soon as the boxcars between are recycled.
    fn list_again(&self, redone: &Redone) {
        let shared = &self.0.shared;
        let (number, stamp) = (redone.volume.store().durable(), redone.volume.stamp());
        let checkpoint = Checkpoint {
            volume: redone.entry.volume(),
            number,
            redo_start: shared.redo.told(),
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        };
        let same = |last: Checkpoint| Checkpoint { redo_start: checkpoint.redo_start, ..last } == checkpoint;
        if redone.debt.is_none() && !shared.last_checkpoint(checkpoint.volume).is_some_and(same) {
            checkpointer::log(shared, &[checkpoint]);
        }
    }

    /// Starts MAIN on an opened volume.
    fn serve(&self, entry: &Entry, redone: Redone) -> Result<Database, OpenError> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        if let Some(open) = state.open.get(&entry.volume()) {
            return Ok(Database(open.inner.clone()));
        }
        if state.closed {
            return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, "the server is stopping").into());
        }
        let Redone { volume, debt, .. } = redone;
        let inner = Inner::new(
            entry.volume(),
            entry.name.clone(),
            entry.dialect.into(),
            shared.clone(),
            volume,
            Schema::default(),
        );
        if let Some((number, start, time_us, bytes)) = debt {
            inner.redo.add(number, start, time_us, bytes);
        }
        let mut main = Main::open(inner.clone())?;
        crate::prepared::restore(&inner, &mut main)?;
        let path = || shared.dir.join(&entry.file).display().to_string();
        let thread = main_thread::start(&inner, main).map_err(|source| OpenError::Io {
            what: "start a thread for",
            path: path(),
            source,
        })?;
        state.open.insert(entry.volume(), Open { inner: inner.clone(), main: Some(thread) });
        Ok(Database(inner))
    }

    pub(crate) fn open_databases(&self) -> Vec<Arc<Inner>> {
        self.0.shared.open_databases()
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

    /// Clean stop: every database is checkpointed, the trail proves itself durable. Open interactive transactions are
    /// backed out; commits that wait for a standby stay in the trail and are not answered. Closing twice is no error.
    pub fn close(&self) -> Result<(), CloseError> {
        let shared = &self.0.shared;
        shared.close_gate();
        // The databases stay listed as open until each is checkpointed: their redo holds the trail's floor.
        let open: Vec<_> = {
            let _no_opening = shared.lifecycle.lock();
            let mut state = shared.state.lock();
            state.closed = true;
            state.open.values_mut().map(|o| (o.inner.clone(), o.main.take())).collect()
        };
        shared.checkpointer.stop();
        for thread in self.0.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer panicked");
            }
        }
        let mut result = Ok(());
        let stopped: Vec<_> = open.into_iter().map(|(inner, main)| stop_main(main, inner)).collect();
        for inner in stopped {
            if let Err(e) = checkpointer::checkpoint(&inner) {
                result = Err(CloseError::Checkpoint { name: inner.name.clone(), message: e.to_string() });
            }
            inner.drop_readers();
            let path = std::path::PathBuf::from(inner.volume().store().path());
            if result.is_ok()
                && let Err(e) = holdfast_store::checkpoint::remove_wal(&*shared.options.disk, &path)
            {
                tracing::warn!(database = inner.name, "cannot remove the empty -wal file: {e}");
            }
        }
        shared.state.lock().open.clear();
        shared.trail.close()?;
        result
    }
}

/// Stops without checkpoints: the next start recovers. Nothing runs any more when it returns, so the directory may be
/// opened again or removed.
impl Drop for EngineInner {
    fn drop(&mut self) {
        self.shared.close_gate();
        self.shared.checkpointer.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("the checkpointer panicked");
            }
        }
        let open = std::mem::take(&mut self.shared.state.lock().open);
        for Open { inner, main } in open.into_values() {
            stop_main(main, inner).drop_readers();
        }
        if let Err(e) = self.shared.trail.close() {
            tracing::error!("the trail was not closed cleanly, the next start recovers it: {e}");
        }
    }
}

/// Stops MAIN and waits until everything it published is durable.
fn stop_main(thread: Option<JoinHandle<()>>, inner: Arc<Inner>) -> Arc<Inner> {
    if let Some(main) = inner.main.write().take() {
        // An error means that it has ended already.
        drop(main.send(Message::Stop));
    }
    if thread.is_some_and(|t| t.join().is_err()) {
        tracing::error!(database = inner.name, "MAIN panicked");
    }
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let newest = inner.volume().store().newest();
    inner.when_durable(newest, Box::new(move || sender.send(()).unwrap_or_default()));
    receiver.recv().unwrap_or_default();
    // They hold the database, which would never be let go. Their rows stay; nobody can take what they lock any more.
    let prepared = std::mem::take(&mut *inner.prepared.lock());
    drop(prepared);
    inner
}

fn trail_options(dir: &Path, options: &Options) -> TrailOptions {
    TrailOptions {
        segment_bytes: options.segment_bytes,
        boxcar_bytes_max: (options.segment_bytes / 4).min(16 << 20),
        kept_back_bytes: (options.segment_bytes / 4).min(1 << 20),
        sync_method: options.sync_method,
        commit_delay: options.commit_delay,
        ..TrailOptions::new(dir.join("trail"))
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
