//! A standby whose applying fails, and one that is killed between two files.

use super::catalogue::in_time;
use super::pair::{assert_same, catch_up, copy, missing, open_standby, settle};
use super::workload::{begin, options};
use crate::support::client::query;
use crate::support::report_of;
use holdfast_engine::{Collect, Engine, Options, Step, WriteOptions, multi_database_commit};
use holdfast_seams::testing::Patience;
use holdfast_types::{SqlError, Value};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const HANGS: Duration = Duration::from_secs(600);
const FINE: u8 = 0;
const FAILS: u8 = 1;
const PANICS: u8 = 2;

/// A standby whose thread of applying meets `what` when it opens a connection on the database "two".
fn failing(dir: &Path, what: &Arc<AtomicU8>) -> Engine {
    let what = what.clone();
    let connect = move |_: &mut _, db: &Arc<dyn holdfast_engine::ConnectedDatabase>| {
        let here = db.name() == "two" && std::thread::current().name() == Some("apply");
        match if here { what.load(Ordering::Acquire) } else { FINE } {
            FAILS => Err(SqlError::internal("a function cannot be registered")),
            PANICS => panic!("as a bug would"),
            _ => Ok(()),
        }
    };
    Engine::open(dir, Options { standby: true, connect: Some(Arc::new(connect)), ..options() }).unwrap()
}

/// Runs it in both databases, in one transaction.
fn in_both(master: &Engine, sql: &str) {
    let change = |name: &str| {
        let db = master.database(name).unwrap();
        let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
        let stmt = db.prepare(sql, report_of(sql)).unwrap();
        let ran = txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(Collect::new())).unwrap();
        ran.result.unwrap();
        txn
    };
    let parts = vec![change("one"), change("two")];
    multi_database_commit(parts, Box::new(Collect::new())).unwrap().wait().unwrap().result.unwrap();
}

/// The schema of both databases changes in one boxcar.
fn deliver_schema_change(master: &Engine, standby: &Engine) {
    in_both(master, "create table later(x)");
    standby.receive(&missing(master, standby)).unwrap();
    standby.allow_apply(master.trail().durable());
}

fn why_it_failed(standby: &Engine) -> String {
    let end = standby.trail().durable();
    assert!(!standby.wait_applied(end, HANGS));
    standby.apply_failure().expect("it has not ended, or it hangs")
}

#[test]
fn readers_stop_and_promotion_are_not_held_up_by_a_group_that_failed() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let what = Arc::new(AtomicU8::new(FINE));
    let standby = failing(b.path(), &what);
    catch_up(&master, &standby);
    what.store(FAILS, Ordering::Release);
    deliver_schema_change(&master, &standby);
    let why = why_it_failed(&standby);
    assert!(why.contains("cannot be registered"), "{why}");
    for name in ["one", "two"] {
        let db = standby.database(name).unwrap();
        let tables = "select count(*) from sqlite_schema where name = 'later'";
        let seen = in_time("a reader", move || query(&db, tables).unwrap());
        assert_eq!(seen, [[Value::Int(0)]], "{name}: half of what was applied together is seen");
    }
    let stopping = standby.clone();
    in_time("the stop", move || stopping.close()).unwrap();
    let epoch_min = master.trail().epoch();
    drop(standby);
    let promoted = Engine::open(b.path(), Options { epoch_min, ..options() }).unwrap();
    assert_same(&master, &promoted, "promoted");
    promoted.close().unwrap();
    master.close().unwrap();
}

#[test]
fn a_panic_of_the_thread_of_applying_is_told() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let what = Arc::new(AtomicU8::new(FINE));
    let standby = failing(b.path(), &what);
    catch_up(&master, &standby);
    what.store(PANICS, Ordering::Release);
    deliver_schema_change(&master, &standby);
    let why = why_it_failed(&standby);
    assert!(why.contains("panicked"), "{why}");
    in_time("the stop", move || standby.close()).unwrap();
    master.close().unwrap();
}

#[test]
fn a_large_transaction_waits_in_scratch_for_its_end() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    in_both(&master, "insert into both values(1, 'followed from now on')");
    catch_up(&master, &standby);
    // Many times what its fragments may take in memory; there is nowhere else for them.
    std::fs::remove_dir(b.path().join("scratch")).unwrap();
    let numbers = "with recursive n(i) as (select 2 union all select i + 1 from n where i < 500)";
    in_both(&master, &format!("{numbers} insert into both select i, randomblob(1000) from n"));
    settle(&master, &standby);
    let why = standby.apply_failure().expect("they were kept in memory");
    assert!(why.contains("cannot be written to the scratch file"), "{why}");
    drop(standby);
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    assert_same(&master, &standby, "with scratch");
    drop(standby);
    master.close().unwrap();
}

/// A standby, and its thread of applying as `/proc` names it, once it has opened a connection.
fn with_its_thread(dir: &Path) -> (Engine, Arc<OnceLock<PathBuf>>) {
    let thread = Arc::new(OnceLock::new());
    let seen = thread.clone();
    let connect = move |_: &mut _, _: &Arc<dyn holdfast_engine::ConnectedDatabase>| {
        if std::thread::current().name() == Some("apply") {
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            seen.get_or_init(|| Path::new("/proc").join(link));
        }
        Ok(())
    };
    let options = Options { standby: true, connect: Some(Arc::new(connect)), ..options() };
    (Engine::open(dir, options).unwrap(), thread)
}

/// How often a thread has gone to sleep so far, if it sleeps.
fn asleep(thread: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(thread.join("status")).unwrap();
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    of("State:").starts_with('S').then(|| of("voluntary_ctxt_switches:").parse().unwrap())
}

/// Waits until a thread sleeps and nothing wakes it: one that asks again and again is found running, or has gone to sleep
/// once more. A busy machine makes the looks rarer, not fewer.
fn until_idle(thread: &Path) {
    const LOOKS: usize = 100;
    let (mut patience, mut since, mut looks) = (Patience::new(), None, 0);
    while looks < LOOKS {
        let now = asleep(thread);
        looks = if now.is_some() && now == since { looks + 1 } else { 0 };
        since = now;
        patience.look("the thread sleeps");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_master_that_names_a_place_inside_a_boxcar_keeps_nobody_busy() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let (standby, thread) = with_its_thread(b.path());
    in_both(&master, "insert into both values(0, 'before')");
    catch_up(&master, &standby);
    let thread = thread.get().expect("it has applied without a connection");
    in_both(&master, "insert into both values(1, 'together')");
    let mut all = missing(&master, &standby);
    let data = all.iter().position(|b| !b.body().is_empty()).unwrap();
    let (lsn, end) = (all[data].lsn, all[data].end);
    all.truncate(data + 1);
    standby.receive(&all).unwrap();
    standby.allow_apply(holdfast_types::Lsn(lsn.0 + 1));
    until_idle(thread);
    standby.allow_apply(end);
    assert!(standby.wait_applied(end, HANGS), "{:?}", standby.apply_failure());
    drop(standby);
    master.close().unwrap();
}

/// A commit over both databases, allowed by the master's word alone, is in one file and not in the other one's.
fn checkpointed_by_half(master: &Engine, standby: &Engine) {
    in_both(master, "insert into both values(1, 'together')");
    let mut all = missing(master, standby);
    let last = all.iter().rposition(|b| !b.body().is_empty()).unwrap();
    all.truncate(last + 1);
    standby.receive(&all).unwrap();
    standby.allow_apply(all[last].end);
    assert!(standby.wait_applied(all[last].end, HANGS));
    standby.database("one").unwrap().checkpoint().unwrap();
}

#[test]
fn a_killed_standby_shows_no_half_of_a_transaction_and_all_that_its_files_have() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let what = Arc::new(AtomicU8::new(FINE));
    let standby = failing(b.path(), &what);
    catch_up(&master, &standby);
    checkpointed_by_half(&master, &standby);
    let shown = standby.applied();
    drop(standby);
    // Its master is gone: nobody says what may be applied.
    let standby = failing(b.path(), &what);
    assert!(standby.wait_applied(shown, HANGS), "applied {} of {shown}", standby.applied());
    for name in ["one", "two"] {
        let count = query(&standby.database(name).unwrap(), "select count(*) from both").unwrap();
        assert_eq!(count, [[Value::Int(1)]], "{name}");
    }
    drop(standby);
    master.close().unwrap();
}

#[test]
fn what_is_in_a_file_is_settled_though_applying_begins_before_it() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let what = Arc::new(AtomicU8::new(FINE));
    let standby = failing(b.path(), &what);
    catch_up(&master, &standby);
    checkpointed_by_half(&master, &standby);
    let in_a_file = standby.applied();
    assert_eq!(standby.settled(), in_a_file);
    drop(standby);
    // It cannot apply: what it says to a master before it has is looked at.
    what.store(FAILS, Ordering::Release);
    let standby = failing(b.path(), &what);
    why_it_failed(&standby);
    assert!(standby.applied() < in_a_file);
    assert_eq!(standby.settled(), in_a_file, "cut back there, its file would be ahead of its trail");
    drop(standby);
    master.close().unwrap();
}
