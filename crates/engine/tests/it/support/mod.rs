//! What the attacks on the engine share: random transactions, plain SQLite as oracle, and the way to a database.

pub mod client;
pub mod model;
pub mod plain;
pub mod workload;

use holdfast_engine::Report;

/// How a statement is reported that a client sends: with its facts.
pub fn report_of(sql: &str) -> Report {
    Report { facts: holdfast_sql::facts(sql), ..Report::default() }
}
