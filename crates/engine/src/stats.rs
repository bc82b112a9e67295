//! Counters of an engine, for `holdfast_stat_*` and the lab.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Stats {
    pub transactions: AtomicU64,
    pub boxcars: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_pages: AtomicU64,
}

impl Stats {
    /// A boxcar with `answers` transactions was handed to the trail.
    pub fn boxcar(&self, answers: u64) {
        self.boxcars.fetch_add(1, Ordering::Relaxed);
        self.transactions.fetch_add(answers, Ordering::Relaxed);
    }

    pub fn checkpoint(&self, pages: u64) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_pages.fetch_add(pages, Ordering::Relaxed);
    }
}
