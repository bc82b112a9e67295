//! CREATE DATABASE, DROP DATABASE, and adopting a file: each is a record in the trail and a file, in an order that a
//! crash may interrupt anywhere.

use super::*;
use crossbeam_channel::Receiver;
use holdfast_seams::Disk;
use holdfast_store::volume::Stamp;

impl Engine {
    /// Makes an empty database.
    pub fn create_database(&self, name: &str, dialect: Dialect) -> SqlResult<()> {
        self.adopt_database(name, dialect, |path, id| {
            create_empty(&*self.0.shared.options.disk, path, id).map_err(|e| e.to_string())
        })
    }

    /// Makes a database whose file `build` puts at the given path: complete, sealed and synced.
    pub fn adopt_database(
        &self,
        name: &str,
        dialect: Dialect,
        build: impl FnOnce(&Path, VolumeId) -> Result<(), String>,
    ) -> SqlResult<()> {
        self.adopt(name, dialect, None, build)
    }

    /// The same, in the place of `replaced`, which must not be open: its history ends.
    pub(crate) fn adopt(
        &self,
        name: &str,
        dialect: Dialect,
        replaced: Option<VolumeId>,
        build: impl FnOnce(&Path, VolumeId) -> Result<(), String>,
    ) -> SqlResult<()> {
        check_name(name)?;
        let shared = &self.0.shared;
        shared.refuse_on_standby("CREATE DATABASE")?;
        // A reserved id is lost when the build fails: ids are never reused.
        let entry = {
            let mut state = shared.state.lock();
            if state.manifest.databases.iter().any(|e| e.name == name && Some(e.volume()) != replaced) {
                return Err(duplicate_database(name));
            }
            let entry = state.manifest.add(name, dialect);
            state.manifest.databases.pop();
            entry
        };
        let path = shared.dir.join(&entry.file);
        build(&path, entry.volume()).map_err(|e| SqlError::new(SqlState::IO_ERROR, e))?;
        let stamp =
            stamp_of(&*shared.options.disk, &path).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        let passed = {
            let _one_at_a_time = shared.cataloguing.lock();
            self.list_created(entry, stamp, replaced)?
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The record, the file's checkpoint, and the place in the list of databases of one whose file is complete.
    fn list_created(&self, entry: Entry, stamp: Stamp, replaced: Option<VolumeId>) -> SqlResult<Receiver<()>> {
        let shared = &self.0.shared;
        // Somebody may have been faster; the file belongs to nobody then, and the next start removes it.
        let taken = |e: &Entry| e.name == entry.name && Some(e.volume()) != replaced;
        if shared.state.lock().manifest.databases.iter().any(taken) {
            return Err(duplicate_database(&entry.name));
        }
        let mut body = Vec::new();
        put_volume_create(&mut body, entry.volume(), entry.dialect.into(), &entry.name);
        let passed = self.log(body)?;
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
        let mut old = None;
        self.change_list(|manifest| {
            let at = manifest.databases.iter().position(|e| Some(e.volume()) == replaced);
            old = at.map(|at| manifest.databases.remove(at));
            manifest.databases.push(entry);
        })?;
        match old {
            Some(old) => {
                let mut body = Vec::new();
                put_volume_drop(&mut body, old.volume());
                let passed = self.log(body)?;
                remove_files(shared, &old);
                Ok(passed)
            }
            None => Ok(passed),
        }
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

    /// Removes a database and its file. The caller sees to it that nobody uses it.
    pub fn drop_database(&self, name: &str) -> SqlResult<()> {
        let shared = &self.0.shared;
        shared.refuse_on_standby("DROP DATABASE")?;
        self.refuse_prepared(name)?;
        let passed = {
            let _no_opening = shared.lifecycle.lock();
            let _one_at_a_time = shared.cataloguing.lock();
            self.list_dropped(name)?
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The record first: a crash behind it is put right by the next start, which takes the database off the list.
    fn list_dropped(&self, name: &str) -> SqlResult<Receiver<()>> {
        let shared = &self.0.shared;
        let listed = |e: &&Entry| e.name == name;
        let entry = shared.state.lock().manifest.databases.iter().find(listed).cloned();
        let entry = entry.ok_or_else(|| no_such_database(name))?;
        // It stays open until its end is durable: its redo holds the trail's floor.
        let open = shared.state.lock().open.get_mut(&entry.volume()).map(|o| (o.inner.clone(), o.main.take()));
        let stopped = open.map(|(inner, main)| stop_main(main, inner));
        if let Some(inner) = &stopped {
            // A checkpoint under way would list the database again.
            let _no_checkpoint = inner.checkpointing.lock();
            inner.dropped.store(true, Ordering::Relaxed);
        }
        let mut body = Vec::new();
        put_volume_drop(&mut body, entry.volume());
        let passed = self.log(body)?;
        self.change_list(|manifest| manifest.databases.retain(|e| e.id != entry.id))?;
        {
            let mut state = shared.state.lock();
            state.checkpoints.remove(&entry.volume());
            state.open.remove(&entry.volume());
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

    /// Appends a record of the server's own; it is durable here when this returns. What is returned hears when it has
    /// passed the gate.
    pub(super) fn log(&self, body: Vec<u8>) -> SqlResult<Receiver<()>> {
        let (sender, durable) = crossbeam_channel::bounded(1);
        let (passes, passed) = crossbeam_channel::bounded(1);
        let (shared, level) = (self.0.shared.clone(), self.0.shared.options.level);
        let on_durable = move |span: Span| {
            sender.send(()).unwrap_or_default();
            shared.redo.tell(span.start);
            shared.pass(span.end, level, move || passes.send(()).unwrap_or_default());
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
