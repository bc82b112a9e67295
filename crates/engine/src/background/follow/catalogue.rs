//! Creates and drops databases and changes parameters and roles on a standby, as the trail's records say.
//!
//! Each step leaves a durable result and can be repeated: files, then the list of databases, then the position up to
//! which that was done.
//!
//! A database that was created with content (an import) has that content in its file and not in the trail: a standby
//! cannot create it and reports that.
//!
//! Failure: a step that fails ends the apply thread; a restart repeats the step.

use crate::background::recovery;
use crate::background::volume_files::{check_name, create_empty, remove_files};
use crate::state::checkpoint_file::LocalCheckpoint;
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::manifest::{Entry, Manifest, ParameterOwner, owned};
use crate::state::registry::{Open, Registry};
use holdfast_store::volume::stamp_of;
use holdfast_types::record::{Checkpoint, Record};
use holdfast_types::schema::Dialect;
use holdfast_types::{Lsn, VolumeId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Does what one record of a boxcar at `lsn` says, unless it is done. A volume in `ended` is no longer made: its name
/// may be another one's by now.
pub fn apply(
    engine: &Arc<EngineState>,
    registry: &Registry,
    lsn: Lsn,
    record: &Record<'_>,
    ended: &BTreeSet<VolumeId>,
) -> Result<(), OpenError> {
    if engine.checkpoint_file.lock().as_ref().is_some_and(|local| lsn < local.listed_to) {
        return Ok(());
    }
    match *record {
        Record::VolumeCreate { volume, .. } if ended.contains(&volume) => reserve(engine, volume),
        Record::VolumeCreate { volume, dialect, name } => create(engine, lsn, volume, dialect, name),
        Record::VolumeDrop { volume } => end(engine, registry, volume),
        Record::Parameters { of, pairs } => {
            let mut manifest = engine.catalog.lock().manifest.clone();
            manifest.set_parameters(&ParameterOwner::from(of), owned(pairs));
            list(engine, manifest)
        }
        Record::Role(_) | Record::RoleDrop { .. } | Record::DatabaseAccess { .. } => access(engine, lsn, record),
        _ => Ok(()),
    }
}

/// Roles, and owners and grants of databases.
fn access(engine: &EngineState, lsn: Lsn, record: &Record<'_>) -> Result<(), OpenError> {
    let damaged = |source| OpenError::Record { lsn, source };
    let mut manifest = engine.catalog.lock().manifest.clone();
    match record {
        Record::Role(body) => manifest.set_role(&body.role().map_err(damaged)?),
        Record::RoleDrop { oid } => manifest.remove_role(*oid),
        Record::DatabaseAccess { volume, access } => manifest.set_access(*volume, &access.access().map_err(damaged)?),
        _ => {}
    }
    list(engine, manifest)
}

/// Applies the records from `from` on: the promotion of a standby that has received more than it has applied.
pub fn catch_up(engine: &Arc<EngineState>, registry: &Registry, from: Lsn) -> Result<(), OpenError> {
    let mut ended = BTreeSet::new();
    recovery::records(&engine.trail, from, |_, record| {
        if let Record::VolumeDrop { volume } = record {
            ended.insert(*volume);
        }
        Ok(())
    })?;
    recovery::records(&engine.trail, from, |boxcar, record| match record {
        Record::Checkpoint(c) => compare(engine, c),
        record => apply(engine, registry, boxcar.lsn, record, &ended),
    })
}

/// A new volume's file has the same size everywhere, if there is nothing in it, and an import is larger. The own file of a former
/// master may be larger than new as well: its first checkpoint makes room before it writes, and may have been cut short then.
pub fn compare(engine: &Arc<EngineState>, masters: &Checkpoint) -> Result<(), OpenError> {
    let local = engine.checkpoint_file.lock();
    let own = local.as_ref().and_then(|local| local.volumes.get(&masters.volume)).map(|v| v.checkpoint);
    let new = own.filter(|own| own.number == 0 && masters.number == 0);
    if new.is_none_or(|own| own.file_size_bytes >= masters.file_size_bytes) {
        return Ok(());
    }
    let name = engine.catalog.lock().manifest.databases.iter().find(|e| e.volume() == masters.volume).cloned();
    Err(OpenError::NotInTheTrail { name: name.map_or_else(|| format!("volume {}", masters.volume), |e| e.name) })
}

fn create(engine: &Arc<EngineState>, lsn: Lsn, id: VolumeId, dialect: Dialect, name: &str) -> Result<(), OpenError> {
    let mut manifest = engine.catalog.lock().manifest.clone();
    if let Some(at) = manifest.databases.iter().position(|e| e.volume() == id) {
        if manifest.databases[at].name == name {
            return note(engine, lsn, id, &manifest.databases[at]);
        }
        let message = format!("volume {id} is created again under the name {name}");
        return Err(OpenError::Redo { name: manifest.databases[at].name.clone(), message });
    }
    check_name(name)?;
    if manifest.databases.iter().any(|e| e.name == name) {
        return Err(OpenError::NotInTheTrail { name: name.to_owned() });
    }
    let entry = manifest.add_as(id.0, name, dialect);
    let path = engine.dir.join(&entry.file);
    create_empty(&*engine.options.disk, &path, id)?;
    list(engine, manifest)?;
    note(engine, lsn, id, &entry)
}

/// The number of a volume that is not created is not given to another one.
fn reserve(engine: &Arc<EngineState>, id: VolumeId) -> Result<(), OpenError> {
    let mut manifest = engine.catalog.lock().manifest.clone();
    if id.0 < manifest.next_id {
        return Ok(());
    }
    manifest.next_id = id.0 + 1;
    list(engine, manifest)
}

/// Records a new volume's file, unless that was done. A crash may have come before it was.
fn note(engine: &Arc<EngineState>, lsn: Lsn, id: VolumeId, entry: &Entry) -> Result<(), OpenError> {
    if engine.checkpoint_file.lock().as_ref().is_some_and(|local| local.volumes.contains_key(&id)) {
        return Ok(());
    }
    let stamp = stamp_of(&*engine.options.disk, &engine.dir.join(&entry.file))?;
    let checkpoint = Checkpoint {
        volume: id,
        number: 0,
        redo_start: lsn,
        file_size_bytes: stamp.bytes,
        file_mtime_ns: stamp.modified_unix_ns as i64,
    };
    if let Some(follow) = &engine.follow {
        engine.list_locally(follow, &[checkpoint]);
    } else if let Some(local) = &mut *engine.checkpoint_file.lock() {
        local.volumes.insert(id, LocalCheckpoint { checkpoint, end: Lsn(0) });
    }
    Ok(())
}

fn end(engine: &Arc<EngineState>, registry: &Registry, id: VolumeId) -> Result<(), OpenError> {
    let _no_opening = engine.lifecycle.lock();
    let mut manifest = engine.catalog.lock().manifest.clone();
    let Some(at) = manifest.databases.iter().position(|e| e.volume() == id) else { return Ok(()) };
    let entry = manifest.databases.remove(at);
    list(engine, manifest)?;
    engine.catalog.lock().checkpoints.remove(&id);
    let open = registry.lock().open.remove(&id);
    if let Some(Open { database, .. }) = open {
        let _no_checkpoint = database.checkpointing.lock();
        database.dropped.store(true, Ordering::Relaxed);
        database.redo.settled(u64::MAX);
        database.redo.fragments_dead(|_| true);
    }
    engine.checkpoint_file.lock().iter_mut().for_each(|local| _ = local.volumes.remove(&id));
    remove_files(engine, &entry);
    Ok(())
}

/// Replaces the list of databases. What else is in it changes only on the thread that calls this, and by
/// [`EngineState::list_as_preparing`], which it calls as well.
fn list(engine: &EngineState, manifest: Manifest) -> Result<(), OpenError> {
    let path = crate::state::manifest::path(&engine.dir).display().to_string();
    let written = manifest.write(&*engine.options.disk, &engine.dir);
    written.map_err(|source| OpenError::Io { what: "write", path, source })?;
    engine.catalog.lock().manifest = manifest.clone();
    engine.visible.replace(manifest);
    Ok(())
}
