//! A disk on which databases' files have the pages of a dump before these have been fetched.
//!
//! A file of a database is sparse at first. A page is fetched, with its chunk, when it is read for the first time; meanwhile the
//! reader waits. Everything else goes to the real disk, so that the engine rolls the trail forward over such a file, and reads
//! it, as over any other. A page that was written is never fetched. Idle fetchers fetch what no reader has asked for yet.
//!
//! | a page of the dump is | read | written |
//! |---|---|---|
//! | absent | its chunk is fetched and checked; of its pages those that are absent are written to the file; then read | whole: it is present from then on; in part: it is fetched first |
//! | present | from the file | to the file |
//!
//! Only one of a fetch and a write works on a file at a time, so that a fetched page never replaces a newer one. The time of a
//! file's last change is that of the last write by the engine: a fetch is no change.
//!
//! Failure: a chunk that is missing or damaged is an error of the read, with its name; a hole is never read as a page.

use crate::error::DumpError;
use crate::manifest::Manifest;
use crate::repository::Repository;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use holdfast_seams::{Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow};
use holdfast_standby::limits::PAGE_BYTES;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

const PAGE: u64 = PAGE_BYTES as u64;

/// A page of a volume: where a chunk's page belongs.
#[derive(Clone, Copy)]
struct Place {
    volume: usize,
    page: u32,
    slot: u32,
}

/// A database's file.
struct LazyVolume {
    /// The chunk of each page, by its place in the manifest.
    chunks: Vec<u32>,
    present: Mutex<Vec<bool>>,
    /// For fetches; the engine has handles of its own.
    file: Box<dyn DiskFile>,
    modified_unix_ns: AtomicI64,
}

impl LazyVolume {
    fn written(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.modified_unix_ns.store(i64::try_from(now).unwrap_or(i64::MAX), Ordering::Release);
    }

    /// The pages of the dump that a range of bytes touches.
    fn pages(&self, offset: u64, bytes: u64) -> std::ops::Range<usize> {
        let last = self.chunks.len() as u64;
        let (from, to) = ((offset / PAGE).min(last), (offset + bytes).div_ceil(PAGE).min(last));
        from as usize..to as usize
    }
}

/// A request of a reader: the chunk, and where the answer goes.
struct Request {
    chunk: u32,
    answer: Sender<Result<(), String>>,
}

/// What readers and fetchers share.
struct Shared {
    repository: Arc<Repository>,
    dump: String,
    manifest: Manifest,
    /// By chunk.
    places: Vec<Vec<Place>>,
    volumes: RwLock<Vec<Arc<LazyVolume>>>,
    /// Whether a chunk's pages are all present; held while it is fetched.
    fetched: Vec<Mutex<bool>>,
    fetched_bytes: AtomicU64,
    stopped: AtomicBool,
    /// Nothing is fetched ahead before the trail is rolled forward: readers would wait behind it.
    ahead: AtomicBool,
}

impl Shared {
    fn fetch(&self, chunk: u32) -> Result<(), String> {
        let mut fetched = self.fetched[chunk as usize].lock();
        if *fetched {
            return Ok(());
        }
        let id = &self.manifest.chunks[chunk as usize].id;
        let pages = self.repository.chunk(id, &self.dump).map_err(|error| error.to_string())?;
        let volumes = self.volumes.read().clone();
        for place in &self.places[chunk as usize] {
            let volume = &volumes[place.volume];
            let from = place.slot as usize * PAGE_BYTES;
            let page = pages.get(from..from + PAGE_BYTES);
            let page = page.ok_or_else(|| format!("{} has fewer pages than {} names", id.name(), self.dump))?;
            let mut present = volume.present.lock();
            if !present[place.page as usize] {
                let written = volume.file.write_at(&[IoSlice::new(page)], u64::from(place.page) * PAGE);
                written.map_err(|e| format!("a page of {} cannot be kept: {e}", id.name()))?;
                present[place.page as usize] = true;
            }
        }
        self.fetched_bytes.fetch_add(pages.len() as u64, Ordering::Relaxed);
        *fetched = true;
        Ok(())
    }

    /// The body of a fetcher: what readers ask for first, then the rest.
    fn serve(&self, requests: &Receiver<Request>, ahead: &Receiver<u32>) {
        let patience = std::time::Duration::from_millis(50);
        loop {
            match requests.recv_timeout(if self.ahead.load(Ordering::Acquire) { Default::default() } else { patience })
            {
                Ok(Request { chunk, answer }) => {
                    // A reader that has gone needs no answer.
                    let _ = answer.send(self.fetch(chunk));
                }
                Err(_) if self.stopped.load(Ordering::Acquire) => return,
                Err(_) if !self.ahead.load(Ordering::Acquire) => {}
                Err(_) => match ahead.try_recv() {
                    Ok(chunk) => {
                        // A reader that needs it tries again, and reports it.
                        if let Err(error) = self.fetch(chunk) {
                            tracing::error!("a chunk of the dump cannot be fetched: {error}");
                        }
                    }
                    Err(_) => self.ahead.store(false, Ordering::Release),
                },
            }
        }
    }
}

/// See the module.
pub struct LazyDisk {
    real: Arc<dyn Disk>,
    shared: Arc<Shared>,
    /// The databases' files, by path.
    files: RwLock<HashMap<PathBuf, Arc<LazyVolume>>>,
    requests: Mutex<Option<Sender<Request>>>,
    fetchers: Mutex<Vec<JoinHandle<()>>>,
}

impl LazyDisk {
    /// `files`: the paths of the volumes, in the manifest's order; they are made.
    pub fn new(
        real: Arc<dyn Disk>,
        repository: Arc<Repository>,
        (dump, manifest): (String, Manifest),
        files: Vec<(PathBuf, Box<dyn DiskFile>)>,
        threads: usize,
    ) -> Result<LazyDisk, DumpError> {
        let mut places: Vec<Vec<Place>> = manifest.chunks.iter().map(|_| Vec::new()).collect();
        let (mut volumes, mut by_path) = (Vec::new(), HashMap::new());
        for (volume, (map, (path, file))) in manifest.volumes.iter().zip(files).enumerate() {
            let mut chunks = Vec::new();
            for run in &map.runs {
                for n in 0..run.pages {
                    let page = chunks.len() as u32;
                    places[run.chunk as usize].push(Place { volume, page, slot: run.slot + n });
                    chunks.push(run.chunk);
                }
            }
            let failed = |source| DumpError::Io { what: "make", path: path.display().to_string(), source };
            file.set_len(chunks.len() as u64 * PAGE).map_err(failed)?;
            let present = Mutex::new(vec![false; chunks.len()]);
            let lazy = Arc::new(LazyVolume { chunks, present, file, modified_unix_ns: AtomicI64::new(0) });
            lazy.written();
            by_path.insert(path, lazy.clone());
            volumes.push(lazy);
        }
        let fetched = manifest.chunks.iter().map(|_| Mutex::new(false)).collect();
        let shared = Arc::new(Shared {
            repository,
            dump,
            manifest,
            places,
            volumes: RwLock::new(volumes),
            fetched,
            fetched_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            ahead: AtomicBool::new(false),
        });
        let (requests, asked) = unbounded::<Request>();
        let (ahead, next) = unbounded::<u32>();
        for chunk in (0..shared.manifest.chunks.len() as u32).filter(|chunk| !shared.places[*chunk as usize].is_empty())
        {
            // The receiver is there.
            let _ = ahead.send(chunk);
        }
        let spawn = |_| {
            let (shared, asked, next) = (shared.clone(), asked.clone(), next.clone());
            std::thread::spawn(move || shared.serve(&asked, &next))
        };
        let fetchers = (0..threads.max(2)).map(spawn).collect();
        let (files, requests) = (RwLock::new(by_path), Mutex::new(Some(requests)));
        Ok(LazyDisk { real, shared, files, requests, fetchers: Mutex::new(fetchers) })
    }

    /// From now on idle fetchers fetch the rest.
    pub fn fetch_ahead(&self) {
        self.shared.ahead.store(true, Ordering::Release);
    }

    /// Bytes of pages fetched so far.
    pub fn fetched_bytes(&self) -> u64 {
        self.shared.fetched_bytes.load(Ordering::Relaxed)
    }

    /// Ends the fetchers; what is read then and is not there is an error.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        *self.requests.lock() = None;
        for fetcher in self.fetchers.lock().drain(..) {
            // One that has panicked has ended, too.
            let _ = fetcher.join();
        }
    }

    fn lazy(&self, path: &Path) -> Option<Arc<LazyVolume>> {
        self.files.read().get(path).cloned()
    }
}

impl Drop for LazyDisk {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Disk for LazyDisk {
    fn open(&self, path: &Path, how: &OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let file = self.real.open(path, how)?;
        let Some(volume) = self.lazy(path) else { return Ok(file) };
        // Without fetchers its holes would be read.
        let requests = self.requests.lock().clone();
        let requests = requests.ok_or_else(|| io::Error::other("the dump is no longer read"))?;
        Ok(Box::new(LazyFile { file, volume, requests }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.real.rename(from, to)?;
        let mut files = self.files.write();
        files.remove(to);
        let moved = files.remove(from);
        moved.into_iter().for_each(|volume| _ = files.insert(to.to_owned(), volume));
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse_lazy(from)?;
        self.real.rename_new(from, to)
    }

    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.refuse_lazy(from)?;
        self.refuse_lazy(to)?;
        self.real.exchange(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)?;
        self.files.write().remove(path);
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.real.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.sync_dir(dir)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        self.real.free_bytes(dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let found = self.real.metadata(path)?;
        let Some(volume) = self.lazy(path) else { return Ok(found) };
        let modified = i128::from(volume.modified_unix_ns.load(Ordering::Acquire));
        Ok(found.map(|found| Metadata { modified_unix_ns: modified, ..found }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        self.real.lock(path)
    }

    fn stats(&self) -> DiskStats {
        self.real.stats()
    }
}

impl LazyDisk {
    /// No part of the engine does that with a database's file.
    fn refuse_lazy(&self, path: &Path) -> io::Result<()> {
        match self.lazy(path) {
            Some(_) => Err(io::Error::other("a database that is being fetched cannot be replaced")),
            None => Ok(()),
        }
    }
}

struct LazyFile {
    file: Box<dyn DiskFile>,
    volume: Arc<LazyVolume>,
    requests: Sender<Request>,
}

impl LazyFile {
    /// Waits until the pages are there.
    fn fetch(&self, pages: impl Iterator<Item = usize>) -> io::Result<()> {
        for page in pages {
            while !self.volume.present.lock()[page] {
                let (answer, answered) = bounded(1);
                let stopped = |_| io::Error::other("the dump is no longer read");
                let request = Request { chunk: self.volume.chunks[page], answer };
                self.requests.send(request).map_err(|_| stopped(()))?;
                let fetched = answered.recv().map_err(|_| stopped(()))?;
                fetched.map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}

impl DiskFile for LazyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.fetch(self.volume.pages(offset, buf.len() as u64))?;
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let pages = self.volume.pages(offset, bytes);
        let is_whole = |page: &usize| *page as u64 * PAGE >= offset && (*page as u64 + 1) * PAGE <= offset + bytes;
        self.fetch(pages.clone().filter(|page| !is_whole(page)))?;
        let mut present = self.volume.present.lock();
        self.file.write_at(bufs, offset)?;
        present[pages].fill(true);
        self.volume.written();
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut present = self.volume.present.lock();
        self.file.set_len(len_bytes)?;
        // What is cut off does not come back when the file grows again.
        let kept = (len_bytes.div_ceil(PAGE) as usize).min(present.len());
        present[kept..].fill(true);
        self.volume.written();
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.file.len_bytes()
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.file.allocate(offset, len_bytes)
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}
