//! Holds a snapshot, in the page store and in the lock manager's versions.

use crate::state::locks::{HolderId, LockManager};
use holdfast_store::pages::PageStore;
use holdfast_types::VolumeId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which snapshot to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest one whose commits have all reached their levels, for a reader.
    Visible,
    /// That one, for what may write: where it is older than the batch that published the present schema, the newest
    /// published one.
    ForWriting,
    /// The newest published one; what depends on it must wait until it is visible.
    Newest,
    /// One that the caller makes sure is held at this moment.
    Held(u64),
}

/// A snapshot that is held: its page versions stay, and so do the records of changes after it.
pub struct Pin {
    locks: Arc<LockManager>,
    volume: VolumeId,
    store: Arc<PageStore>,
    snapshot: u64,
    /// Its entry in the list for display.
    holder: HolderId,
    since: Instant,
}

impl Pin {
    /// For the client that knows itself as process `pid`; 0 for none. `schema_number`: the batch that published the present
    /// schema.
    pub fn new(
        locks: &Arc<LockManager>,
        volume: VolumeId,
        store: Arc<PageStore>,
        schema_number: impl Fn() -> u64,
        at: At,
        pid: i32,
    ) -> Pin {
        // In one critical section with the versions; otherwise those newer than the snapshot might be dropped in
        // between.
        let (snapshot, holder) = locks.enter_with(volume, pid, || match at {
            At::ForWriting if store.visible() < schema_number() => store.acquire_newest().0,
            At::ForWriting | At::Visible => store.acquire().0,
            At::Newest => store.acquire_newest().0,
            At::Held(number) => store.acquire_at(number).0,
        });
        Pin { locks: locks.clone(), volume, store, snapshot, holder, since: Instant::now() }
    }

    pub fn snapshot(&self) -> u64 {
        self.snapshot
    }

    /// How long it has been held.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.store.release(self.snapshot);
        self.locks.leave_as(self.holder, self.volume, self.snapshot);
    }
}
