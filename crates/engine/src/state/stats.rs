//! Counters of an engine, for `holdfast_stat_*` and the lab.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub struct Stats {
    pub transactions: AtomicU64,
    pub batches: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_pages: AtomicU64,
    pub restarts: AtomicU64,
    pub lock_waits: AtomicU64,
    pub sent_to_branches: AtomicU64,
    pub governed_us: AtomicU64,
    pub side_copies: AtomicU64,
}

impl Stats {
    /// A batch with `answers` transactions was handed to the trail.
    pub fn batch(&self, answers: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.transactions.fetch_add(answers, Ordering::Relaxed);
    }

    /// A statement on a branch began again on a newer snapshot.
    pub fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// A statement waits for a lock.
    pub fn lock_wait(&self) {
        self.lock_waits.fetch_add(1, Ordering::Relaxed);
    }

    /// A request met a lock in the writer and runs again on a branch.
    pub fn sent_to_branch(&self) {
        self.sent_to_branches.fetch_add(1, Ordering::Relaxed);
    }

    /// The writer waited because the governor required it.
    pub fn governed(&self, delay: Duration) {
        self.governed_us.fetch_add(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// The writer has published a side copy.
    pub fn side_copy(&self) {
        self.side_copies.fetch_add(1, Ordering::Relaxed);
    }

    pub fn checkpoint(&self, pages: u64) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_pages.fetch_add(pages, Ordering::Relaxed);
    }
}
