//! Automatic transactions: with `auto_transaction = on` statements outside BEGIN join one transaction, which is
//! committed at a bound and never backed out by the program. A program that starts no transactions so pays for one
//! commit in many statements; a crash loses at most the open one, whole.
//!
//! | state | event | next |
//! |---|---|---|
//! | closed | a statement that changes or locks something | open |
//! | open | any statement; one that fails is undone alone | open |
//! | open | a statement that waited beyond the time bound, or met a deadlock | ending; it runs again in a new one |
//! | open | after a statement: the rows or time bound; it has become the only writer | ending, the answer does not wait |
//! | open | the client is silent or slow: the time or idle bound | ending |
//! | open | COMMIT, BEGIN, what cannot be a part of it, the parameter turned off, the end of the session | ending |
//! | ending | it is durable | closed |
//! | ending | it was not committed | failed |
//! | failed | the next statement | closed; that statement has the error and does not run |
//!
//! While one is ending nothing else of the session runs, so that the session always sees what it has done. Between
//! messages the session is idle to everybody: [`super::state`] knows nothing of automatic transactions.

mod sink;

use super::NodeSession;
use super::writing::{fatal, give_back, stopping};
use crate::automatic_stats::EndedBy;
use crate::cancel::{Target, with_reason};
use crate::plan::Extra;
use holdfast_engine::{Collect, Step as EngineStep, Ticket, WriteOptions, WriteTxn};
use holdfast_sql::{Entry, Isolation, Kind};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::{Client, Failure};
use sink::Counted;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Around the statements of a message, which fail as one. No client can name it: it sets none outside BEGIN.
const MESSAGE: &str = "holdfast_message";

/// Where the session's automatic transaction stands.
#[derive(Default)]
pub(super) enum Automatic {
    #[default]
    Closed,
    Open(Box<Open>),
    Ending(Ticket),
    Failed(SqlError),
}

pub(super) struct Open {
    txn: WriteTxn,
    since: Instant,
    /// When its last statement ended.
    used: Instant,
    rows: u64,
}

/// How one statement went.
enum One {
    /// It has changed so many rows.
    Done(u64),
    /// It is undone. What came before it may have been in its way, and is then to be ended by this.
    Failed(SqlError, Option<EndedBy>),
}

/// How a message's statements went in the open transaction.
enum Ran {
    Done,
    /// They are undone; what came before them is as it was.
    Failed(Failure),
    /// Undone, too: they may go through when what came before them has been committed, by this.
    InTheWay(EndedBy, Failure),
}

impl Automatic {
    fn is_open(&self) -> bool {
        matches!(self, Automatic::Open(_))
    }
}

impl NodeSession {
    /// Do statements outside BEGIN join an automatic transaction? It is READ COMMITTED and may write: where the session
    /// wants its transactions to be something else, each statement is one.
    pub(super) fn is_automatic(&self) -> bool {
        self.settings.automatic().on
            && self.default_isolation() == Isolation::ReadCommitted
            && !self.default_read_only()
    }

    /// A transaction of plain statements, whose results count from `first`: a part of the automatic one, or its own.
    pub(super) async fn run_steps(
        &mut self,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(first, e);
        let schema = self.served.db.schema();
        if !self.is_automatic() {
            self.end_automatic(EndedBy::Commit).await.map_err(at)?;
            return self.run_alone(first, steps, client).await;
        }
        self.settle().await.map_err(at)?;
        if self.automatic.is_open() || steps.iter().any(|s| !s.stmt.class.is_read()) {
            self.run_automatic(first, steps, &schema, client).await
        } else {
            self.run_alone(first, steps, client).await
        }
    }

    /// The steps were prepared under `schema`.
    async fn run_automatic(
        &mut self,
        first: usize,
        steps: Vec<EngineStep>,
        schema: &Arc<Schema>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(first, e);
        if let Some(outcome) = self.join_open(first, &steps, client).await? {
            return outcome;
        }
        if steps.iter().all(|s| s.stmt.class.is_read()) {
            return self.run_alone(first, steps, client).await;
        }
        self.begin_automatic().await.map_err(at)?;
        if !matches!(&self.automatic, Automatic::Open(open) if Arc::ptr_eq(&open.txn.schema(), schema)) {
            // Somebody changed the schema while this one waited for its turn.
            self.end_automatic(EndedBy::Commit).await.map_err(at)?;
            return self.run_alone(first, steps, client).await;
        }
        match self.attempt(first, &steps, None, client).await? {
            Ran::Done => {
                self.after_statement();
                Ok(())
            }
            Ran::Failed(failure) | Ran::InTheWay(_, failure) => {
                // There is nothing in it, but the failed statement's locks may be held.
                self.end_automatic(EndedBy::Commit).await.map_err(at)?;
                Err(failure)
            }
        }
    }

    /// Runs them in the open transaction. `None`: there is none, or it had to be committed before them.
    async fn join_open(
        &mut self,
        first: usize,
        steps: &[EngineStep],
        client: &mut Client,
    ) -> Result<Option<Result<(), Failure>>, Failure> {
        let at = |e| Failure::at(first, e);
        let Automatic::Open(open) = &self.automatic else { return Ok(None) };
        let left = self.settings.automatic().time_max.saturating_sub(open.since.elapsed());
        if left.is_zero() {
            self.end_automatic(EndedBy::Time).await.map_err(at)?;
            return Ok(None);
        }
        let place = client.reply().place();
        let outcome = match self.attempt(first, steps, Some(left), client).await? {
            Ran::Done => Ok(()),
            Ran::Failed(failure) => Err(failure),
            Ran::InTheWay(by, _) => {
                client.reply().back_to(place);
                self.end_automatic(by).await.map_err(at)?;
                return Ok(None);
            }
        };
        self.after_statement();
        Ok(Some(outcome))
    }

    async fn begin_automatic(&mut self) -> SqlResult<()> {
        let timeouts = self.settings.timeouts();
        let options = WriteOptions {
            idle_timeout: timeouts.idle_in_transaction,
            lock_timeout: timeouts.lock,
            session: Some(self.locks.clone()),
            ..WriteOptions::default()
        };
        let begin = self.served.db.begin_write(options);
        let txn = self.canceller.wait(timeouts.statement, begin).await??;
        let now = Instant::now();
        self.automatic = Automatic::Open(Box::new(Open { txn, since: now, used: now, rows: 0 }));
        self.stats.begun();
        Ok(())
    }

    /// Runs a message's statements in the open transaction, all or none of them. With `left` they may take so long until
    /// what came before them has to be committed. The outer error means that the transaction is gone.
    async fn attempt(
        &mut self,
        first: usize,
        steps: &[EngineStep],
        left: Option<Duration>,
        client: &mut Client,
    ) -> Result<Ran, Failure> {
        let until = left.map(|left| Instant::now() + left);
        let several = steps.len() > 1;
        if several {
            self.open_txn()?.savepoint(MESSAGE).await.map_err(fatal)?;
        }
        let mut ran = Ran::Done;
        let mut rows = 0;
        for (i, step) in steps.iter().enumerate() {
            client.reply().start_at(first + i);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.attempt_one(step.clone(), left, client).await? {
                One::Done(changed) => rows += changed,
                One::Failed(error, in_the_way) => {
                    let failure = Failure::at(first + i, error);
                    ran = match in_the_way {
                        Some(by) => Ran::InTheWay(by, failure),
                        None => Ran::Failed(failure),
                    };
                    break;
                }
            }
        }
        if several {
            let txn = self.open_txn()?;
            if !matches!(ran, Ran::Done) {
                txn.rollback_to(MESSAGE).await.map_err(fatal)?;
                rows = 0;
            }
            txn.release(MESSAGE).await.map_err(fatal)?;
        }
        if let Automatic::Open(open) = &mut self.automatic {
            open.rows += rows;
        }
        Ok(ran)
    }

    async fn attempt_one(
        &mut self,
        step: EngineStep,
        left: Option<Duration>,
        client: &mut Client,
    ) -> Result<One, Failure> {
        let timeouts = self.settings.timeouts();
        // Interrupted at once if there is no time left; 0 would be for ever.
        let left = left.map(|left| left.max(Duration::from_micros(1)));
        let own = Some(timeouts.statement).filter(|t| !t.is_zero());
        let bounded = left.is_some_and(|left| own.is_none_or(|own| left < own));
        let timeout = if bounded { left } else { own }.unwrap_or_default();
        let (db, canceller) = (self.served.db.clone(), self.canceller.clone());
        let txn = self.open_txn()?;
        txn.set_lock_timeout(timeouts.lock);
        let target = Target::Main(db, txn.id());
        let sink = Box::new(Counted::new(client.lend_reply()));
        let (ran, timed_out) = canceller.during(target, timeout, txn.execute(step, sink)).await;
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                client.replace_reply();
                return Err(self.gone(error));
            }
        };
        let Some(rows) = give_back::<Counted>(ran.sink, client) else {
            return Err(fatal(SqlError::internal("an answer came back as something else")));
        };
        let Err(error) = ran.result else {
            self.last_id = Some(ran.last_insert_rowid).filter(|id| *id != 0).or(self.last_id);
            return Ok(One::Done(rows));
        };
        let in_the_way = match error.state() {
            SqlState::QUERY_CANCELED if timed_out && bounded => Some(EndedBy::Time),
            state if left.is_some() && state.0.starts_with("40") => Some(EndedBy::Commit),
            _ => None,
        };
        Ok(One::Failed(with_reason(error, timed_out), in_the_way))
    }

    fn open_txn(&mut self) -> Result<&mut WriteTxn, Failure> {
        match &mut self.automatic {
            Automatic::Open(open) => Ok(&mut open.txn),
            _ => Err(fatal(SqlError::internal("no automatic transaction is open"))),
        }
    }

    /// The engine has given the open transaction up.
    fn gone(&mut self, error: SqlError) -> Failure {
        self.automatic = Automatic::Closed;
        fatal(self.not_committed(error))
    }

    /// After a message in the open transaction: a bound that it has reached ends it. The answer does not wait for that.
    fn after_statement(&mut self) {
        let settings = self.settings.automatic();
        let Automatic::Open(open) = &mut self.automatic else { return };
        open.used = Instant::now();
        if open.rows >= settings.rows_max {
            self.begin_end(EndedBy::Rows);
        } else if open.since.elapsed() >= settings.time_max {
            self.begin_end(EndedBy::Time);
        } else if open.txn.began_on().is_some() {
            // It is the only writer, and nobody shall wait for the client's next statement.
            self.begin_end(EndedBy::Commit);
        }
    }

    /// Hands the open transaction to MAIN.
    fn begin_end(&mut self, by: EndedBy) {
        self.automatic = match std::mem::take(&mut self.automatic) {
            Automatic::Open(open) => {
                self.stats.ended(by);
                match open.txn.commit(Box::new(Collect::new())) {
                    Ok(ticket) => Automatic::Ending(ticket),
                    Err(error) => Automatic::Failed(self.not_committed(error)),
                }
            }
            other => other,
        };
    }

    /// Waits until the one that is ending has ended.
    async fn ended(&mut self) {
        let Automatic::Ending(ticket) = &mut self.automatic else { return };
        let result = ticket.await.map_or_else(|| Err(stopping()), |done| done.result);
        self.automatic = match result {
            Ok(()) => Automatic::Closed,
            Err(error) => Automatic::Failed(self.not_committed(error)),
        };
    }

    /// Before a statement: the one before has ended, and if it was not committed this statement says so.
    async fn settle(&mut self) -> SqlResult<()> {
        self.ended().await;
        match std::mem::take(&mut self.automatic) {
            Automatic::Failed(error) => Err(error),
            other => {
                self.automatic = other;
                Ok(())
            }
        }
    }

    /// Commits what is open and waits until it is durable.
    pub(super) async fn end_automatic(&mut self, by: EndedBy) -> SqlResult<()> {
        self.begin_end(by);
        self.settle().await
    }

    /// The same where there is no statement to have the error.
    pub(super) async fn close_automatic(&mut self) {
        self.begin_end(EndedBy::Commit);
        self.ended().await;
    }

    /// Before a statement outside a transaction block that does not go through [`NodeSession::run_steps`]: ends the
    /// automatic one, unless the statement has nothing to do with it or will join it.
    pub(super) async fn before_statement(&mut self, entry: &Entry<Extra>, alone: bool) -> SqlResult<()> {
        let goes_on = match &entry.translated.kind {
            _ if super::temporary::temp_use(entry).is_some() => false,
            Kind::Query | Kind::Insert | Kind::Update | Kind::Delete => self.is_automatic() && entry.extra.is_some(),
            Kind::Show(_) | Kind::SetTransaction(_) | Kind::Rollback { .. } => true,
            // Leaving the database leaves its transaction.
            Kind::Set { name, .. } => name != super::several::PARAMETER,
            Kind::Prepare { .. } | Kind::Execute { .. } | Kind::Deallocate(_) => true,
            Kind::Explain | Kind::Fetch { .. } | Kind::CloseCursor(_) => true,
            _ => false,
        };
        if goes_on && alone { Ok(()) } else { self.end_automatic(EndedBy::Commit).await }
    }

    /// After a SET or RESET: ends the automatic transaction of a session that wants none any more.
    pub(super) async fn automatic_turned_off(&mut self) -> Result<(), Failure> {
        if self.is_automatic() { Ok(()) } else { self.end_automatic(EndedBy::Commit).await.map_err(Failure::from) }
    }

    /// Does the database take changes in transactions only, and this session begin none by itself?
    pub(super) fn asks_for_transactions(&self) -> bool {
        self.served.requires_transaction() && !self.is_automatic()
    }

    /// 25P01 for a change outside a transaction where the database refuses those.
    pub(super) fn check_required(&mut self, kind: &Kind, verb: &str) -> SqlResult<()> {
        let changes = matches!(kind, Kind::Insert | Kind::Update | Kind::Delete | Kind::CopyIn(_) | Kind::Ddl);
        if !changes || !self.asks_for_transactions() || self.state.block().is_some_and(|b| b.explicit) {
            return Ok(());
        }
        let command = verb.trim_end_matches(" 0");
        let message = format!("{command} is refused outside a transaction in this database");
        Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)
            .with_detail("require_transaction is on.")
            .with_hint("Begin a transaction with BEGIN, or SET auto_transaction = on."))
    }

    /// How soon a bound is reached if nothing else happens.
    pub(super) fn automatic_wake_after(&self) -> Option<Duration> {
        match &self.automatic {
            Automatic::Closed | Automatic::Failed(_) => None,
            Automatic::Ending(_) => Some(Duration::ZERO),
            Automatic::Open(open) => {
                let settings = self.settings.automatic();
                let time = settings.time_max.saturating_sub(open.since.elapsed());
                Some(settings.idle.saturating_sub(open.used.elapsed()).min(time))
            }
        }
    }

    /// A bound was reached between two statements.
    pub(super) async fn automatic_woken(&mut self) {
        if let Automatic::Open(open) = &self.automatic {
            let over = open.since.elapsed() >= self.settings.automatic().time_max;
            self.begin_end(if over { EndedBy::Time } else { EndedBy::Idle });
        }
        self.ended().await;
    }

    /// Says that answered statements did not last: in the log, and to the session.
    fn not_committed(&self, error: SqlError) -> SqlError {
        self.stats.failed();
        let (database, user) = (self.served.db.name(), &self.identity.user);
        tracing::error!(database, user, %error, "an automatic transaction was not committed");
        let message = format!("the automatic transaction was not committed: {}", error.message());
        let mut told = SqlError::new(error.state(), message)
            .with_hint("Statements that were answered since the last commit belong to it; this one did not run.");
        if let Some(detail) = &error.parts().detail {
            told = told.with_detail(detail.clone());
        }
        told
    }
}
