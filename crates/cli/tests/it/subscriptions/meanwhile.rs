//! What happens here while a copy or a large transaction is under way, or a commit waits: changes of the schema, a stop, a DROP, a
//! standby that is away; and many subscriptions at once.

use super::bed::{Bed, connection, figure, until_equal};
use crate::node::{Node, Pair};
use crate::server::{one, run, state, until, until_settled};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::Client;

const LARGE: &str = "insert into t select g, repeat('x', 1000) from generate_series(1, 40000) g";
const ALL: &str = "select count(*), sum(id), sum(length(v)) from t";

async fn bed() -> Bed {
    let bed = Bed::start();
    bed.both("create table t(id int primary key, v text)").await;
    bed.publish("create publication p for table t").await;
    bed
}

/// Waits until some of what the publisher sends has arrived.
async fn until_bytes_arrive(bed: &Bed) {
    until_settled("bytes arrive", async || {
        let bytes = bed.figure("bytes").await;
        (bytes.parse::<u64>().unwrap_or(0) < 1 << 20).then_some(bytes)
    })
    .await;
}

#[tokio::test]
async fn the_schema_changes_while_a_large_transaction_arrives() {
    let bed = bed().await;
    bed.subscribe("").await;
    bed.until_equal(ALL, ALL).await;
    let client = bed.subscriber.connect().await;
    let changing = async {
        until_bytes_arrive(&bed).await;
        run(&client, "create table other(id int primary key); alter table t add column n int default 7").await;
        run(&client, "create index on t (n); drop table other; alter table t rename column n to m").await;
    };
    tokio::join!(bed.publish(LARGE), changing);
    bed.until_equal(ALL, ALL).await;
    assert_eq!(one(&client, "select count(*) from t where m = 7").await, "40000");
}

#[tokio::test]
async fn a_stop_ends_a_large_transaction_and_a_copy_at_once() {
    let mut bed = bed().await;
    bed.subscribe("").await;
    bed.until_equal(ALL, ALL).await;
    tokio::join!(bed.publish(LARGE), until_bytes_arrive(&bed));
    let begun = Instant::now();
    assert!(bed.subscriber.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    bed.subscriber.start();
    bed.until_equal(ALL, ALL).await;
    let client = bed.subscriber.connect().await;
    run(&client, "drop subscription s").await;
    run(&client, "delete from t").await;
    bed.subscribe("").await;
    until_bytes_arrive(&bed).await;
    let begun = Instant::now();
    assert!(bed.subscriber.stop().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    bed.subscriber.start();
    bed.until_equal(ALL, ALL).await;
}

#[tokio::test]
async fn tables_and_subscriptions_are_dropped_while_they_are_copied() {
    let bed = bed().await;
    bed.publish(LARGE).await;
    bed.both("create table u(id int primary key)").await;
    bed.publish("alter publication p add table u; insert into u values (1)").await;
    let client = bed.subscriber.connect().await;
    bed.subscribe("").await;
    until_bytes_arrive(&bed).await;
    run(&client, "drop table t").await;
    bed.until_equal("select * from u", "select * from u").await;
    run(&client, "drop subscription s").await;
    run(&client, "delete from u; create table t(id int primary key, v text)").await;
    bed.subscribe("").await;
    until_bytes_arrive(&bed).await;
    run(&client, "drop subscription s").await;
    assert_eq!(one(&client, "select count(*) from t").await, "0", "no part of it stays");
    let publisher = bed.publisher.connect().await;
    assert_eq!(one(&publisher, "select count(*) from pg_replication_slots").await, "0");
    // The tables are the database's own again.
    run(&client, "insert into t values (-1, 'own')").await;
    // Without its slot, while its worker is at work.
    run(&client, "delete from t; delete from u").await;
    bed.subscribe("").await;
    until_bytes_arrive(&bed).await;
    run(&client, "alter subscription s disable").await;
    run(&client, "alter subscription s set (slot_name = none)").await;
    run(&client, "drop subscription s").await;
    run(&client, "insert into u values (7) on conflict do nothing").await;
    let before = one(&client, "select count(*) from t").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(one(&client, "select count(*) from t").await, before, "nothing arrives after it is dropped");
    assert_eq!(one(&client, "select count(*) from pg_subscription").await, "0");
}

/// A publisher, a subscriber whose commits wait for its standby, and clients of both.
struct Waiting {
    publisher: Node,
    pair: Pair,
    there: Client,
    here: Client,
    _scratch: TempDir,
}

impl Waiting {
    /// Both have the table, the publisher with a row.
    async fn start() -> Waiting {
        let scratch = TempDir::new().unwrap();
        let mut publisher = Node::new(&scratch, "p");
        publisher.start();
        let there = publisher.connect().await;
        run(&there, "create table t(id int primary key, v text); create publication p for table t").await;
        run(&there, "insert into t values (-1, 'before')").await;
        let mut pair = Pair::master("synchronous_standby_names = \"b\"\n");
        let here = pair.a.connect().await;
        run(&here, "set synchronous_commit = local").await;
        run(&here, "create table t(id int primary key, v text)").await;
        pair.create_standby();
        pair.b.start();
        pair.until_followed().await;
        Waiting { publisher, pair, there, here, _scratch: scratch }
    }

    async fn subscribe(&self) {
        let create = format!("create subscription s connection '{}' publication p", connection(&self.publisher));
        run(&self.here, &format!("{create} with (disable_on_error = true)")).await;
    }

    async fn until_equal(&self) {
        let all = "select * from t order by id";
        until_equal(&self.there, &self.here, all, all).await;
    }

    /// Ends the feed, so that another worker begins while the commit of the one before waits.
    async fn restart_publisher(&mut self) {
        self.publisher.kill();
        self.start_publisher().await;
    }

    async fn start_publisher(&mut self) {
        self.publisher.start();
        self.there = self.publisher.connect().await;
    }

    /// Whatever the second worker does meanwhile, the standby returns, and everything is here once.
    async fn standby_returns(&mut self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.pair.b.start();
        self.until_equal().await;
        assert_eq!(one(&self.here, "select subenabled from pg_subscription").await, "t");
        assert!(!self.pair.a.log().contains("(23505)"), "a transaction was applied twice");
    }
}

/// A commit waits for a standby that is away, and the feed's connection ends: the position that readers see is the one before. What is
/// applied again is refused by the position, not by a key, and the subscription stays enabled.
#[tokio::test]
async fn a_commit_that_waits_for_a_standby_is_not_applied_twice() {
    let mut bed = Waiting::start().await;
    bed.subscribe().await;
    bed.until_equal().await;
    bed.pair.b.kill();
    run(&bed.there, "insert into t values (0, 'waits')").await;
    bed.pair.a.until_commits_wait(1).await;
    assert_eq!(one(&bed.here, "select count(*) from t").await, "1");
    bed.restart_publisher().await;
    run(&bed.there, "insert into t values (1, 'after')").await;
    until("the worker has tried again", async || {
        let followed = one(&bed.there, "select count(*) from pg_stat_replication").await == "1";
        followed || figure(&bed.here, "last_error").await.contains("position")
    })
    .await;
    bed.standby_returns().await;
}

/// The same of a transaction that is applied while it arrives: its rows come before its position.
#[tokio::test]
async fn a_large_commit_that_waits_for_a_standby_is_not_applied_twice() {
    let mut bed = Waiting::start().await;
    bed.subscribe().await;
    bed.until_equal().await;
    bed.pair.b.kill();
    run(&bed.there, LARGE).await;
    bed.pair.a.until_commits_wait(1).await;
    bed.restart_publisher().await;
    until("the publisher sends again", async || {
        one(&bed.there, "select count(*) from pg_stat_replication").await == "1"
    })
    .await;
    bed.standby_returns().await;
}

/// And of a copy.
#[tokio::test]
async fn a_copy_whose_commit_waits_for_a_standby_is_not_made_twice() {
    let mut bed = Waiting::start().await;
    bed.pair.b.kill();
    bed.subscribe().await;
    bed.pair.a.until_commits_wait(1).await;
    bed.publisher.kill();
    // Ends the worker, and fails.
    assert!(state(&bed.here, "drop subscription s").await.is_some());
    bed.start_publisher().await;
    let copying = "select count(*) from pg_stat_activity where query like 'COPY%'";
    until("it is copied again", async || one(&bed.there, copying).await == "1").await;
    bed.standby_returns().await;
}

#[tokio::test]
async fn eighty_subscriptions() {
    let bed = Bed::start();
    let (publisher, client) = (bed.publisher.connect().await, bed.subscriber.connect().await);
    for n in 0..80 {
        run(&publisher, &format!("create table t{n}(id int primary key); create publication p{n} for table t{n}"))
            .await;
        run(&client, &format!("create table t{n}(id int primary key)")).await;
        let failed =
            state(&client, &format!("create subscription s{n} connection '{}' publication p{n}", bed.connection()))
                .await;
        assert_eq!(failed, None, "{n}");
    }
    for n in 0..80 {
        run(&publisher, &format!("insert into t{n} values ({n})")).await;
    }
    for n in 0..80 {
        let all = format!("select id from t{n}");
        until_equal(&publisher, &client, &all, &all).await;
    }
}
