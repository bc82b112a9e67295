//! Archives one segment: puts it, reads it back, and compares. Only segments confirmed here may be recycled.

use std::sync::Arc;

use holdfast_trail::Trail;
use holdfast_types::Lsn;

use crate::error::{ArchiveError, blocking};
use crate::holdings::{Holding, Holdings};
use crate::name::ObjectName;
use crate::object::{Codec, HEADER_BYTES, Manifest, Segment, bytes_max};
use crate::store::{Put, Store};

/// A segment that the archive has whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub name: ObjectName,
    pub manifest: Manifest,
    /// Bytes of the object.
    pub object_bytes: u64,
    /// Whether the object existed before: put by an earlier attempt, or by another node.
    pub was_there: bool,
}

/// Archives segment `number` of an open trail. `None` while the segment is not finished, that is, until the trail is
/// durable beyond it. When this returns, the object was read back from the store and holds what the trail has.
pub async fn put(store: &dyn Store, trail: &Trail, number: u32, codec: Codec) -> Result<Option<Kept>, ArchiveError> {
    let Some(segment) = read_segment(trail, number).await? else { return Ok(None) };
    let segment = Arc::new(segment);
    let name = segment.manifest.name();
    let text = name.to_string();
    let object = {
        let segment = segment.clone();
        blocking(move || segment.encode(codec)).await?
    };
    let was_there = store.put_new(&text, object.clone()).await? == Put::Exists;
    let most = bytes_max(segment.manifest.segment_bytes);
    let vanished = || ArchiveError::Vanished { name: text.clone() };
    let back = store.get(&text, most).await?.ok_or_else(vanished)?;
    let object_bytes = back.len() as u64;
    let manifest = blocking(move || {
        if back == object {
            return Manifest::decode(&name, &back);
        }
        // It was put by another node or program, which may use another codec; or it differs from what was put.
        let found = Segment::decode(&name, &back)?;
        match segment.difference(&found) {
            None => Ok(found.manifest),
            Some(what) => Err(ArchiveError::Differs { name: name.to_string(), what }),
        }
    })
    .await?;
    Ok(Some(Kept { name, manifest, object_bytes, was_there }))
}

async fn read_segment(trail: &Trail, number: u32) -> Result<Option<Segment>, ArchiveError> {
    if trail.durable() < trail.start_of(number + 1) {
        return Ok(None);
    }
    let trail = trail.clone();
    blocking(move || {
        let boxcars = trail.read_shipped(trail.start_of(number))?;
        Ok(Segment::gather(trail.trail_id(), trail.segment_bytes(), boxcars)?)
    })
    .await
}

/// Finds the object of segment `number` of this trail in the listing: the one whose last boxcar has the checksum that
/// the next segment's first boxcar refers to. `None` when there is none, or when the trail does not reach that far yet.
/// The object is not read whole, because the node that archived it has done that; but an object that has lost its end
/// since is [`ArchiveError::Damaged`].
pub async fn is_archived(
    store: &dyn Store,
    trail: &Trail,
    number: u32,
    holdings: &Holdings,
) -> Result<Option<ObjectName>, ArchiveError> {
    let Some(last) = last_checksum(trail, trail.start_of(number + 1)).await? else { return Ok(None) };
    let Some(Holding { name, bytes }) = holdings.ending_with(number, last) else { return Ok(None) };
    let Some(head) = store.get_head(&name.to_string(), HEADER_BYTES as u64).await? else { return Ok(None) };
    let wanted_bytes = HEADER_BYTES as u64 + Manifest::decode(&name, &head)?.stored_bytes;
    if bytes != wanted_bytes {
        let what = format!("it has {bytes} bytes; its header says {wanted_bytes}");
        return Err(ArchiveError::Damaged { name: name.to_string(), what });
    }
    Ok(Some(name))
}

/// Fails when an object that was archived before is missing: the archive is not mounted, or it is another one.
pub async fn check_still_there(store: &dyn Store, name: &str) -> Result<(), ArchiveError> {
    match store.get_head(name, HEADER_BYTES as u64).await? {
        Some(_) => Ok(()),
        None => Err(ArchiveError::Lost { name: name.to_owned(), place: store.place().to_owned() }),
    }
}

/// Fails when another server archives this trail: one that has replaced this one, or that runs on a copy of its directory. A
/// restore could take either history for the right one. What that server has put is of this trail's epoch, from segment `number`
/// on, or of a later epoch, so only that end of the archive is listed.
pub async fn check_only_server(store: &dyn Store, trail: &Trail, number: u32) -> Result<(), ArchiveError> {
    let epoch = trail.epoch();
    let holdings = Holdings::from(store, trail.trail_id(), epoch, number).await?;
    let own = is_archived(store, trail, number, &holdings).await?;
    let is_others =
        |name: &ObjectName| name.epoch > epoch || (name.epoch == epoch && name.segment >= number && Some(*name) != own);
    match holdings.objects().map(|holding| holding.name).find(is_others) {
        Some(name) => {
            let (name, place) = (name.to_string(), store.place().to_owned());
            Err(ArchiveError::OtherServer { name, place, epoch: epoch.0 })
        }
        None => Ok(()),
    }
}

/// The checksum to which the boxcar at `next` refers; `None` when that boxcar does not exist yet.
pub(crate) async fn last_checksum(trail: &Trail, next: Lsn) -> Result<Option<u32>, ArchiveError> {
    let trail = trail.clone();
    blocking(move || {
        if trail.durable() <= next {
            return Ok(None);
        }
        let boxcar = trail.read_shipped(next)?.next().transpose()?;
        Ok(boxcar.map(|boxcar| boxcar.previous_checksum))
    })
    .await
}
