//! Cancel requests and statement_timeout: what a session is waiting for, and how to interrupt that.

use holdfast_engine::Database;
use holdfast_store::sqlite::InterruptHandle;
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::Cancel;
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What runs at the moment.
#[derive(Default)]
pub enum Target {
    #[default]
    Nothing,
    /// A statement on a reading connection.
    Reader(InterruptHandle),
    /// A batch or transaction of this id on MAIN.
    Main(Database, u64),
    /// Work of the session's own that looks at this now and then.
    Work(Arc<AtomicBool>),
    /// A wait that ends when notified.
    Wait(Arc<Notify>),
}

/// A session's handle for other threads.
#[derive(Default)]
pub struct Canceller(Mutex<Target>);

impl Cancel for Canceller {
    fn cancel(&self) {
        match &*self.0.lock() {
            Target::Nothing => {}
            Target::Reader(handle) => handle.interrupt(),
            Target::Main(db, id) => db.interrupt(*id),
            Target::Work(stop) => stop.store(true, Ordering::Relaxed),
            Target::Wait(notify) => notify.notify_one(),
        }
    }
}

impl Canceller {
    /// Runs `work` so that a cancel request reaches `target`; interrupts it itself after `timeout` (0: never).
    /// Returns whether it did.
    pub async fn during<T>(&self, target: Target, timeout: Duration, work: impl Future<Output = T>) -> (T, bool) {
        *self.0.lock() = target;
        let mut work = std::pin::pin!(work);
        let outcome = tokio::select! {
            biased;
            done = &mut work => (done, false),
            () = after(timeout) => {
                self.cancel();
                (work.await, true)
            }
        };
        *self.0.lock() = Target::Nothing;
        outcome
    }

    /// Waits for `work`, giving up on a cancel request or after `timeout`.
    pub async fn wait<T>(&self, timeout: Duration, work: impl Future<Output = T>) -> Result<T, SqlError> {
        let notify = Arc::new(Notify::new());
        *self.0.lock() = Target::Wait(notify.clone());
        let outcome = tokio::select! {
            biased;
            done = work => Ok(done),
            () = notify.notified() => Err(canceled(false)),
            () = after(timeout) => Err(canceled(true)),
        };
        *self.0.lock() = Target::Nothing;
        outcome
    }
}

async fn after(timeout: Duration) {
    if timeout.is_zero() { std::future::pending().await } else { tokio::time::sleep(timeout).await }
}

/// SQLSTATE 57014 in PostgreSQL's words.
pub fn canceled(by_timeout: bool) -> SqlError {
    let why = if by_timeout { "statement timeout" } else { "user request" };
    SqlError::new(SqlState::QUERY_CANCELED, format!("canceling statement due to {why}"))
}

/// The error of an interrupted statement with its true reason.
pub fn with_reason(error: SqlError, by_timeout: bool) -> SqlError {
    if error.state() == SqlState::QUERY_CANCELED { canceled(by_timeout) } else { error }
}
