//! Errors, worded for the operator.

use holdfast_client::{ClientError, StatementError};
use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::SqliteError;

#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Statement(#[from] StatementError),
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
