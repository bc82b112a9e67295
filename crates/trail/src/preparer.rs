//! The preparer: keeps segments ready ahead of the writer and turns old ones into spares.
//!
//! A segment is offered to the writer when it is complete on the disk (every block written once and synced, so that a
//! commit changes no file system metadata), has its own header, and has its final name in a synced directory. A crash
//! between two of these steps leaves a spare or an unused segment, never a segment under a wrong name.
//!
//! A full disk is not a failure here: `reserve` reports it to its callers. Any other error is a failure.

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::{AlignedBuf, Create, Disk, OpenHow};
use holdfast_types::Lsn;

use crate::error::TrailError;
use crate::layout::{BLOCK, Layout, segment_path, spare_name};
use crate::options::Failure;
use crate::segment::SegmentHeader;
use crate::shared::{Phase, Ready, Shared, State};

/// Bytes of zeros in one write.
const CHUNK_BYTES: u64 = 1 << 20;

pub struct Preparer {
    shared: Arc<Shared>,
    spares: Vec<PathBuf>,
    next_spare: u32,
    next_segment: u32,
}

/// The result of one round of the preparer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// A step was done; there may be more to do.
    Busy,
    /// There was nothing to do, or no room to do it.
    Idle,
    Failed,
}

impl Preparer {
    pub fn new(shared: Arc<Shared>, spares: Vec<PathBuf>, next_spare: u32, next_segment: u32) -> Preparer {
        Preparer { shared, spares, next_spare, next_segment }
    }

    /// The body of the thread.
    pub fn run(mut self) {
        let shared = self.shared.clone();
        loop {
            match self.round() {
                Round::Busy => continue,
                Round::Failed => return,
                Round::Idle => {}
            }
            let mut state = shared.state.lock();
            // While the trail is closing, the writer may still need a segment for queued appends.
            if matches!(state.phase, Phase::Stopped | Phase::Failed) {
                return;
            }
            let more = state.retry || (self.wants_segment(&state) && !state.disk_full);
            if !more {
                shared.prepare.wait(&mut state);
            }
        }
    }

    /// Recycles the segments that need not be retained, then prepares at most one segment.
    pub fn round(&mut self) -> Round {
        match self.recycle() {
            Ok(true) => return Round::Busy,
            Ok(false) => {}
            Err(error) => return self.fail(error),
        }
        let shared = self.shared.clone();
        {
            let mut state = shared.state.lock();
            let retry = std::mem::take(&mut state.retry);
            if matches!(state.phase, Phase::Stopped | Phase::Failed)
                || !self.wants_segment(&state)
                || (state.disk_full && !retry)
            {
                return Round::Idle;
            }
        }
        match self.prepare() {
            Ok(ready) => {
                self.offer(ready);
                Round::Busy
            }
            Err(TrailError::Io { source, path, .. }) if is_full(&source) => {
                tracing::warn!(file = %path.display(), error = %source, "no room to prepare a trail segment");
                shared.state.lock().disk_full = true;
                shared.room.notify_all();
                Round::Idle
            }
            Err(error) => self.fail(error),
        }
    }

    fn wants_segment(&self, state: &State) -> bool {
        state.ready.len() < self.shared.options.segments_ready || state.waiters > 0
    }

    /// Makes the next segment out of a spare or from nothing.
    pub fn prepare(&mut self) -> Result<Ready, TrailError> {
        let shared = self.shared.clone();
        let (spare, recycled) = match self.spares.pop() {
            Some(spare) => (spare, true),
            None => (self.make_spare()?, false),
        };
        let segment = self.next_segment;
        let header = SegmentHeader {
            recycled,
            epoch: shared.epoch(),
            trail_id: shared.trail_id,
            segment,
            segment_bytes: shared.layout.segment_bytes,
            created_unix_ms: shared.clock.unix_ms(),
        };
        let path = put_into_service(&*shared.disk, &shared.options.dir, &spare, &header)?;
        let how = shared.options.sync_method.open_how();
        let file = shared.disk.open(&path, &how).map_err(TrailError::io("open", &path))?;
        self.next_segment += 1;
        Ok(Ready { segment, path, file })
    }

    fn offer(&self, ready: Ready) {
        let mut state = self.shared.state.lock();
        state.segments.insert(ready.segment, ready.path.clone());
        state.ready.push_back(ready);
        state.room.segment_ready();
        state.disk_full = false;
        state.stats.segments_prepared += 1;
        drop(state);
        self.shared.room.notify_all();
        self.shared.segment_ready.notify_all();
    }

    fn make_spare(&mut self) -> Result<PathBuf, TrailError> {
        let path = self.new_spare_path();
        let disk = &*self.shared.disk;
        let made = fill_with_zeros(disk, &path, self.shared.layout.segment_bytes);
        if made.is_err() {
            // The disk space that was allocated is freed; if that fails too, the next open takes the file for a damaged
            // spare.
            let _ = disk.remove(&path);
        }
        made.map(|()| path)
    }

    fn new_spare_path(&mut self) -> PathBuf {
        let number = self.next_spare;
        self.next_spare += 1;
        self.shared.options.dir.join(spare_name(number))
    }

    /// Turns the oldest segment that need not be retained into a spare. The control file comes first: when it no longer
    /// names the segment as the first, recovery does not miss it.
    fn recycle(&mut self) -> Result<bool, TrailError> {
        let shared = self.shared.clone();
        let (oldest, path) = {
            let state = shared.state.lock();
            let keep = oldest_kept(shared.layout, state.retained_from, shared.durable());
            match state.segments.first_key_value() {
                Some((oldest, path)) if *oldest < keep => (*oldest, path.clone()),
                _ => return Ok(false),
            }
        };
        let dir = &shared.options.dir;
        {
            let mut control = shared.control.lock();
            control.first_segment = oldest + 1;
            control.write(&*shared.disk, dir)?;
        }
        shared.state.lock().segments.remove(&oldest);
        if self.spares.len() < shared.options.segments_ready {
            let spare = self.new_spare_path();
            shared.disk.rename(&path, &spare).map_err(TrailError::io("rename", &path))?;
            self.spares.push(spare);
        } else {
            shared.disk.remove(&path).map_err(TrailError::io("remove", &path))?;
        }
        shared.disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))?;
        let mut state = shared.state.lock();
        state.stats.segments_recycled += 1;
        state.retry = true;
        Ok(true)
    }

    fn fail(&self, error: TrailError) -> Round {
        self.shared.fail(&Failure::of(error, &self.shared.options.dir));
        Round::Failed
    }
}

/// The oldest segment that must stay: the one at `retained_from`, and always the one of the last boxcar, which the next
/// boxcar refers to.
fn oldest_kept(layout: Layout, retained_from: Lsn, durable: Lsn) -> u32 {
    let current = layout.segment_of(durable);
    let of_last = if durable == layout.first_lsn(current) { current.saturating_sub(1) } else { current };
    layout.segment_of(retained_from.min(durable)).min(of_last)
}

pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Writes every block once, because blocks that were only allocated would cost a journal commit at their first write.
/// The zeros are synced together with the header, when the file is put into service.
pub fn fill_with_zeros(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<(), TrailError> {
    let how = OpenHow { create: Create::New, ..OpenHow::WRITE_DIRECT };
    let file = disk.open(path, &how).map_err(TrailError::io("create", path))?;
    file.allocate(0, bytes).map_err(TrailError::io("allocate", path))?;
    let zeros = AlignedBuf::zeroed(CHUNK_BYTES.min(bytes) as usize);
    let mut offset = 0;
    while offset < bytes {
        let len = (zeros.len() as u64).min(bytes - offset) as usize;
        file.write_at(&[IoSlice::new(&zeros.as_slice()[..len])], offset).map_err(TrailError::io("zero", path))?;
        offset += len as u64;
    }
    Ok(())
}

/// Writes a header into a spare and gives it its final name; both are durable on return.
pub fn put_into_service(
    disk: &dyn Disk,
    dir: &Path,
    spare: &Path,
    header: &SegmentHeader,
) -> Result<PathBuf, TrailError> {
    let path = segment_path(dir, header.epoch, header.segment);
    let block = header.encode();
    debug_assert_eq!(block.len() as u64, BLOCK);
    let file = disk.open(spare, &OpenHow::WRITE_DIRECT).map_err(TrailError::io("open", spare))?;
    file.write_at(&[IoSlice::new(block.as_slice())], 0).map_err(TrailError::io("write", spare))?;
    file.sync_all().map_err(TrailError::io("sync", spare))?;
    disk.rename(spare, &path).map_err(TrailError::io("rename", spare))?;
    disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))?;
    Ok(path)
}
