//! Makes a dump of a running server.
//!
//! | step | a kill after it leaves |
//! |---|---|
//! | this command's mark | a mark, which the next command on this machine removes |
//! | the archive gets the name of this place ([`crate::places`]) | an object that keeps trail until the next forget |
//! | the server's copy begins: all volumes at one LSN | nothing at the server: the copy ends with its link, at the latest after 300 s |
//! | pages arrive; each range's new ones become a chunk: put, read back, compared | chunks that the next dump finds |
//! | the list of chunks is read again: all that the manifest names are there | the same |
//! | the manifest is put, read back, compared | a whole dump |
//!
//! The pages arrive in one thread, which holds them back for `rate`; others hash, compress, put and read back.
//!
//! Failure: the first error ends the dump and is reported; a broken link is retried as long as pages arrive.

use crate::archive_settings::ConfiguredArchive;
use crate::chunk::{self, CHUNK_PAGES, ChunkId, Naming, OBJECT_BYTES_MAX};
use crate::error::DumpError;
use crate::fetch::fetch;
use crate::manifest::{Head, Manifest, OBJECT_BYTES_MAX as MANIFEST_BYTES_MAX};
use crate::pace::{Courtesy, Rate};
use crate::pages::{Base, Chunks, Stored, divide, map, ranges};
use crate::repository::{Listing, Repository};
use crate::running::{begin_create, now_unix_ms, random};
use crate::send::DumpPlan;
use crossbeam_channel::{Receiver, Sender, bounded};
use holdfast_archive::Put;
use holdfast_engine::VolumePlan;
use holdfast_replication::Certificates;
use holdfast_standby::Identity;
use holdfast_standby::base_copy::{CopyInto, CopyProgress};
use holdfast_standby::limits::PAGE_BYTES;
use holdfast_standby::message::{CopyPlan, CopyVolume};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How a dump is made.
pub struct CreateOptions {
    /// HOST:PORT of the server.
    pub at: String,
    pub certificates: Option<Certificates>,
    /// At most as many bytes of pages a second are taken from the server.
    pub rate_bytes: Option<u64>,
    /// Threads that store chunks.
    pub threads: usize,
    /// They rest while other programs wait for the processors.
    pub gives_way: bool,
    /// It is the server's own schedule that dumps: refused where another server's does ([`crate::claim`]).
    pub claims: bool,
}

/// How far a dump is.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Bytes of objects stored so far.
    pub stored_bytes: u64,
    /// How often the link has broken.
    pub interruptions: u32,
}

/// A dump that is complete.
#[derive(Serialize, Debug)]
pub struct Created {
    pub name: String,
    pub node: String,
    pub lsn: u64,
    /// No commit in it is later, by the commit clock.
    pub clock_unix_ms: u64,
    pub databases: usize,
    /// Bytes of the databases.
    pub bytes: u64,
    /// Bytes of the objects that were stored: chunks and manifest.
    pub stored_bytes: u64,
    pub stored_chunks: u64,
    /// Chunks that an earlier, interrupted dump had stored and that this one uses.
    pub found_chunks: u64,
    pub manifest_bytes: u64,
    pub seconds: f64,
    /// Why the archive does not know that this place needs it.
    pub unregistered: Option<String>,
    /// What is wrong with earlier dumps.
    pub warnings: Vec<String>,
}

/// Makes a dump. Blocks; `progress` is called often.
pub fn create(
    repository: &Arc<Repository>,
    options: &CreateOptions,
    progress: &(dyn Fn(DumpProgress) + Send + Sync),
) -> Result<Created, DumpError> {
    let began = Instant::now();
    let _running = begin_create(repository)?;
    let there = repository.chunks()?.into_keys().collect();
    // In their order of time: the newest of the server's own, else the newest of all.
    let mut warnings = Vec::new();
    let dumps = known_dumps(repository, &mut warnings)?;
    let shared = Arc::new(Shared {
        repository: repository.clone(),
        there: Mutex::new(there),
        stored: Mutex::default(),
        failed: Mutex::default(),
        stored_bytes: AtomicU64::new(0),
        stored_chunks: AtomicU64::new(0),
        found_chunks: AtomicU64::new(0),
        gives_way: options.gives_way,
    });
    let rate = options.rate_bytes.map(Rate::new);
    let threads = options.threads.max(1);
    let mut sink = Sink {
        shared,
        dumps,
        threads,
        claims: options.claims,
        progress,
        rate,
        attempt: None,
        generation: 0,
        unregistered: None,
        warnings,
    };
    let failed = |e: io::Error| DumpError::Running(format!("cannot name this dump: {e}"));
    let name = format!("dump-{:016x}", random().map_err(failed)?);
    let fetched = fetch(&options.at, &name, options.certificates.clone(), &mut sink);
    // The cause, where the link only reports that the receiver has given up.
    if let Some(error) = sink.shared.failed.lock().take() {
        return Err(error);
    }
    fetched?;
    let (unregistered, warnings) = (sink.unregistered.take(), std::mem::take(&mut sink.warnings));
    let (manifest, shared) = sink.manifest()?;
    Ok(Created { unregistered, warnings, ..finish(repository, &manifest, &shared, began)? })
}

/// Trail and name of each dump that is there, in the order of LSNs: clocks may have been wrong. What cannot be read is a warning: the next dump does not depend on
/// it. But a place whose key is another one than that of its dumps may have been given that key by the store: nothing is written.
fn known_dumps(repository: &Repository, warnings: &mut Vec<String>) -> Result<Vec<([u8; 16], String)>, DumpError> {
    let mut dumps = Vec::new();
    for Listing { name, head, .. } in repository.dumps()? {
        match head {
            Ok(head) => dumps.push((head.lsn(), head.taken_unix_ms, head.plan.trail_id, name)),
            Err(error @ DumpError::OtherKey(_)) => return Err(error),
            Err(error) => warnings.push(error.to_string()),
        }
    }
    dumps.sort_unstable();
    Ok(dumps.into_iter().map(|(_, _, trail, name)| (trail, name)).collect())
}

/// Puts the manifest, when everything that it names is there.
fn finish(repository: &Repository, manifest: &Manifest, shared: &Shared, began: Instant) -> Result<Created, DumpError> {
    let there = repository.chunks()?;
    for chunk in manifest.chunks.iter().filter(|chunk| !there.contains_key(&chunk.id)) {
        // A store's list may lag behind what was put.
        if !repository.has(&chunk.id.name())? {
            return Err(repository.missing(&chunk.id.name(), "this dump"));
        }
    }
    let (name, object) = manifest.encode()?;
    let put = repository.put(&name, object.clone())?;
    let found = repository.get(&name, MANIFEST_BYTES_MAX)?.ok_or_else(|| repository.missing(&name, "this dump"))?;
    if found != object {
        take_back(repository, &name, put);
        let what = format!("{} of its {} bytes were read back{}", found.len(), object.len(), was_there(put));
        return Err(DumpError::Differs { name, place: repository.place().to_owned(), what });
    }
    let head = &manifest.head;
    Ok(Created {
        node: head.node.clone(),
        lsn: head.lsn(),
        clock_unix_ms: head.clock_unix_ms(),
        databases: head.plan.volumes.len(),
        bytes: head.bytes,
        stored_bytes: head.stored_bytes + object.len() as u64,
        stored_chunks: head.stored_chunks,
        found_chunks: shared.found_chunks.load(Ordering::Relaxed),
        manifest_bytes: object.len() as u64,
        seconds: began.elapsed().as_secs_f64(),
        unregistered: None,
        warnings: Vec::new(),
        name,
    })
}

fn was_there(put: Put) -> &'static str {
    if put == Put::Exists { "; an object with that name was there" } else { "" }
}

/// What the threads of a dump share.
struct Shared {
    repository: Arc<Repository>,
    /// Chunks that are in the place.
    there: Mutex<HashSet<ChunkId>>,
    /// The ranges that are stored, by attempt, volume and range.
    stored: Mutex<BTreeMap<(u64, usize, u32), Stored>>,
    failed: Mutex<Option<DumpError>>,
    stored_bytes: AtomicU64,
    stored_chunks: AtomicU64,
    found_chunks: AtomicU64,
    gives_way: bool,
}

/// The pages of a range on their way to a thread.
struct Range {
    generation: u64,
    base: Arc<Base>,
    place: usize,
    volume: u32,
    range: u32,
    pages: Vec<u8>,
}

impl Shared {
    fn serve(&self, ranges: &Receiver<Range>) {
        let mut courtesy = self.gives_way.then(Courtesy::begin);
        while let Ok(range) = ranges.recv() {
            let began = Instant::now();
            if self.failed.lock().is_some() {
                return;
            }
            let key = (range.generation, range.place, range.range);
            match self.store(range) {
                Ok(stored) => _ = self.stored.lock().insert(key, stored),
                Err(error) => _ = self.failed.lock().get_or_insert(error),
            }
            if let Some(courtesy) = &mut courtesy {
                std::thread::sleep(courtesy.rest(began.elapsed()));
            }
        }
    }

    fn read_back(&self, naming: &Naming, id: &ChunkId, pages: &[u8], put: Put) -> Result<(), DumpError> {
        let repository = &self.repository;
        let back = repository.get(&id.name(), OBJECT_BYTES_MAX)?;
        let back = back.ok_or_else(|| repository.missing(&id.name(), "this dump"))?;
        if chunk::decode(naming, id, &back)? != *pages {
            let what = format!("its pages differ{}", was_there(put));
            return Err(DumpError::Differs { name: id.name(), place: repository.place().to_owned(), what });
        }
        Ok(())
    }

    fn store(&self, range: Range) -> Result<Stored, DumpError> {
        let divided = divide(&range.base, range.volume, range.range * CHUNK_PAGES, &range.pages);
        drop(range.pages);
        if divided.new.is_empty() {
            return Ok(Stored::new(divided, None));
        }
        let naming = self.repository.naming()?;
        let (id, object) = chunk::encode(&naming, &divided.new).map_err(|e| DumpError::Encode(e.to_string()))?;
        let repository = &self.repository;
        // Only what is known not to be there: an object store charges for what it then refuses.
        let is_there = self.there.lock().contains(&id);
        let put = if is_there { Put::Exists } else { repository.put(&id.name(), object.clone())? };
        self.read_back(&naming, &id, &divided.new, put).inspect_err(|_| take_back(repository, &id.name(), put))?;
        self.there.lock().insert(id);
        match put {
            Put::Done => {
                self.stored_bytes.fetch_add(object.len() as u64, Ordering::Relaxed);
                self.stored_chunks.fetch_add(1, Ordering::Relaxed);
            }
            Put::Exists => _ = self.found_chunks.fetch_add(1, Ordering::Relaxed),
        }
        Ok(Stored::new(divided, Some(id)))
    }
}

/// Removes an object that was put just now and is not what was put: a later dump would build on it, or be refused because of it.
fn take_back(repository: &Repository, name: &str, put: Put) {
    if put == Put::Done
        && let Err(error) = repository.remove(name)
    {
        tracing::warn!("what was put as {name} cannot be removed: {error}");
    }
}

/// Takes the pages as they arrive.
struct Sink<'a> {
    shared: Arc<Shared>,
    /// Trail and name of each dump that is there, the oldest first.
    dumps: Vec<([u8; 16], String)>,
    threads: usize,
    claims: bool,
    progress: &'a (dyn Fn(DumpProgress) + Send + Sync),
    rate: Option<Rate>,
    attempt: Option<Attempt>,
    generation: u64,
    /// Why the archive does not know of this place.
    unregistered: Option<String>,
    warnings: Vec<String>,
}

/// One copy of the server: after a long interruption another one may follow.
struct Attempt {
    plan: DumpPlan,
    base: Arc<Base>,
    volumes: Vec<VolumePlan>,
    /// `None` when all pages have arrived.
    to_threads: Option<Sender<Range>>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// The range at work: volume by place, its pages so far.
    place: usize,
    next_page: u32,
    pages: Vec<u8>,
}

impl Sink<'_> {
    /// Asks the store on another thread, as this one serves the link.
    fn elsewhere<T: Send>(&self, work: impl FnOnce() -> Result<T, DumpError> + Send) -> Result<T, DumpError> {
        let done = std::thread::scope(|scope| scope.spawn(work).join());
        done.map_err(|_| DumpError::Thread("it has panicked".to_owned()))?
    }

    /// The dump before: of this trail, else of any. One that is damaged is passed over: the one before it serves as well.
    fn base(&mut self, trail_id: [u8; 16]) -> Result<Base, DumpError> {
        let of = |own: bool| self.dumps.iter().rev().filter(move |(trail, _)| (*trail == trail_id) == own);
        let names: Vec<String> = of(true).chain(of(false)).map(|(_, name)| name.clone()).collect();
        let repository = self.shared.repository.clone();
        for name in names {
            match self.elsewhere(|| repository.manifest(&name)) {
                Ok(manifest) => {
                    let there = self.shared.there.lock();
                    return Ok(Base::of(&manifest, |id| there.contains(id)));
                }
                Err(error @ (DumpError::Damaged { .. } | DumpError::Missing { .. } | DumpError::Newer { .. })) => {
                    self.warnings.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Base::default())
    }

    fn begin_attempt(&mut self, plan: &CopyPlan, volumes: &[CopyVolume]) -> Result<(), DumpError> {
        let plan: DumpPlan = serde_json::from_str(&plan.manifest).map_err(|e| DumpError::Plan(e.to_string()))?;
        let of_link = volumes.iter().map(|v| (v.volume, v.pages));
        if !plan.plan.volumes.iter().map(|v| (v.volume, v.pages)).eq(of_link) {
            return Err(DumpError::Plan("its two lists of databases differ".to_owned()));
        }
        // Settings that cannot be read name no archive; a server does not start with them.
        let archive = ConfiguredArchive::in_files(&plan.files).unwrap_or_default();
        if archive.is_in(self.shared.repository.place()) {
            return Err(DumpError::InArchive { place: self.shared.repository.place().to_owned() });
        }
        if self.claims {
            let repository = &self.shared.repository;
            self.elsewhere(|| crate::claim::take(repository, &plan))?;
        }
        let repository = &self.shared.repository;
        self.unregistered = self.elsewhere(|| Ok(crate::places::register(repository, &plan)))?;
        self.attempt = None;
        self.generation += 1;
        self.shared.stored.lock().clear();
        let base = Arc::new(self.base(plan.plan.trail_id)?);
        let (to_threads, ranges) = bounded::<Range>(self.threads);
        let spawn = |_| {
            let (shared, ranges) = (self.shared.clone(), ranges.clone());
            std::thread::spawn(move || shared.serve(&ranges))
        };
        let threads = (0..self.threads).map(spawn).collect();
        let volumes = plan.plan.volumes.clone();
        let to_threads = Some(to_threads);
        self.attempt =
            Some(Attempt { plan, base, volumes, to_threads, threads, place: 0, next_page: 0, pages: Vec::new() });
        Ok(())
    }

    fn fail(&self, error: DumpError) -> io::Error {
        let text = error.to_string();
        self.shared.failed.lock().get_or_insert(error);
        io::Error::other(text)
    }

    fn check(&self) -> io::Result<()> {
        let failed = self.shared.failed.lock().as_ref().map(ToString::to_string);
        failed.map_or(Ok(()), |text| Err(io::Error::other(text)))
    }

    /// The manifest of what has arrived and is stored.
    fn manifest(mut self) -> Result<(Manifest, Arc<Shared>), DumpError> {
        let attempt = self.attempt.take().ok_or_else(|| DumpError::Plan("none has arrived".to_owned()))?;
        let (stored, mut chunks) = (self.shared.stored.lock(), Chunks::default());
        let mut volumes = Vec::new();
        for (place, volume) in attempt.volumes.iter().enumerate() {
            let found: Option<Vec<_>> =
                (0..ranges(volume.pages)).map(|range| stored.get(&(self.generation, place, range))).collect();
            let found = found.ok_or_else(|| DumpError::Plan("not all of its pages have arrived".to_owned()))?;
            volumes.push(map(&attempt.base, found.into_iter(), &mut chunks));
        }
        drop(stored);
        let DumpPlan { node, plan, shown_checksum, files, .. } = attempt.plan.clone();
        let head = Head {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            node,
            taken_unix_ms: now_unix_ms(),
            bytes: plan.volumes.iter().map(|v| u64::from(v.pages) * PAGE_BYTES as u64).sum(),
            plan,
            shown_checksum,
            files,
            stored_bytes: self.shared.stored_bytes.load(Ordering::Relaxed),
            stored_chunks: self.shared.stored_chunks.load(Ordering::Relaxed),
        };
        Ok((Manifest { head, chunks: chunks.list, volumes }, self.shared.clone()))
    }
}

impl Attempt {
    /// Takes the next pages; they arrive in order. Blocks while all threads are busy.
    fn take(&mut self, generation: u64, place: usize, first_page: u32, pages: &[u8]) -> Result<(), DumpError> {
        let expected = (self.place, self.next_page);
        if (place, first_page) != expected {
            return Err(DumpError::Plan(format!("page {first_page} of volume {place} arrived, not {expected:?}")));
        }
        self.pages.extend_from_slice(pages);
        self.next_page += (pages.len() / PAGE_BYTES) as u32;
        let volume = self.volumes[place];
        let is_last = self.next_page >= volume.pages;
        if !is_last && !self.next_page.is_multiple_of(CHUNK_PAGES) {
            return Ok(());
        }
        let range = Range {
            generation,
            base: self.base.clone(),
            place,
            volume: volume.volume,
            range: (self.next_page - 1) / CHUNK_PAGES,
            pages: std::mem::take(&mut self.pages),
        };
        if is_last {
            (self.place, self.next_page) = (place + 1, 0);
        }
        // Without a receiver the threads have failed, and their error is there.
        let _ = self.to_threads.as_ref().map(|threads| threads.send(range));
        Ok(())
    }
}

impl CopyInto for Sink<'_> {
    fn begin(&mut self, _: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()> {
        self.begin_attempt(plan, volumes).map_err(|error| self.fail(error))
    }

    /// Nothing: every page is wanted.
    fn read(&mut self, _: usize, _: u32, _: u32, _: &mut Vec<u8>) -> io::Result<()> {
        Ok(())
    }

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()> {
        self.check()?;
        if let Some(rate) = &mut self.rate {
            rate.take(pages.len() as u64);
        }
        let Some(attempt) = &mut self.attempt else { return Err(io::Error::other("the dump has not begun")) };
        attempt.take(self.generation, volume, first_page, pages).map_err(|error| self.fail(error))
    }

    /// Waits until everything that has arrived is stored.
    fn sync(&mut self) -> io::Result<()> {
        let Some(attempt) = &mut self.attempt else { return Ok(()) };
        attempt.to_threads = None;
        let mut panicked = false;
        for thread in attempt.threads.drain(..) {
            panicked |= thread.join().is_err();
        }
        if panicked {
            return Err(self.fail(DumpError::Thread("it has panicked".to_owned())));
        }
        self.check()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.check()
    }

    fn progress(&mut self, done: CopyProgress) {
        (self.progress)(DumpProgress {
            done_bytes: done.compared_bytes,
            total_bytes: done.total_bytes,
            stored_bytes: self.shared.stored_bytes.load(Ordering::Relaxed),
            interruptions: done.interruptions,
        });
    }
}
