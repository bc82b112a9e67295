//! The session's temporary tables: statements about them, and what the ends of transactions and savepoints do to them.
//!
//! | event | the tables |
//! |---|---|
//! | a statement about them, outside a block | an implicit block begins, and ends with the message |
//! | the first one in a block | a mark is set, and one more for each savepoint that stands |
//! | SAVEPOINT, RELEASE, ROLLBACK TO | another mark; gone; gone back to |
//! | the end of the block, before it is committed | ON COMMIT is done |
//! | committed | the marks are forgotten |
//! | rolled back, or not committed | as they were at the first mark |
//! | DISCARD TEMP, DISCARD ALL, end of the session | gone |
//!
//! Marks are numbered from 0: the block's own, then one for each savepoint. Where a statement runs is said in
//! [`holdfast_engine::temp`]. A block that has only touched temporary tables has written nothing: it waits for nobody, and
//! may be READ ONLY.

use super::state::Phase;
use super::statement::{Source, read_only};
use super::{NodeSession, blocking};
use crate::cancel::{Target, with_reason};
use crate::database::{is_prepared_ahead, report};
use crate::plan::{Extra, complete};
use holdfast_engine::temp::{OnCommit, Snapshot, TempDdl, TempRun, TempSpace, TempUse, not_the_only_writer};
use holdfast_engine::{Report, Statement, Step as EngineStep};
use holdfast_sql::{Entry, Kind, Piece, StatementCache};
use holdfast_types::schema::Schema;
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, Tag, Value};
use holdfast_wire::{Client, Failure, Reply};
use std::sync::Arc;

/// Translated statements kept for a session that has temporary tables.
const CACHE_ENTRIES_MAX: usize = 256;

/// So many bytes of pages are put back on the worker's own thread.
const UNDO_BYTES_AT_ONCE_MAX: u64 = 1 << 20;

/// In one database.
struct Space {
    /// The database's number: another one may get its name.
    oid: u32,
    tables: Arc<TempSpace>,
    cache: StatementCache<Extra>,
}

/// A session's temporary tables.
#[derive(Default)]
pub struct Temporary {
    spaces: Vec<Space>,
    /// The open block has used some.
    pub touched: bool,
}

impl Temporary {
    fn of(&self, oid: u32) -> Option<&Space> {
        self.spaces.iter().find(|s| s.oid == oid)
    }

    /// A schema with those of the database in it.
    pub fn schema(&self, oid: u32, permanent: Arc<Schema>) -> Arc<Schema> {
        match self.of(oid) {
            Some(space) => space.tables.schema(&permanent),
            None => permanent,
        }
    }

    /// There may be some.
    pub fn any(&self) -> bool {
        !self.spaces.is_empty()
    }

    fn marked(&self) -> impl Iterator<Item = &Arc<TempSpace>> {
        self.spaces.iter().map(|s| &s.tables).filter(|t| t.marks() > 0)
    }

    /// A savepoint was set.
    pub fn savepoint(&self) {
        self.marked().for_each(|tables| tables.set_mark());
    }

    /// Savepoint number `at`, from 0, and those after it are gone.
    pub fn release(&self, at: usize) {
        self.marked().for_each(|tables| tables.release(at + 1));
    }

    pub async fn roll_back_to(&self, at: usize) {
        for tables in self.marked() {
            undo(tables, at + 1).await;
        }
    }

    /// The block is about to be committed.
    pub async fn before_commit(&self) -> SqlResult<()> {
        for tables in self.marked().cloned().collect::<Vec<_>>() {
            blocking(move || tables.before_commit()).await?;
        }
        Ok(())
    }

    /// The block is over.
    pub async fn end_transaction(&mut self, committed: bool) {
        self.touched = false;
        for tables in self.marked() {
            if !committed {
                undo(tables, 0).await;
            }
            tables.release(0);
        }
    }
}

/// Goes back to a mark: beside the worker where that takes its time.
async fn undo(tables: &Arc<TempSpace>, mark: usize) {
    if tables.bytes_aside() < UNDO_BYTES_AT_ONCE_MAX {
        return tables.back_to(mark);
    }
    let away = tables.clone();
    // It has no error but that its thread was lost, after which nobody knows what the pages hold.
    let work = move || {
        away.back_to(mark);
        Ok(())
    };
    if blocking(work).await.is_err() {
        tables.lose("the thread that undid a transaction's changes is gone");
    }
}

/// How a statement uses temporary tables.
pub(super) fn temp_use(entry: &Entry<Extra>) -> Option<&TempUse> {
    entry.extra.as_ref()?.temp.as_ref()
}

/// It uses temporary tables and changes no others.
pub(super) fn is_temporary(entry: &Entry<Extra>) -> bool {
    entry.translated.temp.is_some() || temp_use(entry).is_some_and(|t| !t.changes_main)
}

/// 0A000, in PostgreSQL's words.
pub(super) fn not_prepared() -> SqlError {
    let message = "cannot PREPARE a transaction that has operated on temporary objects";
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

impl NodeSession {
    /// Translates and prepares under a schema with temporary tables.
    pub(super) async fn resolve_beside_temporary(
        &mut self,
        piece: &Piece<'_>,
        schema: &Arc<Schema>,
        param_types: &[u32],
    ) -> SqlResult<Arc<Entry<Extra>>> {
        let space = self.temporary.of(self.served.db.oid()).ok_or_else(|| SqlError::internal("no temporary tables"))?;
        let mut writer = match self.state.block().map(|b| &mut b.phase) {
            // It has changed the schema: what it has made nobody else knows.
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
                let (sql, wanted) = (&translated.steps[0], report(&translated));
                let statement = match &mut writer {
                    None => space.tables.prepare(sql, wanted)?,
                    Some(txn) => match txn.prepare_beside(&space.tables, sql, wanted).await {
                        Err(_) if translated.temporary && txn.began_on().is_some() => return Err(not_the_only_writer()),
                        prepared => prepared?,
                    },
                };
                // The statement carries its description, and is prepared once more when that has been completed.
                let described = extra.is_some() || !complete(&mut translated, &statement, schema);
                extra = Some(statement);
                if described {
                    break;
                }
            }
        }
        let cache = if cached { &space.cache } else { &StatementCache::new(1) };
        Ok(cache.insert(piece, schema.epoch, translated, extra))
    }

    /// The tables of the database the session is in, which take part in the open block from now on.
    fn begin_temporary(&mut self) -> SqlResult<Arc<TempSpace>> {
        let oid = self.served.db.oid();
        let tables = match self.temporary.of(oid) {
            Some(space) => space.tables.clone(),
            None => {
                let tables = self.served.db.temp_space(self.scratch.bytes_max);
                let cache = StatementCache::new(CACHE_ENTRIES_MAX);
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

    /// A statement that writes permanent tables and reads temporary ones: it runs as a writer's, but the block has to know.
    pub(super) fn touch_temporary(&mut self, entry: &Entry<Extra>) -> SqlResult<()> {
        let uses = temp_use(entry).is_some_and(|t| t.uses);
        if uses || entry.translated.temporary {
            self.begin_implicit();
            self.begin_temporary()?;
            self.temporary.touched = true;
        }
        Ok(())
    }

    /// The last step of a translation that names temporary tables, prepared for the writer.
    pub(super) async fn prepare_temporary(&mut self, sql: &str, wanted: Report) -> SqlResult<Arc<Statement>> {
        let tables = self.begin_temporary()?;
        self.writer()?.prepare_beside(&tables, sql, wanted).await
    }

    /// Opens a connection on what a statement is to see. `main`: it reads permanent tables.
    fn open_temporary(&mut self, main: bool) -> SqlResult<TempRun> {
        let tables = self.begin_temporary()?;
        let keeps = self.is_reading() && self.state.block().is_some_and(|b| b.keeps_snapshot());
        let mut snapshot = Snapshot::Durable;
        if main && keeps {
            let mut reader = self.block_reader()?;
            snapshot = Snapshot::Held(reader.take_snapshot()?);
            self.keep_reader(Some(reader));
        }
        tables.open(snapshot, self.identity.pid)
    }

    /// Is it a statement that has to see what the transaction has done to permanent tables?
    fn on_branch(&mut self, temp: &TempUse) -> bool {
        temp.main && matches!(self.state.block_ref().map(|b| &b.phase), Some(Phase::Writing(_)))
    }

    /// A statement that uses temporary tables and changes no others.
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
        let params = source.bind(&entry, self).map_err(at)?;
        if let Kind::CopyOut(format) = &entry.translated.kind {
            client.reply().copy_out(super::copy::format(format));
        }
        if self.on_branch(&temp) {
            self.begin_temporary().map_err(at)?;
            return self.run_as_writer(number, &entry, params, client).await;
        }
        let Some(stmt) = entry.extra.clone() else { return Err(at(SqlError::internal("it was not prepared"))) };
        let run = self.open_temporary(temp.main).map_err(at)?;
        let (step, inserts) = (EngineStep { stmt, params }, entry.translated.kind == Kind::Insert);
        let last = self.beside_temporary(number, run, client, move |run, reply| run.run(0, &step, reply)).await?;
        self.last_id = Some(last).filter(|id| inserts && *id != 0).or(self.last_id);
        Ok(())
    }

    /// CREATE, ALTER, DROP and TRUNCATE of temporary tables.
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
            steps: translated.steps.clone(),
            report: report(translated),
            params: source.bind(entry, self).map_err(at)?,
            creates: translated
                .temp
                .as_ref()
                .and_then(|t| t.creates.clone())
                .map(|(name, then)| (name, on_commit(then))),
        };
        if matches!(self.state.block_ref().map(|b| &b.phase), Some(Phase::Writing(_))) && translated.counts {
            return self.create_as_on_branch(number, ddl, client).await;
        }
        let run = self.open_temporary(true).map_err(at)?;
        self.beside_temporary(number, run, client, move |run, reply| run.change_tables(0, &ddl, reply)).await?;
        Ok(())
    }

    /// CREATE TABLE AS in a transaction that has changed permanent tables: the table is made first, then it is filled by a
    /// statement that sees those changes. Together they are undone by a mark.
    async fn create_as_on_branch(
        &mut self,
        number: usize,
        mut ddl: TempDdl,
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
            let (made, run) = blocking(move || Ok((run.change_tables(0, &ddl, &mut Nowhere), run))).await?;
            drop(run);
            made?;
            tables.prepare(&fill, fill_report)
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

    /// Runs something on a thread beside the worker, with the client's reply. Returns the connection's last rowid.
    async fn beside_temporary(
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
        let ((ran, last), timed_out) = self.beside(target, client, work).await?;
        self.served.db.until_durable(snapshot).await.map_err(at)?;
        ran.map_err(|e| at(with_reason(e, timed_out)))?;
        Ok(last)
    }

    /// A query's rows go to a sink that is not the client's. `None`: it has to run as the writer's.
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
        let timeout = self.settings.timeouts().statement;
        let work = blocking(move || Ok(run.run(0, &step, &mut sink).map(|()| sink)));
        let (ran, timed_out) = self.canceller.during(target, timeout, work).await;
        self.served.db.until_durable(snapshot).await?;
        ran?.map(Ok).map_err(|e| with_reason(e, timed_out))
    }

    /// Rows of one INSERT into a temporary table, for COPY.
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

    /// DISCARD TEMP, and a part of DISCARD ALL.
    pub(super) async fn discard_temporary(&mut self) -> SqlResult<()> {
        if self.state.is_idle() {
            self.temporary = Temporary::default();
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

fn on_commit(then: holdfast_sql::OnCommit) -> OnCommit {
    match then {
        holdfast_sql::OnCommit::PreserveRows => OnCommit::PreserveRows,
        holdfast_sql::OnCommit::DeleteRows => OnCommit::DeleteRows,
        holdfast_sql::OnCommit::Drop => OnCommit::Drop,
    }
}

/// Takes what nobody wants to see.
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
