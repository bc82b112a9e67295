//! CREATE DATABASE, DROP DATABASE, and adopting a file: each is a record in the trail and a file, in an order that a
//! crash may interrupt anywhere.

use super::*;

impl Engine {
    /// Makes an empty database.
    pub fn create_database(&self, name: &str, dialect: Dialect) -> SqlResult<()> {
        self.adopt_database(name, dialect, |path, id| {
            volume::create(&*self.0.shared.options.disk, path, id, |conn| {
                create_internal_tables(conn, id).map(drop).map_err(|e| SqliteError {
                    code: ffi::SQLITE_ERROR,
                    message: e.to_string(),
                    offset: None,
                })
            })
            .map_err(|e| e.to_string())
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
        let io = |e: std::io::Error| SqlError::new(SqlState::IO_ERROR, format!("cannot create database {name}: {e}"));
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
        let mut body = Vec::new();
        put_volume_create(&mut body, entry.volume(), dialect, name);
        self.log_and_wait(body)?;
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
        let mut state = shared.state.lock();
        let mut manifest = state.manifest.clone();
        let old = manifest.databases.iter().position(|e| Some(e.volume()) == replaced);
        let old = old.map(|at| manifest.databases.remove(at));
        // Somebody may have been faster; the file belongs to nobody then, and the next start removes it.
        if manifest.databases.iter().any(|e| e.name == name) {
            state.checkpoints.remove(&entry.volume());
            return Err(duplicate_database(name));
        }
        manifest.databases.push(entry);
        manifest.write(&*shared.options.disk, &shared.dir).map_err(io)?;
        state.manifest = manifest;
        drop(state);
        old.map_or(Ok(()), |old| self.end_volume(&old))
    }

    /// Removes a database and its file. The caller sees to it that nobody uses it.
    pub fn drop_database(&self, name: &str) -> SqlResult<()> {
        self.refuse_prepared(name)?;
        let shared = &self.0.shared;
        let _no_opening = shared.lifecycle.lock();
        let (entry, open) = {
            let mut state = shared.state.lock();
            let at = state.manifest.databases.iter().position(|e| e.name == name);
            let Some(at) = at else { return Err(no_such_database(name)) };
            let mut manifest = state.manifest.clone();
            let entry = manifest.databases.remove(at);
            manifest
                .write(&*shared.options.disk, &shared.dir)
                .map_err(|e| SqlError::new(SqlState::IO_ERROR, format!("cannot drop database {name}: {e}")))?;
            state.manifest = manifest;
            state.checkpoints.remove(&entry.volume());
            (entry.clone(), state.open.remove(&entry.volume()))
        };
        if let Some(open) = open {
            let inner = stop_main(open.main, open.inner);
            // A checkpoint under way would list the database again.
            let _no_checkpoint = inner.checkpointing.lock();
            inner.dropped.store(true, Ordering::Relaxed);
            inner.redo.settled(u64::MAX);
            shared.state.lock().checkpoints.remove(&inner.id);
        }
        self.end_volume(&entry)
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

    /// Logs the end of a volume that is no longer listed, and removes its files.
    fn end_volume(&self, entry: &Entry) -> SqlResult<()> {
        let shared = &self.0.shared;
        let mut body = Vec::new();
        put_volume_drop(&mut body, entry.volume());
        self.log_and_wait(body)?;
        let path = shared.dir.join(&entry.file);
        for file in [path.clone(), holdfast_store::checkpoint::wal_path(&path)] {
            if let Err(e) = shared.options.disk.remove(&file)
                && e.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(file = %file.display(), "cannot remove, the next start will: {e}");
            }
        }
        Ok(())
    }

    fn log_and_wait(&self, body: Vec<u8>) -> SqlResult<()> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let trail = &self.0.shared.trail;
        trail
            .append_kept(body, Box::new(move |_: Span| sender.send(()).unwrap_or_default()))
            .map_err(|e| SqlError::new(SqlState::DISK_FULL, e.to_string()))?;
        receiver.recv().map_err(|_| SqlError::new(SqlState::ADMIN_SHUTDOWN, "the trail is closed"))
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

fn check_name(name: &str) -> SqlResult<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let message = format!("a database name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(())
}
