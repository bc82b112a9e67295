//! The page store of one volume: chains in shards, the database file underneath, the memory limit.

use super::adopt::Changes;
use super::chain::{Chain, Loc, Version, release};
use super::checksum;
use super::page::{PAGE_BYTES, Page, offset_of};
use super::scratch::Scratch;
use super::snapshots::{Needed, Snapshots};
use holdfast_seams::DiskFile;
use holdfast_types::VolumeId;
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;

/// How much memory and scratch space a store may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of pages held in memory, versions included.
    pub memory_bytes_max: u64,
    /// Bytes of versions in the scratch file; beyond it the oldest snapshot is expired.
    pub scratch_bytes_max: u64,
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("snapshot {0} is too old: its page versions were dropped because scratch space ran out")]
    SnapshotTooOld(u64),
    #[error(
        "page {page} at offset {offset} of {path} has a wrong checksum: it was damaged, or another program changed it; \
         run `holdfast check` to list all damaged pages, then restore it from a backup (`holdfast restore`)"
    )]
    Checksum { page: u32, offset: u64, path: String },
    #[error("cannot read page {page} at offset {offset} of {path}: {source}")]
    Io { page: u32, offset: u64, path: String, source: std::io::Error },
}

/// Counters of one store.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageStats {
    pub memory_pages: u64,
    pub scratch_bytes: u64,
    pub published_pages: u64,
    pub newest: u64,
    pub visible: u64,
    /// Oldest snapshot in use.
    pub oldest: Option<u64>,
}

#[derive(Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32(u32::from(*b)));
    }
    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

type Chains = HashMap<u32, Chain, BuildHasherDefault<PageHasher>>;

#[derive(Default)]
struct Shard {
    chains: Chains,
    /// Pages with versions in memory, in the order in which the clock hand passes them.
    clock: VecDeque<u32>,
    /// Pages with more than one version: some versions can be dropped soon.
    several: VecDeque<u32>,
}

impl Shard {
    /// Puts a page into the queues to which it belongs and in which it is not yet.
    fn enqueue(&mut self, page: u32) {
        let Some(chain) = self.chains.get_mut(&page) else { return };
        if !chain.queued {
            chain.queued = true;
            self.clock.push_back(page);
        }
        if chain.versions.len() > 1 && !chain.listed {
            chain.listed = true;
            self.several.push_back(page);
        }
    }
}

/// Pages that the writer or a branch has written since its last publish.
#[derive(Default)]
pub struct Staged {
    pages: HashMap<u32, Loc, BuildHasherDefault<PageHasher>>,
    in_memory: usize,
}

impl Staged {
    pub fn count(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn has(&self, page: u32) -> bool {
        self.pages.contains_key(&page)
    }
}

/// Staged pages beyond this fraction of the memory go to scratch (RULE 18), so that one large transaction does not fill
/// the memory.
const STAGED_PART: i64 = 4;

/// What one checkpoint writes: the newest visible version of every page that the file does not have yet.
pub struct CheckpointSet {
    /// The snapshot that the file will hold.
    pub snapshot: u64,
    /// Its size in pages.
    pub pages: u32,
    /// Each page with the snapshot number of the version to write, in page order.
    pub dirty: Vec<(u32, u64)>,
}

/// All page versions of one volume.
pub struct PageStore {
    volume: VolumeId,
    path: String,
    file: Arc<dyn DiskFile>,
    /// Pages of the database that the file holds.
    file_pages: AtomicU32,
    shards: Vec<Mutex<Shard>>,
    snapshots: Mutex<Snapshots>,
    newest: AtomicU64,
    visible: AtomicU64,
    expired_below: AtomicU64,
    /// The number of the next publish.
    next: AtomicU64,
    scratch: Scratch,
    limits: Limits,
    memory_pages: AtomicI64,
    published_pages: AtomicU64,
    hand: AtomicUsize,
    changes: Changes,
}

impl PageStore {
    /// A store over an opened database file whose content is `pages` pages at batch `number`.
    pub fn new(
        volume: VolumeId,
        path: String,
        file: Arc<dyn DiskFile>,
        scratch: Scratch,
        limits: Limits,
        number: u64,
        pages: u32,
    ) -> PageStore {
        let store = PageStore {
            volume,
            path,
            file,
            file_pages: AtomicU32::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            snapshots: Mutex::default(),
            newest: AtomicU64::new(0),
            visible: AtomicU64::new(0),
            expired_below: AtomicU64::new(0),
            next: AtomicU64::new(0),
            scratch,
            limits,
            memory_pages: AtomicI64::new(0),
            published_pages: AtomicU64::new(0),
            hand: AtomicUsize::new(0),
            changes: Changes::default(),
        };
        store.set_position(number, pages);
        store
    }

    /// Declares that the file is at batch `number`. Must be called before anything was published.
    pub fn set_position(&self, number: u64, pages: u32) {
        self.snapshots.lock().reset(number, pages);
        self.file_pages.store(pages, Ordering::Release);
        self.newest.store(number, Ordering::Release);
        self.visible.store(number, Ordering::Release);
        self.next.store(number + 1, Ordering::Release);
    }

    pub(super) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Sets the number of the next publish. Redo sets it, because it publishes many batches at once.
    pub fn set_next(&self, number: u64) {
        self.next.store(number, Ordering::Release);
    }

    /// Declares that readers may see batch `number` and all earlier ones: they are on disk, and have reached their levels.
    pub fn set_visible(&self, number: u64) {
        let mut s = self.snapshots.lock();
        s.set_visible(number);
        self.visible.store(s.visible, Ordering::Release);
    }

    /// Begins a snapshot and returns its number and size in pages. Each must be released.
    pub fn acquire(&self) -> (u64, u32) {
        self.snapshots.lock().acquire()
    }

    /// Begins to read the newest published snapshot, which may not be visible yet.
    pub fn acquire_newest(&self) -> (u64, u32) {
        self.snapshots.lock().acquire_newest()
    }

    /// Begins to read a snapshot that is already being read.
    pub fn acquire_at(&self, snapshot: u64) -> (u64, u32) {
        self.snapshots.lock().acquire_at(snapshot)
    }

    pub fn release(&self, snapshot: u64) {
        self.snapshots.lock().release(snapshot);
    }

    /// Size in pages of the newest snapshot.
    pub fn newest_pages(&self) -> u32 {
        let s = self.snapshots.lock();
        s.pages_of(s.newest)
    }

    /// Size in pages of the visible snapshot.
    pub fn visible_pages(&self) -> u32 {
        let s = self.snapshots.lock();
        s.pages_of(s.visible)
    }

    pub fn is_expired(&self, snapshot: u64) -> bool {
        snapshot < self.expired_below.load(Ordering::Acquire)
    }

    fn shard(&self, page: u32) -> &Mutex<Shard> {
        &self.shards[page as usize % SHARDS]
    }

    /// Copies bytes `at..at + out.len()` of a page, as snapshot `snapshot` sees it, to `out`.
    pub fn read(&self, page: u32, snapshot: u64, at: usize, out: &mut [u8]) -> Result<(), ReadError> {
        if self.read_version(page, snapshot, at, out)? {
            return self.still_there(snapshot);
        }
        let mut whole = [0; PAGE_BYTES];
        // A page that a transaction has taken and freed was never written, and is zeros, as beyond the end of any SQLite file.
        let is_hole = page > self.file_pages.load(Ordering::Acquire);
        let from_file = if is_hole { Ok(()) } else { self.read_file(page, &mut whole) };
        // A checkpoint that overwrites the page puts the file's version into the chain before it writes. So if the
        // chain still has nothing for this snapshot, the bytes read are those from before any such write.
        if !self.read_version(page, snapshot, at, out)? {
            self.still_there(snapshot)?;
            from_file?;
            out.copy_from_slice(&whole[at..at + out.len()]);
        }
        self.still_there(snapshot)
    }

    /// Checks after a read that the snapshot was not expired meanwhile: the version looked for may have been dropped,
    /// and another one read.
    fn still_there(&self, snapshot: u64) -> Result<(), ReadError> {
        if self.is_expired(snapshot) { Err(ReadError::SnapshotTooOld(snapshot)) } else { Ok(()) }
    }

    /// Reads from the chain. Returns false when the version is the file's.
    fn read_version(&self, page: u32, snapshot: u64, at: usize, out: &mut [u8]) -> Result<bool, ReadError> {
        let found = {
            let mut shard = self.shard(page).lock();
            let Some(chain) = shard.chains.get_mut(&page) else { return Ok(false) };
            chain.hot = true;
            match chain.read_at(snapshot).map(|v| &v.loc) {
                Some(Loc::Memory(p)) => p.clone(),
                Some(Loc::Scratch(slot)) => {
                    // Under the lock, because otherwise the slot could be given to another page.
                    let mut whole = [0; PAGE_BYTES];
                    self.scratch.get(*slot, &mut whole).map_err(|e| self.io_error(page, e))?;
                    out.copy_from_slice(&whole[at..at + out.len()]);
                    return Ok(true);
                }
                Some(Loc::File) | None => return Ok(false),
            }
        };
        out.copy_from_slice(&found.bytes()[at..at + out.len()]);
        Ok(true)
    }

    /// Reads a page from the database file and checks it.
    pub(crate) fn read_file(&self, page: u32, whole: &mut [u8; PAGE_BYTES]) -> Result<(), ReadError> {
        let offset = offset_of(page);
        let n = self.file.read_at(whole, offset).map_err(|e| self.io_error(page, e))?;
        if n < PAGE_BYTES {
            return Err(self.io_error(page, std::io::ErrorKind::UnexpectedEof.into()));
        }
        // SQLite never writes a page that it allocated and freed in one transaction: such a page is a hole.
        if checksum::holds(whole, page, self.volume.0) || whole.iter().all(|b| *b == 0) {
            Ok(())
        } else {
            Err(ReadError::Checksum { page, offset, path: self.path.clone() })
        }
    }

    pub(super) fn io_error(&self, page: u32, source: std::io::Error) -> ReadError {
        ReadError::Io { page, offset: offset_of(page), path: self.path.clone(), source }
    }

    /// Takes a page that the writer has changed.
    pub fn stage(&self, staged: &mut Staged, page: u32, bytes: &[u8]) -> std::io::Result<()> {
        let loc = match staged.pages.get(&page) {
            Some(Loc::Scratch(slot)) => {
                self.scratch.free(*slot);
                staged.pages.remove(&page);
                Loc::Scratch(self.scratch.put(bytes)?)
            }
            Some(_) => Loc::Memory(Page::copy_of(bytes)),
            None if staged.in_memory as i64 >= self.memory_pages_max() / STAGED_PART => {
                Loc::Scratch(self.scratch.put(bytes)?)
            }
            None => {
                staged.in_memory += 1;
                Loc::Memory(Page::copy_of(bytes))
            }
        };
        staged.pages.insert(page, loc);
        Ok(())
    }

    /// Reads a staged page. Returns false when it was not staged.
    pub fn read_staged(&self, staged: &Staged, page: u32, at: usize, out: &mut [u8]) -> Result<bool, ReadError> {
        match staged.pages.get(&page) {
            Some(Loc::Memory(p)) => out.copy_from_slice(&p.bytes()[at..at + out.len()]),
            Some(Loc::Scratch(slot)) => {
                let mut whole = [0; PAGE_BYTES];
                self.scratch.get(*slot, &mut whole).map_err(|e| self.io_error(page, e))?;
                out.copy_from_slice(&whole[at..at + out.len()]);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Forgets staged pages beyond `pages`: the transaction that grew the database was rolled back.
    pub fn truncate_staged(&self, staged: &mut Staged, pages: u32) {
        let mut freed = 0;
        staged.pages.retain(|page, loc| {
            let keep = *page <= pages;
            if !keep {
                freed += release(loc, &self.scratch);
            }
            keep
        });
        staged.in_memory -= freed;
    }

    /// Publishes the staged pages as the next snapshot and returns its number.
    pub fn publish(&self, staged: &mut Staged, pages: u32) -> u64 {
        let number = self.next.load(Ordering::Acquire);
        let needed = self.snapshots.lock().needed();
        let count = staged.pages.len();
        self.changes.published(staged.pages.keys().copied());
        let mut grown = 0i64;
        for (page, loc) in staged.pages.drain() {
            let mut shard = self.shard(page).lock();
            let shard = &mut *shard;
            let chain = shard.chains.entry(page).or_default();
            grown += i64::from(matches!(loc, Loc::Memory(_)));
            chain.versions.push(Version { snapshot: number, loc, in_file: false });
            grown -= chain.prune(&needed, &self.scratch) as i64;
            if !chain.queued || (chain.versions.len() > 1 && !chain.listed) {
                shard.enqueue(page);
            }
        }
        staged.in_memory = 0;
        self.memory_pages.fetch_add(grown, Ordering::Relaxed);
        self.published_pages.fetch_add(count as u64, Ordering::Relaxed);
        self.snapshots.lock().publish(number, pages);
        self.newest.store(number, Ordering::Release);
        self.next.store(number + 1, Ordering::Release);
        self.tend(count * 2 + 16);
        number
    }

    /// Examines up to `steps` pages: drops versions that no snapshot needs and, beyond the memory limit, moves pages
    /// out. The work is bounded, so that each publish takes about the same time.
    pub fn tend(&self, steps: usize) {
        let needed = self.snapshots.lock().needed();
        let mut left = steps;
        for _ in 0..SHARDS {
            let over = self.memory_pages.load(Ordering::Relaxed) > self.memory_pages_max();
            if left == 0 {
                break;
            }
            let at = self.hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let mut shard = self.shards[at].lock();
            let looked = self.prune_several(&mut shard, left.div_ceil(8), &needed)
                + if over { self.pass_clock(&mut shard, left.div_ceil(4)) } else { 0 };
            left = left.saturating_sub(looked.max(1));
        }
        self.expire_if_scratch_full();
    }

    /// Drops unneeded versions of pages that have several.
    fn prune_several(&self, shard: &mut Shard, steps: usize, needed: &Needed) -> usize {
        let passes = steps.min(shard.several.len());
        for _ in 0..passes {
            let Some(page) = shard.several.pop_front() else { break };
            let Entry::Occupied(mut entry) = shard.chains.entry(page) else { continue };
            let chain = entry.get_mut();
            let freed = chain.prune(needed, &self.scratch);
            self.memory_pages.fetch_sub(freed as i64, Ordering::Relaxed);
            chain.listed = chain.versions.len() > 1;
            if chain.listed {
                shard.several.push_back(page);
            } else if chain.is_redundant() && !chain.queued {
                entry.remove();
            }
        }
        passes
    }

    /// Moves pages out of memory that were not read since the clock hand last passed.
    fn pass_clock(&self, shard: &mut Shard, steps: usize) -> usize {
        let passes = steps.min(shard.clock.len());
        for _ in 0..passes {
            let Some(page) = shard.clock.pop_front() else { break };
            let Entry::Occupied(mut entry) = shard.chains.entry(page) else { continue };
            let chain = entry.get_mut();
            if !chain.hot {
                let freed = chain.evict(&self.scratch);
                self.memory_pages.fetch_sub(freed as i64, Ordering::Relaxed);
            }
            chain.hot = false;
            chain.queued = chain.in_memory() > 0;
            if chain.queued {
                shard.clock.push_back(page);
            } else if chain.is_redundant() && !chain.listed {
                entry.remove();
            }
        }
        passes
    }

    fn memory_pages_max(&self) -> i64 {
        (self.limits.memory_bytes_max / PAGE_BYTES as u64) as i64
    }

    fn expire_if_scratch_full(&self) {
        if self.scratch.used_bytes() <= self.limits.scratch_bytes_max {
            return;
        }
        let needed = {
            let mut s = self.snapshots.lock();
            let Some(number) = s.expire_oldest() else { return };
            self.expired_below.store(s.expired_below, Ordering::Release);
            tracing::warn!(
                volume = self.volume.0,
                snapshot = number,
                "scratch is full: the oldest snapshot has expired"
            );
            s.needed()
        };
        // Drop now what only that snapshot needed; otherwise the next check would expire another snapshot in vain.
        for shard in &self.shards {
            let mut shard = shard.lock();
            let all = shard.several.len();
            self.prune_several(&mut shard, all, &needed);
        }
    }

    /// Pins the newest visible snapshot and lists the pages whose version the file lacks. Must be followed by
    /// [`PageStore::end_checkpoint`].
    pub fn begin_checkpoint(&self) -> CheckpointSet {
        let (snapshot, pages) = self.snapshots.lock().pin();
        let mut dirty = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            for (page, chain) in &shard.chains {
                if let Some(v) = chain.read_at(snapshot).filter(|v| !v.in_file && *page <= pages && v.snapshot > 0) {
                    dirty.push((*page, v.snapshot));
                }
            }
        }
        dirty.sort_unstable();
        CheckpointSet { snapshot, pages, dirty }
    }

    pub fn end_checkpoint(&self, set: &CheckpointSet) {
        self.snapshots.lock().unpin(set.snapshot);
    }

    /// Copies the bytes that a checkpoint writes for `page`, which must be in the set of a running checkpoint.
    pub fn checkpoint_page(&self, set: &CheckpointSet, page: u32, out: &mut [u8; PAGE_BYTES]) -> Result<(), ReadError> {
        if self.read_version(page, set.snapshot, 0, out)? {
            return Ok(());
        }
        let lost = std::io::Error::other("its version is not in memory (internal error)");
        Err(self.io_error(page, lost))
    }

    /// Saves the version that the file holds now, if an older snapshot can still read it. Called before the file's page
    /// is overwritten with version `version` (RULE 12).
    pub fn protect(&self, page: u32, version: u64, file_pages: u32) -> Result<(), ReadError> {
        let needed = self.snapshots.lock().needed();
        let mut shard = self.shard(page).lock();
        let shard = &mut *shard;
        let Some(chain) = shard.chains.get_mut(&page) else { return Ok(()) };
        let mut grown = 0;
        let first = chain.versions.first().map_or(version, |v| v.snapshot);
        if first > 0 && page <= file_pages && needed.read_between(0, first) {
            let base = self.file_page(page)?;
            chain.versions.insert(0, Version { snapshot: 0, loc: Loc::Memory(base), in_file: false });
            grown += 1;
        }
        for i in (0..chain.versions.len()).rev() {
            if matches!(chain.versions[i].loc, Loc::File) {
                let until = chain.versions.get(i + 1).map_or(u64::MAX, |v| v.snapshot);
                if needed.covers(chain.versions[i].snapshot, until) {
                    chain.versions[i].loc = Loc::Memory(self.file_page(page)?);
                    grown += 1;
                } else {
                    chain.versions.remove(i);
                    continue;
                }
            }
            chain.versions[i].in_file = false;
        }
        shard.enqueue(page);
        self.memory_pages.fetch_add(grown, Ordering::Relaxed);
        Ok(())
    }

    fn file_page(&self, page: u32) -> Result<Page, ReadError> {
        let mut whole = [0; PAGE_BYTES];
        self.read_file(page, &mut whole)?;
        Ok(Page::copy_of(&whole))
    }

    /// Records that the file now holds `pages` pages.
    pub fn grown(&self, pages: u32) {
        self.file_pages.fetch_max(pages, Ordering::AcqRel);
    }

    /// Records that the file now holds version `version` of `page`.
    pub fn landed(&self, page: u32, version: u64) {
        let mut shard = self.shard(page).lock();
        let Some(chain) = shard.chains.get_mut(&page) else { return };
        if let Some(v) = chain.versions.iter_mut().find(|v| v.snapshot == version) {
            v.in_file = true;
            if let Loc::Scratch(slot) = v.loc {
                self.scratch.free(slot);
                v.loc = Loc::File;
            }
        }
        // A queued page is removed when its turn comes, because a queue must not name a page twice.
        if chain.is_redundant() && !chain.queued && !chain.listed {
            shard.chains.remove(&page);
        }
    }

    pub fn stats(&self) -> PageStats {
        let s = self.snapshots.lock();
        PageStats {
            memory_pages: self.memory_pages.load(Ordering::Relaxed).max(0) as u64,
            scratch_bytes: self.scratch.used_bytes(),
            published_pages: self.published_pages.load(Ordering::Relaxed),
            newest: s.newest,
            visible: s.visible,
            oldest: s.oldest_active(),
        }
    }
}
