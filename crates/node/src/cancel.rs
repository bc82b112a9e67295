//! Cancel requests and statement_timeout: what a session runs or waits for, and how that is interrupted.

use holdfast_engine::{Database, Submitted};
use holdfast_store::sqlite::InterruptHandle;
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::{Cancel, Termination};
use parking_lot::Mutex;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What an interrupt has to reach.
#[derive(Default)]
pub enum Target {
    #[default]
    Nothing,
    /// A statement on a reading connection.
    Reader(InterruptHandle),
    /// A one-message transaction.
    Submitted(Database, Submitted),
    /// A transaction of this id, whose statement runs.
    Writer(Database, u64),
    /// The session's own work, which checks this flag.
    Work(Arc<AtomicBool>),
    /// A wait that ends when notified.
    Wait(Arc<Notify>),
}

/// Pause between two interrupts of the same work.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The handle by which other threads interrupt a session.
#[derive(Default)]
pub struct Canceller {
    target: Mutex<Target>,
    /// Wakes [`Canceller::during`].
    asked: Notify,
    /// The session runs a message.
    is_active: AtomicBool,
    /// A cancel has arrived while it runs this message: it ends the next wait or scan, if it came between two.
    is_pending: AtomicBool,
    termination: Arc<Termination>,
}

impl Cancel for Canceller {
    fn cancel(&self) {
        if self.is_active.load(Ordering::Acquire) {
            self.is_pending.store(true, Ordering::Release);
        }
        self.interrupt();
        self.asked.notify_waiters();
    }
}

/// How long a session that was ordered to end still waits for a commit that cannot be interrupted.
const COMMIT_GRACE: Duration = Duration::from_secs(1);

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.termination.fmt(f)
    }
}

impl Canceller {
    /// A message begins: cancels count from here on.
    pub fn begin(&self) {
        self.is_pending.store(false, Ordering::Relaxed);
        self.is_active.store(true, Ordering::Release);
    }

    /// The message has been answered: a cancel that comes later has nothing to end.
    pub fn end(&self) {
        self.is_active.store(false, Ordering::Release);
        self.is_pending.store(false, Ordering::Relaxed);
    }

    /// A cancel has arrived while the session runs this message.
    pub fn is_asked(&self) -> bool {
        self.is_pending.load(Ordering::Acquire)
    }

    /// Cancels what the session runs and orders it to end.
    pub fn terminate(&self) {
        self.termination.order();
        self.cancel();
    }

    pub fn termination(&self) -> &Arc<Termination> {
        &self.termination
    }

    /// Waits for a commit, which is never interrupted; `None` when the session is to end and the commit still waits, for a
    /// standby or in the writer: whether it takes effect is not known then.
    pub async fn until_committed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.termination.ordered_for(COMMIT_GRACE) => None,
        }
    }

    fn interrupt(&self) {
        match &*self.target.lock() {
            Target::Nothing => {}
            Target::Reader(handle) => handle.interrupt(),
            Target::Submitted(db, submitted) => db.interrupt_submitted(submitted),
            Target::Writer(db, id) => db.interrupt(*id),
            Target::Work(stop) => stop.store(true, Ordering::Relaxed),
            Target::Wait(notify) => notify.notify_one(),
        }
    }

    /// Runs `work`, which a cancel request interrupts through `target`; a `timeout` other than 0 does so, too. Also returns
    /// whether it was the timeout.
    ///
    /// SQLite forgets an interrupt that arrives before the statement has begun to run: so the interrupt is repeated until
    /// `work` ends.
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
            () = self.asked_before(asked) => false,
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

    /// Ends when a cancel arrives, or has arrived in this message.
    async fn asked_before(&self, asked: impl Future<Output = ()>) {
        if !self.is_asked() {
            asked.await;
        }
    }

    /// Waits for `work`, giving up on a cancel request or after `timeout`.
    pub async fn wait<T>(&self, timeout: Duration, work: impl Future<Output = T>) -> Result<T, SqlError> {
        let notify = Arc::new(Notify::new());
        *self.target.lock() = Target::Wait(notify.clone());
        // After the target is set: a cancel comes before this look, or finds the target.
        if self.is_asked() {
            *self.target.lock() = Target::Nothing;
            return Err(canceled(false));
        }
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

/// SQLSTATE 57014, worded as in PostgreSQL.
pub fn canceled(by_timeout: bool) -> SqlError {
    let why = if by_timeout { "statement timeout" } else { "user request" };
    SqlError::new(SqlState::QUERY_CANCELED, format!("canceling statement due to {why}"))
}

/// 57P01 of a session that ended while a commit of its waited.
pub fn terminated_in_commit() -> SqlError {
    Termination::error().with_detail("What this request has committed may have taken effect.")
}

/// Gives the error of an interrupted statement its true reason.
pub fn with_reason(error: SqlError, by_timeout: bool) -> SqlError {
    if error.state() == SqlState::QUERY_CANCELED { canceled(by_timeout) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far more than any of it takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_cancel_ends_what_its_message_waits_for_and_nothing_of_the_next() {
        let canceller = Canceller::default();
        canceller.cancel();
        canceller.begin();
        assert_eq!(canceller.wait(PATIENCE, async { 1 }).await.unwrap(), 1, "it came before the message");
        canceller.cancel();
        assert!(canceller.is_asked());
        let error = canceller.wait(PATIENCE, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(error.to_string(), canceled(false).to_string(), "it came between two waits of the message");
        canceller.end();
        canceller.cancel();
        canceller.begin();
        assert!(!canceller.is_asked());
        let waits = canceller.wait(PATIENCE, std::future::pending::<()>());
        let (waited, ()) = tokio::join!(waits, async { canceller.cancel() });
        assert_eq!(waited.unwrap_err().to_string(), canceled(false).to_string());
        canceller.end();
        canceller.begin();
        let timed_out = canceller.wait(Duration::from_millis(1), std::future::pending::<()>()).await;
        assert_eq!(timed_out.unwrap_err().to_string(), canceled(true).to_string());
    }

    /// Ends with a failed test instead of waiting indefinitely.
    async fn soon<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, work).await.expect("it ends")
    }

    /// Work that forgets the first interrupts, as SQLite does before a statement runs.
    async fn forgets(stop: Arc<AtomicBool>, times: u32) {
        for _ in 0..times {
            while !stop.swap(false, Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test]
    async fn an_interrupt_is_repeated_until_the_work_ends() {
        let canceller = Canceller::default();
        canceller.begin();
        let stop = Arc::new(AtomicBool::new(false));
        let target = || Target::Work(stop.clone());
        let work = canceller.during(target(), PATIENCE, forgets(stop.clone(), 3));
        let (((), by_timeout), ()) = tokio::join!(soon(work), async { canceller.cancel() });
        assert!(!by_timeout);
        assert!(matches!(*canceller.target.lock(), Target::Nothing), "the next cancel must not reach what has ended");
        canceller.end();
        canceller.begin();
        let work = canceller.during(target(), Duration::from_millis(1), forgets(stop.clone(), 2));
        let ((), by_timeout) = soon(work).await;
        assert!(by_timeout);
    }

    #[tokio::test]
    async fn a_commit_is_given_up_only_where_the_session_has_to_end() {
        let canceller = Canceller::default();
        canceller.begin();
        canceller.cancel();
        assert_eq!(canceller.until_committed(async { 7 }).await, Some(7));
        canceller.terminate();
        let committed = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            7
        };
        assert_eq!(canceller.until_committed(committed).await, Some(7), "one that is done soon is waited for");
        assert_eq!(soon(canceller.until_committed(std::future::pending::<()>())).await, None);
    }
}
