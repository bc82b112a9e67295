//! A row that stands in the way of an undo.

use crate::by::By;
use serde::Serialize;
use std::fmt;

/// A row that a later transaction changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    pub database: String,
    pub table: String,
    /// Names and values, as text.
    pub key: String,
    pub transaction: u64,
    pub lsn: u64,
    pub unix_ms: u64,
    #[serde(flatten)]
    pub by: By,
    /// insert, update, delete, or schema of a change to the table itself.
    pub operation: &'static str,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { database, table, key, transaction, lsn, unix_ms, by, operation } = self;
        let time = holdfast_dump::show_moment(*unix_ms);
        match *operation {
            "schema" => write!(f, "{database}: {table}: schema changed")?,
            operation => write!(f, "{database}: {table} {key}: {operation}")?,
        }
        write!(f, " by transaction {transaction} at {time}, LSN {lsn}")?;
        if by.session_user.is_some() { write!(f, ", {by}") } else { Ok(()) }
    }
}
