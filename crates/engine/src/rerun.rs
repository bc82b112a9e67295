//! Requests that cannot run on MAIN as they are: those that met a branch's lock go on on a branch of their own, which
//! may wait (RULE 21); schema changes wait until no branch is at work.

use crate::batch::BatchDone;
use crate::branch::{Interruption, Presence};
use crate::database::Inner;
use crate::locks::{Grant, LockMode};
use crate::main_thread::{Message, Request};
use crate::write_txn::{WriteOptions, WriteTxn, database_lock};
use holdfast_types::{SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// VACUUM waits so long for open transactions.
const ALONE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs a request as a transaction on a branch, its answer as if MAIN had run it.
pub fn on_a_branch(inner: &Arc<Inner>, request: Request) {
    inner.shared.stats.sent_to_branch();
    let inner = inner.clone();
    let tasks = inner.clone();
    tasks.shared.tasks.spawn(run(inner, request));
}

async fn run(inner: Arc<Inner>, request: Request) {
    let Request { id, mut batch, done, merge, .. } = request;
    batch.sink.reset();
    debug_assert!(merge.is_none(), "images do not run again");
    let options = WriteOptions { lock_timeout: batch.lock_timeout, session: batch.session, ..WriteOptions::default() };
    let mut sink = batch.sink;
    let mut txn = match WriteTxn::begin_as(inner, options, id).await {
        Ok(txn) => txn,
        Err(e) => return done(BatchDone::failed(sink, e, 0)),
    };
    let mut last = None;
    for (i, step) in batch.steps.into_iter().enumerate() {
        sink.keep();
        // An outer error means that the answer's place is lost as well: the client learns it from the dropped ticket.
        let Ok(ran) = txn.execute_as(i, step, sink).await else { return };
        sink = ran.sink;
        last = Some(ran.last_insert_rowid);
        if let Err(e) = ran.result {
            // What it saw is durable, so the error may be told.
            drop(txn);
            return done(BatchDone::failed(sink, e, i));
        }
    }
    let done = Box::new(move |mut result: BatchDone| {
        result.last_insert_rowid = last;
        done(result);
    });
    // As above: a database that is being closed drops the ticket.
    drop(txn.commit_with(sink, done));
}

/// Sends a request to MAIN as soon as it is the only writer.
pub fn send_when_alone(inner: &Arc<Inner>, mut request: Request) -> SqlResult<()> {
    let presence = Presence::new(inner, request.batch.session.clone(), None);
    let (id, mode) = (database_lock(inner), LockMode::Exclusive);
    if inner.shared.locks.try_lock(presence.owner(), id, mode) == Grant::Granted {
        request.presence = Some(presence);
        return inner.send(Message::Batch(request));
    }
    let (waiting, id) = (inner.clone(), request.id);
    let interruption = Arc::new(Interruption::default());
    inner.interruptions.lock().insert(id, interruption.clone());
    inner.shared.tasks.spawn(async move {
        let timeout = request.batch.lock_timeout;
        let waited = wait(&waiting, &presence, timeout, &interruption).await;
        waiting.interruptions.lock().remove(&id);
        match waited {
            Ok(()) => {
                request.presence = Some(presence);
                // A database that is being closed drops the ticket.
                drop(waiting.send(Message::Batch(request)));
            }
            Err(e) => {
                drop(presence);
                (request.done)(BatchDone::failed(request.batch.sink, e, 0));
            }
        }
    });
    Ok(())
}

/// Waits until the database is the owner's alone: as long as `timeout` says, 0 for ever, and nobody cancels.
async fn wait(inner: &Inner, presence: &Presence, timeout: Duration, interruption: &Interruption) -> SqlResult<()> {
    let waiting = inner.shared.locks.lock_or_wait(presence.owner(), database_lock(inner), LockMode::Exclusive)?;
    match waiting {
        Some(mut waiting) => waiting.granted(timeout, interruption).await,
        None => Ok(()),
    }
}

/// Blocks this thread until no branch is at work, and keeps it so while the result lives. Writers that come meanwhile
/// wait behind it, so it gives up after [`ALONE_WAIT_MAX`].
pub fn wait_until_alone(inner: &Inner, presence: Presence) -> SqlResult<Presence> {
    let never = Interruption::default();
    match inner.shared.tasks.block_on(wait(inner, &presence, ALONE_WAIT_MAX, &never)) {
        Err(e) if e.state() == SqlState::LOCK_NOT_AVAILABLE => Err(e
            .with_detail(format!("Transactions were still open after {} s.", ALONE_WAIT_MAX.as_secs()))
            .with_hint("End them (pg_locks shows whose they are) and run it again.")),
        waited => waited.map(|()| presence),
    }
}
