//! Which of the archive's objects lead from a dump to the target.
//!
//! A segment may have several objects, where the histories of nodes diverged. The dump names the checksum of the boxcar that
//! ends at its LSN, so the object of that segment that contains it is the dump's own. From there objects lead back by the
//! checksum before their first boxcar, and on in the same way; where several lead on, the history whose last object has the
//! highest epoch is the one that went on, as a later master's epoch is higher.
//!
//! Only headers are read, and the one object with the dump's LSN.

use super::error::RestoreError;
use super::options::RestoreOptions;
use super::target::{Target, contains, is_later};
use crate::error::DumpError;
use crate::manifest::Head;
use crate::moment::show_moment;
use crate::parallel::for_each;
use holdfast_archive::object::{HEADER_BYTES, SEGMENT_BYTES_MAX, bytes_max};
use holdfast_archive::{ArchiveError, Holdings, Manifest, ObjectName, Segment, Store};
use holdfast_trail::TrailId;
use holdfast_types::Lsn;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::runtime::Runtime;

/// The objects from the dump's first segment on, in order.
pub struct Chain {
    pub objects: Vec<Manifest>,
}

/// Restores end at or behind this: the dump contains everything before.
pub fn bound(head: &Head) -> Lsn {
    Lsn(head.plan.shown.max(head.plan.whole_from))
}

/// A runtime for requests to the archive.
pub fn runtime() -> Result<Runtime, DumpError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|e| DumpError::Thread(format!("it cannot start: {e}")))
}

/// An object, whole and checked.
pub fn read(runtime: &Runtime, store: &dyn Store, name: ObjectName) -> Result<Segment, ArchiveError> {
    let text = name.to_string();
    let object = runtime.block_on(store.get(&text, bytes_max(SEGMENT_BYTES_MAX)))?;
    Segment::decode(&name, &object.ok_or(ArchiveError::Vanished { name: text })?)
}

/// Headers by segment: readable ones, and the errors of those that are not.
#[derive(Default)]
struct Headers {
    readable: BTreeMap<u32, Vec<Manifest>>,
    damaged: Vec<(ObjectName, ArchiveError)>,
}

/// A segment of the living history that is missing, or cannot be read.
struct Missing {
    segment: u32,
    /// The checksum that its object has to have, where that is known.
    checksum: Option<u32>,
}

impl Headers {
    /// The object in which the living history ends: that of the last epoch.
    fn tip(&self) -> Option<ObjectName> {
        let names = self.readable.values().flatten().map(Manifest::name);
        let all = names.chain(self.damaged.iter().map(|(name, _)| *name));
        all.max_by_key(|name| (name.epoch, name.segment))
    }

    fn last_segment(&self) -> Option<u32> {
        self.readable.keys().copied().chain(self.damaged.iter().map(|(name, _)| name.segment)).max()
    }

    fn at(&self, segment: u32, last_checksum: u32) -> Option<&Manifest> {
        self.readable.get(&segment)?.iter().find(|object| object.last_checksum == last_checksum)
    }

    /// The living history from its end back, as far as `behind`, which is not in it; and what is missing in front of it.
    fn living(&self, behind: u32) -> (Vec<Manifest>, Option<Missing>) {
        let mut objects: Vec<Manifest> = Vec::new();
        let Some(tip) = self.tip() else { return (objects, None) };
        let first = self.readable.keys().copied().chain(self.damaged.iter().map(|(name, _)| name.segment)).min();
        let (mut segment, mut checksum) = (tip.segment, tip.last_checksum);
        while segment > behind && first.is_some_and(|first| segment >= first) {
            let Some(object) = self.at(segment, checksum) else {
                return (objects, Some(Missing { segment, checksum: Some(checksum) }));
            };
            objects.push(*object);
            checksum = object.previous_checksum;
            let Some(before) = segment.checked_sub(1) else { break };
            segment = before;
        }
        (objects, None)
    }

    /// The error of a damaged object that may be the missing one.
    fn take_damaged(&mut self, missing: &Missing) -> Option<ArchiveError> {
        let is_it = |name: &ObjectName| {
            name.segment == missing.segment && missing.checksum.is_none_or(|checksum| checksum == name.last_checksum)
        };
        let place = self.damaged.iter().position(|(name, _)| is_it(name))?;
        Some(self.damaged.swap_remove(place).1)
    }
}

fn headers(
    runtime: &Runtime,
    store: &dyn Store,
    trail_id: TrailId,
    from: u32,
    threads: usize,
) -> Result<Headers, DumpError> {
    let holdings = runtime.block_on(Holdings::of(store, trail_id))?;
    let names: Vec<ObjectName> =
        holdings.objects().map(|holding| holding.name).filter(|name| name.segment >= from).collect();
    let found = Mutex::new(Headers::default());
    // Small requests: more of them at a time than of whole objects.
    for_each(threads * 4, names, |name| {
        let text = name.to_string();
        let head = runtime.block_on(store.get_head(&text, HEADER_BYTES as u64))?;
        let read = head.ok_or(ArchiveError::Vanished { name: text }).and_then(|head| Manifest::decode(&name, &head));
        let mut found = found.lock();
        match read {
            Ok(manifest) => found.readable.entry(name.segment).or_default().push(manifest),
            Err(error) => found.damaged.push((name, error)),
        }
        Ok(())
    })?;
    Ok(found.into_inner())
}

/// The living history of a trail from its end back, and the error that ends it in front.
pub fn living(
    runtime: &Runtime,
    store: &dyn Store,
    trail_id: TrailId,
    threads: usize,
) -> Result<(Vec<Manifest>, Option<DumpError>), DumpError> {
    let mut found = headers(runtime, store, trail_id, 0, threads)?;
    let (objects, missing) = found.living(0);
    let error = missing.map(|missing| match found.take_damaged(&missing) {
        Some(error) => error.into(),
        None => gap(store, trail_id, &missing, 0, 0).into(),
    });
    Ok((objects, error))
}

/// The error of a segment that is missing, with what can be reached in front of it.
fn gap(store: &dyn Store, trail_id: TrailId, missing: &Missing, reached: u64, unix_ms: u64) -> RestoreError {
    RestoreError::Gap {
        place: store.place().to_owned(),
        trail: trail_id.to_string(),
        segment: missing.segment,
        before: missing.checksum.map_or_else(|| "*.hfa".to_owned(), |checksum| format!("{checksum:08x}.hfa")),
        reached,
        moment: show_moment(unix_ms),
    }
}

/// The objects that lead to the target. `None`: the archive has nothing behind the dump.
pub fn find(
    store: &dyn Store,
    head: &Head,
    dump: &str,
    options: &RestoreOptions<'_>,
) -> Result<Option<Chain>, DumpError> {
    let runtime = runtime()?;
    let plan = &head.plan;
    let mut found = headers(&runtime, store, TrailId(plan.trail_id), head.first_needed(), options.threads)?;
    let own = (plan.shown / plan.segment_bytes) as u32;
    let Some(tip) = found.tip().filter(|_| found.last_segment() >= Some(own)) else { return Ok(None) };
    let trail_id = TrailId(plan.trail_id);
    let at_dump =
        |segment, checksum| gap(store, trail_id, &Missing { segment, checksum }, head.lsn(), head.clock_unix_ms());
    let Some(start) = own_object(&runtime, store, head, dump, &found)? else {
        let damaged = found.take_damaged(&Missing { segment: own, checksum: None });
        return Err(damaged.map_or_else(|| at_dump(own, None).into(), DumpError::from));
    };
    // Back to the segment that redo of the dump begins in.
    let mut objects = vec![start];
    for segment in (plan.first_segment..own).rev() {
        let before = objects.last().map_or(0, |object| object.previous_checksum);
        let earlier = found.readable.get(&segment).into_iter().flatten().find(|object| object.last_checksum == before);
        let Some(earlier) = earlier else {
            let damaged = found.take_damaged(&Missing { segment, checksum: None });
            return Err(damaged.map_or_else(|| at_dump(segment, Some(before)).into(), DumpError::from));
        };
        objects.push(*earlier);
    }
    objects.reverse();
    objects.extend(best_onwards(&start, &found.readable));
    let missing = missing_behind(&found, tip, &mut objects, &start);
    let end = objects.last().copied().unwrap_or(start);
    // Where nothing has changed since, the dump's LSN may lie in front of what it needs of the trail: that object only shows
    // which history it is.
    objects.retain(|object| object.segment >= plan.first_segment);
    let target = options.target;
    let is_reached = match target {
        Target::End => missing.is_none(),
        Target::Lsn(lsn) => end.end.0 >= lsn,
        Target::Time(unix_ms) => end.last_written_unix_ms >= unix_ms,
        // It was found in an object; whether that one is in this history shows when it is applied.
        Target::Transaction { .. } => true,
    };
    // Where the machine's clock was set back, the archive may end at an earlier time than some of its commits have.
    let is_passed = || match target {
        Target::Time(unix_ms) => has_later(&runtime, store, &objects, unix_ms, options.threads),
        _ => Ok(false),
    };
    if is_reached || is_passed()? {
        return Ok(Some(Chain { objects }));
    }
    let (reached, unix_ms) = (end.end.0, end.last_written_unix_ms);
    if let Some(missing) = missing {
        let named = || gap(store, trail_id, &missing, reached, unix_ms).into();
        return Err(found.take_damaged(&missing).map_or_else(named, DumpError::from));
    }
    let place = store.place().to_owned();
    Err(RestoreError::Beyond { place, target, reached, moment: show_moment(unix_ms) }.into())
}

/// What is missing of the living history behind the objects that lead on from the dump. Objects at and behind it that are of a
/// history that was left are taken out.
fn missing_behind(found: &Headers, tip: ObjectName, objects: &mut Vec<Manifest>, start: &Manifest) -> Option<Missing> {
    let end = objects.last().copied().unwrap_or(*start);
    if (end.segment, end.last_checksum) == (tip.segment, tip.last_checksum) {
        return None;
    }
    let (_, missing) = found.living(start.segment);
    // Nothing is missing, and yet the dump's objects do not lead there: another history replaced this one in the dump's segment.
    let missing = missing.unwrap_or(Missing { segment: start.segment + 1, checksum: None });
    if end.segment + 1 < missing.segment {
        return Some(Missing { segment: end.segment + 1, checksum: None });
    }
    objects.retain(|object| object.segment < missing.segment || object.segment <= start.segment);
    Some(missing)
}

/// Whether a commit in these objects is later than a time. Reads them all: only where their headers say that none is.
fn has_later(
    runtime: &Runtime,
    store: &dyn Store,
    objects: &[Manifest],
    unix_ms: u64,
    threads: usize,
) -> Result<bool, DumpError> {
    let found = AtomicBool::new(false);
    for_each(threads, objects, |object| {
        if found.load(Ordering::Acquire) {
            return Ok(());
        }
        let name = object.name();
        let damaged = |what: String| DumpError::Archive(ArchiveError::Damaged { name: name.to_string(), what });
        for boxcar in read(runtime, store, name)?.boxcars_from(Lsn(0)) {
            if is_later(&boxcar.map_err(damaged)?, unix_ms).map_err(|e| damaged(e.to_string()))? {
                found.store(true, Ordering::Release);
            }
        }
        Ok(())
    })?;
    Ok(found.into_inner())
}

/// The object with the dump's own LSN.
fn own_object(
    runtime: &Runtime,
    store: &dyn Store,
    head: &Head,
    dump: &str,
    found: &Headers,
) -> Result<Option<Manifest>, DumpError> {
    let (shown, checksum) = (Lsn(head.plan.shown), head.shown_checksum);
    let own = (shown.0 / head.plan.segment_bytes) as u32;
    let mut other = None;
    for candidate in found.readable.get(&own).into_iter().flatten() {
        let fits = match candidate.first == shown {
            true => candidate.previous_checksum == checksum,
            false => {
                let segment = read(runtime, store, candidate.name())?;
                let next = segment.boxcars_from(shown).next().transpose();
                let name = candidate.name().to_string();
                let next = next.map_err(|what| DumpError::Archive(ArchiveError::Damaged { name, what }))?;
                next.is_some_and(|boxcar| boxcar.lsn == shown && boxcar.previous_checksum == checksum)
            }
        };
        if fits {
            return Ok(Some(*candidate));
        }
        other = Some(candidate.name().to_string());
    }
    match other {
        None => Ok(None),
        Some(object) => {
            let (dump, place) = (dump.to_owned(), store.place().to_owned());
            Err(RestoreError::OtherHistory { dump, place, object, lsn: shown.0 }.into())
        }
    }
}

/// The objects behind `start`, on the way to the last one with the highest epoch.
fn best_onwards(start: &Manifest, readable: &BTreeMap<u32, Vec<Manifest>>) -> Vec<Manifest> {
    /// Where the best way of an object ends, and the next object of it.
    type Way = ((u32, u32), Option<Manifest>);
    // From the last segment back.
    let mut ways: BTreeMap<(u32, u32), Way> = BTreeMap::new();
    for object in readable.range(start.segment..).rev().flat_map(|(_, objects)| objects) {
        let next = readable.get(&(object.segment + 1)).into_iter().flatten();
        let next = next.filter(|next| next.previous_checksum == object.last_checksum);
        let best = next.max_by_key(|next| ways.get(&(next.segment, next.last_checksum)).map(|way| way.0));
        let end = best.and_then(|next| ways.get(&(next.segment, next.last_checksum)).map(|way| way.0));
        let end = end.unwrap_or((object.last_epoch.0, object.segment));
        ways.insert((object.segment, object.last_checksum), (end, best.copied()));
    }
    let next = |of: &Manifest| ways.get(&(of.segment, of.last_checksum)).and_then(|way| way.1);
    std::iter::successors(next(start), next).collect()
}

/// Where the boxcar with a transaction is, in any object of a trail.
pub fn find_transaction(
    store: &dyn Store,
    trail_id: TrailId,
    id: u64,
    threads: usize,
) -> Result<Option<Lsn>, DumpError> {
    let runtime = runtime()?;
    // A transaction's number begins with its epoch.
    let epoch = (id >> 32) as u32;
    let mut found = headers(&runtime, store, trail_id, 0, threads)?;
    let mut objects: Vec<Manifest> = std::mem::take(&mut found.readable).into_values().flatten().collect();
    objects.retain(|object| (object.first_epoch.0..=object.last_epoch.0).contains(&epoch));
    // The newest first: mistakes are mostly noticed soon.
    objects.reverse();
    let lsn = AtomicU64::new(0);
    for_each(threads, objects, |object| {
        if lsn.load(Ordering::Acquire) > 0 {
            return Ok(());
        }
        let name = object.name();
        let damaged = |what: String| DumpError::Archive(ArchiveError::Damaged { name: name.to_string(), what });
        let segment = read(&runtime, store, name)?;
        for boxcar in segment.boxcars_from(Lsn(0)) {
            let boxcar = boxcar.map_err(damaged)?;
            if contains(&boxcar, id).map_err(|e| damaged(e.to_string()))? {
                lsn.store(boxcar.lsn.0, Ordering::Release);
            }
        }
        Ok(())
    })?;
    match (lsn.into_inner(), found.damaged.pop()) {
        // It may be in there.
        (0, Some((_, error))) => Err(error.into()),
        (0, None) => Ok(None),
        (lsn, _) => Ok(Some(Lsn(lsn))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_archive::object::Codec;
    use holdfast_types::Epoch;

    const TRAIL: TrailId = TrailId([7; 16]);

    /// A segment of epoch `epoch` that follows the one with checksum `previous`.
    fn object(epoch: u32, segment: u32, previous: u32, last: u32) -> Manifest {
        Manifest {
            codec: Codec::Raw,
            trail_id: TRAIL,
            segment,
            segment_bytes: 1 << 20,
            first_epoch: Epoch(epoch),
            last_epoch: Epoch(epoch),
            first: Lsn(u64::from(segment) << 20),
            end: Lsn((u64::from(segment) + 1) << 20),
            first_written_unix_ms: 0,
            last_written_unix_ms: 0,
            previous_checksum: previous,
            last_checksum: last,
            boxcars: 1,
            content_crc: 0,
            content_bytes: 0,
            stored_bytes: 0,
            stored_crc: 0,
        }
    }

    fn headers(objects: &[Manifest], damaged: &[Manifest]) -> Headers {
        let mut found = Headers::default();
        for object in objects {
            found.readable.entry(object.segment).or_default().push(*object);
        }
        let error = |name: ObjectName| ArchiveError::Vanished { name: name.to_string() };
        found.damaged = damaged.iter().map(|object| (object.name(), error(object.name()))).collect();
        found
    }

    /// The segments that lead on from the dump's, and the one that is missing.
    fn onwards(found: &Headers, start: &Manifest) -> (Vec<u32>, Option<(u32, Option<u32>)>) {
        let mut objects = vec![*start];
        objects.extend(best_onwards(start, &found.readable));
        let missing = missing_behind(found, found.tip().unwrap(), &mut objects, start);
        let segments = objects.iter().map(|object| object.segment).collect();
        (segments, missing.map(|missing| (missing.segment, missing.checksum)))
    }

    /// Segments 1 and 2 of both; 3 to 5 of a deposed master, 3 to 7 of its successor.
    fn fork() -> (Vec<Manifest>, Vec<Manifest>) {
        let deposed = [(2, 1, 0, 1), (2, 2, 1, 2), (2, 3, 2, 103), (2, 4, 103, 104), (2, 5, 104, 105)];
        let successor = [(3, 3, 2, 3), (3, 4, 3, 4), (3, 5, 4, 5), (3, 6, 5, 6), (3, 7, 6, 7)];
        let make = |(epoch, segment, previous, last)| object(epoch, segment, previous, last);
        (deposed.into_iter().map(make).collect(), successor.into_iter().map(make).collect())
    }

    #[test]
    fn a_deposed_history_does_not_take_the_place_of_what_is_missing() {
        let (deposed, successor) = fork();
        let all = [&deposed[..], &successor[..]].concat();
        assert_eq!(onwards(&headers(&all, &[]), &all[0]), (vec![1, 2, 3, 4, 5, 6, 7], None));
        // Without the successor's segment 3 only what lies in front of the fork is reached.
        let without = [&deposed[..], &successor[1..]].concat();
        assert_eq!(onwards(&headers(&without, &[]), &all[0]), (vec![1, 2], Some((3, Some(3)))));
        let mut found = headers(&without, &successor[..1]);
        assert_eq!(onwards(&found, &all[0]), (vec![1, 2], Some((3, Some(3)))));
        assert!(found.take_damaged(&Missing { segment: 3, checksum: Some(3) }).is_some());
        // A damaged end is missing, too.
        let found = headers(&[&deposed[..], &successor[..4]].concat(), &successor[4..]);
        assert_eq!(onwards(&found, &all[0]), (vec![1, 2, 3, 4, 5, 6], Some((7, Some(7)))));
        // The deposed one is longer.
        let longer = [&all[..], &[object(2, 6, 105, 106), object(2, 7, 106, 107), object(2, 8, 107, 108)]].concat();
        assert_eq!(onwards(&headers(&longer, &[]), &all[0]), (vec![1, 2, 3, 4, 5, 6, 7], None));
    }

    #[test]
    fn the_living_history_ends_in_front_of_a_gap() {
        let (deposed, successor) = fork();
        let (objects, missing) = headers(&[&deposed[..], &successor[..]].concat(), &[]).living(0);
        let segments: Vec<(u32, u32)> = objects.iter().map(|object| (object.segment, object.last_checksum)).collect();
        assert_eq!(segments, [(7, 7), (6, 6), (5, 5), (4, 4), (3, 3), (2, 2), (1, 1)]);
        assert!(missing.is_none());
        let (objects, missing) = headers(&[&deposed[..], &successor[2..]].concat(), &[]).living(0);
        assert_eq!(
            (objects.len(), missing.map(|missing| (missing.segment, missing.checksum))),
            (3, Some((4, Some(4))))
        );
    }
}
