//! An exclusive transaction: the writer serves its statements one by one, and no other request until it ends.
//!
//! | state | request | next |
//! |---|---|---|
//! | open | run, savepoint, release, rollback to | open |
//! | open | run that makes SQLite roll everything back | lost |
//! | open | commit, by itself or together with other databases | committed or backed out; the writer is free |
//! | open | rollback, or the client is gone | backed out; the writer is free |
//! | open | nothing for idle_in_transaction_timeout | backed out; the writer is free; the next request finds it closed |
//! | lost | rollback | the writer is free |
//! | lost | anything else | 25P02 |
//!
//! Before its first answer everything published earlier must be durable: from then on it reads the writer's own state, and
//! no other transaction writes until it ends (guarantee 2).

use super::commands::Commands;
use super::connection::Writer;
use super::publish::Answer;
use crate::state::database::closed;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::{Begin, ExclusiveRequest, Images, Participant, RowsRan, TxnEvent, TxnRan};
use crate::state::submission::{Completion, OnCompletion};
use crate::statement::collect::Ignore;
use crate::statement::describe::describe;
use crate::statement::model::{Statement, Step};
use crate::statement::run::to_sql;
use crate::statement::temp::shown::Shown;
use crossbeam_channel::RecvTimeoutError;
use holdfast_store::capture::flush_virtual_tables;
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::{Level, SessionContext, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// An open savepoint of the client.
struct Savepoint {
    name: String,
    mark: holdfast_store::capture::Mark,
    schema: Arc<Schema>,
}

impl Writer {
    /// Serves one exclusive transaction from begin to end.
    pub(super) fn run_exclusive(&mut self, begin: Begin, commands: &mut Commands) {
        if begin.granted.is_closed() {
            return;
        }
        self.database.only_writer.store(true, Ordering::Release);
        self.serve_exclusive(begin, commands);
        self.database.only_writer.store(false, Ordering::Release);
    }

    fn serve_exclusive(&mut self, begin: Begin, commands: &mut Commands) {
        // Dropped on every path, after the rows it has locked are published or undone and before the answer is sent.
        let lock_owner = begin.lock_owner;
        let mut savepoints = Vec::new();
        let begun = self.begin();
        self.changes_are_of(Some(lock_owner.id()));
        let begun = begun.and_then(|()| self.take_over(&begin.images, &mut savepoints));
        // What it would see may still be lost, so it must not be shown.
        let visible = self.wait_until_visible();
        let begun = begun.and_then(|()| match visible {
            true => Ok(()),
            false => Err(closed(&self.database.name)),
        });
        let number = self.database.volume().store().newest();
        if let Err(e) = begun {
            self.back_out();
            // The client's next statement must not meet its own locks.
            drop(lock_owner);
            // The client may be gone and need no answer.
            return drop(begin.granted.send(Err(e)));
        }
        if begin.granted.send(Ok(TxnEvent { schema: self.schema.clone(), number })).is_err() {
            return self.back_out();
        }
        let started = Instant::now();
        loop {
            match self.next_request(&begin.requests, begin.idle_timeout, commands) {
                Ok(ExclusiveRequest::Commit { done, sink, level, author }) => {
                    return self.commit_exclusive(started, (level, author.as_deref()), done, sink, lock_owner);
                }
                Ok(ExclusiveRequest::Participate(participant)) => {
                    return self.participate(Participant { lock_owner: Some(lock_owner), ..participant });
                }
                Ok(ExclusiveRequest::Rollback { answer }) => {
                    self.back_out();
                    drop(lock_owner);
                    let event = TxnEvent { schema: self.schema.clone(), number };
                    drop(answer.send(Ok(event)));
                    return;
                }
                Ok(request) => self.serve_request(begin.id, number, request, &mut savepoints),
                Err(RecvTimeoutError::Disconnected) => return self.back_out(),
                Err(RecvTimeoutError::Timeout) => {
                    tracing::info!(database = self.database.name, "rolled back a transaction that was idle too long");
                    return self.back_out();
                }
            }
        }
    }

    /// Repeats what the transaction has done on a branch.
    fn take_over(&mut self, images: &Images, savepoints: &mut Vec<Savepoint>) -> SqlResult<()> {
        let take = |writer: &mut Writer, ops: &[u8]| match ops.is_empty() {
            true => Ok(()),
            false => {
                writer.run_control(writer.control.savepoint)?;
                writer.merge(ops)?;
                writer.run_control(writer.control.release)
            }
        };
        take(self, &images.first)?;
        for (name, ops) in &images.after {
            self.set_savepoint(name, savepoints)?;
            take(self, ops)?;
        }
        Ok(())
    }

    /// Waits for everything published to be durable and to reach its level. Returns false if it never will, because the
    /// trail or the gate is closed.
    #[must_use]
    pub fn wait_until_visible(&self) -> bool {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let newest = self.database.volume().store().newest();
        self.database.when_visible(newest, Box::new(move || sender.send(()).unwrap_or_default()));
        receiver.recv().is_ok()
    }

    fn serve_request(&mut self, id: u64, number: u64, request: ExclusiveRequest, savepoints: &mut Vec<Savepoint>) {
        // The receiver of an answer may be gone; the disconnect is noticed at the next request.
        match request {
            ExclusiveRequest::Run { step, context, mut sink, ids, answer } => {
                let _attempt = ids.attempt();
                self.interruptible(id);
                let before = self.recorded();
                let result = self.run_in_transaction(&context, &step, &mut *sink);
                if result.is_ok() {
                    self.report_recorded(before, &mut *sink);
                }
                self.not_interruptible();
                let last_insert_rowid = self.conn.last_insert_rowid();
                drop(answer.send(TxnRan { sink, result, schema: self.schema.clone(), last_insert_rowid }));
            }
            ExclusiveRequest::RunRows { stmt, rows, ids, answer } => {
                let _attempt = ids.attempt();
                self.interruptible(id);
                let result = self.run_rows(stmt, rows);
                self.not_interruptible();
                drop(answer.send(result));
            }
            ExclusiveRequest::Prepare { sql, report, answer } => {
                let described = describe(&mut self.conn, &sql, report);
                drop(answer.send(described.map(Arc::new).map_err(|e| to_sql(&e, &sql, &self.schema))));
            }
            ExclusiveRequest::Savepoint { name, answer } => {
                let done = self.set_savepoint(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            ExclusiveRequest::Release { name, answer } => {
                let done = self.release(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            ExclusiveRequest::RollbackTo { name, answer } => {
                let done = self.rollback_to(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            ExclusiveRequest::Changes { answer } => drop(answer.send(self.changes())),
            ExclusiveRequest::Commit { .. } | ExclusiveRequest::Participate(_) | ExclusiveRequest::Rollback { .. } => {}
        }
    }

    fn open_transaction(&self) -> SqlResult<()> {
        if self.conn.autocommit() {
            let message = "the transaction was rolled back as a whole, commands are ignored until its end";
            return Err(SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    /// The images of the open transaction: those that a commit would write now.
    fn changes(&mut self) -> SqlResult<Vec<u8>> {
        self.open_transaction()?;
        flush_virtual_tables(&mut self.conn).map_err(|e| self.sql_error(&e))?;
        self.check_capture()?;
        if self.ahead.is_some() {
            return Err(SqlError::internal("images of the exclusive transaction are in the trail already"));
        }
        Ok(self.conn.capture().buffer().clone())
    }

    fn run_in_transaction(&mut self, context: &SessionContext, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        // The catalogue shows what the transaction itself has created and dropped.
        let _shown = Shown::new(self.schema.clone());
        self.or_no_trace(|writer| writer.run_step(context, 0, step, sink))
    }

    fn run_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> RowsRan {
        let mut at = 0;
        let ran = self.or_no_trace(|writer| {
            for (i, params) in rows.into_iter().enumerate() {
                at = i;
                writer.run_step(&SessionContext::NONE, 0, &Step { stmt: stmt.clone(), params }, &mut Ignore)?;
            }
            Ok(())
        });
        ran.map_err(|e| (at, e))
    }

    /// Runs statements so that a failure leaves no trace of them, neither in the database nor in the images.
    fn or_no_trace(&mut self, run: impl FnOnce(&mut Writer) -> SqlResult<()>) -> SqlResult<()> {
        self.open_transaction()?;
        self.run_control(self.control.savepoint)?;
        // Not before: a savepoint makes FTS5 write the pending changes of earlier statements, and those must stay.
        let mark = self.mark();
        let schema = self.schema.clone();
        let ran = run(self);
        let result = ran.and_then(|()| self.check_capture()).and_then(|()| self.check_size());
        if self.conn.autocommit() {
            return Err(result.err().unwrap_or_else(|| SqlError::internal("the transaction ended by itself")));
        }
        if result.is_err() {
            self.run_control(self.control.rollback_to)?;
            self.conn.capture().truncate(mark);
            self.schema_back_to(schema);
        }
        self.run_control(self.control.release)?;
        result
    }

    pub(super) fn schema_back_to(&mut self, schema: Arc<Schema>) {
        if self.schema.epoch != schema.epoch {
            self.schema = schema;
            self.cache.clear(&mut self.conn);
            self.reload_map();
        }
    }

    fn set_savepoint(&mut self, name: &str, savepoints: &mut Vec<Savepoint>) -> SqlResult<()> {
        self.open_transaction()?;
        // Under an internal name: SQLite compares names without case, PostgreSQL with case.
        let sql = format!("savepoint client_{}", savepoints.len());
        self.conn.exec(&sql).map_err(|e| self.sql_error(&e))?;
        let mark = self.mark();
        savepoints.push(Savepoint { name: name.to_owned(), mark, schema: self.schema.clone() });
        Ok(())
    }

    fn find(&self, name: &str, savepoints: &[Savepoint]) -> SqlResult<usize> {
        self.open_transaction()?;
        savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    fn release(&mut self, name: &str, savepoints: &mut Vec<Savepoint>) -> SqlResult<()> {
        let at = self.find(name, savepoints)?;
        self.conn.exec(&format!("release client_{at}")).map_err(|e| self.sql_error(&e))?;
        savepoints.truncate(at);
        Ok(())
    }

    fn rollback_to(&mut self, name: &str, savepoints: &mut Vec<Savepoint>) -> SqlResult<()> {
        let at = self.find(name, savepoints)?;
        self.conn.exec(&format!("rollback to client_{at}")).map_err(|e| self.sql_error(&e))?;
        let (mark, schema) = (savepoints[at].mark, savepoints[at].schema.clone());
        self.conn.capture().truncate(mark);
        self.schema_back_to(schema);
        savepoints.truncate(at + 1);
        Ok(())
    }

    fn commit_exclusive(
        &mut self,
        started: Instant,
        (level, author): (Level, Option<&Author>),
        done: OnCompletion,
        sink: Box<dyn Sink>,
        lock_owner: LockOwner,
    ) {
        let number = self.number();
        let finished = self.finish_sole();
        let failed = finished.is_err();
        let result = Completion { sink, result: finished, failed_step: 0, last_insert_rowid: None, number };
        let answer = Answer { done, result, lock_owner: Some(lock_owner), level };
        if failed {
            self.back_out();
            return self.answer_without_batch(vec![answer]);
        }
        self.commit_captured(started, author, vec![answer]);
    }
}
