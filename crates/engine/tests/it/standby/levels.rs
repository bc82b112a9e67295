//! What waits at the gate and in which order it goes on, told by hand: no standby is there.

use super::pair::WAIT_MAX;
use crate::support::client::{query, step};
use crate::support::report_of;
use holdfast_engine::{
    ArchiveKeep, BeyondKeep, Collect, Database, Engine, Options, Step, Submission, Ticket, WriteIsolation, WriteOptions,
};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlState, Value};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub fn options() -> Options {
    Options { initial_databases: vec![("one".to_owned(), Dialect::Sqlite)], ..Options::default() }
}

/// A batch that notes its name when it is answered.
fn send(db: &Database, answered: &Arc<Mutex<Vec<String>>>, sql: &str, level: Level) {
    let batch = Submission { level, ..Submission::new(vec![step(db, sql).unwrap()], Box::new(Collect::new())) };
    let (answered, name) = (answered.clone(), sql.to_owned());
    let done = Box::new(move |done: holdfast_engine::Completion| {
        done.result.unwrap();
        answered.lock().unwrap().push(name);
    });
    db.submit_with(batch, done).unwrap();
}

pub fn submit(db: &Database, sql: &str, level: Level) -> Ticket {
    db.submit(Submission { level, ..Submission::new(vec![step(db, sql).unwrap()], Box::new(Collect::new())) }).unwrap()
}

fn count(db: &Database) -> Value {
    query(db, "select count(*) from t").unwrap().remove(0).remove(0)
}

/// Waits for something that comes about.
fn until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_MAX, "still not so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Everything sent so far is durable and waits at the gate.
pub fn logged(engine: &Engine, boxcars: usize) {
    until(|| engine.gate().batches >= boxcars);
}

#[test]
fn a_hot_commit_waits_for_its_ack_and_what_comes_behind_it_waits_too() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(id integer primary key)", Level::Local).wait().unwrap().result.unwrap();
    let answered = Arc::new(Mutex::new(Vec::new()));
    let sqls: Vec<String> = (0..4).map(|i| format!("insert into t values({i})")).collect();
    for (i, level) in [Level::Local, Level::Hot, Level::Local, Level::Commit].into_iter().enumerate() {
        send(&db, &answered, &sqls[i], level);
        match i {
            0 => until(|| !answered.lock().unwrap().is_empty()),
            // Durable before the next is sent, so that each has a boxcar of its own at the gate.
            _ => logged(&engine, i),
        }
    }
    assert_eq!(*answered.lock().unwrap(), sqls[..1], "answered before the ack");
    assert_eq!(count(&db), Value::Int(1), "a reader has seen what has not reached its level");
    let (first, end) = (engine.gate().first.unwrap(), engine.trail().durable());
    assert_eq!(first.0, Level::Hot);
    engine.reached(Level::Warm, end);
    assert_eq!(answered.lock().unwrap().len(), 1, "warm is not hot");
    engine.reached(Level::Commit, end);
    assert_eq!(*answered.lock().unwrap(), sqls, "in order");
    assert_eq!(count(&db), Value::Int(4));
    assert_eq!(engine.gate().batches, 0);
    submit(&db, "insert into t values(9)", Level::Local).wait().unwrap().result.unwrap();
    engine.close().unwrap();
}

#[test]
fn every_way_to_commit_waits() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    engine.create_database("two", Dialect::Sqlite, Level::Local).unwrap();
    let [db, two] = ["one", "two"].map(|name| engine.database(name).unwrap());
    for db in [&db, &two] {
        submit(db, "create table t(id integer primary key, v)", Level::Local).wait().unwrap().result.unwrap();
    }
    let mut ids = 0..;
    let mut begin = |db: &Database, isolation| {
        let mut txn =
            db.begin_write_blocking(WriteOptions { isolation, level: Level::Hot, ..WriteOptions::default() }).unwrap();
        let sql = format!("insert into t values({}, 1)", ids.next().unwrap());
        let stmt = db.prepare(&sql, report_of(&sql)).unwrap();
        txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(Collect::new())).unwrap().result.unwrap();
        txn
    };
    let rc = WriteIsolation::ReadCommitted;
    let sink = || Box::new(Collect::new());
    let mut seen = 0;
    let mut waits = |what: &str, ticket: Ticket| {
        logged(&engine, 1);
        assert_eq!(engine.gate().first.unwrap().0, Level::Hot, "{what}");
        assert_eq!(count(&db), Value::Int(seen), "{what}: seen too early");
        let waiting = std::thread::spawn(move || ticket.wait().unwrap().result.unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished(), "{what}: answered too early");
        engine.reached(Level::Hot, engine.trail().durable());
        waiting.join().unwrap();
        let Value::Int(n) = count(&db) else { panic!() };
        seen = n;
    };
    waits("a branch", begin(&db, rc).commit(sink()).unwrap());
    waits("the only writer", begin(&db, WriteIsolation::Exclusive).commit(sink()).unwrap());
    waits("one that runs alone", submit(&db, "insert into t select id + 100, v from t", Level::Hot));
    waits("a schema change", submit(&db, "create index i on t(v)", Level::Hot));
    waits("PREPARE TRANSACTION", begin(&db, rc).prepare_transaction("g", "tom").unwrap());
    waits("COMMIT PREPARED", db.finish_prepared("g", true, Level::Hot).unwrap());
    let parts = vec![begin(&db, rc), begin(&two, rc)];
    waits("several databases", holdfast_engine::multi_database_commit(parts, sink()).unwrap());
    assert!(seen >= 6);
    engine.close().unwrap();
}

#[test]
fn a_clean_stop_does_not_wait_and_answers_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(id integer primary key)", Level::Local).wait().unwrap().result.unwrap();
    let hot = submit(&db, "insert into t values(1)", Level::Hot);
    logged(&engine, 1);
    let cold = submit(&db, "insert into t values(2)", Level::Local);
    logged(&engine, 2);
    let begin = {
        let db = db.clone();
        let alone = WriteOptions { isolation: WriteIsolation::Exclusive, ..WriteOptions::default() };
        std::thread::spawn(move || db.begin_write_blocking(alone).err().expect("it would see what nobody may see"))
    };
    std::thread::sleep(Duration::from_millis(30));
    assert!(!begin.is_finished());
    drop(db);
    engine.close().unwrap();
    assert!(hot.wait().is_none(), "told COMMIT without an ack");
    assert!(cold.wait().is_none(), "told COMMIT before the one in front of it");
    begin.join().unwrap();
    drop(engine);
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(count(&engine.database("one").unwrap()), Value::Int(2), "the trail keeps them");
    engine.close().unwrap();
}

#[test]
fn held_is_held_at_every_level_and_so_are_databases_that_come() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(id integer primary key)", Level::Local).wait().unwrap().result.unwrap();
    engine.hold("no lease");
    let cold = submit(&db, "insert into t values(1)", Level::Local);
    let creating = {
        let engine = engine.clone();
        std::thread::spawn(move || engine.create_database("two", Dialect::Sqlite, Level::Local))
    };
    logged(&engine, 2);
    assert_eq!(count(&db), Value::Int(0));
    assert!(!creating.is_finished());
    // A checkpoint of what may be seen does not wait, and does not take in what may not.
    db.checkpoint().unwrap();
    engine.release();
    cold.wait().unwrap().result.unwrap();
    creating.join().unwrap().unwrap();
    assert_eq!(count(&db), Value::Int(1));
    drop(db);
    drop(engine);
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(count(&engine.database("one").unwrap()), Value::Int(1), "redo began where it must");
    engine.close().unwrap();
}

#[test]
fn the_governor_is_asked_with_the_bytes_of_the_boxcar_before() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(id integer primary key, v)", Level::Local).wait().unwrap().result.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = asked.clone();
    assert!(engine.set_delay(Arc::new(move |bytes| {
        notes.lock().unwrap().push(bytes);
        Duration::ZERO
    })));
    for (i, bytes) in [5000, 10].into_iter().enumerate() {
        let sql = format!("insert into t values({i}, zeroblob({bytes}))");
        submit(&db, &sql, Level::Local).wait().unwrap().result.unwrap();
    }
    submit(&db, "insert into t values(7, 7)", Level::Local).wait().unwrap().result.unwrap();
    let asked = asked.lock().unwrap().clone();
    assert!(asked.iter().any(|b| (5000..6000).contains(b)) && asked.iter().any(|b| (10..200).contains(b)), "{asked:?}");
    assert!(!engine.set_delay(Arc::new(|_| Duration::ZERO)), "once");
    engine.close().unwrap();
}

#[test]
fn a_deposed_master_writes_nothing_more_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(id integer primary key)", Level::Local).wait().unwrap().result.unwrap();
    engine.depose("it was deposed so that b can be promoted");
    let refused = submit(&db, "insert into t values(1)", Level::Local).wait().unwrap().result.unwrap_err();
    assert_eq!(refused.state(), SqlState::ADMIN_SHUTDOWN, "{refused}");
    assert_eq!(refused.message(), "nothing is written any more: it was deposed so that b can be promoted");
    let hint = refused.parts().hint.clone().unwrap();
    assert!(hint.contains("new master") && hint.contains("holdfast rejoin"), "{hint}");
    // Its files are brought up to date at a clean stop and its trail is not told; the next start takes them as they are.
    // Only the mark of that stop is there, which no standby is sent.
    let (end, ..) = engine.trail().end();
    drop(db);
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(dir.path(), options()).unwrap();
    let recovered = engine.recovered().end;
    let behind = engine.trail().read(end).unwrap().map(Result::unwrap).take_while(|boxcar| boxcar.lsn < recovered);
    assert!(behind.into_iter().all(|boxcar| boxcar.body.is_empty()), "nothing was written after it was deposed");
    assert!(engine.database("one").unwrap().prepare("select id from t", report_of("select id from t")).is_ok());
}

/// A master that was promoted or started with too much behind it takes not one write.
#[test]
fn what_waits_for_the_archive_is_looked_at_before_the_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let keeping = |beyond| Options {
        segment_bytes: 1 << 20,
        archive: Some(ArchiveKeep { bytes_max: 1 << 20, beyond }),
        ..options()
    };
    let engine = Engine::open(dir.path(), keeping(BeyondKeep::Warn)).unwrap();
    let db = engine.database("one").unwrap();
    submit(&db, "create table t(v)", Level::Local).wait().unwrap().result.unwrap();
    while !engine.waiting_for_archive().unwrap().is_beyond {
        submit(&db, "insert into t values(zeroblob(200000))", Level::Local).wait().unwrap().result.unwrap();
    }
    drop(db);
    engine.close().unwrap();
    drop(engine);
    let engine = Engine::open(dir.path(), keeping(BeyondKeep::Refuse)).unwrap();
    let db = engine.database("one").unwrap();
    let refused = submit(&db, "insert into t values(1)", Level::Local).wait().unwrap().result.unwrap_err();
    assert_eq!(refused.state(), SqlState::DISK_FULL, "{refused}");
    assert!(refused.message().contains("archive_keep_bytes_max = 1048576"), "{refused}");
    drop(db);
    engine.close().unwrap();
}
