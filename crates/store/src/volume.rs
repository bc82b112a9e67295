//! One volume's files: opens them after any kind of interruption, and makes new ones.
//!
//! A volume is `NAME.db`, at times with `NAME.db-wal` next to it. Opening takes these steps in order; each may be
//! interrupted and repeated safely:
//!
//! 1. Take SQLite's lock bytes. If another program has a transaction open, that is [`VolumeError::InUse`].
//! 2. Examine a `-wal` ([`crate::wal_file`], the table there). A whole checkpoint of ours is read past the page cache,
//!    written to a new file, synced, renamed over the old one, and copied into the database file (RULE 4).
//! 3. Check that the header is a database of the volume format (RULE 15): 4096-byte pages, 16 reserved bytes, UTF-8.
//!
//! Whether another program changed the file while no server had it open is for the caller to find out:
//! [`Volume::stamp`] and [`Volume::verify`].

use crate::checkpoint::{dress, wal_path};
use crate::fragments::{Beyond, Fragments};
use crate::pages::scratch::Scratch;
use crate::pages::{Limits, PAGE_BYTES, PageStore, RESERVED_BYTES, ReadError, offset_of};
use crate::pending_wal::PendingWal;
use crate::sqlite::{Conn, FileLock, OpenFlags, SqliteError, Vfs, take_cause};
use crate::wal_damage::{self, Needed};
use crate::wal_file::{self, FoundWal, WalWriter};
use holdfast_seams::{Disk, DiskFile, OpenHow, ReplaceError, Replacement, replace};
use holdfast_types::VolumeId;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error(
        "the file {path} does not exist: restore it from a backup (`holdfast restore`), or mount the file system that it is on"
    )]
    Missing { path: String },
    #[error("{path} is in use by another program; close it there and start the server again")]
    InUse { path: String },
    #[error("{path} was changed by another program while no server had it open ({how}); {offers}", offers = FOREIGN_OFFERS)]
    Foreign { path: String, how: String },
    #[error("{path} is not a volume file: {why}; to bring in a SQLite file, use `holdfast import`")]
    Format { path: String, why: String },
    /// A checkpoint that was being copied cannot be finished.
    #[error(
        "{wal} at byte {offset} is damaged: it holds the checkpoint that was being copied into {path} when the server was \
         interrupted, and page {page} there is new already, so that neither file is whole. Nothing was changed. Put back \
         a copy of the -wal file, or restore the database from a backup"
    )]
    Checkpoint { wal: String, offset: u64, path: String, page: u32 },
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{path}: {source}")]
    Sqlite { path: String, source: SqliteError },
}

/// The two ways to continue after a foreign change (RULE 13).
const FOREIGN_OFFERS: &str = "either keep its content as the start of a new history with `holdfast import FILE --adopt`, or put back the file as it was";

/// Size and time of a volume's file, as recorded after its last checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub bytes: u64,
    pub modified_unix_ns: i128,
}

/// An opened volume: its store, and connections on request.
pub struct Volume {
    store: Arc<PageStore>,
    vfs: Vfs,
    stamp: Stamp,
    checkpoint_finished: bool,
    wal_header_damaged: bool,
    beyond: Beyond,
    _lock: Option<FileLock>,
}

/// Page cache size with which a connection of [`Volume::open_redo`] begins.
pub const REDO_CACHE_KIB: u32 = 8192;

/// What a reader's connection keeps in SQLite's own cache.
pub const READER_CACHE_KIB: u32 = 4096;

/// What a branch's connection keeps in SQLite's own cache.
pub const BRANCH_CACHE_KIB: u32 = 2048;

/// Fragments of large transactions take at most this fraction of the memory for page versions.
const FRAGMENTS_PART: u64 = 8;

/// A volume's file after all checks that precede its use.
struct Opened {
    file: Box<dyn DiskFile>,
    pages: u32,
    stamp: Stamp,
    checkpoint_finished: bool,
    lock: Option<FileLock>,
}

impl Volume {
    /// Opens the volume file at `path` and first finishes an interrupted checkpoint.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        scratch_dir: &Path,
        id: VolumeId,
        limits: Limits,
    ) -> Result<Volume, VolumeError> {
        let lock = take_lock(path)?;
        let checkpoint_finished = finish_checkpoint(disk, path, id)?;
        let how = OpenHow { write: true, ..OpenHow::default() };
        let file = open_file(disk, path, &how)?;
        let pages = check_format(&*file, path)?;
        let stamp = stamp_of(disk, path)?;
        Volume::over(path, scratch_dir, id, limits, Opened { file, pages, stamp, checkpoint_finished, lock })
    }

    /// Opens the volume file at `path` read-only. No operation on the volume changes a byte of the file or its `-wal`,
    /// unless a checkpoint is run. A pending checkpoint is read from the `-wal`.
    pub fn open_to_look(
        disk: &dyn Disk,
        path: &Path,
        scratch_dir: &Path,
        id: VolumeId,
        limits: Limits,
    ) -> Result<Volume, VolumeError> {
        let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
        let lock = take_lock(path)?;
        let mut file = open_file(disk, path, &OpenHow::default())?;
        let mut frames = Vec::new();
        let mut wal_header_damaged = false;
        let found = find_wal(disk, path, id, |page| frames.push(page))?;
        let pending = matches!(found, FoundWal::Complete { .. });
        match found {
            FoundWal::Torn => {}
            FoundWal::Foreign => return Err(foreign_wal(path)),
            FoundWal::Complete { pages, .. } => {
                wal_header_damaged = header_is_damaged(disk, &wal_path(path), id).map_err(io("read the -wal of"))?;
                let wal = disk.open(&wal_path(path), &OpenHow::default()).map_err(io("open the -wal of"))?;
                file = Box::new(PendingWal::new(file, wal, &frames, pages));
            }
        }
        let pages = check_format(&*file, path)?;
        let stamp = stamp_of(disk, path)?;
        let opened = Opened { file, pages, stamp, checkpoint_finished: pending, lock };
        let volume = Volume::over(path, scratch_dir, id, limits, opened)?;
        Ok(Volume { wal_header_damaged, ..volume })
    }

    fn over(
        path: &Path,
        scratch_dir: &Path,
        id: VolumeId,
        limits: Limits,
        opened: Opened,
    ) -> Result<Volume, VolumeError> {
        let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
        let Opened { file, pages, stamp, checkpoint_finished, lock } = opened;
        let scratch = Scratch::new(scratch_dir).map_err(io("make a scratch file for"))?;
        let store = PageStore::new(id, path.display().to_string(), file.into(), scratch, limits, 0, pages);
        let store = Arc::new(store);
        let vfs = Vfs::register(store.clone(), scratch_dir.to_owned());
        let memory_bytes_max = limits.memory_bytes_max / FRAGMENTS_PART;
        let beyond = Beyond { memory_bytes_max, scratch_dir: scratch_dir.to_owned() };
        Ok(Volume { store, vfs, stamp, checkpoint_finished, wal_header_damaged: false, beyond, _lock: lock })
    }

    pub fn store(&self) -> &Arc<PageStore> {
        &self.store
    }

    /// An empty collection of fragments, with this volume's memory bound and scratch directory.
    pub fn fragments(&self) -> Fragments {
        Fragments::new(self.beyond.clone())
    }

    /// Size and time of the file when it was opened.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Whether opening found a checkpoint that was still being copied, and copied it again.
    pub fn checkpoint_finished(&self) -> bool {
        self.checkpoint_finished
    }

    /// Whether the pending checkpoint's `-wal` has a damaged header; known only of a volume opened by
    /// [`Volume::open_to_look`].
    pub fn wal_header_damaged(&self) -> bool {
        self.wal_header_damaged
    }

    /// Opens the connection that changes the volume. There must be only one at a time.
    pub fn open_writer(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=writer", OpenFlags { write: true, create: false })?;
        self.exec(
            &mut conn,
            "pragma locking_mode=exclusive; pragma journal_mode=truncate; pragma synchronous=off; \
             pragma cache_size=-8192;",
        )?;
        Ok(conn)
    }

    /// Opens, instead of [`Volume::open_writer`], a connection that applies decided changes and is never rolled back. Any
    /// failure is fatal to the connection: it is dropped, and nothing that it has written is published. So it needs no
    /// rollback journal, which took a quarter of a standby's processor time for applying: a copy of each page that
    /// changes.
    pub fn open_redo(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=writer", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma locking_mode=exclusive; pragma journal_mode=off; pragma synchronous=off;")?;
        self.exec(&mut conn, &format!("pragma cache_size=-{REDO_CACHE_KIB}"))?;
        Ok(conn)
    }

    /// Opens a connection that reads visible snapshots. The VFS refuses all its writes. SQLite itself does not open it
    /// as read-only, because it would then also refuse writes to attached in-memory schemas, where the catalogue's
    /// tables are made.
    pub fn open_reader(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=reader", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, &format!("pragma cache_size=-{READER_CACHE_KIB}"))?;
        Ok(conn)
    }

    /// Opens a connection for a private copy of the volume: it reads a snapshot and sees its own writes, which no other
    /// connection ever sees. Its journals go to scratch like the writer's. The caller installs a commit gate and never opens
    /// it.
    pub fn open_branch(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=branch", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma journal_mode=truncate; pragma synchronous=off;")?;
        self.exec(&mut conn, &format!("pragma cache_size=-{BRANCH_CACHE_KIB}"))?;
        Ok(conn)
    }

    /// Opens a connection for a private copy of the volume that may become the volume ([`crate::pages::PageStore::adopt`]): decided
    /// changes are applied to it, and like that of [`Volume::open_redo`] it is dropped after any failure and needs no journal.
    pub fn open_side_copy(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=branch", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma journal_mode=off; pragma synchronous=off;")?;
        self.exec(&mut conn, &format!("pragma cache_size=-{REDO_CACHE_KIB}"))?;
        Ok(conn)
    }

    fn connect(&self, uri: &str, flags: OpenFlags) -> Result<Conn, VolumeError> {
        Conn::open(uri, flags, Some(self.vfs.name())).map_err(|e| self.sqlite(e))
    }

    fn exec(&self, conn: &mut Conn, sql: &str) -> Result<(), VolumeError> {
        conn.exec(sql).map_err(|e| self.sqlite(e))
    }

    /// Adds the cause to SQLite's error, which says only "disk I/O error".
    fn sqlite(&self, source: SqliteError) -> VolumeError {
        if let Some(cause) = take_cause() {
            return VolumeError::Read(cause);
        }
        VolumeError::Sqlite { path: self.store.path().to_owned(), source }
    }

    /// Reads every page of the file and checks its checksum. Returns the number of pages; fails at the first bad page.
    pub fn verify(&self) -> Result<u64, VolumeError> {
        let mut first = None;
        let pages = self.check_pages(|e| first = first.take().or(Some(e)));
        match first {
            Some(ReadError::Checksum { page, offset, path }) => {
                Err(VolumeError::Foreign { path, how: format!("page {page} at offset {offset}") })
            }
            Some(other) => Err(other.into()),
            None => Ok(pages),
        }
    }

    /// Reads every page of the file and reports the error of each bad one. Returns the number of pages read.
    pub fn check_pages(&self, mut bad: impl FnMut(ReadError)) -> u64 {
        let pages = self.store.visible_pages();
        let mut bytes = [0; PAGE_BYTES];
        for page in (1..=pages).filter(|p| *p != LOCK_BYTE_PAGE) {
            self.store.read_file(page, &mut bytes).unwrap_or_else(&mut bad);
        }
        u64::from(pages)
    }
}

/// The page that holds SQLite's lock bytes; SQLite never uses it.
pub const LOCK_BYTE_PAGE: u32 = 0x4000_0000 / PAGE_BYTES as u32 + 1;

fn take_lock(path: &Path) -> Result<Option<FileLock>, VolumeError> {
    match FileLock::take(path) {
        Ok(Some(lock)) => Ok(Some(lock)),
        Ok(None) => Err(VolumeError::InUse { path: path.display().to_string() }),
        // A simulated disk has no file of that name for other programs to open.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(VolumeError::Io { what: "lock", path: path.display().to_string(), source }),
    }
}

/// Current size and time of a volume file.
pub fn stamp_of(disk: &dyn Disk, path: &Path) -> Result<Stamp, VolumeError> {
    match disk.metadata(path) {
        Ok(Some(m)) => Ok(Stamp { bytes: m.len_bytes, modified_unix_ns: m.modified_unix_ns }),
        Ok(None) => Err(missing(path)),
        Err(source) => Err(VolumeError::Io { what: "read the metadata of", path: path.display().to_string(), source }),
    }
}

fn missing(path: &Path) -> VolumeError {
    VolumeError::Missing { path: path.display().to_string() }
}

/// The volume's file for reading, or for reading and writing.
fn open_file(disk: &dyn Disk, path: &Path, how: &OpenHow) -> Result<Box<dyn DiskFile>, VolumeError> {
    disk.open(path, how).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => missing(path),
        _ => VolumeError::Io { what: "open", path: path.display().to_string(), source },
    })
}

/// Finds out what the volume's `-wal` is; `each` gets the page numbers of its frames.
fn find_wal(disk: &dyn Disk, path: &Path, id: VolumeId, mut each: impl FnMut(u32)) -> Result<FoundWal, VolumeError> {
    let wal = wal_path(path);
    let io = |what| {
        let path = wal.display().to_string();
        move |source| VolumeError::Io { what, path, source }
    };
    if disk.metadata(&wal).map_err(io("read the metadata of"))?.is_none_or(|m| m.len_bytes == 0) {
        return Ok(FoundWal::Torn);
    }
    let file = disk.open(&wal, &OpenHow::READ_DIRECT).map_err(io("open"))?;
    let found = wal_file::scan(&*file, id.0, |page, _| {
        each(page);
        Ok(())
    });
    let found = found.map_err(io("read"))?;
    if found == FoundWal::Torn {
        let database = disk.open(path, &OpenHow::default()).map_err(io("open the database of"))?;
        let needed = wal_damage::needed(&*file, &*database, id.0).map_err(io("read"))?;
        if let Some(Needed { offset, page }) = needed {
            let (wal, path) = (wal.display().to_string(), path.display().to_string());
            return Err(VolumeError::Checkpoint { wal, offset, path, page });
        }
    }
    Ok(found)
}

/// Whether the header of a whole `-wal` had to be reconstructed from its frames; logs a warning if so.
fn header_is_damaged(disk: &dyn Disk, wal: &Path, id: VolumeId) -> io::Result<bool> {
    let damaged = wal_damage::header_is_damaged(&*disk.open(wal, &OpenHow::READ_DIRECT)?, id.0)?;
    if damaged {
        tracing::warn!("{} at byte 0: the header is damaged; its frames are whole and are used", wal.display());
    }
    Ok(damaged)
}

fn foreign_wal(path: &Path) -> VolumeError {
    let how = format!("{} was not written by the last checkpoint", wal_path(path).display());
    VolumeError::Foreign { path: path.display().to_string(), how }
}

/// Step 2 of opening. Returns whether a checkpoint was copied again.
fn finish_checkpoint(disk: &dyn Disk, path: &Path, id: VolumeId) -> Result<bool, VolumeError> {
    let wal = wal_path(path);
    let io = |what| {
        let path = wal.display().to_string();
        move |source| VolumeError::Io { what, path, source }
    };
    if disk.metadata(&wal).map_err(io("read the metadata of"))?.is_none_or(|m| m.len_bytes == 0) {
        return Ok(false);
    }
    let found = find_wal(disk, path, id, |_| ())?;
    let whole = matches!(found, FoundWal::Complete { .. });
    match found {
        FoundWal::Torn => {}
        FoundWal::Foreign => return Err(foreign_wal(path)),
        FoundWal::Complete { number, frames, pages } => {
            header_is_damaged(disk, &wal, id).map_err(io("read"))?;
            rewrite(disk, &wal, id, number, frames, pages).map_err(io("rewrite"))?;
            copy(disk, &wal, path, id).map_err(io("copy"))?;
        }
    }
    let how = OpenHow { write: true, ..OpenHow::default() };
    disk.open(&wal, &how).and_then(|f| f.set_len(0).and_then(|()| f.sync_all())).map_err(io("clear"))?;
    Ok(whole)
}

/// Writes the checkpoint to a new file that replaces the old one (RULE 4: after a failed sync the page cache may hold
/// what the disk does not).
fn rewrite(disk: &dyn Disk, wal: &Path, id: VolumeId, number: u32, frames: u32, pages: u32) -> io::Result<()> {
    let old = disk.open(wal, &OpenHow::READ_DIRECT)?;
    let to = Replacement::begin(disk, wal)?;
    let mut writer = WalWriter::new(to.file(), id.0, u64::from(number), frames, pages);
    let found = wal_file::scan(&*old, id.0, |page, bytes| writer.frame(page, bytes))?;
    still_whole(&found)?;
    Ok(to.finish()?)
}

fn copy(disk: &dyn Disk, wal: &Path, path: &Path, id: VolumeId) -> io::Result<()> {
    let from = disk.open(wal, &OpenHow::default())?;
    let to = disk.open(path, &OpenHow { write: true, ..OpenHow::default() })?;
    let found = wal_file::scan(&*from, id.0, |page, bytes| to.write_at(&[IoSlice::new(bytes)], offset_of(page)))?;
    still_whole(&found)?;
    to.sync_all()
}

/// Checks the second reading of a `-wal` that was whole at the first; a bit that flipped in between must not end the
/// copy halfway.
fn still_whole(found: &FoundWal) -> io::Result<()> {
    match found {
        FoundWal::Complete { .. } => Ok(()),
        FoundWal::Torn | FoundWal::Foreign => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file was whole at the first reading and is not at the second: the disk, its controller or the memory is \
             failing; nothing is lost, start the server again",
        )),
    }
}

/// Step 3 of opening. Returns the database's size in pages.
fn check_format(file: &dyn DiskFile, path: &Path) -> Result<u32, VolumeError> {
    let mut header = [0; 100];
    let n = file.read_at(&mut header, 0).map_err(|source| VolumeError::Io {
        what: "read",
        path: path.display().to_string(),
        source,
    })?;
    let be32 = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| header[at + i]));
    let why = if n < header.len() || &header[..16] != b"SQLite format 3\0" {
        Some("it has no SQLite header".to_owned())
    } else if header[16..18] != [0x10, 0] {
        Some("its page size is not 4096 bytes".to_owned())
    } else if usize::from(header[20]) != RESERVED_BYTES {
        Some(format!("it reserves {} bytes in each page instead of {RESERVED_BYTES}", header[20]))
    } else if be32(56) != 1 {
        Some("its text encoding is not UTF-8".to_owned())
    } else if be32(52) != 0 {
        Some("auto_vacuum is on".to_owned())
    } else {
        None
    };
    match why {
        Some(why) => Err(VolumeError::Format { path: path.display().to_string(), why }),
        None => Ok(be32(28)),
    }
}

/// Gives every page of a newly made database file its checksum and marks the file as a volume at batch `number`. No
/// program may have the file open, and it must have no journal.
pub fn seal(disk: &dyn Disk, path: &Path, id: VolumeId, number: u64) -> Result<(), VolumeError> {
    let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
    let file = disk.open(path, &OpenHow { write: true, ..OpenHow::default() }).map_err(io("open"))?;
    let pages = check_format(&*file, path)?;
    let mut bytes = [0; PAGE_BYTES];
    for page in (1..=pages).filter(|p| *p != LOCK_BYTE_PAGE) {
        let n = file.read_at(&mut bytes, offset_of(page)).map_err(io("read"))?;
        bytes[n..].fill(0);
        dress(page, id.0, number, &mut bytes);
        file.write_at(&[IoSlice::new(&bytes)], offset_of(page)).map_err(io("write"))?;
    }
    file.sync_all().map_err(io("sync"))?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)).map_err(io("sync the directory of"))
}

/// Makes an empty volume file; `prepare` creates what every volume has. Afterwards the file is complete and synced, or
/// absent.
pub fn create(
    disk: &dyn Disk,
    path: &Path,
    id: VolumeId,
    prepare: impl FnOnce(&mut Conn) -> Result<(), SqliteError>,
) -> Result<(), VolumeError> {
    let sqlite = |source| VolumeError::Sqlite { path: path.display().to_string(), source };
    let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).map_err(sqlite)?;
    conn.reserve_bytes(RESERVED_BYTES as u8).map_err(sqlite)?;
    prepare(&mut conn).map_err(sqlite)?;
    let mut bytes = conn.serialize().map_err(sqlite)?;
    for (i, page) in bytes.chunks_exact_mut(PAGE_BYTES).enumerate() {
        if let Ok(page) = page.try_into() {
            dress(i as u32 + 1, id.0, 0, page);
        }
    }
    replace(disk, path, &bytes).map_err(|ReplaceError { what, path, source }| VolumeError::Io {
        what,
        path: path.display().to_string(),
        source,
    })
}
