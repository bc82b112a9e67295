//! The subscriber's disk loses power, at random operations, while tables are copied, small transactions are applied in groups, and
//! large ones while they arrive: a disk that forgets what was not synced. A position that survives without its rows leaves changes
//! out; rows that survive without the position come twice, and meet their keys.
//!
//! `HOLDFAST_POWER_CUTS` is the number of cuts.

use super::bed::{connection, figure};
use super::side::until_same;
use crate::node::Node;
use crate::server::{one, run};
use holdfast_seams::testing::{Seeded, skipped};
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const TABLES: &str = "create table log(id int primary key, v text); create table total(k int primary key, n bigint)";

/// A reader sees whole transactions.
const WHOLE: &str = "select coalesce((select sum(id) from log), 0) = coalesce((select n from total), 0)";

/// Commits transactions until `stop` is set; about each thirtieth has more than 4 MB.
async fn write(port: u16, stop: Arc<AtomicBool>) {
    let at = format!("host=127.0.0.1 port={port} user=holdfast dbname=holdfast");
    let (client, connection) = tokio_postgres::connect(&at, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let (mut id, mut random) = (0, Seeded::new(3));
    while !stop.load(Ordering::Relaxed) {
        let rows = if random.one_in(30) { 45 } else { 1 + random.below(3) };
        let width = if rows == 45 { 100_000 } else { random.below(200) };
        let (from, to) = (id + 1, id + rows);
        id = to;
        let sum: u64 = (from..=to).sum();
        let sql = format!(
            "begin; insert into log select g, repeat('v', {width}) from generate_series({from}, {to}) g; \
             update total set n = n + {sum}; commit"
        );
        run(&client, &sql).await;
        if rows == 45 {
            run(&client, &format!("update log set v = '' where id between {from} and {to}")).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(20))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_applied_survives_power_cuts_whole() {
    if let Some(why) = cannot_mount() {
        return skipped(&why);
    }
    let cuts: u64 = std::env::var("HOLDFAST_POWER_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    let scratch = TempDir::new().unwrap();
    let (mount, backing) = (scratch.path().join("disk"), scratch.path().join("backing"));
    [&mount, &backing].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let disk = UnsafeDisk::mount(&mount, Options::new(backing)).unwrap();
    let (mut publisher, mut subscriber) = (Node::new(&scratch, "a"), Node::new(&scratch, "b"));
    subscriber.dir = mount.join("b");
    subscriber.log_beside(scratch.path().join("b.log"));
    publisher.start();
    subscriber.start();
    let there = publisher.connect().await;
    run(&there, TABLES).await;
    run(&there, "insert into total values (1, 0); create publication p for table log, total").await;
    let here = subscriber.connect().await;
    run(&here, TABLES).await;
    run(&here, &format!("create subscription s connection '{}' publication p", connection(&publisher))).await;
    until_same(&there, &here, "select * from total").await;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(publisher.port, stop.clone()));
    let mut random = Seeded::new(9);
    for cut in 0..cuts {
        let here = subscriber.connect().await;
        assert_eq!(one(&here, WHOLE).await, "t", "cut {cut}");
        // A copy begins; it is under way at some of the cuts, and at others over.
        let create = format!("create table copied{cut}(id int primary key, v text)");
        run(&there, &create).await;
        run(&there, &format!("insert into copied{cut} select g, repeat('c', 200) from generate_series(1, 3000) g"))
            .await;
        run(&there, &format!("alter publication p add table copied{cut}")).await;
        run(&here, &create).await;
        run(&here, "alter subscription s refresh publication").await;
        let most = [30, 300, 1500][(cut % 3) as usize];
        disk.disk().command_text(&format!("cut after={}", 1 + random.below(most))).unwrap();
        tokio::task::block_in_place(|| subscriber.ended());
        disk.disk().restore().unwrap();
        subscriber.start();
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
    let here = subscriber.connect().await;
    for sql in ["select count(*), sum(id), sum(length(v)) from log", "select * from total"] {
        until_same(&there, &here, sql).await;
    }
    for cut in 0..cuts {
        let sql = format!("select count(*), sum(id), sum(length(v)) from copied{cut}");
        until_same(&there, &here, &sql).await;
    }
    assert_eq!(one(&here, WHOLE).await, "t");
    assert_eq!(figure(&here, "rows_missing").await, "0");
    assert!(!subscriber.log().contains("(23505)"), "applied twice:\n{}", subscriber.log());
    println!("{cuts} cuts, {} rows of the log", one(&there, "select count(*) from log").await);
    subscriber.stop();
}
