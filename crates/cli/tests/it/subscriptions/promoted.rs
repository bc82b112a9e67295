//! The publisher, or the subscriber, is killed and its standby takes over: the feed continues there without a person, and has
//! everything that was acknowledged.

use super::bed::{connection, figure, until_equal};
use crate::node::{Node, Pair, succeeds};
use crate::server::{one, run};
use tempfile::TempDir;

const MADE: &str = "create table n(id int primary key, v text); create table total(k int primary key, n bigint)";
const ALL: &str = "select count(*), coalesce(sum(id), 0), (select n from total) from n";

/// Commits transactions of both tables; returns the id after the last.
async fn write(node: &Node, from: i64) -> i64 {
    let client = node.connect().await;
    for id in from..from + 50 {
        let sql =
            format!("begin; insert into n values ({id}, repeat('v', {id})); update total set n = n + {id}; commit");
        run(&client, &sql).await;
    }
    from + 50
}

async fn until_the_same(publisher: &Node, subscriber: &Node) {
    until_equal(&publisher.connect().await, &subscriber.connect().await, ALL, ALL).await;
}

#[tokio::test]
async fn a_subscriber_finds_the_promoted_standby_of_its_publisher() {
    let mut pair = Pair::master("synchronous_standby_names = \"b\"\n");
    let master = pair.a.connect().await;
    run(&master, "set synchronous_commit = local").await;
    run(&master, &format!("{MADE}; insert into total values (1, 0); create publication p for table n, total")).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    let scratch = TempDir::new().unwrap();
    let mut subscriber = Node::new(&scratch, "c");
    subscriber.start();
    let client = subscriber.connect().await;
    run(&client, MADE).await;
    // The standby is named first: it is passed over while it is one.
    let hosts = format!(
        "host=127.0.0.1,127.0.0.1 port={},{} dbname=holdfast user=holdfast target_session_attrs=read-write",
        pair.b.port, pair.a.port
    );
    run(&client, &format!("create subscription s connection '{hosts}' publication p")).await;
    let next = write(&pair.a, 1).await;
    until_the_same(&pair.a, &subscriber).await;
    subscriber.hang();
    let next = write(&pair.a, next).await;
    drop(master);
    pair.a.kill();
    subscriber.resume();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let next = write(&pair.b, next).await;
    until_the_same(&pair.b, &subscriber).await;
    assert_eq!(one(&client, "select max(id) from n").await, (next - 1).to_string());
    assert_eq!(figure(&client, "rows_missing").await, "0");
    assert!(!subscriber.log().contains("(23505)"), "a transaction was applied twice");
}

#[tokio::test]
async fn a_promoted_standby_of_a_subscriber_continues_its_subscription() {
    let scratch = TempDir::new().unwrap();
    let mut publisher = Node::new(&scratch, "p");
    publisher.start();
    let there = publisher.connect().await;
    run(&there, &format!("{MADE}; insert into total values (1, 0); create publication p for table n, total")).await;
    let mut pair = Pair::master("synchronous_standby_names = \"b\"\n");
    let master = pair.a.connect().await;
    run(&master, "set synchronous_commit = local").await;
    run(&master, MADE).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    run(&master, &format!("create subscription s connection '{}' publication p", connection(&publisher))).await;
    let next = write(&publisher, 1).await;
    until_the_same(&publisher, &pair.a).await;
    pair.until_equal().await;
    // A standby has no worker: one reader has the slot, and that is the master.
    assert_eq!(
        one(&pair.b.connect().await, "select count(*) from holdfast_stat_sites where state = 'following'").await,
        "0"
    );
    let next = write(&publisher, next).await;
    drop(master);
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let next = write(&publisher, next).await;
    until_the_same(&publisher, &pair.b).await;
    let client = pair.b.connect().await;
    assert_eq!(one(&client, "select max(id) from n").await, (next - 1).to_string());
    assert_eq!(figure(&client, "rows_missing").await, "0");
    assert!(!pair.b.log().contains("(23505)"), "a transaction was applied twice");
}
