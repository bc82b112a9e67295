//! The versions of one page.
//!
//! A chain lists versions by ascending snapshot. The version for snapshot `s` is the last one whose number is at most
//! `s`; when there is none, it is the file's. At most one version is `in_file`; `Loc::File` implies it. A chain whose
//! only version is the file's is not kept.

use super::page::Page;
use super::scratch::Scratch;
use super::snapshots::Needed;

/// Where a version's bytes are.
pub enum Loc {
    Memory(Page),
    /// A slot of the scratch file.
    Scratch(u32),
    /// Only in the database file.
    File,
}

/// One version of a page.
pub struct Version {
    /// First snapshot that sees it.
    pub snapshot: u64,
    pub loc: Loc,
    /// Whether the database file holds exactly this version.
    pub in_file: bool,
}

/// All versions of a page, unless the file's version is the only one.
#[derive(Default)]
pub struct Chain {
    pub versions: Vec<Version>,
    /// Whether the page was read since the clock hand last passed.
    pub hot: bool,
    /// Whether the page is in its shard's clock queue.
    pub queued: bool,
    /// Whether the page is in its shard's queue of pages with several versions.
    pub listed: bool,
}

impl Chain {
    /// The version that snapshot `s` sees, unless it is the file's.
    pub fn read_at(&self, s: u64) -> Option<&Version> {
        self.versions.iter().rev().find(|v| v.snapshot <= s)
    }

    /// Drops versions that no snapshot can read, and returns how many pages of memory that freed.
    pub fn prune(&mut self, needed: &Needed, scratch: &Scratch) -> usize {
        let mut freed = 0;
        let mut i = 0;
        while i + 1 < self.versions.len() {
            if needed.covers(self.versions[i].snapshot, self.versions[i + 1].snapshot) {
                i += 1;
            } else {
                freed += release(&self.versions.remove(i).loc, scratch);
            }
        }
        freed
    }

    /// Whether the chain holds no other version than the file's.
    pub fn is_redundant(&self) -> bool {
        match self.versions.as_slice() {
            [] => true,
            [only] => matches!(only.loc, Loc::File),
            _ => false,
        }
    }

    pub fn in_memory(&self) -> usize {
        self.versions.iter().filter(|v| matches!(v.loc, Loc::Memory(_))).count()
    }

    /// Moves bytes out of memory: a version that the file holds is dropped, others go to scratch. Returns how many
    /// pages of memory that freed. When scratch is full, the rest stays in memory.
    pub fn evict(&mut self, scratch: &Scratch) -> usize {
        let mut freed = 0;
        for v in &mut self.versions {
            let Loc::Memory(page) = &v.loc else { continue };
            if v.in_file {
                v.loc = Loc::File;
            } else {
                match scratch.put(page.bytes()) {
                    Ok(slot) => v.loc = Loc::Scratch(slot),
                    Err(_) => break,
                }
            }
            freed += 1;
        }
        freed
    }
}

/// Frees what a dropped version occupied. Returns 1 if that was a page of memory.
pub fn release(loc: &Loc, scratch: &Scratch) -> usize {
    match loc {
        Loc::Memory(_) => 1,
        Loc::Scratch(slot) => {
            scratch.free(*slot);
            0
        }
        Loc::File => 0,
    }
}
