//! What the attacks on the engine share: random transactions, plain SQLite as oracle, and the way to a database.

pub mod client;
pub mod model;
pub mod plain;
pub mod workload;
