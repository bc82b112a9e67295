//! One database page in memory.

use std::sync::Arc;

/// Bytes in a page. Every volume uses this size (RULE 15).
pub const PAGE_BYTES: usize = 4096;

/// Bytes that SQLite leaves unused at the end of each page. They hold the checksum when the page is in the file.
pub const RESERVED_BYTES: usize = 16;

/// A page's content, PAGE_BYTES bytes, immutable once shared. It is a slice, because an array cannot be put behind an
/// `Arc` without being zeroed or copied a second time, which the writer would do for every page of every batch.
#[derive(Clone)]
pub struct Page(Arc<[u8]>);

impl Page {
    /// A copy of `bytes`, which must be one page long.
    pub fn copy_of(bytes: &[u8]) -> Page {
        assert_eq!(bytes.len(), PAGE_BYTES, "a page has PAGE_BYTES bytes");
        Page(bytes.into())
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Offset of a page in the database file. Pages are numbered from 1.
pub fn offset_of(page: u32) -> u64 {
    (u64::from(page) - 1) * PAGE_BYTES as u64
}
