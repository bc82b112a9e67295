//! What all sessions have done since the server started, as plain counters: the one place that views, metrics and the
//! console read.

use holdfast_types::SqlState;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of the whole server. Counting one is a relaxed addition, except for errors, which take a short lock.
#[derive(Debug, Default)]
pub struct Totals {
    /// Statements and commits that ended with 40001.
    serialization_conflicts: AtomicU64,
    /// Statements that took at least `log_min_duration_statement`.
    slow_statements: AtomicU64,
    /// Errors sent to clients, by the first two characters of the SQLSTATE.
    errors: Mutex<BTreeMap<String, u64>>,
}

impl Totals {
    /// A message ended with this error.
    pub fn error(&self, state: SqlState) {
        if state == SqlState::SERIALIZATION_FAILURE {
            self.serialization_conflicts.fetch_add(1, Ordering::Relaxed);
        }
        let class = state.0.get(..2).unwrap_or(state.0);
        let mut errors = self.errors.lock();
        match errors.get_mut(class) {
            Some(count) => *count += 1,
            None => _ = errors.insert(class.to_owned(), 1),
        }
    }

    /// A statement took long enough to be logged.
    pub fn slow_statement(&self) {
        self.slow_statements.fetch_add(1, Ordering::Relaxed);
    }

    pub fn serialization_conflicts(&self) -> u64 {
        self.serialization_conflicts.load(Ordering::Relaxed)
    }

    pub fn slow_statements(&self) -> u64 {
        self.slow_statements.load(Ordering::Relaxed)
    }

    /// Errors sent to clients by class of the SQLSTATE, such as `42`.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }
}
