//! A publisher that is a Holdfast or a PostgreSQL 15.

use super::bed::fail_if_it_has_failed;
use crate::node::Node;
use crate::server::until_settled;
use holdfast_testbed::oracle::Postgres;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// A publisher.
pub enum Side {
    Holdfast(Node),
    Postgres(Postgres),
}

impl Side {
    pub fn holdfast(scratch: &TempDir, name: &'static str) -> Side {
        let mut node = Node::new(scratch, name);
        node.start();
        Side::Holdfast(node)
    }

    pub fn port(&self) -> u16 {
        match self {
            Side::Holdfast(node) => node.port,
            Side::Postgres(postgres) => postgres.port,
        }
    }

    pub fn database(&self) -> &'static str {
        if matches!(self, Side::Holdfast(_)) { "holdfast" } else { "postgres" }
    }

    pub fn address(&self) -> String {
        format!("host=127.0.0.1 port={} user=holdfast dbname={}", self.port(), self.database())
    }

    pub async fn connect(&self) -> Client {
        connected(&self.address()).await.unwrap()
    }

    /// Kills it, and starts it again.
    pub fn kill(&mut self) {
        match self {
            Side::Holdfast(node) => {
                node.kill();
                node.start();
            }
            Side::Postgres(postgres) => postgres.crash(),
        }
    }
}

pub async fn connected(address: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(address, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

/// Waits until the subscriber `here` has the rows of the publisher, and fails when its subscription does.
pub async fn until_same(there: &Client, here: &Client, sql: &str) {
    until_settled("both have the same rows", async || {
        fail_if_it_has_failed(here).await;
        let (published, received) = (texts(there, sql).await, texts(here, sql).await);
        (published != received).then(|| format!("{published:?}, here {received:?}"))
    })
    .await;
}

/// The rows of a query, their cells separated by blanks.
pub async fn texts(client: &Client, sql: &str) -> Vec<String> {
    let messages = client.simple_query(sql).await.unwrap();
    let row = |message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" "))
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}
