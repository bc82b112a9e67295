//! A request that waits in the writer's queue, until the writer takes it or a cancel does.
//!
//! | who comes first | what becomes of the request |
//! |---|---|
//! | the writer | it runs; a cancel finds it gone and interrupts what runs, where that may be interrupted |
//! | a cancel | it is answered with 57014, although the writer may be busy with another for long; the writer finds it gone |
//!
//! The changes of a branch are never withdrawn: they are the commit of a transaction.

use crate::state::interruption::cancelled;
use crate::state::queue::Request;
use crate::state::submission::Completion;
use parking_lot::Mutex;
use std::sync::Arc;

/// See the module.
pub struct Waiting {
    /// The request is to be a batch of its own.
    pub sole: bool,
    /// It can wait on a branch instead: it has done nothing yet, and others may overtake it.
    pub may_wait_elsewhere: bool,
    request: Mutex<Option<Request>>,
}

impl Waiting {
    pub fn new(request: Request) -> Arc<Waiting> {
        let may_wait_elsewhere = request.merge.is_none() && request.submission.any_order;
        Arc::new(Waiting { sole: request.sole, may_wait_elsewhere, request: Mutex::new(Some(request)) })
    }

    /// `None`: it was withdrawn.
    pub fn take(&self) -> Option<Request> {
        self.request.lock().take()
    }

    /// Answers the request in place of the writer, unless the writer has taken it. Returns whether it did.
    pub fn withdraw(&self) -> bool {
        let taken = {
            let mut request = self.request.lock();
            if request.as_ref().is_some_and(|request| request.merge.is_some()) { None } else { request.take() }
        };
        let Some(Request { submission, done, .. }) = taken else { return false };
        done(Completion::failed(submission.sink, cancelled(), 0));
        true
    }
}

/// A request that was handed over, by which a cancel finds it.
pub struct Submitted {
    pub id: u64,
    /// It waits for the writer; `None`: it runs on a branch.
    pub waiting: Option<Arc<Waiting>>,
}
