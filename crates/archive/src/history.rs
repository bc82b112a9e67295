//! Reads a trail back from its archive, for nodes that lack what the trail itself has recycled.
//!
//! One segment may have several objects, because nodes diverged, and even a single object may belong to another
//! history. The right one is found backwards from the beginning of the trail: its first boxcar has the checksum of the
//! one before, which is the last boxcar of the wanted object; that object's first boxcar has the checksum of its
//! predecessor, and so on. Results are remembered, because this trail's past does not change. Only headers are read for
//! this.
//!
//! One segment is in memory at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_trail::{Match, Trail};
use holdfast_types::Lsn;
use parking_lot::Mutex;

use crate::error::{ArchiveError, blocking};
use crate::holdings::{Holding, Holdings};
use crate::name::ObjectName;
use crate::object::{HEADER_BYTES, Manifest, Segment, bytes_max};
use crate::put::last_checksum;
use crate::store::Store;

/// Reads a trail's recycled segments from its archive.
pub struct History {
    store: Arc<dyn Store>,
    trail: Trail,
    /// By segment: its object, and the checksum of the boxcar before it.
    known: Mutex<BTreeMap<u32, (ObjectName, u32)>>,
}

impl History {
    /// The trail is open; the positions looked up lie before its beginning.
    pub fn new(store: Arc<dyn Store>, trail: Trail) -> History {
        History { store, trail, known: Mutex::default() }
    }

    /// The segment that contains `lsn`, whole and checked. `None` when the trail itself has it, or when it, or a
    /// segment between it and the trail, is not in the archive.
    pub async fn segment(&self, lsn: Lsn) -> Result<Option<Segment>, ArchiveError> {
        let Some(name) = self.choose(self.trail.segment_of(lsn)).await? else { return Ok(None) };
        self.read(name).await.map(Some)
    }

    /// Whether the archive still has the segment that contains `lsn`, which the trail has recycled, and those between it and the
    /// trail. Of that segment the header is read, of the others nothing: what is removed is removed from the oldest on.
    pub async fn has(&self, lsn: Lsn) -> Result<bool, ArchiveError> {
        let number = self.trail.segment_of(lsn);
        let Some(name) = self.choose(number).await? else { return Ok(false) };
        match self.manifest(name).await {
            Ok(_) => Ok(true),
            Err(ArchiveError::Vanished { .. }) => Ok(self.choose(number).await?.is_some()),
            Err(error) => Err(error),
        }
    }

    /// Whether a boxcar with this checksum ends at `lsn`, as [`Trail::ends_with`].
    pub async fn ends_with(&self, lsn: Lsn, checksum: u32) -> Result<Match, ArchiveError> {
        let number = self.trail.segment_of(lsn);
        let Some(name) = self.choose(number).await? else { return Ok(Match::Gone) };
        let yes_if = |same: bool| if same { Match::Yes } else { Match::No };
        if lsn == self.trail.start_of(number) {
            // A new follower without a boxcar: nothing there can differ.
            return Ok(yes_if(checksum == 0 || self.manifest(name).await?.previous_checksum == checksum));
        }
        let segment = self.read(name).await?;
        // The boxcar that starts there has the checksum of the one before it.
        let next = segment.boxcars_from(lsn).next().transpose();
        let next = next.map_err(|what| ArchiveError::Damaged { name: name.to_string(), what })?;
        Ok(yes_if(next.is_some_and(|boxcar| boxcar.lsn == lsn && boxcar.previous_checksum == checksum)))
    }

    /// The object of a segment that leads to this trail. `None` when it or one in between is missing, or when the trail
    /// begins with that segment or before it.
    async fn choose(&self, wanted: u32) -> Result<Option<ObjectName>, ArchiveError> {
        loop {
            let first = self.trail.segment_of(self.trail.first());
            if wanted >= first {
                return Ok(None);
            }
            let nearest = self.known.lock().range(wanted..).next().map(|(number, known)| (*number, *known));
            let (top, before) = match nearest {
                Some((number, (name, _))) if number == wanted => return Ok(Some(name)),
                Some((number, (_, before))) => (number, Some(before)),
                None => match last_checksum(&self.trail, self.trail.start_of(first)).await {
                    // The trail recycled segments meanwhile.
                    Err(_) if self.trail.segment_of(self.trail.first()) != first => continue,
                    before => (first, before?),
                },
            };
            let Some(before) = before else { return Ok(None) };
            return self.walk_back(wanted, top, before).await;
        }
    }

    /// Walks from the segment `top`, whose first boxcar has the checksum `before`, back to the wanted one.
    async fn walk_back(&self, wanted: u32, top: u32, mut before: u32) -> Result<Option<ObjectName>, ArchiveError> {
        let holdings = Holdings::of(&*self.store, self.trail.trail_id()).await?;
        let mut found = None;
        for number in (wanted..top).rev() {
            let Some(Holding { name, .. }) = holdings.ending_with(number, before) else { return Ok(None) };
            before = self.manifest(name).await?.previous_checksum;
            self.known.lock().insert(number, (name, before));
            found = Some(name);
        }
        Ok(found)
    }

    async fn manifest(&self, name: ObjectName) -> Result<Manifest, ArchiveError> {
        let text = name.to_string();
        let head = self.store.get_head(&text, HEADER_BYTES as u64).await?;
        Manifest::decode(&name, &head.ok_or_else(|| self.vanished(text))?)
    }

    async fn read(&self, name: ObjectName) -> Result<Segment, ArchiveError> {
        let text = name.to_string();
        let object = self.store.get(&text, bytes_max(self.trail.segment_bytes())).await?;
        let object = object.ok_or_else(|| self.vanished(text))?;
        let segment = blocking(move || Segment::decode(&name, &object)).await?;
        if segment.manifest.segment_bytes != self.trail.segment_bytes() {
            let what = format!("its segments are {} bytes long", segment.manifest.segment_bytes);
            return Err(ArchiveError::Lineage { name: name.to_string(), what });
        }
        Ok(segment)
    }

    /// The error for an object that was listed but no longer exists.
    fn vanished(&self, name: String) -> ArchiveError {
        self.known.lock().clear();
        ArchiveError::Vanished { name }
    }
}
