//! Errors, worded for the operator.

use holdfast_client::ClientError;
use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::SqliteError;
use tokio_postgres::error::SqlState;

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{what}: {error}")]
    Server { what: String, state: Option<SqlState>, error: String },
    #[error("the restored database cannot be read: {0}")]
    Source(#[from] SqliteError),
    #[error("the restored database cannot be read: {0}")]
    Schema(#[from] SchemaError),
    #[error("there is no table {table} in database {database} at that moment{near}")]
    NoTable { database: String, table: String, near: String },
    #[error(
        "{name} is a {kind}; only tables are brought back by themselves. Bring back the database, with --database and without --table"
    )]
    NotATable { name: String, kind: &'static str },
    #[error("database {0} exists; choose another name with --as")]
    DatabaseExists(String),
    #[error(
        "database {database} has {here} dialect in the server and {there} in the dump; a table can be brought back into a database of the same dialect only"
    )]
    Dialect { database: String, here: &'static str, there: &'static str },
    #[error(
        "the rows of the virtual table {0} are in another program's form and cannot be copied: restore the whole server with --data"
    )]
    Virtual(String),
    #[error("{table}: {copied} of {rows} rows were stored; nothing was kept")]
    Count { table: String, copied: u64, rows: u64 },
}

impl PartError {
    /// An error of a statement, with what it was for.
    pub fn of(what: impl Into<String>, error: &tokio_postgres::Error) -> PartError {
        PartError::Server { what: what.into(), state: error.code().cloned(), error: shown(error) }
    }

    pub fn state(&self) -> Option<&SqlState> {
        match self {
            PartError::Server { state, .. } => state.as_ref(),
            _ => None,
        }
    }
}

/// The server's message with its SQLSTATE, detail and hint; else that of the connection.
pub fn shown(error: &tokio_postgres::Error) -> String {
    let Some(from_server) = error.as_db_error() else {
        return match std::error::Error::source(error) {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
    };
    let mut text = format!("{} ({})", from_server.message(), from_server.code().code());
    for (name, more) in [("DETAIL", from_server.detail()), ("HINT", from_server.hint())] {
        if let Some(more) = more {
            text.push_str(&format!(". {name}: {more}"));
        }
    }
    text
}
