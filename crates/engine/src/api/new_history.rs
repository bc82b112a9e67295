//! A restored directory begins a history of its own.
//!
//! The databases are as the old trail left them; the trail is a new one: another trail id, the next epoch, and positions that
//! continue behind the old ones. So no archive, standby or control plane takes the two for one history, and positions that
//! clients remember do not come a second time.
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | the old trail and what belongs to it is removed | a directory without a trail |
//! | `checkpoints`: every file is whole, and needs nothing of a trail | the same |
//! | the new trail is founded, and the directory opened as a master's | a master's directory |
//!
//! Until the caller removes the file [`RESTORING`] nothing else opens the directory, and the restore begins again.

use crate::api::engine::Engine;
use crate::state::checkpoint_file::{CheckpointFile, LocalCheckpoint};
use crate::state::error::{CloseError, OpenError};
use crate::state::options::Options;
use holdfast_seams::Disk;
use holdfast_trail::{FollowFrom, Inspection, Trail, TrailError, TrailId};
use holdfast_types::record::Checkpoint;
use holdfast_types::{Epoch, Lsn};
use std::io::{self, ErrorKind};
use std::path::Path;

/// A file in a data directory that is being restored.
pub const RESTORING: &str = "restoring";

/// Why a directory has not begun a new history.
#[derive(Debug, thiserror::Error)]
pub enum NewHistoryError {
    #[error("{dir} has no {what}: it is not the directory of a restore")]
    NotRestored { dir: String, what: &'static str },
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] CloseError),
}

/// Gives a standby's directory, whose files have everything that they shall have, a new trail, and makes it a master's.
/// Returns the new trail's id and its first LSN.
pub fn begin_new_history(dir: &Path, options: Options, trail_id: TrailId) -> Result<(TrailId, Lsn), NewHistoryError> {
    let disk = options.disk.clone();
    let missing = |what| NewHistoryError::NotRestored { dir: dir.display().to_string(), what };
    let old = Inspection::of(&*disk, &dir.join("trail"))?.ok_or_else(|| missing("trail"))?;
    let local = CheckpointFile::read(&*disk, dir)?.ok_or_else(|| missing("file checkpoints"))?;
    let segment = (old.end.0 / options.segment_bytes) as u32 + 1;
    // The end may be in front of positions that the databases have: a dump without a trail.
    let behind = (local.whole_from.max(local.listed_to).0 / options.segment_bytes) as u32 + 1;
    let from = FollowFrom {
        trail_id,
        segment_bytes: options.segment_bytes,
        first_segment: segment.max(behind),
        epoch: old.epoch,
    };
    remove_all(&*disk, &dir.join("trail"))?;
    for file in ["archived", "standbys", "old_master"] {
        remove(&*disk, &dir.join(file))?;
    }
    let start = Lsn(u64::from(from.first_segment) * from.segment_bytes);
    let whole = |local: &LocalCheckpoint| {
        let checkpoint = Checkpoint { redo_start: start, ..local.checkpoint };
        LocalCheckpoint { checkpoint, end: Lsn(0) }
    };
    let volumes = local.volumes.iter().map(|(id, local)| (*id, whole(local))).collect();
    let local = CheckpointFile { own_from: None, listed_to: Lsn(0), whole_from: Lsn(0), list_end: Lsn(0), volumes };
    let written = local.write(&*disk, dir);
    written.map_err(|source| io_error("write", &crate::state::checkpoint_file::path(dir), source))?;
    Trail::found(&*disk, &dir.join("trail"), &from)?;
    // A promotion: it raises the epoch and notes from where on the trail's checkpoints are its own.
    let epoch_min = Epoch(old.epoch.0.max(1));
    let engine = Engine::open(dir, Options { standby: false, restoring: true, epoch_min, archive: None, ..options })?;
    let first = engine.trail().first();
    engine.close()?;
    Ok((trail_id, first))
}

fn io_error(what: &'static str, path: &Path, source: io::Error) -> NewHistoryError {
    NewHistoryError::Io { what, path: path.display().to_string(), source }
}

fn remove_all(disk: &dyn Disk, dir: &Path) -> Result<(), NewHistoryError> {
    // First, so that what is left of an interrupted removal is not taken for a trail.
    remove(disk, &dir.join("control"))?;
    for name in disk.list(dir).map_err(|source| io_error("list", dir, source))? {
        remove(disk, &dir.join(name))?;
    }
    disk.sync_dir(dir).map_err(|source| io_error("sync", dir, source))
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), NewHistoryError> {
    match disk.remove(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(io_error("remove", path, source)),
        _ => Ok(()),
    }
}
