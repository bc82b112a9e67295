//! A trail read back from its archive, for whoever lacks what the trail itself has recycled.
//!
//! Several objects may be there for one segment: nodes that parted. The right one is found backwards from where the trail
//! begins: its first boxcar names the checksum of the one before, which is the last of the object wanted, which names the
//! one before its own first, and so on. Only headers are read for that, and only where there is a choice.
//!
//! One segment is in memory at a time.

use std::sync::Arc;

use holdfast_trail::{Match, Trail};
use holdfast_types::Lsn;
use parking_lot::Mutex;

use crate::error::{ArchiveError, blocking};
use crate::holdings::Holdings;
use crate::name::ObjectName;
use crate::object::{HEADER_BYTES, Manifest, Segment, bytes_max};
use crate::put::last_checksum;
use crate::store::Store;

/// See the module.
pub struct History {
    store: Arc<dyn Store>,
    trail: Trail,
    /// As last listed. Objects do not change: it is listed again where something is not found.
    holdings: Mutex<Option<Arc<Holdings>>>,
}

impl History {
    /// The trail is open; what is asked for lies before its beginning.
    pub fn new(store: Arc<dyn Store>, trail: Trail) -> History {
        History { store, trail, holdings: Mutex::default() }
    }

    /// The segment that `lsn` is in, whole and checked. `None`: it, or what leads from it to the trail, is not in the
    /// archive, or the trail has it itself.
    pub async fn segment(&self, lsn: Lsn) -> Result<Option<Segment>, ArchiveError> {
        let Some(name) = self.choose(self.trail.segment_of(lsn)).await? else { return Ok(None) };
        self.read(name).await.map(Some)
    }

    /// Does a boxcar with this checksum end at `lsn`? As [`Trail::ends_with`].
    pub async fn ends_with(&self, lsn: Lsn, checksum: u32) -> Result<Match, ArchiveError> {
        let number = self.trail.segment_of(lsn);
        let Some(name) = self.choose(number).await? else { return Ok(Match::Gone) };
        let yes_if = |same: bool| if same { Match::Yes } else { Match::No };
        if lsn == self.trail.start_of(number) {
            // A follower that was founded and has no boxcar yet: nothing there can differ.
            return Ok(yes_if(checksum == 0 || self.manifest(name).await?.previous_checksum == checksum));
        }
        let segment = self.read(name).await?;
        // The boxcar that starts there names the one before it.
        let next = segment.boxcars_from(lsn).next().transpose();
        let next = next.map_err(|what| ArchiveError::Damaged { name: name.to_string(), what })?;
        Ok(yes_if(next.is_some_and(|boxcar| boxcar.lsn == lsn && boxcar.previous_checksum == checksum)))
    }

    /// The object of a segment that leads to this trail.
    async fn choose(&self, wanted: u32) -> Result<Option<ObjectName>, ArchiveError> {
        let first = self.trail.segment_of(self.trail.first());
        if wanted >= first {
            return Ok(None);
        }
        let known = self.holdings.lock().clone();
        if let Some(known) = known
            && let Ok(Some(name)) = self.choose_among(&known, wanted, first).await
        {
            return Ok(Some(name));
        }
        let listed = Arc::new(Holdings::of(&*self.store, self.trail.trail_id()).await?);
        *self.holdings.lock() = Some(listed.clone());
        self.choose_among(&listed, wanted, first).await
    }

    /// The trail begins with segment `first`.
    async fn choose_among(
        &self,
        holdings: &Holdings,
        wanted: u32,
        first: u32,
    ) -> Result<Option<ObjectName>, ArchiveError> {
        // Up to where there is no choice, or to the trail.
        let mut top = wanted;
        while top < first {
            match holdings.names(top).len() {
                0 => return Ok(None),
                1 => break,
                _ => top += 1,
            }
        }
        let (mut chosen, mut follows) = match holdings.names(top).first().filter(|_| top < first) {
            Some(only) => (*only, None),
            None => {
                let before = last_checksum(&self.trail, self.trail.first()).await?;
                let last = self.link(&holdings.names(first - 1), before).await?;
                top = first - 1;
                (last.name(), Some(last))
            }
        };
        for number in (wanted..top).rev() {
            let manifest = match follows.take() {
                Some(manifest) => manifest,
                None => self.manifest(chosen).await?,
            };
            let before = self.link(&holdings.names(number), Some(manifest.previous_checksum)).await?;
            (chosen, follows) = (before.name(), Some(before));
        }
        Ok(Some(chosen))
    }

    /// Which of a segment's objects ends with that checksum.
    async fn link(&self, names: &[ObjectName], last: Option<u32>) -> Result<Manifest, ArchiveError> {
        for name in names {
            let manifest = self.manifest(*name).await?;
            if last.is_none_or(|last| manifest.last_checksum == last) {
                return Ok(manifest);
            }
        }
        let name = names.iter().map(ObjectName::to_string).collect::<Vec<_>>().join(", ");
        let what = "no boxcar that this trail goes on from is the last of it".to_owned();
        Err(ArchiveError::Lineage { name, what })
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

    /// What was listed is not so any more.
    fn vanished(&self, name: String) -> ArchiveError {
        *self.holdings.lock() = None;
        ArchiveError::Vanished { name }
    }
}
