//! Opening a data directory: recovery, and what an interrupted start has left to do.
//!
//! | the directory | opened as | then |
//! |---|---|---|
//! | new, or a master's | master | recovered and served |
//! | a standby's, all of its base copy applied | master, with an epoch to begin at least with | promoted: everything received is redone |
//! | a standby's | master, without | refused: a standby is promoted, not started |
//! | a standby's | standby | what was received is applied, but for what may not have been durable at the master |
//! | a master's | standby | its own checkpoints are noted in the file `checkpoints`; it follows from then on |
//! | new | standby | refused: a base copy makes a standby |

use super::*;
use crate::recovery::Survey;
use holdfast_trail::{Inspection, TrailError};

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

/// A standby's directory that is started as a master's by mistake would be one of two masters.
fn refuse_role(options: &Options, local: Option<&Local>, dir: &Path) -> Result<(), OpenError> {
    let promoted = options.epoch_min > Epoch(0);
    match local {
        Some(local) if local.is_standby() && !options.standby && !promoted => {
            Err(OpenError::Standby { path: dir.display().to_string() })
        }
        _ => Ok(()),
    }
}

/// What can be known before a promotion raises the epoch, which deposes the master; returns the epoch so far.
fn refuse_promotion(disk: &dyn holdfast_seams::Disk, dir: &Path, standby: &Local) -> Result<Epoch, OpenError> {
    let trail = dir.join("trail");
    let found = Inspection::of(disk, &trail)?.ok_or(TrailError::NothingToFollow { dir: trail })?;
    standby.refuse_ahead(dir, found.end)?;
    standby.refuse_not_whole(dir, found.end)?;
    Ok(found.epoch)
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "the parts of an engine, each made by another step of opening")]
    fn new(
        options: Options,
        dir: &Path,
        trail: Trail,
        manifest: Manifest,
        local: Option<Local>,
        floor: Floor,
        tasks: Tasks,
        keeps_trail: bool,
    ) -> Shared {
        let epoch = trail.epoch();
        let follow = options.standby.then(Follow::default);
        let shown = Shown::new(manifest.clone());
        let state = State { manifest, open: BTreeMap::new(), checkpoints: BTreeMap::new(), closed: false };
        Shared {
            options,
            dir: dir.to_owned(),
            trail,
            epoch,
            stats: Stats::default(),
            redo: Arc::default(),
            floor,
            archiving: Archiving::default(),
            locks: Arc::default(),
            gate: Gate::default(),
            tasks,
            checkpointer: Signal::default(),
            follow,
            local: Mutex::new(local),
            delay: OnceLock::new(),
            keeps_trail,
            lifecycle: Mutex::default(),
            cataloguing: Mutex::default(),
            dropping: Mutex::default(),
            listing: Mutex::default(),
            preparing: Mutex::default(),
            large_branches: Places::default(),
            sending_ahead: Places::default(),
            deposed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            clock: Mutex::default(),
            shown,
            state: Mutex::new(state),
        }
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
        let local = Local::read(&*disk, dir)?;
        refuse_role(&options, local.as_ref(), dir)?;
        let Some(standby) = local.as_ref().filter(|local| local.is_standby() && !options.standby) else {
            return Engine::open_as(dir, options, local, aside);
        };
        let before = refuse_promotion(&*disk, dir, standby)?;
        Engine::open_as(dir, options, local, aside).inspect_err(|_| {
            // Its standbys' master would be deposed by an epoch that nobody begins.
            if let Err(e) = Trail::withdraw_epoch(&*disk, &dir.join("trail"), before) {
                tracing::error!("the epoch of a promotion that has failed cannot be withdrawn: {e}");
            }
        })
    }

    fn open_as(
        dir: &Path,
        options: Options,
        local: Option<Local>,
        aside: Option<VolumeId>,
    ) -> Result<Engine, OpenError> {
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
            None if !options.standby && (recovered.fresh || !holds_records(&trail, &recovered)?) => {
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
        let floor = Floor::read(&*disk, dir)?;
        if options.archive.is_some() {
            let begun = floor.lock().begin_archive(&*disk, dir, (recovered.first, recovered.end));
            begun.map_err(io("note the archive's position in"))?;
        }
        let tasks = Tasks::start().map_err(io("start a thread for"))?;
        let shared = Arc::new(Shared::new(options, dir, trail, manifest, local, floor, tasks, aside.is_some()));
        failing.get_or_init(|| Arc::downgrade(&shared));
        let engine = Engine(Arc::new(EngineInner { shared, threads: Mutex::default(), recovered }));
        if engine.is_standby() {
            // Before the thread of applying makes files.
            engine.remove_orphans().map_err(io("clean up"))?;
            engine.begin_to_follow()?;
            engine.start_checkpointer().map_err(io("start a thread for"))?;
            return Ok(engine);
        }
        engine.0.shared.redo.tell(engine.0.recovered.end);
        engine.take_over()?;
        engine.recover(aside).map_err(OpenError::or_cause)?;
        engine.remove_orphans().map_err(io("clean up"))?;
        if unfinished {
            engine.create_initial()?;
        }
        engine.open_preparing(aside);
        // Looked at before anybody can write, and from then on by the checkpointer.
        engine.0.shared.look_at_archive();
        engine.start_checkpointer().map_err(io("start a thread for"))?;
        Ok(engine)
    }

    fn recover(&self, aside: Option<VolumeId>) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let mut manifest = shared.state.lock().manifest.clone();
        manifest.databases.retain(|e| Some(e.volume()) != aside);
        let local = shared.local.lock().clone();
        let found = recovery::survey(&shared.trail, self.0.recovered.first, &manifest, local.as_ref())?;
        *shared.clock.lock() = found.clock;
        shared.state.lock().checkpoints = found.checkpoints.clone();
        manifest.databases.retain(|e| !found.dropped.contains(&e.volume()));
        for redone in recovery::redo(&shared.trail, &manifest.databases, &found, |e| shared.open_volume(e))? {
            let entry = redone.entry.clone();
            shared.list_again(&redone);
            self.serve(&entry, redone)?;
        }
        self.look_at_changed_files(&manifest)?;
        self.finish_cataloguing(&found, aside)
    }

    /// What a crash interrupted between the trail and the list of databases. The trail is right about what ends and
    /// about parameters; a database that is only in the trail was never there, and that is said to whoever follows it.
    fn finish_cataloguing(&self, found: &Survey, aside: Option<VolumeId>) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        let mut body = Vec::new();
        let mut state = shared.state.lock();
        let mut manifest = state.manifest.clone();
        manifest.databases.retain(|e| !found.dropped.contains(&e.volume()) || Some(e.volume()) == aside);
        for (of, parameters) in &found.parameters {
            manifest.set_parameters(of, parameters.clone());
        }
        for id in &found.unlisted {
            manifest.next_id = manifest.next_id.max(id.0 + 1);
            put_volume_drop(&mut body, *id);
        }
        if manifest != state.manifest {
            let written = manifest.write(&*shared.options.disk, &shared.dir);
            written.map_err(|source| OpenError::Io {
                what: "write",
                path: shared.dir.display().to_string(),
                source,
            })?;
            found.dropped.iter().for_each(|id| _ = state.checkpoints.remove(id));
            shared.shown.replace(manifest.clone());
            state.manifest = manifest;
        }
        drop(state);
        if body.is_empty() { Ok(()) } else { Ok(self.log(body, Level::Cold, || {}).map(drop)?) }
    }

    /// A file whose size or time is not as recorded is looked at now and not when somebody asks for it: another program
    /// may have changed it (RULE 13). One look at each file's directory entry; nothing is opened that is as it was.
    pub(super) fn look_at_changed_files(&self, manifest: &Manifest) -> Result<(), OpenError> {
        let shared = &self.0.shared;
        for entry in &manifest.databases {
            let open = shared.state.lock().open.contains_key(&entry.volume());
            let path = shared.dir.join(&entry.file);
            let Ok(stamp) = stamp_of(&*shared.options.disk, &path) else { continue };
            let recorded =
                shared.last_checkpoint(entry.volume()).map(|c| (c.file_size_bytes, i128::from(c.file_mtime_ns)));
            if open || recorded == Some((stamp.bytes, stamp.modified_unix_ns)) {
                continue;
            }
            if shared.follow.is_some() {
                follow::open_volume(shared, entry)?;
                continue;
            }
            let redone = recovery::open_clean(shared, entry, None)?;
            shared.list_again(&redone);
            self.serve(entry, redone)?;
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
                // No standby can be there to wait for.
                self.create_database(&name, dialect, Level::Cold)?;
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

    /// Starts MAIN on an opened volume.
    pub(super) fn serve(&self, entry: &Entry, redone: Redone) -> Result<Database, OpenError> {
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
}

fn trail_options(dir: &Path, options: &Options) -> TrailOptions {
    TrailOptions {
        segment_bytes: options.segment_bytes,
        boxcar_bytes_max: (options.segment_bytes / 4).min(16 << 20),
        kept_back_bytes: (options.segment_bytes / 4).min(1 << 20),
        sync_method: options.sync_method,
        commit_delay: options.commit_delay,
        follow: options.standby,
        epoch_min: options.epoch_min,
        ..TrailOptions::new(dir.join("trail"))
    }
}
