//! Transactions with many bytes of images: who stays on its branch, and who keeps others from writing.

use super::{bench::*, now};
use holdfast_engine::Engine;
use holdfast_types::Value;

/// More than any branch may have without a place among the large ones.
const LARGE: &str = "with recursive i(n) as (values(1) union all select n + 1 from i where n < 66) \
                     insert into big select abs(random()), randomblob(1 << 20) from i";
const TABLES: &str = "create table t(id integer primary key, v integer);
                      insert into t values(1, 10), (2, 20), (3, 30);
                      create table big(id integer primary key, body blob)";

/// Another transaction writes and commits while this one is open.
fn others_write(o: &Opened) {
    let mut other = begin(&o.db, RC);
    run(&mut other, "update t set v = v + 1 where id = 1").unwrap();
    commit(other).unwrap();
    at_once(&o.db, "update t set v = v + 1 where id = 2").unwrap();
}

#[test]
fn a_large_transaction_lets_others_write_until_it_commits() {
    let o = open(TABLES);
    let mut txn = begin(&o.db, RC);
    // One statement is too much for a branch; then many are.
    run(&mut txn, LARGE).unwrap();
    others_write(&o);
    for _ in 0..10 {
        run(&mut txn, "insert into big select abs(random()), randomblob(1 << 20)").unwrap();
        others_write(&o);
    }
    // It sees what they have done, and what it has.
    assert_eq!(
        run(&mut txn, "select v, (select count(*) from big) from t where id = 1").unwrap(),
        [[Value::Int(21), Value::Int(76)]]
    );
    now(txn.savepoint("s")).unwrap();
    run(&mut txn, "delete from big").unwrap();
    now(txn.rollback_to("s")).unwrap();
    run(&mut txn, "update t set v = v + 1 where id = 3").unwrap();
    commit(txn).unwrap();
    assert_eq!(int(&o.db, "select count(*) from big where length(body) = 1 << 20"), 76);
    assert_eq!(int(&o.db, "select sum(v) from t"), 60 + 2 * 11 + 1);
}

#[test]
fn those_that_find_no_place_among_the_large_ones_become_the_only_writer() {
    let o = open(TABLES);
    let large = || {
        let mut txn = begin(&o.db, RC);
        run(&mut txn, LARGE).unwrap();
        txn
    };
    let (a, b) = (large(), large());
    others_write(&o);
    let third = apart(begin(&o.db, RC), LARGE);
    third.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    drop(b);
    let (third, ran) = third.end();
    ran.unwrap();
    let other = transaction_apart(&o.db, "update t set v = 0 where id = 1");
    other.until_blocked_by(&o.engine, &third);
    commit(third).unwrap();
    other.end().unwrap();
    // Their places are free again.
    let (c, d) = (large(), large());
    others_write(&o);
    drop((c, d));
    assert_eq!(int(&o.db, "select count(*) from big"), 2 * 66);
}

/// Images go ahead to the trail while they are put on. These are put on twice, as their rows hold only together.
#[test]
fn what_went_ahead_of_a_merge_that_began_again_is_not_recovered() {
    let o = open("create table tree(id integer primary key, up integer references tree(id), body blob)");
    let chain = |from: u32| {
        format!(
            "with recursive i(n) as (values({from}) union all select n + 1 from i where n < {from} + 9) \
             insert into tree select n, case when n < {from} + 9 then n + 1 end, randomblob(1 << 20) from i"
        )
    };
    let mut txn = begin(&o.db, RC);
    // Each is there before what refers to it.
    run(&mut txn, "insert into tree select 1, null, randomblob(9 << 20)").unwrap();
    run(&mut txn, "insert into tree select 2, 1, randomblob(9 << 20)").unwrap();
    run(&mut txn, &chain(100)).unwrap();
    commit(txn).unwrap();
    let mut undone = begin(&o.db, RC);
    run(&mut undone, &chain(200)).unwrap();
    drop(undone);
    let sum = "select sum(id * length(body)) from tree";
    let (rows, found) = (int(&o.db, "select count(*) from tree"), int(&o.db, sum));
    assert_eq!(rows, 12);
    let Opened { engine, db, dir } = o;
    // Without a checkpoint.
    drop((db, engine));
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("one").unwrap();
    assert_eq!((int(&db, "select count(*) from tree"), int(&db, sum)), (rows, found));
}
