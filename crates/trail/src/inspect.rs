//! Judges a trail without opening it: by the decision table that an open uses, and without changing a byte.

use std::path::{Path, PathBuf};

use holdfast_seams::{Disk, DiskLock};
use holdfast_types::{Epoch, Lsn};

use crate::control::Control;
use crate::error::TrailError;
use crate::layout::{CONTROL, LOCK, TrailId};
use crate::recovery::judge;
use crate::survey::Survey;

/// The result that an open would have.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub trail_id: TrailId,
    /// Epoch of the last open.
    pub epoch: Epoch,
    pub incarnation: u32,
    pub segment_bytes: u64,
    /// Segments that belong to the trail, oldest first.
    pub segments: Vec<PathBuf>,
    /// Files ready for the next segments.
    pub spares: usize,
    /// The oldest position that can be read.
    pub first: Lsn,
    /// End of the trail.
    pub end: Lsn,
    /// Bytes after the end, which the next open saves aside and cuts off. They were never acknowledged.
    pub torn_bytes: u64,
}

impl Inspection {
    /// Inspects the trail in `dir` by the recovery table ([`crate::recovery`]). `None` for a trail whose creation never
    /// finished.
    pub fn of(disk: &dyn Disk, dir: &Path) -> Result<Option<Inspection>, TrailError> {
        let survey = Survey::look(disk, dir)?;
        let Some(control) = survey.control else {
            return if survey.segments.is_empty() { Ok(None) } else { Err(no_control(dir)) };
        };
        if control.incarnation == 0 {
            return Ok(None);
        }
        let verdict = judge(disk, &survey, &control)?;
        Ok(Some(Inspection::new(&survey, &control, verdict.first, verdict.end, verdict.torn_bytes)))
    }

    fn new(survey: &Survey, control: &Control, first: Lsn, end: Lsn, torn_bytes: u64) -> Inspection {
        let last = (end.0 / control.segment_bytes) as u32;
        Inspection {
            trail_id: control.trail_id,
            epoch: control.epoch,
            incarnation: control.incarnation,
            segment_bytes: control.segment_bytes,
            segments: survey.segments.range(control.first_segment..=last).map(|(_, s)| s.path.clone()).collect(),
            spares: survey.spares.len(),
            first,
            end,
            torn_bytes,
        }
    }
}

/// Row 2: the error for a missing control file.
fn no_control(dir: &Path) -> TrailError {
    TrailError::File {
        file: dir.join(CONTROL),
        what: "it is missing, but segments exist".to_owned(),
        advice: "Put it back from a copy of this directory, or promote a standby",
    }
}

/// Keeps other processes from opening the trail during the inspection. A trail that was never opened has no lock file,
/// and none is made.
pub fn lock_without_opening(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<dyn DiskLock>>, TrailError> {
    let path = dir.join(LOCK);
    if disk.metadata(&path).map_err(TrailError::io("read the metadata of", &path))?.is_none() {
        return Ok(None);
    }
    let lock = disk.lock(&path).map_err(TrailError::io("lock", &path))?;
    lock.map(Some).ok_or_else(|| TrailError::InUse { dir: dir.to_path_buf() })
}

/// What the control file says. The file is always replaced as a whole, so this can be read while a server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outline {
    pub trail_id: TrailId,
    /// Epoch of the last open.
    pub epoch: Epoch,
    pub segment_bytes: u64,
    /// The oldest existing segment; older ones were recycled.
    pub first_segment: u32,
}

impl Outline {
    /// Reads the control file in `dir`; `None` when there is no trail.
    pub fn of(disk: &dyn Disk, dir: &Path) -> Result<Option<Outline>, TrailError> {
        let control = Control::read(disk, dir)?.filter(|control| control.incarnation > 0);
        Ok(control.map(|c| Outline {
            trail_id: c.trail_id,
            epoch: c.epoch,
            segment_bytes: c.segment_bytes,
            first_segment: c.first_segment,
        }))
    }
}
