//! A branch and its waits: for locks, for a batch to be published, for what it saw to become visible to readers.

use super::schema_locks::{locks_for, schema_lock};
use super::state::BranchState;
use super::work::{Attempt, Work};
use crate::branch::temp::TempSpace;
use crate::state::database::DatabaseState;
use crate::state::interruption::{Interruption, cancelled};
use crate::state::locks::{Grant, LockId, LockMode, OwnerId, Target};
use crate::statement::model::{Report, Statement};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this many restarts of one statement it is given up: something is wrong, as each one holds more locks.
const RESTARTS_MAX: usize = 10_000;

/// A transaction that waits for the database exclusively keeps new writers waiting this long at first.
const IN_THE_WAY_MAX: Duration = Duration::from_secs(1);

/// Then the new writers go first for this long.
const ASIDE: Duration = Duration::from_millis(500);

fn lost() -> SqlError {
    SqlError::internal("the thread that ran the statement is gone, and the transaction with it")
}

/// How a statement ended.
pub enum Ended {
    Done,
    Failed(SqlError),
    /// Only the writer can run it.
    NeedsExclusive,
}

/// An open transaction on a branch.
pub struct Branch {
    id: u64,
    /// Absent while a statement runs on another thread.
    state: Option<Box<BranchState>>,
    pub lock_timeout: Duration,
    interruption: Arc<Interruption>,
    database: Arc<DatabaseState>,
}

impl Branch {
    pub fn new(id: u64, state: BranchState, lock_timeout: Duration, interruption: Arc<Interruption>) -> Branch {
        let database = state.database.clone();
        Branch { id, state: Some(Box::new(state)), lock_timeout, interruption, database }
    }

    pub fn state(&mut self) -> SqlResult<&mut BranchState> {
        self.state.as_deref_mut().ok_or_else(lost)
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        self.state.as_deref().map_or_else(|| self.database.schema.read().clone(), BranchState::schema)
    }

    /// Runs the work until it is done or has failed for good, then waits until everything that it saw is visible to readers, so that it cannot be lost.
    pub async fn run(&mut self, mut work: Work) -> SqlResult<(Ended, Work)> {
        if let Err(e) = self.take_up().await {
            return Ok((Ended::Failed(e), work));
        }
        let mut ended = Ended::Failed(SqlError::internal("the statement was restarted too often"));
        for _ in 0..RESTARTS_MAX {
            if let Err(e) = self.interruption.check() {
                ended = Ended::Failed(e);
                break;
            }
            let attempt;
            (attempt, work) = self.on_a_thread(work).await?;
            let again = match attempt {
                Attempt::Done => {
                    ended = Ended::Done;
                    break;
                }
                Attempt::Failed(e) => Err(e),
                Attempt::NeedsExclusive => {
                    work.reset();
                    ended = Ended::NeedsExclusive;
                    break;
                }
                Attempt::Blocked(id, mode) => self.lock(id, mode).await,
                Attempt::Stale(number) => {
                    self.database.engine.stats.restart();
                    self.published(number).await;
                    Ok(())
                }
            };
            match again {
                Ok(()) => {
                    work.reset();
                    self.state()?.newest = true;
                }
                Err(e) => {
                    ended = Ended::Failed(e);
                    break;
                }
            }
        }
        self.until_visible().await?;
        Ok((ended, work))
    }

    /// Runs a bounded statement on this thread, others on a thread that may take its time.
    async fn on_a_thread(&mut self, mut work: Work) -> SqlResult<(Attempt, Work)> {
        let mut state = self.state.take().ok_or_else(lost)?;
        let bounded = match &work {
            Work::Statement { step, .. } => step.is_bounded(),
            Work::Rows { .. } => false,
        };
        if bounded {
            state.on_a_network_thread = true;
            let attempt = state.attempt(&mut work, &self.interruption);
            state.on_a_network_thread = false;
            match attempt {
                // Too large for this thread, for a value or a row that it reads.
                Attempt::Failed(e) if e.state() == SqlState::PROGRAM_LIMIT_EXCEEDED => work.reset(),
                attempt => {
                    self.state = Some(state);
                    return Ok((attempt, work));
                }
            }
        }
        let interruption = self.interruption.clone();
        let thread = self.database.engine.tasks.spawn_blocking(move || {
            let attempt = state.attempt(&mut work, &interruption);
            (state, attempt, work)
        });
        let (state, attempt, work) = thread.await.map_err(|_| lost())?;
        self.state = Some(state);
        Ok((attempt, work))
    }

    /// Waits for the locks of a schema change. `None` if only the writer can run it.
    pub async fn lock_for(&mut self, report: &Report) -> SqlResult<Option<()>> {
        self.take_up().await?;
        // Judged before any lock is taken: what needs the exclusive writer must not hold one on its way there.
        let state = self.state()?;
        if locks_for(report, &state.map(), &state.schema()).is_none() {
            return Ok(None);
        }
        // Before it reads the schema, which stays as it is from then on.
        self.lock_in_place(schema_lock(&self.database), LockMode::Exclusive).await?;
        let state = self.state()?;
        let Some(locks) = locks_for(report, &state.map(), &state.schema()) else { return Ok(None) };
        for (table, mode) in locks {
            let id = LockId { volume: self.database.id, target: Target::Table(table) };
            self.lock_in_place(id, LockMode::Table(mode)).await?;
        }
        Ok(Some(()))
    }

    /// Takes a lock. If it has to wait, it releases its connection, and afterwards sees the changes of the transactions
    /// that it waited for.
    async fn lock_in_place(&mut self, id: LockId, mode: LockMode) -> SqlResult<()> {
        let owner = self.state()?.owner();
        if self.database.engine.locks.try_lock(owner, id, mode) == Grant::Blocked {
            self.lock(id, mode).await?;
            self.state()?.newest = true;
        }
        Ok(())
    }

    /// Prepares a statement against the transaction's own schema, and the temporary tables of its session.
    pub async fn prepare(
        &mut self,
        sql: String,
        report: Report,
        temp: Option<Arc<TempSpace>>,
    ) -> SqlResult<Arc<Statement>> {
        let mut state = self.state.take().ok_or_else(lost)?;
        // Replaying its images may take some time.
        let thread = self.database.engine.tasks.spawn_blocking(move || {
            let prepared = state.prepare(&sql, report, temp.as_ref());
            (state, prepared)
        });
        let (state, prepared) = thread.await.map_err(|_| lost())?;
        self.state = Some(state);
        prepared
    }

    /// Waits for a lock, as long as lock_timeout allows and until it is cancelled. While it waits for an advisory lock the exclusive
    /// writer may work ([`crate::state::locks`], `aside`).
    pub async fn lock(&mut self, id: LockId, mode: LockMode) -> SqlResult<()> {
        let state = self.state()?;
        let owner = state.waits_as(id);
        state.park();
        let is_advisory = matches!(id.target, Target::Advisory { .. });
        if is_advisory {
            state.put_aside();
        }
        let mut waited = wait_for(&self.database, owner, id, mode, self.lock_timeout, &self.interruption).await;
        if is_advisory && waited.is_ok() {
            waited = self.take_up().await;
        }
        if is_advisory && waited.is_err() {
            // It may have been granted: the statement fails, and does not get it.
            self.database.engine.locks.unlock(owner, id, mode);
        }
        waited?;
        self.state()?.got(id, mode);
        Ok(())
    }

    /// Takes up the share of the database's lock that was put aside, before anything else is locked or read.
    pub async fn take_up(&mut self) -> SqlResult<()> {
        let state = self.state()?;
        if !state.is_aside {
            return Ok(());
        }
        let (owner, id) = (state.owner(), self.database.database_lock());
        if self.database.engine.locks.take_up(owner, id, LockMode::Shared) == Grant::Blocked {
            wait_for(&self.database, owner, id, LockMode::Shared, self.lock_timeout, &self.interruption).await?;
        }
        let state = self.state()?;
        (state.is_aside, state.newest) = (false, true);
        Ok(())
    }

    /// The next statement sees everything that was published by those who held a lock before that the transaction has now. Locks are
    /// released when a batch is published, long before it is durable; and the writer holds none while it works at one.
    pub async fn sees_all_before(&mut self) -> SqlResult<()> {
        if let Some(end) = self.database.engine.locks.wait_for_batch(self.database.id, None) {
            tokio::select! {
                _ = end => {}
                () = self.interruption.interrupted() => return Err(cancelled()),
            }
        }
        self.state()?.newest = true;
        Ok(())
    }

    /// Waits until the batch is published or rolled back. This is short: the writer is working on it.
    async fn published(&mut self, number: u64) {
        let end = self.database.engine.locks.wait_for_batch(self.database.id, Some(number));
        if let Some(end) = end {
            // An error means that the lock manager is gone, and everything with it.
            end.await.unwrap_or_default();
        }
    }

    /// Guarantee 2: no answer depends on a commit that could still be lost.
    pub async fn until_visible(&mut self) -> SqlResult<()> {
        let seen = self.state()?.seen;
        self.database.until_visible(seen).await
    }

    /// What its cancels reach.
    pub fn interruption(&self) -> Arc<Interruption> {
        self.interruption.clone()
    }

    /// Drops a cancel that arrived for an earlier statement.
    pub fn begin_statement(&self) {
        self.interruption.forget();
    }

    /// The transaction leaves its branch.
    pub fn into_state(mut self) -> SqlResult<Box<BranchState>> {
        self.state.take().ok_or_else(lost)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if let Some(state) = &mut self.state {
            state.back_to_schema(None);
        }
        self.database.interruptions.lock().remove(&self.id);
    }
}

/// Takes a lock; waits for it for at most `timeout` (0: indefinitely), or until it is cancelled.
///
/// A transaction that wants the database exclusively keeps every new writer out while it is in the queue, and an open
/// transaction that idles may keep it there for long: so it leaves the queue now and then and lets them pass, each time
/// after a longer stay, so that its turn comes.
pub async fn wait_for(
    database: &DatabaseState,
    owner: OwnerId,
    id: LockId,
    mode: LockMode,
    timeout: Duration,
    interruption: &Interruption,
) -> SqlResult<()> {
    let locks = &database.engine.locks;
    let everybody = id.target == Target::Database && mode == LockMode::Exclusive;
    let end = (!timeout.is_zero()).then(|| Instant::now() + timeout);
    let timed_out = || {
        locks.timed_out();
        SqlError::new(SqlState::LOCK_NOT_AVAILABLE, "canceling statement due to lock timeout")
    };
    let mut waited = false;
    let mut patience = IN_THE_WAY_MAX;
    loop {
        let Some(mut wait) = locks.lock_or_wait(owner, id, mode)? else { return Ok(()) };
        if !std::mem::replace(&mut waited, true) {
            database.engine.stats.lock_wait();
        }
        let in_queue = everybody.then(|| Instant::now() + patience);
        patience *= 2;
        tokio::select! {
            biased;
            granted = &mut wait.granted => return granted.map_err(|_| SqlError::internal("a lock's queue was lost")),
            () = interruption.interrupted() => return Err(cancelled()),
            () = at(end) => return Err(timed_out()),
            () = at(in_queue) => {}
        }
        drop(wait);
        tokio::select! {
            () = interruption.interrupted() => return Err(cancelled()),
            () = at(end) => return Err(timed_out()),
            () = tokio::time::sleep(ASIDE) => {}
        }
    }
}

/// Waits indefinitely for `None`.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
