//! Databases that come and go, and parameters, as the trail tells a standby of them.
//!
//! Each step leaves something durable and can be done again: files, then the list of databases, then the place up to
//! which that was done.
//!
//! A database that was made with content (an import) has that content in its file and not in the trail: a standby
//! cannot make it and says so.
//!
//! Failure: a step that fails ends the applying, as there; a restart does it again.

use super::*;
use crate::manifest::{ParameterOwner, owned};
use holdfast_types::record::Record;
use std::collections::BTreeSet;

/// Does what one record of a boxcar at `lsn` says, unless it is done. A volume in `ended` is not made any more: its name
/// may be another one's by now.
pub fn apply(shared: &Arc<Shared>, lsn: Lsn, record: &Record<'_>, ended: &BTreeSet<VolumeId>) -> Result<(), OpenError> {
    if shared.local.lock().as_ref().is_some_and(|local| lsn < local.listed_to) {
        return Ok(());
    }
    match *record {
        Record::VolumeCreate { volume, .. } if ended.contains(&volume) => reserve(shared, volume),
        Record::VolumeCreate { volume, dialect, name } => create(shared, lsn, volume, dialect, name),
        Record::VolumeDrop { volume } => end(shared, volume),
        Record::Parameters { of, pairs } => {
            let mut manifest = shared.state.lock().manifest.clone();
            manifest.set_parameters(&ParameterOwner::from(of), owned(pairs));
            list(shared, manifest)
        }
        _ => Ok(()),
    }
}

/// Does what the trail says from `from` on: the promotion of a standby that has received more than it has applied.
pub fn catch_up(shared: &Arc<Shared>, from: Lsn) -> Result<(), OpenError> {
    let mut ended = BTreeSet::new();
    recovery::records(&shared.trail, from, |_, record| {
        if let Record::VolumeDrop { volume } = record {
            ended.insert(*volume);
        }
        Ok(())
    })?;
    recovery::records(&shared.trail, from, |boxcar, record| match record {
        Record::Checkpoint(c) => compare(shared, c),
        record => apply(shared, boxcar.lsn, record, &ended),
    })
}

/// A new volume's file has the same size everywhere, if there is nothing in it.
pub fn compare(shared: &Arc<Shared>, masters: &Checkpoint) -> Result<(), OpenError> {
    let local = shared.local.lock();
    let own = local.as_ref().and_then(|local| local.volumes.get(&masters.volume)).map(|v| v.checkpoint);
    let new = own.filter(|own| own.number == 0 && masters.number == 0);
    if new.is_none_or(|own| own.file_size_bytes == masters.file_size_bytes) {
        return Ok(());
    }
    let name = shared.state.lock().manifest.databases.iter().find(|e| e.volume() == masters.volume).cloned();
    Err(OpenError::NotInTheTrail { name: name.map_or_else(|| format!("volume {}", masters.volume), |e| e.name) })
}

fn create(shared: &Arc<Shared>, lsn: Lsn, id: VolumeId, dialect: Dialect, name: &str) -> Result<(), OpenError> {
    let mut manifest = shared.state.lock().manifest.clone();
    if let Some(at) = manifest.databases.iter().position(|e| e.volume() == id) {
        if manifest.databases[at].name == name {
            return note(shared, lsn, id, &manifest.databases[at]);
        }
        let message = format!("volume {id} is made again under the name {name}");
        return Err(OpenError::Redo { name: manifest.databases[at].name.clone(), message });
    }
    databases::check_name(name)?;
    if manifest.databases.iter().any(|e| e.name == name) {
        return Err(OpenError::NotInTheTrail { name: name.to_owned() });
    }
    let entry = manifest.add_as(id.0, name, dialect);
    let path = shared.dir.join(&entry.file);
    databases::create_empty(&*shared.options.disk, &path, id)?;
    list(shared, manifest)?;
    note(shared, lsn, id, &entry)
}

/// The number of a volume that is not made is not given to another one.
fn reserve(shared: &Arc<Shared>, id: VolumeId) -> Result<(), OpenError> {
    let mut manifest = shared.state.lock().manifest.clone();
    if id.0 < manifest.next_id {
        return Ok(());
    }
    manifest.next_id = id.0 + 1;
    list(shared, manifest)
}

/// Notes a new volume's file, unless that was done. A crash may have come before it was.
fn note(shared: &Arc<Shared>, lsn: Lsn, id: VolumeId, entry: &Entry) -> Result<(), OpenError> {
    if shared.local.lock().as_ref().is_some_and(|local| local.volumes.contains_key(&id)) {
        return Ok(());
    }
    let stamp = stamp_of(&*shared.options.disk, &shared.dir.join(&entry.file))?;
    let checkpoint = Checkpoint {
        volume: id,
        number: 0,
        redo_start: lsn,
        file_size_bytes: stamp.bytes,
        file_mtime_ns: stamp.modified_unix_ns as i64,
    };
    if let Some(follow) = &shared.follow {
        shared.list_locally(follow, &[checkpoint]);
    } else if let Some(local) = &mut *shared.local.lock() {
        local.volumes.insert(id, LocalCheckpoint { checkpoint, end: Lsn(0) });
    }
    Ok(())
}

fn end(shared: &Arc<Shared>, id: VolumeId) -> Result<(), OpenError> {
    let _no_opening = shared.lifecycle.lock();
    let mut manifest = shared.state.lock().manifest.clone();
    let Some(at) = manifest.databases.iter().position(|e| e.volume() == id) else { return Ok(()) };
    let entry = manifest.databases.remove(at);
    list(shared, manifest)?;
    let open = {
        let mut state = shared.state.lock();
        state.checkpoints.remove(&id);
        state.open.remove(&id)
    };
    if let Some(Open { inner, .. }) = open {
        let _no_checkpoint = inner.checkpointing.lock();
        inner.dropped.store(true, Ordering::Relaxed);
        inner.redo.settled(u64::MAX);
        inner.redo.fragments_dead(|_| true);
    }
    shared.local.lock().iter_mut().for_each(|local| _ = local.volumes.remove(&id));
    databases::remove_files(shared, &entry);
    Ok(())
}

/// Replaces the list of databases. What else stands in it changes only on the thread that calls this, and by
/// [`Shared::list_as_preparing`], which it calls as well.
fn list(shared: &Shared, manifest: Manifest) -> Result<(), OpenError> {
    let path = crate::manifest::path(&shared.dir).display().to_string();
    let written = manifest.write(&*shared.options.disk, &shared.dir);
    written.map_err(|source| OpenError::Io { what: "write", path, source })?;
    shared.state.lock().manifest = manifest.clone();
    shared.shown.replace(manifest);
    Ok(())
}
