//! Requests that cannot run on MAIN as they are: those that met a branch's lock go on on a branch of their own, which
//! may wait (RULE 21); schema changes wait until no branch is at work.

use crate::batch::BatchDone;
use crate::branch::Presence;
use crate::database::Inner;
use crate::locks::{Grant, LockMode};
use crate::main_thread::{Message, Request};
use crate::write_txn::{WriteOptions, WriteTxn, database_lock};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Runs a request as a transaction on a branch, its answer as if MAIN had run it.
pub fn on_a_branch(inner: &Arc<Inner>, request: Request) {
    inner.shared.stats.sent_to_branch();
    let inner = inner.clone();
    let tasks = inner.clone();
    tasks.shared.tasks.spawn(run(inner, request));
}

async fn run(inner: Arc<Inner>, request: Request) {
    let Request { id, mut batch, done, .. } = request;
    batch.sink.reset();
    let options = WriteOptions { lock_timeout: batch.lock_timeout, session: batch.session, ..WriteOptions::default() };
    let mut sink = batch.sink;
    let failed = |sink, error, failed_step| BatchDone {
        sink,
        result: Err(error),
        failed_step,
        last_insert_rowid: None,
        number: 0,
    };
    let mut txn = match WriteTxn::begin_as(inner, options, id).await {
        Ok(txn) => txn,
        Err(e) => return done(failed(sink, e, 0)),
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
            return done(failed(sink, e, i));
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
    let presence = Presence::new(inner, request.batch.session.clone());
    let (id, mode) = (database_lock(inner), LockMode::Exclusive);
    if inner.shared.locks.try_lock(presence.owner(), id, mode) == Grant::Granted {
        request.presence = Some(presence);
        return inner.send(Message::Batch(request));
    }
    let waiting = inner.clone();
    inner.shared.tasks.spawn(async move {
        let timeout = request.batch.lock_timeout;
        match wait(&waiting, &presence, timeout).await {
            Ok(()) => {
                request.presence = Some(presence);
                // A database that is being closed drops the ticket.
                drop(waiting.send(Message::Batch(request)));
            }
            Err(e) => (request.done)(BatchDone {
                sink: request.batch.sink,
                result: Err(e),
                failed_step: 0,
                last_insert_rowid: None,
                number: 0,
            }),
        }
    });
    Ok(())
}

async fn wait(inner: &Arc<Inner>, presence: &Presence, timeout: std::time::Duration) -> SqlResult<()> {
    let waiting = inner.shared.locks.lock_or_wait(presence.owner(), database_lock(inner), LockMode::Exclusive)?;
    let Some(mut waiting) = waiting else { return Ok(()) };
    let granted = &mut waiting.granted;
    let lost = || SqlError::internal("a lock's queue was lost");
    if timeout.is_zero() {
        return granted.await.map_err(|_| lost());
    }
    match tokio::time::timeout(timeout, granted).await {
        Ok(granted) => granted.map_err(|_| lost()),
        Err(_) => Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")),
    }
}

/// Blocks this thread until no branch is at work, and keeps it so while the result lives.
pub fn wait_until_alone(inner: &Arc<Inner>) -> SqlResult<Presence> {
    let presence = Presence::new(inner, None);
    let waiting = inner.shared.locks.lock_or_wait(presence.owner(), database_lock(inner), LockMode::Exclusive)?;
    if let Some(mut waiting) = waiting {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let watched = std::mem::replace(&mut waiting.granted, tokio::sync::oneshot::channel().1);
        inner.shared.tasks.spawn(async move { sender.send(watched.await.is_ok()).unwrap_or_default() });
        if receiver.recv() != Ok(true) {
            return Err(SqlError::internal("a lock's queue was lost"));
        }
    }
    Ok(presence)
}
