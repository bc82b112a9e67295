//! A disk that is full: a clear error before anything is published, nothing lost, and on it goes when there is room.

#[allow(dead_code)] // Each test program uses a part of it.
mod support;

use holdfast_engine::{Batch, Collect, Database, Engine, Options, Step};
use holdfast_seams::testing::FaultDisk;
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlResult, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::client::{query, step};

fn insert(db: &Database, statement: &Step, id: i64) -> SqlResult<()> {
    let steps = vec![Step { params: vec![Value::Int(id)], ..statement.clone() }];
    db.submit(Batch::new(steps, Box::new(Collect::new()))).unwrap().wait().expect("answered").result
}

/// RULE 7: trail room is reserved before MAIN executes, so a full disk is an error of the request, not a lost commit.
#[test]
fn a_full_disk_is_met_before_anything_is_published() {
    let disk = FaultDisk::new(7);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let failed = Arc::new(AtomicBool::new(false));
    let failing = failed.clone();
    let options = Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 1 << 20,
        redo_bytes_max: 64 << 20,
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite)],
        on_failure: Arc::new(move |_| failing.store(true, Ordering::Relaxed)),
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options.clone()).unwrap();
    let db = e.database("one").unwrap();
    let create = step(&db, "create table t(id integer primary key, x)").unwrap();
    db.submit(Batch::new(vec![create], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
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
