//! The connection to the running server.

use crate::error::PartError;
use holdfast_client::Server;
use tokio_postgres::Client;

/// A session in a database.
pub async fn connect(server: &Server, database: &str) -> Result<Client, PartError> {
    Ok(server.connect(database, "holdfast restore").await?)
}
