//! Images of a large branch that are in the trail before the writer has them: who gets on meanwhile, and what is left of them
//! when they are of no use.

use super::bench::*;
use holdfast_engine::trail_dump::{Filter, dump};
use holdfast_engine::{Engine, Options};
use holdfast_types::{SqlResult, SqlState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const TABLES: &str = "create table t(id integer primary key, v integer);
                      insert into t values(1, 10), (2, 20);
                      create table big(id integer primary key, body blob);
                      create table up(id integer primary key, v integer);
                      create table down(id integer primary key, up integer references up(id) on update cascade);
                      insert into up values(1, 0), (2, 0);
                      with recursive i(n) as (values(1) union all select n + 1 from i where n < 500)
                      insert into down select n, 1 from i";
const LARGE: &str = "with recursive i(n) as (values(1) union all select n + 1 from i where n < 200) \
                     insert into big select n, randomblob(1000) from i";
/// The governor is asked before each fragment; the commit stops there.
const STOPS_AT: u32 = 4;

fn few_bytes() -> Options {
    Options { prewrite_bytes_min: 64 << 10, ..options() }
}

struct Stopped {
    o: Opened,
    /// Told when the commit has come to [`STOPS_AT`].
    stands: Receiver<()>,
    go_on: Sender<()>,
}

/// An engine in which whoever sends images ahead stops before its fourth fragment until told.
fn stopping() -> Stopped {
    let o = open_with(TABLES, few_bytes());
    let (tell, stands) = channel();
    let (go_on, told) = channel();
    let (asked, both) = (AtomicU32::new(0), parking_lot::Mutex::new((tell, told)));
    let delay = move |_: u64| {
        let sends = std::thread::current().name().is_some_and(|name| name.starts_with("holdfast-tasks"));
        if sends && asked.fetch_add(1, Ordering::AcqRel) + 1 == STOPS_AT {
            let (tell, told) = &*both.lock();
            tell.send(()).unwrap_or_default();
            told.recv_timeout(Duration::from_secs(600)).unwrap_or_default();
        }
        Duration::ZERO
    };
    assert!(o.engine.set_delay(Arc::new(delay)));
    Stopped { o, stands, go_on }
}

/// One letter each: Fragment, what Refers to fragments, Drop of fragments, update of the table t.
fn records(dir: &Path) -> String {
    let mut letters = String::new();
    dump(dir, &few_bytes(), Filter::default(), |item| {
        for line in item.to_string().lines().map(str::trim) {
            if line.starts_with("fragment ") {
                letters.push('F');
            } else if line.starts_with("fragments of transaction") {
                letters.push('D');
            } else if line.contains(" fragments of transaction ") {
                letters.push('R');
            } else if line.starts_with("update t ") || line.starts_with("update table 1 ") {
                letters.push('u');
            }
        }
        true
    })
    .unwrap();
    letters
}

/// A large commit that has come to [`STOPS_AT`].
fn standing(stopped: &Stopped) -> JoinHandle<SqlResult<()>> {
    let mut txn = begin(&stopped.o.db, RC);
    run(&mut txn, LARGE).unwrap();
    let ended = std::thread::spawn(|| commit(txn));
    stopped.stands.recv().unwrap();
    ended
}

fn again(o: Opened) -> (Engine, tempfile::TempDir) {
    let Opened { engine, db, dir } = o;
    // Without a checkpoint.
    drop((db, engine));
    (Engine::open(dir.path(), few_bytes()).unwrap(), dir)
}

#[test]
fn others_commit_between_the_fragments_of_a_large_commit() {
    let stopped = stopping();
    let ended = standing(&stopped);
    let Stopped { o, go_on, .. } = stopped;
    at_once(&o.db, "update t set v = v + 1 where id = 1").unwrap();
    assert_eq!(int(&o.db, "select count(*) from big"), 0, "nothing of it is committed");
    o.db.checkpoint().unwrap();
    at_once(&o.db, "update t set v = v + 1 where id = 2").unwrap();
    go_on.send(()).unwrap();
    ended.join().unwrap().unwrap();
    at_once(&o.db, "update t set v = v + 1 where id = 2").unwrap();
    let sum = "select sum(id * length(body)) + (select sum(v) from t) from big where body is not null";
    let found = int(&o.db, sum);
    let (engine, dir) = again(o);
    let db = engine.database("one").unwrap();
    assert_eq!(int(&db, sum), found, "after a crash");
    assert_eq!(int(&db, "select count(*) from big"), 200);
    let there = records(dir.path());
    let fragments = there.matches('F').count();
    assert!(there.starts_with("FFFuuF") && there.ends_with("FRu") && fragments > 8, "{there}");
}

#[test]
fn what_a_crash_leaves_of_a_large_commit_is_not_there() {
    let stopped = stopping();
    let ended = standing(&stopped);
    let Stopped { o, go_on, .. } = stopped;
    at_once(&o.db, "update t set v = 7 where id = 1").unwrap();
    // As a crash does: the rest never gets there.
    let copy = tempfile::tempdir().unwrap();
    copy_dir(o.dir.path(), copy.path());
    go_on.send(()).unwrap();
    ended.join().unwrap().unwrap();
    for round in 0..2 {
        let engine = Engine::open(copy.path(), few_bytes()).unwrap();
        let db = engine.database("one").unwrap();
        assert_eq!(int(&db, "select count(*) from big"), 0, "round {round}");
        assert_eq!(int(&db, "select v from t where id = 1"), 7);
        let mut txn = begin(&db, RC);
        run(&mut txn, "insert into big values(1, 'another one')").unwrap();
        run(&mut txn, "delete from big").unwrap();
        commit(txn).unwrap();
        engine.close().unwrap();
    }
}

#[test]
fn what_foreign_keys_do_besides_is_sent_by_main() {
    let o = open_with(TABLES, few_bytes());
    let mut txn = begin(&o.db, RC);
    run(&mut txn, LARGE).unwrap();
    run(&mut txn, "update up set id = 9 where id = 1").unwrap();
    run(&mut txn, "insert into big select id + 1000, body from big").unwrap();
    commit(txn).unwrap();
    let sum = "select sum(id * length(body)) + (select sum(id * up) from down) from big where body is not null";
    let found = int(&o.db, sum);
    assert_eq!(int(&o.db, "select count(*) from down where up = 9"), 500);
    let (engine, dir) = again(o);
    assert_eq!(int(&engine.database("one").unwrap(), sum), found, "after a crash");
    let there = records(dir.path());
    let (sent, then) = there.split_once('D').expect("those sent first are dropped");
    assert!(sent.chars().all(|c| c == 'F') && then.ends_with("FR"), "{there}");
}

#[test]
fn a_large_commit_that_is_refused_leaves_nothing() {
    let stopped = stopping();
    let ended = standing(&stopped);
    let Stopped { o, go_on, .. } = stopped;
    o.engine.depose("another master was promoted");
    go_on.send(()).unwrap();
    assert_eq!(state(ended.join().unwrap()), SqlState::ADMIN_SHUTDOWN);
    let (engine, dir) = again(o);
    assert_eq!(int(&engine.database("one").unwrap(), "select count(*) from big"), 0);
    // A deposed master writes nothing more, not even that they are dropped.
    assert_eq!(records(dir.path()), "FFF");
}

/// Each holds a thread that statements of others need.
#[test]
fn no_more_than_four_send_at_a_time_and_the_next_goes_the_usual_way() {
    let o = open_with(TABLES, few_bytes());
    let (tell, stands) = channel();
    let (tell, go_on) =
        (parking_lot::Mutex::new(tell), Arc::new((parking_lot::Mutex::new(false), parking_lot::Condvar::new())));
    let told = go_on.clone();
    let delay = move |_: u64| {
        if std::thread::current().name().is_some_and(|name| name.starts_with("holdfast-tasks")) {
            tell.lock().send(()).unwrap_or_default();
            let mut goes = told.0.lock();
            while !*goes {
                told.1.wait(&mut goes);
            }
        }
        Duration::ZERO
    };
    assert!(o.engine.set_delay(Arc::new(delay)));
    let mut all: Vec<_> = (0..5)
        .map(|i| {
            let mut txn = begin(&o.db, RC);
            run(&mut txn, &LARGE.replace("select n,", &format!("select n + {i} * 1000,"))).unwrap();
            txn
        })
        .collect();
    let fifth = all.pop().unwrap();
    let four: Vec<_> = all.into_iter().map(|txn| std::thread::spawn(|| commit(txn))).collect();
    (0..4).for_each(|_| stands.recv().unwrap());
    let (tell, ended) = channel();
    std::thread::spawn(move || tell.send(commit(fifth)).unwrap_or_default());
    ended.recv_timeout(Duration::from_secs(600)).expect("it sends, too").unwrap();
    assert_eq!(int(&o.db, "select count(*) from big"), 200);
    *go_on.0.lock() = true;
    go_on.1.notify_all();
    four.into_iter().for_each(|one| one.join().unwrap().unwrap());
    assert_eq!(int(&o.db, "select count(*) from big"), 1000);
}
