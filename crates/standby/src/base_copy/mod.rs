//! The base copy: how a new standby copies the databases of a running master, and resumes after an interruption.
//!
//! The receiver requests each chunk with the hash of what it already has; the master sends the chunk's pages only if
//! its hash differs. So an interrupted copy is resumed: what is on the receiver's disk is not sent again, even if the
//! master's databases have changed since: a page that has not changed has the same bytes in every copy. When the next link
//! finds the same copy, which the master keeps for a while, the receiver continues after the last chunk that it has compared;
//! so a copy ends however often its link breaks, and whatever is written meanwhile. When everything is written and synced, the receiver requests every chunk
//! again with the hash of what it reads back from its disk. The copy is complete when no chunk differs.
//!
//! The copy is one state of the databases: the master's pages when it began. The trail from [`CopyPlan::start`] on
//! brings them up to date.
//!
//! How it fails: after a broken link the procedure is retried from its start. An error of the receiver's disk, or a
//! chunk that still differs after three rounds, ends the copy; what is on the disk stays for the next attempt.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::io;

use crate::identity::Identity;
use crate::limits::{CHUNK_PAGES, PAGE_BYTES};
use crate::message::{CopyPlan, CopyVolume};

pub use receive::{Copied, copy, dump};
pub(crate) use send::send;

/// One state of the master's databases; it is kept until this is dropped.
pub trait BaseCopy: Send {
    fn plan(&self) -> &CopyPlan;

    /// The volumes, as many as the plan lists.
    fn volumes(&self) -> &[CopyVolume];

    /// Appends `pages` pages of a volume (by its index), from `first_page` on, counted from 0.
    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()>;

    /// Called when the receiver has everything.
    fn completed(&mut self) {}
}

/// The destination of a copy.
pub trait CopyInto: Send {
    /// Prepares for these volumes. Called again after an interruption, perhaps with other volumes and sizes. Files that
    /// are longer than their volume are truncated. The caller has checked that file names are plain names.
    fn begin(&mut self, master: &Identity, plan: &CopyPlan, volumes: &[CopyVolume]) -> io::Result<()>;

    /// Appends what the disk has of a chunk: fewer bytes than requested, or none, if the file ends before.
    fn read(&mut self, volume: usize, first_page: u32, pages: u32, into: &mut Vec<u8>) -> io::Result<()>;

    fn write(&mut self, volume: usize, first_page: u32, pages: &[u8]) -> io::Result<()>;

    /// Makes everything written durable; later reads come from the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Moves the whole copy to its place; called once, when it is complete and verified.
    fn finish(&mut self) -> io::Result<()>;

    /// Called after every chunk with the progress so far.
    fn progress(&mut self, done: CopyProgress);
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CopyProgress {
    /// Bytes of the master's databases that were compared in this round.
    pub compared_bytes: u64,
    /// Bytes that were sent over the link, in all rounds.
    pub sent_bytes: u64,
    pub total_bytes: u64,
    /// How often the link has broken.
    pub interruptions: u32,
    /// 0 while copying, then the number of the verification round.
    pub round: u32,
}

fn hash(pages: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(pages).to_le_bytes()
}

/// The number of chunks of a volume.
fn chunks(volume: &CopyVolume) -> u32 {
    volume.pages.div_ceil(CHUNK_PAGES)
}

/// The first page of a chunk and its number of pages; `None` if the volume has no such chunk.
fn chunk_pages(volume: &CopyVolume, chunk: u32) -> Option<(u32, u32)> {
    let first = chunk.checked_mul(CHUNK_PAGES).filter(|first| *first < volume.pages)?;
    Some((first, CHUNK_PAGES.min(volume.pages - first)))
}

fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES as u64
}
