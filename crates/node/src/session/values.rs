//! The values that translated statements take from the session: the time, the user, `lastval()`, settings.

use crate::clock::{now_us, server_start_us, settings_read_us};
use crate::settings::{REQUIRE_TRANSACTION, Settings};
use holdfast_sql::{SessionValue, SessionValues};
use holdfast_types::inet::Inet;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use holdfast_wire::{Peer, PeerAddress};
use std::net::SocketAddr;

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
}

/// The parameter that USE sets.
pub const DATABASE_PARAMETER: &str = "database";

/// The session's values while one statement runs.
pub struct Values<'a> {
    pub identity: &'a Identity,
    pub settings: &'a Settings,
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
            SessionValue::User | SessionValue::SessionUser => Value::Text(self.identity.user.clone()),
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
                Ok(value) => Value::Text(value.to_owned()),
                Err(_) if *missing_ok => Value::Null,
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

    /// The value that SHOW returns for a parameter.
    pub fn setting(&self, name: &str) -> SqlResult<&str> {
        let (name, value) = self.settings.get(name)?;
        Ok(match name {
            "transaction_isolation" => self.transaction.0,
            "transaction_read_only" => on_or_off(self.transaction.1),
            REQUIRE_TRANSACTION => on_or_off(self.requires_transaction),
            "session_authorization" => &self.identity.user,
            DATABASE_PARAMETER => &self.identity.database,
            _ => value,
        })
    }
}
