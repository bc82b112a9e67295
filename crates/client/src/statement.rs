//! Statements of a session: their rows as text, and their errors as an operator reads them.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A row of an answer as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// A statement that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {message}")]
pub struct StatementError {
    /// What it was for.
    pub what: String,
    /// The server's; `None`: the connection failed.
    pub state: Option<SqlState>,
    /// With its SQLSTATE, detail and hint.
    pub message: String,
}

impl StatementError {
    pub fn of(what: impl Into<String>, error: &tokio_postgres::Error) -> StatementError {
        StatementError { what: what.into(), state: error.code().cloned(), message: shown(error) }
    }

    /// Whether the SQLSTATE begins so.
    pub fn is(&self, state: &str) -> bool {
        self.state.as_ref().is_some_and(|own| own.code().starts_with(state))
    }
}

/// Runs statements without an answer.
pub async fn run(client: &Client, what: impl Into<String>, sql: &str) -> Result<(), StatementError> {
    client.batch_execute(sql).await.map_err(|error| StatementError::of(what, &error))
}

/// The rows of a query.
pub async fn rows(client: &Client, what: impl Into<String>, sql: &str) -> Result<Vec<Row>, StatementError> {
    let messages = client.simple_query(sql).await.map_err(|error| StatementError::of(what, &error))?;
    Ok(messages.iter().filter_map(row_of).collect())
}

/// The row that a message is.
pub fn row_of(message: &SimpleQueryMessage) -> Option<Row> {
    match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()),
        _ => None,
    }
}

/// The server's message with its SQLSTATE, detail and hint; else that of the connection, with its causes.
pub(crate) fn shown(error: &tokio_postgres::Error) -> String {
    let Some(from_server) = error.as_db_error() else {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        return text;
    };
    let mut text = format!("{} ({})", from_server.message(), from_server.code().code());
    for (name, more) in [("DETAIL", from_server.detail()), ("HINT", from_server.hint())] {
        if let Some(more) = more {
            text.push_str(&format!(". {name}: {more}"));
        }
    }
    text
}
