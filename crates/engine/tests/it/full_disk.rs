//! A disk that is full: a clear error before anything is published, nothing lost, and on it goes when there is room.

use crate::support::client::{query, step};
use holdfast_engine::trail_dump::{Filter, dump};
use holdfast_engine::{Collect, Database, Engine, Options, Step, Submission, WriteOptions};
use holdfast_seams::testing::FaultDisk;
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlResult, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn insert(db: &Database, statement: &Step, id: i64) -> SqlResult<()> {
    let steps = vec![Step { params: vec![Value::Int(id)], ..statement.clone() }];
    db.submit(Submission::new(steps, Box::new(Collect::new()))).unwrap().wait().expect("answered").result
}

/// An engine on a disk whose capacity can be set, with an empty table.
struct Bed {
    disk: FaultDisk,
    dir: tempfile::TempDir,
    failed: Arc<AtomicBool>,
    options: Options,
    e: Engine,
    db: Database,
}

fn opened(seed: u64) -> Bed {
    let (disk, dir) = (FaultDisk::new(seed), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let failed = Arc::new(AtomicBool::new(false));
    let failing = failed.clone();
    let options = Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 1 << 20,
        redo_bytes_max: 64 << 20,
        prewrite_bytes_min: 1 << 20,
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite)],
        on_failure: Arc::new(move |_| failing.store(true, Ordering::Relaxed)),
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options.clone()).unwrap();
    let db = e.database("one").unwrap();
    let create = step(&db, "create table t(id integer primary key, x)").unwrap();
    db.submit(Submission::new(vec![create], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
    Bed { disk, dir, failed, options, e, db }
}

/// RULE 7: trail room is reserved before the writer executes, so a full disk is an error of the request, not a lost commit.
#[test]
fn a_full_disk_is_met_before_anything_is_published() {
    let Bed { disk, dir, failed, options, e, db } = opened(7);
    let statement = step(&db, "insert into t values(?, hex(zeroblob(20000)))").unwrap();
    disk.set_capacity(Some(8 << 20));
    let mut id = 0;
    let refused = loop {
        assert!(id < 2000, "the disk never was full");
        match insert(&db, &statement, id) {
            Ok(()) => id += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.state(), SqlState::DISK_FULL, "{refused}");
    assert_eq!(query(&db, "select count(*) from t").unwrap(), [[Value::Int(id)]], "reading goes on");
    assert!(db.checkpoint().is_err(), "no room for it either");
    disk.set_capacity(None);
    // The room is looked for again in the background.
    while insert(&db, &statement, id).is_err() {
        std::thread::yield_now();
    }
    db.checkpoint().unwrap();
    assert!(!failed.load(Ordering::Relaxed), "nothing of it ends the process");
    drop((db, e));
    let e = Engine::open(dir.path(), options).unwrap();
    assert_eq!(query(&e.database("one").unwrap(), "select count(*) from t").unwrap(), [[Value::Int(id + 1)]]);
    e.close().unwrap();
}

/// What a large commit has sent ahead when the disk is full keeps no room from others.
#[test]
fn a_large_commit_that_finds_no_room_takes_back_what_it_has_sent() {
    let Bed { disk, dir, failed, options, e, db } = opened(8);
    let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
    let many = "with recursive i(n) as (values(1) union all select n + 1 from i where n < 400) \
                insert into t select n, hex(zeroblob(20000)) from i";
    let many = step(&db, many).unwrap();
    txn.execute_blocking(many, Box::new(Collect::new())).unwrap().result.unwrap();
    disk.set_capacity(Some(8 << 20));
    let refused = txn.commit_blocking(Box::new(Collect::new())).unwrap().result.unwrap_err();
    assert_eq!(refused.state(), SqlState::DISK_FULL, "{refused}");
    assert_eq!(query(&db, "select count(*) from t").unwrap(), [[Value::Int(0)]]);
    disk.set_capacity(None);
    let statement = step(&db, "insert into t values(?, 'there is room')").unwrap();
    while insert(&db, &statement, 1).is_err() {
        std::thread::yield_now();
    }
    let (mut sent, mut dropped) = (0, 0);
    dump(dir.path(), &options, Filter::default(), |item| {
        for line in item.to_string().lines().map(str::trim) {
            sent += u32::from(line.starts_with("fragment "));
            dropped += u32::from(line.starts_with("fragments of transaction"));
        }
        true
    })
    .unwrap();
    assert!(sent > 2 && dropped > 0, "{sent} sent, {dropped} dropped");
    assert!(!failed.load(Ordering::Relaxed), "nothing of it ends the process");
    drop((db, e));
    let e = Engine::open(dir.path(), options).unwrap();
    assert_eq!(query(&e.database("one").unwrap(), "select count(*) from t").unwrap(), [[Value::Int(1)]]);
    e.close().unwrap();
}
