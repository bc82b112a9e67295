//! The engine's part of archiving: what the archive lacks is kept, up to a limit that is never crossed without an error in the log.
//!
//! Waiting is what is in finished segments and not archived.
//!
//! | waiting | [`BeyondKeep::Warn`] | [`BeyondKeep::Refuse`] |
//! |---|---|---|
//! | up to the limit | kept | kept |
//! | beyond | kept, an error in the log | kept, an error in the log, and writes are refused with 53100 |
//! | again within | logged | logged, writes continue |
//!
//! When the disk itself is full, writes are refused in any case.

use crate::state::engine::EngineState;
use crate::state::options::BeyondKeep;
use holdfast_types::Lsn;
use std::sync::atomic::Ordering;

/// How far the archive is, as the trail sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Everything below is archived.
    pub archived: Lsn,
    /// Finished segments behind it.
    pub bytes: u64,
    /// More than the limit.
    pub is_beyond: bool,
}

impl EngineState {
    /// `None`: nothing is kept for an archive.
    pub fn waiting(&self) -> Option<Waiting> {
        let (archived, verified) = {
            let held = self.retention.lock();
            (held.archived()?, held.verified())
        };
        let trail = &self.trail;
        let finished = trail.start_of(trail.segment_of(trail.durable()));
        // After a start the server looks for what is archived; that does not count as waiting.
        let bytes = finished.0.saturating_sub(archived.max(verified).0);
        let is_beyond = self.options.archive.is_some_and(|keep| bytes > keep.bytes_max);
        Some(Waiting { archived, bytes, is_beyond })
    }

    /// Acts by the table, if something has changed.
    pub fn check_archive(&self) {
        let Some((keep, waiting)) = self.options.archive.zip(self.waiting()) else { return };
        // Writes are refused permanently for another reason.
        if self.deposed.load(Ordering::Acquire) {
            return;
        }
        if self.archiving.beyond.swap(waiting.is_beyond, Ordering::AcqRel) == waiting.is_beyond {
            return;
        }
        let refuses = keep.beyond == BeyondKeep::Refuse && self.follow.is_none();
        let (bytes, max) = (waiting.bytes, keep.bytes_max);
        if !waiting.is_beyond {
            tracing::info!(target: "holdfast::archive", bytes, "the bytes that wait for the archive are within archive_keep_bytes_max again");
            self.trail.refuse_reservations(None);
        } else if refuses {
            let why = format!(
                "no room in the trail: {bytes} bytes of it wait for the archive, more than archive_keep_bytes_max = {max}. \
                 Let the archive be reached again (see holdfast_stat_archive), or raise that limit"
            );
            tracing::error!(target: "holdfast::archive", bytes, max, "writes are refused with 53100: {why}");
            self.trail.refuse_reservations(Some(&why));
        } else {
            tracing::error!(
                target: "holdfast::archive",
                bytes,
                max,
                "more of the trail waits for the archive than archive_keep_bytes_max: it is kept, until the disk is full. Let \
                 the archive be reached again (see holdfast_stat_archive)"
            );
        }
    }
}
