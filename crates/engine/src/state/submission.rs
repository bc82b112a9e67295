//! A one-message transaction on its way through the writer, and the ticket for its result.

use crate::state::advisory::AdvisoryOwner;
use crate::statement::model::Step;
use holdfast_types::record::Author;
use holdfast_types::{Level, SessionContext, Sink, SqlError, SqlResult};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

/// Statements that take effect together or not at all.
pub struct Submission {
    pub steps: Vec<Step>,
    pub sink: Box<dyn Sink>,
    /// What its statements know of the session that sends them.
    pub context: SessionContext,
    /// Longest wait for a lock that another transaction holds; 0 is indefinitely.
    pub lock_timeout: Duration,
    /// The client's session, which owns advisory locks.
    pub advisory_owner: Option<Arc<AdvisoryOwner>>,
    /// Others that were submitted before or after it may overtake it. A caller that waits for each answer before the next
    /// batch can allow that always: one that takes its time then does not stop the other writers.
    pub any_order: bool,
    /// The level that its answer waits for.
    pub level: Level,
    /// The roles that the trail names for it.
    pub author: Option<Arc<Author>>,
}

impl Submission {
    /// A submission that no session sends, and that waits for locks indefinitely and for no standby.
    pub fn new(steps: Vec<Step>, sink: Box<dyn Sink>) -> Submission {
        let (lock_timeout, level) = (Duration::ZERO, Level::Local);
        let context = SessionContext::NONE;
        Submission { steps, sink, context, lock_timeout, advisory_owner: None, any_order: false, level, author: None }
    }
}

/// The answer to a [`Submission`], delivered when it may be sent to the client: it depends on no commit that could
/// still be lost (guarantee 2).
pub struct Completion {
    pub sink: Box<dyn Sink>,
    pub result: SqlResult<()>,
    /// The statement that failed, from 0.
    pub failed_step: usize,
    /// Rowid of the last inserted row.
    pub last_insert_rowid: Option<i64>,
    /// Number of its batch; a snapshot at or above it shows its changes.
    pub number: u64,
}

impl Completion {
    /// The completion of a submission that changed nothing.
    pub(crate) fn failed(sink: Box<dyn Sink>, error: SqlError, failed_step: usize) -> Completion {
        Completion { sink, result: Err(error), failed_step, last_insert_rowid: None, number: 0 }
    }
}

/// Called with the answer, on the thread that received it: it should only pass it on.
pub type OnCompletion = Box<dyn FnOnce(Completion) + Send>;

/// A future for one answer.
pub struct Ticket(oneshot::Receiver<Completion>);

impl Ticket {
    pub(crate) fn new() -> (OnCompletion, Ticket) {
        let (tx, rx) = oneshot::channel();
        // A client that went away does not want its answer; the transaction is committed all the same.
        (Box::new(move |done| drop(tx.send(done))), Ticket(rx))
    }

    /// Waits on a plain thread. `None` when the engine was closed first.
    pub fn wait(self) -> Option<Completion> {
        self.0.blocking_recv().ok()
    }
}

impl Future for Ticket {
    /// `None` when the engine was closed first.
    type Output = Option<Completion>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}
