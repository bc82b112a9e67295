//! How a cancel reaches the statement that it targets.

use crate::state::waiting::Waiting;
use holdfast_store::sqlite::InterruptHandle;
use holdfast_types::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// What a cancel may interrupt. Entered by transaction id while a statement runs.
#[derive(Default)]
pub struct Interruption {
    /// The connection that runs the statement at this moment.
    running: Mutex<Option<Arc<InterruptHandle>>>,
    cancelled: AtomicBool,
    /// The statement waits for the writer.
    queued: Mutex<Weak<Waiting>>,
    waiting: Notify,
}

impl Interruption {
    /// Sets what a cancel interrupts from now on.
    pub fn interrupts(&self, handle: Option<Arc<InterruptHandle>>) {
        *self.running.lock() = handle;
    }

    /// Drops a cancel that arrived for an earlier statement.
    pub fn forget(&self) {
        self.cancelled.store(false, Ordering::Release);
    }

    /// From now on a cancel answers this request, unless the writer has taken it. Returns whether an earlier one has.
    pub fn waits(&self, request: &Arc<Waiting>) -> bool {
        *self.queued.lock() = Arc::downgrade(request);
        self.is_cancelled() && request.withdraw()
    }

    /// Returns whether the statement was answered because of it.
    pub fn interrupt(&self) -> bool {
        self.cancelled.store(true, Ordering::Release);
        if let Some(handle) = &*self.running.lock() {
            handle.interrupt();
        }
        self.waiting.notify_one();
        let queued = self.queued.lock().upgrade();
        queued.is_some_and(|request| request.withdraw())
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Completes when a cancel has arrived. A cancel for an earlier statement may have left a notification behind.
    pub async fn interrupted(&self) {
        while self.check().is_ok() {
            self.waiting.notified().await;
        }
    }

    pub fn check(&self) -> SqlResult<()> {
        if self.cancelled.load(Ordering::Acquire) { Err(cancelled()) } else { Ok(()) }
    }
}

pub fn cancelled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}
