//! A semaphore that is only tried, never waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The semaphore: see the module.
#[derive(Clone, Default)]
pub struct Semaphore(Arc<AtomicUsize>);

/// One permit; returned when dropped.
pub struct Permit(Semaphore);

impl Semaphore {
    /// Takes a permit. `None` if all are taken.
    pub fn take(&self, max: usize) -> Option<Permit> {
        let more = |taken: usize| (taken < max).then_some(taken + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Permit(self.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
