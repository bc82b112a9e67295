//! What a standby refuses, and what it says.

use super::pair::{WAIT_MAX, assert_same, catch_up, copy, hand_over, open_standby, try_copy};
use super::workload::{begin, options};
use crate::support::client::{query, step};
use holdfast_engine::{
    BaseReceiver, Collect, CopyError, Engine, OpenError, Options, PageBytes, ParameterChange, Report, Submission,
    VolumePlan, WriteOptions,
};
use holdfast_seams::Disk;
use holdfast_seams::testing::FaultDisk;
use holdfast_types::access::RoleChanges;
use holdfast_types::schema::Dialect;
use holdfast_types::{Epoch, Level, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const READ_ONLY: SqlState = SqlState::READ_ONLY_SQL_TRANSACTION;

#[test]
fn every_kind_of_write_is_refused_and_reads_work() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    let db = standby.database("one").unwrap();
    for sql in ["insert into t values(1, 1, 'x')", "update t set v = 1", "create table n(x)", "drop table t"] {
        let statement = step(&db, sql).unwrap();
        let refused = db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).err().unwrap();
        assert_eq!(refused.state(), READ_ONLY, "{sql}");
        assert!(refused.to_string().contains("read-only"), "{refused}");
    }
    let refused = [
        db.begin_write_blocking(WriteOptions::default()).err().unwrap(),
        db.vacuum().unwrap_err(),
        standby.create_database("x", Dialect::Sqlite, Level::Local).unwrap_err(),
        standby.drop_database("one", Level::Local).unwrap_err(),
        db.finish_prepared("g", true, Level::Local).err().unwrap(),
        standby.change_parameters("one", ParameterChange::Reset("x".into()), Level::Local).unwrap_err(),
        standby.change_roles(RoleChanges::default(), Level::Local).unwrap_err(),
    ];
    assert!(refused.iter().all(|e| e.state() == READ_ONLY), "{refused:?}");
    // A message that changes nothing runs, and so do advisory locks, which are this server's own.
    let session = db.advisory_owner(7);
    let mut lock = step(&db, "select holdfast_advisory(5, 1, 0)").unwrap();
    lock.stmt =
        db.prepare("select holdfast_advisory(5, 1, 0)", Report { advisory: true, ..Report::default() }).unwrap();
    let rows = Collect::new();
    let batch = Submission { advisory_owner: Some(session), ..Submission::new(vec![lock], Box::new(rows.clone())) };
    db.submit(batch).unwrap().wait().unwrap().result.unwrap();
    assert_eq!(rows.outcomes().remove(0).rows, [[Value::Int(1)]]);
    assert_eq!(query(&db, "select count(*) from t").unwrap(), [[Value::Int(0)]]);
    assert_eq!(db.schema().epoch, master.database("one").unwrap().schema().epoch);
    drop(db);
    standby.close().unwrap();
    master.close().unwrap();
}

#[test]
fn a_base_copy_is_no_master_before_it_is_whole() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let promoted = Engine::open(b.path(), Options { epoch_min: Epoch(1), ..options() }).err().unwrap();
    assert!(matches!(promoted, OpenError::NotWhole { .. }), "{promoted}");
    let standby = open_standby(b.path(), &options());
    let early = standby.database("one").err().unwrap();
    assert_eq!(early.state(), SqlState::CANNOT_CONNECT_NOW, "{early}");
    catch_up(&master, &standby);
    assert_same(&master, &standby, "caught up");
    drop(standby);
    master.close().unwrap();
}

/// A checkpoint's record in a later segment moves redo past the place that a dump names. That place stays in the trail.
#[test]
fn the_place_that_a_dump_shows_stays_in_the_trail() {
    let a = tempfile::tempdir().unwrap();
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    let trail = master.trail();
    let began = Instant::now();
    // Segments end, as for an archive, with nothing in them but what checkpoints write.
    let first = trail.segment_of(trail.durable());
    let mut last = first;
    while last < first + 5 {
        assert!(began.elapsed() < WAIT_MAX, "segment {last} does not end");
        trail.prove_soon();
        trail.end_segment();
        last = trail.segment_of(trail.durable());
        ["one", "two"].iter().for_each(|name| master.database(name).unwrap().checkpoint().unwrap());
    }
    let copy = master.dump_copy().unwrap();
    let shown = holdfast_types::Lsn(copy.plan().shown);
    assert!(trail.segment_of(shown) <= first, "nothing was committed since");
    trail.read_shipped(shown).unwrap().next().unwrap().unwrap();
    drop(copy);
    master.close().unwrap();
}

/// The clock in a dump of a standby is that of what it has applied, not that of its start.
#[test]
fn a_standby_knows_the_time_of_its_last_commit() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    let clock = |engine: &Engine| engine.dump_copy().unwrap().plan().clock;
    let before = clock(&master);
    assert!(before > 0);
    assert_eq!(clock(&standby), before);
    let db = master.database("one").unwrap();
    let statement = step(&db, "insert into t values(7, 7, 'x')").unwrap();
    db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
    drop(db);
    catch_up(&master, &standby);
    assert!(clock(&standby) > before);
    assert_eq!(clock(&standby), clock(&master));
    standby.close().unwrap();
    master.close().unwrap();
}

/// A master that has no commit in its trail knows the clock of the last one from its directory.
#[test]
fn the_clock_continues_behind_commits_that_were_recycled() {
    let a = tempfile::tempdir().unwrap();
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    let clock = |engine: &Engine| engine.dump_copy().unwrap().plan().clock;
    let before = clock(&master);
    master.close().unwrap();
    drop(master);
    // The clock of the machine is set back by a day.
    let behind = Arc::new(holdfast_seams::testing::StepClock::starting_at((before >> 16) - 86_400_000));
    let options = || Options { clock: behind.clone(), ..options() };
    let master = Engine::open(a.path(), options()).unwrap();
    let kept = std::fs::read_to_string(a.path().join("clock")).unwrap();
    assert_eq!(kept, format!("format = 1\nclock = {before}\n"));
    assert_eq!(clock(&master), before);
    let db = master.database("one").unwrap();
    let statement = step(&db, "insert into t values(7, 7, 'x')").unwrap();
    db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
    assert!(clock(&master) > before, "it does not go back");
    drop(db);
    master.close().unwrap();
    // A file that says more than the trail counts.
    std::fs::write(a.path().join("clock"), format!("format = 1\nclock = {}\n", before + (9 << 40))).unwrap();
    let master = Engine::open(a.path(), options()).unwrap();
    assert_eq!(clock(&master), before + (9 << 40));
    drop(master);
    std::fs::write(a.path().join("clock"), "").unwrap();
    let refused = Engine::open(a.path(), options()).err().unwrap().to_string();
    assert!(refused.contains("clock"), "{refused}");
}

#[test]
fn a_base_copy_checks_what_arrives() {
    let [a, b, c] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    let copying = master.base_copy().unwrap();
    let plan = copying.plan().clone();
    let mut wrong = plan.clone();
    wrong.manifest = wrong.manifest.replace("volumes/000001", "../000001");
    assert!(matches!(BaseReceiver::begin(options().disk, c.path(), wrong), Err(CopyError::Plan(_))));
    // A third one that has the number, or the name, of the first.
    for (id, name) in [(1, "three"), (3, "one")] {
        let mut double = plan.clone();
        double.volumes.push(VolumePlan { volume: id, ..plan.volumes[0] });
        let file = format!("volumes/{id:06}-{name}.db");
        let third = format!("[[database]]\nid = {id}\nname = \"{name}\"\ndialect = \"sqlite\"\nfile = \"{file}\"\n");
        double.manifest = format!("{}\n{third}", plan.manifest.replace("next_id = 3", "next_id = 4"));
        let refused = BaseReceiver::begin(options().disk, c.path(), double).err().unwrap();
        assert!(refused.to_string().contains("same name or number"), "{refused}");
    }
    let mut few = plan.clone();
    few.volumes.pop();
    assert!(matches!(BaseReceiver::begin(options().disk, c.path(), few), Err(CopyError::Plan(_))));
    let mut receiver = BaseReceiver::begin(options().disk, b.path(), plan.clone()).unwrap();
    let mut bytes: PageBytes = [0; 4096];
    copying.page(0, 1, &mut bytes).unwrap();
    receiver.page(&bytes).unwrap();
    assert!(matches!(receiver.page(&bytes), Err(CopyError::Page { page: 2, .. })), "page 1 in the place of page 2");
    assert!(copying.page(0, 0, &mut bytes).is_err() && copying.page(9, 1, &mut bytes).is_err());
    let receiver = BaseReceiver::begin(options().disk, b.path(), plan).unwrap();
    assert!(matches!(receiver.finish(), Err(CopyError::Missing { .. })));
    let there = BaseReceiver::begin(options().disk, a.path(), copying.plan().clone());
    assert!(matches!(there, Err(CopyError::NotEmpty { .. })));
    drop(copying);
    master.close().unwrap();
}

#[test]
fn a_base_copy_interrupted_anywhere_is_taken_again_or_is_one() {
    let a = tempfile::tempdir().unwrap();
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    let (mut begun_again, mut interrupted_late) = (0, 0);
    for operation in 1.. {
        let b = tempfile::tempdir().unwrap();
        std::fs::create_dir(b.path().join("scratch")).unwrap();
        let disk = FaultDisk::new(operation);
        let standbys = Options { disk: Arc::new(disk.clone()), ..options() };
        disk.cut_power_after(operation);
        let copied = try_copy(&master, standbys.disk.clone(), b.path());
        if !disk.power_is_off() {
            copied.unwrap();
            break;
        }
        disk.restore_power();
        if !BaseReceiver::is_in_use(&disk, b.path()).unwrap() {
            begun_again += 1;
            let list = disk.metadata(&b.path().join("databases.toml")).unwrap();
            interrupted_late += u32::from(list.is_some());
            copy(&master, standbys.disk.clone(), b.path());
        }
        assert!(BaseReceiver::is_in_use(&disk, b.path()).unwrap());
        let standby = open_standby(b.path(), &standbys);
        catch_up(&master, &standby);
        assert_same(&master, &standby, &format!("cut at operation {operation}"));
    }
    assert!(begun_again > 20 && interrupted_late > 3, "{begun_again}, {interrupted_late}");
    assert!(BaseReceiver::is_in_use(&*options().disk, a.path()).unwrap());
    master.close().unwrap();
    drop(master);
    // A master whose trail is away, as when its disk is not mounted.
    std::fs::remove_dir_all(a.path().join("trail")).unwrap();
    assert!(BaseReceiver::is_in_use(&*options().disk, a.path()).unwrap());
}

#[test]
fn the_trail_is_kept_for_a_standby_and_no_longer_than_agreed() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let keep = Options { standby_keep_bytes_max: 8 << 20, ..options() };
    let master = Engine::open(a.path(), keep.clone()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    drop(standby);
    let [db, other] = ["one", "two"].map(|name| master.database(name).unwrap());
    // The redo of a database that nobody has checkpointed holds the trail as well.
    other.checkpoint().unwrap();
    let write = |times: usize| {
        for _ in 0..times {
            let statement = step(&db, "insert into h values(zeroblob(50000))").unwrap();
            let sent = db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap();
            sent.wait().unwrap().result.unwrap();
            db.checkpoint().unwrap();
        }
    };
    write(60);
    let has = master.slots().remove(0).lsn;
    assert!(has >= master.trail().first(), "recycled what a standby needs");
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    assert_same(&master, &standby, "after 3 MB away");
    let tip = standby.trail().tip().0;
    drop(standby);
    write(240);
    assert!(master.slots().is_empty(), "more than it is kept for");
    // Segments are recycled in the background, as new ones are needed.
    let until = Instant::now() + WAIT_MAX;
    while master.trail().first() <= tip && Instant::now() < until {
        write(5);
    }
    assert!(master.trail().first() > tip, "kept for a standby that was given up");
    let standby = open_standby(b.path(), &options());
    assert_eq!(standby.trail().tip().0, tip);
    let gone = master.trail().tap(tip).err().map(|e| e.to_string());
    assert!(gone.is_some_and(|e| e.contains("no longer in the trail")));
    drop(standby);
    drop((db, other));
    master.close().unwrap();
}

#[test]
fn a_master_becomes_a_standby_of_the_one_that_was_promoted() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    master.close().unwrap();
    // What its stop has written is part of the common history.
    assert!(hand_over(&master, &standby, &AtomicBool::new(true)));
    let epoch = master.trail().epoch();
    drop(master);
    standby.close().unwrap();
    drop(standby);
    let promoted = Engine::open(b.path(), Options { epoch_min: epoch, ..options() }).unwrap();
    let old = open_standby(a.path(), &options());
    let db = promoted.database("one").unwrap();
    let statement = step(&db, "insert into h values('new master')").unwrap();
    db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
    catch_up(&promoted, &old);
    assert_same(&promoted, &old, "the roles are exchanged");
    drop(db);
    old.close().unwrap();
    drop(old);
    super::pair::assert_sound(a.path(), &options());
    promoted.close().unwrap();
}

#[test]
fn what_may_not_be_durable_at_the_master_is_not_applied() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let mut standby = open_standby(b.path(), &options());
    // The record of a checkpoint that comes by itself would be taken for the insert.
    ["one", "two"].iter().for_each(|name| master.database(name).unwrap().checkpoint().unwrap());
    catch_up(&master, &standby);
    let db = master.database("one").unwrap();
    let from = standby.trail().tip().0;
    let mut tap = master.trail().tap(from).unwrap();
    let statement = step(&db, "insert into h values(1)").unwrap();
    db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
    // The boxcar, without the proof behind it; and nothing is said about what is durable.
    let mut last = tap.next().unwrap().unwrap();
    while last.body().is_empty() {
        standby.receive(std::slice::from_ref(&last)).unwrap();
        last = tap.next().unwrap().unwrap();
    }
    standby.receive(std::slice::from_ref(&last)).unwrap();
    let seen = |standby: &Engine| query(&standby.database("one").unwrap(), "select count(*) from h").unwrap();
    let pause = std::time::Duration::from_millis(50);
    assert!(!standby.wait_applied(last.end, pause), "applied before it is known to be durable at the master");
    assert_eq!(seen(&standby), [[Value::Int(0)]]);
    // Nor after a restart, which finds it in its own trail.
    drop(standby);
    standby = open_standby(b.path(), &options());
    assert!(standby.wait_applied(last.lsn, WAIT_MAX));
    assert!(!standby.wait_applied(last.end, pause), "applied before it is known to be durable at the master");
    assert_eq!(seen(&standby), [[Value::Int(0)]]);
    standby.allow_apply(last.end);
    assert!(standby.wait_applied(last.end, WAIT_MAX));
    assert_eq!(seen(&standby), [[Value::Int(1)]]);
    drop((db, standby));
    master.close().unwrap();
}

#[test]
fn a_base_copy_begins_before_what_waits_for_its_level() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    let db = master.database("one").unwrap();
    // In the trail, and in no snapshot that is copied.
    master.hold("no lease");
    let statement = step(&db, "insert into h values('held')").unwrap();
    let held = db.submit(Submission::new(vec![statement], Box::new(Collect::new()))).unwrap();
    while master.gate().batches == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    copy(&master, options().disk, b.path());
    master.release();
    held.wait().unwrap().result.unwrap();
    // Twice: the second start begins where the copy says, as nothing was checkpointed.
    for _ in 0..2 {
        let standby = open_standby(b.path(), &options());
        catch_up(&master, &standby);
        assert_same(&master, &standby, "with what was held");
        drop(standby);
    }
    drop(db);
    master.close().unwrap();
}
