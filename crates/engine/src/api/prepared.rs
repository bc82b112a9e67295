//! Prepared transactions, as the handles see them.

use crate::api::database::Database;
use crate::api::engine::Engine;
use crate::route::prepared;
use crate::state::database::DatabaseState;
use crate::state::prepared::Prepared;
use crate::state::submission::Ticket;
use holdfast_types::{Level, SqlResult};
use std::sync::Arc;

/// A prepared transaction, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedInfo {
    /// The name its client gave it.
    pub gid: String,
    /// The user who prepared it.
    pub owner: String,
    pub database: String,
    /// Microseconds since 1970.
    pub prepared_unix_us: i64,
}

impl Database {
    /// Commits a prepared transaction, or rolls it back. The ticket says when that is durable and has reached `level`.
    ///
    /// 42704: there is none of that name; 55000: another session is ending it; 0A000: it is another database's.
    pub fn finish_prepared(&self, gid: &str, commit: bool, level: Level) -> SqlResult<Ticket> {
        prepared::finish(self.state(), gid, commit, level)
    }
}

impl Engine {
    /// The prepared transactions of all databases.
    pub fn prepared(&self) -> Vec<PreparedInfo> {
        let info = |database: &Arc<DatabaseState>| {
            let of = |(gid, p): (&String, &Prepared)| PreparedInfo {
                gid: gid.clone(),
                owner: p.owner.clone(),
                database: database.name.clone(),
                prepared_unix_us: p.prepared_unix_us,
            };
            database.prepared.lock().iter().map(of).collect::<Vec<_>>()
        };
        self.open_databases().iter().flat_map(info).collect()
    }
}
