//! The order to end a session, from another thread: what `pg_terminate_backend` gives.
//!
//! It stays: once given, the session ends as soon as what it runs can be given up. The order does not interrupt anything
//! by itself; who gives it also cancels what the session runs.

use holdfast_types::{SqlError, SqlState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Whether a session has been ordered to end.
#[derive(Debug, Default)]
pub struct Termination {
    ordered: AtomicBool,
    wake: Notify,
}

impl Termination {
    /// Orders the session to end.
    pub fn order(&self) {
        self.ordered.store(true, Ordering::Release);
        self.wake.notify_waiters();
    }

    pub fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Acquire)
    }

    /// Ends when the session has been ordered to end.
    pub async fn ordered(&self) {
        let mut woken = std::pin::pin!(self.wake.notified());
        // Before the look, so that an order between the two is not missed.
        woken.as_mut().enable();
        if !self.is_ordered() {
            woken.await;
        }
    }

    /// Ends when the session was ordered to end this long ago, or longer.
    pub async fn ordered_for(&self, grace: Duration) {
        self.ordered().await;
        tokio::time::sleep(grace).await;
    }

    /// 57P01, worded as in PostgreSQL.
    pub fn error() -> SqlError {
        SqlError::new(SqlState::ADMIN_SHUTDOWN, "terminating connection due to administrator command")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_order_stays() {
        let termination = Termination::default();
        {
            let mut waits = std::pin::pin!(termination.ordered());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(waits.as_mut().poll(&mut context).is_pending());
            termination.order();
            assert!(waits.as_mut().poll(&mut context).is_ready());
        }
        termination.ordered().await;
        assert!(termination.is_ordered());
    }
}
