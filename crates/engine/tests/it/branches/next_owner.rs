//! A lock is free when what its holder did is published, which is before that is durable: its next owner sees it all the same.

use super::bench::*;
use crate::support::client::block_on;
use crate::support::report_of;
use holdfast_engine::{LockStrength, LockWait, Report, RowLock};
use holdfast_types::{TableLockMode, Value};

/// Transactions of several threads that take a lock, read a row, and write what they have read and one more: none is lost.
fn none_is_lost(tables: &str, threads: i64, lock: impl Fn(i64, &mut Txn) + Sync) {
    const TIMES: i64 = 40;
    let o = open(&format!("{T}; {tables}"));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (o, lock) = (&o, &lock);
            scope.spawn(move || {
                for _ in 0..TIMES {
                    let mut txn = begin(&o.db, RC);
                    lock(thread, &mut txn);
                    let read = run(&mut txn, "select v from t where id = 1").unwrap();
                    let Value::Int(v) = read[0][0] else { panic!("{read:?}") };
                    run(&mut txn, &format!("update t set v = {} where id = 1", v + 1)).unwrap();
                    commit(txn).unwrap();
                }
            });
        }
    });
    assert_eq!(int(&o.db, "select v from t where id = 1"), 10 + threads * TIMES);
}

fn each_sees_what_the_one_before_has_done(lock: impl Fn(&mut Txn) + Sync) {
    none_is_lost("", 4, |_, txn| lock(txn));
}

#[test]
fn who_has_locked_a_table_sees_what_was_done_before() {
    each_sees_what_the_one_before_has_done(|txn| {
        block_on(txn.lock_table("t", TableLockMode::ShareRowExclusive, false)).unwrap();
    });
    // One that is free at once may have been released a moment ago.
    each_sees_what_the_one_before_has_done(|txn| {
        while block_on(txn.lock_table("t", TableLockMode::Exclusive, true)).is_err() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn who_has_an_advisory_lock_sees_what_was_done_before() {
    // pg_advisory_xact_lock; pg_try_advisory_xact_lock, which may get what was released a moment ago.
    each_sees_what_the_one_before_has_done(|txn| drop(advisory(txn, 3, 7).unwrap()));
    each_sees_what_the_one_before_has_done(|txn| while advisory(txn, 7, 7).unwrap() != Value::Int(1) {});
}

/// The row that they lock is another one than they change: what was changed is not noticed by its version.
#[test]
fn who_has_a_row_for_update_sees_what_was_done_before() {
    let lock = |txn: &mut Txn, strength, wait| {
        let of = "select v, id from t where id = 2";
        let row = RowLock { table: "t".into(), strength, wait, key: vec![1], limit: None };
        run_as(txn, of, Report { write: true, row_locks: [row].into(), ..report_of(of) })
    };
    for strength in [LockStrength::Update, LockStrength::NoKeyUpdate] {
        each_sees_what_the_one_before_has_done(|txn| drop(lock(txn, strength, LockWait::Wait).unwrap()));
        // One that is free at once was often released a moment ago.
        each_sees_what_the_one_before_has_done(|txn| {
            while lock(txn, strength, LockWait::NoWait).is_err() {
                std::thread::yield_now();
            }
        });
    }
}

/// One locks a table, the other changes it, or a table that refers to it: neither reads what was there before the other.
#[test]
fn who_changes_a_table_sees_what_was_done_by_who_had_locked_it() {
    let tables = "create table m(id integer primary key, n int); insert into m values(1, 1); \
                  create table child(id integer primary key, m integer references m)";
    for (mode, change) in [
        (TableLockMode::ShareRowExclusive, "update m set n = n + 1"),
        (TableLockMode::Share, "insert into m(n) values(1)"),
        (
            TableLockMode::AccessExclusive,
            "delete from m where id = (select max(id) from m); insert into m(n) values(1)",
        ),
        (TableLockMode::Exclusive, "insert into child(m) values(1)"),
    ] {
        none_is_lost(tables, 2, |thread, txn| match thread {
            0 => block_on(txn.lock_table("m", mode, false)).unwrap(),
            _ => change.split(';').for_each(|sql| drop(run(txn, sql).unwrap())),
        });
    }
}
