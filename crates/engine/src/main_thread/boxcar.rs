//! Many bounded one-message transactions in one boxcar, each in its savepoint.
//!
//! | a request | its savepoint | its images | its answer |
//! |---|---|---|---|
//! | runs well, changes something | released | become a transaction of the record | when the boxcar is durable |
//! | runs well, changes nothing | released | none | likewise: it may have read what the boxcar wrote |
//! | fails | rolled back to | truncated | likewise |
//! | would leave a deferred foreign key violated | rolled back to (RULE 11) | truncated | 23503 |
//! | meets a lock that a branch holds | rolled back to | truncated | it runs again on a branch, which waits |
//! | makes the record larger than can be reserved | rolled back to (RULE 7) | truncated | 53100 |
//! | takes the whole transaction with it (RULE 10) | gone | gone | error; all the others run again |

use super::exec::{Answer, Main};
use super::{Message, Request, queued};
use crate::batch::BatchDone;
use crate::branch::Presence;
use crate::run::ended_by_itself;
use crossbeam_channel::Receiver;
use holdfast_store::capture::flush_virtual_tables;
use holdfast_types::record::BatchBuilder;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::time::{Duration, Instant};

/// A boxcar ends when it has run this long although more is queued: those already in it wait for its sync.
const BOXCAR_TIME_MAX: Duration = Duration::from_millis(10);

/// A boxcar of up to so many requests, with nothing queued behind it, is written to the trail by MAIN itself: the way
/// through the trail's thread would cost a lone client two more wake-ups. With more clients it pays to run their next
/// requests during the sync. Where there are branches their next merge comes at any moment, so MAIN stays free.
const WRITTEN_BY_MAIN_MAX: usize = 2;

/// What running one request led to.
enum Ran {
    /// It ended, well or not; the boxcar goes on.
    Ended(SqlResult<()>, usize),
    /// It met a lock and left no trace; it goes on on a branch (RULE 21).
    MetALock,
    /// It changes more than one record may hold and left no trace; it goes on alone, where it travels in fragments.
    Outgrown,
    /// SQLite rolled everything back.
    TookAll(SqlError, usize),
}

/// What has become of the requests of the boxcar at work.
#[derive(Default)]
struct Taken {
    /// In the boxcar, in order.
    finished: Vec<Finished>,
    /// Answered with an error; nothing of them is in it.
    refused: Vec<Finished>,
}

/// A request that has run in the boxcar at work.
struct Finished {
    request: Request,
    result: SqlResult<()>,
    failed_step: usize,
    last_insert_rowid: Option<i64>,
}

impl Main {
    /// Runs `first` and what is queued behind it; returns the message that ended the boxcar, if one did.
    pub(super) fn run_boxcar(&mut self, first: Request, queue: &Receiver<Message>) -> Option<Message> {
        let started = Instant::now();
        if let Err(e) = self.begin() {
            let answer =
                answer(Finished { request: first, result: Err(e), failed_step: 0, last_insert_rowid: None }, 0);
            self.answer_without_boxcar(vec![answer]);
            return None;
        }
        let mut record = self.begin_record();
        let mut taken = Taken::default();
        let mut next = Some(first);
        let mut after = None;
        let mut more = false;
        while let Some(request) = next.take() {
            record = self.take_in(request, record, &mut taken);
            let full = taken.finished.len() + taken.refused.len() >= self.inner.shared.options.boxcar_requests_max
                || self.conn.capture().len() >= self.sizes.boxcar_bytes
                || started.elapsed() >= BOXCAR_TIME_MAX;
            if full || self.conn.autocommit() {
                more = true;
                break;
            }
            match queued(queue) {
                Some(Message::Batch(request)) if !request.alone => next = Some(request),
                other => after = other,
            }
        }
        let branches = self.on.lock().registering;
        self.nothing_else = !more && !branches && after.is_none() && taken.finished.len() <= WRITTEN_BY_MAIN_MAX;
        let by_itself = self.nothing_else;
        self.close_boxcar(record, taken, started);
        self.nothing_else = false;
        // Those who came while MAIN itself was writing; without them two clients would take turns for ever, a sync each.
        if by_itself && !queue.is_empty() {
            self.inner.shared.trail.commits_behind(queue.len());
        }
        after
    }

    /// Runs one request; when it took everything with it, runs the others again without it.
    fn take_in(&mut self, mut request: Request, mut record: BatchBuilder, taken: &mut Taken) -> BatchBuilder {
        if self.conn.autocommit() {
            let error = SqlError::internal("the boxcar could not begin again");
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
                crate::rerun::on_a_branch(&self.inner, request);
                record
            }
            Ran::Outgrown => {
                request.batch.sink.reset();
                let alone = Request { alone: true, ..request };
                // Of a database that is being closed the ticket is dropped.
                self.inner.send(Message::Batch(alone)).unwrap_or_default();
                record
            }
            Ran::TookAll(error, failed_step) => {
                tracing::warn!(
                    database = self.inner.name,
                    "a statement rolled the boxcar back: {error}; running the others again"
                );
                taken.refused.push(Finished { request, result: Err(error), failed_step, last_insert_rowid: None });
                self.run_again(taken)
            }
        }
    }

    /// Begins anew and repeats the requests whose work SQLite threw away. One that throws everything away this time is
    /// refused like the first, and the rest begin once more: each round has fewer.
    fn run_again(&mut self, taken: &mut Taken) -> BatchBuilder {
        self.rollback();
        let begun = self.begin();
        let record = self.begin_record();
        let mut others = std::mem::take(&mut taken.finished);
        others.iter_mut().for_each(|other| other.request.batch.sink.reset());
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
        record.begin_transaction(self.conn.capture().buffer(), head);
        let content = self.conn.capture().len();
        let mut step = 0;
        let mut result = Ok(());
        self.changes_are_of(request.presence.as_ref().map(Presence::owner));
        if let Some(merge) = &request.merge {
            result = self.merge(&merge.images);
        }
        for s in &request.batch.steps {
            result = self.run_step(step, s, &mut *request.batch.sink);
            if result.is_err() {
                break;
            }
            step += 1;
        }
        let met_a_lock = self.met_a_lock() || self.may_be_undone_yet(request, &result);
        let outgrown = !met_a_lock && result.is_ok() && request.merge.is_none() && self.outgrows_a_boxcar();
        // Undone either way; only a merge is told.
        let result = match met_a_lock || outgrown {
            true => Err(super::merge::met_a_lock()),
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

    /// A virtual table writes what it held back when the next savepoint is set. Requests on one run alone, but one judged
    /// before its table became virtual may get in here: its images then travel as a transaction of their own.
    fn adopt_stray(&mut self, record: &mut BatchBuilder, content: usize) {
        if self.conn.capture().len() == content {
            return;
        }
        let head = self.head();
        let buffer = self.conn.capture().buffer();
        let stray = buffer.split_off(content);
        record.begin_transaction(buffer, head);
        buffer.extend_from_slice(&stray);
        record.end_transaction(buffer);
    }

    fn ended(&self, result: SqlResult<()>, step: usize) -> Ran {
        match result {
            Err(e) if self.conn.autocommit() => Ran::TookAll(e, step),
            result => Ran::Ended(result, step),
        }
    }

    /// A transaction without operations leaves no trace in the record. (Its count of unchanged rows stays: such a row
    /// dirtied its page.)
    fn forget_head(&mut self, record: &BatchBuilder) {
        let start = record.transaction_start();
        self.conn.capture().buffer().truncate(start);
    }

    /// Whether what is captured is more than one record may be: by itself a transaction travels in fragments.
    fn outgrows_a_boxcar(&mut self) -> bool {
        let want = self.conn.capture().len() as u64 + self.sizes.headroom_bytes;
        want > self.inner.shared.trail.body_bytes_max()
    }

    /// Whether a request that ran well may stay.
    fn acceptable(&mut self) -> SqlResult<()> {
        self.check_capture()?;
        if self.conn.deferred_foreign_keys() > 0 {
            let message = "a foreign key is violated at the end of the transaction";
            return Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message));
        }
        let want = self.conn.capture().len() as u64 + self.sizes.headroom_bytes;
        self.reserve(want.max(self.sizes.reserve_bytes))
    }

    fn close_boxcar(&mut self, mut record: BatchBuilder, taken: Taken, started: Instant) {
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
            return self.answer_without_boxcar(answers);
        }
        let answers: Vec<Answer> = finished.into_iter().map(answers(number)).collect();
        let failed = match flushed {
            Ok(()) => self.commit(record, started, answers).err(),
            Err(error) => {
                self.rollback();
                Some(super::exec::Failed { error, answers })
            }
        };
        if let Some(mut failed) = failed {
            tracing::error!(database = self.inner.name, "a boxcar could not be committed: {}", failed.error);
            for a in &mut failed.answers {
                a.result.sink.reset();
                a.result.result = Err(failed.error.clone());
            }
            self.answer_without_boxcar(failed.answers);
        }
    }
}

fn answer(f: Finished, number: u64) -> Answer {
    let Request { batch, done, presence, .. } = f.request;
    let level = batch.level;
    Answer {
        done,
        result: BatchDone {
            sink: batch.sink,
            result: f.result,
            failed_step: f.failed_step,
            last_insert_rowid: f.last_insert_rowid,
            number,
        },
        presence,
        level,
    }
}
