//! A statement that waits for an advisory lock keeps no exclusive writer out, and sees what such writers have done meanwhile.

use super::bench::*;
use holdfast_engine::{AdvisoryOwner, Database, Engine, Report, WriteIsolation};
use holdfast_types::{ColumnDesc, SqlResult, SqlState, StatementDesc, TableLockMode, Value};
use std::sync::Arc;

use crate::support::client::block_on;

const EXCLUSIVE: WriteIsolation = WriteIsolation::Exclusive;
const KEY: i64 = 7;

/// A session that holds the advisory lock KEY, without an open transaction.
fn holder(db: &Database) -> Arc<AdvisoryOwner> {
    let session = session(db);
    let mut txn = begin_in(&session, db, RC).unwrap();
    advisory(&mut txn, 1, KEY).unwrap();
    commit(txn).unwrap();
    session
}

/// Waits for the advisory lock, and reads a row once it has it. The transaction comes back with the outcome.
fn reads_when_it_has_the_lock(mut txn: Txn, epoch: Option<u32>) -> Apart<(Txn, SqlResult<Value>)> {
    apart_as(txn.pid, move || {
        let columns = vec![ColumnDesc::new("lock", 25), ColumnDesc::new("v", 20)];
        let desc = Arc::new(StatementDesc { columns, ..StatementDesc::default() });
        let report = Report { advisory: true, desc, epoch, ..Report::default() };
        let sql = format!("select holdfast_advisory(1, {KEY}, 0), v from t where id = 1");
        let ran = run_as(&mut txn, &sql, report).map(|mut rows| rows[0].remove(1));
        (txn, ran)
    })
}

#[track_caller]
fn until_it_waits_for<T>(apart: &Apart<T>, engine: &Engine, kind: &str, by: i32) {
    let waits = apart.waits(engine, |waiting| waiting.kind == kind && waiting.by.contains(&by));
    assert!(waits, "it ended without waiting");
}

fn write_exclusively(a: &Arc<AdvisoryOwner>, db: &Database) -> Txn {
    let mut txn = begin_in(a, db, EXCLUSIVE).unwrap();
    run(&mut txn, "update t set v = 11 where id = 1").unwrap();
    txn
}

#[test]
fn the_holder_writes_exclusively_while_another_session_waits_for_its_advisory_lock() {
    let o = open(T);
    let a = holder(&o.db);
    let b = reads_when_it_has_the_lock(begin(&o.db, RC), None);
    until_it_waits_for(&b, &o.engine, "advisory", a.pid);
    commit(write_exclusively(&a, &o.db)).unwrap();
    a.unlock_all();
    let (b, ran) = b.end();
    assert_eq!(ran.unwrap(), Value::Int(11), "it sees what was written meanwhile");
    commit(b).unwrap();
}

#[test]
fn a_statement_that_got_its_advisory_lock_waits_for_the_exclusive_writer() {
    let o = open(T);
    let a = holder(&o.db);
    let b = reads_when_it_has_the_lock(begin(&o.db, RC), None);
    until_it_waits_for(&b, &o.engine, "advisory", a.pid);
    let txn = write_exclusively(&a, &o.db);
    a.unlock_all();
    until_it_waits_for(&b, &o.engine, "database", a.pid);
    commit(txn).unwrap();
    let (b, ran) = b.end();
    assert_eq!(ran.unwrap(), Value::Int(11));
    commit(b).unwrap();
}

/// What keeps rows or tables locked keeps the exclusive writer out: that one takes no heed of such locks.
#[test]
fn a_transaction_with_other_locks_keeps_the_exclusive_writer_out_while_it_waits() {
    let changes = |txn: &mut Txn| drop(run(txn, "update t set v = 21 where id = 2").unwrap());
    let locks = |txn: &mut Txn| block_on(txn.lock_table("t", TableLockMode::Share, false)).unwrap();
    for before in [&changes as &dyn Fn(&mut Txn), &locks] {
        let o = open(T);
        let a = holder(&o.db);
        let mut b = begin(&o.db, RC);
        before(&mut b);
        let b = reads_when_it_has_the_lock(b, None);
        until_it_waits_for(&b, &o.engine, "advisory", a.pid);
        let refused = begin_in(&a, &o.db, EXCLUSIVE).err().expect("both wait for each other");
        assert_eq!(refused.state(), SqlState::DEADLOCK_DETECTED);
        a.unlock_all();
        let (b, ran) = b.end();
        assert_eq!(ran.unwrap(), Value::Int(10));
        commit(b).unwrap();
    }
}

#[test]
fn a_transaction_whose_wait_was_cancelled_keeps_the_exclusive_writer_out_again() {
    let o = open(T);
    let a = holder(&o.db);
    let b = begin(&o.db, RC);
    let id = b.id();
    let b = reads_when_it_has_the_lock(b, None);
    until_it_waits_for(&b, &o.engine, "advisory", a.pid);
    o.db.interrupt(id);
    let (mut b, ran) = b.end();
    assert_eq!(state(ran), SqlState::QUERY_CANCELED);
    block_on(b.savepoint("s")).unwrap();
    run(&mut b, "update t set v = 21 where id = 2").unwrap();
    block_on(b.rollback_to("s")).unwrap();
    run(&mut b, "update t set v = 31 where id = 3").unwrap();
    let (db, of_a) = (o.db.clone(), a.clone());
    let exclusive = apart_as(a.pid, move || commit(write_exclusively(&of_a, &db)));
    until_it_waits_for(&exclusive, &o.engine, "database", b.pid);
    commit(b).unwrap();
    exclusive.end().unwrap();
    assert_eq!(int(&o.db, "select sum(v) from t"), 11 + 20 + 31);
}

/// A statement that fails because the schema has changed meanwhile does not keep the advisory lock: its session runs it again.
#[test]
fn a_statement_that_fails_when_it_has_waited_returns_its_advisory_lock() {
    let o = open(T);
    let a = holder(&o.db);
    let of_b = session(&o.db);
    let b = begin_in(&of_b, &o.db, RC).unwrap();
    let b = reads_when_it_has_the_lock(b, Some(o.db.schema().permanent_epoch()));
    until_it_waits_for(&b, &o.engine, "advisory", a.pid);
    let mut txn = write_exclusively(&a, &o.db);
    run(&mut txn, "alter table t add column w").unwrap();
    commit(txn).unwrap();
    a.unlock_all();
    let (b, ran) = b.end();
    assert!(ran.unwrap_err().is_schema_changed());
    drop(b);
    let mut c = begin(&o.db, RC);
    assert_eq!(advisory(&mut c, 7, KEY).unwrap(), Value::Int(1), "its session still holds the lock");
}
