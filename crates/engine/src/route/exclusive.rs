//! An exclusive transaction, seen from its client: every statement is a message to the writer, and an answer.

use crate::state::database::DatabaseState;
use crate::state::lock_owner::LockOwner;
use crate::state::queue::{Begin, ExclusiveRequest, Images, Participant, RowsRan, TxnEvent, TxnRan, WriterCommand};
use crate::state::submission::OnCompletion;
use crate::state::taken_ids::Taken;
use crate::statement::model::{Report, Statement, Step};

use crossbeam_channel::Sender;
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::{Level, SessionContext, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A transaction that is the only one in the writer from its beginning to its end. Dropping it rolls it back.
pub struct ExclusiveTransaction {
    requests: Sender<ExclusiveRequest>,
    pub schema: Arc<Schema>,
    /// The snapshot it began on: no commit comes between that and what it sees.
    pub began_on: u64,
}

fn gone() -> SqlError {
    SqlError::new(
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        "the transaction was rolled back: it was the only writer and idle for too long",
    )
    .with_detail("The limit is only_writer_idle_timeout_ms, or idle_in_transaction_session_timeout if that is shorter.")
    .with_hint("While it is open no other client can write; keep it short.")
}

impl ExclusiveTransaction {
    /// Waits for its turn in the writer and repeats there what it has done on a branch before.
    pub async fn begin(
        database: &DatabaseState,
        id: u64,
        idle_timeout: Duration,
        images: Images,
        lock_owner: LockOwner,
    ) -> SqlResult<ExclusiveTransaction> {
        let (requests, queue) = crossbeam_channel::unbounded();
        let (granted, answer) = oneshot::channel();
        database.send(WriterCommand::Begin(Begin {
            id,
            idle_timeout,
            requests: queue,
            granted,
            images,
            lock_owner,
        }))?;
        let event = answer.await.map_err(|_| gone())??;
        Ok(ExclusiveTransaction { requests, schema: event.schema, began_on: event.number })
    }

    fn send<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> ExclusiveRequest) -> SqlResult<oneshot::Receiver<T>> {
        let (answer, receiver) = oneshot::channel();
        self.requests.send(make(answer)).map_err(|_| gone())?;
        Ok(receiver)
    }

    /// Prepares a statement against the transaction's own schema. Do not keep it beyond the transaction if that changed
    /// the schema.
    pub async fn prepare(&self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        let sql = sql.to_owned();
        let answer = self.send(|answer| ExclusiveRequest::Prepare { sql, report, answer })?;
        answer.await.map_err(|_| gone())?
    }

    /// Runs one statement. A failure undoes that statement; whether the transaction may continue is the caller's rule.
    pub async fn execute(
        &mut self,
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
        ids: Arc<Taken>,
    ) -> SqlResult<TxnRan> {
        let answer = self.send(|answer| ExclusiveRequest::Run { step, context, sink, ids, answer })?;
        let ran = answer.await.map_err(|_| gone())?;
        self.schema = ran.schema.clone();
        Ok(ran)
    }

    /// Runs one statement for many rows of parameters; its results are dropped. A failure undoes all of them and names
    /// the row. The outer error means that the transaction is gone.
    pub async fn execute_rows(
        &mut self,
        stmt: Arc<Statement>,
        rows: Vec<Vec<Value>>,
        ids: Arc<Taken>,
    ) -> SqlResult<RowsRan> {
        let answer = self.send(|answer| ExclusiveRequest::RunRows { stmt, rows, ids, answer })?;
        answer.await.map_err(|_| gone())
    }

    /// The images of everything it has changed so far.
    pub async fn changes(&self) -> SqlResult<Vec<u8>> {
        let answer = self.send(|answer| ExclusiveRequest::Changes { answer })?;
        answer.await.map_err(|_| gone())?
    }

    async fn event(&mut self, answer: SqlResult<oneshot::Receiver<SqlResult<TxnEvent>>>) -> SqlResult<()> {
        self.schema = answer?.await.map_err(|_| gone())??.schema;
        Ok(())
    }

    pub async fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| ExclusiveRequest::Savepoint { name, answer });
        self.event(answer).await
    }

    pub async fn release(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| ExclusiveRequest::Release { name, answer });
        self.event(answer).await
    }

    pub async fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        let name = name.to_owned();
        let answer = self.send(|answer| ExclusiveRequest::RollbackTo { name, answer });
        self.event(answer).await
    }

    /// Commits. `done` is called when it is durable, or why it was not committed.
    pub fn commit(
        self,
        sink: Box<dyn Sink>,
        level: Level,
        author: Option<Arc<Author>>,
        done: OnCompletion,
    ) -> SqlResult<()> {
        self.requests.send(ExclusiveRequest::Commit { done, sink, level, author }).map_err(|_| gone())
    }

    /// Commits together with transactions of other databases.
    pub fn participate(self, participant: Participant) -> SqlResult<()> {
        self.requests.send(ExclusiveRequest::Participate(participant)).map_err(|_| gone())
    }

    /// Rolls back and waits until the writer is free.
    pub async fn rollback(self) -> SqlResult<()> {
        let answer = self.send(|answer| ExclusiveRequest::Rollback { answer })?;
        answer.await.map_err(|_| gone())?.map(drop)
    }
}
