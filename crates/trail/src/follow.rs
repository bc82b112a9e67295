//! A trail that follows another one: how it is founded, and how it receives boxcars.
//!
//! Failure: an interrupted founding is repeated. A boxcar that does not fit changes nothing. A failed write or sync
//! ends the process, as on a master.

use std::path::Path;

use holdfast_seams::Disk;
use holdfast_types::{Epoch, Lsn};

use crate::control::Control;
use crate::error::{ReceiveError, TrailError};
use crate::layout::{FIRST_SEGMENT, LOCK, Layout, TrailId, spare_name};
use crate::open::begin;
use crate::options::check_segment_bytes;
use crate::preparer::{fill_with_zeros, put_into_service};
use crate::segment::SegmentHeader;
use crate::shipped::Shipped;
use crate::survey::Survey;
use crate::trail::{Trail, TrailRole};

/// What a follower needs to know about its master before the first boxcar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowFrom {
    pub trail_id: TrailId,
    pub segment_bytes: u64,
    /// The follower's trail begins with this segment; the master must still have it.
    pub first_segment: u32,
    /// Epoch of the master.
    pub epoch: Epoch,
}

impl Trail {
    /// Makes boxcars that another trail wrote durable here, in this order and after the last one here. Boxcars of one
    /// segment share a write and a sync. If one of them does not fit, all are refused; see [`ReceiveError`].
    pub fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        match self.role() {
            TrailRole::Receives(receiver) => receiver.lock().receive(boxcars),
            _ => Err(ReceiveError::NotFollowing),
        }
    }

    /// Prepares segments again after the disk was full. Until this is called, or a refused [`Trail::receive`] has had it done,
    /// what needs a new segment is refused at once, also when there is room by now.
    pub fn check_room(&self) {
        let shared = self.shared();
        let mut state = shared.state.lock();
        if std::mem::take(&mut state.disk_full) {
            state.retry = true;
            shared.prepare.notify_one();
        }
    }

    /// Records that the other trail has this epoch, even if no boxcar of that epoch has arrived yet; a promotion then
    /// uses a higher one. The epoch is durable when this returns.
    pub fn know_epoch(&self, epoch: Epoch) -> Result<(), ReceiveError> {
        match self.role() {
            TrailRole::Receives(receiver) => receiver.lock().know_epoch(epoch),
            _ => Err(ReceiveError::NotFollowing),
        }
    }

    /// Whether the trail was opened to follow another one.
    pub fn is_following(&self) -> bool {
        self.shared().options.follow
    }

    /// Makes an empty trail that can be opened to follow another one from the start of a segment. What an interrupted
    /// founding left is replaced; an existing trail is refused.
    pub fn found(disk: &dyn Disk, dir: &Path, from: &FollowFrom) -> Result<(), TrailError> {
        check_segment_bytes(from.segment_bytes)?;
        if from.first_segment < FIRST_SEGMENT {
            let what = format!("{} is not a valid segment number", from.first_segment);
            return Err(TrailError::Option { name: "first_segment", what });
        }
        disk.create_dir(dir).map_err(TrailError::io("create", dir))?;
        let lock_path = dir.join(LOCK);
        let lock = disk.lock(&lock_path).map_err(TrailError::io("lock", &lock_path))?;
        let _lock = lock.ok_or_else(|| TrailError::InUse { dir: dir.to_path_buf() })?;
        let mut survey = Survey::take(disk, dir)?;
        if survey.control.is_some_and(|control| control.incarnation > 0) {
            return Err(TrailError::Exists { dir: dir.to_path_buf() });
        }
        let control = Control {
            epoch: from.epoch,
            trail_id: from.trail_id,
            incarnation: 0,
            first_segment: from.first_segment,
            segment_bytes: from.segment_bytes,
            incarnation_lsn: Lsn(0),
            proven: Lsn(0),
        };
        begin(disk, dir, &mut survey, &control)?;
        make_first_segment(disk, dir, from)?;
        let start = Layout { segment_bytes: from.segment_bytes }.first_lsn(from.first_segment);
        Control { incarnation: 1, incarnation_lsn: start, proven: start, ..control }.write(disk, dir)
    }
}

fn make_first_segment(disk: &dyn Disk, dir: &Path, from: &FollowFrom) -> Result<(), TrailError> {
    let spare = dir.join(spare_name(0));
    if let Err(error) = fill_with_zeros(disk, &spare, from.segment_bytes) {
        // The disk space that was allocated is freed; if that fails too, the next founding removes the file.
        let _ = disk.remove(&spare);
        return Err(error);
    }
    let header = SegmentHeader {
        recycled: false,
        epoch: from.epoch,
        trail_id: from.trail_id,
        segment: from.first_segment,
        segment_bytes: from.segment_bytes,
        created_unix_ms: 0,
    };
    put_into_service(disk, dir, &spare, &header).map(|_| ())
}
