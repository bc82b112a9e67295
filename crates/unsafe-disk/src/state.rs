//! Everything the disk knows, behind one lock: files, names, what is not durable yet, and what happened so far.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::io::Errno;

use crate::faults::Faults;
use crate::file::{FileData, Torn};
use crate::names::{NameChange, survivors, take_wanted};
use crate::node::{Directory, Ino, Kind, Node, ROOT};
use crate::pages::SECTOR_BYTES;
use crate::random::Random;
use crate::status::{Counters, LastCut};

/// Changes of names that wait for a sync; older ones become durable, as a journal's commit makes them.
const PENDING_NAMES_MAX: usize = 512;

pub struct State {
    /// The backing directory.
    pub root: PathBuf,
    pub nodes: HashMap<Ino, Node>,
    pub pending: Vec<NameChange>,
    /// Flags each open file was opened with, and the entries each open directory showed.
    pub handles: HashMap<u64, Handle>,
    next_ino: Ino,
    next_handle: u64,
    pub power_on: bool,
    pub random: Random,
    pub faults: Faults,
    pub capacity_bytes: Option<u64>,
    /// Lengths of all files together.
    pub used_bytes: u64,
    pub unsynced_sectors: u64,
    pub counters: Counters,
    pub last_cut: Option<LastCut>,
    pub last_error: Option<String>,
}

pub struct Handle {
    pub ino: Ino,
    pub flags: i32,
    pub entries: Vec<(Ino, OsString)>,
    /// What a reader of the control file gets.
    pub text: Vec<u8>,
}

/// An error of the backing directory: it ought to have room and be ours.
pub fn backing_failed(error: &io::Error) -> Errno {
    tracing::error!("the backing directory fails: {error}");
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl State {
    pub fn new(root: PathBuf, seed: u64, capacity_bytes: Option<u64>) -> io::Result<State> {
        let mut state = State {
            root,
            nodes: HashMap::new(),
            pending: Vec::new(),
            handles: HashMap::new(),
            // The root and the control file come first.
            next_ino: 3,
            next_handle: 1,
            power_on: false,
            random: Random::new(seed),
            faults: Faults::default(),
            capacity_bytes,
            used_bytes: 0,
            unsynced_sectors: 0,
            counters: Counters::default(),
            last_cut: None,
            last_error: None,
        };
        state.load()?;
        Ok(state)
    }

    pub fn new_ino(&mut self) -> Ino {
        self.next_ino += 1;
        self.next_ino - 1
    }

    pub fn new_handle(&mut self, handle: Handle) -> u64 {
        self.handles.insert(self.next_handle, handle);
        self.next_handle += 1;
        self.next_handle - 1
    }

    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::STALE)
    }

    pub fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::STALE)
    }

    pub fn directory(&self, ino: Ino) -> Result<&Directory, Errno> {
        match &self.node(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub fn directory_mut(&mut self, ino: Ino) -> Result<&mut Directory, Errno> {
        match &mut self.node_mut(ino)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Ino, Errno> {
        self.directory(parent)?.live.get(name).copied().ok_or(Errno::NOENT)
    }

    /// The path from the mount point as it is now, for patterns and messages.
    pub fn path(&self, ino: Ino) -> String {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT
            && let Some(node) = self.nodes.get(&at)
            && parts.len() < 64
        {
            parts.push(node.name.to_string_lossy().into_owned());
            at = node.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Does something with a file's bytes, its backing file open if it has one, and keeps the sums right.
    pub fn with_file<T>(&mut self, ino: Ino, work: impl FnOnce(&mut FileData) -> io::Result<T>) -> Result<T, Errno> {
        self.open_backing(ino, false).map_err(|error| backing_failed(&error))?;
        let data = self.node_mut(ino)?.file_mut().ok_or(Errno::ISDIR)?;
        let (sectors, bytes) = (data.unsynced_sectors(), data.len_bytes);
        let done = work(data);
        let (sectors_now, bytes_now) = (data.unsynced_sectors(), data.len_bytes);
        self.unsynced_sectors = self.unsynced_sectors + sectors_now - sectors;
        self.used_bytes = self.used_bytes + bytes_now - bytes;
        done.map_err(|error| backing_failed(&error))
    }

    /// ENOSPC when a file may not grow to that length.
    pub fn check_room(&mut self, ino: Ino, len_bytes: u64) -> Result<(), Errno> {
        let have = self.node(ino)?.file().map_or(0, |data| data.len_bytes);
        let growth = len_bytes.saturating_sub(have);
        if growth > 0 && self.capacity_bytes.is_some_and(|capacity| self.used_bytes + growth > capacity) {
            self.counters.disk_full += 1;
            return Err(Errno::NOSPC);
        }
        Ok(())
    }

    pub fn touch(&mut self, ino: Ino) {
        let now = SystemTime::now();
        if let Some(node) = self.nodes.get_mut(&ino) {
            (node.attributes.modified, node.attributes.changed) = (now, now);
            if let Some(data) = node.file_mut() {
                data.modified_unsynced = true;
            }
        }
    }

    /// Whether a sync of it has nothing to do.
    pub fn is_synced(&self, ino: Ino, with_names: bool) -> bool {
        let bytes = self.nodes.get(&ino).and_then(Node::file).is_none_or(|data| data.is_synced());
        bytes && !(with_names && self.pending.iter().any(|change| change.names(ino) || change.is_in(ino)))
    }

    /// Writes a file's bytes to the backing.
    pub fn flush(&mut self, ino: Ino, with_times: bool) -> Result<(), Errno> {
        if self.node(ino)?.file().is_none() {
            return Ok(());
        }
        let backing = self.open_backing(ino, true).map_err(|error| backing_failed(&error))?;
        let Some(backing) = backing else { return Err(Errno::STALE) };
        let modified = self.node(ino)?.attributes.modified;
        self.with_file(ino, |data| {
            let times = (with_times || data.length_unsynced()) && data.modified_unsynced;
            data.flush(&backing)?;
            if times {
                crate::file::set_modified(&backing, modified);
                data.modified_unsynced = false;
            }
            Ok(())
        })
    }

    /// Makes the changes of names durable that `wanted` picks, with all they rest on.
    pub fn commit_names(&mut self, wanted: impl Fn(&NameChange) -> bool) -> Result<(), Errno> {
        let taken = take_wanted(&mut self.pending, wanted);
        self.apply_all(&taken)
    }

    fn apply_all(&mut self, changes: &[NameChange]) -> Result<(), Errno> {
        for change in changes {
            self.apply(change).map_err(|error| backing_failed(&error))?;
        }
        for entry in changes.iter().flat_map(|change| &change.entries) {
            entry.was.into_iter().chain(entry.now).for_each(|ino| self.reap(ino));
        }
        Ok(())
    }

    /// Remembers a change that the live names already show.
    pub fn changed(&mut self, change: NameChange) -> Result<(), Errno> {
        for entry in &change.entries {
            self.touch(entry.directory);
        }
        self.pending.push(change);
        if self.pending.len() > PENDING_NAMES_MAX {
            let oldest: Vec<NameChange> = self.pending.drain(..PENDING_NAMES_MAX / 2).collect();
            self.apply_all(&oldest)?;
        }
        Ok(())
    }

    /// Everything becomes durable.
    pub fn sync_all(&mut self) -> Result<(), Errno> {
        self.commit_names(|_| true)?;
        let unsynced = |(ino, node): (&Ino, &Node)| {
            node.file().is_some_and(|data| !data.is_synced() || data.modified_unsynced).then_some(*ino)
        };
        for ino in self.nodes.iter().filter_map(unsynced).collect::<Vec<_>>() {
            self.flush(ino, true)?;
        }
        Ok(())
    }

    /// The power fails: decides what survives, writes that to the backing, and forgets the rest.
    pub fn cut(&mut self, garbage_percent: u32) {
        if !self.power_on {
            return;
        }
        self.power_on = false;
        let unsynced_bytes = self.unsynced_sectors * SECTOR_BYTES as u64;
        let pending = std::mem::take(&mut self.pending);
        let all_names = pending.len() as u64;
        let (kept, lost_names) = survivors(pending, &mut self.random);
        let mut torn = Torn::default();
        let outcome = self.apply_all(&kept).and_then(|()| self.tear(garbage_percent, &mut torn));
        self.counters.power_cuts += 1;
        let cut_number = self.counters.power_cuts;
        self.last_cut =
            Some(LastCut { cut_number, unsynced_bytes, torn, kept_names: all_names - lost_names, lost_names });
        if let Err(errno) = outcome {
            self.last_error =
                Some(format!("power cut: the backing directory fails ({errno}); what it holds is unsound"));
        }
        self.nodes.clear();
        self.handles.clear();
        (self.unsynced_sectors, self.used_bytes) = (0, 0);
    }

    fn tear(&mut self, garbage_percent: u32, torn: &mut Torn) -> Result<(), Errno> {
        let mut inos: Vec<Ino> = self.nodes.iter().filter(|(_, n)| n.file().is_some()).map(|(ino, _)| *ino).collect();
        // The same choices for the same seed.
        inos.sort_unstable();
        for ino in inos {
            if self.node(ino)?.durable_names.is_empty() || self.is_synced(ino, false) {
                continue;
            }
            let backing = self.open_backing(ino, true).map_err(|error| backing_failed(&error))?;
            let (Some(backing), Some(data)) = (backing, self.nodes.get_mut(&ino).and_then(Node::file_mut)) else {
                continue;
            };
            data.lose_power(&backing, &mut self.random, garbage_percent, torn)
                .map_err(|error| backing_failed(&error))?;
        }
        Ok(())
    }

    /// Forgets a file that has no name, is not open and cannot come back.
    pub fn reap(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else { return };
        let gone = node.links == 0 && node.open == 0 && node.durable_names.is_empty() && ino != ROOT;
        if !gone || self.pending.iter().any(|change| change.involves(ino)) {
            return;
        }
        let is_object = node.is_object;
        if let Some(data) = node.file() {
            self.unsynced_sectors -= data.unsynced_sectors();
            self.used_bytes -= data.len_bytes;
        }
        self.nodes.remove(&ino);
        if is_object && let Err(error) = std::fs::remove_file(self.object_path(ino)) {
            backing_failed(&error);
        }
    }
}
