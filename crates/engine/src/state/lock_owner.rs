//! A transaction in the lock manager, and what ends with it.

use crate::state::advisory::AdvisoryOwner;
use crate::state::locks::{LockId, LockManager, LockMode, OwnerId};
use holdfast_types::VolumeId;
use std::sync::Arc;

/// A transaction in the lock manager for as long as it lives: while there is one, the writer registers its changes; its
/// locks are released when it is dropped.
pub struct LockOwner {
    locks: Arc<LockManager>,
    volume: VolumeId,
    id: OwnerId,
    /// Its client's session, whose advisory locks may end with the transaction.
    advisory_owner: Option<Arc<AdvisoryOwner>>,
    advisory: Vec<(OwnerId, LockId, LockMode)>,
}

/// Keeps versions from now on, whatever the snapshot.
const NO_SNAPSHOT: u64 = u64::MAX;

impl LockOwner {
    /// `part_of`: another part of the same transaction, in another database.
    pub fn new(
        locks: &Arc<LockManager>,
        volume: VolumeId,
        advisory_owner: Option<Arc<AdvisoryOwner>>,
        part_of: Option<OwnerId>,
    ) -> LockOwner {
        locks.enter(volume, NO_SNAPSHOT);
        let pid = advisory_owner.as_ref().map_or(0, |s| s.pid);
        let id = locks.new_owner(pid, part_of);
        LockOwner { locks: locks.clone(), volume, id, advisory_owner, advisory: Vec::new() }
    }

    /// The owner of its advisory locks.
    pub fn advisory_owner(&self) -> Option<OwnerId> {
        self.advisory_owner.as_ref().map(|s| s.owner())
    }

    /// Records an advisory lock that ends with the transaction.
    pub fn ends_with_it(&mut self, locks: Vec<(OwnerId, LockId, LockMode)>) {
        self.advisory.extend(locks);
    }

    pub fn id(&self) -> OwnerId {
        self.id
    }

    /// Whether advisory locks end with it.
    pub fn holds_advisory(&self) -> bool {
        !self.advisory.is_empty()
    }

    /// It continues without its client.
    pub fn forget_session(&mut self) {
        self.advisory_owner = None;
        self.locks.forget_client(self.id);
    }

    /// The process number that its client knows; 0 for none.
    pub fn pid(&self) -> i32 {
        self.advisory_owner.as_ref().map_or(0, |s| s.pid)
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        let locks = &self.locks;
        for (owner, id, mode) in self.advisory.drain(..) {
            locks.unlock(owner, id, mode);
        }
        locks.end(self.id);
        self.locks.leave(self.volume, NO_SNAPSHOT);
    }
}
