//! Databases that come and go while standbys are waited for, and as a standby meets them in its trail.

use super::levels::{logged, options, submit};
use super::support::client::query;
use holdfast_engine::{Engine, ParameterChange, ParametersOf};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SqlResult, SqlState, Value};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than anything takes that does not hang.
const HANGS: Duration = Duration::from_secs(60);

fn beside<T: Send + 'static>(engine: &Engine, work: impl FnOnce(&Engine) -> T + Send + 'static) -> JoinHandle<T> {
    let engine = engine.clone();
    std::thread::spawn(move || work(&engine))
}

/// Runs it on a thread of its own, so that a test fails that would hang.
pub fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(HANGS).unwrap_or_else(|_| panic!("{what} hangs"))
}

fn still_waits<T>(what: &str, thread: &JoinHandle<T>) {
    std::thread::sleep(Duration::from_millis(30));
    assert!(!thread.is_finished(), "{what} was told too early");
}

fn names(engine: &Engine) -> Vec<String> {
    engine.databases().into_iter().map(|d| d.name).collect()
}

/// A standby has everything.
fn acknowledge(engine: &Engine) {
    engine.reached(Level::Hot, engine.trail().durable());
}

fn ended(thread: JoinHandle<SqlResult<()>>) -> SqlResult<()> {
    in_time("what a standby has acknowledged", move || thread.join().unwrap())
}

#[test]
fn what_changes_the_list_of_databases_is_seen_when_it_has_reached_its_level() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let create = |e: &Engine| e.create_database("two", Dialect::Sqlite, Level::Hot);
    let creating = beside(&engine, create);
    logged(&engine, 1);
    assert_eq!(engine.gate().first.unwrap().0, Level::Hot);
    // That the name is taken is an answer, too.
    let again = beside(&engine, |e| e.create_database("two", Dialect::Sqlite, Level::Cold));
    still_waits("CREATE DATABASE", &creating);
    still_waits("CREATE DATABASE of the same name", &again);
    assert_eq!(names(&engine), ["one"]);
    assert_eq!(engine.database("two").err().unwrap().state(), SqlState::INVALID_CATALOG_NAME);
    acknowledge(&engine);
    ended(creating).unwrap();
    assert_eq!(ended(again).unwrap_err().state(), SqlState::DUPLICATE_DATABASE);
    assert_eq!(names(&engine), ["one", "two"]);

    let of = ParametersOf::Database("two".to_owned());
    let set = ParameterChange::Set { name: "lock_timeout".to_owned(), value: "1s".to_owned() };
    let changing = beside(&engine, move |e| e.change_parameters(&of, set, Level::Hot));
    logged(&engine, 1);
    still_waits("ALTER DATABASE", &changing);
    assert!(engine.database_parameters("two").is_empty());
    acknowledge(&engine);
    ended(changing).unwrap();
    assert_eq!(engine.database_parameters("two"), [("lock_timeout".to_owned(), "1s".to_owned())]);

    let dropping = beside(&engine, |e| e.drop_database("two", Level::Hot));
    logged(&engine, 1);
    still_waits("DROP DATABASE", &dropping);
    assert_eq!(names(&engine), ["one", "two"]);
    assert_eq!(engine.database("two").err().unwrap().state(), SqlState::OBJECT_IN_USE);
    // The name is free where it counts: behind the drop in the trail.
    let remaking = beside(&engine, create);
    logged(&engine, 2);
    acknowledge(&engine);
    ended(dropping).unwrap();
    ended(remaking).unwrap();
    assert_eq!(names(&engine), ["one", "two"]);
    assert!(engine.database_parameters("two").is_empty(), "it is another database");
    engine.close().unwrap();
}

#[test]
fn who_waits_for_a_database_on_its_way_is_told_when_the_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let create = |e: &Engine| e.create_database("two", Dialect::Sqlite, Level::Hot);
    let first = beside(&engine, create);
    logged(&engine, 1);
    let second = beside(&engine, create);
    still_waits("CREATE DATABASE of the same name", &second);
    engine.close().unwrap();
    for thread in [first, second] {
        assert_eq!(ended(thread).unwrap_err().state(), SqlState::ADMIN_SHUTDOWN);
    }
    drop(engine);
    let engine = Engine::open(dir.path(), options()).unwrap();
    assert_eq!(names(&engine), ["one", "two"], "the trail keeps it");
    engine.close().unwrap();
}

#[test]
fn a_database_that_waits_to_be_dropped_is_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    engine.create_database("two", Dialect::Sqlite, Level::Cold).unwrap();
    let two = engine.database("two").unwrap();
    let hot = submit(&two, "create table t(id integer primary key)", Level::Hot);
    logged(&engine, 1);
    drop(two);
    // Its last commit has not reached its level: the drop waits for that first.
    let dropping = beside(&engine, |e| e.drop_database("two", Level::Cold));
    still_waits("DROP DATABASE", &dropping);
    let copying = engine.clone();
    let copied = in_time("a base copy", move || copying.base_copy().map(|copy| copy.plan().volumes.len()).unwrap());
    assert_eq!(copied, 2);
    let other = engine.clone();
    in_time("opening another database", move || query(&other.database("one").unwrap(), "select 1")).unwrap();
    acknowledge(&engine);
    hot.wait().unwrap().result.unwrap();
    ended(dropping).unwrap();
    assert_eq!(names(&engine), ["one"]);
    assert_eq!(query(&engine.database("one").unwrap(), "select 1").unwrap(), [[Value::Int(1)]]);
    engine.close().unwrap();
}
