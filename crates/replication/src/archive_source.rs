//! Reads from the archive what standbys and feeds of logical replication need and the trail has recycled.
//!
//! Failure: the standby, or the subscriber, is refused with the cause, and tries again: the object may be put back, or the
//! store be reachable again.

use holdfast_archive::{ArchiveError, History, Segment, Store, check_still_there};
use holdfast_engine::Engine;
use holdfast_standby::{Archived, Boxcars, Later, Reason, Refusal};
use holdfast_trail::{Match, Shipped};
use holdfast_types::Lsn;
use std::sync::Arc;

/// The archive as a source of boxcars.
pub struct ArchiveSource {
    pub history: History,
    pub store: Arc<dyn Store>,
    pub engine: Engine,
}

impl ArchiveSource {
    /// The segment that contains `lsn`, whole and checked. `None`: the archive is there, and lacks that segment or one between it
    /// and the trail; or the trail has it.
    pub async fn segment(&self, lsn: Lsn) -> Result<Option<Segment>, ArchiveError> {
        match self.history.segment(lsn).await? {
            Some(segment) => Ok(Some(segment)),
            None => self.check_present().await.map(|()| None),
        }
    }

    /// Whether the archive has everything from `lsn` on up to the trail's beginning, which is behind `lsn`.
    pub async fn has(&self, lsn: Lsn) -> Result<bool, ArchiveError> {
        match self.history.has(lsn).await? {
            true => Ok(true),
            false => self.check_present().await.map(|()| false),
        }
    }

    /// Whether the archive is there at all. One that is not mounted is an error, which passes.
    async fn check_present(&self) -> Result<(), ArchiveError> {
        match self.engine.last_archived() {
            Some(last) => check_still_there(&*self.store, &last).await,
            None => Ok(()),
        }
    }
}

impl Archived for ArchiveSource {
    fn ends_with<'a>(&'a self, lsn: Lsn, checksum: u32) -> Later<'a, Match> {
        Box::pin(async move {
            let found = self.history.ends_with(lsn, checksum).await.map_err(refuse)?;
            if found == Match::Gone {
                self.check_present().await.map_err(refuse)?;
                tracing::warn!(
                    target: "holdfast::archive", place = self.store.place(),
                    "a standby needs the trail from LSN {lsn} on; neither this trail nor the archive has all of it. If objects \
                     were moved out of the archive, put them back, then run on the standby: holdfast standby start"
                );
            }
            Ok(found)
        })
    }

    fn boxcars<'a>(&'a self, lsn: Lsn) -> Later<'a, Option<Box<dyn Boxcars>>> {
        Box::pin(async move {
            let Some(segment) = self.segment(lsn).await.map_err(refuse)? else { return Ok(None) };
            let name = segment.manifest.name();
            tracing::info!(target: "holdfast::archive", object = %name, from = %lsn, "shipping from the archive");
            Ok(Some(Box::new(SegmentBoxcars { segment, offset: 0, from: lsn }) as Box<dyn Boxcars>))
        })
    }
}

/// The boxcars of one segment, which is in memory.
struct SegmentBoxcars {
    segment: Segment,
    offset: usize,
    from: Lsn,
}

impl Boxcars for SegmentBoxcars {
    fn next(&mut self) -> Result<Option<Shipped>, Refusal> {
        while let Some(read) = self.segment.boxcar_at(self.offset) {
            let damaged = |what| ArchiveError::Damaged { name: self.segment.manifest.name().to_string(), what };
            let (boxcar, behind) = read.map_err(damaged).map_err(refuse)?;
            self.offset = behind;
            if boxcar.lsn >= self.from {
                return Ok(Some(boxcar));
            }
        }
        Ok(None)
    }
}

fn refuse(error: ArchiveError) -> Refusal {
    tracing::error!(target: "holdfast::archive", "a standby cannot catch up from the archive: {error}");
    let advice = match error.needs_operator() {
        true => "Look at the archive on the master with: holdfast archive verify",
        false => "See the master's log",
    };
    Refusal::new(Reason::Failed, format!("the master's archive: {error}"), advice)
}
