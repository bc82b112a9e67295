//! A file's attributes, as the kernel gets them.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

use crate::node::{Ino, Kind, Node};

pub fn attributes_of(ino: Ino, node: &Node) -> FileAttr {
    let (kind, size, links) = match &node.kind {
        Kind::File(data) => (FileType::RegularFile, data.len_bytes, node.links),
        Kind::Directory(_) => (FileType::Directory, 4096, 2),
        Kind::Symlink(target) => (FileType::Symlink, target.len() as u64, node.links),
    };
    let a = &node.attributes;
    FileAttr {
        ino: INodeNo(ino),
        size,
        blocks: size.div_ceil(512),
        atime: a.modified,
        mtime: a.modified,
        ctime: a.changed,
        crtime: a.changed,
        kind,
        perm: a.mode as u16,
        nlink: links,
        uid: a.uid,
        gid: a.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The control file, and the root while the power is off.
pub fn plain(ino: Ino, kind: FileType, perm: u16) -> FileAttr {
    let now = SystemTime::now();
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
