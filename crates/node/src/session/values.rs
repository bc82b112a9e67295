//! The values that translated statements take from the session: the time, the user, `lastval()`, settings.

use crate::clock::{now_us, server_start_us, settings_read_us};
use crate::database::Databases;
use crate::settings::{REQUIRE_TRANSACTION, Settings, StatementSettings, is_hidden};
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
            SessionValue::CurrentSchema => match self.schemas(false).into_iter().next() {
                Some(first) => Value::Text(first),
                None => Value::Null,
            },
            SessionValue::Schemas { implicit } => {
                let quoted = self.schemas(*implicit).into_iter().map(|name| {
                    match name.contains(['"', '\\', ',', ' ', '{', '}']) {
                        true => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
                        false => name,
                    }
                });
                Value::Text(format!("{{{}}}", quoted.collect::<Vec<_>>().join(",")))
            }
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

/// The names of a list such as `"$user", public`.
fn names_of(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut end = 0;
                while let Some(at) = quoted[end..].find('"').map(|n| end + n) {
                    if !quoted[at + 1..].starts_with('"') {
                        end = at;
                        break;
                    }
                    end = at + 2;
                }
                let (name, after) = quoted.split_at(end.min(quoted.len()));
                (name.replace("\"\"", "\""), after.strip_prefix('"').unwrap_or(""))
            }
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].trim().to_lowercase(), &rest[end..])
            }
        };
        names.push(name);
        rest = after.trim_start().strip_prefix(',').unwrap_or("").trim_start();
    }
    names
}

/// Whether a schema of this name exists.
fn is_schema(name: &str) -> bool {
    ["public", "pg_catalog", "information_schema"].contains(&name)
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

    /// The schemas of `search_path` that exist; `implicit`: also those that are searched without being named.
    fn schemas(&self, implicit: bool) -> Vec<String> {
        let path = self.settings.get("search_path").map_or("", |(_, path)| path);
        let mut found: Vec<String> = Vec::new();
        for name in names_of(path) {
            if is_schema(&name) && !found.contains(&name) {
                found.push(name);
            }
        }
        if implicit && !found.iter().any(|name| name == "pg_catalog") {
            found.insert(0, "pg_catalog".to_owned());
        }
        found
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

    /// The parameters, for a statement that reads or sets them.
    pub fn for_statement(&self) -> StatementSettings {
        let names = ["is_superuser", "transaction_isolation", "transaction_read_only", REQUIRE_TRANSACTION];
        let names = names.into_iter().chain([SESSION_PARAMETER, DATABASE_PARAMETER]);
        let shown = names.filter_map(|name| Some((name, self.setting(name).ok()?.into_owned())));
        let sees_all = self.may_see("hba_file");
        StatementSettings::new(self.settings.clone(), shown.collect(), self.is_superuser(), sees_all)
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

#[cfg(test)]
mod tests {
    use super::names_of;

    #[test]
    fn a_search_path_is_split_into_names() {
        assert_eq!(names_of("\"$user\", Public"), ["$user", "public"]);
        assert_eq!(names_of("\"a, \"\"b\"\"\",c ,\"\""), ["a, \"b\"", "c", ""]);
        assert!(names_of("").is_empty());
    }
}
