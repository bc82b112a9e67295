//! Requests that cannot run on MAIN as they are: those that met a branch's lock go on on a branch of their own, which
//! may wait (RULE 21); those that take their time, and schema changes, run there from the start.

use crate::Database;
use crate::batch::{Batch, BatchDone, OnDone};
use crate::branch::{Interruption, Presence, wait_for};
use crate::database::Inner;
use crate::locks::LockMode;
use crate::main_thread::{Message, Request, TxnRan};
use crate::statement::Class;
use crate::write_txn::{Executed, WriteIsolation, WriteOptions, WriteTxn, database_lock};
use holdfast_types::{Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// A request that may take its time, and changes more than this, is run by MAIN: that stops the others for as long as it
/// takes, but to lock every row on a branch and to apply the images then takes several times as long, and the second
/// half of it stops them as well (300,000 rows changed: 0.3 s on MAIN; 2.4 s on a branch, 0.9 s of them on MAIN).
const BESIDE_BYTES_MAX: usize = 1 << 20;

/// VACUUM waits so long for open transactions.
const ALONE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs a request as a transaction on a branch, its answer as if MAIN had run it.
pub fn on_a_branch(inner: &Arc<Inner>, request: Request) {
    inner.shared.stats.sent_to_branch();
    let inner = inner.clone();
    let tasks = inner.clone();
    tasks.shared.tasks.spawn(run(inner, request));
}

/// Runs a request that takes its time on a branch first, so that others go on. One that turns out to change very much,
/// or what only MAIN may change, begins again on MAIN.
pub fn beside_others(inner: &Arc<Inner>, request: Request) {
    let inner = inner.clone();
    let tasks = inner.clone();
    tasks.shared.tasks.spawn(async move {
        if let Some(request) = try_beside_others(inner.clone(), request).await {
            // A database that is being closed drops the ticket.
            drop(inner.send(Message::Batch(request)));
        }
    });
}

/// Returns the request as it was when only MAIN can run it.
async fn try_beside_others(inner: Arc<Inner>, request: Request) -> Option<Request> {
    let Request { id, batch, done, .. } = request;
    let Batch { steps, sink, lock_timeout, session, any_order, level } = batch;
    let step = steps.first()?.clone();
    let options = WriteOptions { lock_timeout, session: session.clone(), level, ..WriteOptions::default() };
    let mut txn = match WriteTxn::begin_as(inner, options, id).await {
        Ok(txn) => txn,
        Err(e) => {
            done(BatchDone::failed(sink, e, 0));
            return None;
        }
    };
    txn.set_bytes_max(BESIDE_BYTES_MAX).ok()?;
    // An error here means that the answer's place is lost as well: the client learns it from the dropped ticket.
    match txn.execute_on_branch(0, step, sink).await.ok()? {
        Executed::Here(TxnRan { sink, result, last_insert_rowid, .. }) => {
            finish(txn, sink, result.map_err(|e| (0, e)), Some(last_insert_rowid), done);
            None
        }
        Executed::TooLarge(TxnRan { mut sink, .. }) | Executed::Alone(mut sink) => {
            // A cancel reaches it until MAIN takes it: this one listens on, under the request's number.
            let (interruption, inner) = (txn.interruption()?, txn.inner().clone());
            drop(txn);
            inner.interruptions.lock().insert(id, interruption);
            sink.reset();
            let batch = Batch { steps, sink, lock_timeout, session, any_order, level };
            Some(Request { id, batch, merge: None, done, alone: true, presence: None })
        }
    }
}

/// Commits what ran on a branch, or answers with what failed.
fn finish(txn: WriteTxn, sink: Box<dyn Sink>, ran: Result<(), (usize, SqlError)>, last: Option<i64>, done: OnDone) {
    if let Err((step, e)) = ran {
        // What it saw is durable, so the error may be told.
        drop(txn);
        return done(BatchDone::failed(sink, e, step));
    }
    let done = Box::new(move |mut result: BatchDone| {
        result.last_insert_rowid = last;
        done(result);
    });
    // As above: a database that is being closed drops the ticket.
    drop(txn.commit_with(sink, done));
}

async fn run(inner: Arc<Inner>, request: Request) {
    let Request { id, mut batch, done, merge, .. } = request;
    batch.sink.reset();
    debug_assert!(merge.is_none(), "images do not run again");
    // Two that asked for the schema first and then for everything would wait for each other.
    let database = Database(inner.clone());
    let alone = batch.steps.iter().any(|s| s.stmt.class == Class::Ddl && !database.runs_beside(&s.stmt.sql));
    let isolation = if alone { WriteIsolation::Alone } else { WriteIsolation::default() };
    let (lock_timeout, session, level) = (batch.lock_timeout, batch.session, batch.level);
    let options = WriteOptions { isolation, lock_timeout, session, level, ..WriteOptions::default() };
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
            return finish(txn, sink, Err((i, e)), last, done);
        }
    }
    finish(txn, sink, Ok(()), last, done);
}

/// Waits until the database is the owner's alone: as long as `timeout` says, 0 for ever, and nobody cancels.
async fn wait(inner: &Inner, presence: &Presence, timeout: Duration, interruption: &Interruption) -> SqlResult<()> {
    wait_for(inner, presence.owner(), database_lock(inner), LockMode::Exclusive, timeout, interruption).await
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
