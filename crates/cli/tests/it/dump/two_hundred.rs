//! Restores to two hundred positions and times, compared with a model of what three databases had committed. The restored
//! files are read as SQLite, without a server.

use super::bed::{Bed, wal_lsn};
use super::moments::{now_ms, time};
use crate::node::{run, succeeds};
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const RESTORES: usize = 200;
const COMMITS: u64 = 400;
const DATABASES: [&str; 3] = ["holdfast", "postgres", "third"];

/// In which databases commit `k` inserts its row.
fn places(k: u64) -> &'static [usize] {
    match k % 4 {
        0 => &[0],
        1 => &[1],
        2 => &[0, 2],
        _ => &[2, 1, 0],
    }
}

#[derive(Clone, Copy)]
struct Moment {
    k: u64,
    lsn: u64,
    unix_ms: u64,
}

/// The message of one commit in these databases.
fn commit(table: &str, k: u64, places: &[usize]) -> String {
    let inserts: Vec<String> =
        places.iter().map(|place| format!("use {}; insert into {table} values ({k})", DATABASES[*place])).collect();
    match places {
        [_] => inserts.join("; "),
        [first, rest @ ..] => {
            let rest: Vec<String> = rest
                .iter()
                .map(|place| format!("use {}; insert into {table} values ({k})", DATABASES[*place]))
                .collect();
            format!("use {0}; begin; insert into {table} values ({k}); {1}; commit", DATABASES[*first], rest.join("; "))
        }
        [] => String::new(),
    }
}

async fn load(bed: &Bed, from: u64, to: u64) -> Vec<Moment> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut noise = Vec::new();
    for writer in 0..2u64 {
        let (client, stop) = (bed.node.connect().await, stop.clone());
        noise.push(tokio::spawn(async move {
            let mut n = from * 1_000_000 + writer;
            while !stop.load(Ordering::Relaxed) {
                run(&client, &commit("n", n, &[0, 1, 2])).await;
                n += 2;
            }
        }));
    }
    let (client, mut moments) = (bed.node.connect().await, Vec::new());
    for k in from..to {
        run(&client, &commit("m", k, places(k))).await;
        let moment = Moment { k, lsn: wal_lsn(&client).await, unix_ms: now_ms() };
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

fn keys(data: &Path, place: usize, table: &str) -> Vec<u64> {
    let ends = format!("-{}.db", DATABASES[place]);
    let files = std::fs::read_dir(data.join("volumes")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| path.to_str().unwrap().ends_with(&ends)).unwrap();
    let mut conn = Conn::open(file.to_str().unwrap(), OpenFlags { write: false, create: false }, None).unwrap();
    let rows = conn.query_rows(&format!("SELECT k FROM {table} ORDER BY k")).unwrap();
    rows.iter().map(|row| if let Value::Int(k) = row[0] { k as u64 } else { panic!("{row:?}") }).collect()
}

fn assert_is(data: &Path, k: u64, what: &str) {
    for (place, database) in DATABASES.iter().enumerate() {
        let expected: Vec<u64> = (0..=k).filter(|k| places(*k).contains(&place)).collect();
        assert!(keys(data, place, "m") == expected, "{what}: {database} does not end behind commit {k}");
    }
    let noise = keys(data, 0, "n");
    assert!(noise == keys(data, 1, "n") && noise == keys(data, 2, "n"), "{what}: whole or absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_random_positions_and_times_are_restored_exactly() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create database third dialect sqlite").await;
    for database in DATABASES {
        let tables = "create table m(k integer primary key); create table n(k integer primary key)";
        run(&client, &format!("use {database}; {tables}; use holdfast")).await;
    }
    bed.dump();
    let mut moments = Vec::new();
    for part in 0..4 {
        moments.extend(load(&bed, part * COMMITS / 4, (part + 1) * COMMITS / 4).await);
        if part < 3 {
            bed.dump();
        }
    }
    bed.until_archived(&client).await;
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let next = AtomicUsize::new(0);
    let one = |n: usize| {
        // Any positions, in an order that differs from run to run.
        let random =
            (seed ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let moment = moments[(random % moments.len() as u64) as usize];
        // A boxcar has a block at least: the next one is not in before it is whole.
        let lsn = (moment.lsn + (random >> 32) % 4096).to_string();
        let when = time(moment.unix_ms);
        let more = if n.is_multiple_of(2) { ["--to-lsn", &lsn] } else { ["--to-time", &when] };
        let name = format!("restored{n}");
        let arguments = bed.restore_arguments(&name, &more);
        let report = succeeds(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_is(&bed.path(&name), moment.k, &format!("seed {seed}, {more:?}, {report}"));
        std::fs::remove_dir_all(bed.path(&name)).unwrap();
    };
    let work = || {
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                n if n < RESTORES => one(n),
                _ => return,
            }
        }
    };
    tokio::task::block_in_place(|| std::thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(work))));
}
