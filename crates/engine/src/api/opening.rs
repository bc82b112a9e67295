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

use crate::api::database::Database;
use crate::api::engine::{Engine, EngineInner};
use crate::api::new_history::RESTORING;
use crate::background::checkpointer;
use crate::background::follow::start;
use crate::background::recovery::{self, Redone, Survey};
use crate::route::one_message;
use crate::state::checkpoint_file::CheckpointFile;
use crate::state::database::DatabaseState;
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::manifest::{Entry, Manifest, Owner};
use crate::state::options::Options;
use crate::state::registry::{Open, Registry};
use crate::state::retention::Retention;
use crate::state::tasks::Tasks;
use crate::writer;
use holdfast_store::sqlite::check_flags;
use holdfast_trail::{Inspection, Recovered, Trail, TrailError, TrailOptions};
use holdfast_types::record::put_volume_drop;
use holdfast_types::{Epoch, Level, SqlError, SqlState, VolumeId};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

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
fn refuse_role(options: &Options, local: Option<&CheckpointFile>, dir: &Path) -> Result<(), OpenError> {
    let promoted = options.epoch_min > Epoch(0);
    match local {
        Some(local) if local.is_standby() && !options.standby && !promoted => {
            Err(OpenError::Standby { path: dir.display().to_string() })
        }
        _ => Ok(()),
    }
}

/// Whether the directory holds a restore that did not complete.
fn is_restoring(disk: &dyn holdfast_seams::Disk, dir: &Path) -> Result<bool, OpenError> {
    let path = dir.join(RESTORING);
    let found = disk.metadata(&path);
    let io = |source| OpenError::Io { what: "look at", path: path.display().to_string(), source };
    Ok(found.map_err(io)?.is_some())
}

/// What can be known before a promotion raises the epoch, which deposes the master; returns the epoch so far.
fn refuse_promotion(options: &Options, dir: &Path, standby: &CheckpointFile) -> Result<Epoch, OpenError> {
    let (disk, trail) = (&*options.disk, dir.join("trail"));
    let known = options.closed.map_or(Ok(None), |closed| closed.tip(disk, &trail))?;
    let (epoch, end) = match known {
        Some(tip) => tip,
        None => {
            let found = Inspection::of(disk, &trail)?.ok_or(TrailError::NothingToFollow { dir: trail })?;
            (found.epoch, found.end)
        }
    };
    standby.refuse_ahead(dir, end)?;
    standby.refuse_not_whole(dir, end)?;
    Ok(epoch)
}

impl Engine {
    /// Opens a data directory, making it when it does not exist, and recovers it.
    pub fn open(dir: &Path, options: Options) -> Result<Engine, OpenError> {
        Engine::open_setting_aside(dir, options, None)
    }

    /// Opens a data directory, but leaves one database as it is, unrecovered and unserved, and keeps all of the trail: that database
    /// was changed by another program, which would keep the directory shut, and its file is about to be adopted.
    pub(crate) fn open_setting_aside(
        dir: &Path,
        options: Options,
        aside: Option<VolumeId>,
    ) -> Result<Engine, OpenError> {
        check_flags()?;
        let disk = options.disk.clone();
        if !options.restoring && is_restoring(&*disk, dir)? {
            return Err(OpenError::Restoring { path: dir.display().to_string() });
        }
        let local = CheckpointFile::read(&*disk, dir)?;
        refuse_role(&options, local.as_ref(), dir)?;
        let Some(standby) = local.as_ref().filter(|local| local.is_standby() && !options.standby) else {
            return Engine::open_as(dir, options, local, aside);
        };
        let before = refuse_promotion(&options, dir, standby)?;
        Engine::open_as(dir, options, local, aside).inspect_err(|_| {
            // Its standbys' master would be deposed by an epoch in which no master begins.
            if let Err(e) = Trail::withdraw_epoch(&*disk, &dir.join("trail"), before) {
                tracing::error!("the epoch of a promotion that has failed cannot be withdrawn: {e}");
            }
        })
    }

    fn open_as(
        dir: &Path,
        options: Options,
        local: Option<CheckpointFile>,
        aside: Option<VolumeId>,
    ) -> Result<Engine, OpenError> {
        let disk = options.disk.clone();
        let io = |what| move |source| OpenError::Io { what, path: dir.display().to_string(), source };
        for sub in ["", "volumes", "scratch"] {
            disk.create_dir(&dir.join(sub)).map_err(io("create"))?;
        }
        let failing = Arc::new(OnceLock::<Weak<EngineState>>::new());
        let began = Instant::now();
        let (trail, recovered) = {
            let failing = failing.clone();
            let fail = options.on_failure.clone();
            let mut trail = trail_options(dir, &options);
            trail.on_failure = Arc::new(move |failure| {
                fail(&format!("cannot {} {}: {}", failure.what, failure.file.display(), failure.error));
                failing.get().and_then(Weak::upgrade).into_iter().for_each(|engine| engine.abandon());
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
                let path = crate::state::manifest::path(dir).display().to_string();
                let message = "missing, but the directory has a trail; put back a copy of it".to_owned();
                return Err(OpenError::Manifest { path, message });
            }
        };
        let unfinished = manifest.unfinished;
        let floor = Retention::read(&*disk, dir)?;
        if options.archive.is_some() {
            let begun = floor.lock().begin_archive(&*disk, dir, (recovered.first, recovered.end));
            begun.map_err(io("note the archive's position in"))?;
        }
        let tasks = Tasks::start(options.branch_statements_max).map_err(io("start a thread for"))?;
        let engine = Arc::new(EngineState::new(options, dir, trail, manifest, local, floor, tasks, aside.is_some()));
        failing.get_or_init(|| Arc::downgrade(&engine));
        let registry = Arc::new(Registry::default());
        let open = Arc::downgrade(&registry);
        let drop_answers = move || open.upgrade().into_iter().for_each(|registry| registry.drop_answers());
        engine.on_abandoned.get_or_init(|| Box::new(drop_answers));
        let engine = Engine(Arc::new(EngineInner { engine, registry, threads: Mutex::default(), recovered }));
        // Everything that was found is shown when the databases are open.
        *engine.0.engine.shown.lock() = engine.0.recovered.end;
        if engine.is_standby() {
            // Before the thread of applying makes files.
            engine.remove_orphans().map_err(io("clean up"))?;
            let (found, recovered) = (&engine.0, &engine.0.recovered);
            let apply = start::begin(&found.engine, &found.registry, (recovered.first, recovered.end))?;
            engine.0.threads.lock().push(apply);
            engine.start_checkpointer().map_err(io("start a thread for"))?;
            return Ok(engine);
        }
        engine.0.engine.redo.appended(engine.0.recovered.end);
        start::take_over(&engine.0.engine, &engine.0.registry, (engine.0.recovered.first, engine.0.recovered.end))?;
        let trail_ms = began.elapsed().as_millis();
        engine.recover(aside).map_err(OpenError::or_cause)?;
        tracing::debug!(trail_ms, took_ms = began.elapsed().as_millis(), "recovered");
        engine.remove_orphans().map_err(io("clean up"))?;
        if unfinished {
            engine.create_initial()?;
        }
        engine.open_preparing(aside);
        // Looked at before anybody can write, and from then on by the checkpointer.
        engine.0.engine.check_archive();
        engine.start_checkpointer().map_err(io("start a thread for"))?;
        Ok(engine)
    }

    fn recover(&self, aside: Option<VolumeId>) -> Result<(), OpenError> {
        let engine = &self.0.engine;
        let mut manifest = engine.catalog.lock().manifest.clone();
        manifest.databases.retain(|e| Some(e.volume()) != aside);
        let local = engine.checkpoint_file.lock().clone();
        let found = recovery::survey(&engine.trail, self.0.recovered.first, &manifest, local.as_ref())?;
        engine.begin_clock(found.clock, found.written_unix_ms)?;
        engine.catalog.lock().checkpoints = found.checkpoints.clone();
        manifest.databases.retain(|e| !found.dropped.contains(&e.volume()));
        for redone in recovery::redo(&engine.trail, &manifest.databases, &found, |e| engine.open_volume(e))? {
            let entry = redone.entry.clone();
            recovery::list_again(engine, &redone);
            self.serve(&entry, redone)?;
        }
        self.look_at_changed_files(&manifest)?;
        self.finish_cataloguing(&found, aside)
    }

    /// What a crash interrupted between the trail and the list of databases. The trail is right about what ends,
    /// about parameters and about roles; a database that is only in the trail was never there, and its standbys learn that.
    fn finish_cataloguing(&self, found: &Survey, aside: Option<VolumeId>) -> Result<(), OpenError> {
        let engine = &self.0.engine;
        let mut body = Vec::new();
        let mut state = engine.catalog.lock();
        let mut manifest = state.manifest.clone();
        manifest.databases.retain(|e| !found.dropped.contains(&e.volume()) || Some(e.volume()) == aside);
        for (of, parameters) in &found.parameters {
            manifest.set_parameters(of, parameters.clone());
        }
        for (oid, role) in &found.roles {
            match role {
                Some(role) => manifest.set_role(role),
                None => manifest.remove_role(*oid),
            }
        }
        found.access.iter().for_each(|(id, access)| manifest.set_access(*id, access));
        for id in &found.unlisted {
            manifest.next_id = manifest.next_id.max(id.0 + 1);
            put_volume_drop(&mut body, *id);
        }
        if manifest != state.manifest {
            let written = manifest.write(&*engine.options.disk, &engine.dir);
            written.map_err(|source| OpenError::Io {
                what: "write",
                path: engine.dir.display().to_string(),
                source,
            })?;
            found.dropped.iter().for_each(|id| _ = state.checkpoints.remove(id));
            engine.visible.replace(manifest.clone());
            state.manifest = manifest;
        }
        drop(state);
        if body.is_empty() { Ok(()) } else { Ok(self.log(body, Level::Local, || {}).map(drop)?) }
    }

    /// Opens the databases whose files another program may have changed (RULE 13), see [`recovery::changed_files`].
    fn look_at_changed_files(&self, manifest: &Manifest) -> Result<(), OpenError> {
        for entry in recovery::changed_files(&self.0.engine, &self.0.registry, manifest) {
            let redone = recovery::open_clean(&self.0.engine, &entry, None)?;
            recovery::list_again(&self.0.engine, &redone);
            self.serve(&entry, redone)?;
        }
        Ok(())
    }

    /// Makes the databases of a new directory, those that an interrupted first start has not made. No client is served
    /// before the list says that all are there.
    fn create_initial(&self) -> Result<(), OpenError> {
        let engine = &self.0.engine;
        for (name, dialect) in engine.options.initial_databases.clone() {
            let listed = engine.catalog.lock().manifest.databases.iter().any(|entry| entry.name == name);
            if !listed {
                // No standby can be there to wait for.
                self.create_database(&name, dialect, Level::Local)?;
            }
        }
        let mut state = engine.catalog.lock();
        state.manifest.unfinished = false;
        let written = state.manifest.write(&*engine.options.disk, &engine.dir);
        written.map_err(|source| OpenError::Io { what: "write", path: engine.dir.display().to_string(), source })
    }

    /// Databases that may hold prepared transactions. One that cannot be opened reports that when a session asks for it.
    fn open_preparing(&self, aside: Option<VolumeId>) {
        let listed = self.0.engine.catalog.lock().manifest.databases.clone();
        for entry in listed.into_iter().filter(|e| e.prepares && Some(e.volume()) != aside) {
            if let Err(e) = self.database(&entry.name) {
                tracing::error!(database = entry.name, "cannot open it for its prepared transactions: {e}");
            }
        }
    }

    /// Files of databases whose creation or removal a crash interrupted.
    fn remove_orphans(&self) -> std::io::Result<()> {
        let engine = &self.0.engine;
        let disk = &engine.options.disk;
        let dir = engine.dir.join("volumes");
        let manifest = engine.catalog.lock().manifest.clone();
        for name in disk.list(&dir)?.into_iter().filter(|name| manifest.owner(name) == Owner::Orphan) {
            tracing::warn!(file = name, "removing a file of a database that does not exist");
            disk.remove(&dir.join(name))?;
        }
        Ok(())
    }

    fn start_checkpointer(&self) -> std::io::Result<()> {
        let (engine, registry) = (self.0.engine.clone(), self.0.registry.clone());
        let work = move || checkpointer::serve(&engine, &*registry);
        let thread = std::thread::Builder::new().name("checkpointer".into()).spawn(work)?;
        self.0.threads.lock().push(thread);
        Ok(())
    }

    /// Starts the writer on an opened volume.
    pub(crate) fn serve(&self, entry: &Entry, redone: Redone) -> Result<Database, OpenError> {
        let engine = &self.0.engine;
        let mut open = self.0.registry.lock();
        if let Some(found) = open.open.get(&entry.volume()) {
            return Ok(Database(found.database.clone()));
        }
        if open.closed {
            return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, "the server is stopping").into());
        }
        let Redone { volume, debt, .. } = redone;
        let database = DatabaseState::new(entry, engine.clone(), self.0.registry.peers(), volume);
        if let Some((number, start, time_us, bytes)) = debt {
            database.redo.add(number, start, time_us, bytes);
        }
        let thread = writer::start(&database, one_message::on_a_branch)?;
        open.open.insert(entry.volume(), Open { database: database.clone(), writer: Some(thread) });
        Ok(Database(database))
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
        closed: options.closed,
        ..TrailOptions::new(dir.join("trail"))
    }
}
