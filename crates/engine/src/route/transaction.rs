//! A client's handle of an interactive transaction: begin, execute, commit or roll back.
//!
//! | state | event | next |
//! |---|---|---|
//! | branch | a statement that a branch can run | branch |
//! | branch | a schema change that a branch can make | branch, with the schema and the tables it is about locked |
//! | branch | any other schema change; a statement on a table with triggers or of a virtual table; very many images | it waits until it is the exclusive writer, and continues in the writer with what it has done |
//! | branch | commit | its images are merged; the ticket says how that went |
//! | the writer | anything | as [`crate::route::exclusive`] says |
//! | either | dropped, rolled back | nothing of it is left |
//!
//! A transaction that fails to become the exclusive writer (lock_timeout, deadlock, REPEATABLE READ with commits after its
//! snapshot) stays where it was; the statement has failed.

use crate::branch::schema_locks::schema_lock;
use crate::branch::state::BranchState;
use crate::branch::temp::{TempSpace, not_the_only_writer};
use crate::branch::waits::{Branch, Ended};
use crate::branch::work::Work;
use crate::route::exclusive::ExclusiveTransaction;
use crate::route::merge::merge;
use crate::route::prepared;
use crate::route::reader::prepare;
use crate::state::advisory::AdvisoryOwner;
use crate::state::database::{DatabaseState, closed, next_txn_id};
use crate::state::interruption::Interruption;
use crate::state::lock_owner::LockOwner;
use crate::state::locks::{Grant, LockId, LockMode, OwnerId, Target};
use crate::state::pin::At;
use crate::state::queue::{Participant, RowsRan, TxnRan, WriterCommand};
use crate::state::submission::{Completion, OnCompletion, Ticket};
use crate::state::taken_ids::Taken;
use crate::statement::model::{Class, Report, Statement, Step};
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::{Level, SessionContext, Sink, SqlError, SqlResult, SqlState, TableLockMode, Value};
use std::sync::Arc;
use std::time::Duration;

/// What a transaction sees of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteIsolation {
    /// Each statement sees the newest visible snapshot and the transaction's own changes.
    #[default]
    ReadCommitted,
    /// One snapshot for all statements; changing what another transaction has changed since is 40001.
    RepeatableRead,
    /// It is the only writer from its beginning to its end.
    Exclusive,
}

/// How an interactive transaction behaves.
#[derive(Clone)]
pub struct WriteOptions {
    pub isolation: WriteIsolation,
    /// Longest pause between two of its statements while it is the only writer; 0 means the engine's
    /// [`crate::Options::idle_in_transaction_timeout`].
    pub idle_timeout: Duration,
    /// Longest wait for a lock; 0 is indefinitely.
    pub lock_timeout: Duration,
    /// The snapshot to keep under REPEATABLE READ, which the caller holds; `None`: the newest visible one.
    pub snapshot: Option<u64>,
    /// The client's session, which owns advisory locks.
    pub advisory_owner: Option<Arc<AdvisoryOwner>>,
    /// The client's transaction goes over several databases and this is its part in one of them: that of another.
    pub part_of: Option<WholeTransaction>,
    /// What its commit waits for.
    pub level: Level,
    /// The roles that the trail names for it.
    pub author: Option<Arc<Author>>,
}

/// A part of a transaction over several databases, for [`WriteOptions::part_of`]: what one part waits for, all wait for.
#[derive(Clone, Copy, Debug)]
pub struct WholeTransaction(pub(crate) OwnerId);

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            isolation: WriteIsolation::default(),
            idle_timeout: Duration::ZERO,
            lock_timeout: Duration::ZERO,
            snapshot: None,
            advisory_owner: None,
            part_of: None,
            level: Level::Local,
            author: None,
        }
    }
}

enum Mode {
    Branch(Branch),
    Exclusive(ExclusiveTransaction),
    /// It was lost while it moved from one to the other.
    Lost,
}

/// An open interactive transaction. Dropping it rolls it back.
pub struct WriteTxn {
    database: Arc<DatabaseState>,
    id: u64,
    mode: Mode,
    options: WriteOptions,
    whole: WholeTransaction,
    /// The ids that the statement at work has taken, also before this transaction began.
    pub(crate) ids: Arc<Taken>,
}

fn lost() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "the transaction was rolled back as a whole, commands are ignored until its end",
    )
}

fn conflict() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .with_hint("The database has changed since this transaction's first read; run the transaction again.")
}

/// The outcome of a statement that was to run on the branch.
pub(crate) enum Executed {
    Here(TxnRan),
    /// It ran, and the branch has become so large that it has to continue in the writer.
    TooLarge(TxnRan),
    /// It did not run: only the writer can run it.
    NeedsExclusive(Box<dyn Sink>),
}

impl WriteTxn {
    pub(crate) async fn begin(database: Arc<DatabaseState>, options: WriteOptions) -> SqlResult<WriteTxn> {
        database.engine.refuse_on_standby("a transaction that writes")?;
        WriteTxn::begin_as(database, options, next_txn_id()).await
    }

    /// Begins under a number that a cancel may already know.
    pub(crate) async fn begin_as(database: Arc<DatabaseState>, options: WriteOptions, id: u64) -> SqlResult<WriteTxn> {
        let interruption = Arc::new(Interruption::default());
        database.interruptions.lock().insert(id, interruption.clone());
        let lock_owner = database.lock_owner(options.advisory_owner.clone(), options.part_of.map(|b| b.0));
        let state = BranchState::new(database.clone(), lock_owner);
        let mut branch = Branch::new(id, state, options.lock_timeout, interruption);
        let exclusive = options.isolation == WriteIsolation::Exclusive;
        if !exclusive {
            branch.lock(database.database_lock(), LockMode::Shared).await?;
        }
        if options.isolation == WriteIsolation::RepeatableRead {
            branch.lock(schema_lock(&database), LockMode::Shared).await?;
            let at = match options.snapshot {
                Some(number) if number < database.schema_number() => return Err(conflict()),
                Some(number) => At::Held(number),
                None => At::ForWriting,
            };
            let state = branch.state()?;
            state.keep(database.pin(at, state.lock_owner.pid()));
        }
        let whole = WholeTransaction(branch.state()?.owner());
        let mut txn = WriteTxn { database, id, mode: Mode::Branch(branch), options, whole, ids: Arc::default() };
        if exclusive {
            txn.become_exclusive().await?;
        }
        Ok(txn)
    }

    /// For the other parts of a transaction over several databases.
    pub fn whole(&self) -> WholeTransaction {
        self.whole
    }

    /// For `Database::interrupt`.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        match &self.mode {
            Mode::Branch(branch) => branch.schema(),
            Mode::Exclusive(txn) => txn.schema.clone(),
            Mode::Lost => self.database.schema.read().clone(),
        }
    }

    /// The snapshot it began on, if it is the only writer: no commit comes between that and what it sees.
    pub fn began_on(&self) -> Option<u64> {
        match &self.mode {
            Mode::Exclusive(txn) => Some(txn.began_on),
            _ => None,
        }
    }

    /// Longest wait for a lock from now on; 0 is indefinitely.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.options.lock_timeout = timeout;
        if let Mode::Branch(branch) = &mut self.mode {
            branch.lock_timeout = timeout;
        }
    }

    /// Sets the level that its commit waits for.
    pub fn set_level(&mut self, level: Level) {
        self.options.level = level;
    }

    /// Sets the roles that the trail names for the whole of it.
    pub fn set_author(&mut self, author: Arc<Author>) {
        self.options.author = Some(author);
    }

    pub(crate) fn level(&self) -> Level {
        self.options.level
    }

    /// Prepares a statement against the transaction's own schema. Do not keep it beyond the transaction if that changed
    /// the schema.
    pub async fn prepare(&mut self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        match &mut self.mode {
            Mode::Branch(branch) => match branch.state()?.changes_schema() {
                true => branch.prepare(sql.to_owned(), report, None).await,
                false => prepare(&self.database, sql, report),
            },
            Mode::Exclusive(txn) => txn.prepare(sql, report).await,
            Mode::Lost => Err(lost()),
        }
    }

    /// Prepares a statement that may use the temporary tables of the session; [`Statement::temp`] tells whether it does.
    pub async fn prepare_beside(
        &mut self,
        temp: &Arc<TempSpace>,
        sql: &str,
        report: Report,
    ) -> SqlResult<Arc<Statement>> {
        if let Mode::Branch(branch) = &mut self.mode {
            return match branch.state()?.changes_schema() {
                true => branch.prepare(sql.to_owned(), report, Some(temp.clone())).await,
                false => temp.prepare(sql, report),
            };
        }
        match temp.prepare(sql, report.clone()) {
            Ok(statement) if statement.temp.is_some() => Ok(statement),
            _ => self.prepare(sql, report).await,
        }
    }

    /// Runs one statement that no session sends. A failure undoes that statement; whether the transaction may continue is the
    /// caller's rule.
    pub async fn execute(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        self.execute_for(SessionContext::NONE, step, sink).await
    }

    /// Runs one statement of a session, as [`WriteTxn::execute`] does.
    pub async fn execute_for(&mut self, context: SessionContext, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        self.ids = Arc::default();
        self.execute_as(0, step, context, sink).await
    }

    /// Runs one statement as number `number` of its message.
    pub(crate) async fn execute_as(
        &mut self,
        number: usize,
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
    ) -> SqlResult<TxnRan> {
        if let Mode::Exclusive(_) = self.mode {
            return self.execute_exclusively(step, context, sink).await;
        }
        let again = step.clone();
        match self.execute_on_branch(number, step, context.clone(), sink).await? {
            Executed::Here(ran) => Ok(ran),
            Executed::TooLarge(ran) => {
                let moved = self.become_exclusive().await;
                Ok(TxnRan { result: ran.result.and(moved), ..ran })
            }
            Executed::NeedsExclusive(sink) => match self.become_exclusive().await {
                Ok(()) => self.execute_exclusively(again, context, sink).await,
                Err(e) => self.ran(sink, Err(e)),
            },
        }
    }

    /// Runs one statement, and never moves to the writer.
    pub(crate) async fn execute_on_branch(
        &mut self,
        number: usize,
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
    ) -> SqlResult<Executed> {
        let Mode::Branch(branch) = &mut self.mode else { return Err(lost()) };
        branch.begin_statement();
        if step.stmt.class == Class::Ddl {
            match branch.lock_for(&step.stmt.report).await {
                Ok(Some(())) => {}
                Ok(None) => return Ok(Executed::NeedsExclusive(sink)),
                Err(e) => return Ok(Executed::Here(self.ran(sink, Err(e))?)),
            }
        }
        let (ended, work) = branch.run(Work::Statement { number, step, context, sink, ids: self.ids.clone() }).await?;
        let Work::Statement { sink, .. } = work else { return Err(lost()) };
        let too_large = branch.state()?.is_too_large();
        Ok(match ended {
            Ended::Done if too_large => Executed::TooLarge(self.ran(sink, Ok(()))?),
            Ended::Done => Executed::Here(self.ran(sink, Ok(()))?),
            Ended::Failed(e) => Executed::Here(self.ran(sink, Err(e))?),
            Ended::NeedsExclusive => Executed::NeedsExclusive(sink),
        })
    }

    fn ran(&mut self, sink: Box<dyn Sink>, result: SqlResult<()>) -> SqlResult<TxnRan> {
        let last_insert_rowid = match &mut self.mode {
            Mode::Branch(branch) => branch.state()?.last_insert_rowid,
            _ => 0,
        };
        Ok(TxnRan { sink, result, schema: self.schema(), last_insert_rowid })
    }

    async fn execute_exclusively(
        &mut self,
        step: Step,
        context: SessionContext,
        sink: Box<dyn Sink>,
    ) -> SqlResult<TxnRan> {
        if step.stmt.temp.is_some() {
            return self.ran(sink, Err(not_the_only_writer()));
        }
        let Mode::Exclusive(txn) = &mut self.mode else { return Err(lost()) };
        txn.execute(step, context, sink, self.ids.clone()).await
    }

    /// [`WriteTxn::execute`] on a plain thread.
    pub fn execute_blocking(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        let database = self.database.clone();
        database.engine.tasks.block_on(self.execute(step, sink))
    }

    /// Runs one statement for many rows of parameters; its results are dropped. A failure undoes all of them and names
    /// the row. The outer error means that the transaction is gone.
    pub async fn execute_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> SqlResult<RowsRan> {
        self.ids = Arc::default();
        self.run_rows(stmt, rows).await
    }

    async fn run_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> SqlResult<RowsRan> {
        let ids = self.ids.clone();
        if let Mode::Branch(branch) = &mut self.mode {
            branch.begin_statement();
            let (ended, work) = branch.run(Work::Rows { stmt: stmt.clone(), rows, failed: 0, ids }).await?;
            let Work::Rows { rows, failed, .. } = work else { return Err(lost()) };
            return match ended {
                Ended::Done => Ok(self.not_too_large().await.map_err(|e| (0, e))),
                Ended::Failed(e) => Ok(Err((failed, e))),
                Ended::NeedsExclusive => match self.become_exclusive().await {
                    Ok(()) => Box::pin(self.run_rows(stmt, rows)).await,
                    Err(e) => Ok(Err((0, e))),
                },
            };
        }
        let Mode::Exclusive(txn) = &mut self.mode else { return Err(lost()) };
        txn.execute_rows(stmt, rows, ids).await
    }

    async fn not_too_large(&mut self) -> SqlResult<()> {
        let Mode::Branch(branch) = &mut self.mode else { return Ok(()) };
        if branch.state()?.is_too_large() { self.become_exclusive().await } else { Ok(()) }
    }

    /// Waits until it is the exclusive writer, and continues in the writer.
    pub(crate) async fn become_exclusive(&mut self) -> SqlResult<()> {
        let Mode::Branch(branch) = &mut self.mode else { return Ok(()) };
        let waited = branch.lock(self.database.database_lock(), LockMode::Exclusive).await;
        let kept = branch.state()?.kept_snapshot();
        let newest = self.database.volume().store().newest();
        let stays = waited.err().or_else(|| kept.is_some_and(|s| s != newest).then(conflict));
        if let Some(e) = stays {
            // It may have been granted while the wait was being given up: what waits behind it continues.
            let owner = branch.state()?.owner();
            self.database.engine.locks.unlock(owner, self.database.database_lock(), LockMode::Exclusive);
            return Err(e);
        }
        let Mode::Branch(branch) = std::mem::replace(&mut self.mode, Mode::Lost) else { return Err(lost()) };
        let (images, lock_owner) = branch.into_state()?.leave();
        let engines = self.database.engine.options.idle_in_transaction_timeout;
        // While it is open no other session can write: a session may shorten the time, and not lengthen it.
        let idle = if self.options.idle_timeout.is_zero() { engines } else { engines.min(self.options.idle_timeout) };
        let txn = ExclusiveTransaction::begin(&self.database, self.id, idle, images, lock_owner).await?;
        self.mode = Mode::Exclusive(txn);
        Ok(())
    }

    /// The images of everything it has changed so far, also by foreign keys and triggers: those that a commit would write
    /// now. It becomes the exclusive writer first, because on a branch the effects of foreign keys are not recorded, and
    /// because nothing may come between these images and the commit.
    pub async fn changes_so_far(&mut self) -> SqlResult<Vec<u8>> {
        self.become_exclusive().await?;
        let Mode::Exclusive(txn) = &self.mode else { return Err(lost()) };
        txn.changes().await
    }

    /// LOCK TABLE. The only writer need not lock anything.
    pub async fn lock_table(&mut self, table: &str, mode: TableLockMode, no_wait: bool) -> SqlResult<()> {
        let Mode::Branch(branch) = &mut self.mode else { return Ok(()) };
        branch.begin_statement();
        branch.take_up().await?;
        let map = branch.state()?.map();
        let found = map.tables().iter().find(|t| t.name.eq_ignore_ascii_case(table));
        let Some(found) = found else { return Ok(()) };
        let id = LockId { volume: self.database.id, target: Target::Table(found.id) };
        let mode = LockMode::Table(mode);
        if !no_wait {
            branch.lock(id, mode).await?;
        } else if self.database.engine.locks.try_lock(branch.state()?.owner(), id, mode) == Grant::Blocked {
            let message = format!("could not obtain lock on relation \"{table}\"");
            return Err(SqlError::new(SqlState::LOCK_NOT_AVAILABLE, message));
        }
        branch.sees_all_before().await
    }

    pub async fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.mode {
            Mode::Branch(branch) => {
                // A return to the savepoint releases what was locked after it, which must not be this one.
                branch.take_up().await?;
                branch.state().map(|state| state.set_savepoint(name))
            }
            Mode::Exclusive(txn) => txn.savepoint(name).await,
            Mode::Lost => Err(lost()),
        }
    }

    pub async fn release(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.mode {
            Mode::Branch(branch) => branch.state()?.release(name),
            Mode::Exclusive(txn) => txn.release(name).await,
            Mode::Lost => Err(lost()),
        }
    }

    /// Releases what was locked since the last savepoint: a statement has failed and the caller will allow only a
    /// return to a savepoint, as PostgreSQL does.
    pub fn fail(&mut self) {
        if let Mode::Branch(branch) = &mut self.mode
            && let Ok(state) = branch.state()
        {
            state.fail();
        }
    }

    pub async fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.mode {
            Mode::Branch(branch) => branch.state()?.rollback_to(name)?,
            Mode::Exclusive(txn) => txn.rollback_to(name).await?,
            Mode::Lost => return Err(lost()),
        }
        Ok(())
    }

    /// Commits. The ticket reports when it is durable, or why it was not committed.
    pub fn commit(self, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
        let (done, ticket) = Ticket::new();
        self.commit_with(sink, done)?;
        Ok(ticket)
    }

    pub(crate) fn commit_with(self, sink: Box<dyn Sink>, done: OnCompletion) -> SqlResult<()> {
        let WriteOptions { level, author, .. } = self.options;
        match self.mode {
            Mode::Branch(branch) => merge(&self.database, self.id, branch, sink, (level, author), done),
            Mode::Exclusive(txn) => txn.commit(sink, level, author, done),
            Mode::Lost => Err(lost()),
        }
    }

    pub(crate) fn state(&self) -> &Arc<DatabaseState> {
        &self.database
    }

    /// Whether there may be something to commit.
    pub(crate) fn changes(&mut self) -> bool {
        match &mut self.mode {
            Mode::Branch(branch) => branch.state().map_or(true, |state| state.ops_bytes() > 0),
            Mode::Exclusive(_) => true,
            // The commit reports that it is lost.
            Mode::Lost => true,
        }
    }

    /// What its cancels reach, on a branch.
    pub(crate) fn interruption(&self) -> Option<Arc<Interruption>> {
        match &self.mode {
            Mode::Branch(branch) => Some(branch.interruption()),
            Mode::Exclusive(_) | Mode::Lost => None,
        }
    }

    /// Releases its locks; it has changed nothing.
    pub(crate) fn into_locks(self) -> Option<LockOwner> {
        match self.mode {
            Mode::Branch(branch) => branch.into_state().ok().map(|state| state.leave().1),
            Mode::Exclusive(_) | Mode::Lost => None,
        }
    }

    /// PREPARE TRANSACTION under the name `gid`, on behalf of the user `owner`: after the good answer of the ticket it is prepared, with
    /// its locks, until `Database::finish_prepared`. Else, and on an error here, it is backed out.
    pub fn prepare_transaction(self, gid: &str, owner: &str) -> SqlResult<Ticket> {
        let WriteOptions { level, author, .. } = self.options;
        match self.mode {
            Mode::Branch(branch) => {
                prepared::prepare(&self.database, *branch.into_state()?, (gid, owner), level, author)
            }
            Mode::Exclusive(_) => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "PREPARE TRANSACTION is not supported for a transaction that is the only writer",
            )
            .with_hint("Such a transaction changes the schema, writes tables with triggers, or is SERIALIZABLE.")),
            Mode::Lost => Err(lost()),
        }
    }

    /// Makes its writer commit it together with others ([`crate::multi_database_commit`]).
    pub(crate) fn participate(self, participant: Participant) -> SqlResult<()> {
        let participant = Participant { author: self.options.author, ..participant };
        match self.mode {
            Mode::Branch(branch) => {
                let (images, lock_owner) = branch.into_state()?.leave();
                let participant =
                    Participant { images: Some(images.whole()), lock_owner: Some(lock_owner), ..participant };
                self.database.send(WriterCommand::Participate(participant))
            }
            Mode::Exclusive(txn) => txn.participate(participant),
            Mode::Lost => Err(lost()),
        }
    }

    /// Commits and waits on a plain thread.
    pub fn commit_blocking(self, sink: Box<dyn Sink>) -> SqlResult<Completion> {
        let name = self.database.name.clone();
        self.commit(sink)?.wait().ok_or_else(|| closed(&name))
    }

    /// Rolls back and waits until it has left no trace.
    pub async fn rollback(self) -> SqlResult<()> {
        match self.mode {
            Mode::Exclusive(txn) => txn.rollback().await,
            Mode::Branch(mut branch) => {
                branch.state()?.park();
                Ok(())
            }
            Mode::Lost => Ok(()),
        }
    }
}
