//! What an archiver tells the engine: how far the archive is.

use crate::api::engine::Engine;
use crate::background::archiving::Waiting;
use crate::state::error::OpenError;
use crate::state::retention::Retention;
use holdfast_seams::Disk;
use holdfast_types::Lsn;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

impl Engine {
    /// The archive has everything below `lsn`, the start of a segment, that the trail ever had, the last of it in `object`:
    /// it may be recycled.
    pub fn set_archived(&self, lsn: Lsn, object: &str) -> io::Result<()> {
        let engine = self.engine();
        engine.retention.lock().set_archived(&*engine.options.disk, &engine.dir, lsn, object)?;
        engine.archiving.news.store(true, Ordering::Release);
        engine.checkpointer.wake();
        Ok(())
    }

    /// Requests that everything below `lsn` be archived soon: a dump needs the trail up to it. The archiver ends the segment.
    pub fn want_archived(&self, lsn: Lsn) {
        self.engine().archiving.wanted.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// What [`Engine::want_archived`] has requested.
    pub fn wanted_in_archive(&self) -> Lsn {
        Lsn(self.engine().archiving.wanted.load(Ordering::Acquire))
    }

    /// Everything below was in the archive, read back and compared, before this server started or since.
    pub fn verified_in_archive(&self) -> Lsn {
        self.engine().retention.lock().verified()
    }

    /// The object that was archived last, if there is one: an archive that lacks it is not the one that was archived to.
    pub fn last_archived(&self) -> Option<String> {
        self.engine().retention.lock().last_object().map(str::to_owned)
    }

    /// The object that was archived last, of a data directory that is not open, or of one as it was last written.
    pub fn last_archived_in(disk: &dyn Disk, dir: &Path) -> Result<Option<String>, OpenError> {
        Retention::last_archived(disk, dir)
    }

    /// `None`: nothing is kept for an archive.
    pub fn waiting_for_archive(&self) -> Option<Waiting> {
        self.engine().waiting()
    }

    /// Nothing is kept for an archive any more. Returns how far it was, where there was one.
    pub fn forget_archive(&self) -> io::Result<Option<Lsn>> {
        let engine = self.engine();
        let was = engine.retention.lock().forget_archive(&*engine.options.disk, &engine.dir)?;
        engine.archiving.news.store(true, Ordering::Release);
        engine.checkpointer.wake();
        Ok(was)
    }
}
