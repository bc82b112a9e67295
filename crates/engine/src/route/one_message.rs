//! One-message transactions that run on a branch: those that met a branch's lock in the writer, as a branch may wait
//! (RULE 21); those that take their time, and schema changes.

use crate::branch::schema_locks::runs_on_a_branch;
use crate::branch::waits::wait_for;
use crate::route::transaction::{Executed, WriteIsolation, WriteOptions, WriteTxn};
use crate::state::database::DatabaseState;
use crate::state::interruption::Interruption;
use crate::state::lock_owner::LockOwner;
use crate::state::locks::LockMode;
use crate::state::queue::{Request, TxnRan};
use crate::state::submission::{Completion, OnCompletion, Submission};
use crate::statement::model::Class;
use holdfast_types::{Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// VACUUM waits this long for open transactions.
const EXCLUSIVE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs a request as a transaction on a branch, and answers as if the writer had run it.
pub fn on_a_branch(database: &Arc<DatabaseState>, request: Request) {
    database.engine.stats.sent_to_branch();
    let database = database.clone();
    let tasks = database.clone();
    tasks.engine.tasks.spawn(run(database, request));
}

/// Runs a request that takes its time on a branch first, so that other writers continue. One that turns out to change very much,
/// or what only the writer may change, begins again in the writer.
pub fn beside_others(database: &Arc<DatabaseState>, request: Request) {
    let database = database.clone();
    let tasks = database.clone();
    tasks.engine.tasks.spawn(async move {
        if let Some((request, interruption)) = try_beside_others(database.clone(), request).await {
            database.queue_again(request, interruption);
        }
    });
}

/// Returns the request unchanged if only the writer can run it, with that by which a cancel has reached it so far.
async fn try_beside_others(database: Arc<DatabaseState>, request: Request) -> Option<(Request, Arc<Interruption>)> {
    let Request { id, submission, done, ids, .. } = request;
    let Submission { steps, sink, context, lock_timeout, advisory_owner, any_order, level, author } = submission;
    let step = steps.first()?.clone();
    let (its_owner, its_author) = (advisory_owner.clone(), author.clone());
    let options =
        WriteOptions { lock_timeout, advisory_owner: its_owner, level, author: its_author, ..WriteOptions::default() };
    let mut txn = match WriteTxn::begin_as(database, options, id).await {
        Ok(txn) => txn,
        Err(e) => {
            done(Completion::failed(sink, e, 0));
            return None;
        }
    };
    txn.ids = ids.clone();
    // An error here means that the reply sink is lost as well: the client learns it from the dropped ticket.
    match txn.execute_on_branch(0, step, context.clone(), sink).await.ok()? {
        Executed::Here(TxnRan { sink, result, last_insert_rowid, .. }) => {
            finish(txn, sink, result.map_err(|e| (0, e)), Some(last_insert_rowid), done);
            None
        }
        Executed::TooLarge(TxnRan { mut sink, .. }) | Executed::NeedsExclusive(mut sink) => {
            let interruption = txn.interruption()?;
            drop(txn);
            sink.reset();
            let submission =
                Submission { steps, sink, context, lock_timeout, advisory_owner, any_order, level, author };
            let request = Request { id, submission, merge: None, done, sole: true, lock_owner: None, ids };
            Some((request, interruption))
        }
    }
}

/// Commits what ran on a branch, or answers with the failure.
fn finish(
    txn: WriteTxn,
    sink: Box<dyn Sink>,
    ran: Result<(), (usize, SqlError)>,
    last: Option<i64>,
    done: OnCompletion,
) {
    if let Err((step, e)) = ran {
        // What it saw is durable, so the error may be shown.
        drop(txn);
        return done(Completion::failed(sink, e, step));
    }
    let done = Box::new(move |mut result: Completion| {
        result.last_insert_rowid = last;
        done(result);
    });
    // A database that is being closed drops the ticket.
    drop(txn.commit_with(sink, done));
}

async fn run(database: Arc<DatabaseState>, request: Request) {
    let Request { id, mut submission, done, merge, ids, .. } = request;
    submission.sink.reset();
    debug_assert!(merge.is_none(), "images do not run again");
    // Two transactions that locked the schema first and then everything would wait for each other.
    let exclusive = submission
        .steps
        .iter()
        .any(|s| s.stmt.class == Class::Ddl && !runs_on_a_branch(&database, &s.stmt.report.facts));
    let isolation = if exclusive { WriteIsolation::Exclusive } else { WriteIsolation::default() };
    let Submission { steps, mut sink, context, lock_timeout, advisory_owner, level, author, .. } = submission;
    let options = WriteOptions { isolation, lock_timeout, advisory_owner, level, author, ..WriteOptions::default() };
    let mut txn = match WriteTxn::begin_as(database, options, id).await {
        Ok(txn) => txn,
        Err(e) => return done(Completion::failed(sink, e, 0)),
    };
    txn.ids = ids.clone();
    let mut last = None;
    for (i, step) in steps.into_iter().enumerate() {
        sink.keep();
        // An outer error means that the reply sink is lost as well: the client learns it from the dropped ticket.
        let Ok(ran) = txn.execute_as(i, step, context.clone(), sink).await else { return };
        sink = ran.sink;
        last = Some(ran.last_insert_rowid);
        ids.stands();
        if let Err(e) = ran.result {
            return finish(txn, sink, Err((i, e)), last, done);
        }
    }
    finish(txn, sink, Ok(()), last, done);
}

/// Waits until the owner has the database exclusively, for at most `timeout` (0: indefinitely), or until it is cancelled.
async fn wait(
    database: &DatabaseState,
    lock_owner: &LockOwner,
    timeout: Duration,
    interruption: &Interruption,
) -> SqlResult<()> {
    wait_for(database, lock_owner.id(), database.database_lock(), LockMode::Exclusive, timeout, interruption).await
}

/// Blocks this thread until no branch is active, and keeps that state while the result lives. New writers wait behind
/// it, so it gives up after [`EXCLUSIVE_WAIT_MAX`].
pub fn wait_until_exclusive(database: &DatabaseState, lock_owner: LockOwner) -> SqlResult<LockOwner> {
    let never = Interruption::default();
    match database.engine.tasks.block_on(wait(database, &lock_owner, EXCLUSIVE_WAIT_MAX, &never)) {
        Err(e) if e.state() == SqlState::LOCK_NOT_AVAILABLE => Err(e
            .with_detail(format!("Transactions were still open after {} s.", EXCLUSIVE_WAIT_MAX.as_secs()))
            .with_hint("End them (pg_locks lists their sessions) and run the command again.")),
        waited => waited.map(|()| lock_owner),
    }
}
