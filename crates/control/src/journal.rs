//! The file `journal` of the control directory: Raft's vote and log, in the order they were written.
//!
//! It has one record after the other (see [`crate::frames`]), each appended with one write and one sync. The first
//! record names the node. When the file has grown past a bound, a new file is written, synced and renamed to replace
//! it. The whole log is also kept in memory: it is small.
//!
//! A failed write or sync is never retried: every later call fails, Raft stops, and the node's lease runs out. At open
//! a torn tail is cut off and kept in `journal.tail`; damage before it refuses to open, because a vote that was given
//! must not be forgotten; so does a journal that is missing beside a snapshot, which would make a voter of a node that
//! has forgotten its votes. The last records of all are not told from a tail when they rot: nothing behind them shows
//! that they were durable; with the lease renewed twice a second that is the last half second.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::{Create, Disk, DiskFile, OpenHow};
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::files;
use crate::frames;
use crate::id::{DiskId, NodeId};
use crate::machine;
use crate::raft::{Entry, LogId, Vote};

const NAME: &str = "journal";
const NAME_TAIL: &str = "journal.tail";
const FORMAT_VERSION: u16 = 1;
/// The journal is rewritten when it is longer than this and than twice its initial length.
const REWRITE_BYTES: u64 = if cfg!(test) { 8 << 10 } else { 1 << 20 };

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Item {
    Begin {
        version: u16,
        node: NodeId,
        disk: DiskId,
    },
    Vote(Vote),
    Entry(Entry),
    /// Entries from this index on are gone.
    Truncate(u64),
    /// Entries up to this one are gone.
    Purge(LogId),
    /// Entries up to this one are committed; not synced of its own.
    Committed(Option<LogId>),
}

/// What the journal holds.
#[derive(Default)]
pub struct Content {
    pub vote: Option<Vote>,
    pub entries: BTreeMap<u64, Entry>,
    pub purged: Option<LogId>,
    pub committed: Option<LogId>,
}

impl Content {
    /// The position of the last entry, also when it has been purged.
    pub fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|entry| entry.log_id).or(self.purged)
    }

    fn take(&mut self, item: Item) {
        match item {
            Item::Begin { .. } => {}
            Item::Vote(vote) => self.vote = Some(vote),
            Item::Entry(entry) => {
                self.entries.split_off(&entry.log_id.index);
                self.entries.insert(entry.log_id.index, entry);
            }
            Item::Truncate(index) => drop(self.entries.split_off(&index)),
            Item::Purge(position) => {
                self.entries = self.entries.split_off(&(position.index + 1));
                self.purged = Some(position);
            }
            Item::Committed(position) => self.committed = position,
        }
    }
}

/// An open journal.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    node: NodeId,
    id: DiskId,
    file: Box<dyn DiskFile>,
    /// Where the next record goes.
    end: u64,
    /// Number of the last record, and of the last one that is known to be durable.
    number: u64,
    synced: u64,
    rewrite_bytes: u64,
    failed: bool,
    pub content: Content,
}

impl Journal {
    /// Opens the journal of `node`, or begins one on a disk that gets the number `new_disk`.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, node: NodeId, new_disk: DiskId) -> Result<Journal, ControlError> {
        let path = dir.join(NAME);
        if disk.metadata(&path).map_err(ControlError::io("look at", &path))?.is_none() {
            let snapshot = dir.join(machine::NAME);
            if disk.metadata(&snapshot).map_err(ControlError::io("look at", &snapshot))?.is_some() {
                let what = "it is missing, but a snapshot exists".to_owned();
                return Err(ControlError::Damage { file: path, offset: 0, what });
            }
            let begin = Item::Begin { version: FORMAT_VERSION, node, disk: new_disk };
            let bytes = encode(&mut 0, 0, &[begin])?;
            files::replace(&*disk, dir, NAME, &bytes)?;
        }
        let bytes = files::read(&*disk, &path)?;
        let found = read(&path, &bytes)?;
        if found.node != node {
            return Err(ControlError::OtherNode { dir: dir.to_path_buf(), found: found.node, expected: node });
        }
        let how = OpenHow { create: Create::Never, write: true, ..OpenHow::default() };
        let file = disk.open(&path, &how).map_err(ControlError::io("open", &path))?;
        if found.end < bytes.len() {
            cut(&*disk, dir, &*file, &bytes, found.end)?;
        }
        // What was read may stand in the page cache only.
        file.sync_all().map_err(ControlError::io("sync", &path))?;
        Ok(Journal {
            disk,
            dir: dir.to_path_buf(),
            node,
            id: found.disk,
            file,
            end: found.end as u64,
            number: found.number,
            synced: found.number,
            rewrite_bytes: REWRITE_BYTES,
            failed: false,
            content: found.content,
        })
    }

    /// Which disk this is.
    pub fn disk_id(&self) -> DiskId {
        self.id
    }

    /// Takes the leadership out of this node's own vote: openraft would resume it at once, with the log that it finds here. In a
    /// journal that was put back from a copy that log may be shorter than it was, and entries would get positions that other
    /// members have with other contents. As a follower this node gets what the others have, or is elected by them.
    pub fn lead_no_longer(&mut self) {
        if let Some(vote) = self.content.vote.as_mut().filter(|vote| vote.leader_id.voted_for() == Some(self.node)) {
            vote.committed = false;
        }
    }

    pub fn save_vote(&mut self, vote: Vote) -> Result<(), ControlError> {
        self.append(vec![Item::Vote(vote)], true)
    }

    pub fn save_entries(&mut self, entries: Vec<Entry>) -> Result<(), ControlError> {
        self.append(entries.into_iter().map(Item::Entry).collect(), true)
    }

    pub fn truncate(&mut self, index: u64) -> Result<(), ControlError> {
        self.append(vec![Item::Truncate(index)], true)
    }

    pub fn purge(&mut self, position: LogId) -> Result<(), ControlError> {
        self.append(vec![Item::Purge(position)], true)?;
        if self.end > self.rewrite_bytes { self.rewrite() } else { Ok(()) }
    }

    /// Only a hint for the next start: the next record that is synced takes it along.
    pub fn save_committed(&mut self, position: Option<LogId>) -> Result<(), ControlError> {
        self.append(vec![Item::Committed(position)], false)
    }

    fn append(&mut self, items: Vec<Item>, sync: bool) -> Result<(), ControlError> {
        if self.failed {
            return Err(ControlError::Stopped("its disk has failed".to_owned()));
        }
        let appended = self.write(&items, sync);
        self.failed = appended.is_err();
        appended?;
        items.into_iter().for_each(|item| self.content.take(item));
        Ok(())
    }

    fn write(&mut self, items: &[Item], sync: bool) -> Result<(), ControlError> {
        let path = self.dir.join(NAME);
        let bytes = encode(&mut self.number, self.synced, items)?;
        self.file.write_at(&[IoSlice::new(&bytes)], self.end).map_err(ControlError::io("write", &path))?;
        self.end += bytes.len() as u64;
        if sync {
            self.file.sync_data().map_err(ControlError::io("sync", &path))?;
            self.synced = self.number;
        }
        Ok(())
    }

    /// Writes what is still needed to a new file and puts it in the old one's place.
    fn rewrite(&mut self) -> Result<(), ControlError> {
        self.failed = true;
        let mut items = vec![Item::Begin { version: FORMAT_VERSION, node: self.node, disk: self.id }];
        items.extend(self.content.vote.map(Item::Vote));
        items.extend(self.content.purged.map(Item::Purge));
        items.extend(self.content.entries.values().cloned().map(Item::Entry));
        items.extend(self.content.committed.map(|position| Item::Committed(Some(position))));
        let mut number = 0;
        let bytes = encode(&mut number, 0, &items)?;
        files::replace(&*self.disk, &self.dir, NAME, &bytes)?;
        let path = self.dir.join(NAME);
        let how = OpenHow { create: Create::Never, write: true, ..OpenHow::default() };
        self.file = self.disk.open(&path, &how).map_err(ControlError::io("open", &path))?;
        (self.end, self.number, self.synced) = (bytes.len() as u64, number, number);
        self.rewrite_bytes = REWRITE_BYTES.max(2 * self.end);
        self.failed = false;
        Ok(())
    }
}

fn encode(number: &mut u64, synced: u64, items: &[Item]) -> Result<Vec<u8>, ControlError> {
    let mut bytes = Vec::new();
    for item in items {
        let text = serde_json::to_vec(item).map_err(|error| ControlError::Stopped(format!("encoding: {error}")))?;
        if text.len() > frames::TEXT_BYTES_MAX {
            return Err(ControlError::Stopped(format!("a log entry of {} bytes", text.len())));
        }
        *number += 1;
        frames::put(&mut bytes, *number, synced, &text);
    }
    Ok(bytes)
}

/// A journal as it was found.
struct Found {
    node: NodeId,
    disk: DiskId,
    number: u64,
    end: usize,
    content: Content,
}

fn read(path: &Path, bytes: &[u8]) -> Result<Found, ControlError> {
    let damage =
        |offset: usize, what: String| ControlError::Damage { file: path.to_path_buf(), offset: offset as u64, what };
    let mut found = Found { node: NodeId::default(), disk: DiskId(0), number: 0, end: 0, content: Content::default() };
    while let Some(frame) = frames::get(bytes, found.end).filter(|frame| frame.number == found.number + 1) {
        let item = serde_json::from_slice(frame.text).map_err(|error| damage(found.end, error.to_string()))?;
        match item {
            Item::Begin { version, .. } if version > FORMAT_VERSION => {
                return Err(ControlError::Newer { file: path.to_path_buf(), found: version, known: FORMAT_VERSION });
            }
            Item::Begin { node, disk, .. } => (found.node, found.disk) = (node, disk),
            item => found.content.take(item),
        }
        (found.number, found.end) = (frame.number, frame.end);
    }
    // The first record was durable before the file got its name.
    if found.number == 0 || found.node == NodeId::default() {
        return Err(damage(0, "its first record is invalid".to_owned()));
    }
    let proven = frames::scan(bytes, found.end).any(|frame| frame.synced > found.number);
    if proven {
        return Err(damage(found.end, format!("record {} was durable and is invalid", found.number + 1)));
    }
    Ok(found)
}

/// Keeps the tail aside, then cuts it off.
fn cut(disk: &dyn Disk, dir: &Path, file: &dyn DiskFile, bytes: &[u8], end: usize) -> Result<(), ControlError> {
    tracing::warn!(bytes = bytes.len() - end, "cutting a torn tail off the control journal; it is kept in {NAME_TAIL}");
    files::replace(disk, dir, NAME_TAIL, &bytes[end..])?;
    file.set_len(end as u64).map_err(ControlError::io("cut", dir.join(NAME)))
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
