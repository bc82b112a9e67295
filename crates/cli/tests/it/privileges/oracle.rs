//! Sessions of the private PostgreSQL.

use holdfast_testbed::oracle::{PORT, Postgres};
use tokio_postgres::{Client, NoTls};

pub async fn connect(postgres: &Postgres) -> Client {
    let mut config = tokio_postgres::Config::new();
    config.host_path(postgres.socket()).port(PORT).user("holdfast").dbname("postgres");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
