//! CREATE DATABASE, DROP DATABASE, and adopting a file: each is a record in the trail and a file, in an order that a
//! crash may interrupt anywhere.

use super::shown::Change;
use super::*;
use crossbeam_channel::Receiver;
use holdfast_seams::Disk;
use holdfast_store::volume::Stamp;

impl Engine {
    /// Makes an empty database. It is seen, and this returns, when it has reached `level`.
    pub fn create_database(&self, name: &str, dialect: Dialect, level: Level) -> SqlResult<()> {
        self.adopt(name, dialect, level, None, |path, id| {
            create_empty(&*self.0.shared.options.disk, path, id).map_err(|e| e.to_string())
        })
    }

    /// Makes a database whose file `build` puts at the given path: complete, sealed and synced. What is in it is not in
    /// the trail. In the place of `replaced`, where given, which must not be open: its history ends.
    pub(crate) fn adopt(
        &self,
        name: &str,
        dialect: Dialect,
        level: Level,
        replaced: Option<VolumeId>,
        build: impl FnOnce(&Path, VolumeId) -> Result<(), String>,
    ) -> SqlResult<()> {
        check_name(name)?;
        let shared = &self.0.shared;
        shared.refuse_on_standby("CREATE DATABASE")?;
        self.refuse_taken(name, replaced)?;
        // A reserved id is lost when the build fails: ids are never reused.
        let entry = {
            let mut state = shared.state.lock();
            let entry = state.manifest.add(name, dialect);
            state.manifest.databases.pop();
            entry
        };
        let path = shared.dir.join(&entry.file);
        build(&path, entry.volume()).map_err(|e| SqlError::new(SqlState::IO_ERROR, e))?;
        let stamp =
            stamp_of(&*shared.options.disk, &path).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        let passed = loop {
            let one_at_a_time = shared.cataloguing.lock();
            if self.taken(name, replaced).is_none() {
                break self.list_created(entry, stamp, level, replaced)?;
            }
            // Somebody was faster. The file belongs to nobody then, and the next start removes it.
            drop(one_at_a_time);
            self.refuse_taken(name, replaced)?;
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The database in the list on disk that has this name.
    fn taken(&self, name: &str, replaced: Option<VolumeId>) -> Option<VolumeId> {
        let state = self.0.shared.state.lock();
        let found = state.manifest.databases.iter().find(|e| e.name == name && Some(e.volume()) != replaced);
        found.map(Entry::volume)
    }

    /// A name that is taken by a database on its way is refused when that one is seen: not before, for it may be lost.
    fn refuse_taken(&self, name: &str, replaced: Option<VolumeId>) -> SqlResult<()> {
        let shared = &self.0.shared;
        match self.taken(name, replaced) {
            None => Ok(()),
            Some(id) if shared.shown.wait_for(id, &shared.failed) => Err(duplicate_database(name)),
            Some(_) => Err(stopped()),
        }
    }

    /// The record, the file's checkpoint, and the place in the list of databases of one whose file is complete.
    fn list_created(
        &self,
        entry: Entry,
        stamp: Stamp,
        level: Level,
        replaced: Option<VolumeId>,
    ) -> SqlResult<Receiver<()>> {
        let shared = &self.0.shared;
        let mut body = Vec::new();
        put_volume_create(&mut body, entry.volume(), entry.dialect.into(), &entry.name);
        let put = {
            let entry = entry.clone();
            move |manifest: &mut Manifest| {
                manifest.databases.retain(|e| Some(e.volume()) != replaced);
                manifest.databases.push(entry);
            }
        };
        let change = shared.shown.change(put.clone());
        let passed = self.log_change(body, level, &change)?;
        checkpointer::log(
            shared,
            &[Checkpoint {
                volume: entry.volume(),
                number: 0,
                redo_start: shared.trail.durable(),
                file_size_bytes: stamp.bytes,
                file_mtime_ns: stamp.modified_unix_ns as i64,
            }],
        );
        let old = shared.state.lock().manifest.databases.iter().find(|e| Some(e.volume()) == replaced).cloned();
        self.change_list(put)?;
        change.is_listed();
        let Some(old) = old else { return Ok(passed) };
        let mut body = Vec::new();
        put_volume_drop(&mut body, old.volume());
        let passed = self.log(body, level, || {})?;
        remove_files(shared, &old);
        Ok(passed)
    }

    /// Changes the list of databases, here and on disk.
    pub(super) fn change_list(&self, change: impl FnOnce(&mut Manifest)) -> SqlResult<()> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        let mut manifest = state.manifest.clone();
        change(&mut manifest);
        manifest
            .write(&*shared.options.disk, &shared.dir)
            .map_err(|e| SqlError::new(SqlState::IO_ERROR, format!("cannot write the list of databases: {e}")))?;
        state.manifest = manifest;
        Ok(())
    }

    /// Removes a database and its file. The caller sees to it that nobody uses it. It is gone, and this returns, when
    /// that has reached `level`. Blocks: what was committed there last reaches its level first.
    pub fn drop_database(&self, name: &str, level: Level) -> SqlResult<()> {
        let shared = &self.0.shared;
        shared.refuse_on_standby("DROP DATABASE")?;
        self.refuse_prepared(name)?;
        let _one_at_a_time = shared.dropping.lock();
        let id = shared.shown.list().databases.iter().find(|e| e.name == name).map(Entry::volume);
        let id = id.ok_or_else(|| no_such_database(name))?;
        let passed = loop {
            // Without a lock: a base copy, and whoever opens another database, must not wait for a standby.
            let main = shared.state.lock().open.get_mut(&id).map(|o| (o.inner.clone(), o.main.take()));
            main.into_iter().for_each(|(inner, main)| _ = stop_main(main, inner));
            let _no_opening = shared.lifecycle.lock();
            let mut state = shared.state.lock();
            if state.closed {
                return Err(stopped());
            }
            // Somebody has opened it meanwhile.
            if state.open.get_mut(&id).is_some_and(|o| o.main.is_some()) {
                continue;
            }
            drop(state);
            let _one_change = shared.cataloguing.lock();
            break self.list_dropped(id, name, level)?;
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The record first: a crash behind it is put right by the next start, which takes the database off the list.
    fn list_dropped(&self, id: VolumeId, name: &str, level: Level) -> SqlResult<Receiver<()>> {
        let shared = &self.0.shared;
        let entry = shared.state.lock().manifest.databases.iter().find(|e| e.volume() == id).cloned();
        let entry = entry.ok_or_else(|| being_dropped(name))?;
        // It stays open until its end is durable: its redo holds the trail's floor.
        let stopped = shared.state.lock().open.get(&id).map(|o| o.inner.clone());
        if let Some(inner) = &stopped {
            // A checkpoint under way would list the database again.
            let _no_checkpoint = inner.checkpointing.lock();
            inner.dropped.store(true, Ordering::Relaxed);
        }
        let mut body = Vec::new();
        put_volume_drop(&mut body, id);
        let end = move |manifest: &mut Manifest| manifest.databases.retain(|e| e.volume() != id);
        let change = shared.shown.change(end);
        let passed = self.log_change(body, level, &change)?;
        self.change_list(end)?;
        change.is_listed();
        {
            let mut state = shared.state.lock();
            state.checkpoints.remove(&id);
            state.open.remove(&id);
        }
        stopped.iter().for_each(|inner| inner.redo.settled(u64::MAX));
        remove_files(shared, &entry);
        Ok(passed)
    }

    /// A prepared transaction must be able to end: its database stays. One that cannot be opened may go.
    fn refuse_prepared(&self, name: &str) -> SqlResult<()> {
        let count = self.database(name).map_or(0, |db| db.inner().prepared.lock().len());
        if count == 0 {
            return Ok(());
        }
        let message = format!("database \"{name}\" is being used by prepared transactions");
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message)
            .with_detail(format!("There are {count} prepared transactions using the database."))
            .with_hint("pg_prepared_xacts lists them; end each with COMMIT PREPARED or ROLLBACK PREPARED."))
    }

    /// [`Engine::log`] of a change of the list of databases.
    pub(super) fn log_change(&self, body: Vec<u8>, level: Level, change: &Arc<Change>) -> SqlResult<Receiver<()>> {
        let change = change.clone();
        self.log(body, level, move || change.has_passed())
    }

    /// Appends a record of the server's own; it is durable here when this returns. `then` runs when it has passed the gate,
    /// and what is returned hears of that.
    pub(super) fn log(
        &self,
        body: Vec<u8>,
        level: Level,
        then: impl FnOnce() + Send + 'static,
    ) -> SqlResult<Receiver<()>> {
        let (sender, durable) = crossbeam_channel::bounded(1);
        let (passes, passed) = crossbeam_channel::bounded(1);
        let shared = self.0.shared.clone();
        let pass = move || {
            then();
            passes.send(()).unwrap_or_default();
        };
        let on_durable = move |span: Span| {
            sender.send(()).unwrap_or_default();
            shared.redo.tell(span.start);
            shared.pass(span.end, level, pass);
        };
        self.0
            .shared
            .trail
            .append_kept(body, Box::new(on_durable))
            .map_err(|e| SqlError::new(SqlState::DISK_FULL, e.to_string()))?;
        durable.recv().map_err(|_| stopped())?;
        Ok(passed)
    }
}

pub(super) fn stopped() -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, "the trail is closed, or the server is stopping")
}

/// Makes the file of a volume that has nothing but what every volume has.
pub(super) fn create_empty(disk: &dyn Disk, path: &Path, id: VolumeId) -> Result<(), VolumeError> {
    volume::create(disk, path, id, |conn| {
        create_internal_tables(conn, id).map(drop).map_err(|e| SqliteError {
            code: ffi::SQLITE_ERROR,
            message: e.to_string(),
            offset: None,
        })
    })
}

/// Removes the files of a volume that is no longer listed.
pub(super) fn remove_files(shared: &Shared, entry: &Entry) {
    let path = shared.dir.join(&entry.file);
    for file in [path.clone(), holdfast_store::checkpoint::wal_path(&path)] {
        if let Err(e) = shared.options.disk.remove(&file)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), "cannot remove, the next start will: {e}");
        }
    }
}

fn duplicate_database(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_DATABASE, format!("database \"{name}\" already exists"))
}

/// Of one that is still seen: its end is in the trail, and may yet be lost.
pub(super) fn being_dropped(name: &str) -> SqlError {
    SqlError::new(SqlState::OBJECT_IN_USE, format!("database \"{name}\" is being dropped"))
}

pub(super) fn no_such_database(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}

/// PostgreSQL's limit on names.
const NAME_BYTES_MAX: usize = 63;

pub(super) fn check_name(name: &str) -> SqlResult<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let message = format!("a database name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(())
}
