//! A one-message transaction that is a batch of its own: it scans, changes the schema, or writes virtual tables.
//!
//! It may be interrupted (cancel, statement_timeout): the worst an interrupt can do is to roll back a transaction that
//! has no other request in it (RULE 10).

use super::connection::Writer;
use super::merge::met_a_lock;
use super::publish::Answer;
use crate::state::interruption::cancelled as canceling;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::Request;
use crate::state::submission::Completion;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::time::Instant;

impl Writer {
    /// Runs the request as a transaction and a batch of its own.
    pub(super) fn run_sole(&mut self, request: Request) {
        // It may have been cancelled before it got here.
        let cancelled = self.database.interruptions.lock().remove(&request.id).is_some_and(|i| i.is_cancelled());
        let left = if cancelled { Some(request) } else { self.adopt(request) };
        let Some(mut request) = left else { return };
        let started = Instant::now();
        let number = self.number();
        self.interruptible(request.id);
        let (result, failed_step) = match cancelled {
            true => (Err(canceling()), 0),
            false => self.try_sole(&mut request),
        };
        let last_insert_rowid = Some(self.conn.last_insert_rowid());
        self.not_interruptible();
        // A merge cannot run again: its own locks should have kept others away, and it is refused.
        if !cancelled && request.merge.is_none() && (self.met_a_lock() || self.may_be_undone_yet(&request, &result)) {
            self.rollback();
            self.restore_schema();
            return (self.give_back)(&self.database, request);
        }
        let Request { submission, done, lock_owner, .. } = request;
        let level = submission.level;
        let done_with =
            |result, number| Completion { sink: submission.sink, result, failed_step, last_insert_rowid, number };
        match result {
            Err(e) => {
                self.rollback();
                self.restore_schema();
                let result = done_with(Err(e), number - 1);
                self.answer_without_batch(vec![Answer { done, result, lock_owner, level }]);
            }
            Ok(()) => {
                let answer = Answer { done, result: done_with(Ok(()), number), lock_owner, level };
                self.commit_captured(started, submission.author.as_deref(), vec![answer]);
            }
        }
    }

    fn try_sole(&mut self, request: &mut Request) -> (SqlResult<()>, usize) {
        if let Err(e) = self.begin() {
            return (Err(e), 0);
        }
        self.changes_are_of(request.lock_owner.as_ref().map(LockOwner::id));
        // Dropped as soon as the capture has them: they may be many.
        let merged = request.merge.as_mut().map_or(Ok(()), |merge| {
            let (images, sent) = (std::mem::take(&mut merge.images), merge.sent.take());
            self.run_control(self.control.savepoint)?;
            self.merge_in_fragments(&images, sent)
        });
        if let Err(e) = merged {
            return (Err(e), 0);
        }
        let _attempt = request.ids.attempt();
        for (i, step) in request.submission.steps.iter().enumerate() {
            let ran = self
                .run_step(&request.submission.context, i, step, &mut *request.submission.sink)
                .and_then(|()| self.check_size());
            if let Err(e) = ran {
                return (Err(e), i);
            }
        }
        if self.met_a_lock() {
            return (Err(met_a_lock()), 0);
        }
        (self.finish_sole(), request.submission.steps.len().saturating_sub(1))
    }

    /// What must hold before an exclusive transaction may commit.
    pub(crate) fn finish_sole(&mut self) -> SqlResult<()> {
        if self.conn.autocommit() {
            return Err(SqlError::internal("the transaction ended by itself"));
        }
        if self.conn.deferred_foreign_keys() > 0 {
            let message = "a foreign key is violated at the end of the transaction";
            return Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message));
        }
        self.finish_transaction()?;
        self.check_size()
    }

    /// The limit on one transaction's images.
    pub(super) fn check_size(&mut self) -> SqlResult<()> {
        let max = self.database.engine.options.transaction_bytes_max;
        let have = self.conn.capture().len() as u64 + self.ahead.as_ref().map_or(0, |ahead| ahead.bytes);
        if have <= max {
            return Ok(());
        }
        let message = format!("the transaction changes more than {max} bytes of row images (transaction_bytes_max)");
        Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
            .with_hint("Split it into smaller transactions, or raise transaction_bytes_max."))
    }
}
