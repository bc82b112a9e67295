//! Files and directories by number: what they are now, and under which names the backing knows them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::SystemTime;

use crate::file::FileData;

/// Numbers files; never used twice, also not after a power cut.
pub type Ino = u64;

pub const ROOT: Ino = 1;

/// Mode, owner and times. Changes of mode and owner are durable at once: no database rests on losing them.
#[derive(Clone, Copy)]
pub struct Attributes {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified: SystemTime,
    pub changed: SystemTime,
}

#[derive(Default)]
pub struct Directory {
    pub live: BTreeMap<OsString, Ino>,
    /// What the backing has.
    pub durable: BTreeMap<OsString, Ino>,
}

pub enum Kind {
    File(FileData),
    Directory(Directory),
    Symlink(OsString),
}

pub struct Node {
    pub kind: Kind,
    pub attributes: Attributes,
    /// The directory and name it was last seen under; messages and patterns use it.
    pub parent: Ino,
    pub name: OsString,
    /// Names it has now.
    pub links: u32,
    pub open: u32,
    /// Names it has in the backing.
    pub durable_names: Vec<(Ino, OsString)>,
    /// The backing has it among its nameless objects.
    pub is_object: bool,
}

impl Node {
    pub fn new(kind: Kind, attributes: Attributes, parent: Ino, name: OsString) -> Node {
        let links = 1;
        Node { kind, attributes, parent, name, links, open: 0, durable_names: Vec::new(), is_object: false }
    }

    pub fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    pub fn file(&self) -> Option<&FileData> {
        match &self.kind {
            Kind::File(data) => Some(data),
            _ => None,
        }
    }

    pub fn file_mut(&mut self) -> Option<&mut FileData> {
        match &mut self.kind {
            Kind::File(data) => Some(data),
            _ => None,
        }
    }
}
