//! Many bounded one-message transactions in one batch, each in its savepoint.
//!
//! | a request | its savepoint | its images | its answer |
//! |---|---|---|---|
//! | succeeds, changes something | released | become a transaction of the record | when the batch is durable |
//! | succeeds, changes nothing | released | none | when the batch is durable: it may have read what the batch wrote |
//! | fails | rolled back to | truncated | when the batch is durable |
//! | would leave a deferred foreign key violated | rolled back to (RULE 11) | truncated | 23503 |
//! | meets a lock that a branch holds | rolled back to | truncated | it runs again on a branch, which waits |
//! | reads values too large for the functions that it calls | rolled back to | truncated | it runs again on a branch |
//! | makes the record larger than can be reserved | rolled back to (RULE 7) | truncated | 53100 |
//! | rolls back the whole transaction (RULE 10) | gone | gone | error; all the others run again |

use super::commands::Commands;
use super::connection::Writer;
use super::merge;
use super::publish::{Answer, Failed};
use crate::state::interruption::Interruption;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::{Request, WriterCommand};
use crate::state::submission::Completion;
use crate::statement::run::ended_by_itself;
use holdfast_store::capture::flush_virtual_tables;
use holdfast_types::record::{Author, BatchBuilder};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch ends when it has run this long although more is queued: those already in it wait for its sync.
const BATCH_TIME_MAX: Duration = Duration::from_millis(10);

/// A batch of at most this many requests, with nothing queued behind it, is written to the trail by the writer itself: the way
/// through the trail's thread would cost a lone client two more wake-ups. With more clients it pays to run their next
/// requests during the sync. Where there are branches their next merge comes at any moment, so the writer stays free.
const WRITTEN_BY_WRITER_MAX: usize = 2;

/// The outcome of running one request.
enum Ran {
    /// It ended, well or not; the batch continues.
    Ended(SqlResult<()>, usize),
    /// It met a lock and left no trace; it runs again on a branch (RULE 21).
    MetALock,
    /// It changes more than one record may hold and left no trace; it runs again as a batch of its own, in fragments.
    Outgrown,
    /// SQLite rolled everything back.
    TookAll(SqlError, usize),
}

/// The requests of the current batch that have run.
#[derive(Default)]
struct Taken {
    /// In the batch, in order.
    finished: Vec<Finished>,
    /// Answered with an error; they left nothing in the batch.
    refused: Vec<Finished>,
}

/// A request that has run in the current batch.
struct Finished {
    request: Request,
    result: SqlResult<()>,
    failed_step: usize,
    last_insert_rowid: Option<i64>,
}

impl Writer {
    /// Runs `first` and the bounded requests behind it.
    pub(super) fn run_batch(&mut self, first: Request, commands: &mut Commands) {
        let started = Instant::now();
        if let Err(e) = self.begin() {
            let answer =
                answer(Finished { request: first, result: Err(e), failed_step: 0, last_insert_rowid: None }, 0);
            return self.answer_without_batch(vec![answer]);
        }
        let mut record = self.begin_record();
        let mut taken = Taken::default();
        let mut next = Some(first);
        let mut more = false;
        while let Some(request) = next.take() {
            record = self.take_in(request, record, &mut taken);
            let full = taken.finished.len() + taken.refused.len() >= self.database.engine.options.batch_requests_max
                || self.conn.capture().len() >= self.sizes.batch_bytes
                || started.elapsed() >= BATCH_TIME_MAX;
            if full || self.conn.autocommit() {
                more = true;
                break;
            }
            match commands.try_next() {
                Some(WriterCommand::Run(waiting)) if !waiting.sole => next = waiting.take(),
                Some(other) => {
                    commands.put_back(other);
                    more = true;
                    break;
                }
                None => {}
            }
        }
        let branches = self.on.lock().registering;
        self.nothing_else = !more && !branches && taken.finished.len() <= WRITTEN_BY_WRITER_MAX;
        let by_itself = self.nothing_else;
        self.close_batch(record, taken, started);
        self.nothing_else = false;
        // Requests that came while the writer itself was writing; without this two clients would always alternate, a sync each.
        let behind = commands.len();
        if by_itself && behind > 0 {
            self.database.engine.trail.commits_behind(behind);
        }
    }

    /// Runs one request; if it rolled everything back, runs the others again without it.
    fn take_in(&mut self, mut request: Request, mut record: BatchBuilder, taken: &mut Taken) -> BatchBuilder {
        if self.conn.autocommit() {
            let error = SqlError::internal("the batch could not begin again");
            let refused = Finished { request, result: Err(error), failed_step: 0, last_insert_rowid: None };
            taken.refused.push(refused);
            return record;
        }
        let ran = self.run_request(&mut request, &mut record);
        let last_insert_rowid = Some(self.conn.last_insert_rowid());
        match ran {
            Ran::Ended(result, failed_step) => {
                taken.finished.push(Finished { request, result, failed_step, last_insert_rowid });
                record
            }
            Ran::MetALock => {
                (self.give_back)(&self.database, request);
                record
            }
            Ran::Outgrown => {
                request.submission.sink.reset();
                let sole = Request { sole: true, ..request };
                self.database.queue_again(sole, Arc::new(Interruption::default()));
                record
            }
            Ran::TookAll(error, failed_step) => {
                tracing::warn!(
                    database = self.database.name,
                    "a statement rolled the batch back: {error}; running the others again"
                );
                taken.refused.push(Finished { request, result: Err(error), failed_step, last_insert_rowid: None });
                self.run_again(taken)
            }
        }
    }

    /// Begins again and repeats the requests whose work SQLite threw away. One that throws everything away this time is
    /// refused like the first, and the rest begin again: each round has fewer.
    fn run_again(&mut self, taken: &mut Taken) -> BatchBuilder {
        self.rollback();
        let begun = self.begin();
        let record = self.begin_record();
        let mut others = std::mem::take(&mut taken.finished);
        others.iter_mut().for_each(|other| other.request.submission.sink.reset());
        match begun {
            Ok(()) => others.into_iter().fold(record, |record, other| self.take_in(other.request, record, taken)),
            Err(e) => {
                let refused = others.into_iter().map(|other| Finished { result: Err(e.clone()), ..other });
                taken.refused.extend(refused);
                record
            }
        }
    }

    fn run_request(&mut self, request: &mut Request, record: &mut BatchBuilder) -> Ran {
        let content = self.conn.capture().len();
        if let Err(e) = self.run_control(self.control.savepoint) {
            return self.ended(Err(e), 0);
        }
        self.adopt_stray(record, content);
        let before = self.mark();
        let head = self.head();
        let author = request.submission.author.as_deref().map(Author::names);
        record.begin_transaction(self.conn.capture().buffer(), head, author);
        let content = self.conn.capture().len();
        let mut step = 0;
        let mut result = Ok(());
        self.changes_are_of(request.lock_owner.as_ref().map(LockOwner::id));
        if let Some(merge) = &request.merge {
            result = self.merge(&merge.images);
        }
        let attempt = request.ids.attempt();
        for s in &request.submission.steps {
            let before = self.recorded();
            result = self.run_shared_step(&request.submission.context, step, s, &mut *request.submission.sink);
            if result.is_err() {
                break;
            }
            self.report_recorded(before, &mut *request.submission.sink);
            step += 1;
        }
        drop(attempt);
        let met_a_lock = self.met_a_lock() || self.may_be_undone_yet(request, &result);
        let outgrown = !met_a_lock && result.is_ok() && request.merge.is_none() && self.outgrows_a_batch();
        // Undone either way; only a merge reports it.
        let result = match met_a_lock || outgrown {
            true => Err(merge::met_a_lock()),
            false => result.and_then(|()| self.acceptable()),
        };
        if self.conn.autocommit() {
            let gone = || ended_by_itself(SqlError::internal("the transaction ended by itself"));
            return Ran::TookAll(result.err().unwrap_or_else(gone), step);
        }
        let undone = match &result {
            Ok(()) => Ok(()),
            Err(_) => self.run_control(self.control.rollback_to),
        };
        let released = undone.and_then(|()| self.run_control(self.control.release));
        if let Err(e) = released {
            return Ran::TookAll(e, step);
        }
        let changed = self.conn.capture().len() > content;
        match (&result, changed) {
            (Ok(()), true) => record.end_transaction(self.conn.capture().buffer()),
            (Ok(()), false) => self.forget_head(record),
            (Err(_), _) => {
                self.conn.capture().truncate(before);
                self.restore_schema();
            }
        }
        if met_a_lock && request.merge.is_none() {
            return Ran::MetALock;
        }
        if outgrown {
            return Ran::Outgrown;
        }
        Ran::Ended(result, step)
    }

    /// A virtual table writes what it held back when the next savepoint is set. Requests on one run as batches of their own, but one judged
    /// before its table became virtual may get in here: its images then travel as a transaction of their own.
    fn adopt_stray(&mut self, record: &mut BatchBuilder, content: usize) {
        if self.conn.capture().len() == content {
            return;
        }
        let head = self.head();
        let buffer = self.conn.capture().buffer();
        let stray = buffer.split_off(content);
        record.begin_transaction(buffer, head, None);
        buffer.extend_from_slice(&stray);
        record.end_transaction(buffer);
    }

    fn ended(&self, result: SqlResult<()>, step: usize) -> Ran {
        match result {
            Err(e) if self.conn.autocommit() => Ran::TookAll(e, step),
            result => Ran::Ended(result, step),
        }
    }

    /// Removes the head of a transaction without operations from the record. (Its count of unchanged rows stays: such a
    /// row dirtied its page.)
    fn forget_head(&mut self, record: &BatchBuilder) {
        let start = record.transaction_start();
        self.conn.capture().buffer().truncate(start);
    }

    /// Whether the captured images exceed one record: as a sole request the transaction is written in fragments.
    fn outgrows_a_batch(&mut self) -> bool {
        let want = self.conn.capture().len() as u64 + self.sizes.headroom_bytes;
        want > self.database.engine.trail.body_bytes_max()
    }

    /// Whether a request that succeeded may stay.
    fn acceptable(&mut self) -> SqlResult<()> {
        self.check_capture()?;
        if self.conn.deferred_foreign_keys() > 0 {
            let message = "a foreign key is violated at the end of the transaction";
            return Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message));
        }
        let want = self.conn.capture().len() as u64 + self.sizes.headroom_bytes;
        self.reserve(want.max(self.sizes.reserve_bytes))
    }

    fn close_batch(&mut self, mut record: BatchBuilder, taken: Taken, started: Instant) {
        let number = self.number();
        let content = self.conn.capture().len();
        let settled = if self.conn.autocommit() {
            Ok(())
        } else {
            flush_virtual_tables(&mut self.conn).map_err(|e| self.sql_error(&e))
        };
        self.adopt_stray(&mut record, content);
        let Taken { mut finished, mut refused } = taken;
        finished.append(&mut refused);
        let answers = |number| move |f| answer(f, number);
        let flushed = settled.and_then(|()| match self.conn.autocommit() {
            true => Ok(()),
            false => self.flush_counters(&mut record),
        });
        let nothing = record.transactions() == 0 && self.conn.capture().unchanged() == 0;
        if self.conn.autocommit() || (flushed.is_ok() && nothing) {
            self.rollback();
            let answers = finished.into_iter().map(answers(number - 1)).collect();
            return self.answer_without_batch(answers);
        }
        let answers: Vec<Answer> = finished.into_iter().map(answers(number)).collect();
        let failed = match flushed {
            Ok(()) => self.commit(record, started, answers).err(),
            Err(error) => {
                self.rollback();
                Some(Failed { error, answers })
            }
        };
        if let Some(mut failed) = failed {
            tracing::error!(database = self.database.name, "a batch could not be committed: {}", failed.error);
            for a in &mut failed.answers {
                a.result.sink.reset();
                a.result.result = Err(failed.error.clone());
            }
            self.answer_without_batch(failed.answers);
        }
    }
}

fn answer(f: Finished, number: u64) -> Answer {
    let Request { submission, done, lock_owner, .. } = f.request;
    let level = submission.level;
    Answer {
        done,
        result: Completion {
            sink: submission.sink,
            result: f.result,
            failed_step: f.failed_step,
            last_insert_rowid: f.last_insert_rowid,
            number,
        },
        lock_owner,
        level,
    }
}
