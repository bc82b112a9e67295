//! An interactive transaction: MAIN serves its statements one by one and nobody else until it ends.
//!
//! | state | request | next |
//! |---|---|---|
//! | open | run, savepoint, release, rollback to | open |
//! | open | run that makes SQLite roll everything back | lost |
//! | open | commit, alone or together with other databases | committed or backed out; MAIN is free |
//! | open | rollback, or the client is gone | backed out; MAIN is free |
//! | open | nothing for idle_in_transaction_timeout | backed out; MAIN is free; the next request finds it closed |
//! | lost | rollback | MAIN is free |
//! | lost | anything else | 25P02 |
//!
//! Before its first answer everything published earlier must be durable: from then on it reads MAIN's own state, and
//! nobody else writes until it ends (guarantee 2).

use super::exec::{Answer, Main};
use super::{Begin, Images, Part};
use crate::batch::BatchDone;
use crate::branch::Presence;
use crate::collect::Ignore;
use crate::run::to_sql;
use crate::statement::{Report, Statement, Step};
use crossbeam_channel::RecvTimeoutError;
use holdfast_types::schema::Schema;
use holdfast_types::{Level, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// What an interactive transaction asks of MAIN.
pub enum TxnRequest {
    Run {
        step: Step,
        sink: Box<dyn Sink>,
        answer: oneshot::Sender<TxnRan>,
    },
    /// One statement for many rows of parameters, as COPY does. A failure undoes all of them.
    RunRows {
        stmt: Arc<Statement>,
        rows: Vec<Vec<Value>>,
        answer: oneshot::Sender<RowsRan>,
    },
    /// Prepares against the transaction's own schema.
    Prepare {
        sql: String,
        report: Report,
        answer: oneshot::Sender<SqlResult<Arc<Statement>>>,
    },
    Savepoint {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    Release {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    RollbackTo {
        name: String,
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
    /// Answered when it is durable and has reached its level.
    Commit {
        done: crate::batch::OnDone,
        sink: Box<dyn Sink>,
        level: Level,
    },
    /// Commits together with transactions of other databases.
    TakePart(Part),
    Rollback {
        answer: oneshot::Sender<SqlResult<TxnEvent>>,
    },
}

/// The transaction's schema after a request, where it changed.
pub struct TxnEvent {
    pub schema: Arc<Schema>,
    /// The snapshot the transaction began on.
    pub number: u64,
}

/// The outcome of many rows: the error says which row failed, from 0.
pub type RowsRan = Result<(), (usize, SqlError)>;

/// The outcome of one statement.
pub struct TxnRan {
    pub sink: Box<dyn Sink>,
    pub result: SqlResult<()>,
    pub schema: Arc<Schema>,
    pub last_insert_rowid: i64,
}

/// An open savepoint of the client.
struct Savepoint {
    name: String,
    mark: holdfast_store::capture::Mark,
    schema: Arc<Schema>,
}

impl Main {
    /// Serves one interactive transaction from begin to end.
    pub(super) fn run_interactive(&mut self, begin: Begin) {
        if begin.granted.is_closed() {
            return;
        }
        // Dropped on every way out, after what it holds locks on is published or undone and before that is answered.
        let presence = begin.presence;
        let mut savepoints = Vec::new();
        let begun = self.begin();
        self.changes_are_of(Some(presence.owner()));
        let begun = begun.and_then(|()| self.take_over(&begin.images, &mut savepoints));
        // What it would see is in the trail and must not be told to anybody.
        let durable = self.wait_until_durable();
        let begun = begun.and_then(|()| match durable {
            true => Ok(()),
            false => Err(crate::database::closed(&self.inner.name)),
        });
        let number = self.inner.volume().store().newest();
        if let Err(e) = begun {
            self.back_out();
            // The client's next statement must not meet its own locks.
            drop(presence);
            // Nobody waits for the answer of a client that is gone.
            return drop(begin.granted.send(Err(e)));
        }
        if begin.granted.send(Ok(TxnEvent { schema: self.schema.clone(), number })).is_err() {
            return self.back_out();
        }
        let started = Instant::now();
        loop {
            match begin.requests.recv_timeout(begin.idle_timeout) {
                Ok(TxnRequest::Commit { done, sink, level }) => {
                    return self.commit_interactive(started, level, done, sink, presence);
                }
                Ok(TxnRequest::TakePart(part)) => {
                    return self.take_part(Part { presence: Some(presence), ..part });
                }
                Ok(TxnRequest::Rollback { answer }) => {
                    self.back_out();
                    drop(presence);
                    let event = TxnEvent { schema: self.schema.clone(), number };
                    drop(answer.send(Ok(event)));
                    return;
                }
                Ok(request) => self.serve_request(begin.id, number, request, &mut savepoints),
                Err(RecvTimeoutError::Disconnected) => return self.back_out(),
                Err(RecvTimeoutError::Timeout) => {
                    tracing::info!(database = self.inner.name, "backed out a transaction that was idle too long");
                    return self.back_out();
                }
            }
        }
    }

    /// Does again what the transaction has done on a branch.
    fn take_over(&mut self, images: &Images, savepoints: &mut Vec<Savepoint>) -> SqlResult<()> {
        let take = |main: &mut Main, ops: &[u8]| match ops.is_empty() {
            true => Ok(()),
            false => {
                main.run_control(main.control.savepoint)?;
                main.merge(ops)?;
                main.run_control(main.control.release)
            }
        };
        take(self, &images.first)?;
        for (name, ops) in &images.after {
            self.set_savepoint(name, savepoints)?;
            take(self, ops)?;
        }
        Ok(())
    }

    /// Waits for everything published to be durable and to reach its level. False: it never will, as the trail or the
    /// gate is closed.
    #[must_use]
    pub fn wait_until_durable(&self) -> bool {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let newest = self.inner.volume().store().newest();
        self.inner.when_durable(newest, Box::new(move || sender.send(()).unwrap_or_default()));
        receiver.recv().is_ok()
    }

    fn serve_request(&mut self, id: u64, number: u64, request: TxnRequest, savepoints: &mut Vec<Savepoint>) {
        // Nobody waits for an answer whose receiver is gone; the disconnect is seen at the next request.
        match request {
            TxnRequest::Run { step, mut sink, answer } => {
                self.interruptible(id);
                let result = self.run_in_transaction(&step, &mut *sink);
                self.not_interruptible();
                let last_insert_rowid = self.conn.last_insert_rowid();
                drop(answer.send(TxnRan { sink, result, schema: self.schema.clone(), last_insert_rowid }));
            }
            TxnRequest::RunRows { stmt, rows, answer } => {
                self.interruptible(id);
                let result = self.run_rows(stmt, rows);
                self.not_interruptible();
                drop(answer.send(result));
            }
            TxnRequest::Prepare { sql, report, answer } => {
                let described = crate::database::describe(&mut self.conn, &sql, report);
                drop(answer.send(described.map(Arc::new).map_err(|e| to_sql(&e, &sql, &self.schema))));
            }
            TxnRequest::Savepoint { name, answer } => {
                let done = self.set_savepoint(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            TxnRequest::Release { name, answer } => {
                let done = self.release(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            TxnRequest::RollbackTo { name, answer } => {
                let done = self.rollback_to(&name, savepoints);
                drop(answer.send(done.map(|()| TxnEvent { schema: self.schema.clone(), number })));
            }
            TxnRequest::Commit { .. } | TxnRequest::TakePart(_) | TxnRequest::Rollback { .. } => {}
        }
    }

    fn open_transaction(&self) -> SqlResult<()> {
        if self.conn.autocommit() {
            let message = "the transaction was backed out as a whole, commands are ignored until its end";
            return Err(SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message));
        }
        Ok(())
    }

    fn run_in_transaction(&mut self, step: &Step, sink: &mut dyn Sink) -> SqlResult<()> {
        self.or_no_trace(|main| main.run_step(0, step, sink))
    }

    fn run_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> RowsRan {
        let mut at = 0;
        let ran = self.or_no_trace(|main| {
            for (i, params) in rows.into_iter().enumerate() {
                at = i;
                main.run_step(0, &Step { stmt: stmt.clone(), params }, &mut Ignore)?;
            }
            Ok(())
        });
        ran.map_err(|e| (at, e))
    }

    /// Runs statements so that a failure leaves no trace of them, neither in the database nor in the images.
    fn or_no_trace(&mut self, run: impl FnOnce(&mut Main) -> SqlResult<()>) -> SqlResult<()> {
        self.open_transaction()?;
        self.run_control(self.control.savepoint)?;
        // Not before: a savepoint makes FTS5 write what earlier statements left to do, and that must stay.
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
        // Under a name of ours: SQLite compares names without case, PostgreSQL with.
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

    fn commit_interactive(
        &mut self,
        started: Instant,
        level: Level,
        done: crate::batch::OnDone,
        sink: Box<dyn Sink>,
        presence: Presence,
    ) {
        let number = self.number();
        let finished = self.finish_alone();
        let failed = finished.is_err();
        let result = BatchDone { sink, result: finished, failed_step: 0, last_insert_rowid: None, number };
        let answer = Answer { done, result, presence: Some(presence), level };
        if failed {
            self.back_out();
            return self.answer_without_boxcar(vec![answer]);
        }
        self.commit_captured(started, vec![answer]);
    }
}
