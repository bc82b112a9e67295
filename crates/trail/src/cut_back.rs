//! Cuts a trail back to the point up to which it equals its new master's. A node that was a master may have boxcars
//! after that point which no other node received: they are saved aside, then the trail ends before them.
//!
//! The order of the steps makes a crash harmless. First the boxcars are saved durably. Then the control file records
//! that the next incarnation begins at the cut, after which anything that an older one wrote no longer counts. Then
//! they are zeroed. A crash before the second step leaves the trail as it was. A crash after it leaves a trail that
//! recovery itself cuts at the same position (row 15 of its table).
//!
//! Failure: an error before the control file is written changes nothing; after an error later than that, the next open
//! continues.

use std::path::Path;

use holdfast_seams::Disk;
use holdfast_types::{Epoch, Lsn};

use crate::boxcar::BoxcarKind;
use crate::control::Control;
use crate::cursor::SegmentCursor;
use crate::cut::{Cut, Piece, erase, save};
use crate::error::TrailError;
use crate::layout::{BLOCK, LOCK, Layout, cut_name};
use crate::recovery::{Verdict, judge};
use crate::survey::Survey;
use crate::trail::Trail;

impl Trail {
    /// Cuts off everything from `lsn`, the end of a boxcar, in a trail that is not open. The part cut off is first
    /// saved aside, over all segments. `None` when nothing follows `lsn` except what the next open cuts anyway.
    pub fn cut_back(disk: &dyn Disk, dir: &Path, lsn: Lsn) -> Result<Option<Cut>, TrailError> {
        let lock_path = dir.join(LOCK);
        let lock = disk.lock(&lock_path).map_err(TrailError::io("lock", &lock_path))?;
        let _lock = lock.ok_or_else(|| TrailError::InUse { dir: dir.to_path_buf() })?;
        let survey = Survey::take(disk, dir)?;
        let control = survey.control.filter(|control| control.incarnation > 0);
        let control = control.ok_or_else(|| TrailError::NothingToFollow { dir: dir.to_path_buf() })?;
        let verdict = judge(disk, &survey, &control)?;
        if lsn == verdict.end {
            return Ok(None);
        }
        if lsn < verdict.first {
            return Err(TrailError::Gone { lsn, first: verdict.first });
        }
        if lsn > verdict.end {
            return Err(TrailError::NotABoundary { lsn });
        }
        let mut pieces = pieces(disk, &survey, &control, lsn, &verdict)?;
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let saved_to = dir.join(cut_name(lsn, control.incarnation));
        save(disk, &mut pieces, &saved_to)?;
        let incarnation = control.incarnation + 1;
        let control = Control { incarnation, incarnation_lsn: lsn, proven: lsn, ..control };
        control.write(disk, dir)?;
        erase(disk, &survey, control.segment_bytes, lsn)?;
        tracing::warn!(%lsn, bytes, saved_to = %saved_to.display(), "cut the trail back; what followed is saved aside");
        Ok(Some(Cut { lsn, bytes, saved_to }))
    }
}

impl Trail {
    /// Forgets the epochs that a former master began without writing in them, in a trail that is not open. Afterwards
    /// its epoch is that of its last boxcar, as if it had always been a follower. Restarts begin epochs that a new
    /// master cannot know, and no node follows a master whose epoch is older than its own.
    pub fn forget_epochs(disk: &dyn Disk, dir: &Path) -> Result<(), TrailError> {
        lower_epoch(disk, dir, |now, last| last.unwrap_or(now)).map(drop)
    }

    /// Returns a trail to the epoch `before`, which it knew as a follower, after a promotion that has failed. The trail
    /// must not be open. The higher epoch would keep it from following its master again. Returns false and changes
    /// nothing if boxcars were written in a higher epoch, or if the epoch is not above `before`.
    pub fn withdraw_epoch(disk: &dyn Disk, dir: &Path, before: Epoch) -> Result<bool, TrailError> {
        lower_epoch(disk, dir, |now, last| if last.is_none_or(|last| last <= before) { before } else { now })
    }
}

/// Sets the epoch that `to` computes from the trail's epoch and that of its last boxcar, if it is lower than the
/// trail's.
fn lower_epoch(
    disk: &dyn Disk,
    dir: &Path,
    to: impl FnOnce(Epoch, Option<Epoch>) -> Epoch,
) -> Result<bool, TrailError> {
    let lock_path = dir.join(LOCK);
    let lock = disk.lock(&lock_path).map_err(TrailError::io("lock", &lock_path))?;
    let _lock = lock.ok_or_else(|| TrailError::InUse { dir: dir.to_path_buf() })?;
    let survey = Survey::take(disk, dir)?;
    let control = survey.control.filter(|control| control.incarnation > 0);
    let control = control.ok_or_else(|| TrailError::NothingToFollow { dir: dir.to_path_buf() })?;
    let last = judge(disk, &survey, &control)?.last;
    let epoch = to(control.epoch, last.map(|last| last.epoch));
    if epoch >= control.epoch {
        return Ok(false);
    }
    Control { epoch, ..control }.write(disk, dir).map(|()| true)
}

/// The parts after `lsn`, segment by segment; an error when no boxcar ends there.
fn pieces(
    disk: &dyn Disk,
    survey: &Survey,
    control: &Control,
    lsn: Lsn,
    verdict: &Verdict,
) -> Result<Vec<Piece>, TrailError> {
    let layout = Layout { segment_bytes: control.segment_bytes };
    let (first, last) = (layout.segment_of(lsn), layout.segment_of(verdict.end));
    let mut pieces = Vec::new();
    for (segment, file) in survey.segments.range(first..=last) {
        let cursor = SegmentCursor::open(disk, &file.path, *segment, layout, control.trail_id)?;
        let start = if *segment == first { lsn } else { layout.first_lsn(*segment) };
        let torn_bytes = if *segment == last { verdict.torn_bytes } else { 0 };
        let mut piece = piece(cursor, layout, start, verdict.end)?;
        piece.bytes += torn_bytes;
        pieces.push(piece);
    }
    Ok(pieces)
}

/// The boxcars of one segment from `start` on, up to the trail's end.
fn piece(mut cursor: SegmentCursor, layout: Layout, start: Lsn, end: Lsn) -> Result<Piece, TrailError> {
    let mut at = layout.first_lsn(cursor.segment);
    let mut met = at == start;
    while at < end {
        let offset = at.0 - layout.lsn(cursor.segment, 0).0;
        let head = match cursor.boxcar(offset)? {
            Ok((head, _)) => head,
            // Recovery has just found it valid.
            Err(flaw) => {
                let (file, what) = (cursor.path, flaw.to_string());
                return Err(TrailError::Damaged { file, offset, lsn: at, proven: end, what });
            }
        };
        at = head.end();
        met |= at == start;
        if head.kind == BoxcarKind::SegmentEnd {
            break;
        }
    }
    // After a segment end comes the next segment's first boxcar, not the rest of this segment.
    if !met || layout.segment_of(start) != cursor.segment || layout.offset_of(start) < BLOCK {
        return Err(TrailError::NotABoundary { lsn: start });
    }
    Ok(Piece { cursor, offset: layout.offset_of(start), bytes: at.0 - start.0 })
}
