//! A client's hold on an interactive transaction: begin, execute, commit or roll back.
//!
//! Today every such transaction is the one exclusive writer of its database; the interface is the one that concurrent
//! branches need: a statement may return rows, an error, or ask to be run again, and a commit may say conflict.

use crate::batch::{BatchDone, Ticket};
use crate::database::Inner;
use crate::main_thread::{Begin, Message, RowsRan, TxnEvent, TxnRan, TxnRequest};
use crate::statement::{Report, Statement, Step};
use crossbeam_channel::Sender;
use holdfast_types::schema::Schema;
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// How an interactive transaction behaves.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Longest pause between two of its statements.
    pub idle_timeout: Duration,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions { idle_timeout: Duration::from_secs(5) }
    }
}

/// An open interactive transaction. Dropping it rolls it back.
pub struct WriteTxn {
    inner: Arc<Inner>,
    id: u64,
    requests: Sender<TxnRequest>,
    schema: Arc<Schema>,
    began_on: u64,
}

fn gone() -> SqlError {
    SqlError::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "the transaction was backed out: it was idle longer than idle_in_transaction_session_timeout",
    )
    .with_hint("While it is open no other client can write; keep it short, or raise the timeout.")
}

impl WriteTxn {
    fn request(inner: &Arc<Inner>, options: WriteOptions) -> SqlResult<Waiting> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (requests, queue) = crossbeam_channel::unbounded();
        let (granted, answer) = oneshot::channel();
        let message = Message::Begin(Begin { id, options, requests: queue, granted });
        let sent = inner.main.read().as_ref().is_some_and(|main| main.send(message).is_ok());
        if !sent {
            let message = format!("database {} is being closed", inner.name);
            return Err(SqlError::new(SqlState::ADMIN_SHUTDOWN, message));
        }
        Ok(Waiting { id, requests, answer })
    }

    fn granted(inner: Arc<Inner>, waiting: (u64, Sender<TxnRequest>), event: TxnEvent) -> WriteTxn {
        let (id, requests) = waiting;
        WriteTxn { inner, id, requests, schema: event.schema, began_on: event.number }
    }

    pub(crate) async fn begin(inner: Arc<Inner>, options: WriteOptions) -> SqlResult<WriteTxn> {
        let Waiting { id, requests, answer } = WriteTxn::request(&inner, options)?;
        let event = answer.await.map_err(|_| gone())??;
        Ok(WriteTxn::granted(inner, (id, requests), event))
    }

    pub(crate) fn begin_blocking(inner: Arc<Inner>, options: WriteOptions) -> SqlResult<WriteTxn> {
        let Waiting { id, requests, answer } = WriteTxn::request(&inner, options)?;
        let event = answer.blocking_recv().map_err(|_| gone())??;
        Ok(WriteTxn::granted(inner, (id, requests), event))
    }

    /// For [`crate::Database::interrupt`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The snapshot it began on: no commit lies between that and what it sees.
    pub fn began_on(&self) -> u64 {
        self.began_on
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

    /// The same on a plain thread.
    pub fn execute_blocking(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        let answer = self.send(|answer| TxnRequest::Run { step, sink, answer })?;
        let ran = answer.blocking_recv().map_err(|_| gone())?;
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

    /// Commits. The ticket says when it is durable, or why it was not committed.
    pub fn commit(self, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
        let (done, ticket) = Ticket::new();
        self.requests.send(TxnRequest::Commit { done, sink }).map_err(|_| gone())?;
        Ok(ticket)
    }

    /// Commits and waits on a plain thread.
    pub fn commit_blocking(self, sink: Box<dyn Sink>) -> SqlResult<BatchDone> {
        self.commit(sink)?.wait().ok_or_else(gone)
    }

    /// Rolls back and waits until MAIN is free.
    pub async fn rollback(self) -> SqlResult<()> {
        let answer = self.send(|answer| TxnRequest::Rollback { answer })?;
        answer.await.map_err(|_| gone())?.map(drop)
    }

    /// The database it changes.
    pub fn database(&self) -> crate::Database {
        crate::Database(self.inner.clone())
    }
}

/// A transaction waiting for its turn.
struct Waiting {
    id: u64,
    requests: Sender<TxnRequest>,
    answer: oneshot::Receiver<SqlResult<TxnEvent>>,
}
