//! The engine on a real disk: commit, read, crash, recover.

use crate::support::report_of;
use holdfast_engine::{
    Class, Collect, Completion, Database, Engine, Options, Outcome, Report, Step, Submission, WriteIsolation,
    WriteOptions,
};
use holdfast_types::{Level, SessionContext, SqlError, SqlResult, SqlState, Value};
use std::path::Path;

fn open(dir: &Path) -> Engine {
    Engine::open(dir, Options::default()).unwrap()
}

fn step(db: &Database, sql: &str, params: &[Value]) -> SqlResult<Step> {
    Ok(Step { stmt: db.prepare(sql, Report { counts: true, ..report_of(sql) })?, params: params.to_vec() })
}

fn run(db: &Database, sqls: &[&str]) -> (Completion, Vec<Outcome>) {
    let steps = sqls.iter().map(|s| step(db, s, &[]).unwrap()).collect();
    let rows = Collect::new();
    let done = db.submit(Submission::new(steps, Box::new(rows.clone()))).unwrap().wait().unwrap();
    (done, rows.outcomes())
}

fn ok(db: &Database, sql: &str) {
    run(db, &[sql]).0.result.unwrap();
}

fn read(db: &Database, sql: &str) -> Vec<Vec<Value>> {
    let rows = Collect::new();
    let mut reader = db.reader().unwrap();
    reader.run(&SessionContext::NONE, 0, &step(db, sql, &[]).unwrap(), &mut rows.clone()).unwrap();
    rows.outcomes().remove(0).rows
}

fn int(db: &Database, sql: &str) -> i64 {
    match read(db, sql)[0][0] {
        Value::Int(i) => i,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn commits_survive_a_clean_stop() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x text unique)");
    ok(&db, "insert into t values(1, 'a'), (2, 'b')");
    assert_eq!(int(&db, "select count(*) from t"), 2);
    e.close().unwrap();
    drop((db, e));
    let e = open(dir.path());
    assert_eq!(int(&e.database("holdfast").unwrap(), "select count(*) from t"), 2);
    e.close().unwrap();
}

/// What a kill leaves behind: the directory as it is while everything runs. Taken again when a file got another name
/// meanwhile.
fn copy_of(dir: &Path) -> tempfile::TempDir {
    loop {
        let to = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(to.path()).output().unwrap();
        if copied.status.success() {
            return to;
        }
    }
}

#[test]
fn redo_brings_back_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key autoincrement, x text)");
    ok(&db, "create table hidden(x)");
    for i in 0..50 {
        ok(&db, &format!("insert into t(x) values('{i}')"));
        ok(&db, &format!("insert into hidden values({i})"));
    }
    ok(&db, "update t set x = x || '!' where id < 10");
    db.checkpoint().unwrap();
    ok(&db, "delete from t where id = 3");
    ok(&db, "alter table t add column y default 7");
    ok(&db, "insert into t(x, y) values('late', 8)");
    let before = read(&db, "select * from t order by id");
    let crashed = copy_of(dir.path());
    let e2 = open(crashed.path());
    let db2 = e2.database("holdfast").unwrap();
    assert_eq!(read(&db2, "select * from t order by id"), before);
    assert_eq!(read(&db2, "select rowid, x from hidden"), read(&db, "select rowid, x from hidden"));
    assert_eq!(read(&db2, "pragma integrity_check"), [[Value::Text("ok".into())]]);
    ok(&db2, "insert into t(x) values('after')");
    assert_eq!(int(&db2, "select max(id) from t"), 52);
    e2.close().unwrap();
    e.close().unwrap();
}

#[test]
fn a_failing_request_undoes_itself_only() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x)");
    let insert = |i: i64| step(&db, "insert into t values(?, 1)", &[Value::Int(i)]).unwrap();
    let batches = [vec![1], vec![2, 1], vec![3], vec![1, 4], vec![5]];
    let tickets: Vec<_> = batches
        .iter()
        .map(|ids| {
            let steps = ids.iter().map(|i| insert(*i)).collect();
            db.submit(Submission::new(steps, Box::new(Collect::new()))).unwrap()
        })
        .collect();
    let results: Vec<_> = tickets.into_iter().map(|t| t.wait().unwrap()).collect();
    let states: Vec<_> = results.iter().map(|r| r.result.as_ref().err().map(SqlError::state)).collect();
    let unique = Some(SqlState::UNIQUE_VIOLATION);
    assert_eq!(states, [None, unique, None, unique, None]);
    assert_eq!(results[1].failed_step, 1);
    assert_eq!(
        read(&db, "select group_concat(id) from (select id from t order by id)"),
        [[Value::Text("1,3,5".into())]]
    );
    e.close().unwrap();
}

/// RULE 10: OR ROLLBACK takes the whole batch with it; the others run again.
#[test]
fn a_request_that_rolls_everything_back_does_not_take_the_others_along() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x)");
    ok(&db, "insert into t values(100, 0)");
    let good = step(&db, "insert into t values(?, 1) returning id", &[Value::Int(0)]).unwrap();
    let bad = step(&db, "insert or rollback into t values(100, 1)", &[]).unwrap();
    assert_eq!(good.stmt.class, Class::Write);
    for round in 0..20 {
        let submit = |s: Step, sink: &Collect| db.submit(Submission::new(vec![s], Box::new(sink.clone()))).unwrap();
        let sinks: Vec<_> = (0..9).map(|_| Collect::new()).collect();
        let tickets: Vec<_> = (0..9i64)
            .map(|i| match i {
                4 => submit(bad.clone(), &sinks[4]),
                _ => {
                    submit(Step { params: vec![Value::Int(1000 + round * 10 + i)], ..good.clone() }, &sinks[i as usize])
                }
            })
            .collect();
        for (i, t) in tickets.into_iter().enumerate() {
            let done = t.wait().unwrap();
            assert_eq!(done.result.is_err(), i == 4, "{:?}", done.result);
            if i != 4 {
                assert_eq!(sinks[i].outcomes()[0].rows, [[Value::Int(1000 + round * 10 + i as i64)]]);
            }
        }
    }
    assert_eq!(int(&db, "select count(*) from t"), 161);
    let crashed = copy_of(dir.path());
    let e2 = open(crashed.path());
    assert_eq!(int(&e2.database("holdfast").unwrap(), "select count(*) from t"), 161);
    e.close().unwrap();
}

/// RULE 11: a deferred foreign key that one request violates is that request's error.
#[test]
fn deferred_foreign_keys_fail_their_own_request() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table p(id integer primary key)");
    ok(&db, "create table c(id integer primary key, p references p(id) deferrable initially deferred)");
    let good = run(&db, &["insert into c values(1, 1)", "insert into p values(1)"]).0;
    good.result.unwrap();
    let bad = run(&db, &["insert into c values(2, 2)"]).0;
    assert_eq!(bad.result.unwrap_err().state(), SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(int(&db, "select count(*) from c"), 1);
    e.close().unwrap();
}

#[test]
fn interactive_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x)");
    let ran = |txn: &mut holdfast_engine::WriteTxn, sql: &str| {
        let s = step(&db, sql, &[]).unwrap();
        txn.execute_blocking(s, Box::new(Collect::new())).unwrap().result
    };
    let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
    ran(&mut txn, "insert into t values(1, 1)").unwrap();
    assert!(ran(&mut txn, "insert into t values(1, 1)").is_err());
    ran(&mut txn, "insert into t values(2, 2)").unwrap();
    assert_eq!(int(&db, "select count(*) from t"), 0, "not committed");
    let waiting = db
        .submit(Submission::new(vec![step(&db, "insert into t values(9, 9)", &[]).unwrap()], Box::new(Collect::new())))
        .unwrap();
    txn.commit_blocking(Box::new(Collect::new())).unwrap().result.unwrap();
    waiting.wait().unwrap().result.unwrap();
    assert_eq!(int(&db, "select count(*) from t"), 3);
    let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
    ran(&mut txn, "delete from t").unwrap();
    drop(txn);
    ok(&db, "insert into t values(10, 10)");
    assert_eq!(int(&db, "select count(*) from t"), 4);
    let options = WriteOptions {
        idle_timeout: std::time::Duration::from_secs(2),
        isolation: WriteIsolation::Exclusive,
        ..WriteOptions::default()
    };
    let mut idle = db.begin_write_blocking(options).unwrap();
    ran(&mut idle, "delete from t").unwrap();
    // Waits until that one is given up.
    ok(&db, "insert into t values(11, 11)");
    let refused = idle.execute_blocking(step(&db, "select 1", &[]).unwrap(), Box::new(Collect::new()));
    assert_eq!(refused.err().unwrap().state(), SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT);
    assert_eq!(int(&db, "select count(*) from t"), 5);
    e.close().unwrap();
}

#[test]
fn large_transactions_travel_in_fragments() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x)");
    ok(
        &db,
        "with recursive n(i) as (select 1 union all select i+1 from n where i<30000) insert into t select i, hex(randomblob(500)) from n",
    );
    let before = read(&db, "select sum(id), sum(length(x)), max(x) from t");
    let crashed = copy_of(dir.path());
    let e2 = open(crashed.path());
    assert_eq!(read(&e2.database("holdfast").unwrap(), "select sum(id), sum(length(x)), max(x) from t"), before);
    e2.close().unwrap();
    e.close().unwrap();
}

/// Bounded statements share a batch; those of one message may be more than a record can hold.
#[test]
fn a_message_that_is_larger_than_a_boxcar_travels_in_fragments_too() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { segment_bytes: 1 << 20, ..Options::default() };
    let e = Engine::open(dir.path(), small.clone()).unwrap();
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table t(id integer primary key, x)");
    let value = "x".repeat(50_000);
    let inserts: Vec<String> = (0..100).map(|id| format!("insert into t values({id}, '{value}')")).collect();
    let (done, outcomes) = run(&db, &inserts.iter().map(String::as_str).collect::<Vec<_>>());
    done.result.unwrap();
    assert_eq!(outcomes.len(), 100, "each is answered once");
    let rows: Vec<String> = (100..200).map(|id| format!("({id}, '{value}')")).collect();
    // One that is small travels beside it.
    let many = step(&db, &format!("insert into t values {}", rows.join(", ")), &[]).unwrap();
    let few = step(&db, "insert into t values(1000, 'few')", &[]).unwrap();
    let sent = [many, few].map(|s| db.submit(Submission::new(vec![s], Box::new(Collect::new()))).unwrap());
    sent.into_iter().for_each(|sent| sent.wait().unwrap().result.unwrap());
    // One value has to fit.
    let (done, _) = run(&db, &[&format!("insert into t values(5000, '{}')", "x".repeat(2 << 20))]);
    let e1 = done.result.unwrap_err();
    assert!(e1.state() == SqlState::PROGRAM_LIMIT_EXCEEDED && e1.message().contains("a changed row takes"), "{e1}");
    let sum = "select sum(id * length(x)) + count(*) from t";
    let found = int(&db, sum);
    assert_eq!(int(&db, "select count(*) from t"), 201);
    let copy = copy_of(dir.path());
    let crashed = Engine::open(copy.path(), small).unwrap();
    assert_eq!(int(&crashed.database("holdfast").unwrap(), sum), found);
    ok(&db, "delete from t");
    assert_eq!(int(&db, "select count(*) from t"), 0);
    e.close().unwrap();
}

#[test]
fn databases_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    e.create_database("shop", holdfast_types::schema::Dialect::Sqlite, Level::Local).unwrap();
    assert!(e.create_database("shop", holdfast_types::schema::Dialect::Sqlite, Level::Local).is_err());
    let db = e.database("shop").unwrap();
    ok(&db, "create table t(x)");
    ok(&db, "insert into t values(1)");
    let crashed = copy_of(dir.path());
    let e2 = open(crashed.path());
    assert_eq!(int(&e2.database("shop").unwrap(), "select count(*) from t"), 1);
    drop(db);
    e.drop_database("shop", Level::Local).unwrap();
    assert!(e.database("shop").is_err());
    let crashed = copy_of(dir.path());
    let e3 = open(crashed.path());
    assert_eq!(e3.databases().len(), 2);
    e.close().unwrap();
}

#[test]
fn vacuum_keeps_hidden_rowids_and_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let e = open(dir.path());
    let db = e.database("holdfast").unwrap();
    ok(&db, "create table h(x)");
    ok(
        &db,
        "with recursive n(i) as (select 1 union all select i+1 from n where i<5000) insert into h select hex(randomblob(100)) from n",
    );
    ok(&db, "delete from h where rowid % 3 = 0");
    let rows = "select sum(rowid), count(*), min(x) from h";
    let before = read(&db, rows);
    let mut old = db.reader().unwrap();
    old.begin().unwrap();
    old.run(&SessionContext::NONE, 0, &step(&db, rows, &[]).unwrap(), &mut Collect::new()).unwrap();
    db.vacuum().unwrap();
    assert_eq!(read(&db, rows), before);
    ok(&db, "insert into h values('after')");
    let still = Collect::new();
    old.run(&SessionContext::NONE, 0, &step(&db, rows, &[]).unwrap(), &mut still.clone()).unwrap();
    assert_eq!(still.outcomes()[0].rows, before, "the old snapshot");
    drop(old);
    let after = read(&db, rows);
    let crashed = copy_of(dir.path());
    let e2 = open(crashed.path());
    assert_eq!(read(&e2.database("holdfast").unwrap(), rows), after);
    e2.close().unwrap();
    e.close().unwrap();
}
