//! Holding on to a snapshot, in the page store and in the lock manager's versions.

use crate::advisory::Session;
use crate::database::Inner;
use crate::locks::{HolderId, LockId, LockMode, OwnerId};
use holdfast_store::pages::PageStore;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Which snapshot to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The newest durable one.
    Durable,
    /// The newest published one; what depends on it must wait until it is durable.
    Newest,
    /// One that somebody else is holding at this moment.
    Held(u64),
}

/// A snapshot held: its page versions stay, and so does what is known of changes after it.
pub struct Pin {
    inner: Arc<Inner>,
    store: Arc<PageStore>,
    snapshot: u64,
    /// Its place in what people are shown.
    holder: HolderId,
    since: Instant,
}

impl Pin {
    /// For the client that knows itself as process `pid`; 0 for none.
    pub fn new(inner: &Arc<Inner>, at: At, pid: i32) -> Pin {
        let store = inner.volume().store().clone();
        // In one critical section of the versions, or those newer than the snapshot might be forgotten in between.
        let (snapshot, holder) = inner.shared.locks.enter_with(inner.id, pid, || match at {
            At::Durable if store.durable() < inner.schema_number() => store.acquire_newest().0,
            At::Durable => store.acquire().0,
            At::Newest => store.acquire_newest().0,
            At::Held(number) => store.acquire_at(number).0,
        });
        Pin { inner: inner.clone(), store, snapshot, holder, since: Instant::now() }
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
        self.inner.shared.locks.leave_as(self.holder, self.inner.id, self.snapshot);
    }
}

/// A transaction in the lock manager, for as long as it lives: MAIN registers what it changes while there is one, and
/// its locks go when it is dropped.
pub struct Presence {
    inner: Arc<Inner>,
    owner: OwnerId,
    /// Its client's session, whose advisory locks may end with the transaction.
    session: Option<Arc<Session>>,
    advisory: Vec<(OwnerId, LockId, LockMode)>,
}

/// Keeps versions from now on, whatever the snapshot.
const NO_SNAPSHOT: u64 = u64::MAX;

impl Presence {
    /// `beside`: another part of the same transaction, in another database.
    pub fn new(inner: &Arc<Inner>, session: Option<Arc<Session>>, beside: Option<OwnerId>) -> Presence {
        inner.shared.locks.enter(inner.id, NO_SNAPSHOT);
        let pid = session.as_ref().map_or(0, |s| s.pid);
        let owner = inner.shared.locks.new_owner(pid, beside);
        Presence { inner: inner.clone(), owner, session, advisory: Vec::new() }
    }

    /// Who owns advisory locks.
    pub fn session(&self) -> Option<OwnerId> {
        self.session.as_ref().map(|s| s.owner())
    }

    /// An advisory lock ends with the transaction.
    pub fn ends_with_it(&mut self, locks: Vec<(OwnerId, LockId, LockMode)>) {
        self.advisory.extend(locks);
    }

    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Whether advisory locks end with it.
    pub fn holds_advisory(&self) -> bool {
        !self.advisory.is_empty()
    }

    /// It goes on without its client.
    pub fn forget_session(&mut self) {
        self.session = None;
        self.inner.shared.locks.forget_client(self.owner);
    }

    /// The process number its client knows; 0 for none.
    pub fn pid(&self) -> i32 {
        self.session.as_ref().map_or(0, |s| s.pid)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let locks = &self.inner.shared.locks;
        for (owner, id, mode) in self.advisory.drain(..) {
            locks.unlock(owner, id, mode);
        }
        locks.end(self.owner);
        self.inner.shared.locks.leave(self.inner.id, NO_SNAPSHOT);
    }
}
