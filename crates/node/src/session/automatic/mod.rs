//! Automatic transactions: with `auto_transaction = on` statements outside BEGIN join one transaction, which is committed at
//! a bound and never backed out by the program. So a program that begins no transactions pays for one commit in many
//! statements; a crash loses at most the open one, as a whole.
//!
//! | state | event | next |
//! |---|---|---|
//! | closed | a statement that changes or locks something | open |
//! | open | any statement; a statement that fails is undone, nothing else is | open |
//! | open | a statement that waited beyond the time bound, or met a deadlock | ending; it runs again in a new transaction |
//! | open | after a statement: the rows or time bound is reached; the transaction has become the exclusive writer | ending, the answer does not wait |
//! | open | the client is silent or slow: the time or idle bound is reached | ending |
//! | open | COMMIT, BEGIN, a statement that cannot be part of it, the parameter turned off, the end of the session | ending |
//! | ending | it is durable | closed |
//! | ending | it was not committed | failed |
//! | failed | the next statement | closed; that statement gets the error and does not run |
//!
//! While a transaction is ending nothing else of the session runs, so the session always sees its own changes. Between
//! messages the session is idle to every observer: the session's own state knows nothing of automatic transactions.
//!
//! A session that has none and wants none never comes here: the session asks [`AutomaticTransaction::is_unused`] first.

mod attempt;
mod counted_reply;

use crate::automatic_stats::{AutomaticStats, EndedBy};
use crate::cancel::{Canceller, terminated_in_commit};
use crate::plan::Extra;
use crate::session::failure::stopping;
use crate::session::values::{DATABASE_PARAMETER, ROLE_PARAMETER, SESSION_PARAMETER};
use crate::settings::{AutomaticSettings, Settings};
use attempt::Ran;
use holdfast_engine::{Collect, Database, Step as EngineStep, Ticket, WriteOptions, WriteTxn};
use holdfast_sql::{Entry, Kind};
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::{SessionContext, SqlError, SqlResult};
use holdfast_wire::{Client, Failure};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session's automatic transaction.
pub struct AutomaticTransaction {
    state: State,
    stats: Arc<AutomaticStats>,
}

enum State {
    Closed,
    Open(Box<Open>),
    Ending(Ticket),
    Failed(SqlError),
}

struct Open {
    txn: WriteTxn,
    since: Instant,
    /// When its last statement ended.
    used: Instant,
    /// Rows changed so far.
    rows: u64,
}

/// What the transaction uses of its session.
pub struct Host<'a> {
    pub db: &'a Database,
    pub settings: &'a Settings,
    pub canceller: &'a Canceller,
    pub locks: &'a Arc<holdfast_engine::AdvisoryOwner>,
    pub user: &'a str,
    /// The roles that the trail names for it.
    pub author: &'a Arc<Author>,
    /// What its statements know of the session.
    pub context: SessionContext,
    /// The session's `lastval()`.
    pub last_id: &'a mut Option<i64>,
    /// The session's statements outside BEGIN join an automatic transaction.
    pub wanted: bool,
}

/// Whether an open transaction stays open before a statement that does not run as a plain statement: the statement has
/// nothing to do with it, or will join it.
pub fn stays_open(entry: &Entry<Extra>, wanted: bool) -> bool {
    match &entry.translated.kind {
        _ if entry.extra.as_ref().is_some_and(|statement| statement.temp.is_some()) => false,
        Kind::Query | Kind::Insert | Kind::Update | Kind::Delete => wanted && entry.extra.is_some(),
        Kind::Show(_) | Kind::SetTransaction(_) | Kind::Rollback { .. } => true,
        // Leaving the database leaves its transaction; and the trail names one role for a transaction.
        Kind::Set { name, .. } => ![DATABASE_PARAMETER, ROLE_PARAMETER, SESSION_PARAMETER].contains(&name.as_str()),
        Kind::Prepare { .. } | Kind::Execute { .. } | Kind::Deallocate(_) => true,
        Kind::Explain | Kind::Fetch { .. } | Kind::CloseCursor(_) => true,
        _ => false,
    }
}

impl AutomaticTransaction {
    pub fn new(stats: Arc<AutomaticStats>) -> AutomaticTransaction {
        AutomaticTransaction { state: State::Closed, stats }
    }

    /// The session has no automatic transaction, and `wanted` is false: it wants none.
    pub fn is_unused(&self, wanted: bool) -> bool {
        !wanted && matches!(self.state, State::Closed)
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Runs plain statements, whose results count from `first`, as a part of the transaction. Returns them where they are to
    /// run as a transaction of their own.
    pub async fn run(
        &mut self,
        mut host: Host<'_>,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> Result<Option<Vec<EngineStep>>, Failure> {
        let at = |e| Failure::at(first, e);
        let schema = host.db.schema();
        let only_reads = steps.iter().all(|s| s.stmt.class.is_read());
        if !host.wanted {
            self.end(EndedBy::Commit, &host).await.map_err(at)?;
            return Ok(Some(steps));
        }
        self.settle(&host).await.map_err(at)?;
        if self.is_open() && self.join_open(first, &steps, &mut host, client).await? {
            return Ok(None);
        }
        if only_reads || !self.begin(&schema, &host).await.map_err(at)? {
            return Ok(Some(steps));
        }
        match self.attempt(first, &steps, None, &mut host, client).await? {
            Ran::Done => {
                self.after_statement(&host);
                Ok(None)
            }
            Ran::Failed(failure) | Ran::Blocked(_, failure) => {
                // The transaction is empty, but it may hold the failed statement's locks.
                self.end(EndedBy::Commit, &host).await.map_err(at)?;
                Err(failure)
            }
        }
    }

    /// Runs the steps in the open transaction. `false`: it had to be committed before them, and they have not run.
    async fn join_open(
        &mut self,
        first: usize,
        steps: &[EngineStep],
        host: &mut Host<'_>,
        client: &mut Client,
    ) -> Result<bool, Failure> {
        let at = |e| Failure::at(first, e);
        let State::Open(open) = &self.state else { return Ok(false) };
        let left = host.settings.automatic().time_max.saturating_sub(open.since.elapsed());
        if left.is_zero() {
            self.end(EndedBy::Time, host).await.map_err(at)?;
            return Ok(false);
        }
        let position = client.reply().position();
        let outcome = match self.attempt(first, steps, Some(left), host, client).await? {
            Ran::Done => Ok(true),
            Ran::Failed(failure) => Err(failure),
            Ran::Blocked(by, _) => {
                client.reply().back_to(position);
                self.end(by, host).await.map_err(at)?;
                return Ok(false);
            }
        };
        self.after_statement(host);
        outcome
    }

    /// Begins a transaction for statements that were prepared under `schema`. `false`: another session changed the schema
    /// while this one waited for its turn; none is open then.
    async fn begin(&mut self, schema: &Arc<Schema>, host: &Host<'_>) -> SqlResult<bool> {
        let timeouts = host.settings.timeouts();
        let options = WriteOptions {
            idle_timeout: timeouts.idle_in_transaction,
            lock_timeout: timeouts.lock,
            advisory_owner: Some(host.locks.clone()),
            author: Some(host.author.clone()),
            ..WriteOptions::default()
        };
        let begin = host.db.begin_write(options);
        let txn = host.canceller.wait(timeouts.statement, begin).await??;
        let is_current = Arc::ptr_eq(&txn.schema(), schema);
        let now = Instant::now();
        self.state = State::Open(Box::new(Open { txn, since: now, used: now, rows: 0 }));
        self.stats.begun();
        if !is_current {
            self.end(EndedBy::Commit, host).await?;
        }
        Ok(is_current)
    }

    /// After a message in the open transaction: a bound that it has reached ends it. The answer does not wait for that.
    fn after_statement(&mut self, host: &Host<'_>) {
        let settings = host.settings.automatic();
        let State::Open(open) = &mut self.state else { return };
        open.used = Instant::now();
        if open.rows >= settings.rows_max {
            self.begin_end(EndedBy::Rows, host);
        } else if open.since.elapsed() >= settings.time_max {
            self.begin_end(EndedBy::Time, host);
        } else if open.txn.began_on().is_some() {
            // It is the exclusive writer: other sessions must not wait for this client's next statement.
            self.begin_end(EndedBy::Commit, host);
        }
    }

    /// Hands the open transaction to the writer for its commit.
    fn begin_end(&mut self, by: EndedBy, host: &Host<'_>) {
        self.state = match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(open) => {
                self.stats.ended(by);
                match open.txn.commit(Box::new(Collect::new())) {
                    Ok(ticket) => State::Ending(ticket),
                    Err(error) => State::Failed(self.not_committed(error, host)),
                }
            }
            other => other,
        };
    }

    /// Waits until a transaction that is ending has ended.
    async fn ended(&mut self, host: &Host<'_>) {
        let State::Ending(ticket) = &mut self.state else { return };
        let result = host.canceller.until_committed(ticket).await;
        self.state = match result.map(|done| done.map_or_else(|| Err(stopping()), |done| done.result)) {
            Some(Ok(())) => State::Closed,
            Some(Err(error)) => State::Failed(self.not_committed(error, host)),
            None => State::Failed(terminated_in_commit()),
        };
    }

    /// Before a statement: waits until the transaction before it has ended. If that was not committed, this statement gets the
    /// error.
    async fn settle(&mut self, host: &Host<'_>) -> SqlResult<()> {
        self.ended(host).await;
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Failed(error) => Err(error),
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    /// Commits the open transaction and waits until it is durable.
    pub async fn end(&mut self, by: EndedBy, host: &Host<'_>) -> SqlResult<()> {
        self.begin_end(by, host);
        self.settle(host).await
    }

    /// The session ends: commits the open transaction. There is no statement to get an error, which is only logged.
    pub async fn close(&mut self, host: &Host<'_>) {
        self.begin_end(EndedBy::Commit, host);
        self.ended(host).await;
    }

    /// How soon a bound is reached if nothing else happens.
    pub fn wake_after(&self, settings: AutomaticSettings) -> Option<Duration> {
        match &self.state {
            State::Closed | State::Failed(_) => None,
            State::Ending(_) => Some(Duration::ZERO),
            State::Open(open) => {
                let time = settings.time_max.saturating_sub(open.since.elapsed());
                Some(settings.idle.saturating_sub(open.used.elapsed()).min(time))
            }
        }
    }

    /// A bound was reached between two statements.
    pub async fn woken(&mut self, host: &Host<'_>) {
        if let State::Open(open) = &self.state {
            let is_over = open.since.elapsed() >= host.settings.automatic().time_max;
            self.begin_end(if is_over { EndedBy::Time } else { EndedBy::Idle }, host);
        }
        self.ended(host).await;
    }

    /// Reports that answered statements did not last: in the log, and to the session.
    fn not_committed(&self, error: SqlError, host: &Host<'_>) -> SqlError {
        self.stats.failed();
        let (database, user) = (host.db.name(), host.user);
        tracing::error!(database, user, %error, "an automatic transaction was not committed");
        let message = format!("the automatic transaction was not committed: {}", error.message());
        let mut reported = SqlError::new(error.state(), message)
            .with_hint("Statements that were answered since the last commit belong to it; this one did not run.");
        if let Some(detail) = &error.parts().detail {
            reported = reported.with_detail(detail.clone());
        }
        reported
    }
}
