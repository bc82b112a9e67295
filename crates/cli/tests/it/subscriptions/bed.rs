//! A publisher and a subscriber, and how both are compared.

use crate::node::{Node, rows};
use crate::server::{one, run, until_settled};
use tempfile::TempDir;
use tokio_postgres::Client;

/// Two servers; the first publishes.
pub struct Bed {
    pub publisher: Node,
    pub subscriber: Node,
    _scratch: TempDir,
}

impl Bed {
    pub fn start() -> Bed {
        let scratch = TempDir::new().unwrap();
        let (mut publisher, mut subscriber) = (Node::new(&scratch, "a"), Node::new(&scratch, "b"));
        publisher.start();
        subscriber.start();
        Bed { publisher, subscriber, _scratch: scratch }
    }

    /// Runs the same statement on both.
    pub async fn both(&self, sql: &str) {
        run(&self.publisher.connect().await, sql).await;
        run(&self.subscriber.connect().await, sql).await;
    }

    pub async fn publish(&self, sql: &str) {
        run(&self.publisher.connect().await, sql).await;
    }

    /// The CONNECTION of a subscription to the publisher.
    pub fn connection(&self) -> String {
        connection(&self.publisher)
    }

    /// Creates the subscription `s` to the publication `p`.
    pub async fn subscribe(&self, with: &str) {
        let sql = format!("create subscription s connection '{}' publication p{with}", self.connection());
        run(&self.subscriber.connect().await, &sql).await;
    }

    /// Waits until the subscriber's query returns what the publisher's does.
    pub async fn until_equal(&self, there: &str, here: &str) {
        let (publisher, subscriber) = (self.publisher.connect().await, self.subscriber.connect().await);
        until_equal(&publisher, &subscriber, there, here).await;
    }

    /// One cell of the subscription's row of `holdfast_stat_sites`.
    pub async fn figure(&self, column: &str) -> String {
        figure(&self.subscriber.connect().await, column).await
    }
}

pub fn connection(node: &Node) -> String {
    let (host, port) = node.at().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    format!("host={host} port={port} dbname=holdfast user=holdfast")
}

pub async fn figure(client: &Client, column: &str) -> String {
    one(client, &format!("select {column} from holdfast_stat_sites where direction = 'from'")).await
}

/// Classes of errors, and one error, after which a subscription tries again: of the connection, of a server that starts or stops,
/// and of a slot that an earlier connection still has.
const PASS: [&str; 4] = ["08", "40", "57", "55006"];

/// Fails with the subscription's last error, unless it is one after which it tries again and does better. For waits that no error of
/// a change may end: without this they last to their end, and say nothing of it.
pub async fn fail_if_it_has_failed(subscriber: &Client) {
    let error = figure(subscriber, "last_error").await;
    let states = error.split('(').filter_map(|part| part.split_once(')')).map(|(state, _)| state);
    let passes = |state: &str| PASS.iter().any(|class| state.starts_with(class)) && state != "08P01";
    assert!(
        error.is_empty() || states.filter(|state| state.len() == 5).any(passes),
        "the subscription has failed: {error}"
    );
}

pub async fn until_equal(publisher: &Client, subscriber: &Client, there: &str, here: &str) {
    until_settled("the subscriber has everything", async || {
        let (published, received) = (rows(publisher, there).await, rows(subscriber, here).await);
        let state = "select state, applied_lsn, transactions, changes, last_error from holdfast_stat_sites";
        let state = rows(subscriber, state).await;
        (published != received).then(|| {
            let first = published.iter().zip(&received).find(|(published, received)| published != received);
            format!("{} rows, {} received, first difference {first:?}, {state:?}", published.len(), received.len())
        })
    })
    .await;
}
