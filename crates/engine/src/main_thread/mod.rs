//! MAIN: the one connection, on its own thread, that changes a volume.
//!
//! It takes messages from one queue, first in first out:
//!
//! | message | MAIN |
//! |---|---|
//! | bounded batch | runs it, and whatever bounded batches are queued behind it, as one boxcar ([`boxcar`]) |
//! | batch to run alone | runs it as a transaction of its own ([`alone`]) |
//! | interactive transaction | serves that one until it ends ([`interactive`]) |
//! | task | runs a closure between boxcars (VACUUM, closing) |
//!
//! A boxcar is published by COMMIT, then handed to the trail; MAIN goes on at once. The answers leave when the trail
//! says that the boxcar is durable.
//!
//! Failure: an error of one request undoes that request. An error that took the whole boxcar with it (SQLite rolls back
//! on its own when memory or disk fail, RULE 10) is answered by running all the others again.

mod alone;
mod boxcar;
mod exec;
mod interactive;
mod large;
mod merge;
mod part;
mod throttle;

pub use exec::{Main, next_txn};
pub use interactive::{RowsRan, TxnEvent, TxnRan, TxnRequest};
pub use large::{drop_fragments, pieces};
pub use part::{Order, Part, Published, Report};
pub use throttle::governed;

use crate::batch::{Batch, OnDone};
use crate::branch::Presence;
use crate::database::Inner;
use crate::sent_ahead::SentAhead;
use crossbeam_channel::Receiver;
use holdfast_types::SqlResult;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A one-message transaction, or the end of one that ran on a branch.
pub struct Request {
    pub id: u64,
    pub batch: Batch,
    /// Images of a branch; the batch has no steps then.
    pub merge: Option<Merge>,
    pub done: OnDone,
    /// Not all its statements are bounded.
    pub alone: bool,
    /// Its locks, which go when it is published or undone.
    pub presence: Option<Presence>,
}

/// What a branch has done.
pub struct Merge {
    pub images: Vec<u8>,
    /// The same as fragments in the trail, where there are so many that this was worth it.
    pub sent: Option<SentAhead>,
}

/// What the queue carries.
pub enum Message {
    Batch(Request),
    Begin(Begin),
    /// Runs between boxcars, with MAIN to itself.
    Task(Box<dyn FnOnce(&mut Main) + Send>),
    /// Ends the thread.
    Stop,
}

/// The beginning of an interactive transaction.
pub struct Begin {
    pub id: u64,
    /// Longest pause between two of its statements.
    pub idle_timeout: Duration,
    pub requests: Receiver<TxnRequest>,
    /// What it has done on a branch already.
    pub images: Images,
    /// Its locks, which go when it ends.
    pub presence: Presence,
    /// Answered when it is this transaction's turn.
    pub granted: oneshot::Sender<SqlResult<TxnEvent>>,
}

/// Images of a transaction, cut where savepoints were set: the part before the first, then each with its name.
#[derive(Default)]
pub struct Images {
    pub first: Vec<u8>,
    pub after: Vec<(String, Vec<u8>)>,
}

impl Images {
    /// All of them, without the cuts.
    pub fn whole(self) -> Vec<u8> {
        let mut ops = self.first;
        self.after.into_iter().for_each(|(_, part)| ops.extend_from_slice(&part));
        ops
    }
}

/// Ends the process when MAIN panics: what it had published but not handed to the trail must never be read.
struct EndsWithMain;

impl Drop for EndsWithMain {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("MAIN panicked: the process ends; the next start recovers everything acknowledged");
            std::process::abort();
        }
    }
}

/// Serves the queue until told to stop.
pub fn serve(mut main: Main, queue: &Receiver<Message>) {
    let _guard = EndsWithMain;
    let mut next = None;
    loop {
        let message = match next.take() {
            Some(message) => message,
            None => match queue.recv() {
                Ok(message) => message,
                Err(_) => break,
            },
        };
        match message {
            Message::Batch(request) if request.alone => main.run_alone(request),
            Message::Batch(request) => next = main.run_boxcar(request, queue),
            Message::Begin(begin) => main.run_interactive(begin),
            Message::Task(task) => task(&mut main),
            Message::Stop => break,
        }
    }
}

/// The next message if one is queued.
fn queued(queue: &Receiver<Message>) -> Option<Message> {
    queue.try_recv().ok()
}

/// Starts MAIN's thread for a database.
pub fn start(inner: &Arc<Inner>, main: Main) -> std::io::Result<std::thread::JoinHandle<()>> {
    let (sender, queue) = crossbeam_channel::unbounded();
    let thread = std::thread::Builder::new().name(format!("main-{}", inner.id)).spawn(move || serve(main, &queue))?;
    *inner.main.write() = Some(sender);
    Ok(thread)
}
