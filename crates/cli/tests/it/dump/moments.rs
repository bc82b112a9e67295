//! Restores to moments, compared with what was committed.

use super::bed::{Bed, wal_lsn};
use crate::node::{Node, one, rows, run, succeeds};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_postgres::Client;

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A moment after the commit of `k` and before that of `k + 1`, as position and time.
#[derive(Clone, Copy, Debug)]
struct Moment {
    k: u64,
    lsn: u64,
    unix_ms: u64,
}

pub fn time(unix_ms: u64) -> String {
    let text = succeeds_date(unix_ms / 1000);
    format!("{text}.{:03}Z", unix_ms % 1000)
}

fn succeeds_date(seconds: u64) -> String {
    let output =
        std::process::Command::new("date").args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%d %H:%M:%S"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap().trim().to_owned()
}

/// Commits in both databases, or in one, and notes the moments between them. Others write all the time.
async fn load(bed: &Bed, commits: u64) -> Vec<Moment> {
    let client = bed.node.connect().await;
    for database in ["holdfast", "postgres"] {
        let tables =
            "create table if not exists m(k int primary key, v text); create table if not exists n(k int primary key)";
        run(&client, &format!("use {database}; {tables}; use holdfast")).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut noise = Vec::new();
    for writer in 0..3u64 {
        let (client, stop) = (bed.node.connect().await, stop.clone());
        noise.push(tokio::spawn(async move {
            let mut k = writer;
            while !stop.load(Ordering::Relaxed) {
                let both = format!(
                    "begin; insert into n values ({k}); use postgres; insert into n values ({k}); commit; use holdfast"
                );
                run(&client, &both).await;
                k += 3;
            }
        }));
    }
    let mut moments = Vec::new();
    for k in 1..=commits {
        let insert = format!("insert into m select {k}, repeat('x', {})", k % 7 * 3000);
        match k % 3 {
            0 => run(&client, &insert).await,
            1 => run(&client, &format!("use postgres; {insert}; use holdfast")).await,
            _ => run(&client, &format!("begin; {insert}; use postgres; {insert}; commit; use holdfast")).await,
        }
        let moment = Moment { k, lsn: wal_lsn(&client).await, unix_ms: now_ms() };
        // The clock counts milliseconds.
        while now_ms() == moment.unix_ms {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        moments.push(moment);
    }
    stop.store(true, Ordering::Relaxed);
    for noise in noise {
        noise.await.unwrap();
    }
    moments
}

async fn keys(client: &Client, database: &str, table: &str) -> Vec<u64> {
    let sql = format!("use {database}; select k from {table}");
    let mut keys: Vec<u64> = rows(client, &sql)
        .await
        .iter()
        .map(|row| row.replace(|c: char| !c.is_ascii_digit(), "").parse().unwrap())
        .collect();
    run(client, "use holdfast").await;
    keys.sort_unstable();
    keys
}

/// The restored server has the commits up to `k`, and of the others' whole ones, without gaps.
async fn assert_is(node: &Node, k: u64, what: &str) {
    let client = node.connect().await;
    let up_to = |of: fn(u64) -> bool| (1..=k).filter(|k| of(*k)).collect::<Vec<_>>();
    assert_eq!(keys(&client, "holdfast", "m").await, up_to(|k| k % 3 != 1), "{what}");
    assert_eq!(keys(&client, "postgres", "m").await, up_to(|k| k % 3 != 0), "{what}");
    let noise = keys(&client, "holdfast", "n").await;
    assert_eq!(noise, keys(&client, "postgres", "n").await, "{what}: whole or absent");
    for writer in 0..3 {
        let own: Vec<u64> = noise.iter().copied().filter(|k| k % 3 == writer).collect();
        assert_eq!(own, (0..own.len() as u64).map(|n| n * 3 + writer).collect::<Vec<_>>(), "{what}: without gaps");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_positions_and_times_are_restored_exactly() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    let mut moments = load(&bed, 5).await;
    let first = bed.dump();
    let mut later = Vec::new();
    for round in 0..3 {
        let client = bed.node.connect().await;
        run(&client, "delete from m; delete from n; use postgres; delete from m; delete from n; use holdfast").await;
        later = load(&bed, 120).await;
        if round == 0 {
            bed.dump();
        }
    }
    // Of the last round only: what it commits is not deleted again.
    moments.clear();
    moments.extend(&later);
    bed.until_archived(&client).await;
    assert!(first["lsn"].as_u64().unwrap() < moments[0].lsn);
    for n in 0..30usize {
        let moment = moments[(n * 37 + 11) % moments.len()];
        let (lsn, when) = (moment.lsn.to_string(), time(moment.unix_ms));
        // From the newest dump that is early enough, and from the first one.
        let mut more = if n % 2 == 0 { vec!["--to-lsn", &lsn] } else { vec!["--to-time", &when] };
        if n % 5 == 0 {
            more.extend(["--dump", first["name"].as_str().unwrap()]);
        }
        let name = format!("restored{n}");
        let (report, mut node) = bed.restore(&name, &more);
        node.start();
        assert_is(&node, moment.k, &format!("{more:?} {report}")).await;
        assert!(node.stop().success());
        std::fs::remove_dir_all(bed.path(&name)).unwrap();
    }
}

/// The transactions in the trail, with the text of each record.
fn transactions(bed: &Bed) -> Vec<(u64, String)> {
    let lines = succeeds(&["trail", "dump", "--data", bed.node.data(), "--json"]);
    let mut found = Vec::new();
    let mut visit = vec![];
    for line in lines.lines() {
        visit.push(serde_json::from_str::<Value>(line).unwrap());
        while let Some(value) = visit.pop() {
            match value {
                Value::Object(object) => {
                    if let Some(id) = object.get("id").and_then(Value::as_u64).filter(|id| id >> 32 > 0) {
                        found.push((id, Value::Object(object.clone()).to_string()));
                    }
                    visit.extend(object.into_values());
                }
                Value::Array(values) => visit.extend(values),
                _ => {}
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_transaction_is_the_last_one_or_the_first_that_is_missing() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table m(k int primary key, v text)").await;
    run(&client, "use postgres; create table m(k int primary key, v text); use holdfast").await;
    bed.dump();
    // Several sessions at a time, so that boxcars have several commits.
    let mut sessions = Vec::new();
    for session in 0..6u64 {
        let client = bed.node.connect().await;
        sessions.push(tokio::spawn(async move {
            for n in 0..20 {
                let k = 100 + session * 100 + n;
                let insert = format!("insert into m values ({k}, 'mark{k}mark')");
                match session % 2 {
                    0 => run(&client, &insert).await,
                    _ => run(&client, &format!("begin; {insert}; use postgres; {insert}; commit; use holdfast")).await,
                }
            }
        }));
    }
    for session in sessions {
        session.await.unwrap();
    }
    let found = transactions(&bed);
    bed.until_archived(&client).await;
    for (n, k) in [100, 110, 205, 319, 413, 500, 607, 619].into_iter().enumerate() {
        let mark = format!("mark{k}mark");
        // Of a commit in two databases, either part names it.
        let of_commit: Vec<u64> = found.iter().filter(|(_, text)| text.contains(&mark)).map(|(id, _)| *id).collect();
        let expected = if k / 100 % 2 == 1 { 1 } else { 2 };
        assert_eq!(of_commit.len(), expected, "{k}: {of_commit:?}");
        let id = of_commit[n % of_commit.len()].to_string();
        let count = |rows: &[u64]| rows.iter().filter(|row| **row == k).count();
        let mut before = Vec::new();
        for (target, is_in) in [("--before-transaction", false), ("--to-transaction", true)] {
            let name = format!("restored{n}{is_in}");
            let (report, mut node) = bed.restore(&name, &[target, &id]);
            node.start();
            let client = node.connect().await;
            let (here, there) = (keys(&client, "holdfast", "m").await, keys(&client, "postgres", "m").await);
            assert_eq!(count(&here), usize::from(is_in), "{k} {report}");
            assert_eq!(count(&there), usize::from(is_in && expected == 2), "{k} {report}");
            let two: Vec<u64> = here.iter().copied().filter(|k| k / 100 % 2 == 0).collect();
            assert_eq!(two, there, "whole or absent");
            if is_in {
                assert_eq!(here.len(), before.len() + 1, "that one and no other");
            }
            before = here;
            assert!(node.stop().success());
        }
    }
    let error = bed.restore_fails("nowhere", &["--to-transaction", "99999999999999"]);
    assert!(error.contains("transaction 99999999999999 is not in the archive"), "{error}");
}

/// Without a target a restore has all that the archive has, and not less.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_archives_end_is_the_end_and_what_is_beyond_is_said() {
    let mut bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create table m(k int primary key)").await;
    bed.dump();
    run(&client, "insert into m values (1)").await;
    bed.until_archived(&client).await;
    run(&client, "insert into m values (2)").await;
    let (lsn, unix_ms) = (wal_lsn(&client).await, now_ms());
    bed.node.kill();
    let error = bed.restore_fails("beyond", &["--to-lsn", &lsn.to_string()]);
    assert!(error.contains("--to-lsn") && error.contains("What was not archived is not there"), "{error}");
    assert!(bed.restore_fails("beyond", &["--to-time", &time(unix_ms)]).contains("which ends at LSN"));
    assert!(!bed.path("beyond").exists(), "it is refused before anything is written");
    std::fs::remove_dir_all(&bed.node.dir).unwrap();
    let (_, mut node) = bed.restore("restored", &[]);
    node.start();
    assert_eq!(one(&node.connect().await, "select count(*) from m where k = 1").await, "1");
    assert!(bed.restore_fails("early", &["--to-time", "2001-01-01 00:00"]).contains("no dump that ends at or before"));
}
