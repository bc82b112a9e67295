//! Databases that come and go while standbys are waited for, and as a standby meets them in its trail.

use super::levels::{logged, options, submit};
use super::pair::{assert_same, assert_sound, catch_up, copy, missing, open_standby, settle};
use crate::support::client::{query, step};
use holdfast_engine::import::{Import, import};
use holdfast_engine::{Collect, Engine, OpenError, Options, ParameterChange, Submission};
use holdfast_seams::RealDisk;
use holdfast_trail::{Inspection, Trail};
use holdfast_types::access::{Role, RoleChanges};
use holdfast_types::schema::Dialect;
use holdfast_types::{Epoch, Level, SqlResult, SqlState, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than anything takes that does not hang.
const HANGS: Duration = Duration::from_secs(600);

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

fn new_role(engine: &Engine, name: &str) -> RoleChanges {
    let mut changes = RoleChanges::default();
    let oid = engine.reserve_role_oid().unwrap();
    changes.set_role(oid, None, Some(Role::new(oid, name)));
    changes
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
    let again = beside(&engine, |e| e.create_database("two", Dialect::Sqlite, Level::Local));
    still_waits("CREATE DATABASE", &creating);
    still_waits("CREATE DATABASE of the same name", &again);
    assert_eq!(names(&engine), ["one"]);
    assert_eq!(engine.database("two").err().unwrap().state(), SqlState::INVALID_CATALOG_NAME);
    acknowledge(&engine);
    ended(creating).unwrap();
    assert_eq!(ended(again).unwrap_err().state(), SqlState::DUPLICATE_DATABASE);
    assert_eq!(names(&engine), ["one", "two"]);

    let set = ParameterChange::Set { name: "lock_timeout".to_owned(), value: "1s".to_owned() };
    let changing = beside(&engine, move |e| e.change_parameters("two", set, Level::Hot));
    logged(&engine, 1);
    still_waits("ALTER DATABASE", &changing);
    assert!(engine.database_parameters("two").is_empty());
    acknowledge(&engine);
    ended(changing).unwrap();
    assert_eq!(engine.database_parameters("two"), [("lock_timeout".to_owned(), "1s".to_owned())]);

    let version = engine.roles_version();
    let making = beside(&engine, |e| e.change_roles(new_role(e, "ann"), Level::Hot));
    logged(&engine, 1);
    still_waits("CREATE ROLE", &making);
    assert!(engine.roles().by_name("ann").is_none());
    // Its name is taken where it counts: in the trail.
    let again = engine.change_roles(new_role(&engine, "ann"), Level::Local);
    assert_eq!(again.unwrap_err().state(), SqlState::DUPLICATE_OBJECT);
    acknowledge(&engine);
    ended(making).unwrap();
    assert!(engine.roles().by_name("ann").is_some() && engine.roles_version() > version);

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
    engine.create_database("two", Dialect::Sqlite, Level::Local).unwrap();
    let two = engine.database("two").unwrap();
    let hot = submit(&two, "create table t(id integer primary key)", Level::Hot);
    logged(&engine, 1);
    drop(two);
    // Its last commit has not reached its level: the drop waits for that first.
    let dropping = beside(&engine, |e| e.drop_database("two", Level::Local));
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

fn at_once(engine: &Engine, database: &str, sql: &str) {
    let db = engine.database(database).unwrap();
    let batch = Submission::new(vec![step(&db, sql).unwrap()], Box::new(Collect::new()));
    db.submit(batch).unwrap().wait().unwrap().result.unwrap();
}

fn epoch_of(dir: &Path) -> Epoch {
    Inspection::of(&RealDisk::new(), &dir.join("trail")).unwrap().unwrap().epoch
}

/// Makes and drops a database whose name another one has then, twice.
fn reuse_a_name(engine: &Engine) {
    for round in 0..3 {
        engine.create_database("again", Dialect::Sqlite, Level::Local).unwrap();
        at_once(engine, "again", "create table t(id integer primary key)");
        at_once(engine, "again", &format!("insert into t values({round})"));
        if round < 2 {
            engine.drop_database("again", Level::Local).unwrap();
        }
    }
}

#[test]
fn a_master_that_has_used_a_name_again_can_follow_and_be_promoted() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    reuse_a_name(&master);
    catch_up(&master, &standby);
    let epoch = master.trail().epoch();
    standby.close().unwrap();
    master.close().unwrap();
    drop((master, standby));
    // What the old master's stop has written is the new one's alone: cut off.
    let promoted = Engine::open(b.path(), Options { epoch_min: epoch, ..options() }).unwrap();
    let common = promoted.recovered().end;
    Trail::cut_back(&RealDisk::new(), &a.path().join("trail"), common).unwrap();
    let old = open_standby(a.path(), &options());
    at_once(&promoted, "again", "insert into t values(100)");
    catch_up(&promoted, &old);
    assert_same(&promoted, &old, "the roles are exchanged");
    let epoch = promoted.trail().epoch();
    drop((old, promoted));
    // Nothing was noted since: all of the trail's databases are gone through once more.
    let again = Engine::open(a.path(), Options { epoch_min: epoch, ..options() }).unwrap();
    assert_eq!(query(&again.database("again").unwrap(), "select id from t").unwrap().len(), 2);
    again.create_database("new", Dialect::Sqlite, Level::Local).unwrap();
    again.close().unwrap();
    drop(again);
    assert_sound(a.path(), &options());
}

#[test]
fn a_standby_killed_after_a_name_was_used_again_goes_on() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    let before = std::fs::read(b.path().join("checkpoints")).unwrap();
    reuse_a_name(&master);
    catch_up(&master, &standby);
    drop(standby);
    // As if the power had failed before the file was replaced: what it says was true, only long ago.
    std::fs::write(b.path().join("checkpoints"), before).unwrap();
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    assert_same(&master, &standby, "once more");
    standby.close().unwrap();
    drop(standby);
    assert_sound(b.path(), &options());
    master.close().unwrap();
}

/// Something with content, from outside.
fn import_into(dir: &Path) {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("shop.db");
    let flags = holdfast_store::sqlite::OpenFlags { write: true, create: true };
    let mut conn = holdfast_store::sqlite::Conn::open(file.to_str().unwrap(), flags, None).unwrap();
    conn.exec("create table t(x); insert into t values(1)").unwrap();
    drop(conn);
    let what = Import { file, dir: dir.to_owned(), database: None, adopt: false };
    import(&what, options(), Arc::new(|_| ())).unwrap();
}

#[test]
fn a_promotion_refuses_to_serve_an_imported_database_empty() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    master.close().unwrap();
    drop(master);
    import_into(a.path());
    let master = Engine::open(a.path(), options()).unwrap();
    // Received and not applied. The master may still be writing.
    let next = || loop {
        if let Some(boxcar) = missing(&master, &standby).into_iter().next() {
            break boxcar;
        }
        std::thread::yield_now();
    };
    let mut is_listed = false;
    while !is_listed {
        let boxcar = next();
        standby.receive(std::slice::from_ref(&boxcar)).unwrap();
        is_listed = boxcar.body().windows(4).any(|w| w == b"shop");
    }
    drop(standby);
    let before = epoch_of(b.path());
    let promote = || Engine::open(b.path(), Options { epoch_min: before, ..options() }).err();
    // Again: what the first attempt has made does not mislead the second.
    for attempt in 0..2 {
        let refused = promote();
        assert!(matches!(refused, Some(OpenError::NotInTheTrail { .. })), "attempt {attempt}: {refused:?}");
        assert_eq!(epoch_of(b.path()), before, "its master would be deposed");
    }
    // Nor does it serve it as a standby.
    let standby = open_standby(b.path(), &options());
    settle(&master, &standby);
    let why = standby.apply_failure();
    assert!(why.is_some_and(|why| why.contains("shop") && why.contains("new base copy")));
    drop(standby);
    master.close().unwrap();
}

#[test]
fn a_database_made_in_front_of_what_the_master_loses_stays() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    master.create_database("two", Dialect::Sqlite, Level::Local).unwrap();
    at_once(&master, "one", "create table late(x)");
    // All but the last are known to be durable at the master.
    let all = missing(&master, &standby);
    standby.receive(&all).unwrap();
    let lost = all.last().unwrap().lsn;
    assert!(standby.wait_applied(lost, HANGS), "{:?}", standby.apply_failure());
    assert_eq!(names(&standby), ["one", "two"]);
    drop(standby);
    Trail::cut_back(&RealDisk::new(), &b.path().join("trail"), lost).unwrap();
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    assert_same(&master, &standby, "with another end");
    drop(standby);
    master.close().unwrap();
}

/// Parameters, roles and databases that a former master has made and its new master does not have: the trail is cut back when
/// the server runs as a standby already, and the list of databases must not keep them.
#[test]
fn a_former_master_whose_list_has_what_was_cut_is_refused() {
    let role: fn(&Engine) = |engine| engine.change_roles(new_role(engine, "mallory"), Level::Local).unwrap();
    let parameter: fn(&Engine) = |engine| {
        let set = ParameterChange::Set { name: "lock_timeout".into(), value: "1s".into() };
        engine.change_parameters("one", set, Level::Local).unwrap();
    };
    let shared: fn(&Engine) = |engine| {
        let rules = vec![("pg_hba.conf".to_owned(), "local all all trust".to_owned())];
        engine.set_server_parameters(rules, Level::Local).unwrap();
    };
    let database: fn(&Engine) = |engine| engine.create_database("lost", Dialect::Sqlite, Level::Local).unwrap();
    for (what, lost) in [("a role", role), ("a parameter", parameter), ("rules", shared), ("a database", database)] {
        let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let master = Engine::open(a.path(), options()).unwrap();
        copy(&master, options().disk, b.path());
        let standby = open_standby(b.path(), &options());
        catch_up(&master, &standby);
        let common = standby.trail().durable();
        lost(&master);
        drop((master, standby));
        // It opens as a standby, finds that its new master lacks its end, and cuts that off.
        drop(open_standby(a.path(), &options()));
        Trail::cut_back(&RealDisk::new(), &a.path().join("trail"), common).unwrap();
        let refused = Engine::open(a.path(), Options { standby: true, ..options() }).err();
        let is_refused =
            matches!(&refused, Some(OpenError::AheadOfTrail { what, .. }) if what.contains("list of databases"));
        assert!(is_refused, "{what}: {refused:?}");
    }
}
