//! Which way a one-message transaction goes.
//!
//! | its statements | way |
//! |---|---|
//! | all bounded | to the writer, in a batch with others |
//! | any, while an exclusive transaction has the writer, if the client allows any order | a branch, where it waits for that one's lock |
//! | a schema change, advisory locks, row locks with NOWAIT, SKIP LOCKED or a limit | a branch |
//! | one whose expressions are not known to be cheap: functions, or long parameters of functions | a branch |
//! | one slow one, if the client allows any order | a branch first, the writer if it grows too large |
//! | several with a slow one, if the client allows any order | a branch |
//! | else | to the writer, in a batch of its own |
//! | any, on a standby | a branch, if it changes nothing |

use crate::route::one_message;
use crate::state::database::{DatabaseState, next_txn_id};
use crate::state::queue::{Request, WriterCommand};
use crate::state::submission::{OnCompletion, Submission};
use crate::state::waiting::{Submitted, Waiting};
use crate::statement::model::{Class, Report, Step};
use holdfast_types::{Cost, LockWait, RowLock, SqlResult};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Runs a one-message transaction. `done` is called when its answer may be sent.
pub fn submit(database: &Arc<DatabaseState>, submission: Submission, done: OnCompletion) -> SqlResult<Submitted> {
    let id = next_txn_id();
    if database.engine.follow.is_some() {
        return submit_on_standby(database, id, submission, done);
    }
    let sole = !submission.steps.iter().all(Step::is_bounded);
    let request = Request { id, submission, merge: None, done, sole, lock_owner: None, ids: Arc::default() };
    let waits = request.submission.any_order && database.only_writer.load(Ordering::Acquire);
    let waits_its_own_way = |l: &RowLock| l.wait != LockWait::Wait || l.limit.is_some();
    let on_a_branch = |r: &Report| r.advisory || r.row_locks.iter().any(waits_its_own_way);
    // Tables with triggers and virtual tables need the exclusive writer: a branch would find that out at the first row.
    let side_by_side = sole && request.submission.any_order && !database.map().has_exclusive;
    let computes = |s: &Step| s.stmt.cost == Cost::Unbounded || (s.stmt.class.is_bounded() && !s.is_bounded());
    let on_a_branch = |s: &Step| s.stmt.class == Class::Ddl || on_a_branch(&s.stmt.report) || computes(s);
    let several = request.submission.steps.len() > 1;
    if waits || request.submission.steps.iter().any(on_a_branch) || (side_by_side && several) {
        one_message::on_a_branch(database, request);
    } else if side_by_side {
        one_message::beside_others(database, request);
    } else {
        let waiting = Waiting::new(request);
        database.send(WriterCommand::Run(waiting.clone()))?;
        return Ok(Submitted { id, waiting: Some(waiting) });
    }
    Ok(Submitted { id, waiting: None })
}

/// On a standby, requests that change nothing but advisory locks run on a branch.
fn submit_on_standby(
    database: &Arc<DatabaseState>,
    id: u64,
    submission: Submission,
    done: OnCompletion,
) -> SqlResult<Submitted> {
    let changes = |s: &&Step| !s.stmt.class.is_read() || !s.stmt.report.row_locks.is_empty();
    if let Some(step) = submission.steps.iter().find(changes) {
        database.engine.refuse_on_standby(match step.stmt.report.facts.verb {
            "" => "a statement that writes",
            verb => verb,
        })?;
    }
    let request = Request { id, submission, merge: None, done, sole: true, lock_owner: None, ids: Arc::default() };
    one_message::on_a_branch(database, request);
    Ok(Submitted { id, waiting: None })
}
