//! The disk as a FUSE file system: translates the kernel's requests, decides nothing.
//!
//! Files are opened in the page cache's write-through mode (no writeback cache), so that every write(2) is one or more
//! WRITE requests and MAP_SHARED works. After a write to a file opened with O_DSYNC or O_SYNC the kernel sends FSYNC in
//! this mode, but not under direct I/O; so the WRITE itself is the barrier, and an FSYNC that finds nothing to do on such
//! a file is not counted again. Pages written back from a shared mapping are never barriers: their file handle is a guess.
//!
//! Names are looked up afresh each time (no time to live), so that after a power cut nothing of the old tree is left.
//! Locks are the kernel's own. A read of a page that the kernel still has does not come here, also after a power cut; the
//! machine whose cache that is has lost power as well.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::attributes::{attributes_of, plain};
use crate::control_file::{CONTROL, CONTROL_INO};
use crate::disk::Disk;
use crate::disk_names::{Made, Taken};
use crate::node::{Ino, Kind, ROOT};

/// The kernel asks for names each time; a change of what belongs to an inode number is reported to it.
const NAMES_LIVE: Duration = Duration::ZERO;
const ATTRIBUTES_LIVE: Duration = Duration::from_secs(1);

pub struct FileSystem {
    pub disk: Arc<Disk>,
}

/// What the kernel calls an error.
fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

fn has(flags: i32, wanted: OFlags) -> bool {
    OFlags::from_bits_retain(flags as u32).intersects(wanted)
}

fn writes_through(flags: i32) -> bool {
    has(flags, OFlags::DSYNC | OFlags::SYNC)
}

impl FileSystem {
    fn attributes(&self, ino: Ino) -> Result<FileAttr, Errno> {
        if ino == CONTROL_INO {
            return Ok(plain(ino, FileType::RegularFile, 0o666));
        }
        match self.disk.on() {
            Ok(state) => Ok(attributes_of(ino, state.node(ino)?)),
            // The control file must be reached without power.
            Err(_) if ino == ROOT => Ok(plain(ino, FileType::Directory, 0o755)),
            Err(error) => Err(error),
        }
    }

    fn find(&self, parent: Ino, name: &OsStr) -> Result<FileAttr, Errno> {
        if parent == ROOT && name == CONTROL {
            return self.attributes(CONTROL_INO);
        }
        let ino = self.disk.on()?.lookup(parent, name)?;
        self.attributes(ino)
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, what: Made, mode: u32) -> Result<FileAttr, Errno> {
        if parent.0 == ROOT && name == CONTROL {
            return Err(Errno::EXIST);
        }
        let ino = self.disk.make(parent.0, name, what, mode, (req.uid(), req.gid()))?;
        self.attributes(ino)
    }

    fn listing(&self, ino: Ino) -> Result<u64, Errno> {
        let state = self.disk.on()?;
        let entries = state.directory(ino)?.live.iter().map(|(name, ino)| (*ino, name.clone())).collect();
        drop(state);
        Ok(self.disk.open_directory(entries, ino))
    }

    fn set_attributes(&self, ino: Ino, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        if mode.is_none() && uid.is_none() && gid.is_none() {
            return Ok(());
        }
        self.disk.set_attributes(ino, |attributes| {
            attributes.mode = mode.map_or(attributes.mode, |mode| mode & 0o7777);
            attributes.uid = uid.unwrap_or(attributes.uid);
            attributes.gid = gid.unwrap_or(attributes.gid);
        })
    }
}

/// Answers with an empty reply or the error.
fn end(reply: ReplyEmpty, outcome: Result<(), Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn entry(reply: ReplyEntry, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) => reply.entry_with_ttls(&ATTRIBUTES_LIVE, &NAMES_LIVE, &attributes, Generation(0)),
        Err(error) => reply.error(errno(error)),
    }
}

fn attributes(reply: ReplyAttr, found: Result<FileAttr, Errno>) {
    match found {
        Ok(attributes) if attributes.ino.0 == ROOT => reply.attr(&NAMES_LIVE, &attributes),
        Ok(attributes) => reply.attr(&ATTRIBUTES_LIVE, &attributes),
        Err(error) => reply.error(errno(error)),
    }
}

impl fuser::Filesystem for FileSystem {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.find(parent.0, name));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        attributes(reply, self.attributes(ino.0));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if ino.0 == CONTROL_INO {
            return attributes(reply, self.attributes(CONTROL_INO));
        }
        let outcome = self.set_attributes(ino.0, mode, uid, gid);
        let outcome = outcome.and_then(|()| size.map_or(Ok(()), |size| self.disk.set_len(ino.0, size)));
        let outcome = outcome.and_then(|()| match mtime {
            Some(TimeOrNow::SpecificTime(time)) => self.disk.set_attributes(ino.0, |a| a.modified = time),
            Some(TimeOrNow::Now) => self.disk.set_attributes(ino.0, |a| a.modified = SystemTime::now()),
            None => Ok(()),
        });
        attributes(reply, outcome.and_then(|()| self.attributes(ino.0)));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.disk.on().and_then(|state| match &state.node(ino.0)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        });
        match target {
            Ok(target) => reply.data(target.as_encoded_bytes()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let regular = mode & 0o170_000 == 0o100_000;
        let made = if regular { self.make(req, parent, name, Made::File, mode & !umask) } else { Err(Errno::PERM) };
        entry(reply, made);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        entry(reply, self.make(req, parent, name, Made::Directory, mode & !umask));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        entry(reply, self.make(req, parent, link_name, Made::Symlink(target.into()), 0o777));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        end(reply, self.disk.remove(parent.0, name, false));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        end(reply, self.disk.remove(parent.0, name, true));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let taken = if flags.contains(RenameFlags::RENAME_EXCHANGE) {
            Taken::Exchange
        } else if flags.contains(RenameFlags::RENAME_NOREPLACE) {
            Taken::Refuse
        } else {
            Taken::Replace
        };
        end(reply, self.disk.rename((parent.0, name), (newparent.0, newname), taken));
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.disk.link(ino.0, newparent.0, newname);
        entry(reply, linked.and_then(|()| self.attributes(ino.0)));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino.0 == CONTROL_INO {
            return reply.opened(FileHandle(self.open_control()), FopenFlags::FOPEN_DIRECT_IO);
        }
        match self.disk.open_file(ino.0, flags.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(req, parent, name, Made::File, mode & !umask);
        let opened = made.and_then(|attributes| Ok((attributes, self.disk.open_file(attributes.ino.0, flags)?)));
        match opened {
            Ok((attributes, handle)) => {
                reply.created(&NAMES_LIVE, &attributes, Generation(0), FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino.0 == CONTROL_INO {
            return reply.data(&self.read_control(fh.0, offset, size));
        }
        match self.disk.read(ino.0, offset, size as usize, has(flags.0, OFlags::DIRECT)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let from_mapping = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = match ino.0 {
            CONTROL_INO => self.write_control(data),
            _ => self.disk.write(ino.0, offset, data, writes_through(flags.0) && !from_mapping),
        };
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.disk.close(fh.0);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let done_by_write = writes_through(self.disk.flags_of(fh.0)) && self.disk.is_synced(ino.0);
        let done = if ino.0 == CONTROL_INO || done_by_write { Ok(()) } else { self.disk.sync(ino.0, !datasync) };
        end(reply, done);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.listing(ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let state = match self.disk.on() {
            Ok(state) => state,
            Err(error) => return reply.error(errno(error)),
        };
        let Some(listing) = state.handles.get(&fh.0) else { return reply.error(errno(Errno::IO)) };
        let parent = state.nodes.get(&ino.0).map_or(ROOT, |node| node.parent);
        let dots = [(ino.0, OsStr::new(".")), (parent, OsStr::new(".."))];
        let named = listing.entries.iter().map(|(ino, name)| (*ino, name.as_os_str()));
        for (at, (ino, name)) in dots.into_iter().chain(named).enumerate().skip(offset as usize) {
            let kind = match state.nodes.get(&ino).map(|node| &node.kind) {
                Some(Kind::Directory(_)) => FileType::Directory,
                Some(Kind::Symlink(_)) => FileType::Symlink,
                _ => FileType::RegularFile,
            };
            if reply.add(INodeNo(ino), at as u64 + 1, kind, name) {
                break;
            }
        }
        drop(state);
        reply.ok();
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.disk.state.lock().handles.remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        end(reply, self.disk.sync(ino.0, !datasync));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let state = self.disk.state.lock();
        let found = match rustix::fs::statvfs(&state.root) {
            Ok(found) => found,
            Err(error) => return reply.error(errno(error)),
        };
        let (blocks, free) = match state.capacity_bytes {
            None => (found.f_blocks * found.f_frsize / 4096, found.f_bavail * found.f_frsize / 4096),
            Some(capacity) => (capacity / 4096, capacity.saturating_sub(state.used_bytes) / 4096),
        };
        reply.statfs(blocks, free, free, found.f_files, found.f_ffree, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // 0 extends the file; 1 keeps its length, which reserves nothing here. Holes are not modelled.
        let done = match mode {
            0 => self.disk.allocate(ino.0, offset + length),
            1 => Ok(()),
            _ => Err(Errno::OPNOTSUPP),
        };
        end(reply, done);
    }
}
