//! CREATE DATABASE, DROP DATABASE, and adopting a file: each is a record in the trail and a file, in an order that a
//! crash may interrupt anywhere.

use crate::api::closing::stop_writer;
use crate::api::engine::{Engine, being_dropped, no_such_database, stopped};
use crate::background::checkpointer;
use crate::background::volume_files::{check_name, create_empty, remove_files};
use crate::state::manifest::{Entry, Manifest};
use crate::state::visible_list::Change;
use crossbeam_channel::Receiver;
use holdfast_store::volume::{Stamp, stamp_of};
use holdfast_trail::Span;
use holdfast_types::access::{DatabaseAccess, Roles};
use holdfast_types::record::{Checkpoint, put_checkpoint, put_database_access, put_volume_create, put_volume_drop};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlError, SqlResult, SqlState, VolumeId};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Engine {
    /// Makes an empty database. It is seen, and this returns, when it has reached `level`.
    pub fn create_database(&self, name: &str, dialect: Dialect, level: Level) -> SqlResult<()> {
        self.create_database_for(name, dialect, DatabaseAccess::default(), level)
    }

    /// [`Engine::create_database`] with an owner and a limit of sessions.
    pub fn create_database_for(
        &self,
        name: &str,
        dialect: Dialect,
        access: DatabaseAccess,
        level: Level,
    ) -> SqlResult<()> {
        self.adopt(name, dialect, access, level, None, |path, id| {
            create_empty(&*self.0.engine.options.disk, path, id).map_err(|e| e.to_string())
        })
    }

    /// Makes a database whose file `build` puts at the given path: complete, sealed and synced. What is in it is not in
    /// the trail. In the place of `replaced`, where given, which must not be open: its history ends.
    pub(crate) fn adopt(
        &self,
        name: &str,
        dialect: Dialect,
        access: DatabaseAccess,
        level: Level,
        replaced: Option<VolumeId>,
        build: impl FnOnce(&Path, VolumeId) -> Result<(), String>,
    ) -> SqlResult<()> {
        check_name(name)?;
        let engine = &self.0.engine;
        engine.refuse_on_standby("CREATE DATABASE")?;
        self.refuse_taken(name, replaced)?;
        // A reserved id is lost when the build fails: ids are never reused.
        let entry = {
            let mut state = engine.catalog.lock();
            let mut entry = state.manifest.add(name, dialect);
            state.manifest.databases.pop();
            entry.set_access(&access);
            entry
        };
        let path = engine.dir.join(&entry.file);
        build(&path, entry.volume()).map_err(|e| SqlError::new(SqlState::IO_ERROR, e))?;
        let stamp =
            stamp_of(&*engine.options.disk, &path).map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        let passed = loop {
            let one_at_a_time = engine.cataloguing.lock();
            if self.taken(name, replaced).is_none() {
                break self.list_created(entry, stamp, level, replaced)?;
            }
            // Another session was faster. The file belongs to no database then, and the next start removes it.
            drop(one_at_a_time);
            self.refuse_taken(name, replaced)?;
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The database in the list on disk that has this name.
    fn taken(&self, name: &str, replaced: Option<VolumeId>) -> Option<VolumeId> {
        let state = self.0.engine.catalog.lock();
        let found = state.manifest.databases.iter().find(|e| e.name == name && Some(e.volume()) != replaced);
        found.map(Entry::volume)
    }

    /// A name that is taken by a database on its way is refused when that one is seen: not before, for it may be lost.
    fn refuse_taken(&self, name: &str, replaced: Option<VolumeId>) -> SqlResult<()> {
        let engine = &self.0.engine;
        match self.taken(name, replaced) {
            None => Ok(()),
            Some(id) if engine.visible.wait_for(id, &engine.failed) => Err(duplicate_database(name)),
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
        let engine = &self.0.engine;
        let access = entry.access();
        if Roles::new(0, engine.catalog.lock().manifest.stored_roles()).by_oid(access.owner).is_none() {
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, "the owner of the new database does not exist"));
        }
        let mut body = Vec::new();
        put_volume_create(&mut body, entry.volume(), entry.dialect.into(), &entry.name);
        if access != DatabaseAccess::default() {
            put_database_access(&mut body, entry.volume(), &access);
        }
        let checkpoint = Checkpoint {
            volume: entry.volume(),
            number: 0,
            redo_start: engine.trail.durable(),
            file_size_bytes: stamp.bytes,
            file_mtime_ns: stamp.modified_unix_ns as i64,
        };
        // In one boxcar: a standby that has received the creation knows whether the file was empty.
        put_checkpoint(&mut body, &checkpoint);
        let put = {
            let entry = entry.clone();
            move |manifest: &mut Manifest| {
                manifest.databases.retain(|e| Some(e.volume()) != replaced);
                manifest.databases.push(entry);
            }
        };
        let change = engine.visible.change(put.clone());
        let passed = self.log_change(body, level, &change)?;
        // Also as a record of its own: its place in the trail is remembered.
        checkpointer::log(engine, &[Checkpoint { redo_start: engine.trail.durable(), ..checkpoint }]);
        let old = engine.catalog.lock().manifest.databases.iter().find(|e| Some(e.volume()) == replaced).cloned();
        self.change_list(put)?;
        change.is_listed();
        let Some(old) = old else { return Ok(passed) };
        let mut body = Vec::new();
        put_volume_drop(&mut body, old.volume());
        let passed = self.log(body, level, || {})?;
        remove_files(engine, &old);
        Ok(passed)
    }

    /// Changes the list of databases, here and on disk.
    pub(crate) fn change_list(&self, change: impl FnOnce(&mut Manifest)) -> SqlResult<()> {
        self.0.engine.change_list(change)
    }

    /// Removes a database and its file. The caller makes sure that no session uses it. It is gone, and this returns, when
    /// that has reached `level`. Blocks: what was committed there last reaches its level first.
    pub fn drop_database(&self, name: &str, level: Level) -> SqlResult<()> {
        self.check_droppable(name)?;
        let engine = &self.0.engine;
        self.refuse_prepared(name)?;
        let _one_at_a_time = engine.dropping.lock();
        let id = engine.visible.list().databases.iter().find(|e| e.name == name).map(Entry::volume);
        let id = id.ok_or_else(|| no_such_database(name))?;
        let passed = loop {
            // Without a lock: a base copy, and a session that opens another database, must not wait for a standby.
            let writer = self.0.registry.lock().open.get_mut(&id).map(|o| (o.database.clone(), o.writer.take()));
            writer.into_iter().for_each(|(database, writer)| _ = stop_writer(writer, database));
            let _no_opening = engine.lifecycle.lock();
            let mut open = self.0.registry.lock();
            if open.closed {
                return Err(stopped());
            }
            // Another session has opened it meanwhile.
            if open.open.get_mut(&id).is_some_and(|o| o.writer.is_some()) {
                continue;
            }
            drop(open);
            let _one_change = engine.cataloguing.lock();
            break self.list_dropped(id, name, level)?;
        };
        passed.recv().map_err(|_| stopped())
    }

    /// The record first: a crash behind it is put right by the next start, which takes the database off the list.
    fn list_dropped(&self, id: VolumeId, name: &str, level: Level) -> SqlResult<Receiver<()>> {
        let engine = &self.0.engine;
        let entry = engine.catalog.lock().manifest.databases.iter().find(|e| e.volume() == id).cloned();
        let entry = entry.ok_or_else(|| being_dropped(name))?;
        // It stays open until its end is durable: its redo holds the trail's floor.
        let stopped = self.0.registry.get(id);
        if let Some(database) = &stopped {
            // A checkpoint under way would list the database again.
            let _no_checkpoint = database.checkpointing.lock();
            database.dropped.store(true, Ordering::Relaxed);
        }
        let mut body = Vec::new();
        put_volume_drop(&mut body, id);
        let end = move |manifest: &mut Manifest| manifest.databases.retain(|e| e.volume() != id);
        let change = engine.visible.change(end);
        let passed = self.log_change(body, level, &change)?;
        self.change_list(end)?;
        change.is_listed();
        engine.catalog.lock().checkpoints.remove(&id);
        self.0.registry.lock().open.remove(&id);
        stopped.iter().for_each(|database| database.redo.settled(u64::MAX));
        remove_files(engine, &entry);
        Ok(passed)
    }

    /// Refuses to drop a database that nothing but a statement in it can free for that: of a standby, or with subscriptions, whose slots
    /// would stay at their publishers. One that cannot be opened may go.
    pub fn check_droppable(&self, name: &str) -> SqlResult<()> {
        self.0.engine.refuse_on_standby("DROP DATABASE")?;
        let detail = match self.database(name).map_or(0, |db| db.schema().subscriptions.list.len()) {
            0 => return Ok(()),
            1 => "There is 1 subscription.".to_owned(),
            count => format!("There are {count} subscriptions."),
        };
        let message = format!("database \"{name}\" is being used by logical replication subscription");
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message)
            .with_detail(detail)
            .with_hint("Connect to that database and end each one that pg_subscription lists with DROP SUBSCRIPTION."))
    }

    /// A prepared transaction must be able to end: its database stays. One that cannot be opened may go.
    fn refuse_prepared(&self, name: &str) -> SqlResult<()> {
        let count = self.database(name).map_or(0, |db| db.state().prepared.lock().len());
        if count == 0 {
            return Ok(());
        }
        let message = format!("database \"{name}\" is being used by prepared transactions");
        Err(SqlError::new(SqlState::OBJECT_IN_USE, message)
            .with_detail(format!("There are {count} prepared transactions using the database."))
            .with_hint("pg_prepared_xacts lists them; end each with COMMIT PREPARED or ROLLBACK PREPARED."))
    }

    /// [`Engine::log`] of a change of the list of databases.
    pub(crate) fn log_change(&self, body: Vec<u8>, level: Level, change: &Arc<Change>) -> SqlResult<Receiver<()>> {
        let change = change.clone();
        self.log(body, level, move || change.has_passed())
    }

    /// Appends a record of the server's own; it is durable here when this returns. `then` runs when it has passed the gate,
    /// and the returned receiver completes then.
    pub(crate) fn log(
        &self,
        body: Vec<u8>,
        level: Level,
        then: impl FnOnce() + Send + 'static,
    ) -> SqlResult<Receiver<()>> {
        let (sender, durable) = crossbeam_channel::bounded(1);
        let (passes, passed) = crossbeam_channel::bounded(1);
        let engine = self.0.engine.clone();
        let shown_by = engine.clone();
        let pass = move |end| {
            then();
            shown_by.show(end, || {});
            passes.send(()).unwrap_or_default();
        };
        let on_durable = move |span: Span| {
            sender.send(()).unwrap_or_default();
            engine.redo.appended(span.start);
            engine.pass(span.end, level, move || pass(span.end));
        };
        self.0
            .engine
            .trail
            .append_kept(body, Box::new(on_durable))
            .map_err(|e| SqlError::new(SqlState::DISK_FULL, e.to_string()))?;
        durable.recv().map_err(|_| stopped())?;
        Ok(passed)
    }
}

fn duplicate_database(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_DATABASE, format!("database \"{name}\" already exists"))
}
