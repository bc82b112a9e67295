//! What the tests of branches run on: an engine in a directory of its own, statements, and who waits.

use holdfast_engine::{
    Collect, Database, Engine, Options, Report, Step, Submission, WriteIsolation, WriteOptions, WriteTxn,
};
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlResult, SqlState, Value};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything here takes that does not wait for a lock.
pub const BLOCKED: Duration = Duration::from_millis(150);

/// Longer than anything here takes that ends at all.
const WAIT_MAX: Duration = Duration::from_secs(600);

pub struct Opened {
    pub engine: Engine,
    pub db: Database,
    pub dir: tempfile::TempDir,
}

pub fn open(schema: &str) -> Opened {
    open_with(schema, options())
}

pub fn open_with(schema: &str, options: Options) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options).unwrap();
    let db = engine.database("one").unwrap();
    schema.split(';').filter(|s| !s.trim().is_empty()).for_each(|sql| at_once(&db, sql).map(drop).unwrap());
    Opened { engine, db, dir }
}

pub fn options() -> Options {
    Options { initial_databases: vec![("one".into(), Dialect::Sqlite)], ..Options::default() }
}

pub fn at_once(db: &Database, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    let stmt = db.prepare(sql, Report::default())?;
    let rows = Collect::new();
    let batch = Submission::new(vec![Step { stmt, params: vec![] }], Box::new(rows.clone()));
    db.submit(batch)?.wait().unwrap().result?;
    Ok(rows.outcomes().pop().unwrap_or_default().rows)
}

/// One message of several statements.
pub fn all_at_once(db: &Database, sql: &[&str]) -> SqlResult<()> {
    let step = |sql: &&str| Ok(Step { stmt: db.prepare(sql, Report::default())?, params: vec![] });
    let steps = sql.iter().map(step).collect::<SqlResult<_>>()?;
    db.submit(Submission::new(steps, Box::new(Collect::new())))?.wait().unwrap().result
}

pub fn begin(db: &Database, isolation: WriteIsolation) -> WriteTxn {
    db.begin_write_blocking(WriteOptions { isolation, ..WriteOptions::default() }).unwrap()
}

pub fn run_as(txn: &mut WriteTxn, sql: &str, report: Report) -> SqlResult<Vec<Vec<Value>>> {
    let stmt = txn.database().prepare(sql, report)?;
    let rows = Collect::new();
    txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(rows.clone()))?.result?;
    Ok(rows.outcomes().pop().unwrap_or_default().rows)
}

pub fn run(txn: &mut WriteTxn, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    run_as(txn, sql, Report::default())
}

pub fn int(db: &Database, sql: &str) -> i64 {
    match at_once(db, sql).unwrap()[0][0] {
        Value::Int(n) => n,
        ref other => panic!("{other:?}"),
    }
}

pub fn commit(txn: WriteTxn) -> SqlResult<()> {
    txn.commit_blocking(Box::new(Collect::new()))?.result
}

/// Runs a statement on a thread of its own; the transaction comes back with the outcome.
pub fn apart(mut txn: WriteTxn, sql: &'static str) -> Receiver<(WriteTxn, SqlResult<Vec<Vec<Value>>>)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let ran = run(&mut txn, sql);
        sender.send((txn, ran)).unwrap_or_default();
    });
    receiver
}

pub fn is_blocked<T>(receiver: &Receiver<T>) -> bool {
    receiver.recv_timeout(BLOCKED).is_err()
}

/// How often a statement has begun to wait for a lock.
pub fn lock_waits(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.iter().find(|(name, _)| *name == "lock_waits").expect("a counter of lock waits").1
}

/// Waits until one more statement than before waits for a lock.
pub fn until_waits(engine: &Engine, before: u64) {
    let started = Instant::now();
    while lock_waits(engine) == before {
        assert!(started.elapsed() < WAIT_MAX, "nobody waits for a lock");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn state<T: std::fmt::Debug>(result: SqlResult<T>) -> SqlState {
    result.unwrap_err().state()
}

pub const RC: WriteIsolation = WriteIsolation::ReadCommitted;
pub const RR: WriteIsolation = WriteIsolation::RepeatableRead;
pub const T: &str = "create table t(id integer primary key, v integer, u text unique);
                 insert into t values(1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')";

/// A copy of everything in a directory, as it is at this moment.
pub fn copy_dir(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_dir(&entry.path(), &to);
        } else {
            // Journals come and go.
            match std::fs::copy(entry.path(), to) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
    }
}
