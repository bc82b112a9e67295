//! Runs one statement after another: resolves it under the schema that it will see, then dispatches it by its kind.

use super::automatic;
use super::blocking::blocking;
use super::copy;
use super::failure::read_only;
use super::long_text::is_long;
use super::node_session::NodeSession;
use super::published_copy::without_values;
use super::single_message::{Missed, give_notices};
use super::source::Source;
use super::state::{Phase, State};
use super::temporary::is_temporary;
use crate::database::{is_prepared_ahead, report_under};
use crate::plan::{Extra, complete};
use crate::settings::StatementSettings;
use holdfast_engine::{Reader, Step as EngineStep};
use holdfast_sql::{Entry, Kind, Piece, Scan, StatementCache, Translated};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState, Tag};
use holdfast_wire::{Client, Failure};
use std::sync::Arc;
use std::time::Instant;

/// How often a statement is translated again because other sessions change the schema.
const TRANSLATIONS_MAX: usize = 10;

/// A cache entry for one use.
pub(super) fn uncached(piece: &Piece<'_>, epoch: u32, translated: Translated, extra: Extra) -> Arc<Entry<Extra>> {
    StatementCache::new(1, 0).insert(piece, epoch, translated, extra)
}

impl NodeSession {
    /// Translates and prepares under `schema`: the readers', or that of the open transaction that writes. Such a transaction
    /// works under the newest schema, and a message must not depend on one that has not reached its level (guarantee 2).
    pub(super) async fn resolve(
        &mut self,
        piece: &Piece<'_>,
        schema: &Arc<Schema>,
        param_types: &[u32],
    ) -> SqlResult<Arc<Entry<Extra>>> {
        if self.writes_in_block() {
            self.schema_settled().await?;
        }
        if schema.has_temporary() {
            return self.resolve_with_temporary(piece, schema, param_types).await;
        }
        let own_schema = self.state.is_writing() && !Arc::ptr_eq(schema, &self.served.db.schema());
        if is_long(piece.text()) && !own_schema {
            return self.resolve_one_elsewhere(piece.text(), schema, param_types).await;
        }
        let user = &self.identity.user;
        let State::Block(block) = &mut self.state else {
            return self.served.resolve(piece, schema, param_types, user);
        };
        match &mut block.phase {
            Phase::Writing(txn) if !Arc::ptr_eq(schema, &self.served.db.schema()) => {
                let mut translated = self.served.translate(piece, schema, param_types, user)?;
                let mut extra = None;
                if is_prepared_ahead(&translated) {
                    let mut statement =
                        txn.prepare(&translated.steps[0].sql, report_under(&translated, schema)).await?;
                    if complete(&mut translated, &statement, schema) {
                        statement = txn.prepare(&translated.steps[0].sql, report_under(&translated, schema)).await?;
                    }
                    extra = Some(statement);
                }
                Ok(uncached(piece, schema.epoch, translated, extra))
            }
            _ => self.served.resolve(piece, schema, param_types, user),
        }
    }

    /// The statement's translation under the schema in force now; `None` for an empty statement. The current role has the
    /// privileges that it needs. A statement that may write
    /// waits until the newest schema is in force for readers.
    pub(super) async fn entry(&mut self, source: &Source<'_>) -> SqlResult<Option<Arc<Entry<Extra>>>> {
        loop {
            let schema = self.schema();
            let entry = self.entry_under(source, &schema).await;
            match entry {
                Err(error) if self.misses_a_new_name(&error, &schema) => {}
                Ok(Some(entry)) if self.must_wait_for_schema(&entry) => self.schema_settled().await?,
                Ok(Some(entry)) => match self.check_access(&entry, &schema) {
                    Ok(()) => return Ok(Some(entry)),
                    Err(refused) => return self.published_copy(source, &schema, refused).map(Some),
                },
                Err(error) => return self.published_copy(source, &schema, error).map(Some),
                Ok(None) => return Ok(None),
            }
        }
    }

    /// Waits until the newest schema is in force for readers; a cancel or `statement_timeout` ends the wait.
    async fn schema_settled(&self) -> SqlResult<()> {
        let timeout = self.settings.timeouts().statement;
        self.canceller.wait(timeout, self.served.db.schema_settled()).await?
    }

    /// Whether a name is unknown under `schema`, which is no longer the one in force.
    fn misses_a_new_name(&self, error: &SqlError, schema: &Schema) -> bool {
        names_unknown(error) && self.schema().permanent_epoch() != schema.permanent_epoch()
    }

    /// The translation of a statement that is to be prepared, and the schema in force.
    pub(super) async fn entry_to_prepare(
        &mut self,
        piece: &Piece<'_>,
        param_types: &[u32],
    ) -> SqlResult<(Arc<Entry<Extra>>, Arc<Schema>)> {
        loop {
            let schema = self.schema();
            match self.resolve(piece, &schema, param_types).await {
                Err(error) if self.misses_a_new_name(&error, &schema) => {}
                entry => return Ok((entry?, schema)),
            }
        }
    }

    /// Whether the statement may write, and the newest schema has not reached its level.
    pub(super) fn must_wait_for_schema(&self, entry: &Entry<Extra>) -> bool {
        let writes = match &entry.translated.kind {
            Kind::Insert | Kind::Update | Kind::Delete | Kind::Ddl | Kind::CopyIn(_) | Kind::Analyze => true,
            Kind::Privileges(_) | Kind::Publication(_) | Kind::Subscription(_) => true,
            Kind::LockTable { .. } | Kind::Vacuum { into: None, .. } => true,
            _ => entry.extra.as_ref().is_some_and(|s| !s.class.is_read()),
        };
        writes && !is_temporary(entry) && !self.served.db.is_schema_settled()
    }

    /// The statement's translation under `schema`.
    async fn entry_under(&mut self, source: &Source<'_>, schema: &Arc<Schema>) -> SqlResult<Option<Arc<Entry<Extra>>>> {
        if let Some(entry) = source.known_under(schema) {
            return Ok(Some(entry.clone()));
        }
        match source {
            Source::Piece(piece, _) => self.resolve(piece, schema, &[]).await.map(Some),
            Source::Plan(plan, _) if plan.entry.is_none() => Ok(None),
            // What it returns depends on the cursor, not on the schema.
            Source::Plan(plan, _) if plan.cursor().is_some() => Ok(plan.entry.clone()),
            Source::Plan(plan, _) => {
                let scan = Scan::new(&plan.text, self.served.db.dialect())?;
                let Some(piece) = scan.pieces().next() else { return Ok(None) };
                let entry = self.resolve(&piece, schema, &plan.param_types).await?;
                let (old, new) = (&plan.desc.columns, &entry.translated.desc.columns);
                let same = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| a.type_oid == b.type_oid);
                if !same {
                    let message = "cached plan must not change result type";
                    return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                Ok(Some(entry))
            }
        }
    }

    /// Gives the reply what it needs of the session: how large the answers may be, and which notices are sent.
    pub(super) fn set_reply(&self, client: &mut Client) {
        let reply = client.reply();
        reply.set_result_limits(self.settings.result_limits());
        reply.set_least_severity(self.settings.least_severity());
    }

    /// A copy of the session's parameters, for a statement that reads or sets them.
    pub(super) fn settings_for(&self, entry: &Entry<Extra>) -> Option<Arc<StatementSettings>> {
        entry.translated.settings.then(|| Arc::new(self.values().for_statement()))
    }

    /// Sets what a statement has set that has succeeded.
    pub(super) fn keep_settings(&mut self, of: Option<&StatementSettings>) -> SqlResult<()> {
        for change in of.map(StatementSettings::take_changes).unwrap_or_default() {
            // Outside a block the transaction of a local change has ended.
            if change.local && self.state.is_idle() {
                continue;
            }
            let undo = self.settings.set(&change.name, change.value.as_deref(), change.local)?;
            if let Some(block) = self.state.block() {
                block.undo.push(undo);
            }
        }
        Ok(())
    }

    /// Runs one statement; its results are step `number`'s. `is_sole`: nothing else comes before the
    /// end of the message or Sync.
    pub(super) async fn statement(
        &mut self,
        number: usize,
        source: Source<'_>,
        is_sole: bool,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let failed = self.state.has_failed();
        // An earlier statement of the message may have been SET, or SET ROLE.
        self.set_reply(client);
        let mut entry = match self.entry(&source).await {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                client.reply().complete(number, &Tag { verb: "", rows: None });
                return Ok(());
            }
            Err(error) => {
                return Err(at(if failed && error.state() != SqlState::SYNTAX_ERROR { in_failed() } else { error }));
            }
        };
        let (begun, counted) = (Instant::now(), entry.clone());
        let settings = self.settings_for(&entry);
        self.statement_settings = settings.clone();
        let mut whole = Err(Missed::Unfit);
        if is_sole {
            whole = self.try_whole(number, &[(source, entry.clone())], client).await;
            if matches!(whole, Err(Missed::Outdated))
                && let Ok(Some(now)) = self.entry(&source).await
            {
                entry = now;
                whole = self.try_whole(number, &[(source, entry.clone())], client).await;
            }
        }
        let outcome = match whole {
            Ok(outcome) => outcome,
            Err(_) => self.dispatch(number, source, entry, failed, is_sole, client).await,
        };
        self.statement_settings = None;
        let outcome = if counted.translated.published { outcome.map_err(without_values) } else { outcome };
        let outcome = outcome.and_then(|()| self.keep_settings(settings.as_deref()).map_err(at));
        if outcome.is_ok() {
            self.count_statement(number, &counted, source.text(), begun.elapsed(), client);
        }
        outcome
    }

    /// Runs one statement by its kind. `failed`: the transaction has failed.
    async fn dispatch(
        &mut self,
        number: usize,
        source: Source<'_>,
        entry: Arc<Entry<Extra>>,
        failed: bool,
        is_sole: bool,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let translated = &entry.translated;
        if failed && !ends_a_failed_block(&translated.kind) {
            return Err(at(in_failed()));
        }
        give_notices(number, translated, client);
        if !is_temporary(&entry) {
            self.check_required(&translated.kind, translated.verb).map_err(at)?;
        }
        if self.state.is_idle() {
            let joins = is_sole && automatic::stays_open(&entry, self.wants_automatic());
            self.end_automatic_unless(joins).await.map_err(at)?;
        }
        match &translated.kind {
            Kind::Commit { chain } => return self.commit(number, *chain, client).await,
            Kind::Rollback { chain } => return self.rollback(number, *chain, client).await,
            Kind::CopyIn(_) | Kind::Explain => {}
            _ if is_temporary(&entry) => return self.run_temporary(number, source, entry, client).await,
            _ => {}
        }
        match &translated.kind {
            Kind::Analyze if !self.may_maintain(number, &[], "analyze", client) => {
                client.reply().complete(number, &Tag { verb: translated.verb, rows: None });
                Ok(())
            }
            Kind::Query | Kind::Insert | Kind::Update | Kind::Delete | Kind::CopyOut(_) | Kind::Ddl | Kind::Analyze => {
                self.data(number, source, entry, client).await
            }
            Kind::Privileges(statement) => self.change_privileges(number, statement, translated.verb, client).await,
            Kind::Publication(statement) => self.change_publications(number, statement, translated.verb, client).await,
            Kind::Subscription(statement) => {
                self.change_subscriptions(number, statement, translated.verb, is_sole, client).await
            }
            Kind::CopyIn(_) => self.copy_in(number, &entry, client).await,
            Kind::Explain => {
                self.explain(number, &entry, source.bind(&entry, &self.values()).map_err(at)?, client).await
            }
            Kind::Execute { name, args } => {
                let plan = self.execute_args(name, args).map_err(at)?;
                let source = Source::Plan(&plan.0, &plan.1);
                Box::pin(self.statement(number, source, is_sole, client)).await
            }
            _ => self.other(number, source, &entry, is_sole, client).await,
        }
    }

    /// Runs a statement that neither reads nor changes data and does not end a transaction: cursors, settings, sessions.
    async fn other(
        &mut self,
        number: usize,
        source: Source<'_>,
        entry: &Entry<Extra>,
        is_sole: bool,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let translated = &entry.translated;
        if !is_sole && !matches!(translated.kind, Kind::Begin(_)) {
            self.begin_implicit();
        }
        match &translated.kind {
            Kind::DeclareCursor { .. } => {
                self.declare(number, source, translated, is_sole).await?;
                client.reply().complete(number, &Tag { verb: translated.verb, rows: None });
                Ok(())
            }
            Kind::Fetch { name, direction, moves } => {
                let described = if let Source::Plan(plan, _) = source { Some(&*plan.desc) } else { None };
                self.fetch(number, (name, *direction, *moves), described, client).await
            }
            _ => {
                self.command(number, translated, client).await.map_err(|e| Failure::at(number, e))?;
                self.end_automatic_unless(self.wants_automatic()).await.map_err(Failure::from)
            }
        }
    }

    /// Runs a statement that reads or changes data or schema, in a transaction.
    async fn data(
        &mut self,
        number: usize,
        source: Source<'_>,
        entry: Arc<Entry<Extra>>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        self.touch_temporary(&entry).map_err(at)?;
        if self.state.is_idle() {
            // It would have been a part of it only as a whole.
            self.end_automatic_unless(false).await.map_err(at)?;
        }
        let mut entry = self.join_transaction(&source, entry).await.map_err(at)?;
        let mut translations = 1;
        loop {
            let outcome = self.data_in_transaction(number, &source, &entry, client).await;
            match outcome {
                // Another session changed the schema while it waited.
                Err(e) if translations < TRANSLATIONS_MAX && self.is_outdated(&e.error, entry.epoch()) => {
                    match self.entry(&source).await.map_err(at)? {
                        Some(now) => entry = now,
                        None => return Err(e),
                    }
                }
                outcome => return outcome,
            }
            translations += 1;
        }
    }

    /// Whether a statement that was translated under the schema of this epoch failed because the schema has changed since.
    /// It has then changed nothing and sent nothing.
    pub(super) fn is_outdated(&self, error: &SqlError, epoch: u32) -> bool {
        error.is_schema_changed() || (names_unknown(error) && self.schema().epoch != epoch)
    }

    async fn data_in_transaction(
        &mut self,
        number: usize,
        source: &Source<'_>,
        entry: &Arc<Entry<Extra>>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let params = source.bind(entry, &self.values()).map_err(at)?;
        if let Kind::CopyOut(format) = &entry.translated.kind {
            client.reply().copy_out(copy::format(format));
        }
        match &entry.extra {
            Some(stmt) if self.is_reading() => {
                let reader = self.block_reader().map_err(at)?;
                let steps = vec![EngineStep { stmt: stmt.clone(), params }];
                let (reader, outcome) = self.read(reader, number, steps, client).await;
                self.keep_reader(reader);
                outcome
            }
            _ => {
                let position = client.reply().position();
                self.run_as_writer(number, entry, params, client).await?;
                let Some(creates) = &entry.translated.access.creates else { return Ok(()) };
                let stored = self.store_owner(creates).await;
                stored.map_err(|e| {
                    client.reply().back_to(position);
                    at(e)
                })
            }
        }
    }

    /// Before a statement on data runs in a transaction: begins one where none is open, and makes it a writer where the
    /// statement needs that. Returns the statement's translation as it is then.
    pub(super) async fn join_transaction(
        &mut self,
        source: &Source<'_>,
        entry: Arc<Entry<Extra>>,
    ) -> SqlResult<Arc<Entry<Extra>>> {
        self.begin_implicit();
        let reads = entry.extra.as_ref().is_some_and(|s| s.class.is_read());
        let steps = || entry.translated.steps.iter();
        let is_exclusive = match entry.translated.kind {
            Kind::Analyze => true,
            Kind::Ddl => !steps().all(|step| self.served.db.runs_beside(&step.facts)),
            _ => false,
        };
        let again = self.failed_serializable;
        let Some(block) = self.state.block() else { return Ok(entry) };
        block.queried = true;
        if !reads && block.read_only {
            return Err(read_only(entry.translated.verb));
        }
        if (!reads || block.writes_from_the_start(again))
            && self.become_writer(is_exclusive).await?
            && let Some(now) = self.entry(source).await?
        {
            // Another session may have changed the schema while this one waited.
            return Ok(now);
        }
        Ok(entry)
    }

    /// The open transaction has begun to write.
    pub(super) fn writes_in_block(&self) -> bool {
        matches!(&self.state, State::Block(b) if matches!(b.phase, Phase::Writing(_)))
    }

    /// The open transaction has not written yet.
    pub(super) fn is_reading(&self) -> bool {
        matches!(&self.state, State::Block(b) if matches!(b.phase, Phase::Reading(_)))
    }

    /// A reader for a transaction that has not written: at the transaction's snapshot, or at the newest one. The caller returns
    /// it with [`NodeSession::keep_reader`].
    pub(super) fn block_reader(&mut self) -> SqlResult<Reader> {
        let keeps = self.state.block().is_some_and(|b| b.keeps_snapshot());
        if let Some(Phase::Reading(kept)) = self.state.block().map(|b| &mut b.phase)
            && let Some(reader) = kept.take()
        {
            return Ok(*reader);
        }
        let mut reader = self.served.db.reader()?;
        if keeps {
            reader.begin_to_write_later(self.identity.pid)?;
        }
        Ok(reader)
    }

    /// Takes back what [`NodeSession::block_reader`] returned.
    pub(super) fn keep_reader(&mut self, reader: Option<Reader>) {
        let keeps = self.state.block().is_some_and(|b| b.keeps_snapshot());
        if let Some(Phase::Reading(kept)) = self.state.block().map(|b| &mut b.phase) {
            *kept = reader.filter(|_| keeps).map(Box::new);
        }
    }

    /// Runs a command on databases; error 25001 inside a transaction.
    pub(super) async fn outside_transactions<T: Send + 'static>(
        &mut self,
        command: &str,
        work: impl FnOnce() -> SqlResult<T> + Send + 'static,
    ) -> SqlResult<T> {
        if !self.state.is_idle() {
            let message = format!("{command} cannot run inside a transaction block");
            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        blocking(work).await
    }
}

/// Whether a name is unknown: perhaps under an older schema only.
fn names_unknown(error: &SqlError) -> bool {
    [SqlState::UNDEFINED_COLUMN, SqlState::UNDEFINED_TABLE].contains(&error.state())
}

/// Whether the statement also runs in a transaction that has failed.
fn ends_a_failed_block(kind: &Kind) -> bool {
    matches!(kind, Kind::Commit { .. } | Kind::Rollback { .. } | Kind::RollbackTo(_) | Kind::PrepareTransaction(_))
}

fn in_failed() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}
