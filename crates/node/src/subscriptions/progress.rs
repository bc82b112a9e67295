//! What a subscription's worker is doing, for the views: `pg_stat_subscription`, `pg_stat_subscription_stats`,
//! `holdfast_stat_sites`.

use crate::clock::now_us;
use parking_lot::Mutex;

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It has no connection: it begins, or waits before it tries again.
    #[default]
    Connecting,
    /// It copies the rows that a table has.
    Copying,
    /// It applies transactions as they arrive.
    Following,
    /// An error has stopped it.
    Failed,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Copying => "copying",
            Phase::Following => "following",
            Phase::Failed => "failed",
        }
    }
}

/// The figures of a worker since this server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub phase: Phase,
    /// The table that is being copied, by its OID.
    pub copying: Option<u32>,
    /// The end of what has arrived, and of what is applied; LSNs of the publisher.
    pub received: u64,
    pub applied: u64,
    /// When something arrived last, and when the last applied transaction was committed at the publisher.
    pub heard_us: i64,
    pub committed_us: i64,
    /// From the commit at the publisher to the one here, of the transaction applied last.
    pub lag_us: i64,
    pub transactions: u64,
    pub changes: u64,
    pub bytes: u64,
    pub rows_copied: u64,
    /// Updates and deletes of rows that are not here.
    pub rows_missing: u64,
    pub apply_errors: u64,
    pub copy_errors: u64,
    pub last_error: Option<String>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Figures>);

impl Progress {
    pub fn figures(&self) -> Figures {
        self.0.lock().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Figures)) {
        change(&mut self.0.lock());
    }

    /// It does something else now.
    pub fn enters(&self, phase: Phase) {
        self.change(|figures| figures.phase = phase);
    }

    /// A piece of the feed has arrived.
    pub fn heard(&self, bytes: usize) {
        self.change(|figures| {
            figures.heard_us = now_us();
            figures.bytes += bytes as u64;
        });
    }

    pub fn failed(&self, why: &str) {
        self.change(|figures| {
            match figures.phase {
                Phase::Copying => figures.copy_errors += 1,
                _ => figures.apply_errors += 1,
            }
            figures.phase = Phase::Failed;
            figures.copying = None;
            figures.last_error = Some(why.to_owned());
        });
    }
}
