//! Asks a publisher for its tables, and creates and drops slots there.
//!
//! Failure: 0A000 until the protocol's client is here.

use holdfast_types::{SqlError, SqlResult, SqlState};

/// A table that the publications publish.
pub struct RemoteTable {
    pub schema: String,
    pub name: String,
    pub columns: Vec<String>,
}

/// The tables of these publications, and those of the names that the publisher does not have. 08006 or 08001 where the publisher
/// cannot be reached.
pub async fn published_tables(
    _connection: &str,
    _publications: &[String],
) -> SqlResult<(Vec<RemoteTable>, Vec<String>)> {
    Err(not_connected())
}

pub async fn create_slot(_connection: &str, _slot: &str) -> SqlResult<()> {
    Err(not_connected())
}

pub async fn drop_slot(_connection: &str, _slot: &str) -> SqlResult<()> {
    Err(not_connected())
}

fn not_connected() -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "not connected yet")
}
