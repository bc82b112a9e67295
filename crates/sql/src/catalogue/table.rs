//! A table of the catalogue, what its rows are computed from, and the cells of a row.

use super::live::{Live, LockRow, PreparedRow};
use crate::types::datetime::format_timestamp;
use holdfast_types::access::predefined::READ_ALL_STATS_OID;
use holdfast_types::access::{Privileges, Roles};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SettingRow, Value, VolumeId};
use std::sync::Arc;

/// A table of the catalogue.
#[derive(Debug)]
pub struct CatalogTable {
    /// `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    pub name: &'static str,
    /// Names and type OIDs.
    pub columns: &'static [(&'static str, u32)],
    /// The table cannot have rows in this release.
    pub always_empty: bool,
    pub rows: fn(&CatalogContext<'_>) -> Vec<Vec<Value>>,
}

/// What the rows are computed from.
#[derive(Debug)]
pub struct CatalogContext<'a> {
    pub schema: &'a Schema,
    pub dialect: Dialect,
    pub database: &'a str,
    pub database_oid: u32,
    pub user: &'a str,
    /// Whose eyes see the rows.
    pub viewer: Viewer,
    pub databases: Vec<DatabaseRow>,
    /// Parameters that sessions of all roles start with.
    pub parameters_of_all: Vec<(String, String)>,
    /// All roles, and owners and grants of databases.
    pub roles: &'a Roles,
    /// Every setting of the session that its role may see.
    pub settings: Vec<SettingRow>,
    /// Name and value of the engine's counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Name and value of the counters of automatic transactions.
    pub automatic: Vec<(&'static str, u64)>,
    pub locks: Vec<LockRow>,
    pub prepared: Vec<PreparedRow>,
    /// What the server is doing now.
    pub live: &'a dyn Live,
}

/// The role that reads a table of the catalogue.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    pub roles: Arc<Roles>,
    /// `None`: not known; it may see what every role may see.
    pub role: Option<u32>,
}

impl Viewer {
    /// Whether the role may see what a session or a statement of `owner` does: as in PostgreSQL, its own, those of roles
    /// whose privileges it has, and everything with the privileges of `pg_read_all_stats`.
    pub fn sees_statistics_of(&self, owner: u32) -> bool {
        let has = |of| self.role.is_some_and(|role| self.roles.has_privileges_of(role, of));
        has(READ_ALL_STATS_OID) || has(owner)
    }
}

impl Viewer {
    /// Whether verifiers of passwords are shown.
    pub fn is_superuser(&self) -> bool {
        self.role.is_some_and(|role| self.roles.is_superuser(role))
    }

    /// Whether the role may see the size of a database: as in PostgreSQL, with CONNECT on it, or with the privileges of
    /// `pg_read_all_stats`.
    pub fn connects_to(&self, database: u32) -> bool {
        self.role.is_some_and(|role| {
            self.roles.database(database).privileges(&self.roles, role).contains(Privileges::CONNECT)
                || self.roles.has_privileges_of(role, READ_ALL_STATS_OID)
        })
    }
}

/// A database of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseRow {
    pub oid: u32,
    pub name: String,
    pub dialect: Dialect,
    pub volume: VolumeId,
    /// Parameters that its sessions start with.
    pub parameters: Vec<(String, String)>,
}

/// A text cell.
pub fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

/// A number cell.
pub fn int(value: impl Into<i64>) -> Value {
    Value::Int(value.into())
}

pub fn boolean(value: bool) -> Value {
    Value::Int(i64::from(value))
}

/// A counter.
pub fn count(value: u64) -> Value {
    int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A time in microseconds since 1970. One outside the years 1 to 9999 has no text.
pub fn moment(us: Option<i64>) -> Value {
    us.and_then(|us| format_timestamp(us).ok()).map_or(Value::Null, |t| text(t + "+00"))
}

/// Numbers between blanks, as int2vector and oidvector print.
pub fn vector(numbers: impl IntoIterator<Item = i64>) -> Value {
    text(numbers.into_iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" "))
}

/// An array of numbers.
pub fn array(numbers: impl IntoIterator<Item = i64>) -> Value {
    text(format!("{{{}}}", numbers.into_iter().map(|n| n.to_string()).collect::<Vec<_>>().join(",")))
}
