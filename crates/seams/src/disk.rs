//! The disk as Holdfast uses it: positioned reads and writes, explicit syncs, and the directory operations, whose
//! durability needs a sync of the directory.
//!
//! The flags with which a file is written are fixed at open. `fcntl(F_SETFL)` silently ignores `O_SYNC` and `O_DSYNC`
//! on Linux (fcntl(2)), so [`Disk::open`] passes them to `open` and verifies them with `F_GETFL`.

use std::io;
use std::io::IoSlice;
use std::path::Path;

/// How a trail write is made durable. All four are safe; which is fastest depends on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SyncMethod {
    /// `O_DIRECT | O_DSYNC`: one write, durable when it returns, past the page cache.
    #[default]
    OpenDirectDsync,
    /// `O_SYNC`: one write through the page cache, durable with all metadata when it returns.
    OpenSync,
    /// Write, then `fdatasync`.
    Fdatasync,
    /// Write, then `fsync`.
    Fsync,
}

impl SyncMethod {
    /// How a file written by this method is opened.
    pub fn open_how(self) -> OpenHow {
        let (direct, through) = match self {
            SyncMethod::OpenDirectDsync => (true, WriteThrough::Data),
            SyncMethod::OpenSync => (false, WriteThrough::All),
            SyncMethod::Fdatasync | SyncMethod::Fsync => (false, WriteThrough::No),
        };
        OpenHow { create: Create::Never, write: true, direct, through }
    }

    /// Makes a write that returned durable. Does nothing where the open flags already made it durable.
    pub fn sync(self, file: &dyn DiskFile) -> io::Result<()> {
        match self {
            SyncMethod::OpenDirectDsync | SyncMethod::OpenSync => Ok(()),
            SyncMethod::Fdatasync => file.sync_data(),
            SyncMethod::Fsync => file.sync_all(),
        }
    }

    /// The name used in configuration files.
    pub fn name(self) -> &'static str {
        match self {
            SyncMethod::OpenDirectDsync => "open_direct_dsync",
            SyncMethod::OpenSync => "open_sync",
            SyncMethod::Fdatasync => "fdatasync",
            SyncMethod::Fsync => "fsync",
        }
    }

    /// Finds the method with this name.
    pub fn from_name(name: &str) -> Option<SyncMethod> {
        [SyncMethod::OpenDirectDsync, SyncMethod::OpenSync, SyncMethod::Fdatasync, SyncMethod::Fsync]
            .into_iter()
            .find(|method| method.name() == name)
    }
}

/// Whether a write is durable when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum WriteThrough {
    #[default]
    No,
    /// `O_DSYNC`
    Data,
    /// `O_SYNC`
    All,
}

/// What [`Disk::open`] does when a file exists or does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Create {
    /// The file must exist.
    #[default]
    Never,
    /// The file is created empty when it does not exist.
    IfMissing,
    /// The file must not exist.
    New,
}

/// How a file is opened. The default opens an existing file for reading through the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OpenHow {
    pub create: Create,
    pub write: bool,
    /// `O_DIRECT`: buffers, offsets and lengths must be whole aligned blocks.
    pub direct: bool,
    pub through: WriteThrough,
}

impl OpenHow {
    /// Reading past the page cache: the bytes come from the device, not from the kernel's memory.
    pub const READ_DIRECT: OpenHow =
        OpenHow { create: Create::Never, write: false, direct: true, through: WriteThrough::No };

    /// Writing an existing file past the page cache; an explicit sync makes the writes durable.
    pub const WRITE_DIRECT: OpenHow =
        OpenHow { create: Create::Never, write: true, direct: true, through: WriteThrough::No };
}

/// Size and age of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Whether this is a regular file, or a link to one. Opening anything else can block indefinitely (a pipe waits for
    /// its writer) or act on a device.
    pub is_regular: bool,
    pub len_bytes: u64,
    /// Last modification, nanoseconds since 1970-01-01 UTC.
    pub modified_unix_ns: i128,
}

/// Counters of a disk since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskStats {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Explicit syncs of files and directories, plus every write to a write-through file.
    pub syncs: u64,
}

/// A directory lock. It is released when dropped or when the process ends, however it ends.
pub trait DiskLock: Send + Sync {}

pub trait Disk: Send + Sync {
    /// Opens a file. When the file system refuses `O_DIRECT`, a writer falls back to buffered write-through of the
    /// data and a reader to the page cache, with a warning in the log.
    fn open(&self, path: &Path, how: &OpenHow) -> io::Result<Box<dyn DiskFile>>;

    /// Renames, replacing the target. Durable only after [`Disk::sync_dir`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames, unless `to` exists: then it fails with `AlreadyExists` and nothing has changed, even when another
    /// process tries to create `to` concurrently. Durable only after [`Disk::sync_dir`].
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges the files at `from` and `to`, so that the blocks of the old file can be reused without free space on
    /// the disk. Where the file system cannot exchange, or `to` does not exist, it renames. Durable only after
    /// [`Disk::sync_dir`].
    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable only after [`Disk::sync_dir`].
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Names of the entries of a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates a directory and its parents. An existing directory is not an error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes renames, removals and creations in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Bytes that an unprivileged process can still write on the file system of `dir`.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;

    /// Reads a file's metadata; `None` when the file does not exist.
    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>>;

    /// Takes the exclusive lock on the file `path`, which is created if necessary; `None` when another process has the
    /// lock.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>>;

    fn stats(&self) -> DiskStats;
}

pub trait DiskFile: Send + Sync {
    /// Reads until `buf` is full or the file ends. Returns the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bufs` one after the other at `offset`, in one system call unless the kernel accepts fewer bytes.
    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// `fdatasync`: data, and the metadata needed to read it back.
    fn sync_data(&self) -> io::Result<()>;

    /// `fsync`
    fn sync_all(&self) -> io::Result<()>;

    fn set_len(&self, len_bytes: u64) -> io::Result<()>;

    fn len_bytes(&self) -> io::Result<u64>;

    /// Reserves disk space for a range and extends the file to include it, so that a later write there cannot find the
    /// disk full. Bytes never written read as zeros.
    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()>;

    /// Whether reads and writes go past the page cache.
    fn is_direct(&self) -> bool;
}
