//! What a dump contains, what the next one stores, and from which servers it is taken.

use super::bed::{Bed, fill, sum};
use crate::node::{Pair, asked, dump, one, run, succeeds, until};
use holdfast_types::lsn::lsn_text;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_comes_back_with_everything_and_begins_a_history_of_its_own() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 2).await;
    run(&client, "create database shop").await;
    run(&client, "alter database shop set holdfast.level = 'local'").await;
    run(&bed.node.connect_with("user=holdfast dbname=shop").await, "create table orders(id int primary key, v text)")
        .await;
    run(&bed.node.connect_with("user=holdfast dbname=shop").await, "insert into orders values (7, 'x')").await;
    let created = bed.dump();
    assert_eq!(created["databases"], 3, "{created}");
    // What comes later is not in it.
    let before = dump(&bed.node).await;
    run(&client, "delete from t; drop table t").await;
    let listed: serde_json::Value =
        serde_json::from_str(&succeeds(&["dump", "list", "--from", bed.place(), "--json"])).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["lsn"]), (&created["name"], &created["lsn"]));
    assert!(succeeds(&["dump", "list", "--from", bed.place()]).contains(created["name"].as_str().unwrap()));
    assert!(bed.verify().0);

    // As pg_current_wal_lsn() shows it; other tests give the number.
    let lsn = lsn_text(created["lsn"].as_u64().unwrap());
    let (restored, mut node) = bed.restore("restored", &["--to-lsn", &lsn]);
    assert_eq!((&restored["lsn"], &restored["dump"]), (&created["lsn"], &created["name"]));
    assert_ne!(restored["old_trail"], restored["new_trail"]);
    assert!(restored["new_lsn"].as_u64() > restored["lsn"].as_u64(), "{restored}");
    assert!(bed.restore_fails("restored", &[]).contains("is not empty"));
    node.start();
    assert_eq!(dump(&node).await, before);
    assert_eq!(asked(&node, "select count(*) from pg_stat_replication").await, "0");
    // The settings, with the archive: its objects lie in a folder of their own.
    run(&node.connect().await, "create table later(id int)").await;
    fill(&node.connect().await, 3).await;
    let folder = bed.archive.join(restored["new_trail"].as_str().unwrap());
    until("the restored server archives", async || folder.is_dir()).await;
    assert!(node.stop().success());
    succeeds(&["check", "--data", node.data()]);
    node.start();
    assert_eq!(asked(&node, "select count(*) from later").await, "0");
    // It can be dumped itself, and stores only what differs.
    let again = bed.dump_of(&node.at());
    assert!(bed.verify().0, "{again}");
}

/// The pages in which two files differ.
fn differing_pages(one: &Path, other: &Path) -> u64 {
    let (one, other) = (std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
    let pages = |bytes: &[u8]| bytes.chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (one, other) = (pages(&one), pages(&other));
    let common = one.iter().zip(&other).filter(|(a, b)| a != b).count();
    (common + one.len().abs_diff(other.len())) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_dump_stores_what_has_changed() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    fill(&client, 24).await;
    let first = bed.dump();
    run(&client, "update t set v = md5(v) || substr(v, 33) where id % 100 = 7").await;
    let second = bed.dump();
    let nothing = bed.dump();
    let restored = |name: &str, dump: &serde_json::Value| {
        bed.restore(name, &["--to-lsn", &dump["lsn"].to_string(), "--dump", dump["name"].as_str().unwrap()]);
        bed.path(name).join("volumes/000001-holdfast.db")
    };
    let touched = differing_pages(&restored("first", &first), &restored("second", &second));
    let (bytes, stored) = (second["bytes"].as_u64().unwrap(), second["stored_bytes"].as_u64().unwrap());
    assert!(
        touched > 0 && stored <= bytes / 50 + touched * 4096,
        "{stored} of {bytes}, {touched} pages touched: {second}"
    );
    assert!(nothing["stored_bytes"].as_u64().unwrap() <= bytes / 50, "{nothing}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_dumped_as_well_as_its_master() {
    let bed = Bed::start();
    let pair = Pair::start("").await;
    fill(&pair.a.connect().await, 3).await;
    pair.until_equal().await;
    let of_standby = bed.dump_of(&pair.b.at());
    assert_eq!(of_standby["node"], "b");
    let (_, mut node) = bed.restore("restored", &[]);
    node.start();
    assert_eq!(dump(&node).await, dump(&pair.a).await);
    run(&node.connect().await, "insert into t(v) values ('mine')").await;
    // Nothing is kept for a dump that has ended.
    assert_eq!(asked(&pair.a, "select count(*) from holdfast_stat_standbys").await, "1");
}

/// Each dump is one moment, whatever goes on, and no writer stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn dumps_under_load_vacuum_and_databases_that_come_and_go_are_of_one_moment() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table n(k int primary key)").await;
    run(&client, "use postgres; create table n(k int primary key); use holdfast").await;
    fill(&client, 4).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = Vec::new();
    for writer in 0..2 {
        let (client, stop) = (bed.node.connect().await, stop.clone());
        work.push(tokio::spawn(async move {
            let mut k = writer;
            while !stop.load(Ordering::Relaxed) {
                let both = format!(
                    "begin; insert into n values ({k}); use postgres; insert into n values ({k}); commit; use holdfast"
                );
                run(&client, &both).await;
                k += 2;
            }
            k / 2
        }));
    }
    let (other, stops) = (bed.node.connect().await, stop.clone());
    work.push(tokio::spawn(async move {
        let mut rounds = 0;
        while !stops.load(Ordering::Relaxed) {
            run(&other, "create database passing").await;
            run(&other, "use passing; create table p(x int); insert into p values (1); use holdfast").await;
            run(&other, "vacuum").await;
            run(&other, "drop database passing").await;
            rounds += 1;
        }
        rounds
    }));
    let dumps: Vec<_> = (0..4).map(|_| tokio::task::block_in_place(|| bed.dump())).collect();
    stop.store(true, Ordering::Relaxed);
    for work in work {
        assert!(work.await.unwrap() > 0);
    }
    let mut most = 0;
    for (place, dump) in dumps.iter().enumerate() {
        let name = format!("restored{place}");
        let more = ["--to-lsn", &dump["lsn"].to_string(), "--dump", dump["name"].as_str().unwrap()];
        let (_, mut node) = bed.restore(&name, &more);
        node.start();
        let rows = "select count(*) || ' ' || coalesce(sum(k), 0) from n";
        let client = node.connect().await;
        let (here, there) = (one(&client, rows).await, one(&client, &format!("use postgres; {rows}")).await);
        assert_eq!(here, there, "the two databases are of one moment");
        let count: i64 = here.split(' ').next().unwrap().parse().unwrap();
        assert!(count >= most, "{here}");
        most = count;
        assert!(sum(&node).await.starts_with("4000 "));
        assert!(node.stop().success());
    }
}
