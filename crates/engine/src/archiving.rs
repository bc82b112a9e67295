//! The engine's part of archiving: what the archive lacks is kept, up to a limit that is told and never crossed in silence.
//!
//! Waiting is what stands in finished segments and is not archived.
//!
//! | waiting | [`BeyondKeep::Warn`] | [`BeyondKeep::Refuse`] |
//! |---|---|---|
//! | up to the limit | kept | kept |
//! | beyond | kept, an error in the log | kept, an error in the log, and writes are refused with 53100 |
//! | again within | told | told, writes go on |
//!
//! When the disk itself is full writes are refused in any case, as ever.

use crate::engine::{Engine, Shared};
use crate::error::OpenError;
use crate::floor::Floor;
use crate::options::BeyondKeep;
use holdfast_seams::Disk;
use holdfast_types::Lsn;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the checkpointer's thread is told.
#[derive(Default)]
pub(crate) struct Archiving {
    news: AtomicBool,
    beyond: AtomicBool,
}

impl Archiving {
    /// Whether the archive has got further since this was last asked.
    pub fn take_news(&self) -> bool {
        self.news.swap(false, Ordering::AcqRel)
    }
}

/// How the archive stands, as far as the trail is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Everything below is archived.
    pub archived: Lsn,
    /// Finished segments behind it.
    pub bytes: u64,
    /// More than is allowed.
    pub is_beyond: bool,
}

impl Shared {
    /// `None`: nothing is kept for an archive.
    fn waiting(&self) -> Option<Waiting> {
        let (archived, verified) = {
            let held = self.floor.lock();
            (held.archived()?, held.verified())
        };
        let trail = &self.trail;
        let finished = trail.start_of(trail.segment_of(trail.durable()));
        // After a start what is archived is looked for again; it does not wait.
        let bytes = finished.0.saturating_sub(archived.max(verified).0);
        let is_beyond = self.options.archive.is_some_and(|keep| bytes > keep.bytes_max);
        Some(Waiting { archived, bytes, is_beyond })
    }

    /// Follows the table, where something has changed.
    pub(crate) fn look_at_archive(&self) {
        let Some((keep, waiting)) = self.options.archive.zip(self.waiting()) else { return };
        // Writes are refused for another reason, for good.
        if self.deposed.load(Ordering::Acquire) {
            return;
        }
        if self.archiving.beyond.swap(waiting.is_beyond, Ordering::AcqRel) == waiting.is_beyond {
            return;
        }
        let refuses = keep.beyond == BeyondKeep::Refuse && self.follow.is_none();
        let (bytes, max) = (waiting.bytes, keep.bytes_max);
        if !waiting.is_beyond {
            tracing::info!(target: "holdfast::archive", bytes, "what waits for the archive is within archive_keep_bytes_max again");
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

impl Engine {
    /// The archive has everything below `lsn`, the start of a segment, that the trail ever had, the last of it in `object`:
    /// it may be recycled.
    pub fn set_archived(&self, lsn: Lsn, object: &str) -> io::Result<()> {
        let shared = self.shared();
        shared.floor.lock().set_archived(&*shared.options.disk, &shared.dir, lsn, object)?;
        shared.archiving.news.store(true, Ordering::Release);
        shared.checkpointer.wake();
        Ok(())
    }

    /// Everything below was in the archive, read back and compared, before this server started or since.
    pub fn verified_in_archive(&self) -> Lsn {
        self.shared().floor.lock().verified()
    }

    /// The object that was archived last, if there is one: an archive that lacks it is not the one that was archived to.
    pub fn last_archived(&self) -> Option<String> {
        self.shared().floor.lock().last_object().map(str::to_owned)
    }

    /// The same of a data directory that nobody has open, or of one as it was last written.
    pub fn last_archived_in(disk: &dyn Disk, dir: &Path) -> Result<Option<String>, OpenError> {
        Floor::last_archived(disk, dir)
    }

    /// `None`: nothing is kept for an archive.
    pub fn waiting_for_archive(&self) -> Option<Waiting> {
        self.shared().waiting()
    }

    /// Nothing is kept for an archive any more. Returns how far it was, where there was one.
    pub fn forget_archive(&self) -> io::Result<Option<Lsn>> {
        let shared = self.shared();
        let was = shared.floor.lock().forget_archive(&*shared.options.disk, &shared.dir)?;
        shared.archiving.news.store(true, Ordering::Release);
        shared.checkpointer.wake();
        Ok(was)
    }
}
