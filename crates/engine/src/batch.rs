//! A one-message transaction on its way through MAIN, and the ticket for its result.

use crate::advisory::Session;
use crate::statement::Step;
use holdfast_types::{Level, Sink, SqlError, SqlResult};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Statements that take effect together or not at all.
pub struct Batch {
    pub steps: Vec<Step>,
    pub sink: Box<dyn Sink>,
    /// Longest wait for a lock that another transaction holds; 0 is for ever.
    pub lock_timeout: Duration,
    /// The client's session, which owns advisory locks.
    pub session: Option<Arc<Session>>,
    /// Others that were submitted before or after it may overtake it. A caller who waits for each answer before the next
    /// batch can allow that always: one that takes its time then does not stop the other writers.
    pub any_order: bool,
    /// What its answer waits for.
    pub level: Level,
}

impl Batch {
    /// One that waits as long as it takes, and whose answer asks nothing of standbys.
    pub fn new(steps: Vec<Step>, sink: Box<dyn Sink>) -> Batch {
        Batch { steps, sink, lock_timeout: Duration::ZERO, session: None, any_order: false, level: Level::Cold }
    }
}

/// The answer to a [`Batch`], handed over when it may be sent to the client: whatever it says, it depends on no
/// commit that could still be lost (guarantee 2).
pub struct BatchDone {
    pub sink: Box<dyn Sink>,
    pub result: SqlResult<()>,
    /// The statement that failed, from 0.
    pub failed_step: usize,
    /// Rowid of the last row inserted.
    pub last_insert_rowid: Option<i64>,
    /// Number of the boxcar it travelled in; a snapshot at or above it shows its changes.
    pub number: u64,
}

impl BatchDone {
    /// Nothing of it has happened.
    pub(crate) fn failed(sink: Box<dyn Sink>, error: SqlError, failed_step: usize) -> BatchDone {
        BatchDone { sink, result: Err(error), failed_step, last_insert_rowid: None, number: 0 }
    }
}

/// Called with the answer, on the thread that learned it: it should only pass it on.
pub type OnDone = Box<dyn FnOnce(BatchDone) + Send>;

/// A future for one answer.
pub struct Ticket(oneshot::Receiver<BatchDone>);

impl Ticket {
    pub(crate) fn new() -> (OnDone, Ticket) {
        let (tx, rx) = oneshot::channel();
        // A client that went away does not want its answer; the transaction stands all the same.
        (Box::new(move |done| drop(tx.send(done))), Ticket(rx))
    }

    /// Waits on a plain thread. `None` when the engine was closed first.
    pub fn wait(self) -> Option<BatchDone> {
        self.0.blocking_recv().ok()
    }
}

impl Future for Ticket {
    /// `None` when the engine was closed first.
    type Output = Option<BatchDone>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}
