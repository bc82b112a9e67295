//! A client's hold on an interactive transaction: begin, execute, commit or roll back.
//!
//! | state | event | next |
//! |---|---|---|
//! | branch | a statement that a branch can run | branch |
//! | branch | a schema change that a branch can make | branch, with the schema and the tables it is about locked |
//! | branch | any other schema change; a statement on a table with triggers or of a virtual table; very many images | it waits until it is the only writer, and goes on on MAIN with what it has done |
//! | branch | commit | its images are merged; the ticket says how that went |
//! | MAIN | anything | as [`crate::main_txn`] says |
//! | either | dropped, rolled back | nothing of it is left |
//!
//! A transaction that fails to become the only writer (lock_timeout, deadlock, REPEATABLE READ with commits after its
//! snapshot) stays where it was; the statement has failed.

use crate::advisory::Session;
use crate::batch::{BatchDone, OnDone, Ticket};
use crate::branch::{At, Branch, Core, Ended, Interruption, Pin, Presence, Work, schema_lock};
use crate::database::{Inner, next_txn_id};
use crate::locks::{Grant, LockId, LockMode, OwnerId, TableMode, Target};
use crate::main_thread::{Merge, Message, Part, Request, RowsRan, TxnRan};
use crate::main_txn::MainTxn;
use crate::sent_ahead::SentAhead;
use crate::statement::{Class, Report, Statement, Step};
use crate::temp::TempSpace;
use crate::{Batch, Database};
use holdfast_types::schema::Schema;
use holdfast_types::{Level, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::time::Duration;

/// Images beyond this, or beyond an eighth of what the trail takes in one piece, are merged in a boxcar of their own.
const SHARED_BOXCAR_BYTES_MAX: usize = 1 << 20;

/// What a transaction sees of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteIsolation {
    /// Each statement sees the newest durable snapshot and what the transaction has done itself.
    #[default]
    ReadCommitted,
    /// One snapshot for all statements; changing what somebody else has changed since is 40001.
    RepeatableRead,
    /// It is the only writer from its beginning to its end.
    Alone,
}

/// How an interactive transaction behaves.
#[derive(Clone)]
pub struct WriteOptions {
    pub isolation: WriteIsolation,
    /// Longest pause between two of its statements while it is the only writer; 0 is the engine's
    /// [`crate::Options::idle_in_transaction_timeout`].
    pub idle_timeout: Duration,
    /// Longest wait for a lock; 0 is for ever.
    pub lock_timeout: Duration,
    /// The snapshot to keep under REPEATABLE READ, which the caller is holding; `None`: the newest durable one.
    pub snapshot: Option<u64>,
    /// The client's session, which owns advisory locks.
    pub session: Option<Arc<Session>>,
    /// The client's transaction goes over several databases and this is its part in one of them: that of another.
    pub beside: Option<Beside>,
    /// What its commit waits for.
    pub level: Level,
}

/// A part of a transaction over several databases, for [`WriteOptions::beside`]: what one part waits for, all wait for.
#[derive(Clone, Copy, Debug)]
pub struct Beside(pub(crate) OwnerId);

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions {
            isolation: WriteIsolation::default(),
            idle_timeout: Duration::ZERO,
            lock_timeout: Duration::ZERO,
            snapshot: None,
            session: None,
            beside: None,
            level: Level::Cold,
        }
    }
}

enum Place {
    Branch(Branch),
    Main(MainTxn),
    /// It was lost on its way from one to the other.
    Nowhere,
}

/// An open interactive transaction. Dropping it rolls it back.
pub struct WriteTxn {
    inner: Arc<Inner>,
    id: u64,
    place: Place,
    options: WriteOptions,
    whole: Beside,
}

fn lost() -> SqlError {
    SqlError::new(
        SqlState::IN_FAILED_SQL_TRANSACTION,
        "the transaction was backed out as a whole, commands are ignored until its end",
    )
}

fn conflict() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .with_hint("The database has changed since this transaction's first read; run the transaction again.")
}

/// How a statement went that was to run on the branch.
pub(crate) enum Executed {
    Here(TxnRan),
    /// It ran, and the branch has become so large that MAIN has to go on with it.
    TooLarge(TxnRan),
    /// It did not run: only MAIN can.
    Alone(Box<dyn Sink>),
}

impl WriteTxn {
    pub(crate) async fn begin(inner: Arc<Inner>, options: WriteOptions) -> SqlResult<WriteTxn> {
        inner.shared.refuse_on_standby("a transaction that writes")?;
        WriteTxn::begin_as(inner, options, next_txn_id()).await
    }

    /// Under a number that a cancel may already know.
    pub(crate) async fn begin_as(inner: Arc<Inner>, options: WriteOptions, id: u64) -> SqlResult<WriteTxn> {
        let interruption = Arc::new(Interruption::default());
        inner.interruptions.lock().insert(id, interruption.clone());
        let presence = Presence::new(&inner, options.session.clone(), options.beside.map(|b| b.0));
        let core = Core::new(inner.clone(), presence);
        let mut branch = Branch::new(id, core, options.lock_timeout, interruption);
        let alone = options.isolation == WriteIsolation::Alone;
        if !alone {
            branch.lock(database_lock(&inner), LockMode::Shared).await?;
        }
        if options.isolation == WriteIsolation::RepeatableRead {
            branch.lock(schema_lock(&inner), LockMode::Shared).await?;
            let at = match options.snapshot {
                Some(number) if number < inner.schema_number() => return Err(conflict()),
                Some(number) => At::Held(number),
                None => At::Durable,
            };
            let core = branch.core()?;
            core.keep(Pin::new(&inner, at, core.presence.pid()));
        }
        let whole = Beside(branch.core()?.owner());
        let mut txn = WriteTxn { inner, id, place: Place::Branch(branch), options, whole };
        if alone {
            txn.move_to_main().await?;
        }
        Ok(txn)
    }

    /// For the other parts of a transaction over several databases.
    pub fn beside(&self) -> Beside {
        self.whole
    }

    /// For [`Database::interrupt`].
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        match &self.place {
            Place::Branch(branch) => branch.schema(),
            Place::Main(txn) => txn.schema.clone(),
            Place::Nowhere => self.inner.schema.read().clone(),
        }
    }

    /// The snapshot it began on, where it is the only writer: no commit lies between that and what it sees.
    pub fn began_on(&self) -> Option<u64> {
        match &self.place {
            Place::Main(txn) => Some(txn.began_on),
            _ => None,
        }
    }

    /// Longest wait for a lock from now on; 0 is for ever.
    pub fn set_lock_timeout(&mut self, timeout: Duration) {
        self.options.lock_timeout = timeout;
        if let Place::Branch(branch) = &mut self.place {
            branch.lock_timeout = timeout;
        }
    }

    /// What its commit waits for from now on.
    pub fn set_level(&mut self, level: Level) {
        self.options.level = level;
    }

    pub(crate) fn level(&self) -> Level {
        self.options.level
    }

    /// Prepares a statement against the transaction's own schema. Not to be kept beyond the transaction when it
    /// changed the schema.
    pub async fn prepare(&mut self, sql: &str, report: Report) -> SqlResult<Arc<Statement>> {
        match &mut self.place {
            Place::Branch(branch) => match branch.core()?.changes_schema() {
                true => branch.prepare(sql.to_owned(), report, None).await,
                false => Database(self.inner.clone()).prepare(sql, report),
            },
            Place::Main(txn) => txn.prepare(sql, report).await,
            Place::Nowhere => Err(lost()),
        }
    }

    /// The same beside the temporary tables of the session; [`Statement::temp`] says whether it uses them.
    pub async fn prepare_beside(
        &mut self,
        temp: &Arc<TempSpace>,
        sql: &str,
        report: Report,
    ) -> SqlResult<Arc<Statement>> {
        if let Place::Branch(branch) = &mut self.place {
            return match branch.core()?.changes_schema() {
                true => branch.prepare(sql.to_owned(), report, Some(temp.clone())).await,
                false => temp.prepare(sql, report),
            };
        }
        match temp.prepare(sql, report.clone()) {
            Ok(statement) if statement.temp.is_some() => Ok(statement),
            _ => self.prepare(sql, report).await,
        }
    }

    /// Runs one statement. A failure undoes that statement; whether the transaction may go on is the caller's rule.
    pub async fn execute(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        self.execute_as(0, step, sink).await
    }

    /// As statement `number` of its message.
    pub(crate) async fn execute_as(&mut self, number: usize, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        if let Place::Main(_) = self.place {
            return self.execute_on_main(step, sink).await;
        }
        let again = step.clone();
        match self.execute_on_branch(number, step, sink).await? {
            Executed::Here(ran) => Ok(ran),
            Executed::TooLarge(ran) => {
                let moved = self.move_to_main().await;
                Ok(TxnRan { result: ran.result.and(moved), ..ran })
            }
            Executed::Alone(sink) => match self.move_to_main().await {
                Ok(()) => self.execute_on_main(again, sink).await,
                Err(e) => self.ran(sink, Err(e)),
            },
        }
    }

    /// It leaves its branch with more images than this.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) -> SqlResult<()> {
        if let Place::Branch(branch) = &mut self.place {
            branch.core()?.size.bytes_max = bytes_max;
        }
        Ok(())
    }

    /// The same, and never moves to MAIN.
    pub(crate) async fn execute_on_branch(
        &mut self,
        number: usize,
        step: Step,
        sink: Box<dyn Sink>,
    ) -> SqlResult<Executed> {
        let Place::Branch(branch) = &mut self.place else { return Err(lost()) };
        branch.begin_statement();
        if step.stmt.class == Class::Ddl {
            match branch.lock_for(&step.stmt.sql).await {
                Ok(Some(())) => {}
                Ok(None) => return Ok(Executed::Alone(sink)),
                Err(e) => return Ok(Executed::Here(self.ran(sink, Err(e))?)),
            }
        }
        let (ended, work) = branch.run(Work::Statement { number, step, sink }).await?;
        let Work::Statement { sink, .. } = work else { return Err(lost()) };
        let too_large = branch.core()?.is_too_large();
        Ok(match ended {
            Ended::Done if too_large => Executed::TooLarge(self.ran(sink, Ok(()))?),
            Ended::Done => Executed::Here(self.ran(sink, Ok(()))?),
            Ended::Failed(e) => Executed::Here(self.ran(sink, Err(e))?),
            Ended::Alone => Executed::Alone(sink),
        })
    }

    fn ran(&mut self, sink: Box<dyn Sink>, result: SqlResult<()>) -> SqlResult<TxnRan> {
        let last_insert_rowid = match &mut self.place {
            Place::Branch(branch) => branch.core()?.last_insert_rowid,
            _ => 0,
        };
        Ok(TxnRan { sink, result, schema: self.schema(), last_insert_rowid })
    }

    async fn execute_on_main(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        if step.stmt.temp.is_some() {
            return self.ran(sink, Err(crate::temp::not_the_only_writer()));
        }
        let Place::Main(txn) = &mut self.place else { return Err(lost()) };
        txn.execute(step, sink).await
    }

    /// The same on a plain thread.
    pub fn execute_blocking(&mut self, step: Step, sink: Box<dyn Sink>) -> SqlResult<TxnRan> {
        let inner = self.inner.clone();
        inner.shared.tasks.block_on(self.execute(step, sink))
    }

    /// Runs one statement for many rows of parameters; its results are dropped. A failure undoes all of them, and says
    /// which row it was. The outer error means that the transaction is gone.
    pub async fn execute_rows(&mut self, stmt: Arc<Statement>, rows: Vec<Vec<Value>>) -> SqlResult<RowsRan> {
        if let Place::Branch(branch) = &mut self.place {
            branch.begin_statement();
            let (ended, work) = branch.run(Work::Rows { stmt: stmt.clone(), rows, failed: 0 }).await?;
            let Work::Rows { rows, failed, .. } = work else { return Err(lost()) };
            return match ended {
                Ended::Done => Ok(self.not_too_large().await.map_err(|e| (0, e))),
                Ended::Failed(e) => Ok(Err((failed, e))),
                Ended::Alone => match self.move_to_main().await {
                    Ok(()) => Box::pin(self.execute_rows(stmt, rows)).await,
                    Err(e) => Ok(Err((0, e))),
                },
            };
        }
        let Place::Main(txn) = &mut self.place else { return Err(lost()) };
        txn.execute_rows(stmt, rows).await
    }

    async fn not_too_large(&mut self) -> SqlResult<()> {
        let Place::Branch(branch) = &mut self.place else { return Ok(()) };
        if branch.core()?.is_too_large() { self.move_to_main().await } else { Ok(()) }
    }

    /// Waits until it is the only writer, and goes on on MAIN.
    pub(crate) async fn move_to_main(&mut self) -> SqlResult<()> {
        let Place::Branch(branch) = &mut self.place else { return Ok(()) };
        let waited = branch.lock(database_lock(&self.inner), LockMode::Exclusive).await;
        let kept = branch.core()?.kept_snapshot();
        let newest = self.inner.volume().store().newest();
        let stays = waited.err().or_else(|| kept.is_some_and(|s| s != newest).then(conflict));
        if let Some(e) = stays {
            // It may have been granted while the wait was being given up: what waits behind it goes on.
            let owner = branch.core()?.owner();
            self.inner.shared.locks.unlock(owner, database_lock(&self.inner), LockMode::Exclusive);
            return Err(e);
        }
        let Place::Branch(branch) = std::mem::replace(&mut self.place, Place::Nowhere) else { return Err(lost()) };
        let (images, presence) = branch.into_core()?.leave();
        let engines = self.inner.shared.options.idle_in_transaction_timeout;
        let idle = if self.options.idle_timeout.is_zero() { engines } else { self.options.idle_timeout };
        let txn = MainTxn::begin(&self.inner, self.id, idle, images, presence).await?;
        self.place = Place::Main(txn);
        Ok(())
    }

    /// LOCK TABLE. The only writer need not lock anything.
    pub async fn lock_table(&mut self, table: &str, mode: TableMode, no_wait: bool) -> SqlResult<()> {
        let Place::Branch(branch) = &mut self.place else { return Ok(()) };
        branch.begin_statement();
        let map = branch.core()?.map();
        let found = map.tables().iter().find(|t| t.name.eq_ignore_ascii_case(table));
        let Some(found) = found else { return Ok(()) };
        let id = LockId { volume: self.inner.id, target: Target::Table(found.id) };
        let mode = LockMode::Table(mode);
        if !no_wait {
            return branch.lock(id, mode).await;
        }
        match self.inner.shared.locks.try_lock(branch.core()?.owner(), id, mode) {
            Grant::Granted => Ok(()),
            Grant::Blocked => Err(SqlError::new(
                SqlState::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on relation \"{table}\""),
            )),
        }
    }

    pub async fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.place {
            Place::Branch(branch) => branch.core().map(|core| core.set_savepoint(name)),
            Place::Main(txn) => txn.savepoint(name).await,
            Place::Nowhere => Err(lost()),
        }
    }

    pub async fn release(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.place {
            Place::Branch(branch) => branch.core()?.release(name),
            Place::Main(txn) => txn.release(name).await,
            Place::Nowhere => Err(lost()),
        }
    }

    /// A statement has failed and the caller will allow nothing but a return to a savepoint, as PostgreSQL does: gives
    /// back what was locked since the last one.
    pub fn fail(&mut self) {
        if let Place::Branch(branch) = &mut self.place
            && let Ok(core) = branch.core()
        {
            core.fail();
        }
    }

    pub async fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        match &mut self.place {
            Place::Branch(branch) => branch.core()?.rollback_to(name)?,
            Place::Main(txn) => txn.rollback_to(name).await?,
            Place::Nowhere => return Err(lost()),
        }
        Ok(())
    }

    /// Commits. The ticket says when it is durable, or why it was not committed.
    pub fn commit(self, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
        let (done, ticket) = Ticket::new();
        self.commit_with(sink, done)?;
        Ok(ticket)
    }

    pub(crate) fn commit_with(self, sink: Box<dyn Sink>, done: OnDone) -> SqlResult<()> {
        let level = self.options.level;
        match self.place {
            Place::Branch(branch) => merge(&self.inner, self.id, branch, sink, level, done),
            Place::Main(txn) => txn.commit(sink, level, done),
            Place::Nowhere => Err(lost()),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Whether there may be something to commit.
    pub(crate) fn changes(&mut self) -> bool {
        match &mut self.place {
            Place::Branch(branch) => branch.core().map_or(true, |core| core.ops_bytes() > 0),
            Place::Main(_) => true,
            // The commit says that it is lost.
            Place::Nowhere => true,
        }
    }

    /// Who listens to its cancels, on a branch.
    pub(crate) fn interruption(&self) -> Option<Arc<Interruption>> {
        match &self.place {
            Place::Branch(branch) => Some(branch.interruption()),
            Place::Main(_) | Place::Nowhere => None,
        }
    }

    /// Only its locks, of one that has changed nothing.
    pub(crate) fn into_locks(self) -> Option<Presence> {
        match self.place {
            Place::Branch(branch) => branch.into_core().ok().map(|core| core.leave().1),
            Place::Main(_) | Place::Nowhere => None,
        }
    }

    /// PREPARE TRANSACTION under the name `gid`, on behalf of the user `owner`: on the ticket's good answer it stands, with
    /// its locks, until [`Database::finish_prepared`]. Else, and on an error here, it is backed out.
    pub fn prepare_transaction(self, gid: &str, owner: &str) -> SqlResult<Ticket> {
        let level = self.options.level;
        match self.place {
            Place::Branch(branch) => crate::prepared::prepare(&self.inner, *branch.into_core()?, gid, owner, level),
            Place::Main(_) => Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "PREPARE TRANSACTION is not supported for a transaction that is the only writer",
            )
            .with_hint("That is one that changes the schema, writes tables with triggers, or is SERIALIZABLE.")),
            Place::Nowhere => Err(lost()),
        }
    }

    /// Asks its MAIN to commit it together with others ([`crate::commit_together`]).
    pub(crate) fn take_part(self, part: Part) -> SqlResult<()> {
        match self.place {
            Place::Branch(branch) => {
                let (images, presence) = branch.into_core()?.leave();
                let part = Part { images: Some(images.whole()), presence: Some(presence), ..part };
                self.inner.send(Message::Task(Box::new(move |main| main.take_part(part))))
            }
            Place::Main(txn) => txn.take_part(part),
            Place::Nowhere => Err(lost()),
        }
    }

    /// Commits and waits on a plain thread.
    pub fn commit_blocking(self, sink: Box<dyn Sink>) -> SqlResult<BatchDone> {
        let name = self.inner.name.clone();
        self.commit(sink)?.wait().ok_or_else(|| crate::database::closed(&name))
    }

    /// Rolls back and waits until nothing of it is left.
    pub async fn rollback(self) -> SqlResult<()> {
        match self.place {
            Place::Main(txn) => txn.rollback().await,
            Place::Branch(mut branch) => {
                branch.core()?.park();
                Ok(())
            }
            Place::Nowhere => Ok(()),
        }
    }

    /// The database it changes.
    pub fn database(&self) -> Database {
        Database(self.inner.clone())
    }
}

/// Shared by writing branches, exclusive for who has MAIN to itself.
pub(crate) fn database_lock(inner: &Inner) -> LockId {
    LockId { volume: inner.id, target: Target::Database }
}

/// Hands a branch's images to MAIN; its locks go when they are published.
fn merge(
    inner: &Arc<Inner>,
    id: u64,
    branch: Branch,
    sink: Box<dyn Sink>,
    level: Level,
    done: OnDone,
) -> SqlResult<()> {
    let core = branch.into_core()?;
    let (seen, last, changes_schema) = (core.seen, Some(core.last_insert_rowid), core.changes_schema());
    let (images, presence) = core.leave();
    let ops = images.whole();
    if ops.is_empty() {
        drop(presence);
        let result = BatchDone { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: seen };
        inner.when_durable(seen, Box::new(move || done(result)));
        return Ok(());
    }
    let done: OnDone = Box::new(move |mut result| {
        result.last_insert_rowid = last;
        done(result);
    });
    let sends = !changes_schema && ops.len() >= inner.shared.options.sent_ahead_bytes_min;
    let alone = sends
        || changes_schema
        || ops.len() > SHARED_BOXCAR_BYTES_MAX.min(inner.shared.trail.body_bytes_max() as usize / 8);
    let batch = Batch { level, ..Batch::new(Vec::new(), sink) };
    let request = move |images, sent| {
        let merge = Some(Merge { images, sent });
        Message::Batch(Request { id, batch, merge, done, alone, presence: Some(presence) })
    };
    if !sends {
        return inner.send(request(ops, None));
    }
    let committing = inner.clone();
    inner.shared.tasks.spawn_blocking(move || {
        let sent = SentAhead::send(&committing, &ops);
        // An error means that the database is being closed: so is told who waits for the answer, which is never sent.
        committing.send(request(ops, sent)).unwrap_or_default();
    });
    Ok(())
}
