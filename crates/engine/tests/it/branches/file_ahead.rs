//! What the trail says of a file after a checkpoint, and a kill then. Between a checkpoint and its record the file has a large
//! transaction whose fragments the trail still has: it stays a file that the trail explains, also when those are recycled. And the
//! trail never says more of a file than it has.

use super::bench::*;
use holdfast_engine::{Engine, Options};
use holdfast_seams::points;
use holdfast_types::schema::Dialect;
use std::fs;
use std::path::Path;

const SEGMENT_BYTES: u64 = 1 << 20;

fn small_segments() -> Options {
    let initial_databases = vec![("one".into(), Dialect::Sqlite), ("two".into(), Dialect::Sqlite)];
    Options { segment_bytes: SEGMENT_BYTES, prewrite_bytes_min: 64 << 10, initial_databases, ..options() }
}

fn copy_files(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool + Copy) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, is_dir) = (entry.file_name().into_string().unwrap(), entry.file_type().unwrap().is_dir());
        match is_dir {
            true => copy_files(&entry.path(), &to.join(&name), wanted),
            false if wanted(&name) => drop(fs::copy(entry.path(), to.join(&name)).unwrap()),
            false => {}
        }
    }
}

#[test]
fn a_file_that_has_a_large_transaction_already_is_recorded_before_the_trail_is_recycled() {
    let o = open_with("create table t(id integer primary key, body text)", small_segments());
    o.db.checkpoint().unwrap();
    let mut txn = begin(&o.db, RC);
    run(
        &mut txn,
        "with recursive i(n) as (values(1) union all select n + 1 from i where n < 3000) \
         insert into t select n, printf('%01000d', n) from i",
    )
    .unwrap();
    commit(txn).unwrap();
    let Opened { engine, db, dir } = o;
    // Without a checkpoint.
    drop((db, engine));
    let copy = tempfile::tempdir().unwrap();
    copy_files(dir.path(), copy.path(), |_| true);
    // The checkpoint whose record the copy lacks.
    let engine = Engine::open(dir.path(), small_segments()).unwrap();
    engine.database("one").unwrap().checkpoint().unwrap();
    engine.close().unwrap();
    copy_files(dir.path(), copy.path(), |name| name.ends_with("one.db"));

    let engine = Engine::open(copy.path(), small_segments()).unwrap();
    let (one, two) = (engine.database("one").unwrap(), engine.database("two").unwrap());
    assert_eq!(int(&one, "select count(*) from t"), 3000);
    one.checkpoint().unwrap();
    at_once(&two, "create table filler(x)").unwrap();
    // Those of the epoch before are recycled, and with them the transaction.
    let is_kept = |name: std::ffi::OsString| name.to_string_lossy().starts_with("00000001-");
    let kept = || fs::read_dir(copy.path().join("trail")).unwrap().any(|e| is_kept(e.unwrap().file_name()));
    while kept() {
        at_once(&two, "insert into filler values(zeroblob(200000))").unwrap();
        two.checkpoint().unwrap();
    }
    drop((one, two));
    engine.close().unwrap();
    let found = holdfast_engine::check::check(copy.path(), &small_segments()).unwrap();
    assert!(found.is_sound(), "{found:?}");
    let engine = Engine::open(copy.path(), small_segments()).unwrap();
    assert_eq!(int(&engine.database("one").unwrap(), "select sum(length(body)) from t"), 3_000_000);
    engine.close().unwrap();
}

/// The named value of the engine's counters.
fn counted(engine: &Engine, name: &str) -> u64 {
    engine.stats().into_iter().find(|(of, _)| *of == name).map_or(0, |(_, n)| n)
}

#[test]
fn what_becomes_durable_while_a_checkpoint_finds_nothing_to_write_is_not_recorded_as_in_the_file() {
    let o = open(T);
    o.db.checkpoint().unwrap();
    let checkpoints = counted(&o.engine, "checkpoints");
    let db = o.db.clone();
    points::once_at("a checkpoint has nothing to write", move || {
        at_once(&db, "insert into t values(4, 40, 'late')").map(drop).unwrap();
    });
    o.db.checkpoint().unwrap();
    assert_eq!(int(&o.db, "select v from t where id = 4"), 40, "the point was not reached");
    // The server's own checkpointer may have been faster.
    let is_owed = counted(&o.engine, "redo_bytes") > 0 || counted(&o.engine, "checkpoints") > checkpoints;
    assert!(is_owed, "the trail would be recycled though the file lacks the row");
    let Opened { engine, db, dir } = o;
    // Without a checkpoint.
    drop((db, engine));
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(int(&engine.database("one").unwrap(), "select v from t where id = 4"), 40);
    engine.close().unwrap();
}
