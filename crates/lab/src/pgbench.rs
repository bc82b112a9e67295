//! Drives both servers with PostgreSQL's own benchmark program.

/// The whole authorization as one simple-protocol message.
pub const ONE_MESSAGE: &str = "authorization, one simple message";
/// The whole authorization as one pipeline of prepared statements.
pub const PIPELINE: &str = "authorization, prepared pipeline";
/// One durable insert.
pub const INSERT: &str = "one durable insert, prepared";
/// One row read by its key.
pub const SELECT: &str = "one row by key, prepared";
