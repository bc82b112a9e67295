//! Statements that use temporary tables.
//!
//! Outside a block such a statement begins an implicit block, which ends with the message. Where it runs is said in
//! [`holdfast_engine::temp`]. A block that has only used temporary tables has written nothing: it waits for no other
//! transaction, and may be READ ONLY.

use super::blocking::blocking;
use super::copy;
use super::failure::read_only;
use super::node_session::NodeSession;
use super::privileges::LateCheck;
use super::source::Source;
use super::state::Phase;
use super::temporary::{Space, TemporaryTables, temp_use, undo};
use crate::cancel::{Target, with_reason};
use crate::database::{is_prepared_ahead, report};
use crate::plan::{Extra, complete};
use holdfast_engine::temp::{Snapshot, TempDdl, TempRun, TempSpace, TempUse, not_the_only_writer};
use holdfast_engine::{Report, Statement, Step as EngineStep};
use holdfast_sql::{Entry, Kind, Piece, StatementCache};
use holdfast_types::schema::Schema;
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, Tag, Value};
use holdfast_wire::{Client, Failure, Reply};
use std::sync::Arc;

/// Translated statements kept for a session that has temporary tables.
const CACHE_ENTRIES_MAX: usize = 256;
const CACHE_BYTES_MAX: usize = 1 << 20;

/// 0A000, in PostgreSQL's words.
pub(super) fn not_prepared() -> SqlError {
    let message = "cannot PREPARE a transaction that has operated on temporary objects";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

impl NodeSession {
    /// Translates and prepares under a schema with temporary tables.
    pub(super) async fn resolve_with_temporary(
        &mut self,
        piece: &Piece<'_>,
        schema: &Arc<Schema>,
        param_types: &[u32],
    ) -> SqlResult<Arc<Entry<Extra>>> {
        let space = self.temporary.of(self.served.db.oid()).ok_or_else(|| SqlError::internal("no temporary tables"))?;
        let mut writer = match self.state.block().map(|b| &mut b.phase) {
            // It has changed the schema: only its own connection knows the new one.
            Some(Phase::Writing(txn)) if !Arc::ptr_eq(&txn.schema(), &self.served.db.schema()) => Some(txn),
            _ => None,
        };
        let cached = writer.is_none() && param_types.iter().all(|t| *t == 0);
        if cached && let Some(entry) = space.cache.lookup(piece, schema.epoch) {
            return Ok(entry);
        }
        let mut translated = self.served.translate(piece, schema, param_types, &self.identity.user)?;
        let mut extra = None;
        if translated.temp.is_none() && is_prepared_ahead(&translated) {
            loop {
                let (sql, wanted) = (&translated.steps[0].sql, report(&translated));
                let statement = match &mut writer {
                    None => space.tables.prepare(sql, wanted)?,
                    Some(txn) => match txn.prepare_beside(&space.tables, sql, wanted).await {
                        Err(_) if translated.temporary && txn.began_on().is_some() => return Err(not_the_only_writer()),
                        prepared => prepared?,
                    },
                };
                // The statement carries its description, and is prepared again when that has been completed.
                let described = extra.is_some() || !complete(&mut translated, &statement, schema);
                extra = Some(statement);
                if described {
                    break;
                }
            }
        }
        let cache = if cached { &space.cache } else { &StatementCache::new(1, 0) };
        Ok(cache.insert(piece, schema.epoch, translated, extra))
    }

    /// The temporary tables in the session's present database; they take part in the open block from now on.
    fn begin_temporary(&mut self) -> SqlResult<Arc<TempSpace>> {
        let oid = self.served.db.oid();
        let tables = match self.temporary.of(oid) {
            Some(space) => space.tables.clone(),
            None => {
                let tables = self.served.db.temp_space(self.scratch.bytes_max);
                let cache = StatementCache::new(CACHE_ENTRIES_MAX, CACHE_BYTES_MAX);
                let space = Space { oid, tables: tables.clone(), cache };
                self.temporary.spaces.push(space);
                tables
            }
        };
        let block = self.state.block().ok_or_else(|| SqlError::internal("no transaction is open"))?;
        while tables.marks() < 1 + block.savepoints.len() {
            tables.set_mark();
        }
        Ok(tables)
    }

    /// Notes that the open block uses temporary tables, where the statement does. A statement that also writes permanent
    /// tables runs as the writer's.
    pub(super) fn touch_temporary(&mut self, entry: &Entry<Extra>) -> SqlResult<()> {
        let uses = temp_use(entry).is_some_and(|t| t.uses);
        if uses || entry.translated.temporary {
            self.begin_implicit();
            self.begin_temporary()?;
            self.temporary.touched = true;
        }
        Ok(())
    }

    /// Prepares the last step of a translation that names temporary tables for the writer.
    pub(super) async fn prepare_temporary(&mut self, sql: &str, wanted: Report) -> SqlResult<Arc<Statement>> {
        let tables = self.begin_temporary()?;
        self.writer()?.prepare_beside(&tables, sql, wanted).await
    }

    /// Opens a connection for a statement. `main`: it reads permanent tables.
    fn open_temporary(&mut self, main: bool) -> SqlResult<TempRun> {
        let tables = self.begin_temporary()?;
        let keeps = self.is_reading() && self.state.block().is_some_and(|b| b.keeps_snapshot());
        let mut snapshot = Snapshot::Visible;
        if main && keeps {
            let mut reader = self.block_reader()?;
            snapshot = Snapshot::Held(reader.take_snapshot()?);
            self.keep_reader(Some(reader));
        }
        tables.open(snapshot, self.identity.pid)
    }

    /// Whether the statement has to see what the transaction has changed in permanent tables.
    fn on_branch(&mut self, temp: &TempUse) -> bool {
        temp.main && matches!(self.state.block_ref().map(|b| &b.phase), Some(Phase::Writing(_)))
    }

    /// Runs a statement that uses temporary tables and changes no others.
    pub(super) async fn run_temporary(
        &mut self,
        number: usize,
        source: Source<'_>,
        entry: Arc<Entry<Extra>>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        self.begin_implicit();
        if entry.translated.temp.is_some() {
            return self.change_temporary(number, source, &entry, client).await;
        }
        let Some(temp) = temp_use(&entry).cloned() else { return Err(at(SqlError::internal("no temporary table"))) };
        self.touch_temporary(&entry).map_err(at)?;
        let entry = if temp.main { self.join_transaction(&source, entry).await.map_err(at)? } else { entry };
        if let Some(block) = self.state.block() {
            block.queried = true;
        }
        let params = source.bind(&entry, &self.values()).map_err(at)?;
        if let Kind::CopyOut(format) = &entry.translated.kind {
            client.reply().copy_out(copy::format(format));
        }
        if self.on_branch(&temp) {
            self.begin_temporary().map_err(at)?;
            return self.run_as_writer(number, &entry, params, client).await;
        }
        let Some(stmt) = entry.extra.clone() else { return Err(at(SqlError::internal("it was not prepared"))) };
        let run = self.open_temporary(temp.main).map_err(at)?;
        let (step, inserts) = (EngineStep { stmt, params }, entry.translated.kind == Kind::Insert);
        let context = self.context();
        let work = move |run: &mut TempRun, reply: &mut Reply| run.run(&context, 0, &step, reply);
        let last = self.temporary_on_thread(number, run, client, work).await?;
        self.last_id = Some(last).filter(|id| inserts && *id != 0).or(self.last_id);
        Ok(())
    }

    /// Runs CREATE, ALTER, DROP and TRUNCATE of temporary tables.
    async fn change_temporary(
        &mut self,
        number: usize,
        source: Source<'_>,
        entry: &Arc<Entry<Extra>>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let Some(block) = self.state.block() else { return Err(at(SqlError::internal("no transaction is open"))) };
        block.queried = true;
        if block.read_only {
            return Err(at(read_only(entry.translated.verb)));
        }
        self.temporary.touched = true;
        let translated = &entry.translated;
        let ddl = TempDdl {
            steps: translated.steps.iter().map(|step| step.sql.clone()).collect(),
            report: report(translated),
            params: source.bind(entry, &self.values()).map_err(at)?,
            creates: translated.temp.as_ref().and_then(|t| t.creates.clone()),
        };
        let late = self.late_check(translated);
        if matches!(self.state.block_ref().map(|b| &b.phase), Some(Phase::Writing(_))) && translated.counts {
            return self.create_as_on_branch(number, ddl, late, client).await;
        }
        let run = self.open_temporary(true).map_err(at)?;
        let context = self.context();
        let work = move |run: &mut TempRun, reply: &mut Reply| {
            run.change_tables(&context, 0, &ddl, &|statement| late.check(statement, true), reply)
        };
        self.temporary_on_thread(number, run, client, work).await?;
        Ok(())
    }

    /// Runs CREATE TABLE AS in a transaction that has changed permanent tables: creates the table, then fills it with a statement
    /// that sees those changes. A mark undoes both together.
    async fn create_as_on_branch(
        &mut self,
        number: usize,
        mut ddl: TempDdl,
        late: LateCheck,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let tables = self.begin_temporary().map_err(at)?;
        let mark = tables.marks();
        tables.set_mark();
        let fill = ddl.steps.pop().unwrap_or_default();
        let (params, fill_report) = (std::mem::take(&mut ddl.params), std::mem::take(&mut ddl.report));
        let made = async {
            let mut run = self.open_temporary(false)?;
            let context = self.context();
            let (made, run) =
                blocking(move || Ok((run.change_tables(&context, 0, &ddl, &|_| Ok(()), &mut Nowhere), run))).await?;
            drop(run);
            made?;
            let fill = tables.prepare(&fill, fill_report)?;
            late.check(&fill, true)?;
            Ok(fill)
        };
        let outcome = match made.await {
            Ok(stmt) => self.run_prepared_as_writer(number, stmt, params, client).await,
            Err(error) => Err(at(error)),
        };
        if outcome.is_err() {
            undo(&tables, mark).await;
        }
        tables.release(mark);
        outcome
    }

    /// Runs work on another thread with the client's reply. Returns the connection's last rowid.
    async fn temporary_on_thread(
        &mut self,
        number: usize,
        mut run: TempRun,
        client: &mut Client,
        work: impl FnOnce(&mut TempRun, &mut Reply) -> SqlResult<()> + Send + 'static,
    ) -> Result<i64, Failure> {
        let at = |e| Failure::at(number, e);
        client.reply().start_at(number);
        let target = Target::Reader(run.interrupt_handle().map_err(at)?);
        let snapshot = run.snapshot();
        let work = move |reply: &mut Reply| {
            let ran = work(&mut run, reply);
            let last = run.last_insert_rowid();
            (ran, last)
        };
        let ((ran, last), timed_out) = self.on_thread(target, client, work).await?;
        self.served.db.until_visible(snapshot).await.map_err(at)?;
        ran.map_err(|e| at(with_reason(e, timed_out)))?;
        Ok(last)
    }

    /// Runs a query into a sink that is not the client's. The inner error returns the sink: the query has to run in the writer.
    pub(super) async fn read_temporary_into<S: Sink>(
        &mut self,
        stmt: &Arc<Statement>,
        params: &[Value],
        mut sink: S,
    ) -> SqlResult<Result<S, S>> {
        let Some(temp) = stmt.temp.clone().filter(|t| !t.changes_main) else { return Ok(Err(sink)) };
        self.begin_implicit();
        self.temporary.touched |= temp.uses;
        if self.on_branch(&temp) {
            self.begin_temporary()?;
            return Ok(Err(sink));
        }
        let mut run = self.open_temporary(temp.main)?;
        let target = Target::Reader(run.interrupt_handle()?);
        let snapshot = run.snapshot();
        let step = EngineStep { stmt: stmt.clone(), params: params.to_vec() };
        let (timeout, context) = (self.settings.timeouts().statement, self.context());
        let work = blocking(move || Ok(run.run(&context, 0, &step, &mut sink).map(|()| sink)));
        let (ran, timed_out) = self.canceller.during(target, timeout, work).await;
        self.served.db.until_visible(snapshot).await?;
        ran?.map(Ok).map_err(|e| with_reason(e, timed_out))
    }

    /// Runs one INSERT into a temporary table for each of the rows, for COPY.
    pub(super) async fn execute_temporary_rows(
        &mut self,
        stmt: &Arc<Statement>,
        rows: Vec<Vec<Value>>,
    ) -> SqlResult<Result<(), (usize, SqlError)>> {
        let mut run = self.open_temporary(false)?;
        let (target, stmt) = (Target::Reader(run.interrupt_handle()?), stmt.clone());
        let work = blocking(move || Ok(run.run_rows(&stmt, rows)));
        self.canceller.during(target, std::time::Duration::ZERO, work).await.0
    }

    /// Runs DISCARD TEMP, which is also a part of DISCARD ALL.
    pub(super) async fn discard_temporary(&mut self) -> SqlResult<()> {
        if self.state.is_idle() {
            self.temporary = TemporaryTables::default();
            return Ok(());
        }
        let here = self.served.db.oid();
        if self.temporary.spaces.iter().any(|s| s.oid != here && !s.tables.is_empty()) {
            let message = "DISCARD TEMP in a transaction, of temporary tables in several databases,";
            return Err(SqlError::unsupported(message));
        }
        if self.temporary.any() {
            let tables = self.begin_temporary()?;
            self.temporary.touched = true;
            blocking(move || tables.drop_all()).await?;
        }
        Ok(())
    }
}

/// A sink that drops everything.
struct Nowhere;

impl Sink for Nowhere {
    fn begin(&mut self, _: usize, _: &Arc<holdfast_types::StatementDesc>) {}
    fn row(&mut self, _: &dyn holdfast_types::Row) -> SqlResult<()> {
        Ok(())
    }
    fn end(&mut self, _: &Tag) {}
    fn reset(&mut self) {}
    fn keep(&mut self) {}
}
