//! Counters of automatic transactions, for `holdfast_stat_automatic`. Since the start of the server, of all databases.

use std::sync::atomic::{AtomicU64, Ordering};

/// What ended an automatic transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// `auto_transaction_rows_max`.
    Rows,
    /// `auto_transaction_time_max_ms`.
    Time,
    /// `auto_transaction_idle_ms`.
    Idle,
    /// COMMIT, BEGIN, the end of the session, or a statement that cannot be a part of it.
    Commit,
}

#[derive(Default)]
pub struct AutomaticStats {
    begun: AtomicU64,
    rows: AtomicU64,
    time: AtomicU64,
    idle: AtomicU64,
    commit: AtomicU64,
    failed: AtomicU64,
}

impl AutomaticStats {
    pub fn begun(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self, by: EndedBy) {
        let counter = match by {
            EndedBy::Rows => &self.rows,
            EndedBy::Time => &self.time,
            EndedBy::Idle => &self.idle,
            EndedBy::Commit => &self.commit,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A transaction could not be committed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Names and values.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let counters = [
            ("begun", &self.begun),
            ("ended_by_rows", &self.rows),
            ("ended_by_time", &self.time),
            ("ended_by_idle", &self.idle),
            ("ended_by_commit", &self.commit),
            ("not_committed", &self.failed),
        ];
        counters.into_iter().map(|(name, counter)| (name, counter.load(Ordering::Relaxed))).collect()
    }
}
