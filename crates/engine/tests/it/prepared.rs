//! Prepared transactions: what they keep, how they end, and that neither a stop nor a power cut loses one or half of it.

use crate::support::report_of;
use holdfast_engine::{Collect, Database, Engine, Options, Step, Submission, WriteIsolation, WriteOptions, WriteTxn};
use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlResult, SqlState, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 40;

fn options() -> Options {
    Options { initial_databases: vec![("one".into(), Dialect::Sqlite)], ..Options::default() }
}

fn open(dir: &Path) -> (Engine, Database) {
    let engine = Engine::open(dir, options()).unwrap();
    let db = engine.database("one").unwrap();
    (engine, db)
}

fn batch(db: &Database, sql: &str) -> SqlResult<Submission> {
    let stmt = db.prepare(sql, report_of(sql))?;
    Ok(Submission::new(vec![Step { stmt, params: vec![] }], Box::new(Collect::new())))
}

fn at_once(db: &Database, sql: &str) -> SqlResult<()> {
    db.submit(batch(db, sql)?)?.wait().unwrap().result
}

/// Gives up waiting for locks.
fn impatient(db: &Database, sql: &str) -> SqlState {
    let mut batch = batch(db, sql).unwrap();
    batch.lock_timeout = Duration::from_millis(50);
    db.submit(batch).unwrap().wait().unwrap().result.unwrap_err().state()
}

fn ints(db: &Database, sql: &str) -> Vec<i64> {
    let stmt = db.prepare(sql, report_of(sql)).unwrap();
    let rows = Collect::new();
    db.submit(Submission::new(vec![Step { stmt, params: vec![] }], Box::new(rows.clone())))
        .unwrap()
        .wait()
        .unwrap()
        .result
        .unwrap();
    let int = |row: Vec<Value>| match row[0] {
        Value::Int(n) => n,
        ref other => panic!("{other:?}"),
    };
    rows.outcomes().pop().unwrap().rows.into_iter().map(int).collect()
}

fn begin(db: &Database, sql: &[&str]) -> WriteTxn {
    let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
    for sql in sql {
        let stmt = db.prepare(sql, report_of(sql)).unwrap();
        txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(Collect::new())).unwrap().result.unwrap();
    }
    txn
}

fn prepare(txn: WriteTxn, gid: &str) -> SqlResult<()> {
    txn.prepare_transaction(gid, "me")?.wait().unwrap().result
}

fn finish(db: &Database, gid: &str, commit: bool) -> SqlResult<()> {
    db.finish_prepared(gid, commit, Level::Local)?.wait().unwrap().result
}

const T: [&str; 3] = [
    "create table t(id integer primary key, v integer, u text unique)",
    "insert into t values(1, 10, 'a'), (2, 20, 'b')",
    "create table c(p integer references t deferrable initially deferred)",
];

#[test]
fn it_keeps_its_changes_and_locks_until_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, db) = open(dir.path());
    T.iter().for_each(|sql| at_once(&db, sql).unwrap());
    let other = begin(&db, &["update t set v = 21 where id = 2"]);
    let repeatable = WriteOptions { isolation: WriteIsolation::RepeatableRead, ..WriteOptions::default() };
    let mut at_snapshot = db.begin_write_blocking(repeatable).unwrap();
    let insert = Step {
        stmt: db.prepare("insert into c values(2)", report_of("insert into c values(2)")).unwrap(),
        params: vec![],
    };
    at_snapshot.execute_blocking(insert.clone(), Box::new(Collect::new())).unwrap().result.unwrap();
    prepare(begin(&db, &["update t set v = 11 where id = 1", "insert into t values(3, 30, 'c')"]), "a").unwrap();
    // Making the table of prepared transactions disturbed nobody.
    std::thread::sleep(Duration::from_millis(150));
    at_snapshot.execute_blocking(insert, Box::new(Collect::new())).unwrap().result.unwrap();
    drop(at_snapshot);
    other.commit_blocking(Box::new(Collect::new())).unwrap().result.unwrap();
    assert_eq!(ints(&db, "select v from t order by id"), [10, 21], "nobody sees it");
    assert_eq!(impatient(&db, "update t set v = 0 where id = 1"), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(impatient(&db, "insert into t values(9, 0, 'c')"), SqlState::LOCK_NOT_AVAILABLE, "its key");
    assert_eq!(prepare(begin(&db, &[]), "a").unwrap_err().state(), SqlState::DUPLICATE_OBJECT);
    assert_eq!(engine.prepared().len(), 1);
    assert_eq!((engine.prepared()[0].owner.as_str(), engine.prepared()[0].database.as_str()), ("me", "one"));
    finish(&db, "a", true).unwrap();
    assert_eq!(ints(&db, "select v from t order by id"), [11, 21, 30]);
    at_once(&db, "update t set v = 0 where id = 1").unwrap();
    assert_eq!(finish(&db, "a", true).unwrap_err().state(), SqlState::UNDEFINED_OBJECT);
    prepare(begin(&db, &["delete from t"]), "b").unwrap();
    finish(&db, "b", false).unwrap();
    assert_eq!(ints(&db, "select count(*) from t"), [3]);
    at_once(&db, "create table nobody_holds_anything(x)").unwrap();
}

#[test]
fn what_could_not_be_committed_cannot_be_prepared() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, db) = open(dir.path());
    T.iter().for_each(|sql| at_once(&db, sql).unwrap());
    let refused = prepare(begin(&db, &["update t set v = 0", "insert into c values(99)"]), "a").unwrap_err();
    assert_eq!(refused.state(), SqlState::FOREIGN_KEY_VIOLATION);
    assert!(engine.prepared().is_empty());
    at_once(&db, "update t set v = v + 1").unwrap();
    assert_eq!(ints(&db, "select sum(v) from t"), [32]);
    let refused = prepare(begin(&db, &["create table x(y)"]), "a").unwrap_err();
    assert_eq!(refused.state(), SqlState::FEATURE_NOT_SUPPORTED);
    at_once(&db, "create table x(y)").unwrap();
}

#[test]
fn it_survives_a_stop_with_its_locks_and_ids() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, db) = open(dir.path());
    T.iter().for_each(|sql| at_once(&db, sql).unwrap());
    // More than one row of the server's table holds.
    let large = format!("insert into t values(7, 70, '{}')", "x".repeat(3 << 20));
    prepare(begin(&db, &["update t set v = 11 where id = 1", &large]), "it's").unwrap();
    prepare(begin(&db, &["update t set v = 0 where id = 2"]), "b").unwrap();
    drop(db);
    engine.close().unwrap();
    // Those of a database that nobody has asked for yet are known as well.
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(engine.prepared().len(), 2);
    engine.close().unwrap();
    drop(engine);
    let (engine, db) = open(dir.path());
    assert_eq!(engine.prepared().iter().map(|p| p.gid.as_str()).collect::<Vec<_>>(), ["b", "it's"]);
    assert_eq!(impatient(&db, "update t set v = 0 where id = 1"), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(impatient(&db, "alter table t add column z"), SqlState::LOCK_NOT_AVAILABLE);
    at_once(&db, "create table beside(x)").unwrap();
    at_once(&db, "insert into t(id, v) values(holdfast_next_id('t'), 1)").unwrap();
    assert_eq!(ints(&db, "select max(id) from t"), [8], "7 is taken");
    let drop_it = engine.drop_database("one", Level::Local).unwrap_err();
    assert_eq!(drop_it.state(), SqlState::OBJECT_IN_USE, "{drop_it}");
    finish(&db, "it's", true).unwrap();
    finish(&db, "b", false).unwrap();
    assert_eq!(ints(&db, "select v from t order by id"), [11, 20, 70, 1]);
    drop(db);
    engine.close().unwrap();
    let (engine, db) = open(dir.path());
    assert!(engine.prepared().is_empty());
    assert_eq!(ints(&db, "select sum(length(u)) from t"), [2 + (3 << 20)]);
    at_once(&db, "create table x(y)").unwrap();
}

/// Two clients prepare transfers between accounts and end them until the power fails: a transfer that was answered is
/// prepared, or ended as it was answered, and never half there.
#[test]
fn power_cuts_lose_no_prepared_transaction() {
    for seed in 0..SEEDS {
        let disk = FaultDisk::new(seed);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("scratch")).unwrap();
        let options = || Options {
            disk: Arc::new(disk.clone()),
            segment_bytes: 256 << 10,
            on_failure: Arc::new(|_| {}),
            ..options()
        };
        let mut random = Seeded::new(seed);
        let (mut prepared, mut committed) = (Vec::new(), 0);
        for cut in 0..4 {
            let engine = Engine::open(dir.path(), options()).unwrap();
            let db = engine.database("one").unwrap();
            if cut == 0 {
                at_once(&db, "create table a(id integer primary key, v integer)").unwrap();
                at_once(&db, "insert into a select value, 0 from json_each('[1,2,3,4,5,6,7,8]')").unwrap();
            }
            assert_eq!(ints(&db, "select sum(v) from a"), [0], "seed {seed}: half a transfer");
            let there: Vec<String> = engine.prepared().into_iter().map(|p| p.gid).collect();
            let lost = prepared.iter().filter(|gid| !there.contains(gid)).count();
            assert_eq!(lost, 0, "seed {seed}: prepared {prepared:?}, found {there:?}");
            // Whatever is there can be ended.
            for gid in &there {
                finish(&db, gid, false).unwrap();
            }
            let moved = ints(&db, "select v from a where id = 1")[0];
            assert!(-moved >= committed, "seed {seed}: {committed} committed, {moved} there");
            committed = -moved;
            prepared.clear();
            disk.cut_power_after(1 + random.below(60));
            for n in 0.. {
                if disk.power_is_off() {
                    break;
                }
                let gid = format!("{cut}-{n}");
                let Ok(mut txn) = db.begin_write_blocking(WriteOptions::default()) else { break };
                let to = 2 + random.below(7);
                let sql =
                    ["update a set v = v - 1 where id = 1".into(), format!("update a set v = v + 1 where id = {to}")];
                let ran = sql.iter().all(|sql| {
                    let stmt = db.prepare(sql, report_of(sql)).unwrap();
                    let step = Step { stmt, params: vec![] };
                    txn.execute_blocking(step, Box::new(Collect::new())).is_ok_and(|ran| ran.result.is_ok())
                });
                let answered = |ticket: SqlResult<holdfast_engine::Ticket>| {
                    ticket.ok().and_then(|t| t.wait()).is_some_and(|done| done.result.is_ok())
                };
                if !ran || !answered(txn.prepare_transaction(&gid, "me")) {
                    break;
                }
                let commit = random.one_in(2);
                if random.one_in(8) {
                    // The power interrupts it perhaps.
                    drop(db.checkpoint());
                }
                if !answered(db.finish_prepared(&gid, commit, Level::Local)) {
                    // It may be prepared still, or ended; what was asked last is not known.
                    break;
                }
                committed += i64::from(commit);
                if random.one_in(4) {
                    let Ok(txn) = db.begin_write_blocking(WriteOptions::default()) else { break };
                    let empty = format!("kept-{cut}-{n}");
                    if answered(txn.prepare_transaction(&empty, "me")) {
                        prepared.push(empty);
                    }
                }
            }
            drop((db, engine));
            disk.restore_power();
        }
    }
}
