//! One volume's files: opening them after anything that may have happened, and making new ones.
//!
//! A volume is `NAME.db` with, at times, `NAME.db-wal` beside it. Opening goes in this order, and each step is safe to
//! be interrupted and repeated:
//!
//! 1. Take SQLite's lock bytes; somebody else's transaction is [`VolumeError::InUse`].
//! 2. A `-wal` is looked at ([`crate::wal_file`], the table there). A whole checkpoint of ours is read past the page
//!    cache, written to a new file, synced, renamed over the old one, and copied into the database file (RULE 4).
//! 3. The header must be a database of the volume format (RULE 15): 4096-byte pages, 16 reserved bytes, UTF-8.
//!
//! Who changed the file while nobody served it is the caller's question: [`Volume::stamp`] and [`Volume::verify`].

use crate::checkpoint::{dress, wal_path};
use crate::fragments::{Beyond, Fragments};
use crate::pages::scratch::Scratch;
use crate::pages::{Limits, PAGE_BYTES, PageStore, RESERVED_BYTES, ReadError, offset_of};
use crate::pending_wal::PendingWal;
use crate::sqlite::{Conn, FileLock, OpenFlags, SqliteError, Vfs, take_cause};
use crate::wal_damage::{self, Needed};
use crate::wal_file::{self, FoundWal, WalWriter};
use holdfast_seams::{Create, Disk, DiskFile, OpenHow};
use holdfast_types::VolumeId;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("{path} is in use by another program: close it there and start again")]
    InUse { path: String },
    #[error("{path} was changed by another program while nobody served it ({how}); {offers}", offers = FOREIGN_OFFERS)]
    Foreign { path: String, how: String },
    #[error("{path} is not a volume file: {why}; bring a SQLite file in with `holdfast import`")]
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

/// The two ways out of a foreign change (RULE 13).
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

/// What a connection of [`Volume::open_redo`] begins with as a cache of pages.
pub const REDO_CACHE_KIB: u32 = 8192;

/// Fragments of large transactions in memory, at most this part of what page versions may take.
const FRAGMENTS_PART: u64 = 8;

/// A volume's file, with everything checked that is checked before it is used.
struct Opened {
    file: Box<dyn DiskFile>,
    pages: u32,
    stamp: Stamp,
    checkpoint_finished: bool,
    lock: Option<FileLock>,
}

impl Volume {
    /// Opens the volume file at `path`, finishing an interrupted checkpoint first.
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        scratch_dir: &Path,
        id: VolumeId,
        limits: Limits,
    ) -> Result<Volume, VolumeError> {
        let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
        let lock = take_lock(path)?;
        let checkpoint_finished = finish_checkpoint(disk, path, id)?;
        let how = OpenHow { write: true, ..OpenHow::default() };
        let file = disk.open(path, &how).map_err(io("open"))?;
        let pages = check_format(&*file, path)?;
        let stamp = stamp_of(disk, path)?;
        Volume::over(path, scratch_dir, id, limits, Opened { file, pages, stamp, checkpoint_finished, lock })
    }

    /// Opens the volume file at `path` to look at it: whatever is done with the volume, no byte of the file or its
    /// `-wal` changes, as long as nobody checkpoints. A pending checkpoint is read where it stands.
    pub fn open_to_look(
        disk: &dyn Disk,
        path: &Path,
        scratch_dir: &Path,
        id: VolumeId,
        limits: Limits,
    ) -> Result<Volume, VolumeError> {
        let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
        let lock = take_lock(path)?;
        let mut file = disk.open(path, &OpenHow::default()).map_err(io("open"))?;
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

    /// None, with the bound and the place for those that come.
    pub fn fragments(&self) -> Fragments {
        Fragments::new(self.beyond.clone())
    }

    /// Size and time of the file when it was opened.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Opening found a whole checkpoint that was still being copied, and copied it again.
    pub fn checkpoint_finished(&self) -> bool {
        self.checkpoint_finished
    }

    /// The pending checkpoint's `-wal` has a damaged header; known only of a volume that is looked at.
    pub fn wal_header_damaged(&self) -> bool {
        self.wal_header_damaged
    }

    /// The connection that changes the volume. There must be one at a time.
    pub fn open_main(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=main", OpenFlags { write: true, create: false })?;
        self.exec(
            &mut conn,
            "pragma locking_mode=exclusive; pragma journal_mode=truncate; pragma synchronous=off; \
             pragma cache_size=-8192;",
        )?;
        Ok(conn)
    }

    /// In place of [`Volume::open_main`]: a connection that puts what is decided on the volume, and is never rolled back. Whatever
    /// fails on it is fatal to it: it is dropped, and nothing that it has written is published. So it needs no rollback
    /// journal; that took a quarter of the processor time of a standby's applying, a copy of each page that changes.
    pub fn open_redo(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=main", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma locking_mode=exclusive; pragma journal_mode=off; pragma synchronous=off;")?;
        self.exec(&mut conn, &format!("pragma cache_size=-{REDO_CACHE_KIB}"))?;
        Ok(conn)
    }

    /// A connection that reads durable snapshots. The VFS refuses it every write; SQLite itself is not told, because
    /// it would refuse writes to attached in-memory schemas as well, where the catalogue's tables are made.
    pub fn open_reader(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=reader", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma cache_size=-4096;")?;
        Ok(conn)
    }

    /// A connection for a private copy of the volume: it reads a snapshot and sees its own writes, which nobody else
    /// ever does. Its journals go to scratch like MAIN's; the caller installs a commit gate and never opens it.
    pub fn open_branch(&self) -> Result<Conn, VolumeError> {
        let mut conn = self.connect("file:volume?role=branch", OpenFlags { write: true, create: false })?;
        self.exec(&mut conn, "pragma journal_mode=truncate; pragma synchronous=off; pragma cache_size=-2048;")?;
        Ok(conn)
    }

    fn connect(&self, uri: &str, flags: OpenFlags) -> Result<Conn, VolumeError> {
        Conn::open(uri, flags, Some(self.vfs.name())).map_err(|e| self.sqlite(e))
    }

    fn exec(&self, conn: &mut Conn, sql: &str) -> Result<(), VolumeError> {
        conn.exec(sql).map_err(|e| self.sqlite(e))
    }

    /// SQLite itself only says "disk I/O error".
    fn sqlite(&self, source: SqliteError) -> VolumeError {
        if let Some(cause) = take_cause() {
            return VolumeError::Read(cause);
        }
        VolumeError::Sqlite { path: self.store.path().to_owned(), source }
    }

    /// Reads every page of the file and checks its checksum. Returns the pages checked; refuses at the first bad one.
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

    /// Reads every page of the file and hands over what is wrong with each bad one. Returns the pages read.
    pub fn check_pages(&self, mut bad: impl FnMut(ReadError)) -> u64 {
        let pages = self.store.durable_pages();
        let mut bytes = [0; PAGE_BYTES];
        for page in (1..=pages).filter(|p| *p != LOCK_BYTE_PAGE) {
            self.store.read_file(page, &mut bytes).unwrap_or_else(&mut bad);
        }
        u64::from(pages)
    }
}

/// SQLite never uses the page that holds its lock bytes.
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

/// Size and time of a volume file now.
pub fn stamp_of(disk: &dyn Disk, path: &Path) -> Result<Stamp, VolumeError> {
    match disk.metadata(path) {
        Ok(Some(m)) => Ok(Stamp { bytes: m.len_bytes, modified_unix_ns: m.modified_unix_ns }),
        Ok(None) => Err(missing(path)),
        Err(source) => Err(VolumeError::Io { what: "look at", path: path.display().to_string(), source }),
    }
}

fn missing(path: &Path) -> VolumeError {
    VolumeError::Io { what: "find", path: path.display().to_string(), source: io::ErrorKind::NotFound.into() }
}

/// What the volume's `-wal` is; `each` gets the page numbers of its frames.
fn find_wal(disk: &dyn Disk, path: &Path, id: VolumeId, mut each: impl FnMut(u32)) -> Result<FoundWal, VolumeError> {
    let wal = wal_path(path);
    let io = |what| {
        let path = wal.display().to_string();
        move |source| VolumeError::Io { what, path, source }
    };
    if disk.metadata(&wal).map_err(io("look at"))?.is_none_or(|m| m.len_bytes == 0) {
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

/// Whether the header of a whole `-wal` had to be guessed; said in the log.
fn header_is_damaged(disk: &dyn Disk, wal: &Path, id: VolumeId) -> io::Result<bool> {
    let damaged = wal_damage::header_is_damaged(&*disk.open(wal, &OpenHow::READ_DIRECT)?, id.0)?;
    if damaged {
        tracing::warn!("{} at byte 0: the header is damaged; its frames are whole and are used", wal.display());
    }
    Ok(damaged)
}

fn foreign_wal(path: &Path) -> VolumeError {
    let how = format!("{} is not the last checkpoint's", wal_path(path).display());
    VolumeError::Foreign { path: path.display().to_string(), how }
}

/// Step 2 of opening. Returns whether a checkpoint was copied again.
fn finish_checkpoint(disk: &dyn Disk, path: &Path, id: VolumeId) -> Result<bool, VolumeError> {
    let wal = wal_path(path);
    let io = |what| {
        let path = wal.display().to_string();
        move |source| VolumeError::Io { what, path, source }
    };
    if disk.metadata(&wal).map_err(io("look at"))?.is_none_or(|m| m.len_bytes == 0) {
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

/// Writes the same checkpoint to a new file and puts it in the old one's place (RULE 4: after a failed sync the page
/// cache may hold what the disk does not).
fn rewrite(disk: &dyn Disk, wal: &Path, id: VolumeId, number: u32, frames: u32, pages: u32) -> io::Result<()> {
    let mut name = wal.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    if disk.metadata(&new)?.is_some() {
        disk.remove(&new)?;
    }
    let old = disk.open(wal, &OpenHow::READ_DIRECT)?;
    let to = disk.open(&new, &OpenHow { create: Create::New, write: true, ..OpenHow::default() })?;
    let mut writer = WalWriter::new(&*to, id.0, u64::from(number), frames, pages);
    let found = wal_file::scan(&*old, id.0, |page, bytes| writer.frame(page, bytes))?;
    still_whole(&found)?;
    to.sync_all()?;
    disk.rename(&new, wal)?;
    wal.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

fn copy(disk: &dyn Disk, wal: &Path, path: &Path, id: VolumeId) -> io::Result<()> {
    let from = disk.open(wal, &OpenHow::default())?;
    let to = disk.open(path, &OpenHow { write: true, ..OpenHow::default() })?;
    let found = wal_file::scan(&*from, id.0, |page, bytes| to.write_at(&[IoSlice::new(bytes)], offset_of(page)))?;
    still_whole(&found)?;
    to.sync_all()
}

/// A `-wal` that was whole a moment ago is read once more; a bit that flipped on the way must not end the copy halfway.
fn still_whole(found: &FoundWal) -> io::Result<()> {
    match found {
        FoundWal::Complete { .. } => Ok(()),
        FoundWal::Torn | FoundWal::Foreign => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it was whole when it was read first and is not now: the disk, its controller or the memory is failing; \
             nothing is lost, start again",
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
        Some("it does not begin as a SQLite database does".to_owned())
    } else if header[16..18] != [0x10, 0] {
        Some("its page size is not 4096".to_owned())
    } else if usize::from(header[20]) != RESERVED_BYTES {
        Some(format!("it reserves {} bytes a page instead of {RESERVED_BYTES}", header[20]))
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

/// Gives every page of a freshly made database file its checksum and marks it as a volume standing at `number`. The
/// file must be closed everywhere and have no journal.
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

/// Makes an empty volume file; `prepare` creates what every volume has. The file is complete and synced, or absent.
pub fn create(
    disk: &dyn Disk,
    path: &Path,
    id: VolumeId,
    prepare: impl FnOnce(&mut Conn) -> Result<(), SqliteError>,
) -> Result<(), VolumeError> {
    let io = |what| move |source| VolumeError::Io { what, path: path.display().to_string(), source };
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
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let file = disk
        .open(&new, &OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() })
        .map_err(io("create"))?;
    file.set_len(0).map_err(io("create"))?;
    file.write_at(&[IoSlice::new(&bytes)], 0).map_err(io("write"))?;
    file.sync_all().map_err(io("sync"))?;
    disk.rename(&new, path).map_err(io("rename"))?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir)).map_err(io("sync the directory of"))
}
