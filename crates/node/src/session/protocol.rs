//! What the protocol calls: a message or a pipeline comes in, is run as a whole or statement by statement, and is answered.

use super::failure::{fatal, shifted};
use super::node_session::NodeSession;
use super::prepared::PreparedStatements;
use super::source::Source;
use super::state::State;
use crate::clock::now_us;
use crate::plan::Plan;
use holdfast_sql::catalogue::Doing;
use holdfast_sql::{Kind, Scan};
use holdfast_types::{SqlError, SqlResult, SqlState, StatementDesc, Tag, Value};
use holdfast_wire::reply::ReplyMark;
use holdfast_wire::{Cancel, Client, End, Failure, Keepalives, Session, SessionMemory, Status, Step, Termination};
use std::sync::Arc;
use std::time::Duration;

impl NodeSession {
    /// A new message has arrived.
    fn tick(&mut self) {
        self.statement_us = now_us();
        self.canceller.begin();
        if self.state.is_idle() {
            self.transaction_us = self.statement_us;
        }
    }

    /// Checks, when the answer is ready, that this server may still answer: after its lease has expired another master may be at
    /// work. On failure the reply since `position` is dropped, except for what a large result has already sent.
    fn check_right(&self, position: ReplyMark, client: &mut Client) -> Result<(), Failure> {
        self.databases.check_right().map_err(|error| {
            client.reply().back_to(position);
            fatal(error.with_detail("What this request has committed may have taken effect."))
        })
    }

    /// Sends the answers between two statements of a message when they have become large, so that the memory for a message does
    /// not depend on its number of statements. The client may see answers of an implicit transaction that fails later, as
    /// with PostgreSQL.
    async fn send_if_full(&mut self, client: &mut Client) -> Result<(), Failure> {
        if !client.is_full() {
            return Ok(());
        }
        self.databases.check_right().map_err(|error| {
            client.reply().out().clear();
            fatal(error.with_detail("What this request has committed may have taken effect."))
        })?;
        let mut sent = std::pin::pin!(client.flush());
        let sent = loop {
            match self.wake_after() {
                None => break sent.await,
                Some(soon) => tokio::select! {
                    biased;
                    sent = &mut sent => break sent,
                    () = tokio::time::sleep(soon) => self.woken().await,
                },
            }
        };
        if sent.is_ok() {
            return Ok(());
        }
        self.fail_statement().await;
        let lost = "the connection to the client was lost";
        Err(fatal(SqlError::new(SqlState::CONNECTION_DOES_NOT_EXIST, lost)))
    }

    /// After a message: updates what other sessions see of this one.
    fn answered(&mut self, outcome: &Result<(), Failure>) {
        self.count_message(outcome);
        if self.shown_settings != self.settings.changes() {
            self.shown_settings = self.settings.changes();
            let name = self.settings.get("application_name").map_or("", |(_, v)| v);
            self.activity.set_application_name(name);
        }
        let at_us = self.show_state();
        let us = at_us - self.statement_us;
        self.activity.took(us, outcome.is_ok());
        self.log_end(Duration::from_micros(u64::try_from(us).unwrap_or(0)), outcome);
    }

    /// Publishes the state between messages in `pg_stat_activity`. Returns when, in microseconds since 1970.
    fn show_state(&mut self) -> i64 {
        let doing = match (self.state.status(), &self.state) {
            (Status::Failed, _) => Doing::IdleInFailed,
            (Status::InTransaction, _) => Doing::IdleInTransaction,
            (Status::Idle, State::Idle) => Doing::Idle,
            // More steps follow before Sync.
            (Status::Idle, State::Block(_)) => Doing::Active,
        };
        if !self.state.is_writing() {
            self.activity.set_transaction(0);
        }
        self.canceller.end();
        self.activity.end(doing, &std::mem::take(&mut self.done), self.last_query_id)
    }

    /// The parameters that are reported to the client, as the session sees them now.
    fn shown_parameters(&self) -> Vec<(String, String)> {
        let values = self.values();
        let reported = self.settings.reported();
        reported.map(|(n, v)| (n.to_owned(), values.setting(n).map_or_else(|_| v.to_owned(), Into::into))).collect()
    }

    /// Runs all statements as a whole, or one by one. An error comes with the number of its statement.
    async fn run_all(&mut self, sources: &[Source<'_>], end: End, client: &mut Client) -> Result<(), Failure> {
        if end == End::Sync
            && let Some(outcome) = self.try_several(sources, client).await
        {
            return outcome;
        }
        let is_sole = sources.len() == 1 && end == End::Sync;
        for (i, source) in sources.iter().enumerate() {
            if let Err(failure) = self.statement(i, *source, is_sole, client).await {
                self.fail_statement().await;
                return Err(failure);
            }
            self.send_if_full(client).await?;
        }
        if end == End::Sync { self.end_implicit().await } else { Ok(()) }
    }

    /// Runs a simple message as a whole, or statement by statement.
    async fn simple_in_turn(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        if self.is_replication(text) {
            return self.replicate(text, client).await;
        }
        let scan = match Scan::new(text, self.served.db.dialect()) {
            Ok(scan) => scan,
            Err(error) => {
                self.fail_statement().await;
                return Err(error.into());
            }
        };
        if scan.is_empty() {
            client.reply().complete(0, &Tag { verb: "", rows: None });
            return Ok(());
        }
        let known = self.known_of(&scan).await;
        let sources: Vec<_> = scan.pieces().enumerate().map(|(i, piece)| Source::Piece(piece, known.get(i))).collect();
        self.run_all(&sources, End::Sync, client).await.map_err(|failure| {
            let piece = failure.step.and_then(|step| scan.pieces().nth(step));
            Failure { error: shifted(failure.error, text, piece.map_or(0, |piece| piece.offset())), ..failure }
        })
    }
}

impl Session for NodeSession {
    type Prepared = Arc<Plan>;

    async fn prepare(&mut self, sql: &str, param_types: &[u32]) -> SqlResult<Arc<Plan>> {
        let scan = Scan::new(sql, self.served.db.dialect())?;
        let mut pieces = scan.pieces();
        let Some(piece) = pieces.next() else { return Ok(Arc::new(Plan::new(None, param_types, None, self.schema()))) };
        if pieces.next().is_some() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let resolved = self.entry_to_prepare(&piece, param_types).await;
        let (entry, schema) = resolved.map_err(|e| shifted(e, sql, piece.offset()))?;
        let mut plan = Plan::new(Some(piece), param_types, Some(entry.clone()), schema);
        if let Kind::DeclareCursor { query, .. } = &entry.translated.kind {
            let before = piece.offset() + piece.text().len() - query.len();
            let query = Box::pin(self.prepare(query, param_types)).await;
            let query = query.map_err(|e| shifted(e, sql, before))?;
            plan.desc = Arc::new(StatementDesc { params: query.desc.params.clone(), ..StatementDesc::default() });
            plan.query = Some(query);
        }
        Ok(Arc::new(plan))
    }

    fn desc(prepared: &Arc<Plan>) -> &Arc<StatementDesc> {
        &prepared.desc
    }

    fn is_described_late(prepared: &Arc<Plan>) -> bool {
        matches!(prepared.cursor(), Some((_, false)))
    }

    fn described(&self, prepared: &Arc<Plan>) -> Arc<Plan> {
        let mut plan = Plan::clone(prepared);
        plan.desc = plan.cursor().and_then(|(name, _)| self.cursors.desc(name)).cloned().unwrap_or_default();
        Arc::new(plan)
    }

    fn reads_copy_data(prepared: &Arc<Plan>) -> bool {
        prepared.entry.as_ref().is_some_and(|e| matches!(e.translated.kind, Kind::CopyIn(_)))
    }

    fn kept_bytes(prepared: &Arc<Plan>) -> usize {
        prepared.bytes()
    }

    fn set_memory(&mut self, memory: &Arc<SessionMemory>) {
        self.statements = PreparedStatements::new(memory);
    }

    fn input(type_oid: u32, text: &str) -> SqlResult<Value> {
        holdfast_sql::types::input(type_oid, -1, text)
    }

    async fn run(&mut self, steps: &mut Vec<Step<Arc<Plan>>>, end: End, client: &mut Client) -> Result<(), Failure> {
        self.tick();
        let last = steps.last().map(|s| &s.prepared);
        self.activity.begin_prepared(last, self.statement_us, self.transaction_us);
        steps.iter().for_each(|step| self.log_begin(&step.prepared.text));
        self.set_reply(client);
        client.reply().measure(true);
        let position = client.reply().position();
        let sources: Vec<_> = steps.iter().map(|step| Source::Plan(&step.prepared, &step.params)).collect();
        let outcome = match self.lock_watch() {
            None => self.run_all(&sources, end, client).await,
            Some(watch) => watch.during(Box::pin(self.run_all(&sources, end, client))).await,
        };
        let outcome = outcome.and_then(|()| self.check_right(position, client));
        self.answered(&outcome);
        outcome
    }

    async fn simple(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        self.tick();
        self.activity.begin_text(text, self.statement_us, self.transaction_us);
        self.log_begin(text);
        self.set_reply(client);
        client.reply().measure(true);
        let position = client.reply().position();
        let outcome = match self.lock_watch() {
            None => self.simple_in_turn(text, client).await,
            Some(watch) => watch.during(Box::pin(self.simple_in_turn(text, client))).await,
        };
        let outcome = outcome.and_then(|()| self.check_right(position, client));
        self.answered(&outcome);
        outcome
    }

    async fn fail(&mut self) {
        self.fail_statement().await;
        if self.state.is_idle() && self.done.rollbacks == 0 {
            self.done.rollbacks += 1;
        }
        self.show_state();
    }

    fn status(&self) -> Status {
        self.state.status()
    }

    fn cursor(&self, name: &str) -> Option<Arc<StatementDesc>> {
        self.cursors.desc(name).cloned()
    }

    fn parameters(&mut self) -> Vec<(String, String)> {
        self.reported_at = self.settings.changes();
        self.reported = self.shown_parameters();
        self.reported.clone()
    }

    fn changed_parameters(&mut self) -> Vec<(String, String)> {
        if self.reported_at == self.settings.changes() {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.reported);
        let mut now = self.parameters();
        now.retain(|parameter| !before.contains(parameter));
        now
    }

    fn changed_keepalives(&mut self) -> Option<(Keepalives, Keepalives)> {
        let changes = self.settings.changes();
        if std::mem::replace(&mut self.kept_alive_at, changes) == changes {
            return None;
        }
        let now = self.settings.keepalives();
        let before = std::mem::replace(&mut self.keepalives, now);
        (before != now).then_some((before, now))
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.canceller.clone()
    }

    fn termination(&self) -> Arc<Termination> {
        self.canceller.termination().clone()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        let timeouts = self.settings.timeouts();
        let timeout = if self.state.is_idle() { timeouts.idle } else { timeouts.idle_in_transaction };
        (!timeout.is_zero()).then_some(timeout)
    }

    fn connection_check_interval(&self) -> Option<Duration> {
        let interval = self.settings.timeouts().connection_check;
        (!interval.is_zero()).then_some(interval)
    }

    async fn idle_expired(&mut self) -> SqlError {
        if self.state.is_idle() {
            return SqlError::new(SqlState("57P05"), "terminating connection due to idle-session timeout");
        }
        self.roll_back().await;
        SqlError::new(
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            "terminating connection due to idle-in-transaction timeout",
        )
    }

    fn wake_after(&self) -> Option<Duration> {
        self.automatic.wake_after(self.settings.automatic())
    }

    async fn woken(&mut self) {
        let (automatic, host) = self.automatic();
        automatic.woken(&host).await;
    }

    async fn close(&mut self) {
        self.roll_back().await;
        let (automatic, host) = self.automatic();
        automatic.close(&host).await;
        if self.settings.logging().disconnections {
            let message = format!("disconnection: user={} database={}", self.identity.user, self.identity.database);
            self.log_line("LOG", "00000", &message, None, None);
        }
    }
}
