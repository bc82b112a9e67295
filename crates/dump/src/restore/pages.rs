//! The pages of a dump on their way into sparse files of databases ([`lazy`](super::lazy)).
//!
//! | while | a chunk is fetched, and |
//! |---|---|
//! | the trail is applied | the one page that is wanted is written to its file: the rest would be most of the work, and is not needed yet. The chunk stays in memory, of which at most [`CACHED_CHUNKS`] are. One that is fetched a second time is written as a whole |
//! | readers are served | all its pages that are absent are written. Idle fetchers fetch what no reader has asked for yet |
//!
//! Failure: a chunk that is missing or damaged is the answer to each request for its pages.

use crate::manifest::{Manifest, UsedChunk};
use crate::repository::Repository;
use crossbeam_channel::{Receiver, Sender};
use holdfast_seams::DiskFile;
use holdfast_standby::limits::PAGE_BYTES;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub const PAGE: u64 = PAGE_BYTES as u64;
/// Chunks in memory, each of at most 4 MiB.
const CACHED_CHUNKS: usize = 64;
/// Pages that are written at once; readers of the file wait meanwhile.
const RUN_PAGES: usize = 64;
/// How long a fetcher waits for a request before it looks whether it has to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// A page's place in the dump: the chunk, by its place in the manifest, and the page's place in the chunk.
#[derive(Clone, Copy)]
pub struct At {
    chunk: u32,
    slot: u32,
}

/// A page of a chunk, and where it belongs.
#[derive(Clone, Copy)]
struct Place {
    volume: usize,
    page: usize,
    slot: u32,
}

/// A database's file.
pub struct LazyVolume {
    /// Its place in the manifest.
    pub number: usize,
    /// Where each page is.
    at: Vec<At>,
    pub present: Mutex<Vec<bool>>,
    /// For fetches; the engine has handles of its own.
    file: Box<dyn DiskFile>,
    pub modified_unix_ns: AtomicI64,
}

impl LazyVolume {
    pub fn new(number: usize, at: Vec<At>, file: Box<dyn DiskFile>) -> LazyVolume {
        let present = Mutex::new(vec![false; at.len()]);
        let volume = LazyVolume { number, at, present, file, modified_unix_ns: AtomicI64::new(0) };
        volume.written();
        volume
    }

    pub fn written(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.modified_unix_ns.store(i64::try_from(now).unwrap_or(i64::MAX), Ordering::Release);
    }

    /// The pages of the dump that a range of bytes touches.
    pub fn pages(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let last = self.at.len() as u64;
        let (from, to) = ((offset / PAGE).min(last), (offset + bytes).div_ceil(PAGE).min(last));
        from as usize..to as usize
    }
}

/// A page that a reader needs.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub volume: usize,
    pub page: usize,
}

/// A request of a reader, and where the answer goes.
pub struct Request {
    pub wanted: Wanted,
    pub answer: Sender<Result<(), String>>,
}

/// What is known of a chunk; locked while it is fetched.
#[derive(Default)]
struct State {
    /// Its pages are all present.
    whole: bool,
    /// It was fetched before.
    fetched: bool,
    content: Weak<Vec<u8>>,
}

/// See the module.
pub struct Pages {
    repository: Arc<Repository>,
    dump: String,
    chunks: Vec<UsedChunk>,
    /// By chunk, in the order of volumes and pages.
    places: Vec<Vec<Place>>,
    states: Vec<Mutex<State>>,
    volumes: Vec<Arc<LazyVolume>>,
    /// What keeps chunks in memory, the oldest first.
    cached: Mutex<VecDeque<Arc<Vec<u8>>>>,
    pub stopped: AtomicBool,
    /// Readers are served, and not everything is fetched: before, what is fetched ahead would keep the trail waiting.
    pub ahead: AtomicBool,
}

impl Pages {
    /// Pages without files yet, and where those of each of `volumes` volumes are.
    pub fn new(repository: Arc<Repository>, dump: String, manifest: Manifest, volumes: usize) -> (Pages, Vec<Vec<At>>) {
        let mut places: Vec<Vec<Place>> = manifest.chunks.iter().map(|_| Vec::new()).collect();
        let mut at: Vec<Vec<At>> = Vec::new();
        for (volume, map) in manifest.volumes.iter().enumerate().take(volumes) {
            let mut pages = Vec::with_capacity(map.runs.iter().map(|run| run.pages as usize).sum());
            for run in &map.runs {
                for slot in run.slot..run.slot + run.pages {
                    places[run.chunk as usize].push(Place { volume, page: pages.len(), slot });
                    pages.push(At { chunk: run.chunk, slot });
                }
            }
            at.push(pages);
        }
        let states = manifest.chunks.iter().map(|_| Mutex::default()).collect();
        let (cached, stopped, ahead) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
        let (chunks, volumes) = (manifest.chunks, Vec::new());
        (Pages { repository, dump, chunks, places, states, volumes, cached, stopped, ahead }, at)
    }

    /// With the volumes' files.
    pub fn over(self, volumes: Vec<Arc<LazyVolume>>) -> Pages {
        Pages { volumes, ..self }
    }

    /// The chunks that have pages of these volumes.
    pub fn used_chunks(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.places).filter(|(_, places)| !places.is_empty()).map(|(chunk, _)| chunk)
    }

    /// Writes the page to its file if its chunk is in memory.
    pub fn take_cached(&self, wanted: Wanted) -> Result<bool, String> {
        let at = self.volumes[wanted.volume].at[wanted.page];
        // A chunk that is being fetched will be there for the next page of it.
        let Some(state) = self.states[at.chunk as usize].try_lock() else { return Ok(false) };
        let Some(content) = state.content.upgrade() else { return Ok(false) };
        drop(state);
        self.write(at.chunk, &content, &[Place { volume: wanted.volume, page: wanted.page, slot: at.slot }])?;
        Ok(true)
    }

    /// Fetches a chunk for a page, or for all its pages.
    fn fetch(&self, chunk: u32, wanted: Option<Wanted>) -> Result<(), String> {
        let mut state = self.states[chunk as usize].lock();
        if state.whole {
            return Ok(());
        }
        let again = state.fetched;
        let (content, is_cached) = match state.content.upgrade() {
            Some(content) => (content, true),
            None => {
                let id = &self.chunks[chunk as usize].id;
                let content = self.repository.chunk(id, &self.dump).map_err(|error| error.to_string())?;
                (Arc::new(content), false)
            }
        };
        let one = wanted.filter(|_| !self.ahead.load(Ordering::Acquire) && (!again || is_cached));
        let Some(Wanted { volume, page }) = one else {
            self.write(chunk, &content, &self.places[chunk as usize])?;
            (state.whole, state.content) = (true, Weak::new());
            return Ok(());
        };
        self.write(chunk, &content, &[Place { volume, page, slot: self.volumes[volume].at[page].slot }])?;
        if !is_cached {
            (state.fetched, state.content) = (true, Arc::downgrade(&content));
            let mut cached = self.cached.lock();
            cached.push_back(content);
            if cached.len() > CACHED_CHUNKS {
                cached.pop_front();
            }
        }
        Ok(())
    }

    /// Writes those pages of a chunk that are absent.
    fn write(&self, chunk: u32, content: &[u8], places: &[Place]) -> Result<(), String> {
        let name = || self.chunks[chunk as usize].id.name();
        let mut rest = places;
        while let Some((first, others)) = rest.split_first() {
            let volume = &self.volumes[first.volume];
            let mut present = volume.present.lock();
            let next = |(n, place): &(usize, &Place)| {
                let follows = (place.volume, place.page, place.slot as usize)
                    == (first.volume, first.page + n, first.slot as usize + n);
                follows && *n < RUN_PAGES && !present[place.page]
            };
            let count = rest.iter().enumerate().take_while(next).count();
            if count == 0 {
                rest = others;
                continue;
            }
            let from = first.slot as usize * PAGE_BYTES;
            let pages = content.get(from..from + count * PAGE_BYTES);
            let pages = pages.ok_or_else(|| format!("{} has fewer pages than {} names", name(), self.dump))?;
            let written = volume.file.write_at(&[IoSlice::new(pages)], first.page as u64 * PAGE);
            written.map_err(|e| format!("pages of {} cannot be kept: {e}", name()))?;
            present[first.page..first.page + count].fill(true);
            rest = &rest[count..];
        }
        Ok(())
    }

    /// The body of a fetcher: what readers ask for first, then the rest.
    pub fn serve(&self, requests: &Receiver<Request>, ahead: &Receiver<u32>) {
        loop {
            let is_ahead = self.ahead.load(Ordering::Acquire);
            match requests.recv_timeout(if is_ahead { Duration::ZERO } else { PATIENCE }) {
                Ok(Request { wanted, answer }) => {
                    let chunk = self.volumes[wanted.volume].at[wanted.page].chunk;
                    // A reader that has gone needs no answer.
                    let _ = answer.send(self.fetch(chunk, Some(wanted)));
                }
                Err(_) if self.stopped.load(Ordering::Acquire) => return,
                Err(_) if !is_ahead => {}
                Err(_) => match ahead.try_recv() {
                    Ok(chunk) => {
                        // A reader that needs it tries again, and reports it.
                        if let Err(error) = self.fetch(chunk, None) {
                            tracing::error!("a chunk of the dump cannot be fetched: {error}");
                        }
                    }
                    Err(_) => self.ahead.store(false, Ordering::Release),
                },
            }
        }
    }
}
