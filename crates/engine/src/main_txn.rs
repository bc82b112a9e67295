//! A transaction that has MAIN to itself from its beginning to its end: a message to MAIN and an answer for everything
//! it does.

use crate::batch::OnDone;
use crate::branch::Presence;
use crate::database::Inner;
use crate::main_thread::{Begin, Images, Message, Part, RowsRan, TxnEvent, TxnRan, TxnRequest};
use crate::statement::{Report, Statement, Step};
use crossbeam_channel::Sender;
use holdfast_types::schema::Schema;
use holdfast_types::{Level, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Dropping it rolls it back.
pub struct MainTxn {
    requests: Sender<TxnRequest>,
    pub schema: Arc<Schema>,
    /// The snapshot it began on: no commit lies between that and what it sees.
    pub began_on: u64,
}

fn gone() -> SqlError {
    SqlError::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "the transaction was backed out: it was idle longer than idle_in_transaction_session_timeout",
    )
    .with_hint("While it is open no other client can write; keep it short, or raise the timeout.")
}

impl MainTxn {
    /// Waits for its turn on MAIN and does there what it has done on a branch already.
    pub async fn begin(
        inner: &Inner,
        id: u64,
        idle_timeout: Duration,
        images: Images,
        presence: Presence,
    ) -> SqlResult<MainTxn> {
        let (requests, queue) = crossbeam_channel::unbounded();
        let (granted, answer) = oneshot::channel();
        inner.send(Message::Begin(Begin { id, idle_timeout, requests: queue, granted, images, presence }))?;
        let event = answer.await.map_err(|_| gone())??;
        Ok(MainTxn { requests, schema: event.schema, began_on: event.number })
    }

    fn send<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> TxnRequest) -> SqlResult<oneshot::Receiver<T>> {
        let (answer, receiver) = oneshot::channel();
        self.requests.send(make(answer)).map_err(|_| gone())?;
        Ok(receiver)
    }

    /// Prepares a statement against the transaction's own schema. Not to be kept beyond the transaction when it
    /// changed the schema.
    pub async fn prepare(&self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        let sql = sql.to_owned();
        let answer = self.send(|answer| TxnRequest::Prepare { sql, report, answer })?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs one statement. A failure undoes that statement; whether the transaction may go on is the caller's rule.
    pub async fn execute(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        let answer = self.send(|answer| TxnRequest::Run { step, sink, answer })?;
        let ran = answer.await.map_err(|_| gone())?;
        self.schema = ran.schema.clone();
        Ok(ran)
    }

    /// Runs one statement for many rows of parameters; its results are dropped. A failure undoes all of them, and says
    /// which row it was. The outer error means that the transaction is gone.
    pub async fn execute_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> SqlResult<RowsRan> {
        let answer = self.send(|answer| TxnRequest::RunRows { stmt, rows, answer })?;
        answer.await.map_err(|_| gone())
    }

    async fn event(&mut self, answer: SqlResult<oneshot::Receiver<SqlResult<TxnEvent>>>) -> SqlResult<()> {
        self.schema = answer?.await.map_err(|_| gone())??.schema;
        Ok(())
    }

    pub async fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| TxnRequest::Savepoint { name, answer });
        self.event(answer).await
    }

    pub async fn release(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| TxnRequest::Release { name, answer });
        self.event(answer).await
    }

    pub async fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| TxnRequest::RollbackTo { name, answer });
        self.event(answer).await
    }

    /// Commits. `done` is told when it is durable, or why it was not committed.
    pub fn commit(self, sink: Box<dyn Sink>, level: Level, done: OnDone) -> SqlResult<()> {
        self.requests.send(TxnRequest::Commit { done, sink, level }).map_err(|_| gone())
    }

    /// Commits together with transactions of other databases.
    pub fn take_part(self, part: Part) -> SqlResult<()> {
        self.requests.send(TxnRequest::TakePart(part)).map_err(|_| gone())
    }

    /// Rolls back and waits until MAIN is free.
    pub async fn rollback(self) -> SqlResult<()> {
        let answer = self.send(|answer| TxnRequest::Rollback { answer })?;
        answer.await.map_err(|_| gone())?.map(drop)
    }
}
