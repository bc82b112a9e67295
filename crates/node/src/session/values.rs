//! The values that translated statements take from the session: the time, the user, `lastval()`, settings.

use crate::clock::{now_us, server_start_us, settings_read_us};
use crate::database::Databases;
use crate::settings::{REQUIRE_TRANSACTION, Settings, is_hidden};
use holdfast_sql::{SessionValue, SessionValues};
use holdfast_types::access::RoleChanges;
use holdfast_types::access::predefined::{BOOTSTRAP_OID, READ_ALL_SETTINGS_OID};
use holdfast_types::inet::Inet;
use holdfast_types::record::Author;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use holdfast_wire::{Peer, PeerAddress};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The session's user, database and process number.
pub struct Identity {
    /// The role that the session was authenticated as.
    pub user: String,
    pub database: String,
    pub pid: i32,
    /// The ends of its connection.
    pub peer: Peer,
    /// Its OID, or that of SET SESSION AUTHORIZATION.
    pub session_role: u32,
    /// The role whose privileges statements have: the session's, or that of SET ROLE.
    pub current_role: u32,
    /// The OID of the role that it was authenticated as.
    pub authenticated_role: u32,
    /// The OIDs of the names that the session has set: a role that is renamed keeps its sessions.
    pub named: HashMap<String, u32>,
    /// The names of both roles, which the trail has with what the session commits.
    pub author: Arc<Author>,
}

impl Identity {
    pub fn new(user: String, role: u32, database: String, pid: i32, peer: Peer) -> Identity {
        let (session_role, current_role, authenticated_role) = (role, role, role);
        let (named, author) = (HashMap::new(), Arc::new(Author::new(&user, &user)));
        Identity { user, database, pid, peer, session_role, current_role, authenticated_role, named, author }
    }

    /// Takes the roles that the settings name, after these have changed.
    pub fn follow(&mut self, settings: &Settings) {
        let named = |parameter: &str| {
            let value = settings.get(parameter).map_or("", |(_, value)| value);
            self.named.get(value).map(|oid| (value, *oid))
        };
        let session = named(SESSION_PARAMETER).unwrap_or((self.user.as_str(), self.authenticated_role));
        let current = named(ROLE_PARAMETER).unwrap_or(session);
        let author = Author::new(session.0, current.0);
        (self.session_role, self.current_role) = (session.1, current.1);
        // It is shared with the transactions of before.
        if *self.author != author {
            self.author = Arc::new(author);
        }
    }
}

/// The parameters behind SET ROLE and SET SESSION AUTHORIZATION.
pub const ROLE_PARAMETER: &str = "role";
pub const SESSION_PARAMETER: &str = "session_authorization";

/// The parameter that USE sets.
pub const DATABASE_PARAMETER: &str = "database";

/// The session's values while one statement runs.
pub struct Values<'a> {
    pub identity: &'a Identity,
    pub settings: &'a Settings,
    pub databases: &'a Databases,
    /// What the open transaction has changed.
    pub role_changes: Option<&'a RoleChanges>,
    pub transaction_us: i64,
    pub statement_us: i64,
    pub last_id: Option<i64>,
    /// Isolation level and read-only of the current transaction.
    pub transaction: (&'static str, bool),
    /// The database's `require_transaction`.
    pub requires_transaction: bool,
}

impl SessionValues for Values<'_> {
    fn session_value(&self, which: &SessionValue) -> SqlResult<Value> {
        Ok(match which {
            SessionValue::TransactionTime => Value::Int(self.transaction_us),
            SessionValue::StatementTime => Value::Int(self.statement_us),
            SessionValue::ClockTime => Value::Int(now_us()),
            SessionValue::User => Value::Text(self.role_name(self.identity.current_role)),
            SessionValue::SessionUser => Value::Text(self.role_name(self.identity.session_role)),
            SessionValue::Database => Value::Text(self.identity.database.clone()),
            SessionValue::BackendPid => Value::Int(self.identity.pid.into()),
            SessionValue::ClientAddress => self.end(|client, _| Value::Text(Inet::from(client.ip()).to_string())),
            SessionValue::ClientPort => self.end(|client, _| Value::Int(client.port().into())),
            SessionValue::ServerAddress => self.end(|_, server| Value::Text(Inet::from(server.ip()).to_string())),
            SessionValue::ServerPort => self.end(|_, server| Value::Int(server.port().into())),
            SessionValue::ServerStart => Value::Int(server_start_us()),
            SessionValue::SettingsRead => Value::Int(settings_read_us()),
            SessionValue::LastInsertId => match self.last_id {
                Some(id) => Value::Int(id),
                None => {
                    let message = "lastval is not yet defined in this session";
                    return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
                }
            },
            SessionValue::Setting { name, missing_ok } => match self.setting(name) {
                Ok(value) => Value::Text(value.into_owned()),
                Err(error) if *missing_ok && error.state() == SqlState::UNDEFINED_OBJECT => Value::Null,
                Err(error) => return Err(error),
            },
        })
    }
}

fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

impl Values<'_> {
    /// What the ends of a TCP connection say, client first; NULL for any other.
    fn end(&self, of: impl Fn(SocketAddr, SocketAddr) -> Value) -> Value {
        match self.identity.peer.address {
            Some(PeerAddress::Tcp { client, server }) => of(client, server),
            _ => Value::Null,
        }
    }

    /// The name of a role as the session sees it.
    fn role_name(&self, oid: u32) -> String {
        let changed = self.role_changes.into_iter().flat_map(|c| &c.roles).find(|c| c.oid == oid);
        match changed.and_then(|c| c.after.as_ref()) {
            Some(role) => role.name.clone(),
            None => self.databases.roles().name_of(oid),
        }
    }

    fn is_superuser(&self) -> bool {
        let oid = self.identity.current_role;
        let changed = self.role_changes.into_iter().flat_map(|c| &c.roles).find(|c| c.oid == oid);
        match changed {
            Some(change) => change.after.as_ref().is_some_and(|role| role.superuser),
            None => oid == BOOTSTRAP_OID || self.databases.roles().is_superuser(oid),
        }
    }

    /// Whether the current role may see a parameter.
    pub fn may_see(&self, name: &str) -> bool {
        let of = self.identity.current_role;
        !is_hidden(name) || self.is_superuser() || self.databases.roles().has_privileges_of(of, READ_ALL_SETTINGS_OID)
    }

    /// The value that SHOW returns for a parameter.
    pub fn setting(&self, name: &str) -> SqlResult<Cow<'_, str>> {
        let (name, value) = self.settings.get(name)?;
        if !self.may_see(name) {
            let rights = "must be superuser or have privileges of pg_read_all_settings";
            let message = format!("{rights} to examine \"{name}\"");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        if name == SESSION_PARAMETER {
            return Ok(Cow::Owned(self.role_name(self.identity.session_role)));
        }
        Ok(Cow::Borrowed(match name {
            "is_superuser" => on_or_off(self.is_superuser()),
            "transaction_isolation" => self.transaction.0,
            "transaction_read_only" => on_or_off(self.transaction.1),
            REQUIRE_TRANSACTION => on_or_off(self.requires_transaction),
            DATABASE_PARAMETER => &self.identity.database,
            _ => value,
        }))
    }
}
