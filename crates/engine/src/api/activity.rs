//! What the engine's transactions do at this moment, as views show it: which transaction waits for which, and which holds a snapshot.

use crate::api::engine::Engine;
use crate::state::locks::{Blocked, LockInfo, WaitInfo};
use std::sync::atomic::Ordering;
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
    /// One-message transactions that met a lock and ran again on a branch.
    pub requests_sent_to_branches: u64,
    pub row_versions_kept: u64,
}

impl Engine {
    /// Every lock that is held or waited for.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.0.engine.locks.list()
    }

    /// Every transaction that waits for a lock.
    pub fn blocked(&self) -> Vec<Blocked> {
        self.0.engine.locks.blocked()
    }

    /// The lock that the client with this process number waits for.
    pub fn lock_wait_of(&self, pid: i32) -> Option<WaitInfo> {
        self.0.engine.locks.wait_of(pid)
    }

    /// The snapshot that has been held the longest.
    pub fn oldest_snapshot(&self) -> Option<SnapshotHeld> {
        let holder = self.0.engine.locks.oldest_holder()?;
        let database = self.0.registry.get(holder.volume).map(|database| database.name.clone());
        let (number, age, pid) = (holder.number, holder.since.elapsed(), holder.pid);
        Some(SnapshotHeld { database: database.unwrap_or_default(), number, age, pid })
    }

    /// What has become of transactions.
    pub fn transaction_stats(&self) -> TransactionStats {
        let (s, locks) = (&self.0.engine.stats, &self.0.engine.locks);
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
