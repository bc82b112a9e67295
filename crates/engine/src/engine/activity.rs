//! What the engine's transactions do at this moment, for people: who waits for whom, who holds a snapshot.

use super::*;
use crate::locks::{Blocked, LockInfo};
use std::time::Duration;

/// A snapshot that an open transaction keeps: page versions newer than it stay in memory or in scratch.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotHeld {
    pub database: String,
    /// The database's change it shows.
    pub number: u64,
    pub age: Duration,
    /// The process number its client knows; 0 for none.
    pub pid: i32,
}

/// Counters since the start, and what is kept now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionStats {
    pub statement_restarts: u64,
    pub lock_waits: u64,
    pub lock_timeouts: u64,
    pub deadlocks: u64,
    /// One-message transactions that met a lock and went on beside the others.
    pub requests_sent_to_branches: u64,
    pub row_versions_kept: u64,
}

impl Engine {
    /// Every lock that is held or waited for.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.0.shared.locks.list()
    }

    /// Everybody who waits for a lock.
    pub fn blocked(&self) -> Vec<Blocked> {
        self.0.shared.locks.blocked()
    }

    /// The snapshot that has been held the longest.
    pub fn oldest_snapshot(&self) -> Option<SnapshotHeld> {
        let holder = self.0.shared.locks.oldest_holder()?;
        let database = self.0.shared.state.lock().open.get(&holder.volume).map(|o| o.inner.name.clone());
        let (number, age, pid) = (holder.number, holder.since.elapsed(), holder.pid);
        Some(SnapshotHeld { database: database.unwrap_or_default(), number, age, pid })
    }

    /// What has become of transactions.
    pub fn transaction_stats(&self) -> TransactionStats {
        let (s, locks) = (&self.0.shared.stats, &self.0.shared.locks);
        TransactionStats {
            statement_restarts: s.restarts.load(Ordering::Relaxed),
            lock_waits: s.lock_waits.load(Ordering::Relaxed),
            lock_timeouts: locks.timeouts(),
            deadlocks: locks.deadlocks(),
            requests_sent_to_branches: s.sent_to_branches.load(Ordering::Relaxed),
            row_versions_kept: locks.versions_kept() as u64,
        }
    }
}
