//! A transaction that has locked a table as a whole takes no locks of its rows, and others wait for it all the same.

use super::{bench::*, now};
use crate::support::report_of;
use holdfast_engine::{Collect, LockStrength, LockWait, Options, Report, RowLock, Step, Submission};
use holdfast_types::{SqlState, TableLockMode};

/// A transaction that has locked the table `t`.
fn locked(o: &Opened) -> Txn {
    let mut txn = begin(&o.db, RC);
    now(txn.lock_table("t", TableLockMode::Exclusive, false)).unwrap();
    txn
}

#[test]
fn a_load_of_any_number_of_rows_locks_the_table_only() {
    let tables = format!("{T}; create table other(id integer primary key)");
    let o = open_with(&tables, Options { branch_locks_max: 20, ..options() });
    let mut txn = locked(&o);
    let load = "with recursive i(n) as (values(10) union all select n + 1 from i where n < 999) insert into t select n, n, n from i";
    run(&mut txn, load).unwrap();
    let kinds: Vec<_> = o.engine.locks().into_iter().map(|lock| lock.kind).collect();
    assert!(kinds.iter().all(|kind| !matches!(*kind, "tuple" | "unique key")), "{kinds:?}");
    // With more locks than 20 it would have become the only writer.
    let mut second = begin(&o.db, RC);
    run(&mut second, "insert into other values(1)").unwrap();
    commit(second).unwrap();
    commit(txn).unwrap();
    assert_eq!(int(&o.db, "select count(*) from t"), 993);
    let mut txn = locked(&o);
    run(&mut txn, "update t set v = 0").unwrap();
    now(txn.savepoint("s")).unwrap();
    run(&mut txn, "delete from t").unwrap();
    now(txn.rollback_to("s")).unwrap();
    commit(txn).unwrap();
    assert_eq!(int(&o.db, "select count(*) from t where v = 0"), 993);
}

#[test]
fn a_key_that_it_deletes_is_waited_for() {
    let o = open(T);
    for commits in [true, false] {
        let mut txn = locked(&o);
        run(&mut txn, "delete from t where id = 1").unwrap();
        // One by itself, which the writer would run at once; one in a transaction.
        let (pid, submission) = message(&o.db, "insert into t values(1, 100, 'x')");
        let alone = answer_apart(pid, o.db.submit(submission).unwrap());
        alone.until_blocked_by(&o.engine, &txn);
        let within = transaction_apart(&o.db, "insert into t values(7, 100, 'a')");
        within.until_blocked_by(&o.engine, &txn);
        match commits {
            true => {
                commit(txn).unwrap();
                alone.end().unwrap();
                within.end().unwrap();
                at_once(&o.db, "delete from t where id in (1, 7)").unwrap();
                at_once(&o.db, "insert into t values(1, 10, 'a')").unwrap();
            }
            false => {
                drop(txn);
                assert_eq!(state(alone.end()), SqlState::UNIQUE_VIOLATION);
                assert_eq!(state(within.end()), SqlState::UNIQUE_VIOLATION);
            }
        }
    }
}

#[test]
fn a_row_for_update_is_waited_for() {
    let o = open(T);
    let report = Report {
        row_locks: [RowLock {
            table: "t".into(),
            strength: LockStrength::Update,
            wait: LockWait::Wait,
            key: vec![1],
            limit: None,
        }]
        .into(),
        ..report_of("select v, id from t where id = 1")
    };
    let txn = locked(&o);
    let rows = Collect::new();
    let stmt = o.db.prepare("select v, id from t where id = 1", report).unwrap();
    let (pid, other) = message(&o.db, "select 1");
    let submission = Submission { steps: vec![Step { stmt, params: vec![] }], sink: Box::new(rows.clone()), ..other };
    let waiting = answer_apart(pid, o.db.submit(submission).unwrap());
    waiting.until_blocked_by(&o.engine, &txn);
    commit(txn).unwrap();
    waiting.end().unwrap();
    assert_eq!(rows.outcomes()[0].rows.len(), 1);
}

/// What it changed has a version, as if each row had been locked.
#[test]
fn an_older_snapshot_does_not_change_what_it_has_changed() {
    let o = open(T);
    let mut older: Vec<Txn> = (0..3).map(|_| begin(&o.db, RR)).collect();
    older.iter_mut().for_each(|txn| drop(run(txn, "select 1 from t").unwrap()));
    let mut txn = locked(&o);
    run(&mut txn, "update t set v = 11 where id = 1").unwrap();
    run(&mut txn, "insert into t values(9, 9, 'i')").unwrap();
    commit(txn).unwrap();
    for (mut txn, sql) in older.into_iter().zip([
        "update t set v = v + 1 where id = 1",
        "insert into t values(9, 0, 'z')",
        "insert into t values(10, 0, 'i')",
    ]) {
        assert_eq!(state(run(&mut txn, sql)), SqlState::SERIALIZATION_FAILURE, "{sql}");
    }
    // Its own snapshot may be the older one as well.
    let mut txn = begin(&o.db, RR);
    run(&mut txn, "select 1 from t").unwrap();
    at_once(&o.db, "update t set v = 12 where id = 1").unwrap();
    now(txn.lock_table("t", TableLockMode::Exclusive, false)).unwrap();
    assert_eq!(state(run(&mut txn, "update t set v = v + 1 where id = 1")), SqlState::SERIALIZATION_FAILURE);
}
