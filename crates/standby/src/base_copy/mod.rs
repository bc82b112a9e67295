//! The base copy: how a new standby gets the databases, online, and gets them again after an interruption.
//!
//! The receiver asks chunk by chunk and tells the hash of what it has there already; the master sends a chunk's pages only
//! where its hash differs. So a copy that was interrupted goes on: what is on the receiver's disk is read there and not
//! sent again, though the master's databases have changed since. When everything is there and synced, the receiver asks
//! once more for every chunk with the hash of what it reads back from its disk: a copy is done when nothing differs.
//!
//! The copy is one state of the databases: the master's pages as they were when it began. The trail from
//! [`CopyPlan::start`] on brings them up to date.
//!
//! How it fails: a broken link is tried again from the start of the same procedure; an error of the receiver's disk, or
//! a chunk that still differs after three rounds, ends it and leaves what is there for the next attempt.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::io;

use crate::identity::Identity;
use crate::limits::{CHUNK_PAGES, PAGE_BYTES};
use crate::message::{CopyPlan, CopyVolume};

pub use receive::{Copied, copy};
pub(crate) use send::send;

/// The master's databases as they were at one moment; kept as long as this lives.
pub trait BaseCopy: Send {
    fn plan(&self) -> &CopyPlan;

    /// As many as the plan says.
    fn volumes(&self) -> &[CopyVolume];

    /// Appends `pages` pages of a volume (by its index), from `first_page` on, counted from 0.
    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()>;
}

/// Where a copy goes.
pub trait CopyInto: Send {
    /// What will come; called again after an interruption, perhaps with other volumes and sizes. Files that are longer
    /// than their volume are cut. Checked already: file names are plain names.
    fn begin(&mut self, master: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()>;

    /// Appends what is there of a chunk: nothing, or fewer bytes than asked for, where the file ends before.
    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()>;

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()>;

    /// Makes everything written durable, and what is read afterwards come from the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Puts the whole copy in its place; called once, when it is complete and verified.
    fn finish(&mut self) -> io::Result<()>;

    /// After every chunk: bytes compared and bytes sent so far, and bytes in all.
    fn progress(&mut self, done: Progress);
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Of the master's databases, in this round.
    pub compared_bytes: u64,
    /// That came over the link, in all rounds.
    pub sent_bytes: u64,
    pub total_bytes: u64,
    /// 0 while copying, then the rounds of verification.
    pub round: u32,
}

fn hash(pages: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(pages).to_le_bytes()
}

/// Chunks of a volume.
fn chunks(volume: &CopyVolume) -> u32 {
    volume.pages.div_ceil(CHUNK_PAGES)
}

/// First page of a chunk and how many it has; `None`: the volume has no such chunk.
fn chunk_pages(volume: &CopyVolume, chunk: u32) -> Option<(u32, u32)> {
    let first = chunk.checked_mul(CHUNK_PAGES).filter(|first| *first < volume.pages)?;
    Some((first, CHUNK_PAGES.min(volume.pages - first)))
}

fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64
}
