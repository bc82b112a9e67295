//! A branch with its waits: for locks, for a boxcar to be published, for what it saw to be durable.

use super::core::{Attempt, Core, Work};
use super::schema::{locks_for, schema_lock};
use crate::database::Inner;
use crate::locks::{Grant, LockId, LockMode, OwnerId, Target};
use crate::statement::{Report, Statement};
use crate::temp::TempSpace;
use holdfast_store::sqlite::InterruptHandle;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// After so many restarts of one statement it is given up: something is wrong, as each one holds more locks.
const RESTARTS_MAX: usize = 10_000;

/// Who waits for the database to be his alone keeps new writers waiting so long at first.
const IN_THE_WAY_MAX: Duration = Duration::from_secs(1);

/// Then they go first for this long.
const ASIDE: Duration = Duration::from_millis(500);

/// What a cancel may interrupt. Entered by transaction id while a statement runs.
#[derive(Default)]
pub struct Interruption {
    /// The connection that runs the statement at this moment.
    running: Mutex<Option<Arc<InterruptHandle>>>,
    cancelled: AtomicBool,
    waiting: Notify,
}

impl Interruption {
    pub fn interrupt(&self) {
        self.cancelled.store(true, Ordering::Release);
        if let Some(handle) = &*self.running.lock() {
            handle.interrupt();
        }
        self.waiting.notify_one();
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.check().is_err()
    }

    /// Ends when a cancel has come. One that came for an earlier statement may have left a notification behind.
    async fn interrupted(&self) {
        while self.check().is_ok() {
            self.waiting.notified().await;
        }
    }

    fn check(&self) -> SqlResult<()> {
        if self.cancelled.load(Ordering::Acquire) { Err(cancelled()) } else { Ok(()) }
    }
}

pub fn cancelled() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request")
}

fn lost() -> SqlError {
    SqlError::internal("the thread that ran the statement is gone, and the transaction with it")
}

/// How a statement ended.
pub enum Ended {
    Done,
    Failed(SqlError),
    /// Only MAIN can run it.
    Alone,
}

/// An open transaction on a branch.
pub struct Branch {
    id: u64,
    /// Away while a statement runs on another thread.
    core: Option<Box<Core>>,
    pub lock_timeout: Duration,
    interruption: Arc<Interruption>,
    inner: Arc<Inner>,
}

impl Branch {
    pub fn new(id: u64, core: Core, lock_timeout: Duration, interruption: Arc<Interruption>) -> Branch {
        let inner = core.inner.clone();
        Branch { id, core: Some(Box::new(core)), lock_timeout, interruption, inner }
    }

    pub fn core(&mut self) -> SqlResult<&mut Core> {
        self.core.as_deref_mut().ok_or_else(lost)
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        self.core.as_deref().map_or_else(|| self.inner.schema.read().clone(), Core::schema)
    }

    /// Runs the work until it is done or has failed for good, then waits until everything it saw is durable.
    pub async fn run(&mut self, mut work: Work) -> SqlResult<(Ended, Work)> {
        let mut ended = Ended::Failed(SqlError::internal("the statement was begun again too often"));
        for _ in 0..RESTARTS_MAX {
            if let Err(e) = self.interruption.check() {
                ended = Ended::Failed(e);
                break;
            }
            let attempt;
            (attempt, work) = self.attempt(work).await?;
            let again = match attempt {
                Attempt::Done => {
                    ended = Ended::Done;
                    break;
                }
                Attempt::Failed(e) => Err(e),
                Attempt::Alone => {
                    work.reset();
                    ended = Ended::Alone;
                    break;
                }
                Attempt::Blocked(id, mode) => self.lock(id, mode).await,
                Attempt::Stale(number) => {
                    self.inner.shared.stats.restart();
                    self.published(number).await;
                    Ok(())
                }
            };
            match again {
                Ok(()) => {
                    work.reset();
                    self.core()?.newest = true;
                }
                Err(e) => {
                    ended = Ended::Failed(e);
                    break;
                }
            }
        }
        self.durable().await?;
        Ok((ended, work))
    }

    /// Bounded statements run where they are; others on a thread that may take its time.
    async fn attempt(&mut self, mut work: Work) -> SqlResult<(Attempt, Work)> {
        let mut core = self.core.take().ok_or_else(lost)?;
        let bounded = match &work {
            Work::Statement { step, .. } => step.stmt.class.is_bounded(),
            Work::Rows { .. } => false,
        };
        let interruption = self.interruption.clone();
        if bounded {
            let attempt = attempt(&mut core, &mut work, &interruption);
            self.core = Some(core);
            return Ok((attempt, work));
        }
        let thread = self.inner.shared.tasks.spawn_blocking(move || {
            let attempt = attempt(&mut core, &mut work, &interruption);
            (core, attempt, work)
        });
        let (core, attempt, work) = thread.await.map_err(|_| lost())?;
        self.core = Some(core);
        Ok((attempt, work))
    }

    /// Waits for what a schema change locks. `None` when only MAIN can run it.
    pub async fn lock_for(&mut self, sql: &str) -> SqlResult<Option<()>> {
        // Judged before any lock is taken: what is for MAIN alone must not hold it on its way there.
        let core = self.core()?;
        if locks_for(sql, &core.map(), &core.schema()).is_none() {
            return Ok(None);
        }
        // Before it looks at the schema, which stays as it is from then on.
        self.lock_in_place(schema_lock(&self.inner), LockMode::Exclusive).await?;
        let core = self.core()?;
        let Some(locks) = locks_for(sql, &core.map(), &core.schema()) else { return Ok(None) };
        for (table, mode) in locks {
            let id = LockId { volume: self.inner.id, target: Target::Table(table) };
            self.lock_in_place(id, LockMode::Table(mode)).await?;
        }
        Ok(Some(()))
    }

    /// Takes a lock; only if it has to wait its connection goes, and it sees what those it waited for have done.
    async fn lock_in_place(&mut self, id: LockId, mode: LockMode) -> SqlResult<()> {
        let owner = self.core()?.owner();
        if self.inner.shared.locks.try_lock(owner, id, mode) == Grant::Blocked {
            self.lock(id, mode).await?;
            self.core()?.newest = true;
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
        let mut core = self.core.take().ok_or_else(lost)?;
        // To put its images on may take its time.
        let thread = self.inner.shared.tasks.spawn_blocking(move || {
            let prepared = core.prepare(&sql, report, temp.as_ref());
            (core, prepared)
        });
        let (core, prepared) = thread.await.map_err(|_| lost())?;
        self.core = Some(core);
        prepared
    }

    /// Waits for a lock, as long as lock_timeout allows and nobody cancels.
    pub async fn lock(&mut self, id: LockId, mode: LockMode) -> SqlResult<()> {
        let owner = self.core()?.waits_as(id);
        self.core()?.park();
        wait_for(&self.inner, owner, id, mode, self.lock_timeout, &self.interruption).await?;
        self.core()?.got(id, mode);
        Ok(())
    }

    /// Waits until the boxcar is published or has been given up. Never long: MAIN is at work on it.
    async fn published(&mut self, number: u64) {
        let end = self.inner.shared.locks.wait_for_boxcar(self.inner.id, number);
        if let Some(end) = end {
            // An error means that the lock manager is gone, and everything with it.
            end.await.unwrap_or_default();
        }
    }

    /// Guarantee 2: no answer depends on a commit that could still be lost.
    pub async fn durable(&mut self) -> SqlResult<()> {
        let seen = self.core()?.seen;
        self.inner.durable(seen).await
    }

    /// Who listens to its cancels.
    pub fn interruption(&self) -> Arc<Interruption> {
        self.interruption.clone()
    }

    /// Forgets a cancel that came for an earlier statement.
    pub fn begin_statement(&self) {
        self.interruption.cancelled.store(false, Ordering::Release);
    }

    /// The transaction leaves its branch.
    pub fn into_core(mut self) -> SqlResult<Box<Core>> {
        self.core.take().ok_or_else(lost)
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        if let Some(core) = &mut self.core {
            core.back_to_schema(None);
        }
        self.inner.interruptions.lock().remove(&self.id);
    }
}

fn attempt(core: &mut Core, work: &mut Work, interruption: &Interruption) -> Attempt {
    core.attempt(work, |handle| *interruption.running.lock() = handle)
}

/// Takes a lock, waiting for it as long as `timeout` says, 0 for ever, and nobody cancels.
///
/// Whoever wants the database to himself keeps every new writer out while he stands in the queue, and an open
/// transaction that idles may keep him there for long: so he steps aside now and then and lets them pass, each time after
/// a longer stay, so that his turn comes.
pub async fn wait_for(
    inner: &Inner,
    owner: OwnerId,
    id: LockId,
    mode: LockMode,
    timeout: Duration,
    interruption: &Interruption,
) -> SqlResult<()> {
    let locks = &inner.shared.locks;
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
            inner.shared.stats.lock_wait();
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

/// Never, for `None`.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}
