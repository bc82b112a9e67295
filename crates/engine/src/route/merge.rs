//! The commit of a branch: its images go to the writer, as one request among others, in a batch of their own, or after most of the
//! work was done in advance ([`InAdvance`]).
//!
//! Failure: the ticket's. A transaction without images has nothing to commit: its answer waits for what it saw.

use crate::branch::waits::Branch;
use crate::route::large::InAdvance;
use crate::state::database::DatabaseState;
use crate::state::queue::{Merge, Request, WriterCommand};
use crate::state::submission::{Completion, OnCompletion, Submission};
use crate::state::waiting::Waiting;
use holdfast_types::record::Author;
use holdfast_types::{Level, Sink, SqlResult};
use std::sync::Arc;

/// Images beyond this, or beyond an eighth of what the trail takes in one piece, are merged in a batch of their own.
const SHARED_BATCH_BYTES_MAX: usize = 1 << 20;

/// Hands a branch's images to the writer; its locks are released when they are published.
pub fn merge(
    database: &Arc<DatabaseState>,
    id: u64,
    branch: Branch,
    sink: Box<dyn Sink>,
    (level, author): (Level, Option<Arc<Author>>),
    done: OnCompletion,
) -> SqlResult<()> {
    let state = branch.into_state()?;
    let (seen, last, changes_schema) = (state.seen, Some(state.last_insert_rowid), state.changes_schema());
    let (images, lock_owner) = state.leave();
    let ops = images.whole();
    if ops.is_empty() {
        drop(lock_owner);
        let result = Completion { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: seen };
        database.when_visible(seen, Box::new(move || done(result)));
        return Ok(());
    }
    let done: OnCompletion = Box::new(move |mut result| {
        result.last_insert_rowid = last;
        done(result);
    });
    let in_advance = InAdvance::of(database, ops.len());
    let large = !changes_schema && in_advance.is_anything();
    let sole = large
        || changes_schema
        || ops.len() > SHARED_BATCH_BYTES_MAX.min(database.engine.trail.body_bytes_max() as usize / 8);
    let submission = Submission { level, author, ..Submission::new(Vec::new(), sink) };
    let request = move |images, sent, copy| {
        let merge = Some(Merge { images, sent, copy });
        WriterCommand::Run(Waiting::new(Request {
            id,
            submission,
            merge,
            done,
            sole,
            lock_owner: Some(lock_owner),
            ids: Arc::default(),
        }))
    };
    if !large {
        return database.send(request(ops, None, None));
    }
    let committing = database.clone();
    database.engine.tasks.spawn_blocking(move || {
        let (sent, copy) = in_advance.run(&committing, &ops);
        // An error means that the database is being closed: the answer is never sent, and its ticket reports that.
        committing.send(request(ops, sent, copy)).unwrap_or_default();
    });
    Ok(())
}
