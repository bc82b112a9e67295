//! Opens sessions: the start-up packet's parameters, the database, the session's fields.

use super::automatic::AutomaticTransaction;
use super::blocking::blocking;
use super::cursor::set::Cursors;
use super::cursor::spool::Scratch;
use super::node_session::NodeSession;
use super::prepared::PreparedStatements;
use super::state::State;
use super::temporary::TemporaryTables;
use super::values::Identity;
use crate::activity::{Activities, Done, Who};
use crate::admission::{Admission, check_link};
use crate::automatic_stats::AutomaticStats;
use crate::cancel::Canceller;
use crate::clock::now_us;
use crate::database::Databases;
use crate::feeds::Feeds;
use crate::settings::{self, Settings};
use crate::subscriptions::Subscriptions;
use bytes::BytesMut;
use holdfast_engine::Completion;
use holdfast_replication::Listener;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::completions::Mailbox;
use holdfast_wire::{Prover, SessionFactory, SessionMemory, Startup, TlsSlot, Unproven};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Opens sessions for the protocol.
#[derive(Clone)]
pub struct Factory {
    pub databases: Arc<Databases>,
    /// Parameters that the server's configuration sets.
    pub configured: Vec<(&'static str, String)>,
    pub tls: TlsSlot,
    /// Where the rows of large cursors are stored.
    pub scratch: Arc<Scratch>,
    pub stats: Arc<AutomaticStats>,
    pub activities: Arc<Activities>,
    /// Takes the connections of other nodes.
    pub listener: Arc<Listener>,
    /// Decides who may connect.
    pub admission: Arc<Admission>,
    /// Replication slots, and what feeds may send.
    pub feeds: Arc<Feeds>,
    pub subscriptions: Arc<Subscriptions>,
    /// The server is a standby: sessions are read-only.
    pub standby: bool,
}

/// The mailbox of this worker's thread, for answers from the writer and the trail.
fn mailbox() -> Rc<Mailbox<Completion>> {
    thread_local! {
        static MAILBOX: OnceCell<Rc<Mailbox<Completion>>> = const { OnceCell::new() };
    }
    MAILBOX.with(|cell| cell.get_or_init(|| Rc::new(Mailbox::new())).clone())
}

impl SessionFactory for Factory {
    type Session = NodeSession;

    async fn link(&self, stream: TcpStream, input: BytesMut) {
        self.listener.serve_checked(stream, input, check_link);
    }

    async fn authenticate(&self, startup: &Startup, prover: &mut Prover<'_>) -> Result<(), Unproven> {
        // First: then the client tries the next of its hosts.
        self.databases.check_right()?;
        self.admission.authenticate(startup, &self.databases.roles(), prover).await
    }

    async fn open(&self, startup: Startup) -> SqlResult<NodeSession> {
        self.databases.check_right()?;
        let roles = self.databases.roles();
        let (role, mut places) = self.admission.log_in(&startup, &roles)?;
        let mut settings = Settings::new(&self.configured);
        if self.standby {
            settings.start_fixed("in_hot_standby", "on");
        }
        settings.start_fixed("ssl", if self.tls.get().is_some() { "on" } else { "off" });
        for (name, value) in self.databases.start_parameters(&startup.database, &startup.user) {
            if let Err(error) = settings.start_stored(&name, &value) {
                tracing::warn!(name, value, %error, "ignoring a stored parameter that this version does not know");
            }
        }
        let set = |settings: &mut Settings, name: &str, value: &str| {
            if settings::is_superusers(name) && !role.superuser {
                let message = format!("permission denied to set parameter \"{name}\"");
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
            }
            settings.start(name, value)
        };
        let mut replication = false;
        for (name, value) in &startup.parameters {
            match name.as_str() {
                "options" => set_options(&mut settings, value, set)?,
                "replication" => replication = of_replication(value)?,
                _ => set(&mut settings, name, value)?,
            }
        }
        if replication && !(role.superuser || role.replication) {
            let message = "must be superuser or replication role to start walsender";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let served = match self.databases.enter_open(&startup.database) {
            Some(served) => served,
            None => {
                let (databases, name) = (self.databases.clone(), startup.database.clone());
                blocking(move || databases.enter(&name)).await?
            }
        };
        self.admission.enter_database(&mut places, &roles, &role, (served.db.oid(), &startup.database))?;
        let locks = served.db.advisory_owner(startup.pid);
        let who = Who {
            pid: startup.pid,
            database: startup.database.clone(),
            database_oid: served.db.oid(),
            user: startup.user.clone(),
            role: role.oid,
            peer: startup.peer.clone(),
            application_name: settings.get("application_name").map(|(_, v)| v.to_owned()).unwrap_or_default(),
        };
        let canceller = Arc::<Canceller>::default();
        let activity = self.activities.enter(who, canceller.clone());
        let session = NodeSession {
            databases: self.databases.clone(),
            served,
            home: startup.database.clone(),
            identity: Identity::new(startup.user, role.oid, startup.database, startup.pid, startup.peer),
            shown_settings: settings.changes(),
            reported: Vec::new(),
            reported_at: 0,
            keepalives: Settings::new(&self.configured).keepalives(),
            kept_alive_at: 0,
            settings,
            activity,
            state: State::Idle,
            automatic: AutomaticTransaction::new(self.stats.clone()),
            statements: PreparedStatements::new(&SessionMemory::unlimited()),
            cursors: Cursors::default(),
            scratch: self.scratch.clone(),
            temporary: TemporaryTables::default(),
            canceller,
            mailbox: mailbox(),
            locks,
            transaction_us: now_us(),
            statement_us: 0,
            last_id: None,
            done: Done::default(),
            statement_settings: None,
            last_query_id: 0,
            failed_serializable: false,
            standby: self.standby,
            replication,
            feeds: self.feeds.clone(),
            subscriptions: self.subscriptions.clone(),
            _places: places,
        };
        if session.settings.logging().connections {
            let Identity { user, database, .. } = &session.identity;
            session.log_line(
                "LOG",
                "00000",
                &format!("connection authorized: user={user} database={database}"),
                None,
                None,
            );
        }
        Ok(session)
    }
}

/// The start-up packet's `replication`: whether the session takes replication commands.
fn of_replication(value: &str) -> SqlResult<bool> {
    match value.to_ascii_lowercase().as_str() {
        "database" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        "true" | "on" | "yes" | "1" => Err(SqlError::unsupported("physical replication over the clients' port")
            .with_hint("A standby is made with: holdfast standby create. For logical replication connect with replication=database.")),
        other => {
            let message = format!("invalid value for parameter \"replication\": \"{other}\"");
            Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

/// The start-up packet's `options`: `-c name=value` and `--name=value`, blanks escaped by a backslash. As in PostgreSQL a `-` in
/// a name stands for `_`.
fn set_options(
    settings: &mut Settings,
    options: &str,
    set: impl Fn(&mut Settings, &str, &str) -> SqlResult<()>,
) -> SqlResult<()> {
    let bad = |what: &str| {
        SqlError::new(SqlState::SYNTAX_ERROR, format!("invalid command-line argument for server process: {what}"))
            .with_hint("The options are -c NAME=VALUE and --NAME=VALUE.")
    };
    let spaced = options.replace("\\ ", "\u{0}");
    let mut words = spaced.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let (mark, pair) = match word.strip_prefix("-c") {
            Some("") => ("-c ", words.next().ok_or_else(|| bad(word))?),
            Some(pair) => ("-c ", pair),
            None => ("--", word.strip_prefix("--").ok_or_else(|| bad(word))?),
        };
        let no_value = || SqlError::new(SqlState::SYNTAX_ERROR, format!("{mark}{pair} requires a value"));
        let (name, value) = pair.split_once('=').ok_or_else(no_value)?;
        set(settings, &name.replace('-', "_"), &value.replace('\u{0}', " "))?;
    }
    Ok(())
}
