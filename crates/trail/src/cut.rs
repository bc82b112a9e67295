//! Cuts off the end of a trail: first saves it aside, then zeroes it. Each step is durable before the next.
//!
//! A crash at any point leaves a trail that is cut again at the same position. The tail that was saved first is kept,
//! because at the second time part of it may already be zero.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use holdfast_seams::{AlignedBuf, Disk, OpenHow, Replacement};
use holdfast_types::Lsn;

use crate::control::Control;
use crate::cursor::SegmentCursor;
use crate::error::TrailError;
use crate::layout::{BLOCK, Layout, cut_name};
use crate::recovery::Verdict;
use crate::survey::Survey;

/// Bytes copied or zeroed in one step.
const CHUNK_BYTES: u64 = 1 << 20;

/// What was cut off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    pub lsn: Lsn,
    pub bytes: u64,
    pub saved_to: PathBuf,
}

/// Carries out rows 15, 16 and 19 of the recovery table.
pub fn cut_tail(
    disk: &dyn Disk,
    dir: &Path,
    survey: &Survey,
    control: &Control,
    verdict: &Verdict,
) -> Result<Cut, TrailError> {
    let layout = Layout { segment_bytes: control.segment_bytes };
    let number = layout.segment_of(verdict.end);
    let offset = layout.offset_of(verdict.end);
    let saved_to = dir.join(cut_name(verdict.end, control.incarnation));
    if let Some(file) = survey.segments.get(&number) {
        let cursor = SegmentCursor::open(disk, &file.path, number, layout, control.trail_id)?;
        save(disk, &mut [Piece { cursor, offset, bytes: verdict.torn_bytes }], &saved_to)?;
    }
    erase(disk, survey, layout.segment_bytes, verdict.end)?;
    Ok(Cut { lsn: verdict.end, bytes: verdict.torn_bytes, saved_to })
}

/// A part of a segment that will be saved aside.
pub struct Piece {
    pub cursor: SegmentCursor,
    pub offset: u64,
    pub bytes: u64,
}

/// Zeroes everything from `end` on, and the content of later segments, and makes that durable.
pub fn erase(disk: &dyn Disk, survey: &Survey, segment_bytes: u64, end: Lsn) -> Result<(), TrailError> {
    let layout = Layout { segment_bytes };
    let number = layout.segment_of(end);
    for (segment, file) in survey.segments.range(number..) {
        if *segment == number {
            zero(disk, &file.path, layout.offset_of(end), segment_bytes)?;
        } else if file.len_bytes == segment_bytes {
            // A file of another size is removed instead of becoming a spare.
            zero(disk, &file.path, BLOCK, segment_bytes)?;
        }
    }
    Ok(())
}

/// Saves the pieces one after the other in the file `to` and makes it durable, unless it already exists.
pub fn save(disk: &dyn Disk, pieces: &mut [Piece], to: &Path) -> Result<(), TrailError> {
    if disk.metadata(to).map_err(TrailError::io("read the metadata of", to))?.is_some() {
        return Ok(());
    }
    let saved = Replacement::begin(disk, to)?;
    let mut at = 0;
    for Piece { cursor, offset, bytes } in pieces {
        let mut done = 0;
        while done < *bytes {
            let len = CHUNK_BYTES.min(*bytes - done);
            let Some(part) = cursor.bytes(*offset + done, len)? else { break };
            let write = saved.file().write_at(&[IoSlice::new(part)], at);
            write.map_err(TrailError::io("write", saved.new_path()))?;
            (at, done) = (at + len, done + len);
        }
    }
    Ok(saved.finish()?)
}

/// Zeroes a range of an existing file and makes that durable.
pub fn zero(disk: &dyn Disk, path: &Path, from: u64, to: u64) -> Result<(), TrailError> {
    let file = disk.open(path, &OpenHow::WRITE_DIRECT).map_err(TrailError::io("open", path))?;
    let zeros = AlignedBuf::zeroed(CHUNK_BYTES.min(to.saturating_sub(from)) as usize);
    let mut offset = from;
    while offset < to {
        let len = (zeros.len() as u64).min(to - offset) as usize;
        file.write_at(&[IoSlice::new(&zeros.as_slice()[..len])], offset).map_err(TrailError::io("zero", path))?;
        offset += len as u64;
    }
    file.sync_all().map_err(TrailError::io("sync", path))
}
