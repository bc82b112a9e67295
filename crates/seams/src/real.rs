//! The disk of the machine, through the kernel's file calls.

use std::fs;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::disk::{Create, Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow, WriteThrough};
use crate::sabotage::{Sabotage, asked};

/// Files and directories that this disk makes are for their owner only: they hold what the databases hold.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// The real file system, with counters and, for experiments with slow disks, a delay on every sync.
#[derive(Clone, Default)]
pub struct RealDisk {
    meter: Arc<Meter>,
}

impl RealDisk {
    pub fn new() -> RealDisk {
        RealDisk::default()
    }

    /// Makes a disk on which every sync, and every write to a write-through file, takes `sync_delay` longer, which
    /// simulates another machine's disk.
    pub fn with_sync_delay(sync_delay: Duration) -> RealDisk {
        RealDisk { meter: Arc::new(Meter { sync_delay, ..Meter::default() }) }
    }
}

#[derive(Default)]
struct Meter {
    sync_delay: Duration,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Meter {
    fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
        if !self.sync_delay.is_zero() {
            std::thread::sleep(self.sync_delay);
        }
    }
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: &OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let wanted = flags(how);
        let (fd, given) = match open(path, wanted) {
            Err(Errno::INVAL) if how.direct => {
                tracing::warn!(
                    file = %path.display(),
                    "the file system refuses O_DIRECT; using the page cache with O_DSYNC for this file"
                );
                let buffered = OpenHow { direct: false, through: fallback(how), ..*how };
                (open(path, flags(&buffered))?, buffered)
            }
            opened => (opened?, *how),
        };
        if !asked(Sabotage::SkipSync) && !asked(Sabotage::FcntlFlag) {
            verify_flags(path, &fd, flags(&given))?;
        }
        Ok(Box::new(RealFile { fd, how: given, meter: self.meter.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Network file systems: link() also never replaces an existing name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                fs::hard_link(from, to)?;
                fs::remove_file(from)
            }
            renamed => Ok(renamed?),
        }
    }

    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename(from, to),
            exchanged => Ok(exchanged?),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// Each directory made is made durable by a sync of its parent.
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let missing: Vec<PathBuf> = dir
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
            .map(PathBuf::from)
            .collect();
        for made in missing.iter().rev() {
            match fs::DirBuilder::new().mode(DIR_MODE).create(made) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created?,
            }
            let parent = made.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.sync_dir(parent)?;
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if asked(Sabotage::SkipSync) {
            return Ok(());
        }
        let fd = open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        rustix::fs::fsync(&fd)?;
        self.meter.synced();
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let found = match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let modified = found.modified()?;
        let modified_unix_ns = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        Ok(Some(Metadata { is_regular: found.is_file(), len_bytes: found.len(), modified_unix_ns }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let fd = open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC)?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(RealLock { fd }))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn stats(&self) -> DiskStats {
        let meter = &self.meter;
        DiskStats {
            reads: meter.reads.load(Relaxed),
            read_bytes: meter.read_bytes.load(Relaxed),
            writes: meter.writes.load(Relaxed),
            written_bytes: meter.written_bytes.load(Relaxed),
            syncs: meter.syncs.load(Relaxed),
        }
    }
}

/// The lock: `flock` belongs to the open file. It is released explicitly, because the kernel itself releases it only when
/// the last descriptor closes, and a child process that is just being started has a copy of each until its exec.
struct RealLock {
    fd: OwnedFd,
}

impl DiskLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // An error leaves the release to the close that follows.
        rustix::fs::flock(&self.fd, FlockOperation::Unlock).unwrap_or_default();
    }
}

struct RealFile {
    fd: OwnedFd,
    how: OpenHow,
    meter: Arc<Meter>,
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.meter.reads.fetch_add(1, Relaxed);
        self.meter.read_bytes.fetch_add(done as u64, Relaxed);
        Ok(done)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let mut rest = bufs.to_vec();
        let mut slices = rest.as_mut_slice();
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match rustix::io::pwritev(&self.fd, slices, offset) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    self.meter.written_bytes.fetch_add(written as u64, Relaxed);
                    IoSlice::advance_slices(&mut slices, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.meter.writes.fetch_add(1, Relaxed);
        if self.how.through != WriteThrough::No {
            self.meter.synced();
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if asked(Sabotage::SkipSync) {
            return Ok(());
        }
        rustix::fs::fdatasync(&self.fd)?;
        self.meter.synced();
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        if asked(Sabotage::SkipSync) {
            return Ok(());
        }
        rustix::fs::fsync(&self.fd)?;
        self.meter.synced();
        Ok(())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.fd, len_bytes)?)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_size.max(0) as u64)
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), offset, len_bytes)?)
    }

    fn is_direct(&self) -> bool {
        self.how.direct
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let through = OFlags::DSYNC | OFlags::SYNC;
    if asked(Sabotage::FcntlFlag) && flags.intersects(through) {
        let fd = open(path, flags - through)?;
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | (flags & through))?;
        return Ok(fd);
    }
    let flags = if asked(Sabotage::SkipSync) { flags - through } else { flags };
    loop {
        match rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE)) {
            Err(Errno::INTR) => {}
            opened => return opened,
        }
    }
}

fn flags(how: &OpenHow) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    flags |= if how.write { OFlags::RDWR } else { OFlags::RDONLY };
    flags |= match how.create {
        Create::Never => OFlags::empty(),
        Create::IfMissing => OFlags::CREATE,
        Create::New => OFlags::CREATE | OFlags::EXCL,
    };
    flags |= match how.through {
        WriteThrough::No => OFlags::empty(),
        WriteThrough::Data => OFlags::DSYNC,
        WriteThrough::All => OFlags::SYNC,
    };
    if how.direct {
        flags |= OFlags::DIRECT;
    }
    flags
}

/// Without `O_DIRECT`, writing through makes a writer at least as safe.
fn fallback(how: &OpenHow) -> WriteThrough {
    if how.write && how.through == WriteThrough::No { WriteThrough::Data } else { how.through }
}

/// Fails if a flag is not set. A kernel or a network file system that drops a flag would make commits undurable without
/// an error.
fn verify_flags(path: &Path, fd: &OwnedFd, wanted: OFlags) -> io::Result<()> {
    let kept = OFlags::DIRECT | OFlags::DSYNC | OFlags::SYNC;
    let missing = (wanted & kept) - (rustix::fs::fcntl_getfl(fd)? & kept);
    if missing.is_empty() {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::Unsupported,
        format!(
            "{}: the file system took the open flags but dropped {missing:?}; choose another sync method or disk",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, SyncMethod};

    #[test]
    fn every_sync_method_writes_reads_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        for method in [SyncMethod::OpenDirectDsync, SyncMethod::OpenSync, SyncMethod::Fdatasync, SyncMethod::Fsync] {
            let disk = RealDisk::new();
            let path = dir.path().join(method.name());
            let file = disk.open(&path, &OpenHow { create: Create::New, ..method.open_how() }).unwrap();
            file.allocate(0, 16384).unwrap();
            let mut block = AlignedBuf::zeroed(4096);
            block.as_mut_slice().fill(7);
            file.write_at(&[IoSlice::new(block.as_slice()), IoSlice::new(block.as_slice())], 4096).unwrap();
            method.sync(&*file).unwrap();
            let mut all = AlignedBuf::zeroed(16384);
            assert_eq!(file.read_at(all.as_mut_slice(), 0).unwrap(), 16384);
            assert!(all.as_slice()[..4096].iter().all(|byte| *byte == 0));
            assert!(all.as_slice()[4096..12288].iter().all(|byte| *byte == 7));
            let stats = disk.stats();
            assert_eq!((stats.syncs, stats.writes, stats.written_bytes), (1, 1, 8192), "{method:?}");
        }
    }

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = RealDisk::new().lock(&path).unwrap();
        assert!(first.is_some());
        assert!(RealDisk::new().lock(&path).unwrap().is_none());
        drop(first);
        assert!(RealDisk::new().lock(&path).unwrap().is_some());
    }

    /// A child process has copies of all descriptors between its fork and its exec.
    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_a_dropped_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let fd = super::open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC).unwrap();
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).unwrap();
        let copy = rustix::io::dup(&fd).unwrap();
        drop(super::RealLock { fd });
        assert!(RealDisk::new().lock(&path).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn directories_and_names() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new();
        let deep = dir.path().join("a/b");
        disk.create_dir(&deep).unwrap();
        disk.create_dir(&deep).unwrap();
        disk.open(&deep.join("x"), &OpenHow { create: Create::New, write: true, ..OpenHow::default() }).unwrap();
        disk.rename(&deep.join("x"), &deep.join("y")).unwrap();
        disk.sync_dir(&deep).unwrap();
        assert_eq!(disk.list(&deep).unwrap(), ["y"]);
        let mode = |path: &Path| std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).unwrap()) & 0o777;
        assert_eq!([mode(&deep), mode(&deep.join("y"))], [DIR_MODE, FILE_MODE]);
        assert_eq!(disk.metadata(&deep.join("x")).unwrap(), None);
        assert_eq!(disk.metadata(&deep.join("y")).unwrap().unwrap().len_bytes, 0);
        for want in ["xy", "yx"] {
            let made = want == "xy";
            if made {
                disk.open(&deep.join("x"), &OpenHow { create: Create::New, write: true, ..OpenHow::default() })
                    .unwrap();
                std::fs::write(deep.join("x"), "was x").unwrap();
            }
            disk.exchange(&deep.join("x"), &deep.join("y")).unwrap();
            assert_eq!(std::fs::read(deep.join("y")).unwrap() == b"was x", made);
        }
        disk.remove(&deep.join("y")).unwrap();
        assert!(disk.free_bytes(&deep).unwrap() > 0);
    }
}
