//! Commits a batch: publishes it, releases its locks, and hands it to the trail, in this order.
//!
//! Locks are released when the changes they protected are visible, long before the batch is durable; the answers leave
//! when it is durable and has reached the level of its transactions.

use super::connection::Writer;
use crate::state::lock_owner::LockOwner;
use crate::state::submission::{Completion, OnCompletion};
use holdfast_store::schema_map::PREPARED_TABLE;
use holdfast_store::sqlite::SqliteError;
use holdfast_trail::OnDurable;
use holdfast_types::record::BatchBuilder;
use holdfast_types::{Level, SqlError};
use std::time::Instant;

/// An answer waiting for its batch.
pub(super) struct Answer {
    pub done: OnCompletion,
    pub result: Completion,
    /// The locks of a transaction that came from a branch: they are released as soon as it is published or undone, long
    /// before the answer.
    pub lock_owner: Option<LockOwner>,
    /// The level it waits for, if it succeeded.
    pub level: Level,
}

impl Answer {
    /// The level that its batch has to reach for it.
    fn level_needed(&self) -> Level {
        if self.result.result.is_ok() { self.level } else { Level::Local }
    }

    pub fn send(self) {
        (self.done)(self.result);
    }

    pub(super) fn without_locks(mut self) -> Answer {
        self.lock_owner = None;
        self
    }
}

/// A batch that could not be committed.
pub(super) struct Failed {
    pub error: SqlError,
    pub answers: Vec<Answer>,
}

impl Writer {
    /// Commits what was captured as the next batch and hands it to the trail. On an error everything is undone and the
    /// answers are returned.
    pub(super) fn commit(
        &mut self,
        record: BatchBuilder,
        started: Instant,
        answers: Vec<Answer>,
    ) -> Result<(), Failed> {
        let number = self.number();
        let body = match self.publish(record) {
            Ok(body) => body,
            Err(e) => {
                let error = self.sql_error(&e);
                self.back_out();
                return Err(Failed { error, answers });
            }
        };
        let answers: Vec<Answer> = answers.into_iter().map(Answer::without_locks).collect();
        self.hand_over(number, body, started, answers);
        Ok(())
    }

    /// Commits what was captured, so that others see it, and returns the record for the trail. On an error the
    /// transaction has to be rolled back.
    pub(super) fn publish(&mut self, record: BatchBuilder) -> Result<Vec<u8>, SqliteError> {
        let number = self.number();
        self.position.write(&mut self.conn, number, self.database.engine.epoch)?;
        if self.changes_schema() {
            self.database.schema_is_changing(true);
        }
        self.gate.open();
        let committed = self.conn.run(self.control.commit);
        self.gate.close();
        if let Err(e) = committed {
            self.database.schema_is_changing(false);
            return Err(e);
        }
        record.finish(self.conn.capture().buffer());
        let body = self.conn.capture().take();
        self.last_batch_bytes += body.len() as u64;
        self.publish_schema(number);
        self.database.side_log.published(number, &body);
        self.database.engine.locks.end_batch(self.database.id);
        Ok(body)
    }

    /// Undoes the open transaction with all its changes of the schema.
    pub(super) fn back_out(&mut self) {
        self.rollback();
        self.restore_schema();
    }

    /// Whether the open transaction has changed the schema.
    fn changes_schema(&self) -> bool {
        self.database.schema.read().epoch != self.schema.epoch
    }

    fn publish_schema(&mut self, number: u64) {
        if self.changes_schema() {
            self.forget_ids();
            // The table of prepared transactions does not concern transactions on older snapshots.
            let only_prepared = self.has_object(PREPARED_TABLE) && self.database.map().object(PREPARED_TABLE).is_none();
            let number = if only_prepared { self.database.schema_number() } else { number };
            self.database.publish_schema(self.schema.clone(), self.conn.capture().map().clone(), number);
        }
    }

    /// Appends the batch; the answers leave when it is durable and has reached the highest of their levels.
    pub(super) fn hand_over(&mut self, number: u64, body: Vec<u8>, started: Instant, answers: Vec<Answer>) {
        let bytes = body.len() as u64;
        let database = self.database.clone();
        let time_us = started.elapsed().as_micros() as u64;
        let fragments = self.ahead.take().map(|ahead| ahead.txn.0);
        let commits = answers.len();
        let level = answers.iter().map(Answer::level_needed).max().unwrap_or_default();
        database.engine.stats.batch(commits as u64);
        let on_durable: OnDurable = Box::new(move |span| {
            database.redo.add_after_fragments(number, fragments, span.start, time_us, bytes);
            database.engine.redo.appended(span.start);
            let engine = database.engine.clone();
            engine.pass(span.end, level, move || {
                database.engine.show(span.end, || database.show_readers(number));
                database.now_visible(number);
                answers.into_iter().for_each(Answer::send);
            });
        });
        let trail = &self.database.engine.trail;
        let appended = match self.reserved.take() {
            Some(reservation) if std::mem::take(&mut self.nothing_else) => {
                trail.append_now(reservation.for_commits(commits), body, on_durable)
            }
            Some(reservation) => trail.append(reservation.for_commits(commits), body, on_durable),
            None => trail.append_kept(body, on_durable),
        };
        if let Err(e) = appended {
            // Published, and the trail will never have it: nothing may be answered or written from here on. This
            // happens only if the trail has failed, or is closed while transactions run.
            let why = format!("a published batch cannot be logged: {e}");
            self.database.engine.fail(&why);
            self.break_off(why);
        }
    }

    /// Sends answers that need no batch of their own, as soon as everything they may have seen is durable.
    pub(super) fn answer_without_batch(&mut self, answers: Vec<Answer>) {
        let newest = self.volume.store().newest();
        let answers: Vec<Answer> = answers.into_iter().map(Answer::without_locks).collect();
        self.database.when_visible(newest, Box::new(move || answers.into_iter().for_each(Answer::send)));
    }
}
