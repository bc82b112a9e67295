//! Pages written on a private copy of the volume, which become the newest snapshot as they are.
//!
//! The copy began on the snapshot B and has changed rows of its own. Then it has repeated everything that the writer has published since B, so
//! its rows are those of the volume, but not always on the same pages: both have taken new pages under the same numbers.
//!
//! | a page, since B | in the snapshot that is published |
//! |---|---|
//! | written by the copy | the copy's |
//! | written by the writer only, and the copy began with it | as it was in B |
//! | written by the writer only, and new there | as the writer left it; in the copy it is unused (SQLite writes every page that it uses) |
//! | written by neither | as it is |
//!
//! The counters of page 1 continue the writer's, so that a connection that looks at them sees a change. The caller makes sure that the
//! rows are equal, and that the writer's connection reads every page again.
//!
//! Failure: a page of B that cannot be read, or scratch without space. Then nothing is published.

use super::page::PAGE_BYTES;
use super::store::{PageStore, ReadError, Staged};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

/// Where page 1 has the change counter, and version-valid-for, which is equal to it (sqlite.org/fileformat.html 1.3).
const COUNTERS: [usize; 2] = [24, 92];

/// Pages that were published since a watch began.
type Changed = Arc<Mutex<HashSet<u32>>>;

/// The watches of a store.
#[derive(Default)]
pub struct Changes(Mutex<Vec<Changed>>);

impl Changes {
    pub(super) fn published(&self, pages: impl Iterator<Item = u32> + Clone) {
        self.0.lock().iter().for_each(|changed| changed.lock().extend(pages.clone()));
    }
}

/// Lists the pages that are published while it exists.
pub struct ChangeWatch {
    store: Arc<PageStore>,
    changed: Changed,
}

impl ChangeWatch {
    /// Begins to watch.
    pub fn begin(store: &Arc<PageStore>) -> ChangeWatch {
        let changed = Changed::default();
        store.changes().0.lock().push(changed.clone());
        ChangeWatch { store: store.clone(), changed }
    }

    fn pages(&self) -> Vec<u32> {
        self.changed.lock().iter().copied().collect()
    }
}

impl Drop for ChangeWatch {
    fn drop(&mut self) {
        self.store.changes().0.lock().retain(|other| !Arc::ptr_eq(other, &self.changed));
    }
}

/// What a private copy has written, and the snapshot that it began on.
pub struct CopiedPages {
    store: Arc<PageStore>,
    staged: Staged,
    /// Size of the copy in pages.
    pages: u32,
    base: u64,
    /// Size of the base in pages.
    base_pages: u32,
}

impl CopiedPages {
    /// Takes over the pages of a copy. It must be reading its base.
    pub fn new(store: &Arc<PageStore>, staged: Staged, pages: u32, base: u64) -> CopiedPages {
        let (base, base_pages) = store.acquire_at(base);
        CopiedPages { store: store.clone(), staged, pages, base, base_pages }
    }
}

impl Drop for CopiedPages {
    fn drop(&mut self) {
        self.store.truncate_staged(&mut self.staged, 0);
        self.store.release(self.base);
    }
}

impl PageStore {
    /// Publishes a copy as the next snapshot and returns its number. The writer must not be in a transaction.
    pub fn adopt(&self, mut copy: CopiedPages, watch: &ChangeWatch) -> Result<u64, ReadError> {
        let mut bytes = [0; PAGE_BYTES];
        for page in watch.pages() {
            if page <= copy.pages.min(copy.base_pages) && !copy.staged.has(page) {
                self.read(page, copy.base, 0, &mut bytes)?;
                self.stage(&mut copy.staged, page, &bytes).map_err(|e| self.io_error(page, e))?;
            }
        }
        let mut counter = [0; 4];
        self.read(1, u64::MAX, COUNTERS[0], &mut counter)?;
        let counter = u32::from_be_bytes(counter).wrapping_add(1).to_be_bytes();
        if !self.read_staged(&copy.staged, 1, 0, &mut bytes)? {
            self.read(1, copy.base, 0, &mut bytes)?;
        }
        for at in COUNTERS {
            bytes[at..at + 4].copy_from_slice(&counter);
        }
        self.stage(&mut copy.staged, 1, &bytes).map_err(|e| self.io_error(1, e))?;
        Ok(self.publish(&mut copy.staged, copy.pages))
    }
}
