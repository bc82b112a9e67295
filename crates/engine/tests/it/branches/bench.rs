//! What the tests of branches run on: an engine in a directory of its own, statements, and who waits.

use crate::support::report_of;
use holdfast_engine::{
    AdvisoryOwner, Blocked, Collect, Database, Engine, Options, Report, Step, Submission, Ticket, WriteIsolation,
    WriteOptions, WriteTxn,
};
use holdfast_seams::testing::Patience;
use holdfast_types::schema::Dialect;
use holdfast_types::{ColumnDesc, SqlResult, SqlState, StatementDesc, Value};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
    let stmt = db.prepare(sql, report_of(sql))?;
    let rows = Collect::new();
    let batch = Submission::new(vec![Step { stmt, params: vec![] }], Box::new(rows.clone()));
    db.submit(batch)?.wait().unwrap().result?;
    Ok(rows.outcomes().pop().unwrap_or_default().rows)
}

/// One message of several statements.
pub fn all_at_once(db: &Database, sql: &[&str]) -> SqlResult<()> {
    let step = |sql: &&str| Ok(Step { stmt: db.prepare(sql, report_of(sql))?, params: vec![] });
    let steps = sql.iter().map(step).collect::<SqlResult<_>>()?;
    db.submit(Submission::new(steps, Box::new(Collect::new())))?.wait().unwrap().result
}

/// A process number that no other client of a test has, so that the engine can say which of them waits.
fn next_pid() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// A transaction of a client with a process number of its own.
pub struct Txn {
    txn: WriteTxn,
    pub pid: i32,
}

impl Deref for Txn {
    type Target = WriteTxn;

    fn deref(&self) -> &WriteTxn {
        &self.txn
    }
}

impl DerefMut for Txn {
    fn deref_mut(&mut self) -> &mut WriteTxn {
        &mut self.txn
    }
}

pub fn begin(db: &Database, isolation: WriteIsolation) -> Txn {
    begin_as(next_pid(), db, isolation)
}

pub fn begin_as(pid: i32, db: &Database, isolation: WriteIsolation) -> Txn {
    begin_in(&db.advisory_owner(pid), db, isolation).unwrap()
}

/// A client's session, which may have several transactions, one after the other.
pub fn session(db: &Database) -> Arc<AdvisoryOwner> {
    db.advisory_owner(next_pid())
}

pub fn begin_in(session: &Arc<AdvisoryOwner>, db: &Database, isolation: WriteIsolation) -> SqlResult<Txn> {
    let options = WriteOptions { isolation, advisory_owner: Some(session.clone()), ..WriteOptions::default() };
    Ok(Txn { txn: db.begin_write_blocking(options)?, pid: session.pid })
}

/// A statement with one column about the advisory lock of this key, by the number of the operation.
pub fn advisory(txn: &mut Txn, operation: u8, key: i64) -> SqlResult<Value> {
    let desc = StatementDesc { columns: vec![ColumnDesc::new("granted", 16)], ..StatementDesc::default() };
    let report = Report { advisory: true, desc: Arc::new(desc), ..Report::default() };
    run_as(txn, &format!("select holdfast_advisory({operation}, {key}, 0)"), report).map(|mut rows| rows[0].remove(0))
}

pub fn run_as(txn: &mut Txn, sql: &str, report: Report) -> SqlResult<Vec<Vec<Value>>> {
    let stmt = txn.database().prepare(sql, report)?;
    let rows = Collect::new();
    txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(rows.clone()))?.result?;
    Ok(rows.outcomes().pop().unwrap_or_default().rows)
}

pub fn run(txn: &mut Txn, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    run_as(txn, sql, report_of(sql))
}

pub fn int(db: &Database, sql: &str) -> i64 {
    match at_once(db, sql).unwrap()[0][0] {
        Value::Int(n) => n,
        ref other => panic!("{other:?}"),
    }
}

pub fn commit(txn: Txn) -> SqlResult<()> {
    txn.txn.commit_blocking(Box::new(Collect::new()))?.result
}

/// What a client does on a thread of its own.
pub struct Apart<T> {
    /// The client's process number.
    pub pid: i32,
    thread: JoinHandle<T>,
}

/// Does something on a thread of its own, under this process number.
pub fn apart_as<T: Send + 'static>(pid: i32, work: impl FnOnce() -> T + Send + 'static) -> Apart<T> {
    Apart { pid, thread: std::thread::spawn(work) }
}

/// Runs a statement on a thread of its own; the transaction comes back with the outcome.
pub fn apart(mut txn: Txn, sql: &'static str) -> Apart<(Txn, SqlResult<Vec<Vec<Value>>>)> {
    apart_as(txn.pid, move || {
        let ran = run(&mut txn, sql);
        (txn, ran)
    })
}

/// Begins a transaction, runs a statement and commits, all on a thread of its own.
pub fn transaction_apart(db: &Database, sql: &'static str) -> Apart<SqlResult<()>> {
    let (db, pid) = (db.clone(), next_pid());
    apart_as(pid, move || {
        let mut txn = begin_as(pid, &db, RC);
        run(&mut txn, sql)?;
        commit(txn)
    })
}

/// A message of one statement, and the process number of its client.
pub fn message(db: &Database, sql: &str) -> (i32, Submission) {
    let pid = next_pid();
    let stmt = db.prepare(sql, report_of(sql)).unwrap();
    let mut batch = Submission::new(vec![Step { stmt, params: vec![] }], Box::new(Collect::new()));
    batch.advisory_owner = Some(db.advisory_owner(pid));
    (pid, batch)
}

/// Waits for the answer to such a message on a thread of its own.
pub fn answer_apart(pid: i32, ticket: Ticket) -> Apart<SqlResult<()>> {
    apart_as(pid, move || ticket.wait().unwrap().result)
}

impl<T> Apart<T> {
    /// Waits until it has ended, and returns its outcome.
    pub fn end(self) -> T {
        self.thread.join().unwrap()
    }

    /// Waits until the engine lists it among the waiting, and the transaction among those that must end first.
    ///
    /// # Panics
    ///
    /// If it ends instead.
    #[track_caller]
    pub fn until_blocked_by(&self, engine: &Engine, holder: &Txn) {
        assert!(self.is_blocked_by(engine, holder), "it ended without waiting");
    }

    /// Waits until it is blocked by the transaction (true), or has ended (false).
    pub fn is_blocked_by(&self, engine: &Engine, holder: &Txn) -> bool {
        self.waits(engine, |waiting| waiting.by.contains(&holder.pid))
    }

    /// Waits until its wait is as expected (true), or it has ended (false).
    pub fn waits(&self, engine: &Engine, as_expected: impl Fn(&Blocked) -> bool) -> bool {
        let mut patience = Patience::new();
        loop {
            let ended = self.thread.is_finished();
            let blocked = engine.blocked();
            if blocked.iter().any(|waiting| waiting.pid == self.pid && as_expected(waiting)) {
                return true;
            }
            if ended {
                return false;
            }
            patience.sees(format!("{blocked:?}"));
            patience.look("it neither waits as expected nor ends");
            std::thread::sleep(Duration::from_millis(1));
        }
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
