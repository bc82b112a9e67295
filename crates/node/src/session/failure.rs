//! Errors that several files of the session report.

use holdfast_types::{SqlError, SqlState};
use holdfast_wire::Failure;

/// The server stops before the outcome of a commit is known.
pub(super) fn stopping() -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, "the server is stopping; whether the transaction took effect is unknown")
}

/// A failure that ends the session.
pub(super) fn fatal(error: SqlError) -> Failure {
    Failure { step: None, error, fatal: true }
}

/// 25006.
pub(super) fn read_only(verb: &str) -> SqlError {
    let command = verb.trim_end_matches(" 0");
    SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, format!("cannot execute {command} in a read-only transaction"))
}

/// A statement's error with its position counted from the start of the message: the statement starts at `offset` in `text`.
pub(super) fn shifted(error: SqlError, text: &str, offset: usize) -> SqlError {
    match error.parts().position {
        Some(position) if offset > 0 => {
            let before = text.get(..offset).map_or(0, |t| t.chars().count());
            error.with_position(position + before as u32)
        }
        _ => error,
    }
}
