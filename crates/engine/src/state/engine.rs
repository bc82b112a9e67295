//! What all databases of an engine share. It knows no database.

use crate::state::checkpoint_file::{CheckpointFile, LocalCheckpoint};
use crate::state::clock_file;
use crate::state::error::OpenError;
use crate::state::follow::Follow;
use crate::state::gate::Gate;
use crate::state::locks::LockManager;
use crate::state::manifest::{Entry, Manifest};
use crate::state::options::Options;
use crate::state::redo_debt::Totals;
use crate::state::retention::Retention;
use crate::state::semaphore::Semaphore;
use crate::state::signal::Signal;
use crate::state::stats::Stats;
use crate::state::tasks::Tasks;
use crate::state::visible_list::VisibleList;
use crate::state::wide_cache::WideCaches;
use holdfast_store::pages::Limits;
use holdfast_store::volume::{Volume, VolumeError};
use holdfast_trail::Trail;
use holdfast_types::record::Checkpoint;
use holdfast_types::{Epoch, Hlc, Level, Lsn, SqlError, SqlResult, SqlState, TxnId, VolumeId};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Called before each batch with the bytes of the one before; returns how long the writer waits first. Called without a
/// lock held.
pub type Delay = Arc<dyn Fn(u64) -> Duration + Send + Sync>;

/// What the checkpointer's thread needs to know of the archive.
#[derive(Default)]
pub struct Archiving {
    pub news: AtomicBool,
    pub beyond: AtomicBool,
    /// The archive is to have everything below soon, though its segment is not full.
    pub wanted: AtomicU64,
}

impl Archiving {
    /// Whether the archive has advanced since the last call.
    pub fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::AcqRel)
    }
}

/// What all databases of an engine share.
pub struct EngineState {
    pub options: Options,
    pub dir: PathBuf,
    pub trail: Trail,
    pub epoch: Epoch,
    pub stats: Stats,
    pub redo: Arc<Totals>,
    /// What the trail must keep, and for whom.
    pub retention: Retention,
    pub archiving: Archiving,
    pub locks: Arc<LockManager>,
    /// The gate between what is durable here and what is answered.
    pub gate: Gate,
    pub tasks: Tasks,
    pub checkpointer: Signal,
    /// The state of a standby; `None` on a master.
    pub follow: Option<Follow>,
    /// The file `checkpoints`, if there is one.
    pub checkpoint_file: Mutex<Option<CheckpointFile>>,
    /// The governor's delay before a batch.
    pub delay: OnceLock<Delay>,
    /// Nothing of the trail may be recycled.
    pub keeps_trail: bool,
    /// Held while a database is opened, listed or dropped: a file has one store.
    pub lifecycle: Mutex<()>,
    /// Held from the record that creates or drops a database or changes its parameters until the list of databases
    /// matches it, and while a base copy reads that list.
    pub cataloguing: Mutex<()>,
    /// Held while a database is stopped and dropped, which may wait for a standby. Only another drop waits for it.
    pub dropping: Mutex<()>,
    /// Held while checkpoint records are appended, one after the other: the last one of a volume counts.
    pub listing: Mutex<()>,
    /// Held while a transaction takes its name for PREPARE TRANSACTION.
    pub preparing: Mutex<()>,
    /// Branches with many images, which are in memory.
    pub large_branches: Semaphore,
    /// Transactions that send their images ahead at this moment.
    pub prewriting: Semaphore,
    /// For statements that read much.
    pub wide_caches: WideCaches,
    /// Another node has taken this master's place: it writes nothing more, see [`crate::Engine::depose`].
    pub deposed: AtomicBool,
    /// Nothing more will become durable or reach its level: the trail has failed, or the gate was closed with
    /// batches before it.
    pub failed: AtomicBool,
    pub clock: Mutex<Hlc>,
    /// The reading in the file `clock`.
    clock_kept: Mutex<Hlc>,
    /// The list of databases that sessions see. Never locked while something is written.
    pub visible: Arc<VisibleList>,
    /// Held while what readers see moves on in any database: everything below this LSN is seen, in all of them.
    pub shown: Mutex<Lsn>,
    pub catalog: Mutex<Catalog>,
    /// Set at the start: drops pending answers of the open databases.
    pub on_abandoned: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What is listed on disk.
pub struct Catalog {
    /// The list of databases.
    pub manifest: Manifest,
    /// Each volume's last checkpoint record and where it is.
    pub checkpoints: BTreeMap<VolumeId, (Checkpoint, Lsn)>,
}

/// The folder of a data directory for files whose content a crash may take.
pub fn scratch_dir(dir: &Path) -> PathBuf {
    dir.join("scratch")
}

impl EngineState {
    #[expect(clippy::too_many_arguments, reason = "the parts of an engine, each made by another step of opening")]
    pub fn new(
        options: Options,
        dir: &Path,
        trail: Trail,
        manifest: Manifest,
        local: Option<CheckpointFile>,
        retention: Retention,
        tasks: Tasks,
        keeps_trail: bool,
    ) -> EngineState {
        let epoch = trail.epoch();
        let follow = options.standby.then(Follow::default);
        let visible = VisibleList::new(manifest.clone());
        let catalog = Catalog { manifest, checkpoints: BTreeMap::new() };
        EngineState {
            wide_caches: WideCaches::new(options.memory_bytes_max),
            options,
            dir: dir.to_owned(),
            trail,
            epoch,
            stats: Stats::default(),
            redo: Arc::default(),
            retention,
            archiving: Archiving::default(),
            locks: Arc::default(),
            gate: Gate::default(),
            tasks,
            checkpointer: Signal::default(),
            follow,
            checkpoint_file: Mutex::new(local),
            delay: OnceLock::new(),
            keeps_trail,
            lifecycle: Mutex::default(),
            cataloguing: Mutex::default(),
            dropping: Mutex::default(),
            listing: Mutex::default(),
            preparing: Mutex::default(),
            large_branches: Semaphore::default(),
            prewriting: Semaphore::default(),
            deposed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            clock: Mutex::default(),
            clock_kept: Mutex::default(),
            visible,
            shown: Mutex::default(),
            catalog: Mutex::new(catalog),
            on_abandoned: OnceLock::new(),
        }
    }

    /// Begins with the clock of a start: the latest reading in the trail, or the one that was kept of what is recycled.
    /// `written_unix_ms`: of the trail's newest boxcar. A directory of an earlier release has nothing else.
    pub fn begin_clock(&self, found: Hlc, written_unix_ms: u64) -> Result<(), OpenError> {
        let kept = clock_file::read(&*self.options.disk, &self.dir)?;
        *self.clock_kept.lock() = kept.unwrap_or_default();
        *self.clock.lock() = match kept {
            Some(kept) => found.max(kept),
            None if found == Hlc::default() => Hlc::last_of(written_unix_ms),
            None => found,
        };
        Ok(())
    }

    /// Keeps the clock's reading on disk, before the trail recycles the commits that show it.
    pub fn keep_clock(&self) -> io::Result<()> {
        let clock = *self.clock.lock();
        let mut kept = self.clock_kept.lock();
        if clock > *kept {
            clock_file::write(&*self.options.disk, &self.dir, clock)?;
            *kept = clock;
        }
        Ok(())
    }

    /// The next reading of the hybrid logical clock.
    pub fn now(&self) -> Hlc {
        let mut clock = self.clock.lock();
        *clock = clock.next(self.options.clock.unix_ms());
        *clock
    }

    /// Stops answers and writes from here on; ends the process unless a test examines what it leaves.
    pub fn fail(&self, why: &str) {
        (self.options.on_failure)(why);
        self.abandon();
    }

    /// Lets a batch through the gate, now or later, see [`Gate::pass`].
    pub fn pass(&self, end: Lsn, level: Level, then: impl FnOnce() + Send + 'static) {
        if !self.gate.pass(end, level, then) {
            self.abandon();
        }
    }

    /// Lets readers see what ends at `end` in the trail. Called in the trail's order; `show` must not block.
    pub fn show(&self, end: Lsn, show: impl FnOnce()) {
        let mut shown = self.shown.lock();
        show();
        *shown = shown.max(end);
    }

    /// No commit waits for a standby from now on.
    pub fn close_gate(&self) {
        if !self.gate.close() {
            self.abandon();
        }
    }

    /// Drops the answers that wait for something that will not happen.
    pub fn abandon(&self) {
        self.failed.store(true, Ordering::Release);
        self.visible.wake();
        if let Some(tell) = self.on_abandoned.get() {
            tell();
        }
    }

    /// The list of databases as it is on disk.
    pub fn manifest(&self) -> Manifest {
        self.catalog.lock().manifest.clone()
    }

    /// No database is created or dropped while the guard lives.
    pub fn cataloguing(&self) -> MutexGuard<'_, ()> {
        self.cataloguing.lock()
    }

    /// Records that a checkpoint record was written at `lsn`.
    pub fn listed(&self, checkpoint: Checkpoint, lsn: Lsn) {
        self.catalog.lock().checkpoints.insert(checkpoint.volume, (checkpoint, lsn));
    }

    /// Last checkpoints whose record is below `lsn`.
    pub fn listed_below(&self, lsn: Lsn) -> Vec<Checkpoint> {
        let state = self.catalog.lock();
        state.checkpoints.values().filter(|(_, at)| *at < lsn).map(|(c, _)| *c).collect()
    }

    /// Where the oldest of the volumes' last checkpoint records is.
    pub fn oldest_listing(&self) -> Option<Lsn> {
        self.catalog.lock().checkpoints.values().map(|(_, at)| *at).min()
    }

    fn limits(&self) -> Limits {
        Limits { memory_bytes_max: self.options.memory_bytes_max, scratch_bytes_max: self.options.scratch_bytes_max }
    }

    pub fn scratch_dir(&self) -> PathBuf {
        scratch_dir(&self.dir)
    }

    pub fn last_checkpoint(&self, id: VolumeId) -> Option<Checkpoint> {
        self.catalog.lock().checkpoints.get(&id).map(|(c, _)| *c)
    }

    /// Changes the list of databases, here and on disk.
    pub fn change_list(&self, change: impl FnOnce(&mut Manifest)) -> SqlResult<()> {
        let mut state = self.catalog.lock();
        let mut manifest = state.manifest.clone();
        change(&mut manifest);
        manifest
            .write(&*self.options.disk, &self.dir)
            .map_err(|e| SqlError::new(SqlState::IO_ERROR, format!("cannot write the list of databases: {e}")))?;
        state.manifest = manifest;
        Ok(())
    }

    /// Records that transactions are prepared in this volume: from now on every start opens it.
    pub fn list_as_preparing(&self, id: VolumeId) -> SqlResult<()> {
        let mut state = self.catalog.lock();
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
        let entry = self.catalog.lock().manifest.databases.iter().find(|e| e.volume() == id).cloned();
        let entry = entry.ok_or_else(|| SqlError::internal("the database was dropped"))?;
        self.open_volume(&entry).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))
    }

    pub fn open_volume(&self, entry: &Entry) -> Result<Volume, VolumeError> {
        let path = self.dir.join(&entry.file);
        Volume::open(&*self.options.disk, &path, &self.scratch_dir(), entry.volume(), self.limits())
    }

    /// The number of a transaction in the trail; its epoch shows which transactions are dead.
    pub fn next_txn(&self) -> TxnId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        TxnId(u64::from(self.epoch.0) << 32 | NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The part of the redo limit that is used up, by time or bytes.
    pub fn redo_used(&self) -> f64 {
        self.redo_used_by(self.redo.time_us.load(Ordering::Relaxed))
    }

    /// Part of the redo limit that is used up, without the time of large transactions: to slow others down does not make those shorter.
    pub fn redo_used_by_small(&self) -> f64 {
        let large_us = self.redo.large_time_us.load(Ordering::Relaxed);
        self.redo_used_by(self.redo.time_us.load(Ordering::Relaxed).saturating_sub(large_us))
    }

    fn redo_used_by(&self, time_us: u64) -> f64 {
        let time = time_us as f64 / self.options.redo_time_max.as_micros() as f64;
        let bytes = self.redo.bytes.load(Ordering::Relaxed) as f64 / self.options.redo_bytes_max as f64;
        time.max(bytes)
    }

    /// Refuses a change on a standby.
    pub fn refuse_on_standby(&self, what: &str) -> SqlResult<()> {
        if self.follow.is_none() {
            return Ok(());
        }
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message)
            .with_hint("This server is a standby; send changes to its master."))
    }

    /// Records checkpoints of a standby's own volumes in its file.
    pub fn list_locally(&self, follow: &Follow, checkpoints: &[Checkpoint]) {
        let mut local = self.checkpoint_file.lock();
        let Some(local) = local.as_mut() else { return };
        for checkpoint in checkpoints {
            let of_copy = local.volumes.get(&checkpoint.volume).filter(|v| v.end == Lsn(0));
            let end = match of_copy {
                // Still the file of the base copy, perhaps ahead of the trail.
                Some(copied) if copied.checkpoint.number == checkpoint.number => Lsn(0),
                _ => follow.end_of(checkpoint.volume, checkpoint.number),
            };
            local.volumes.insert(checkpoint.volume, LocalCheckpoint { checkpoint: *checkpoint, end });
        }
        // Everything that the applying thread has processed, so that a restart need not process it again.
        local.listed_to = local.listed_to.max(self.redo.counted_to());
        let written = local.write(&*self.options.disk, &self.dir);
        follow.state.lock().unwritten = written.is_err();
        match written {
            Ok(()) => {
                let mut state = self.catalog.lock();
                checkpoints.iter().for_each(|c| _ = state.checkpoints.insert(c.volume, (*c, Lsn(u64::MAX))));
            }
            Err(e) => {
                tracing::error!(target: "holdfast::apply", "the standby's checkpoints cannot be recorded; its trail keeps everything: {e}")
            }
        }
    }
}
