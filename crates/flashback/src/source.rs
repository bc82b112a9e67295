//! The trail that is within reach: that of a data directory, and in front of it the archive's objects, or the archive alone.
//!
//! Objects are chosen backwards: the first boxcar of what is known names the checksum of the boxcar before it, and the object
//! of the segment before must end with that one. Without a data directory the history that ends with the highest epoch is
//! taken, as a later master's epoch is higher. Only headers are read for this, and only as far back as was asked for.
//!
//! The data directory's trail is read first, while the server runs, which may recycle segments meanwhile. What it recycles is
//! in the archive by then, so the archive is asked only afterwards, for what lies in front of the first boxcar that was
//! read here: asked before, it would have to be asked again for each segment that is recycled between the two. Only a
//! segment that is recycled while the directory itself is read makes the reading begin again, and so does the end of the
//! trail when the server has written on while it was read. The archive's objects are then read, checked and decoded by
//! several threads.
//!
//! An encrypted archive is read with the identity that the caller names.
//!
//! Failure: a missing object ends the reach, which is reported; one that is damaged is an error that names it.

use crate::error::FlashbackError;
use holdfast_archive::object::{HEADER_BYTES, SEGMENT_BYTES_MAX, bytes_max};
use holdfast_archive::{
    ArchiveError, ArchiveLocation, Holdings, Keys, Manifest, ObjectName, SealedStore, Segment, Store,
};
use holdfast_changes::Car;
use holdfast_seams::{Disk, RealDisk};
use holdfast_trail::{Boxcar, BoxcarKind, Dump, DumpItem, TrailId};
use holdfast_types::Lsn;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::runtime::Runtime;

/// Headers that are fetched at a time.
const HEADERS_AHEAD: u32 = 32;
/// A commit's clock may be ahead of the time at which its boxcar was written, where the machine's clock was set back.
const CLOCK_MARGIN_MS: u64 = 300_000;
/// How often reading begins again because the server recycled segments or wrote on; damage is not read again.
const TRIES_MAX: u32 = 100;

/// Where the trail is.
#[derive(Clone, Debug, Default)]
pub struct Place {
    pub data: Option<PathBuf>,
    /// The archive's URL.
    pub archive: Option<String>,
    /// The trail's id, where the archive has several and no directory says which.
    pub trail: Option<String>,
    /// The keys to an encrypted archive.
    pub keys: Keys,
    pub threads: usize,
}

/// Which part of the trail is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Boxcars at or behind this position.
    pub lsn: Lsn,
    /// Of commits' clocks, milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
    /// The last boxcar that is wanted.
    pub last: Option<Lsn>,
    /// Only objects that have boxcars of this epoch.
    pub epoch: Option<u32>,
    /// Reading ends with the newest object of which something was kept.
    pub newest_first: bool,
}

impl Range {
    /// Everything from a position on.
    pub fn from(lsn: Lsn) -> Range {
        Range { lsn, ..Range::default() }
    }

    fn has(&self, lsn: Lsn) -> bool {
        lsn >= self.lsn && self.last.is_none_or(|last| lsn <= last)
    }

    fn has_object(&self, object: &Manifest) -> bool {
        let (first, last) = (object.first_epoch.0, object.last_epoch.0);
        self.last.is_none_or(|last| object.first <= last) && self.epoch.is_none_or(|e| (first..=last).contains(&e))
    }
}

/// Looks at a boxcar and may keep something of it.
pub type Look<'a, T> = &'a (dyn Fn(&Car<'_>, &mut Vec<T>) -> Result<(), FlashbackError> + Sync);

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Read {
    /// The first boxcar within reach, and when it was written.
    pub first_lsn: u64,
    pub first_unix_ms: u64,
    /// Whether the trail reaches back to what was asked for, or has nothing in front of it.
    pub is_complete: bool,
    /// Whether the reading ends with the newest commit: false for an archive alone, which lacks the last segment.
    pub has_newest: bool,
    pub objects: u64,
    /// The last boxcar that was read.
    pub last_lsn: u64,
    /// Bytes of boxcars that were read.
    pub bytes: u64,
    /// Large transactions that are left out, because parts of them are in front of the trail within reach.
    pub partial: Vec<u64>,
}

/// The trail within reach.
pub struct Source {
    runtime: Runtime,
    disk: Arc<dyn Disk>,
    trail_dir: Option<PathBuf>,
    store: Option<Arc<SealedStore>>,
    trail_id: TrailId,
    threads: usize,
    headers: Mutex<BTreeMap<String, Manifest>>,
}

/// The first boxcar of the directory's trail.
#[derive(Clone, Copy)]
struct LocalStart {
    lsn: Lsn,
    previous_checksum: u32,
    segment: u32,
    unix_ms: u64,
}

impl LocalStart {
    fn of(boxcar: &Boxcar, segment: u32) -> LocalStart {
        let (lsn, previous_checksum) = (boxcar.lsn, boxcar.previous_checksum);
        LocalStart { lsn, previous_checksum, segment, unix_ms: boxcar.written_unix_ms }
    }
}

/// What was read.
#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    last_lsn: AtomicU64,
}

impl Seen {
    /// Forgets a reading that begins again.
    fn restart(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.last_lsn.store(0, Ordering::Relaxed);
    }
}

/// What is read of the archive, in order.
struct View {
    objects: Vec<Manifest>,
    read: Read,
}

impl Source {
    pub fn open(place: &Place) -> Result<Source, FlashbackError> {
        let threads = place.threads.clamp(1, 64);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
        let location = ArchiveLocation::parse(place.archive.as_deref().unwrap_or_default())?;
        let store =
            location.map(|location| location.open_with(disk.clone(), "flashback", place.keys.clone())).transpose()?;
        let trail_dir = place.data.as_ref().map(|dir| dir.join("trail"));
        let trail_id = match (&trail_dir, &store) {
            (Some(dir), _) => Dump::open(&*disk, dir)?.trail_id,
            (None, Some(store)) => runtime.block_on(only_trail(&**store, place.trail.as_deref()))?,
            (None, None) => return Err(FlashbackError::NoPlace),
        };
        Ok(Source { runtime, disk, trail_dir, store, trail_id, threads, headers: Mutex::default() })
    }

    /// Hands every boxcar with records in the range to `look`, which may keep something of it; returns what was kept, in the
    /// trail's order.
    pub fn scan<T: Send>(&self, range: Range, look: Look<'_, T>) -> Result<(Vec<T>, Read), FlashbackError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let seen = Seen::default();
            let (local, kept) = self.scan_directory(range, look, &seen)?;
            match self.view(range, local).and_then(|view| self.scan_view(view, range, look, &seen, kept)) {
                Err(FlashbackError::Archive(ArchiveError::Vanished { .. })) if tries < TRIES_MAX => {}
                other => return other,
            }
        }
    }

    /// Reads the directory's trail, if there is one, until it was read in one go.
    fn scan_directory<T>(
        &self,
        range: Range,
        look: Look<'_, T>,
        seen: &Seen,
    ) -> Result<(Option<LocalStart>, Vec<T>), FlashbackError> {
        let Some(dir) = self.trail_dir.as_deref() else { return Ok((None, Vec::new())) };
        let (mut tries, mut last_gap) = (0, None);
        loop {
            tries += 1;
            let begins = self.begins(dir);
            let has_moved = || begins.is_none() || begins != self.begins(dir);
            seen.restart();
            // The server may recycle a segment while the directory is read, or write the end of a segment and the next one
            // between the reads of the two. Damage does not go away, so a trail is read again only if it begins elsewhere
            // now, or has its gap elsewhere.
            match self.scan_local(dir, range, look, seen) {
                Err(FlashbackError::Gap { lsn, .. })
                    if tries < TRIES_MAX && (last_gap.replace(lsn) != Some(lsn) || has_moved()) => {}
                Err(FlashbackError::Trail(_)) if tries < TRIES_MAX && has_moved() => {}
                other => return other,
            }
        }
    }

    /// Where the directory's trail begins, by which it is seen that segments were recycled; `None`: it cannot be read.
    fn begins(&self, dir: &Path) -> Option<Option<Lsn>> {
        self.local_start(dir).ok().map(|start| start.map(|start| start.lsn))
    }

    /// Reads the archive's objects, and puts what was kept of the directory behind what is kept of them.
    fn scan_view<T: Send>(
        &self,
        view: View,
        range: Range,
        look: Look<'_, T>,
        seen: &Seen,
        mut of_directory: Vec<T>,
    ) -> Result<(Vec<T>, Read), FlashbackError> {
        let is_enough = range.newest_first && !of_directory.is_empty();
        let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(is_enough));
        let kept: Mutex<BTreeMap<usize, Result<Vec<T>, FlashbackError>>> = Mutex::default();
        let units = view.objects.len();
        let work = || {
            while !stopped.load(Ordering::Acquire) {
                let place = next.fetch_add(1, Ordering::Relaxed) as usize;
                if place >= units {
                    return;
                }
                let unit = if range.newest_first { units - 1 - place } else { place };
                let result = match view.objects.get(unit) {
                    Some(object) if range.has_object(object) => self.scan_object(object, range, look, seen),
                    _ => Ok(Vec::new()),
                };
                if result.as_ref().map_or(true, |kept| range.newest_first && !kept.is_empty()) {
                    stopped.store(true, Ordering::Release);
                }
                kept.lock().insert(unit, result);
            }
        };
        let has_panicked = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads.min(units)).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().is_err()).fold(false, |any, one| any | one)
        });
        if has_panicked {
            return Err(FlashbackError::Thread);
        }
        let mut all = Vec::new();
        for (_, result) in kept.into_inner() {
            all.append(&mut result?);
        }
        all.append(&mut of_directory);
        let (bytes, last_lsn) = (seen.bytes.load(Ordering::Relaxed), seen.last_lsn.load(Ordering::Relaxed));
        Ok((all, Read { bytes, last_lsn, ..view.read }))
    }

    fn scan_object<T>(
        &self,
        object: &Manifest,
        range: Range,
        look: Look<'_, T>,
        seen: &Seen,
    ) -> Result<Vec<T>, FlashbackError> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let name = object.name();
        let text = name.to_string();
        let stored = self.runtime.block_on(store.get(&text, bytes_max(SEGMENT_BYTES_MAX)))?;
        let stored = stored.ok_or_else(|| ArchiveError::Vanished { name: text.clone() })?;
        let segment = Segment::decode(&name, &stored)?;
        seen.bytes.fetch_add(segment.manifest.content_bytes, Ordering::Relaxed);
        let mut kept = Vec::new();
        let (mut offset, damaged) = (0, |what| ArchiveError::Damaged { name: text.clone(), what });
        while let Some(read) = segment.boxcar_at(offset) {
            let (boxcar, behind) = read.map_err(damaged)?;
            offset = behind;
            seen.last_lsn.fetch_max(boxcar.lsn.0, Ordering::Relaxed);
            if boxcar.kind == BoxcarKind::Data && range.has(boxcar.lsn) {
                look(&Car { lsn: boxcar.lsn, epoch: boxcar.epoch, body: boxcar.body() }, &mut kept)?;
            }
        }
        Ok(kept)
    }

    /// Reads the directory's trail; its first boxcar, `None` if it has none, and what was kept.
    fn scan_local<T>(
        &self,
        dir: &Path,
        range: Range,
        look: Look<'_, T>,
        seen: &Seen,
    ) -> Result<(Option<LocalStart>, Vec<T>), FlashbackError> {
        let (mut kept, mut segment, mut start, mut due) = (Vec::new(), 0, None, None);
        let mut stopped = None;
        for item in Dump::open(&*self.disk, dir)? {
            let boxcar = match item? {
                DumpItem::Boxcar(boxcar) => boxcar,
                DumpItem::Stop { flaw, .. } => {
                    stopped = Some(flaw.to_string());
                    continue;
                }
                DumpItem::Segment { segment: number, .. } => {
                    segment = number;
                    continue;
                }
            };
            let first = start.get_or_insert_with(|| LocalStart::of(&boxcar, segment));
            if range.last.is_some_and(|last| last < first.lsn) {
                break;
            }
            // A file that a cut has left, or one that was recycled while it was read.
            let due_now = due.unwrap_or(boxcar.lsn);
            if boxcar.lsn < due_now {
                continue;
            }
            if boxcar.lsn > due_now {
                let what = stopped.unwrap_or_else(|| "boxcars are missing".to_owned());
                return Err(FlashbackError::Gap { dir: dir.display().to_string(), lsn: due_now.0, what });
            }
            due = Some(boxcar.end);
            seen.bytes.fetch_add(boxcar.body.len() as u64, Ordering::Relaxed);
            seen.last_lsn.fetch_max(boxcar.lsn.0, Ordering::Relaxed);
            if boxcar.kind == BoxcarKind::Data && range.has(boxcar.lsn) {
                look(&Car { lsn: boxcar.lsn, epoch: boxcar.epoch, body: &boxcar.body }, &mut kept)?;
            }
        }
        Ok((start, kept))
    }

    /// What is read in front of the directory's trail, which begins at `local`.
    fn view(&self, range: Range, local: Option<LocalStart>) -> Result<View, FlashbackError> {
        let mut read = Read { has_newest: local.is_some(), is_complete: true, ..Read::default() };
        if let Some(start) = local {
            (read.first_lsn, read.first_unix_ms) = (start.lsn.0, start.unix_ms);
            let is_enough = start.lsn <= range.lsn || start.unix_ms + CLOCK_MARGIN_MS < range.unix_ms;
            if is_enough || start.previous_checksum == 0 {
                return Ok(View { objects: Vec::new(), read });
            }
        }
        let Some(store) = &self.store else {
            read.is_complete = false;
            return Ok(View { objects: Vec::new(), read });
        };
        let holdings = self.runtime.block_on(Holdings::of(&**store, self.trail_id))?;
        let objects = match local {
            Some(start) => self.walk_back(&holdings, (start.segment, start.previous_checksum), range, &mut read)?,
            None => self.archived(&holdings, range, &mut read)?,
        };
        if let Some(first) = objects.first() {
            (read.first_lsn, read.first_unix_ms) = (first.first.0, first.first_written_unix_ms);
        }
        read.objects = objects.len() as u64;
        Ok(View { objects, read })
    }

    /// The history that ends with the highest epoch.
    fn archived(&self, holdings: &Holdings, range: Range, read: &mut Read) -> Result<Vec<Manifest>, FlashbackError> {
        let last = holdings.objects().map(|holding| holding.name).max_by_key(|name| (name.epoch, name.segment));
        let Some(last) = last else {
            let place = self.store.as_ref().map(|store| store.place().to_owned()).unwrap_or_default();
            return Err(FlashbackError::NothingArchived { place, trail: self.trail_id.to_string() });
        };
        self.walk_back(holdings, (last.segment + 1, last.last_checksum), range, read)
    }

    /// The objects in front of a segment whose first boxcar follows one with this checksum, in the trail's order.
    fn walk_back(
        &self,
        holdings: &Holdings,
        (mut segment, mut before): (u32, u32),
        range: Range,
        read: &mut Read,
    ) -> Result<Vec<Manifest>, FlashbackError> {
        let mut objects: Vec<Manifest> = Vec::new();
        while before != 0 {
            segment = segment.saturating_sub(1);
            let Some(holding) = holdings.ending_with(segment, before) else {
                read.is_complete = false;
                break;
            };
            let object = self.header(holdings, holding.name)?;
            let is_before = object.end <= range.lsn || object.last_written_unix_ms + CLOCK_MARGIN_MS < range.unix_ms;
            if is_before {
                break;
            }
            before = object.previous_checksum;
            objects.push(object);
        }
        objects.reverse();
        Ok(objects)
    }

    /// The header of an object. Those of objects in front of it are fetched at the same time.
    fn header(&self, holdings: &Holdings, name: ObjectName) -> Result<Manifest, FlashbackError> {
        let text = name.to_string();
        if let Some(known) = self.headers.lock().get(&text) {
            return Ok(*known);
        }
        let Some(store) = &self.store else { return Err(FlashbackError::NoPlace) };
        let wanted = name.segment.saturating_sub(HEADERS_AHEAD)..name.segment;
        let mut tasks = tokio::task::JoinSet::new();
        for ahead in wanted.flat_map(|segment| holdings.names(segment)) {
            let store = store.clone();
            tasks.spawn_on(async move { read_header(&*store, ahead).await }, self.runtime.handle());
        }
        let known = self.runtime.block_on(read_header(&**store, name));
        let ahead = self.runtime.block_on(tasks.join_all());
        let mut headers = self.headers.lock();
        // An error of another object shows when that one is needed.
        ahead.into_iter().flatten().for_each(|manifest| _ = headers.insert(manifest.name().to_string(), manifest));
        let known = known?;
        headers.insert(text, known);
        Ok(known)
    }

    /// The first boxcar of the directory's trail; `None` if it has none.
    fn local_start(&self, dir: &Path) -> Result<Option<LocalStart>, FlashbackError> {
        let mut segment = 0;
        for item in Dump::open(&*self.disk, dir)? {
            match item? {
                DumpItem::Segment { segment: number, .. } => segment = number,
                DumpItem::Stop { .. } => {}
                DumpItem::Boxcar(boxcar) => return Ok(Some(LocalStart::of(&boxcar, segment))),
            }
        }
        Ok(None)
    }
}

async fn read_header(store: &dyn Store, name: ObjectName) -> Result<Manifest, ArchiveError> {
    let text = name.to_string();
    let head = store.get_head(&text, HEADER_BYTES as u64).await?;
    Manifest::decode(&name, &head.ok_or(ArchiveError::Vanished { name: text })?)
}

/// The trail that an archive holds, or the one of its trails that was chosen.
async fn only_trail(store: &dyn Store, chosen: Option<&str>) -> Result<TrailId, FlashbackError> {
    let trails = Holdings::of_all(store).await?;
    let place = store.place().to_owned();
    match chosen {
        Some(text) => match trails.get(text) {
            Some((id, _)) => Ok(*id),
            None if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) => {
                Err(FlashbackError::TrailId(text.to_owned()))
            }
            None => Err(FlashbackError::NothingArchived { place, trail: text.to_owned() }),
        },
        None => match trails.values().map(|(id, _)| *id).collect::<Vec<_>>()[..] {
            [id] => Ok(id),
            [] => Err(FlashbackError::NothingArchived { place, trail: "of any server".to_owned() }),
            _ => {
                let trails = trails.keys().cloned().collect::<Vec<_>>().join(", ");
                Err(FlashbackError::SeveralTrails { place, trails })
            }
        },
    }
}
