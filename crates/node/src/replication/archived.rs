//! What standbys lack and the trail has recycled, out of the archive.

use holdfast_archive::{ArchiveError, History, Segment, Store, check_still_there};
use holdfast_engine::Engine;
use holdfast_standby::{Archived, Boxcars, Later, Reason, Refusal};
use holdfast_trail::{Match, Shipped};
use holdfast_types::Lsn;
use std::sync::Arc;

/// The archive as a link that ships sees it.
pub struct FromArchive {
    pub history: History,
    pub store: Arc<dyn Store>,
    pub engine: Engine,
}

impl FromArchive {
    /// What is asked for is not in the archive: not while it is not mounted, which passes, or not any more.
    async fn is_there(&self) -> Result<(), Refusal> {
        match self.engine.last_archived() {
            Some(last) => check_still_there(&*self.store, &last).await.map_err(refuse),
            None => Ok(()),
        }
    }
}

impl Archived for FromArchive {
    fn ends_with<'a>(&'a self, lsn: Lsn, checksum: u32) -> Later<'a, Match> {
        Box::pin(async move {
            let found = self.history.ends_with(lsn, checksum).await.map_err(refuse)?;
            if found == Match::Gone {
                self.is_there().await?;
                tracing::warn!(
                    target: "holdfast::archive", place = self.store.place(),
                    "a standby needs the trail from LSN {lsn} on, which neither this trail nor the archive has whole. Where \
                     objects were moved away: put them back, then tell the standby to start"
                );
            }
            Ok(found)
        })
    }

    fn boxcars<'a>(&'a self, lsn: Lsn) -> Later<'a, Option<Box<dyn Boxcars>>> {
        Box::pin(async move {
            let Some(segment) = self.history.segment(lsn).await.map_err(refuse)? else {
                return self.is_there().await.map(|()| None);
            };
            let name = segment.manifest.name();
            tracing::info!(target: "holdfast::archive", object = %name, from = %lsn, "shipping from the archive");
            Ok(Some(Box::new(InOrder { segment, offset: 0, from: lsn }) as Box<dyn Boxcars>))
        })
    }
}

/// One segment in memory.
struct InOrder {
    segment: Segment,
    offset: usize,
    from: Lsn,
}

impl Boxcars for InOrder {
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

/// The standby tries again: the object may be put back, the store be reached again.
fn refuse(error: ArchiveError) -> Refusal {
    tracing::error!(target: "holdfast::archive", "a standby cannot catch up from the archive: {error}");
    let advice = match error.needs_operator() {
        true => "Look at the archive on the master with: holdfast archive verify",
        false => "See the master's log",
    };
    Refusal::new(Reason::Failed, format!("the master's archive: {error}"), advice)
}
