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

/// Between two interrupts of the same work.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A session's handle for other threads.
#[derive(Default)]
pub struct Canceller {
    target: Mutex<Target>,
    /// Wakes [`Canceller::during`].
    asked: Notify,
}

impl Cancel for Canceller {
    fn cancel(&self) {
        self.interrupt();
        self.asked.notify_waiters();
    }
}

impl Canceller {
    fn interrupt(&self) {
        match &*self.target.lock() {
            Target::Nothing => {}
            Target::Reader(handle) => handle.interrupt(),
            Target::Main(db, id) => db.interrupt(*id),
            Target::Work(stop) => stop.store(true, Ordering::Relaxed),
            Target::Wait(notify) => notify.notify_one(),
        }
    }

    /// Runs `work` so that a cancel request reaches `target`; interrupts it itself after `timeout` (0: never).
    /// Returns whether it did.
    ///
    /// SQLite forgets an interrupt that comes before the statement has begun to run. So `work` is interrupted again until
    /// it ends.
    pub async fn during<T>(&self, target: Target, timeout: Duration, work: impl Future<Output = T>) -> (T, bool) {
        let mut asked = std::pin::pin!(self.asked.notified());
        asked.as_mut().enable();
        *self.target.lock() = target;
        let mut work = std::pin::pin!(work);
        let by_timeout = tokio::select! {
            biased;
            done = &mut work => {
                *self.target.lock() = Target::Nothing;
                return (done, false);
            }
            () = asked => false,
            () = after(timeout) => true,
        };
        let done = loop {
            self.interrupt();
            tokio::select! {
                biased;
                done = &mut work => break done,
                () = tokio::time::sleep(AGAIN_AFTER) => {}
            }
        };
        *self.target.lock() = Target::Nothing;
        (done, by_timeout)
    }

    /// Waits for `work`, giving up on a cancel request or after `timeout`.
    pub async fn wait<T>(&self, timeout: Duration, work: impl Future<Output = T>) -> Result<T, SqlError> {
        let notify = Arc::new(Notify::new());
        *self.target.lock() = Target::Wait(notify.clone());
        let outcome = tokio::select! {
            biased;
            done = work => Ok(done),
            () = notify.notified() => Err(canceled(false)),
            () = after(timeout) => Err(canceled(true)),
        };
        *self.target.lock() = Target::Nothing;
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
