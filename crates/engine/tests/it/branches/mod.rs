//! Interactive transactions side by side: what they see of each other, what they wait for, and that nothing is lost.

mod advisory_waits;
mod ahead;
mod bench;
mod file_ahead;
mod large;
mod next_owner;
mod side_copy;
mod whole_table;

use crate::support::report_of;
use bench::*;
use holdfast_engine::{Collect, Engine, LockStrength, LockWait, Options, Report, RowLock, Step, Submission};
use holdfast_seams::testing::Patience;
use holdfast_types::{SqlState, Value};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[test]
fn a_second_writer_of_a_row_waits_and_sees_the_new_value() {
    let o = open(T);
    let (mut a, b, mut c) = (begin(&o.db, RC), begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update t set v = v + 1 where id = 1").unwrap();
    let b = apart(b, "update t set v = v + 100 where id = 1 returning v");
    b.until_blocked_by(&o.engine, &a);
    run(&mut c, "update t set v = 0 where id = 2").unwrap();
    commit(c).unwrap();
    assert_eq!(int(&o.db, "select v from t where id = 1"), 10, "readers are not blocked and see nothing of it");
    commit(a).unwrap();
    let (b, ran) = b.end();
    assert_eq!(ran.unwrap(), [[Value::Int(111)]]);
    commit(b).unwrap();
    assert_eq!(int(&o.db, "select v from t where id = 1"), 111);
}

#[test]
fn a_waiting_update_looks_again_whether_the_row_is_meant() {
    let o = open(T);
    let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update t set v = 99 where id = 1").unwrap();
    let b = apart(b, "update t set u = 'x' where v = 10 returning id");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    let (b, ran) = b.end();
    assert_eq!(ran.unwrap(), Vec::<Vec<Value>>::new());
    commit(b).unwrap();
}

#[test]
fn repeatable_read_fails_at_the_statement() {
    let o = open(T);
    let mut a = begin(&o.db, RR);
    assert_eq!(run(&mut a, "select v from t where id = 1").unwrap(), [[Value::Int(10)]]);
    at_once(&o.db, "update t set v = 11 where id = 1").unwrap();
    assert_eq!(run(&mut a, "select v from t where id = 1").unwrap(), [[Value::Int(10)]], "its snapshot");
    run(&mut a, "update t set v = 21 where id = 2").unwrap();
    assert_eq!(state(run(&mut a, "update t set v = v + 1 where id = 1")), SqlState::SERIALIZATION_FAILURE);
    drop(a);
    assert_eq!(int(&o.db, "select sum(v) from t"), 11 + 20 + 30);
}

/// Else one client that idles in a transaction, and another's schema change, would stop everybody.
#[test]
fn who_waits_for_everybody_lets_new_writers_pass_now_and_then() {
    let o = open(T);
    let mut idle = begin(&o.db, RC);
    run(&mut idle, "update t set v = 0 where id = 1").unwrap();
    let change = apart(begin(&o.db, RC), "create trigger d after delete on t begin select 1; end");
    change.until_blocked_by(&o.engine, &idle);
    // Each has to wait for a moment at most.
    for _ in 0..2 {
        let mut other = begin(&o.db, RC);
        run(&mut other, "update t set v = v + 1 where id = 2").unwrap();
        commit(other).unwrap();
    }
    commit(idle).unwrap();
    let (txn, changed) = change.end();
    changed.unwrap();
    commit(txn).unwrap();
    at_once(&o.db, "drop trigger d").unwrap();
}

#[test]
fn a_message_given_up_hides_no_earlier_change() {
    let o = open(T);
    let (mut holder, mut old) = (begin(&o.db, RC), begin(&o.db, RR));
    run(&mut holder, "update t set v = 0 where id = 2").unwrap();
    assert_eq!(run(&mut old, "select v from t where id = 1").unwrap(), [[Value::Int(10)]]);
    at_once(&o.db, "update t set v = 11 where id = 1").unwrap();
    // It changes the same row, meets the holder's lock, leaves no trace in the writer, and gives up waiting on its branch.
    let steps = ["update t set v = 12 where id = 1", "update t set v = 22 where id = 2"];
    let step = |sql| Step { stmt: o.db.prepare(sql, report_of(sql)).unwrap(), params: vec![] };
    let mut batch = Submission::new(steps.map(step).into(), Box::new(Collect::new()));
    batch.lock_timeout = Duration::from_millis(20);
    let refused = o.db.submit(batch).unwrap().wait().unwrap().result;
    assert_eq!(state(refused), SqlState::LOCK_NOT_AVAILABLE);
    assert_eq!(state(run(&mut old, "update t set v = v + 1 where id = 1")), SqlState::SERIALIZATION_FAILURE);
    drop((old, holder));
    assert_eq!(int(&o.db, "select sum(v) from t"), 11 + 20 + 30);
}

/// A text that a foreign key takes for a number locks no parent; what is merged is checked all the same.
#[test]
fn a_parent_that_went_unnoticed_is_missed_at_the_end() {
    let o = open(
        "create table p(id integer primary key); insert into p values(1), (2);
         create table c(p text references p(id)); insert into c values('2')",
    );
    let mut txn = begin(&o.db, RC);
    run(&mut txn, "insert into c values('1')").unwrap();
    // The branch's lock names the text, the parent's change the number; should both mean the same one day, this waits.
    let (pid, delete) = message(&o.db, "delete from p where id = 1");
    let deleted = answer_apart(pid, o.db.submit(delete).unwrap());
    if deleted.is_blocked_by(&o.engine, &txn) {
        commit(txn).unwrap();
        assert_eq!(state(deleted.end()), SqlState::FOREIGN_KEY_VIOLATION);
    } else {
        deleted.end().unwrap();
        assert_eq!(state(commit(txn)), SqlState::FOREIGN_KEY_VIOLATION);
    }
    assert_eq!(int(&o.db, "select count(*) from c where p not in (select id from p)"), 0);
}

#[test]
fn a_schema_change_that_waits_can_be_cancelled() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    run(&mut a, "update t set v = 0 where id = 1").unwrap();
    let (pid, change) = message(&o.db, "create index d on t(v)");
    let (sender, done) = channel();
    let submitted =
        o.db.submit_with(change, Box::new(move |done| sender.send(done.result).unwrap_or_default())).unwrap();
    let done = apart_as(pid, move || done.recv().unwrap());
    done.until_blocked_by(&o.engine, &a);
    o.db.interrupt_submitted(&submitted);
    assert_eq!(state(done.end()), SqlState::QUERY_CANCELED);
    let refused = o.db.vacuum().unwrap_err();
    assert_eq!(refused.state(), SqlState::LOCK_NOT_AVAILABLE, "{refused}");
    // Nobody is left in the queue.
    at_once(&o.db, "update t set v = 1 where id = 2").unwrap();
    commit(begin(&o.db, RC)).unwrap();
    commit(a).unwrap();
    o.db.vacuum().unwrap();
}

/// Runs beside others where it is no trouble, and comes to the same wherever it ends up.
#[test]
fn a_message_that_takes_its_time_runs_beside_others() {
    let o = open(
        "create table b(id integer primary key, v integer, w text);
         insert into b select value, value, hex(randomblob(50)) from json_each('[1,2,3,4,5,6,7,8,9,10]');
         insert into b(v, w) select a.v, hex(randomblob(500)) from b a, b, b, b",
    );
    let any_order = |sql: &str| {
        let (pid, mut batch) = message(&o.db, sql);
        batch.any_order = true;
        answer_apart(pid, o.db.submit(batch).unwrap())
    };
    let mut holder = begin(&o.db, RC);
    run(&mut holder, "update b set v = 1000 where id = 1").unwrap();
    // A few rows: on a branch, which waits for the holder and sees what it did.
    let few = any_order("update b set v = v + 1 where w > '' and id < 4");
    few.until_blocked_by(&o.engine, &holder);
    at_once(&o.db, "update b set v = 0 where id = 5").unwrap();
    commit(holder).unwrap();
    few.end().unwrap();
    assert_eq!(int(&o.db, "select v from b where id = 1"), 1001);
    // More than a branch is allowed here: the writer runs it once, not twice.
    let before = int(&o.db, "select sum(v) from b");
    any_order("update b set v = v + 1, w = w || 'x'").end().unwrap();
    assert_eq!(int(&o.db, "select sum(v) from b"), before + int(&o.db, "select count(*) from b"));
    assert_eq!(state(any_order("insert into b select id, v, w from b").end()), SqlState::UNIQUE_VIOLATION);
    // With triggers it is the writer's from the start.
    at_once(&o.db, "create table log(x)").unwrap();
    at_once(&o.db, "create trigger tr after update on b begin insert into log values(new.id); end").unwrap();
    let held = begin(&o.db, RC);
    any_order("update b set v = 0 where v < 100 and w > ''").end().unwrap();
    commit(held).unwrap();
    assert!(int(&o.db, "select count(*) from log") > 0);
}

#[test]
fn a_message_that_meets_a_lock_waits_on_a_branch() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    run(&mut a, "update t set v = v + 1 where id = 1").unwrap();
    let (pid, batch) = message(&o.db, "update t set v = v * 2 where id = 1");
    let waiting = answer_apart(pid, o.db.submit(batch).unwrap());
    waiting.until_blocked_by(&o.engine, &a);
    at_once(&o.db, "update t set v = 0 where id = 3").unwrap();
    commit(a).unwrap();
    waiting.end().unwrap();
    assert_eq!(int(&o.db, "select v from t where id = 1"), 22);
}

#[test]
fn a_deadlock_is_found_at_once() {
    let o = open(T);
    let (mut a, mut b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update t set v = 1 where id = 1").unwrap();
    run(&mut b, "update t set v = 2 where id = 2").unwrap();
    let b = apart(b, "update t set v = 2 where id = 1");
    b.until_blocked_by(&o.engine, &a);
    assert_eq!(state(run(&mut a, "update t set v = 1 where id = 2")), SqlState("40P01"));
    drop(a);
    let (b, ran) = b.end();
    ran.unwrap();
    commit(b).unwrap();
    assert_eq!(int(&o.db, "select v from t where id = 1"), 2);
}

#[test]
fn a_key_is_locked_before_it_is_there_and_while_it_goes() {
    let o = open(T);
    for (end, first, expected) in [
        (true, "insert into t values(8, 0, 'new')", Err(SqlState::UNIQUE_VIOLATION)),
        (false, "insert into t values(8, 0, 'new')", Ok(())),
        (true, "delete from t where u = 'new'", Ok(())),
        (false, "delete from t where u = 'new'", Err(SqlState::UNIQUE_VIOLATION)),
    ] {
        at_once(&o.db, "delete from t where u = 'new'").unwrap();
        if first.starts_with("delete") {
            at_once(&o.db, "insert into t values(7, 0, 'new')").unwrap();
        }
        let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
        run(&mut a, first).unwrap();
        let b = apart(b, "insert into t values(9, 0, 'new')");
        assert!(b.is_blocked_by(&o.engine, &a), "{first}");
        if end {
            commit(a).unwrap()
        } else {
            drop(a)
        };
        let (_, ran) = b.end();
        assert_eq!(ran.map(drop).map_err(|e| e.state()), expected, "{first}, committed {end}");
    }
}

#[test]
fn a_row_that_is_being_deleted_is_waited_for_whatever_else_is_in_the_text() {
    let o = open(T);
    for insert in
        ["/* a job */ insert into t values(9, 0, 'new')", "insert into t select 9, 0, 'new' where 'on conflict' <> ''"]
    {
        at_once(&o.db, "insert into t values(8, 0, 'new')").unwrap();
        let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
        run(&mut a, "delete from t where id = 8").unwrap();
        let b = apart(b, insert);
        assert!(b.is_blocked_by(&o.engine, &a), "{insert}");
        commit(a).unwrap();
        b.end().1.unwrap();
    }
}

#[test]
fn a_child_keeps_its_parent() {
    let o = open(
        "create table p(id integer primary key, v integer); create table c(id integer primary key, p references p);
         insert into p values(1, 0), (2, 0)",
    );
    let (mut a, mut other, b) = (begin(&o.db, RC), begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "insert into c values(1, 1)").unwrap();
    run(&mut other, "update p set v = 1 where id = 1").unwrap();
    commit(other).unwrap();
    let b = apart(b, "delete from p where id = 1");
    assert!(b.is_blocked_by(&o.engine, &a), "but an update of the parent's other columns was not");
    commit(a).unwrap();
    let (_, ran) = b.end();
    assert_eq!(state(ran), SqlState::FOREIGN_KEY_VIOLATION);
    let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "delete from p where id = 2").unwrap();
    let b = apart(b, "insert into c values(2, 2)");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    let (_, ran) = b.end();
    assert_eq!(state(ran), SqlState::FOREIGN_KEY_VIOLATION);
}

#[test]
fn cascades_are_locked_and_merged_once() {
    let o = open(
        "create table p(id integer primary key);
         create table c(id integer primary key, p references p on delete cascade, v integer);
         insert into p values(1); insert into c values(1, 1, 0), (2, 1, 0)",
    );
    let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update c set v = 1 where id = 2").unwrap();
    let b = apart(b, "delete from p where id = 1");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    let (b, ran) = b.end();
    ran.unwrap();
    commit(b).unwrap();
    assert_eq!(int(&o.db, "select (select count(*) from p) + (select count(*) from c)"), 0);
}

#[test]
fn a_savepoint_gives_locks_and_changes_back() {
    let o = open(T);
    let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update t set v = 1 where id = 1").unwrap();
    now(a.savepoint("s")).unwrap();
    run(&mut a, "update t set v = 1 where id = 2").unwrap();
    let b = apart(b, "update t set v = v + 1 where id = 2");
    b.until_blocked_by(&o.engine, &a);
    now(a.rollback_to("s")).unwrap();
    let (b, ran) = b.end();
    ran.unwrap();
    commit(b).unwrap();
    commit(a).unwrap();
    let values = [1, 21, 30].map(|v| [Value::Int(v)]);
    assert_eq!(at_once(&o.db, "select v from t order by id").unwrap(), values);
}

/// What a branch does without waiting.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_trigger_waits_for_all_writers_and_takes_its_transaction_along() {
    let o = open(T);
    let (mut a, mut b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update t set v = 1 where id = 1").unwrap();
    run(&mut b, "update t set v = 2 where id = 2").unwrap();
    run(&mut b, "create table n(x)").unwrap();
    let b = apart(b, "create trigger d after delete on t begin select 1; end");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    let (mut b, ran) = b.end();
    ran.unwrap();
    run(&mut b, "update t set v = v + 1 where id = 2").unwrap();
    drop(b);
    assert_eq!(int(&o.db, "select v from t where id = 2"), 20, "backed out as a whole");
    assert!(at_once(&o.db, "select * from n").is_err());
}

#[test]
fn rows_locked_for_update_are_nobody_elses() {
    let o = open(T);
    let lock = |wait| Report {
        desc: Arc::new(holdfast_types::StatementDesc {
            columns: vec![holdfast_types::ColumnDesc::new("v", 20)],
            ..Default::default()
        }),
        write: true,
        row_locks: [RowLock { table: "t".into(), strength: LockStrength::Update, wait, key: vec![1], limit: None }]
            .into(),
        ..Report::default()
    };
    let (mut a, mut b) = (begin(&o.db, RC), begin(&o.db, RC));
    let one = "select v, id from t where id = 1";
    assert_eq!(run_as(&mut a, one, lock(LockWait::Wait)).unwrap(), [[Value::Int(10)]], "the key is not shown");
    assert_eq!(state(run_as(&mut b, one, lock(LockWait::NoWait))), SqlState::LOCK_NOT_AVAILABLE);
    let all = "select v, id from t order by id";
    let others = run_as(&mut b, all, lock(LockWait::SkipLocked)).unwrap();
    assert_eq!(others, [[Value::Int(20)], [Value::Int(30)]]);
    let c = apart(begin(&o.db, RC), "update t set v = v + 1 where id = 1 returning v");
    c.until_blocked_by(&o.engine, &a);
    run(&mut a, "update t set v = 50 where id = 1").unwrap();
    commit(a).unwrap();
    assert_eq!(c.end().1.unwrap(), [[Value::Int(51)]]);
}

#[test]
fn a_wait_ends_by_cancel_and_by_time() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    run(&mut a, "update t set v = 1 where id = 1").unwrap();
    let mut b = begin(&o.db, RC);
    b.set_lock_timeout(Duration::from_millis(20));
    assert_eq!(state(run(&mut b, "update t set v = 2 where id = 1")), SqlState::LOCK_NOT_AVAILABLE);
    b.set_lock_timeout(Duration::ZERO);
    let id = b.id();
    let b = apart(b, "update t set v = 2 where id = 1");
    b.until_blocked_by(&o.engine, &a);
    o.db.interrupt(id);
    let (mut b, ran) = b.end();
    assert_eq!(state(ran), SqlState::QUERY_CANCELED);
    run(&mut b, "update t set v = 2 where id = 2").unwrap();
    drop(a);
    commit(b).unwrap();
}

/// Half of the clients send one message, of one statement or two, half hold transactions open: no increment may be lost
/// (RULE 21).
#[test]
fn no_update_is_lost_between_messages_and_transactions() {
    let o = open("create table c(id integer primary key, v integer); insert into c values(1, 0), (2, 0), (3, 0)");
    let (stop, tried) = (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicU64::new(0) }; 8]));
    let clients: Vec<_> = (0..8)
        .map(|n| {
            let (db, stop, tried) = (o.db.clone(), stop.clone(), tried.clone());
            std::thread::spawn(move || {
                let (mut done, mut at) = (0, n);
                while !stop.load(Ordering::Relaxed) {
                    at = (at * 7 + 3) % 11;
                    let sql = format!("update c set v = v + 1 where id = {}", at % 3 + 1);
                    // The second statement often meets a lock or finds too much, and takes the first one with it.
                    let two = "update c set v = v / (v < 1000000000) where id = 3";
                    let ran = match n % 4 {
                        0 => at_once(&db, &sql).map(drop),
                        1 => all_at_once(&db, &[&sql, two]),
                        kind => {
                            let mut txn = begin(&db, if kind == 2 { RC } else { RR });
                            run(&mut txn, &sql).and_then(|_| commit(txn))
                        }
                    };
                    match ran {
                        Ok(()) => done += 1,
                        Err(e) => assert_eq!(e.state(), SqlState::SERIALIZATION_FAILURE, "{e}"),
                    }
                    tried[n].fetch_add(1, Ordering::Relaxed);
                }
                done
            })
        })
        .collect();
    // Until each has had its turns, and they were in each other's way often.
    let mut patience = Patience::new();
    loop {
        assert!(clients.iter().all(|client| !client.is_finished()), "one has failed");
        let tried = tried.each_ref().map(|n| n.load(Ordering::Relaxed));
        let waits = o.engine.transaction_stats().lock_waits;
        if tried.iter().all(|n| *n >= 200) && waits >= 200 {
            break;
        }
        patience.sees(format!("{tried:?}, {waits} waits"));
        patience.look("all have changed rows");
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    let done: i64 = clients.into_iter().map(|c| c.join().unwrap()).sum();
    assert!(done > 0);
    assert_eq!(int(&o.db, "select sum(v) from c"), done);
    // Redo comes to the same.
    let Opened { engine, db, dir } = o;
    drop((db, engine));
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(int(&engine.database("one").unwrap(), "select sum(v) from c"), done);
    engine.close().unwrap();
}

#[test]
fn ids_of_transactions_side_by_side_differ() {
    let o = open("create table s(id integer primary key, x)");
    let insert = "insert into s(id, x) values(holdfast_next_id('s'), 1) returning id";
    let (mut a, mut b) = (begin(&o.db, RC), begin(&o.db, RC));
    let ids = [run(&mut a, insert).unwrap(), run(&mut b, insert).unwrap(), at_once(&o.db, insert).unwrap()];
    assert_eq!(ids, [[[Value::Int(1)]], [[Value::Int(2)]], [[Value::Int(3)]]]);
    commit(b).unwrap();
    commit(a).unwrap();
    assert_eq!(int(&o.db, "select count(*) from s"), 3);
}

#[test]
fn a_long_transaction_keeps_its_changes_under_foreign_writes() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    for n in 0..200 {
        run(&mut a, &format!("insert into t values({}, {n}, 'n{n}')", 100 + n)).unwrap();
        at_once(&o.db, &format!("update t set v = {n} where id = 1")).unwrap();
        let seen = run(&mut a, "select count(*), (select v from t where id = 1) from t where id >= 100").unwrap();
        assert_eq!(seen, [[Value::Int(n + 1), Value::Int(n)]]);
    }
    commit(a).unwrap();
    assert_eq!(int(&o.db, "select count(*) from t"), 203);
}

#[test]
fn a_key_over_a_generated_column_does_not_keep_rows_from_being_locked() {
    let o = open(
        "create table g(id integer primary key, v integer, w integer generated always as (v * 2) stored unique);
         insert into g(id, v) values(1, 1)",
    );
    let (mut a, b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut a, "update g set v = v + 1 where id = 1").unwrap();
    let b = apart(b, "update g set v = v + 10 where id = 1 returning v");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    let (b, ran) = b.end();
    assert_eq!(ran.unwrap(), [[Value::Int(12)]]);
    commit(b).unwrap();
}

#[test]
fn a_cancel_that_came_too_late_does_not_end_a_later_wait() {
    let o = open(T);
    let (mut a, mut b) = (begin(&o.db, RC), begin(&o.db, RC));
    run(&mut b, "update t set v = 0 where id = 3").unwrap();
    o.db.interrupt(b.id());
    run(&mut a, "update t set v = 1 where id = 1").unwrap();
    let b = apart(b, "update t set v = v + 1 where id = 1 returning v");
    b.until_blocked_by(&o.engine, &a);
    commit(a).unwrap();
    assert_eq!(b.end().1.unwrap(), [[Value::Int(2)]]);
}

#[test]
fn a_long_transaction_sees_what_it_names_even_on_an_older_snapshot() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    for n in 0..40 {
        run(&mut a, &format!("insert into t values({}, {n}, null)", 100 + n)).unwrap();
    }
    at_once(&o.db, "insert into t values(50, 1, 'x')").unwrap();
    at_once(&o.db, "update t set v = 11 where id = 1").unwrap();
    at_once(&o.db, "delete from t where id = 3").unwrap();
    assert_eq!(run(&mut a, "update t set v = v + 1 where id = 1 returning v").unwrap(), [[Value::Int(12)]]);
    assert_eq!(run(&mut a, "update t set v = 7 where id = 50 returning v").unwrap(), [[Value::Int(7)]]);
    assert_eq!(run(&mut a, "update t set v = 7 where id = 3 returning v").unwrap(), Vec::<Vec<Value>>::new());
    at_once(&o.db, "insert into t values(51, 1, 'y')").unwrap();
    assert_eq!(state(run(&mut a, "insert into t values(52, 1, 'y')")), SqlState::UNIQUE_VIOLATION);
    run(&mut a, "insert into t values(53, 1, 'c')").unwrap();
    commit(a).unwrap();
    assert_eq!(int(&o.db, "select count(*) from t"), 2 + 40 + 2 + 1);
    assert_eq!(int(&o.db, "select v from t where id = 50"), 7);
}

#[test]
fn who_locks_very_many_rows_becomes_the_only_writer() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Options { branch_locks_max: 100, ..options() }).unwrap();
    let db = engine.database("one").unwrap();
    let many = "with recursive i(n) as (values(1) union all select n + 1 from i where n < 500) insert into t select n, 0 from i";
    at_once(&db, "create table t(id integer primary key, v integer)").unwrap();
    at_once(&db, many).unwrap();
    let (mut a, mut b) = (begin(&db, RC), begin(&db, RC));
    run(&mut a, "update t set v = 1 where id > 490").unwrap();
    run(&mut b, "update t set v = 2 where id = 1").unwrap();
    // It has the first rows locked, and waits for the other writer to end.
    let a = apart(a, "update t set v = v + 1 where id > 100");
    a.until_blocked_by(&engine, &b);
    commit(b).unwrap();
    let (txn, ran) = a.end();
    ran.unwrap();
    commit(txn).unwrap();
    assert_eq!(int(&db, "select sum(v) from t"), 2 + 390 + 10 * 2);
    // Under a snapshot it may hold more, as it could not go on elsewhere.
    let mut c = begin(&db, RR);
    run(&mut c, "select 1").unwrap();
    at_once(&db, "update t set v = 0 where id = 1").unwrap();
    run(&mut c, "update t set v = 0 where id > 200").unwrap();
    commit(c).unwrap();
    assert_eq!(int(&db, "select sum(v) from t"), 100);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            // A spare segment may be gone by now.
            std::fs::copy(entry.path(), to).map(drop).unwrap_or_default();
        }
    }
}

/// Its query must not run again, neither at COMMIT nor after a crash: it would find other rows.
#[test]
fn a_table_made_from_a_query_keeps_what_was_found() {
    let o = open(T);
    let mut a = begin(&o.db, RC);
    run(&mut a, "create table c as select id, v, random() as r from t").unwrap();
    at_once(&o.db, "delete from t where id = 1").unwrap();
    commit(a).unwrap();
    at_once(&o.db, "create table d as select random() as r from t").unwrap();
    assert_eq!(int(&o.db, "select count(*) from c where id = 1 and v = 10"), 1, "as it was when it was read");
    let all =
        "select group_concat(c.rowid || ' ' || id || ' ' || v || ' ' || r) || (select group_concat(r) from d) from c";
    let found = at_once(&o.db, all).unwrap();
    // As after a power cut.
    let crashed = tempfile::tempdir().unwrap();
    copy(o.dir.path(), crashed.path());
    let engine = Engine::open(crashed.path(), options()).unwrap();
    assert_eq!(at_once(&engine.database("one").unwrap(), all).unwrap(), found);
}
