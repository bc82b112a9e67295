//! Attacks that once succeeded, each as small as it goes.

use crate::support::client::{query, step};
use holdfast_engine::{Collect, Database, Engine, Options, Report, Step, Submission, Ticket, WriteOptions, WriteTxn};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlResult, SqlState, Value};
use std::path::Path;

fn open(dir: &Path) -> Engine {
    let initial_databases = vec![("one".to_owned(), Dialect::Sqlite)];
    Engine::open(dir, Options { initial_databases, ..Options::default() }).unwrap()
}

fn submit(db: &Database, steps: Vec<Step>) -> Ticket {
    db.submit(Submission::new(steps, Box::new(Collect::new()))).unwrap()
}

fn run(db: &Database, sql: &str) -> SqlResult<()> {
    submit(db, vec![step(db, sql)?]).wait().unwrap().result
}

fn ran(txn: &mut WriteTxn, db: &Database, sql: &str) -> SqlResult<()> {
    txn.execute_blocking(step(db, sql)?, Box::new(Collect::new()))?.result
}

fn rows(db: &Database, sql: &str) -> Vec<Vec<Value>> {
    query(db, sql).unwrap()
}

fn int(db: &Database, sql: &str) -> i64 {
    match rows(db, sql)[0][0] {
        Value::Int(i) => i,
        ref other => panic!("{sql}: {other:?}"),
    }
}

/// The directory as a kill would leave it, opened. In this order: the engine is dropped first.
fn crashed(dir: &Path) -> (tempfile::TempDir, Engine) {
    let to = copied(dir);
    let engine = open(to.path());
    (to, engine)
}

/// A copy of a data directory.
fn copied(dir: &Path) -> tempfile::TempDir {
    loop {
        let to = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(to.path()).output().unwrap();
        // A file may have been renamed meanwhile.
        if copied.status.success() {
            return to;
        }
    }
}

/// Holds the writer while requests queue up, so that they are one batch.
fn together(db: &Database, requests: Vec<Vec<Step>>) -> Vec<SqlResult<()>> {
    let hold = db.begin_write_blocking(WriteOptions::default()).unwrap();
    let tickets: Vec<_> = requests.into_iter().map(|steps| submit(db, steps)).collect();
    drop(hold);
    tickets.into_iter().map(|t| t.wait().unwrap().result).collect()
}

/// RULE 10: several requests of one batch throw everything away, again and again; the others commit all the same.
#[test]
fn two_requests_that_roll_everything_back_in_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key)").unwrap();
    run(&db, "insert into t values(100)").unwrap();
    let good = |i: i64| Step { params: vec![Value::Int(i)], ..step(&db, "insert into t values(?)").unwrap() };
    let bad = step(&db, "insert or rollback into t values(100)").unwrap();
    let requests = vec![
        vec![good(1)],
        vec![bad.clone()],
        vec![good(2)],
        vec![bad.clone()],
        vec![good(3)],
        vec![bad],
        vec![good(4)],
    ];
    let results = together(&db, requests);
    let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, true, false, true, false, true, false], "{results:?}");
    assert_eq!(int(&db, "select count(*) from t where id < 10"), 4);
    let (_dir2, e2) = crashed(dir.path());
    assert_eq!(int(&e2.database("one").unwrap(), "select count(*) from t"), 5);
    e.close().unwrap();
}

/// RULE 11: a deferred foreign key would survive the savepoint's release and fail the COMMIT of everybody.
#[test]
fn a_deferred_foreign_key_fails_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table p(id integer primary key)").unwrap();
    run(&db, "create table c(p references p(id) deferrable initially deferred)").unwrap();
    let request = |sql: &str| vec![step(&db, sql).unwrap()];
    let requests = vec![
        request("insert into p values(1)"),
        request("insert into c values(2)"),
        request("insert into c values(1)"),
    ];
    let states: Vec<_> = together(&db, requests).into_iter().map(|r| r.err().map(|e| e.state())).collect();
    assert_eq!(states, [None, Some(SqlState::FOREIGN_KEY_VIOLATION), None]);
    e.close().unwrap();
}

/// RULE 19: what FTS5 holds back from earlier statements stays when a later one fails.
#[test]
fn a_failing_statement_takes_no_earlier_images_along() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create virtual table f using fts5(body)").unwrap();
    run(&db, "create table t(id integer primary key)").unwrap();
    let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
    ran(&mut txn, &db, "insert into f(rowid, body) values(1, 'held back')").unwrap();
    ran(&mut txn, &db, "insert into t values(1), (1)").unwrap_err();
    txn.commit_blocking(Box::new(Collect::new())).unwrap().result.unwrap();
    let (_dir2, e2) = crashed(dir.path());
    let db2 = e2.database("one").unwrap();
    assert_eq!(int(&db2, "select count(*) from f where f match 'back'"), 1);
    run(&db2, "insert into f(f) values('integrity-check')").unwrap();
    e.close().unwrap();
}

/// A statement judged when its table was plain runs beside others although the table is virtual by now.
#[test]
fn a_statement_older_than_its_virtual_table_leaves_a_readable_trail() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table f(body)").unwrap();
    run(&db, "create table t(id integer primary key)").unwrap();
    let old = step(&db, "insert into f(body) values('old news')").unwrap();
    let other = step(&db, "insert into t(id) values(null)").unwrap();
    let failing = step(&db, "insert into t(id) values(1), (1)").unwrap();
    run(&db, "drop table f").unwrap();
    run(&db, "create virtual table f using fts5(body)").unwrap();
    let requests =
        vec![vec![old.clone()], vec![other.clone()], vec![old.clone()], vec![failing], vec![other], vec![old]];
    let failed: Vec<bool> = together(&db, requests).iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, false, true, false, false]);
    let (_dir2, e2) = crashed(dir.path());
    let db2 = e2.database("one").unwrap();
    assert_eq!(int(&db2, "select count(*) from f where f match 'news'"), 3);
    assert_eq!(int(&db2, "select count(*) from t"), 2);
    run(&db2, "insert into f(f) values('integrity-check')").unwrap();
    e.close().unwrap();
}

/// Guarantee 4: the internal tables have no images, so only the engine may change them.
#[test]
fn internal_tables_cannot_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key)").unwrap();
    for sql in [
        "update holdfast_meta set next_table_id = 1",
        "delete from holdfast_tables where id = 1",
        "update holdfast_tables set name = name || 'x' where id % 2 = 1",
        "create trigger x after update on holdfast_meta begin insert into t values(null); end",
        "create trigger x after insert on t begin delete from holdfast_tables; end",
        "create index x on holdfast_tables(name)",
        "alter table holdfast_meta add column x",
    ] {
        let through = run(&db, sql).and_then(|()| run(&db, "insert into t(id) values(null)"));
        assert!(through.is_err(), "{sql}");
        run(&db, "drop trigger if exists x").unwrap();
        run(&db, "insert into t(id) values(null)").unwrap();
    }
    let (_dir2, e2) = crashed(dir.path());
    assert_eq!(int(&e2.database("one").unwrap(), "select count(*) from t"), 7);
    e.close().unwrap();
}

/// Two clients ask for a database that is not open yet; it has one store.
#[test]
fn a_database_opened_by_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    run(&e.database("one").unwrap(), "create table t(id integer primary key)").unwrap();
    e.close().unwrap();
    drop(e);
    for _ in 0..10 {
        let e = open(dir.path());
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    run(&e.database("one").unwrap(), "insert into t(id) values(null)").unwrap();
                });
            }
        });
        e.close().unwrap();
    }
    assert_eq!(int(&open(dir.path()).database("one").unwrap(), "select count(*) from t"), 80);
}

/// One of many who create a database of the same name succeeds.
#[test]
fn a_database_created_by_many_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    for round in 0..5 {
        let name = format!("new{round}");
        let made: Vec<SqlResult<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| e.create_database(&name, Dialect::Sqlite, Level::Local))).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|m| m.is_ok()).count(), 1);
        let refused = made.into_iter().filter_map(Result::err);
        assert!(refused.into_iter().all(|e| e.state() == SqlState::DUPLICATE_DATABASE));
        assert_eq!(e.databases().iter().filter(|d| d.name == name).count(), 1);
    }
    e.close().unwrap();
}

/// SQLite compares its copy of the schema when a statement runs, not when it is prepared.
#[test]
fn what_somebody_else_dropped_can_be_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key, v)").unwrap();
    for _ in 0..3 {
        run(&db, "create index i on t(v)").unwrap();
        run(&db, "drop index i").unwrap();
    }
    let stale = db.reader().unwrap();
    run(&db, "create trigger tr after insert on t begin update t set v = 1; end").unwrap();
    drop(stale);
    let class = db.prepare("insert into t values(1, 2)", Report::default()).unwrap().class;
    assert_eq!(class, holdfast_engine::Class::WriteScan, "judged with the trigger");
    e.close().unwrap();
}

/// Nothing of an engine runs on when it is gone: its directory can be removed, or opened again at once.
#[test]
fn a_dropped_engine_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let e = open(dir.path());
        let db = e.database("one").unwrap();
        run(&db, &format!("create table t{round}(id integer primary key)")).unwrap();
        drop((db, e));
    }
    let e = open(dir.path());
    assert_eq!(int(&e.database("one").unwrap(), "select count(*) from sqlite_schema where name like 't_'"), 5);
    e.close().unwrap();
}

/// Whoever asks for the debt between "durable" and "counted" must not start redo behind the boxcar: checkpoints run
/// all the time while boxcars and large transactions become durable, and every copy taken opens.
#[test]
fn redo_starts_before_everything_the_checkpoint_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key, x)").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    // Copying takes time: a copy that reads one block before a write and the next one after a later write has a hole that
    // no crash leaves. So the writer pauses for the copy, and a copy during which the trail moved is taken again.
    let writing = std::sync::Mutex::new(());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let insert = step(&db, "insert into t(x) values('row')").unwrap();
            let large = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 9000)
                         insert into t(x) select hex(zeroblob(300)) from n";
            for i in 0..200 {
                let _writing = writing.lock().unwrap();
                submit(&db, vec![insert.clone()]).wait().unwrap().result.unwrap();
                if i % 60 == 59 {
                    run(&db, large).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            db.checkpoint().unwrap();
            let seen = int(&db, "select count(*) from t");
            let copy = loop {
                let _pause = writing.lock().unwrap();
                let before = e.trail().durable();
                let copy = copied(dir.path());
                if e.trail().durable() == before {
                    break copy;
                }
            };
            let e2 = open(copy.path());
            assert!(int(&e2.database("one").unwrap(), "select count(*) from t") >= seen);
        }
    });
    e.close().unwrap();
}

/// RULE 9: redo is bounded: what a crash would repeat never grows far beyond the limit, whatever is written.
#[test]
fn redo_debt_brings_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite)],
        redo_bytes_max: 1 << 20,
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options).unwrap();
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key, x)").unwrap();
    let insert = step(&db, "insert into t(x) values(hex(zeroblob(4000)))").unwrap();
    let stat = |name: &str| e.stats().iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v);
    let mut most = 0;
    for _ in 0..1500 {
        submit(&db, vec![insert.clone()]).wait().unwrap().result.unwrap();
        most = most.max(stat("redo_bytes"));
    }
    assert!(stat("checkpoints") > 3, "{} checkpoints for 12 limits", stat("checkpoints"));
    assert!(most < 4 << 20, "{most} bytes to redo");
    e.close().unwrap();
    assert_eq!(stat("redo_bytes"), 0);
}

/// A crash between a checkpoint's file and its record: the boxcars between may be recycled later all the same.
#[test]
fn a_file_ahead_of_its_record_is_listed_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite), ("two".to_owned(), Dialect::Sqlite)],
        segment_bytes: 4 << 20,
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options()).unwrap();
    let db = e.database("one").unwrap();
    run(&db, "create table t(id integer primary key)").unwrap();
    run(&db, "insert into t values(1), (2)").unwrap();
    let to = tempfile::tempdir().unwrap();
    let copy = |what: &str, to: &Path| {
        let from = dir.path().join(what);
        // A spare segment may be put to use, under another name, while it is being copied.
        let copied = || std::process::Command::new("cp").arg("-a").arg(&from).arg(to).status().unwrap().success();
        let tried = (0..50).any(|round| {
            std::thread::sleep(std::time::Duration::from_millis(round));
            copied()
        });
        assert!(tried, "{what}");
    };
    copy(".", to.path());
    db.checkpoint().unwrap();
    copy("volumes/000001-one.db", &to.path().join("volumes"));
    e.close().unwrap();
    for round in 0..2 {
        let e = Engine::open(to.path(), options()).unwrap();
        assert_eq!(int(&e.database("one").unwrap(), "select count(*) from t"), 2, "round {round}");
        let busy = e.database("two").unwrap();
        run(&busy, "create table if not exists t(x)").unwrap();
        for _ in 0..12 {
            run(&busy, "insert into t values(hex(zeroblob(500000)))").unwrap();
            busy.checkpoint().unwrap();
        }
        e.close().unwrap();
    }
}

/// Every transaction acknowledged before a clean stop is there when the stop is interrupted: the trail is kept until
/// each database has its checkpoint.
#[test]
fn a_clean_stop_keeps_the_trail_until_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["one", "two"];
    let options = Options {
        initial_databases: names.map(|n| (n.to_owned(), Dialect::Sqlite)).to_vec(),
        segment_bytes: 4 << 20,
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options.clone()).unwrap();
    for name in names {
        let db = e.database(name).unwrap();
        run(&db, "create table t(x)").unwrap();
        for _ in 0..30 {
            run(&db, "insert into t values(hex(zeroblob(400000)))").unwrap();
        }
    }
    // The second database cannot be checkpointed: its -wal cannot be made.
    let wal = dir.path().join("volumes/000002-two.db-wal");
    drop(std::fs::remove_file(&wal));
    std::fs::create_dir(&wal).unwrap();
    e.close().unwrap_err();
    std::fs::remove_dir(&wal).unwrap();
    drop(e);
    let e = Engine::open(dir.path(), options).unwrap();
    for name in names {
        assert_eq!(int(&e.database(name).unwrap(), "select count(*) from t"), 30, "{name}");
    }
    e.close().unwrap();
}
