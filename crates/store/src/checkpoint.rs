//! The checkpoint: the file catches up with a visible snapshot.
//!
//! 1. Pin the newest visible snapshot C; list the pages whose version at C the file lacks.
//! 2. Reserve the space the database file will need (RULE 7), so that step 4 cannot find the disk full.
//! 3. Write those pages as a `-wal` file with one commit, and sync it. From here on the file together with the `-wal`
//!    is the database at C.
//! 4. For each page: save the file's version if an older snapshot still needs it, then overwrite it. Sync the file.
//! 5. Let the caller record in the trail that the file is at C (and wait until that is durable).
//! 6. Clear the `-wal`.
//!
//! | power fails | the next open finds | and |
//! |---|---|---|
//! | in 1, 2 or 3 | the old file, a torn `-wal` or none | clears it; redo starts where it would have before |
//! | in 4 or 5 | a mixture and a whole `-wal` | copies again; the trail's record is older, redo skips what C has |
//! | in 6 | the new file, perhaps the `-wal` | copies again, the same bytes |
//!
//! Errors up to step 3 leave everything as it was. An error in step 4 cannot be undone here: the `-wal` stays, and the
//! caller must end the process, so that the next open copies again (guarantee 5: a failed sync is never retried).

use crate::pages::{CheckpointSet, PAGE_BYTES, PageStore, ReadError, checksum, offset_of};
use crate::wal_file::WalWriter;
use holdfast_seams::sabotage::{Sabotage, asked};
use holdfast_seams::{Create, Disk, DiskFile, OpenHow};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of consecutive pages gathered into one write.
const RUN_PAGES_MAX: usize = 128;

/// Maximum bytes written before a sync. Syncing all of a large checkpoint at once fills the disk's queue, and the
/// trail's writes wait in it: 90 to 130 ms for a batch of 4 KiB. Measured with pieces of this size (pgbench -M
/// prepared -c 16 -T 20, one UPDATE of a random one of 200,000 rows of 300 bytes, three runs each, in turn): the same
/// rate; 99.9 % of the commits within 4.8 to 10.6 ms instead of 8.8 to 15.7 ms; the longest 26 to 38 ms instead of 36
/// to 95 ms.
const UNSYNCED_BYTES_MAX: usize = 2 << 20;

/// After each piece the checkpoint leaves the disk to others for as long as it kept it busy, at most this long.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Paces a large write: pieces with pauses in which other writes get through.
struct Pace {
    unsynced_bytes: usize,
}

impl Pace {
    fn wrote(&mut self, file: &dyn DiskFile, bytes: usize) -> io::Result<()> {
        self.unsynced_bytes += bytes;
        if self.unsynced_bytes < UNSYNCED_BYTES_MAX || asked(Sabotage::CheckpointNoSync) {
            return Ok(());
        }
        self.unsynced_bytes = 0;
        let started = Instant::now();
        file.sync_data()?;
        std::thread::sleep(started.elapsed().min(PAUSE_MAX));
        Ok(())
    }
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    /// The batch number that the file is at.
    pub number: u64,
    pub pages_written: u64,
    pub file_bytes: u64,
    pub file_modified_unix_ns: i128,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Nothing was changed; the checkpoint may be tried again.
    #[error(
        "cannot write the checkpoint file {path}: {source}; free disk space or fix the disk; the server tries again"
    )]
    Retry { path: String, source: io::Error },
    /// A page that is to be written cannot be read from scratch. Nothing was changed.
    #[error("cannot write the checkpoint of {path}: {source}")]
    Unreadable { path: String, source: ReadError },
    /// The database file may be half written; only a restart may continue.
    #[error("cannot write {path}: {cause}; its -wal file has the missing pages and is copied at the next start")]
    Fatal { path: String, cause: Cause },
}

/// What stopped a step.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The `-wal` file that belongs to a database file.
pub fn wal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Turns a page as SQLite wrote it into the page that the file stores: page 1 says "WAL mode" and has the batch number
/// as its change counter (RULE 14), and every page gets its checksum.
pub fn dress(page: u32, volume: u32, number: u64, bytes: &mut [u8; PAGE_BYTES]) {
    if page == 1 {
        bytes[18..20].copy_from_slice(&[2, 2]);
        let counter = (number as u32).to_be_bytes();
        bytes[24..28].copy_from_slice(&counter);
        bytes[92..96].copy_from_slice(&counter);
    }
    checksum::seal(bytes, page, volume, number);
}

/// As [`dress`], for a base copy. A page that has not changed has the same bytes in every copy, whatever has written it to the
/// file or not yet: so it is not sent again. Page 1 has the number of the copy.
pub fn dress_for_copy(page: u32, volume: u32, number: u64, bytes: &mut [u8; PAGE_BYTES]) {
    match page {
        1 => dress(page, volume, number, bytes),
        _ => checksum::seal(bytes, page, volume, checksum::BASE_COPY),
    }
}

/// Runs one checkpoint. `record` is step 5. Returns `None` when the file is up to date.
pub fn run(
    disk: &dyn Disk,
    store: &PageStore,
    record: impl FnOnce(&Checkpointed),
) -> Result<Option<Checkpointed>, CheckpointError> {
    let set = store.begin_checkpoint();
    let result = if set.dirty.is_empty() { Ok(None) } else { write(disk, store, &set, record).map(Some) };
    store.end_checkpoint(&set);
    result
}

fn write(
    disk: &dyn Disk,
    store: &PageStore,
    set: &CheckpointSet,
    record: impl FnOnce(&Checkpointed),
) -> Result<Checkpointed, CheckpointError> {
    let path = Path::new(store.path());
    let wal = wal_path(path);
    let before = |cause| match cause {
        Cause::Io(source) => CheckpointError::Retry { path: wal.display().to_string(), source },
        Cause::Read(source) => CheckpointError::Unreadable { path: store.path().to_owned(), source },
    };
    let fatal = |cause| CheckpointError::Fatal { path: store.path().to_owned(), cause };

    let old_pages = grow(store, set).map_err(|e| before(e.into()))?;
    let file = write_wal(disk, store, set, &wal).map_err(before)?;
    copy(store, set, old_pages).map_err(fatal)?;
    let metadata = disk.metadata(path).map_err(|e| fatal(e.into()))?;
    let done = Checkpointed {
        number: set.snapshot,
        pages_written: set.dirty.len() as u64,
        file_bytes: metadata.map_or(0, |m| m.len_bytes),
        file_modified_unix_ns: metadata.map_or(0, |m| m.modified_unix_ns),
    };
    record(&done);
    clear(&*file).map_err(|e| fatal(e.into()))?;
    Ok(done)
}

/// Bytes of a `-wal` file that stay allocated between checkpoints: freeing the blocks and allocating them again each
/// time costs more than the checkpoint's own writes.
const WAL_KEPT_BYTES_MAX: u64 = 256 << 20;

/// Step 6: overwrites the header with zeros, which neither SQLite nor Holdfast takes for a header.
fn clear(wal: &dyn DiskFile) -> io::Result<()> {
    if wal.len_bytes()? > WAL_KEPT_BYTES_MAX {
        return wal.set_len(0);
    }
    wal.write_at(&[IoSlice::new(&[0; 32])], 0)
}

/// Removes the `-wal` file of a volume whose last checkpoint is complete, for a clean stop.
pub fn remove_wal(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let wal = wal_path(path);
    if disk.metadata(&wal)?.is_some() {
        disk.remove(&wal)?;
    }
    Ok(())
}

/// Step 2: reserves space. Returns how many pages the file had.
fn grow(store: &PageStore, set: &CheckpointSet) -> io::Result<u32> {
    let file = store.file();
    let have = file.len_bytes()?;
    let want = offset_of(set.pages) + PAGE_BYTES as u64;
    if want > have {
        file.allocate(have, want - have)?;
    }
    Ok((have / PAGE_BYTES as u64) as u32)
}

/// Step 3: writes and syncs the `-wal`.
fn write_wal(disk: &dyn Disk, store: &PageStore, set: &CheckpointSet, path: &Path) -> Result<Box<dyn DiskFile>, Cause> {
    let fresh = disk.metadata(path)?.is_none();
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let file = disk.open(path, &how)?;
    let written = write_frames(&*file, store, set).and_then(|()| match path.parent().filter(|_| fresh) {
        Some(dir) => Ok(disk.sync_dir(dir)?),
        None => Ok(()),
    });
    if written.is_err()
        && let Err(e) = file.set_len(0)
    {
        // Best effort: a torn -wal is ignored anyway, but the disk may need its blocks.
        tracing::warn!("cannot clear {}: {e}", path.display());
    }
    written.map(|()| file)
}

fn write_frames(file: &dyn DiskFile, store: &PageStore, set: &CheckpointSet) -> Result<(), Cause> {
    let volume = store.volume().0;
    let mut writer = WalWriter::new(file, volume, set.snapshot, set.dirty.len() as u32, set.pages);
    let mut bytes = [0; PAGE_BYTES];
    let mut pace = Pace { unsynced_bytes: 0 };
    for (page, _) in &set.dirty {
        store.checkpoint_page(set, *page, &mut bytes)?;
        dress(*page, volume, set.snapshot, &mut bytes);
        writer.frame(*page, &bytes)?;
        pace.wrote(file, PAGE_BYTES)?;
    }
    if asked(Sabotage::CheckpointNoSync) { Ok(()) } else { Ok(file.sync_data()?) }
}

/// Step 4: copies the pages into the file and syncs it.
fn copy(store: &PageStore, set: &CheckpointSet, old_pages: u32) -> Result<(), Cause> {
    let volume = store.volume().0;
    let mut run: Vec<[u8; PAGE_BYTES]> = Vec::with_capacity(RUN_PAGES_MAX);
    let mut pace = Pace { unsynced_bytes: 0 };
    for (i, (page, version)) in set.dirty.iter().enumerate() {
        store.protect(*page, *version, old_pages)?;
        let mut bytes = [0; PAGE_BYTES];
        store.checkpoint_page(set, *page, &mut bytes)?;
        dress(*page, volume, set.snapshot, &mut bytes);
        run.push(bytes);
        let next_follows = set.dirty.get(i + 1).is_some_and(|(next, _)| *next == page + 1);
        if !next_follows || run.len() == RUN_PAGES_MAX {
            let slices: Vec<IoSlice<'_>> = run.iter().map(|b| IoSlice::new(b)).collect();
            let first = page + 1 - run.len() as u32;
            store.file().write_at(&slices, offset_of(first))?;
            pace.wrote(&**store.file(), run.len() * PAGE_BYTES)?;
            run.clear();
        }
    }
    if !asked(Sabotage::CheckpointNoSync) {
        store.file().sync_data()?;
    }
    store.grown(set.pages);
    set.dirty.iter().for_each(|(page, version)| store.landed(*page, *version));
    Ok(())
}
