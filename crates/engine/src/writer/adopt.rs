//! A large transaction whose images were applied to a side copy ([`crate::state::side_copy`]): the writer publishes the copy's pages
//! as its next batch, instead of applying the images itself.
//!
//! | step | if it fails |
//! |---|---|
//! | the copy repeats the last batches and is closed | the images are merged in the usual way |
//! | the record: it refers to the prewritten fragments, or contains the images | everything is undone, and the client gets the error |
//! | the writer lets go of the volume and of all pages that it has written | likewise: it would publish older ones over the copy's |
//! | the pages are published | likewise: nothing was published |
//! | the writer reads the volume again | the writer refuses all further work; the batch is complete, and is written to the trail |
//! | versions, the trail | as for every batch ([`super::publish`]) |
//! | its locks are released on another thread; then the answer may leave | |

use super::connection::{SentFragments, Writer};
use super::publish::Answer;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::{Merge, Request};
use crate::state::side_copy::{Finished, SideCopy};
use crate::state::submission::{Completion, OnCompletion};
use holdfast_store::sqlite::SqliteError;
use holdfast_types::record::Author;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// The writer's connection keeps its lock and its cache as long as it is exclusive.
const LET_GO: &str = "pragma locking_mode=normal; select number from main.holdfast_meta";
const TAKE_AGAIN: &str = "pragma locking_mode=exclusive";
const NUMBER: &str = "select number from main.holdfast_meta";

/// An answer that leaves when the locks are released as well: the client's next statement must not meet them.
#[derive(Default)]
struct AfterRelease {
    released: bool,
    answer: Option<Box<dyn FnOnce() + Send>>,
}

/// Dropping it releases a million locks, which takes half a second, and then lets the answer leave.
struct Releasing {
    lock_owner: Option<LockOwner>,
    then: Arc<Mutex<AfterRelease>>,
}

impl Drop for Releasing {
    fn drop(&mut self) {
        drop(self.lock_owner.take());
        let answer = {
            let mut then = self.then.lock();
            then.released = true;
            then.answer.take()
        };
        if let Some(answer) = answer {
            answer();
        }
    }
}

fn after_release(done: OnCompletion, lock_owner: Option<LockOwner>) -> (OnCompletion, Releasing) {
    let then = Arc::new(Mutex::new(AfterRelease::default()));
    let releasing = Releasing { lock_owner, then: then.clone() };
    let done: OnCompletion = Box::new(move |result| {
        let mut then = then.lock();
        if then.released {
            drop(then);
            return done(result);
        }
        then.answer = Some(Box::new(move || done(result)));
    });
    (done, releasing)
}

impl Writer {
    /// Publishes a request's side copy. Returns the request if its images have to be merged in the usual way.
    pub(super) fn adopt(&mut self, mut request: Request) -> Option<Request> {
        let started = Instant::now();
        let Some(copy) = request.merge.as_mut().and_then(|merge| merge.copy.take()) else { return Some(request) };
        // Its errors are those of the usual way, which begins as well.
        if !copy.is_of(&self.volume) || self.begin().is_err() {
            return Some(request);
        }
        self.changes_are_of(request.lock_owner.as_ref().map(|owner| owner.id()));
        let number = self.number();
        let finished = match self.finish_copy(copy) {
            Ok(finished) => finished,
            Err(why) => {
                tracing::info!(database = self.database.name, "a large transaction is merged by the writer: {why}");
                self.rollback();
                return Some(request);
            }
        };
        let Request { submission, merge, done, lock_owner, .. } = request;
        let adopted = self.publish_copy(finished, merge, submission.author.as_deref());
        let (result, number) = match &adopted {
            Ok(_) => (Ok(()), number),
            Err(e) => (Err(e.clone()), number - 1),
        };
        let (done, releasing) = after_release(done, lock_owner);
        drop(self.database.engine.tasks.spawn_blocking(move || drop(releasing)));
        let result = Completion { sink: submission.sink, result, failed_step: 0, last_insert_rowid: None, number };
        let answer = Answer { done, result, lock_owner: None, level: submission.level };
        match adopted {
            Ok(body) => self.hand_over(number, body, started, vec![answer]),
            Err(_) => {
                self.rollback();
                self.answer_without_batch(vec![answer]);
            }
        }
        None
    }

    fn finish_copy(&mut self, copy: Box<SideCopy>) -> Result<Finished, Box<dyn std::error::Error>> {
        // The transaction has changed nothing in the writer, which only reads from here on.
        self.conn.run(self.control.rollback)?;
        Ok(copy.finish(self.number(), self.database.engine.epoch)?)
    }

    /// Returns the record for the trail. On an error nothing is published.
    fn publish_copy(
        &mut self,
        mut finished: Finished,
        merge: Option<Merge>,
        author: Option<&Author>,
    ) -> SqlResult<Vec<u8>> {
        let Merge { images, sent, .. } = merge.unwrap_or_default();
        let content = if sent.is_some() { &[][..] } else { &images };
        self.ahead = sent.map(SentFragments::of);
        let record = self.records(content, author)?;
        self.check_size()?;
        self.conn.exec(LET_GO).map_err(|e| self.sql_error(&e))?;
        let adopted = match self.conn.staged_pages() {
            0 => self
                .volume
                .store()
                .adopt(finished.pages, &finished.watch)
                .map_err(|e| (SqlState::IO_ERROR, e.to_string())),
            // They would be published over the copy's by the next commit.
            staged => Err((SqlState::INTERNAL_ERROR, format!("the writer has {staged} pages that are not published"))),
        };
        let again = self.conn.exec(TAKE_AGAIN);
        let number = adopted.map_err(|(state, message)| SqlError::new(state, message))?;
        if self.on.lock().registering {
            self.database.engine.locks.adopt(self.database.id, std::mem::take(&mut finished.raised));
        }
        record.finish(self.conn.capture().buffer());
        let body = self.conn.capture().take();
        self.database.engine.stats.side_copy();
        self.last_batch_bytes += body.len() as u64;
        self.database.engine.locks.end_batch(self.database.id);
        self.database.side_log.published(number, &body);
        match again.and_then(|()| self.number_in_the_volume()) {
            Ok(found) if found == number => {}
            Ok(found) => self.break_off(format!("batch {number} was published, and the writer reads batch {found}")),
            Err(e) => self.break_off(format!("the writer cannot read batch {number}, which was published: {e}")),
        }
        Ok(body)
    }

    fn number_in_the_volume(&mut self) -> Result<u64, SqliteError> {
        match self.conn.query_value(NUMBER)? {
            Value::Int(number) => Ok(number as u64),
            _ => Ok(0),
        }
    }
}
