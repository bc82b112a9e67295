//! One database page in memory.

use std::sync::Arc;

/// Bytes in a page. Every volume uses this size (RULE 15).
pub const PAGE_BYTES: usize = 4096;

/// Bytes SQLite leaves unused at the end of each page, where the checksum goes when the page is written to the file.
pub const RESERVED_BYTES: usize = 16;

/// A page's content, immutable once shared.
pub struct Page(pub [u8; PAGE_BYTES]);

impl Page {
    /// A copy of `bytes`, which must be one page long.
    pub fn copy_of(bytes: &[u8]) -> Arc<Page> {
        let mut page = Arc::new(Page([0; PAGE_BYTES]));
        if let Some(p) = Arc::get_mut(&mut page) {
            p.0.copy_from_slice(bytes);
        }
        page
    }
}

/// Where a page begins in the database file. Pages count from 1.
pub fn offset_of(page: u32) -> u64 {
    (u64::from(page) - 1) * PAGE_BYTES as u64
}
