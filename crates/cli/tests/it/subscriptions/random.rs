//! Random transactions at a publisher that is killed, as its subscriber is, at random moments: in the end both have the same, and at
//! every moment the subscriber has whole transactions only.
//!
//! `HOLDFAST_FEED_TRANSACTIONS` is the number of transactions.

use super::bed::{Bed, figure};
use crate::server::{one, run};
use holdfast_seams::testing::Seeded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

/// A transaction adds a row to `log` and its id to `total`; one of `big` is over the size from which it is applied while it arrives.
const TABLES: &str = "create table log(id bigint primary key, v text); create table total(k int primary key, n bigint); \
    create table item(a int, b text, v text, region int, primary key (b, a)); create table big(id int primary key, v text)";

/// Rows of each transaction of `big`.
const BIG: u64 = 5000;

const WHOLE: &str = "select coalesce((select sum(id) from log), 0) = (select n from total) and \
    (select count(*) from big) % 5000 = 0 and (select count(*) from item where region >= 3) = 0";

/// What is published of each table, and what of it is here.
const PUBLISHED: [(&str, &str); 4] = [
    ("select count(*), sum(id), sum(length(v)) from log", "select count(*), sum(id), sum(length(v)) from log"),
    ("select * from total", "select * from total"),
    ("select * from item where region < 3", "select * from item"),
    ("select count(*), sum(id), max(v) from big", "select count(*), sum(id), max(v) from big"),
];

async fn connected(port: u16) -> Client {
    let config = format!("host=127.0.0.1 port={port} user=holdfast dbname=holdfast");
    loop {
        if let Ok((client, connection)) = tokio_postgres::connect(&config, NoTls).await {
            tokio::spawn(connection);
            return client;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn change(random: &mut Seeded) -> String {
    let (a, other, region) = (random.below(20), random.below(20), random.below(6));
    let text = ["x", "Y y", "z'z"][random.below(3) as usize].replace('\'', "''");
    let v = if random.one_in(8) { "repeat('v', 20000)".to_owned() } else { format!("'{other}'") };
    match random.below(7) {
        0 | 1 => format!(
            "insert into item values ({a}, '{text}', {v}, {region}) on conflict (b, a) do update set v = excluded.v"
        ),
        2 => format!("update item set region = {region} where a between {a} and {a} + 4"),
        3 => format!("update item set a = a + 100, v = {v} where a = {a} and b = '{text}'"),
        4 => format!("update item set v = null where a % 3 = {a} % 3"),
        5 => format!("delete from item where a in ({a}, {other} + 100) or a > 150"),
        _ => format!("update item set a = a + 200 where a = {a}; update item set a = {a} where a = {a} + 200"),
    }
}

/// A transaction of the log with this id, or of the large table.
fn transaction(random: &mut Seeded, id: i64) -> String {
    if random.one_in(60) {
        let from = (id * 10_000) % 1_000_000_000;
        let insert = format!("insert into big select {from} + g, repeat('b', 1000) from generate_series(1, {BIG}) g");
        return if random.one_in(3) { format!("begin; delete from big; {insert}; commit") } else { insert };
    }
    let mut script =
        vec!["begin".to_owned(), format!("insert into log values ({id}, repeat('v', {}))", random.below(200))];
    for _ in 0..random.below(4) {
        script.push(change(random));
        if random.one_in(5) {
            script.extend(["savepoint s".to_owned(), change(random), "rollback to s".to_owned()]);
        }
    }
    script.extend([format!("update total set n = n + {id}"), "commit".to_owned()]);
    script.join("; ")
}

/// Commits transactions over the ends of the publisher. One whose key is there already is rolled back.
async fn write(port: u16, transactions: u64, is_over: Arc<AtomicBool>) {
    let mut random = Seeded::new(11);
    let mut client = connected(port).await;
    let mut done = 0;
    while done < transactions {
        // A transaction that was not answered may be there.
        let next = client.query_one("select coalesce(max(id), 0) + 1 from log", &[]).await;
        let Ok(next) = next.map(|row| row.get::<_, i64>(0)) else {
            client = connected(port).await;
            continue;
        };
        match client.batch_execute(&transaction(&mut random, next)).await {
            Ok(()) => done += 1,
            // The server is gone, or a key is there: the session's end rolls back.
            Err(_) => client = connected(port).await,
        }
    }
    is_over.store(true, Ordering::Relaxed);
}

/// Something that ends the feed.
async fn disturb(bed: &mut Bed, random: &mut Seeded) {
    match random.below(5) {
        0 => bed.subscriber.kill(),
        1 => drop(bed.subscriber.stop()),
        2 => {
            bed.publisher.kill();
            return bed.publisher.start();
        }
        3 => {
            bed.publisher.stop();
            return bed.publisher.start();
        }
        _ => {
            let client = bed.subscriber.connect().await;
            run(&client, "alter subscription s disable").await;
            return run(&client, "alter subscription s enable").await;
        }
    }
    bed.subscriber.start();
}

#[tokio::test]
async fn a_subscriber_has_what_is_published_after_random_transactions_and_kills() {
    let transactions = std::env::var("HOLDFAST_FEED_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(600);
    let mut bed = Bed::start();
    bed.both(TABLES).await;
    bed.publish(
        "insert into total values (1, 0); create publication p for table log, total, item where (region < 3), big",
    )
    .await;
    bed.subscribe("").await;
    bed.until_equal("select * from total", "select * from total").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(bed.publisher.port, transactions, is_over.clone()));
    let mut random = Seeded::new(5);
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..10 {
            let client = bed.subscriber.connect().await;
            assert_eq!(one(&client, WHOLE).await, "t");
            tokio::time::sleep(Duration::from_millis(random.below(100))).await;
        }
        disturb(&mut bed, &mut random).await;
    }
    writing.await.unwrap();
    for (there, here) in PUBLISHED {
        bed.until_equal(there, here).await;
    }
    assert_eq!(one(&bed.subscriber.connect().await, WHOLE).await, "t");
    assert_eq!(figure(&bed.subscriber.connect().await, "rows_missing").await, "0");
    assert!(!bed.subscriber.log().contains("(23505)"), "a transaction was applied twice");
}
