//! A client's session.
//!
//! ```text
//! message or pipeline --> all plain statements, or BEGIN plain... COMMIT? --yes--> [at_once]: readers or MAIN
//!                                        | no
//!                                        v
//!                     one statement after the other: [statement], [transaction], [command], [copy], [cursor]
//! ```
//!
//! State and transitions are in [`state`]. Fails like PostgreSQL: an error in an implicit transaction undoes all of
//! it, one in an explicit transaction leaves it failed until its end. Statements outside a block may join an automatic
//! transaction: [`automatic`].

mod at_once;
mod automatic;
mod command;
mod copy;
mod cursor;
mod reading;
mod several;
mod state;
mod statement;
mod temporary;
mod transaction;
mod two_phase;
mod values;
mod writing;

use crate::activity::{Activities, Listed, Who};
use crate::automatic_stats::AutomaticStats;
use crate::cancel::Canceller;
use crate::database::{Databases, InUse};
use crate::plan::Plan;
use crate::replication::Door;
use crate::settings::Settings;
use automatic::Automatic;
use bytes::BytesMut;
use cursor::Cursors;
pub use cursor::Scratch;
use holdfast_engine::BatchDone;
use holdfast_sql::catalogue::Doing;
use holdfast_sql::{Isolation, Kind, Scan};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState, StatementDesc, Tag, Value};
use holdfast_wire::completions::Mailbox;
use holdfast_wire::reply::Place;
use holdfast_wire::{Cancel, Client, End, Failure, Session, SessionFactory, Startup, Status, Step};
use state::{Phase, State};
use statement::Source;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use temporary::Temporary;
use tokio::net::TcpStream;
pub use values::now_us;
use values::{Identity, Values};

/// Statements prepared by SQL's PREPARE in one session.
const SQL_STATEMENTS_MAX: usize = 10_000;

/// Makes sessions.
#[derive(Clone)]
pub struct Factory {
    pub databases: Arc<Databases>,
    /// Parameters that the server's configuration sets.
    pub configured: Vec<(&'static str, String)>,
    /// Where the rows of large cursors go.
    pub scratch: Arc<Scratch>,
    pub stats: Arc<AutomaticStats>,
    pub activities: Arc<Activities>,
    /// Where links of other nodes go.
    pub door: Arc<Door>,
    /// Nothing can be changed here.
    pub standby: bool,
}

pub struct NodeSession {
    databases: Arc<Databases>,
    served: InUse,
    identity: Identity,
    /// The database of the connection; [`several`] can leave it.
    home: String,
    settings: Settings,
    /// What others are shown of it.
    activity: Listed,
    /// The settings it shows.
    shown_settings: u32,
    state: State,
    /// Beside the state: open only while that is idle.
    automatic: Automatic,
    stats: Arc<AutomaticStats>,
    /// SQL's PREPARE.
    statements: HashMap<String, Arc<Plan>>,
    /// SQL's DECLARE.
    cursors: Cursors,
    scratch: Arc<Scratch>,
    temporary: Temporary,
    canceller: Arc<Canceller>,
    mailbox: Rc<Mailbox<BatchDone>>,
    /// Owns the session's advisory locks.
    locks: Arc<holdfast_engine::Session>,
    transaction_us: i64,
    statement_us: i64,
    last_id: Option<i64>,
    /// The server is a standby.
    standby: bool,
}

/// The worker's mailbox for answers from MAIN and the trail.
fn mailbox() -> Rc<Mailbox<BatchDone>> {
    thread_local! {
        static MAILBOX: OnceCell<Rc<Mailbox<BatchDone>>> = const { OnceCell::new() };
    }
    MAILBOX.with(|cell| cell.get_or_init(|| Rc::new(Mailbox::new())).clone())
}

impl SessionFactory for Factory {
    type Session = NodeSession;

    async fn link(&self, stream: TcpStream, input: BytesMut) {
        self.door.enter(stream, input);
    }

    async fn open(&self, startup: Startup) -> SqlResult<NodeSession> {
        let mut settings = Settings::new(&self.configured);
        if self.standby {
            settings.start_fixed("in_hot_standby", "on");
        }
        for (name, value) in self.databases.start_parameters(&startup.database, &startup.user) {
            if let Err(error) = settings.start_stored(&name, &value) {
                tracing::warn!(name, value, %error, "a stored parameter is not known any more");
            }
        }
        for (name, value) in &startup.parameters {
            match name.as_str() {
                "options" => set_options(&mut settings, value)?,
                "replication" => return Err(SqlError::unsupported("the replication protocol")),
                _ => settings.start(name, value)?,
            }
        }
        let served = match self.databases.enter_open(&startup.database) {
            Some(served) => served,
            None => {
                let (databases, name) = (self.databases.clone(), startup.database.clone());
                blocking(move || databases.enter(&name)).await?
            }
        };
        let locks = served.db.session(startup.pid);
        let activity = self.activities.enter(Who {
            pid: startup.pid,
            database: startup.database.clone(),
            database_oid: served.db.oid(),
            user: startup.user.clone(),
            client: startup.client,
            application_name: settings.get("application_name").map(|(_, v)| v.to_owned()).unwrap_or_default(),
        });
        Ok(NodeSession {
            databases: self.databases.clone(),
            served,
            home: startup.database.clone(),
            identity: Identity { user: startup.user, database: startup.database, pid: startup.pid },
            shown_settings: settings.changes(),
            settings,
            activity,
            state: State::Idle,
            automatic: Automatic::default(),
            stats: self.stats.clone(),
            statements: HashMap::new(),
            cursors: Cursors::default(),
            scratch: self.scratch.clone(),
            temporary: Temporary::default(),
            canceller: Arc::default(),
            mailbox: mailbox(),
            locks,
            transaction_us: now_us(),
            statement_us: 0,
            last_id: None,
            standby: self.standby,
        })
    }
}

/// Runs what takes its time on a thread beside the worker.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> SqlResult<T> + Send + 'static) -> SqlResult<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(SqlError::internal(format!("a thread of the server failed: {error}"))),
    }
}

/// The start-up packet's `options`: `-c name=value` and `--name=value`, blanks escaped by a backslash.
fn set_options(settings: &mut Settings, options: &str) -> SqlResult<()> {
    let bad = |what: &str| {
        SqlError::new(SqlState::SYNTAX_ERROR, format!("invalid command-line argument in options: \"{what}\""))
    };
    let spaced = options.replace("\\ ", "\u{0}");
    let mut words = spaced.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let pair = match word.strip_prefix("-c") {
            Some("") => words.next().ok_or_else(|| bad(word))?,
            Some(pair) => pair,
            None => word.strip_prefix("--").ok_or_else(|| bad(word))?,
        };
        let (name, value) = pair.split_once('=').ok_or_else(|| bad(word))?;
        settings.start(name, &value.replace('\u{0}', " "))?;
    }
    Ok(())
}

impl NodeSession {
    /// A new message has arrived.
    fn tick(&mut self) {
        self.statement_us = now_us();
        if self.state.is_idle() {
            self.transaction_us = self.statement_us;
        }
    }

    /// Asked when the answer is ready: a master whose lease has run out answers nothing, as another one may be at work.
    /// What was answered since `place` is forgotten, but for what a large result has sent already.
    fn check_right(&self, place: Place, client: &mut Client) -> Result<(), Failure> {
        if self.databases.has_right() {
            return Ok(());
        }
        client.reply().back_to(place);
        let message = "this server cannot renew its lease as master; another one may have taken its place";
        let error = SqlError::new(SqlState::CANNOT_CONNECT_NOW, message).with_hint("Connect again, to the master.");
        Err(Failure { step: None, error, fatal: true })
    }

    /// The message is answered: others are shown what the session does now.
    fn answered(&mut self, outcome: &Result<(), Failure>) {
        if matches!(outcome, Err(f) if f.error.state() == SqlState::SERIALIZATION_FAILURE) {
            self.activity.conflict();
        }
        if self.shown_settings != self.settings.changes() {
            self.shown_settings = self.settings.changes();
            let name = self.settings.get("application_name").map_or("", |(_, v)| v);
            self.activity.set_application_name(name);
        }
        self.show_state();
    }

    /// Others are shown the state between messages.
    fn show_state(&mut self) {
        let doing = match (self.state.status(), &self.state) {
            (Status::Failed, _) => Doing::IdleInFailed,
            (Status::InTransaction, _) => Doing::IdleInTransaction,
            (Status::Idle, State::Idle) => Doing::Idle,
            // More steps follow up to Sync.
            (Status::Idle, State::Block(_)) => Doing::Active,
        };
        if !self.state.is_writing() {
            self.activity.set_transaction(0);
        }
        self.activity.end(doing);
    }

    fn values(&self) -> Values<'_> {
        let transaction = match &self.state {
            State::Block(b) => (isolation_name(b.isolation), b.read_only || self.standby),
            State::Idle => (isolation_name(self.default_isolation()), self.default_read_only() || self.standby),
        };
        Values {
            identity: &self.identity,
            settings: &self.settings,
            transaction_us: self.transaction_us,
            statement_us: self.statement_us,
            last_id: self.last_id,
            transaction,
            requires_transaction: self.served.requires_transaction(),
        }
    }

    fn default_isolation(&self) -> Isolation {
        match self.settings.get("default_transaction_isolation") {
            Ok((_, "serializable")) => Isolation::Serializable,
            Ok((_, "repeatable read")) => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        }
    }

    fn default_read_only(&self) -> bool {
        matches!(self.settings.get("default_transaction_read_only"), Ok((_, "on")))
    }

    /// The schema that the next statement sees.
    fn schema(&self) -> Arc<Schema> {
        let permanent = match &self.state {
            State::Block(b) => match &b.phase {
                Phase::Writing(txn) => txn.schema(),
                _ => self.served.db.schema(),
            },
            State::Idle => self.served.db.schema(),
        };
        if self.temporary.any() { self.temporary.schema(self.served.db.oid(), permanent) } else { permanent }
    }

    /// A pipeline, as a whole or step by step.
    async fn run_in_turn(
        &mut self,
        steps: &mut Vec<Step<Arc<Plan>>>,
        end: End,
        client: &mut Client,
    ) -> Result<(), Failure> {
        if end == End::Sync
            && self.state.is_idle()
            && let Some(outcome) = self.try_steps_at_once(steps, client).await
        {
            return outcome;
        }
        let alone = steps.len() == 1 && end == End::Sync;
        for (i, step) in steps.drain(..).enumerate() {
            let source = Source::Plan(&step.prepared, &step.params);
            if let Err(failure) = self.statement(i, source, alone, client).await {
                self.fail().await;
                return Err(failure);
            }
        }
        if end == End::Sync { self.end_implicit().await } else { Ok(()) }
    }

    /// A simple message, as a whole or statement by statement.
    async fn simple_in_turn(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        let scan = match Scan::new(text, self.served.db.dialect()) {
            Ok(scan) => scan,
            Err(error) => {
                self.fail().await;
                return Err(error.into());
            }
        };
        if scan.is_empty() {
            client.reply().complete(0, &Tag { verb: "", rows: None });
            return Ok(());
        }
        if self.state.is_idle()
            && let Some(outcome) = self.try_pieces_at_once(&scan, client).await
        {
            return outcome;
        }
        let alone = scan.pieces().len() == 1;
        for (i, piece) in scan.pieces().enumerate() {
            if let Err(mut failure) = self.statement(i, Source::Piece(piece), alone, client).await {
                failure.error = shifted(failure.error, text, piece.offset());
                self.fail().await;
                return Err(failure);
            }
        }
        self.end_implicit().await
    }
}

fn isolation_name(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "read uncommitted",
        Isolation::ReadCommitted => "read committed",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::Serializable => "serializable",
    }
}

impl Session for NodeSession {
    type Prepared = Arc<Plan>;

    async fn prepare(&mut self, sql: &str, param_types: &[u32]) -> SqlResult<Arc<Plan>> {
        let scan = Scan::new(sql, self.served.db.dialect())?;
        let schema = self.schema();
        let mut pieces = scan.pieces();
        let Some(piece) = pieces.next() else { return Ok(Arc::new(Plan::new(None, param_types, None, schema))) };
        if pieces.next().is_some() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let entry = self.resolve(&piece, &schema, param_types).await;
        let entry = entry.map_err(|e| shifted(e, sql, piece.offset()))?;
        let mut plan = Plan::new(Some(piece), param_types, Some(entry.clone()), schema);
        if let Kind::DeclareCursor { query, .. } = &entry.translated.kind {
            let before = piece.offset() + piece.text().len() - query.len();
            let query = Box::pin(self.prepare(query, param_types)).await;
            let query = query.map_err(|e| shifted(e, sql, before))?;
            plan.desc = Arc::new(StatementDesc { params: query.desc.params.clone(), columns: Vec::new() });
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

    fn input(type_oid: u32, text: &str) -> SqlResult<Value> {
        holdfast_sql::types::input(type_oid, -1, text)
    }

    async fn run(&mut self, steps: &mut Vec<Step<Arc<Plan>>>, end: End, client: &mut Client) -> Result<(), Failure> {
        self.tick();
        let last = steps.last().map(|s| &s.prepared);
        self.activity.begin_prepared(last, self.statement_us, self.transaction_us);
        let place = client.reply().place();
        let outcome = self.run_in_turn(steps, end, client).await;
        let outcome = outcome.and_then(|()| self.check_right(place, client));
        self.answered(&outcome);
        outcome
    }

    async fn simple(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        self.tick();
        self.activity.begin_text(text, self.statement_us, self.transaction_us);
        let place = client.reply().place();
        let outcome = self.simple_in_turn(text, client).await;
        let outcome = outcome.and_then(|()| self.check_right(place, client));
        self.answered(&outcome);
        outcome
    }

    async fn fail(&mut self) {
        self.fail_statement().await;
        self.show_state();
    }

    fn status(&self) -> Status {
        self.state.status()
    }

    fn cursor(&self, name: &str) -> Option<Arc<StatementDesc>> {
        self.cursors.desc(name).cloned()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        let values = self.values();
        let reported = self.settings.reported();
        reported.map(|(n, v)| (n.to_owned(), values.setting(n).unwrap_or(v).to_owned())).collect()
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.canceller.clone()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        let timeouts = self.settings.timeouts();
        let timeout = if self.state.is_idle() { timeouts.idle } else { timeouts.idle_in_transaction };
        (!timeout.is_zero()).then_some(timeout)
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
        self.automatic_wake_after()
    }

    async fn woken(&mut self) {
        self.automatic_woken().await;
    }

    async fn close(&mut self) {
        self.roll_back().await;
        self.close_automatic().await;
    }
}

/// A statement's error with its position moved to where the statement stands in its message.
fn shifted(error: SqlError, text: &str, offset: usize) -> SqlError {
    match error.parts().position {
        Some(position) if offset > 0 => {
            let before = text.get(..offset).map_or(0, |t| t.chars().count());
            error.with_position(position + before as u32)
        }
        _ => error,
    }
}
