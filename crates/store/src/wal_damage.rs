//! Decides whether a `-wal` that is not whole was torn while it was written, or was damaged while it was being copied.
//!
//! A checkpoint's pages go to the database file only after the `-wal` is synced, and every page says which checkpoint
//! wrote it ([`crate::pages`], checksum). So when the file has one page of the very checkpoint that the `-wal`
//! announces and lacks another, the `-wal` was whole once and the file is half new. Clearing the `-wal` would leave
//! pages of two ages mixed in one database, each with a valid checksum.
//!
//! When the file has all of them, the copy was complete. A header is cleared without a sync, so after a power cut an
//! old header can precede the next checkpoint's first frames. Only frames whose page has a valid checksum are
//! considered. When all other pages are copied, a page that only the damaged frame names is not missed.

use crate::pages::{PAGE_BYTES, checksum, offset_of};
use crate::wal_file::{self, FRAME_BYTES, HEADER_BYTES};
use holdfast_seams::DiskFile;
use std::io;

/// A damaged `-wal` that the database file needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Needed {
    /// Where the first bad frame begins.
    pub offset: u64,
    /// A page that was already copied.
    pub page: u32,
}

/// Finds out whether copying had begun from a `-wal` that is not whole. A damaged header together with a damaged frame
/// cannot be distinguished from a torn file.
pub fn needed(wal: &dyn DiskFile, file: &dyn DiskFile, volume: u32) -> io::Result<Option<Needed>> {
    let Some(header) = wal_file::whole_header(wal, volume)? else { return Ok(None) };
    let (mut bad, mut copied, mut lacking, mut index) = (None, None, false, 0);
    wal_file::frames(wal, volume, header, |page, bytes, valid| {
        if !valid {
            bad = bad.or(Some(HEADER_BYTES as u64 + index * FRAME_BYTES as u64));
        }
        if checksum::checkpoint_of(bytes) as u32 == header.number && checksum::holds(bytes, page, volume) {
            let is_there = is_of(file, page, volume, header.number)?;
            copied = copied.or(is_there.then_some(page));
            lacking |= !is_there;
        }
        index += 1;
        Ok(())
    })?;
    Ok(bad.zip(copied).filter(|_| lacking).map(|(offset, page)| Needed { offset, page }))
}

/// Whether that checkpoint wrote the file's page.
fn is_of(file: &dyn DiskFile, page: u32, volume: u32, number: u32) -> io::Result<bool> {
    let mut bytes = [0; PAGE_BYTES];
    if page == 0 || file.read_at(&mut bytes, offset_of(page))? < PAGE_BYTES {
        return Ok(false);
    }
    Ok(checksum::checkpoint_of(&bytes) as u32 == number && checksum::holds(&bytes, page, volume))
}

/// Whether a `-wal` that is otherwise whole has a damaged header, which is then rewritten from its frames.
pub fn header_is_damaged(wal: &dyn DiskFile, volume: u32) -> io::Result<bool> {
    Ok(wal_file::whole_header(wal, volume)?.is_none())
}
