//! The start of a standby, and its promotion.

use super::apply::Apply;
use super::catalogue;
use super::open::open_volume;
use crate::background::recovery::{self, Survey};
use crate::state::checkpoint_file::{CheckpointFile, LocalCheckpoint};
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::follow::found_end;
use crate::state::manifest::Manifest;
use crate::state::registry::Registry;
use holdfast_types::record::Checkpoint;
use holdfast_types::{Lsn, SqlError, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Starts a standby: finds the position of its files and begins to apply from there.
pub fn begin(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    (first, end): (Lsn, Lsn),
) -> Result<JoinHandle<()>, OpenError> {
    let follow = engine.follow.as_ref().ok_or_else(|| SqlError::internal("the engine is not a standby"))?;
    let local = engine.checkpoint_file.lock().clone();
    if let Some(local) = &local {
        local.refuse_ahead(&engine.dir, end)?;
    }
    let manifest = engine.catalog.lock().manifest.clone();
    let found = recovery::survey(&engine.trail, first, &manifest, local.as_ref())?;
    engine.begin_clock(found.clock, found.written_unix_ms)?;
    engine.catalog.lock().checkpoints = found.checkpoints.clone();
    let starts: BTreeMap<VolumeId, Lsn> =
        manifest.databases.iter().map(|e| (e.volume(), found.start_to_follow(e.volume()).unwrap_or(end))).collect();
    let listed_to = local.as_ref().map_or(first, |local| local.listed_to.max(first));
    let from = starts.values().copied().chain([end, listed_to]).min().unwrap_or(end);
    follow.state.lock().last = found.last.clone();
    engine.redo.appended(from);
    if local.as_ref().is_none_or(|local| !local.is_standby()) {
        stop_being_master(engine, registry, &manifest, &found)?;
    }
    for entry in recovery::changed_files(engine, registry, &manifest) {
        open_volume(engine, registry, &entry)?;
    }
    // What is in a file was durable at the master, otherwise the file would not have it; and readers have seen it.
    let in_files = engine.checkpoint_file.lock().as_ref().map_or(Lsn(0), CheckpointFile::files_end);
    {
        let mut state = follow.state.lock();
        state.applied = from;
        state.allowed = found.last_boxcar.max(in_files);
        let whole_from = local.as_ref().map_or(Lsn(0), |local| local.whole_from);
        state.whole_from = whole_from.max(found.last_boxcar.min(end)).max(in_files);
    }
    let apply = Apply::new(engine.clone(), registry.clone(), from, starts, found.ended())?;
    let thread = std::thread::Builder::new().name("apply".into()).spawn(move || apply.run());
    let io = |source| OpenError::Io { what: "start a thread for", path: engine.dir.display().to_string(), source };
    thread.map_err(io)
}

/// A master that becomes a standby: from now on its own checkpoints are noted in the file, and where in the trail the list of
/// databases ends: what its new master does not have may be cut off, and the list would keep it. Every file is opened,
/// because one that is ahead of the trail, which may have been cut back, would not be noticed later.
fn stop_being_master(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    manifest: &Manifest,
    found: &Survey,
) -> Result<(), OpenError> {
    let listed = |(id, (checkpoint, _)): (&VolumeId, &(Checkpoint, Lsn))| {
        let end = found_end(&found.last, *id, checkpoint.number);
        (*id, LocalCheckpoint { checkpoint: *checkpoint, end })
    };
    let volumes = found.checkpoints.iter().map(listed).collect();
    *engine.checkpoint_file.lock() =
        Some(CheckpointFile { volumes, list_end: found.list_end, ..CheckpointFile::default() });
    for entry in &manifest.databases {
        open_volume(engine, registry, entry)?;
    }
    let mut local = engine.checkpoint_file.lock();
    let written = local.as_mut().map_or(Ok(()), |local| local.write(&*engine.options.disk, &engine.dir));
    let path = crate::state::checkpoint_file::path(&engine.dir).display().to_string();
    written.map_err(|source| OpenError::Io { what: "write", path, source })
}

/// Promotes a standby's directory; does nothing on one that was a master's already.
pub fn take_over(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    (first, end): (Lsn, Lsn),
) -> Result<(), OpenError> {
    let Some(listed_to) = engine.checkpoint_file.lock().as_ref().filter(|l| l.is_standby()).map(|l| l.listed_to) else {
        return Ok(());
    };
    catalogue::catch_up(engine, registry, listed_to.max(first))?;
    let mut local = engine.checkpoint_file.lock();
    let Some(local) = local.as_mut() else { return Ok(()) };
    local.own_from = Some(end);
    let path = crate::state::checkpoint_file::path(&engine.dir).display().to_string();
    let written = local.write(&*engine.options.disk, &engine.dir);
    written.map_err(|source| OpenError::Io { what: "write", path, source })
}
