//! Statements that write: one-message transactions through the writer's queue, all others on branches.

use super::failure::{fatal, stopping};
use super::node_session::NodeSession;
use super::reply_sink::reclaim;
use super::state::{Phase, State};
use crate::cancel::{Target, terminated_in_commit, with_reason};
use crate::database::report;
use crate::plan::Extra;
use holdfast_engine::{
    Collect, Completion, Report, Statement, Step as EngineStep, Submission, WriteIsolation, WriteOptions, WriteTxn,
};
use holdfast_sql::{Entry, Isolation};
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, Tag, Value};
use holdfast_wire::{Client, Failure, Reply};
use std::sync::Arc;
use std::time::Duration;

impl NodeSession {
    /// Runs a one-message transaction through the writer; returns when it is durable.
    pub(super) async fn submit(
        &mut self,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        client.reply().start_at(first);
        let (completer, completion) = self.mailbox.expect();
        let lock_timeout = self.settings.timeouts().lock;
        let advisory_owner = Some(self.locks.clone());
        let batch = Submission {
            steps,
            sink: client.lend_reply(),
            context: self.context(),
            lock_timeout,
            advisory_owner,
            any_order: true,
            level: self.settings.level(),
            author: Some(self.identity.author.clone()),
        };
        let db = self.served.db.clone();
        let submitted = match db.submit_with(batch, Box::new(move |done| completer.complete(done))) {
            Ok(submitted) => submitted,
            Err(error) => {
                client.replace_reply();
                let closed = error.state() == SqlState::ADMIN_SHUTDOWN;
                return Err(if closed { fatal(error) } else { Failure::at(first, error) });
            }
        };
        // In a batch of the writer it is never interrupted, but it waits for the writer, and may wait for a lock.
        let timeout = self.settings.timeouts().statement;
        let work = self.canceller.during(Target::Submitted(db, submitted), timeout, completion);
        let work = self.activity.until_durable(self.settings.level(), work);
        let Some((done, timed_out)) = self.canceller.until_committed(work).await else {
            client.replace_reply();
            return Err(fatal(terminated_in_commit()));
        };
        let Some(Completion { sink, result, failed_step, last_insert_rowid, .. }) = done else {
            client.replace_reply();
            return Err(fatal(stopping()));
        };
        if reclaim::<Reply>(sink, client).is_none() {
            return Err(fatal(SqlError::internal("an answer came back as something else")));
        }
        result.map_err(|e| Failure::at(first + failed_step, with_reason(e, timed_out)))?;
        self.last_id = last_insert_rowid.or(self.last_id);
        Ok(())
    }

    /// Makes the block a writer if it is none yet: on a branch, or with `exclusive` as the only writer. `true` when it has just
    /// become one.
    pub(super) async fn become_writer(&mut self, exclusive: bool) -> SqlResult<bool> {
        let timeouts = self.settings.timeouts();
        let idle = timeouts.idle_in_transaction;
        let advisory_owner = Some(self.locks.clone());
        let State::Block(block) = &mut self.state else { return Err(SqlError::internal("no transaction is open")) };
        let isolation = block.write_isolation(exclusive);
        let part_of = block.writers().next().map(|txn| txn.whole());
        let Phase::Reading(reader) = &mut block.phase else { return Ok(false) };
        let read = reader.as_mut().map_or(0, |r| r.snapshot());
        let mut options = WriteOptions {
            isolation,
            idle_timeout: idle,
            lock_timeout: timeouts.lock,
            snapshot: (read != 0).then_some(read),
            advisory_owner,
            part_of,
            level: self.settings.level(),
            author: Some(self.identity.author.clone()),
        };
        if options.isolation != WriteIsolation::RepeatableRead {
            options.snapshot = None;
            // Releases the snapshot before the wait, which may be long.
            *reader = None;
        }
        let begin = self.served.db.begin_write(options);
        let waited = self.canceller.wait(timeouts.statement, begin).await;
        let mut txn = waited??;
        let has_changed = read != 0 && txn.began_on().is_some_and(|began| began != read);
        if block.isolation == Isolation::Serializable {
            self.failed_serializable = has_changed;
        }
        if block.keeps_snapshot() && has_changed {
            txn.rollback().await?;
            return Err(SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
            )
            .with_hint("The database has changed since this transaction's first read; run the transaction again."));
        }
        // They were set before anything was written: setting them now has the same effect.
        for savepoint in &block.savepoints {
            txn.savepoint(&savepoint.name).await?;
        }
        self.activity.set_transaction(txn.id());
        block.phase = Phase::Writing(txn);
        Ok(true)
    }

    pub(super) fn writer(&mut self) -> SqlResult<&mut WriteTxn> {
        match &mut self.state {
            State::Block(block) => match &mut block.phase {
                Phase::Writing(txn) => Ok(txn),
                _ => Err(SqlError::internal("the transaction is not the writer")),
            },
            State::Idle => Err(SqlError::internal("no transaction is open")),
        }
    }

    /// Runs all steps of a translated statement as the writer; the last one answers as step `number`.
    pub(super) async fn run_as_writer(
        &mut self,
        number: usize,
        entry: &Entry<Extra>,
        params: Vec<Value>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        if entry.translated.steps.is_empty() {
            client.reply().complete(number, &Tag { verb: entry.translated.verb, rows: None });
            return Ok(());
        }
        let stmt = self.prepare_on_writer(entry).await.map_err(|e| Failure::at(number, e))?;
        self.run_prepared_as_writer(number, stmt, params, client).await
    }

    pub(super) async fn run_prepared_as_writer(
        &mut self,
        number: usize,
        stmt: Arc<Statement>,
        params: Vec<Value>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        client.reply().start_at(number);
        let sink = client.lend_reply();
        let (result, sink) = self.execute(EngineStep { stmt, params }, sink).await.map_err(|e| {
            client.replace_reply();
            fatal(e)
        })?;
        if reclaim::<Reply>(sink, client).is_none() {
            return Err(fatal(SqlError::internal("an answer came back as something else")));
        }
        result.map_err(|e| Failure::at(number, e))
    }

    /// Prepares the last step of a translation, after running the steps before it.
    pub(super) async fn prepare_on_writer(&mut self, entry: &Entry<Extra>) -> SqlResult<Arc<Statement>> {
        let translated = &entry.translated;
        let Some((last, before)) = translated.steps.split_last() else {
            return Err(SqlError::internal("nothing to prepare"));
        };
        // Later steps run under the schema that the first step has made.
        let schema = self.schema();
        if schema.epoch != entry.epoch() {
            return Err(SqlError::schema_changed());
        }
        let mut epoch = Some(schema.permanent_epoch());
        for step in before {
            let report = Report { epoch: epoch.take(), facts: step.facts.clone(), ..Report::default() };
            let stmt = self.writer()?.prepare(&step.sql, report).await?;
            self.check_prepared_late(&stmt, translated, false)?;
            self.execute(EngineStep { stmt, params: Vec::new() }, Box::new(Collect::new())).await?.0?;
        }
        match &entry.extra {
            Some(stmt) => Ok(stmt.clone()),
            None => {
                let stmt = match translated.temporary {
                    true => self.prepare_temporary(&last.sql, report(translated)).await?,
                    false => self.writer()?.prepare(&last.sql, Report { epoch, ..report(translated) }).await?,
                };
                self.check_prepared_late(&stmt, translated, true)?;
                Ok(stmt)
            }
        }
    }

    /// Runs a step whose answer the client does not see.
    pub(super) async fn run_helper(&mut self, sql: &str) -> SqlResult<()> {
        let stmt = self.writer()?.prepare(sql, Report::default()).await?;
        self.execute(EngineStep { stmt, params: Vec::new() }, Box::new(Collect::new())).await?.0
    }

    /// Runs one statement in the writer. The outer error means that the transaction is gone.
    pub(super) async fn execute(
        &mut self,
        step: EngineStep,
        sink: Box<dyn Sink>,
    ) -> SqlResult<(SqlResult<()>, Box<dyn Sink>)> {
        let timeouts = self.settings.timeouts();
        let timeout = timeouts.statement;
        let (db, canceller) = (self.served.db.clone(), self.canceller.clone());
        self.changes_as_author(&step.stmt)?;
        let context = self.context();
        let txn = self.writer()?;
        txn.set_lock_timeout(timeouts.lock);
        let target = Target::Writer(db, txn.id());
        let (ran, timed_out) = canceller.during(target, timeout, txn.execute_for(context, step, sink)).await;
        let ran = ran?;
        if ran.result.is_ok() {
            self.last_id = Some(ran.last_insert_rowid).filter(|id| *id != 0).or(self.last_id);
        }
        Ok((ran.result.map_err(|e| with_reason(e, timed_out)), ran.sink))
    }

    /// The trail names the roles of the last statement that may have changed something.
    fn changes_as_author(&mut self, stmt: &Statement) -> SqlResult<()> {
        if !stmt.class.is_read() {
            let author = self.identity.author.clone();
            self.writer()?.set_author(author);
        }
        Ok(())
    }

    /// Runs one INSERT for each of the rows, for COPY. The inner error names the index of the row that failed.
    pub(super) async fn execute_rows(
        &mut self,
        stmt: &Arc<Statement>,
        rows: Vec<Vec<Value>>,
    ) -> SqlResult<Result<(), (usize, SqlError)>> {
        if stmt.temp.is_some() {
            return self.execute_temporary_rows(stmt, rows).await;
        }
        let (db, canceller) = (self.served.db.clone(), self.canceller.clone());
        self.changes_as_author(stmt)?;
        let txn = self.writer()?;
        let target = Target::Writer(db, txn.id());
        let work = txn.execute_rows(stmt.clone(), rows);
        canceller.during(target, Duration::ZERO, work).await.0
    }
}
