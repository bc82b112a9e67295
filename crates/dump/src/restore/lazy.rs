//! A disk on which databases' files have the pages of a dump before these have been fetched.
//!
//! A file of a database is sparse at first. A page is fetched ([`pages`](super::pages)) when it is read for the first time;
//! meanwhile the reader waits. Everything else goes to the real disk, so that the engine rolls the trail forward over such a
//! file, and reads it, as over any other. A page that was written is never fetched.
//!
//! | a page of the dump is | read | written |
//! |---|---|---|
//! | absent | fetched, checked and written to the file; then read | whole: it is present from then on; in part: it is fetched first |
//! | present | from the file | to the file |
//!
//! Only one of a fetch and a write works on a file at a time, so that a fetched page never replaces a newer one. The time of a
//! file's last change is that of the last write by the engine: a fetch is no change.
//!
//! Nothing is synced: the directory is removed when the process ends, and no other process opens it. After a power cut it has
//! the mark `restoring`.
//!
//! Failure: a chunk that is missing or damaged is an error of the read, with its name; a hole is never read as a page.

use super::pages::{LazyVolume, PAGE, Pages, Request, Wanted};
use crate::error::DumpError;
use crate::manifest::Manifest;
use crate::repository::Repository;
use crossbeam_channel::{Sender, bounded, unbounded};
use holdfast_seams::{Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// See the module.
pub struct LazyDisk {
    real: Arc<dyn Disk>,
    pages: Arc<Pages>,
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
        let mut by_path = HashMap::new();
        let (pages, volumes) = Pages::new(repository, dump, manifest, files.len());
        let mut lazy = Vec::new();
        for (number, ((path, file), at)) in files.into_iter().zip(volumes).enumerate() {
            let failed = |source| DumpError::Io { what: "make", path: path.display().to_string(), source };
            file.set_len(at.len() as u64 * PAGE).map_err(failed)?;
            let volume = Arc::new(LazyVolume::new(number, at, file));
            by_path.insert(path, volume.clone());
            lazy.push(volume);
        }
        let pages = Arc::new(pages.over(lazy));
        let (requests, asked) = unbounded::<Request>();
        let (ahead, next) = unbounded::<u32>();
        // The receiver is there.
        pages.used_chunks().for_each(|chunk| _ = ahead.send(chunk));
        let spawn = |_| {
            let (pages, asked, next) = (pages.clone(), asked.clone(), next.clone());
            std::thread::spawn(move || pages.serve(&asked, &next))
        };
        let fetchers = (0..threads.max(2)).map(spawn).collect();
        let (files, requests) = (RwLock::new(by_path), Mutex::new(Some(requests)));
        Ok(LazyDisk { real, pages, files, requests, fetchers: Mutex::new(fetchers) })
    }

    /// From now on idle fetchers fetch the rest.
    pub fn fetch_ahead(&self) {
        self.pages.ahead.store(true, Ordering::Release);
    }

    /// Ends the fetchers; what is read then and is not there is an error.
    pub fn stop(&self) {
        self.pages.stopped.store(true, Ordering::Release);
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
        let Some(volume) = self.lazy(path) else { return Ok(Box::new(Unsynced(file))) };
        // Without fetchers its holes would be read.
        let requests = self.requests.lock().clone();
        let requests = requests.ok_or_else(|| io::Error::other("the dump is no longer read"))?;
        Ok(Box::new(LazyFile { file, volume, pages: self.pages.clone(), requests }))
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

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
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
    pages: Arc<Pages>,
    requests: Sender<Request>,
}

impl LazyFile {
    /// Waits until the pages are there.
    fn fetch(&self, pages: impl Iterator<Item = usize>) -> io::Result<()> {
        for page in pages {
            while !self.volume.present.lock()[page] {
                let wanted = Wanted { volume: self.volume.number, page };
                // Without a way to another thread where the chunk is in memory.
                if self.pages.take_cached(wanted).map_err(io::Error::other)? {
                    continue;
                }
                let (answer, answered) = bounded(1);
                let stopped = |_| io::Error::other("the dump is no longer read");
                self.requests.send(Request { wanted, answer }).map_err(|_| stopped(()))?;
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
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
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

/// A file that needs no sync: see the module.
struct Unsynced(Box<dyn DiskFile>);

impl DiskFile for Unsynced {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.0.write_at(bufs, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.0.len_bytes()
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.0.allocate(offset, len_bytes)
    }

    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{Naming, encode};
    use crate::manifest::tests::{manifest, plan};
    use crate::manifest::{Run, UsedChunk, VolumeMap};
    use holdfast_seams::{Create, RealDisk};

    const PAGES: usize = 8;
    const BYTES: usize = PAGE as usize;

    fn page(n: usize) -> Vec<u8> {
        vec![n as u8 + 1; BYTES]
    }

    /// Before readers are served only pages that are read are in the file, and their chunk is fetched once; afterwards all are,
    /// and none has replaced a page that was written.
    #[test]
    fn the_trail_fetches_pages_and_readers_the_rest() {
        let scratch = tempfile::TempDir::new().unwrap();
        let (place, path) = (scratch.path().join("dumps"), scratch.path().join("000001-a.db"));
        std::fs::create_dir(&place).unwrap();
        let repository = Arc::new(Repository::open(place.to_str().unwrap()).unwrap());
        let content: Vec<u8> = (0..PAGES).flat_map(page).collect();
        let (id, object) = encode(&Naming::default(), &content).unwrap();
        repository.put(&id.name(), object).unwrap();
        let mut manifest = manifest();
        manifest.head.plan = plan(&[PAGES as u32]);
        manifest.chunks = vec![UsedChunk { id, pages: PAGES as u32 }];
        let runs = vec![Run { chunk: 0, slot: 0, pages: PAGES as u32 }];
        manifest.volumes = vec![VolumeMap { runs, hashes: Vec::new() }];
        let real = Arc::new(RealDisk::new());
        let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
        let files = vec![(path.clone(), real.open(&path, &how).unwrap())];
        let disk = LazyDisk::new(real, repository, ("a dump".to_owned(), manifest), files, 2).unwrap();
        let in_file = |n: usize| std::fs::read(&path).unwrap()[n * BYTES..(n + 1) * BYTES].to_vec();
        let file = disk.open(&path, &OpenHow { write: true, ..OpenHow::default() }).unwrap();
        let read = |n: usize| {
            let mut bytes = vec![0; BYTES];
            file.read_at(&mut bytes, (n * BYTES) as u64).unwrap();
            bytes
        };
        assert_eq!(read(3), page(3));
        let hole = vec![0; BYTES];
        assert!((0..PAGES).all(|n| in_file(n) == if n == 3 { page(3) } else { hole.clone() }));
        // The chunk is in memory.
        let (chunk, away) = (place.join(id.name()), scratch.path().join("away"));
        std::fs::rename(&chunk, &away).unwrap();
        assert_eq!(read(4), page(4));
        file.write_at(&[IoSlice::new(&page(100))], 5 * PAGE).unwrap();
        // A part of a page: the rest of it comes first.
        file.write_at(&[IoSlice::new(&[9; 10])], 6 * PAGE).unwrap();
        assert_eq!(read(6)[..12], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7, 7]);
        assert_eq!(in_file(0), hole);
        std::fs::rename(&away, &chunk).unwrap();
        disk.fetch_ahead();
        while in_file(PAGES - 1) == hole {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        for n in [0, 1, 2, 3, 4, 7] {
            assert_eq!(read(n), page(n));
        }
        assert_eq!(in_file(5), page(100));
        disk.stop();
    }
}
