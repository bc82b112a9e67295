//! Removes objects from an archive that no kept dump needs any more: the archive's retention.
//!
//! The caller says from which segment on dumps need the trail. Older objects of that trail are removed, of all histories, if
//! they are old enough as well: a standby that was away may still need them. What an object's header says of its age counts,
//! not the store.
//!
//! Objects are removed from the oldest segment on, so that an interruption leaves no gap. Those of the last segment stay: the
//! server that archives checks by them that the archive is the right one.
//!
//! Failure: an object whose header cannot be read stays, and everything behind it, and is reported.

use holdfast_trail::TrailId;

use crate::error::ArchiveError;
use crate::holdings::{Holding, Holdings};
use crate::object::{HEADER_BYTES, Manifest};
use crate::store::Store;

/// What may go.
#[derive(Clone, Copy, Debug)]
pub struct Needless {
    /// Segments from this one on are needed.
    pub before_segment: u32,
    /// Objects with later changes stay: milliseconds since 1970-01-01 UTC.
    pub until_unix_ms: u64,
}

/// What was removed, or would be.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Removed {
    pub objects: u64,
    pub bytes: u64,
}

/// Removes what may go. With `only_shows` nothing is removed.
pub async fn remove_needless(
    store: &dyn Store,
    trail_id: TrailId,
    needless: Needless,
    only_shows: bool,
) -> Result<Removed, ArchiveError> {
    let holdings = Holdings::of(store, trail_id).await?;
    let mut removed = Removed::default();
    let before = needless.before_segment.min(holdings.last_segment().unwrap_or_default());
    let older: Vec<Holding> = holdings.objects().filter(|holding| holding.name.segment < before).copied().collect();
    for segment in older.chunk_by(|a, b| a.name.segment == b.name.segment) {
        for holding in segment {
            let name = holding.name.to_string();
            let head = store.get_head(&name, HEADER_BYTES as u64).await?;
            // One that another command has removed.
            let Some(head) = head else { continue };
            if Manifest::decode(&holding.name, &head)?.last_written_unix_ms > needless.until_unix_ms {
                return Ok(removed);
            }
        }
        for holding in segment {
            if !only_shows {
                store.remove(&holding.name.to_string()).await?;
            }
            removed.objects += 1;
            removed.bytes += holding.bytes;
        }
    }
    Ok(removed)
}
