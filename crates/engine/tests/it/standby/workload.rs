//! Random work of all kinds on a master, with its standby behind it.

use super::pair::{assert_same, assert_sound, catch_up, copy, open_standby, with_standby};
use crate::support::client::{query, send, step};
use crate::support::model::seeds;
use crate::support::report_of;
use crate::support::workload::{SCHEMA, Transaction, transaction};
use holdfast_engine::{
    Collect, Database, Engine, Options, ParameterChange, Step, Submission, WriteOptions, WriteTxn,
    multi_database_commit,
};
use holdfast_seams::testing::Seeded;
use holdfast_types::access::predefined::{BOOTSTRAP_OID, FIRST_ROLE_OID, MONITOR_OID};
use holdfast_types::access::{DatabaseAccess, Membership, Role, RoleChanges, RoleParameter};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, SessionContext, Value, VolumeId};

const SEEDS: u64 = 4;
const ROUNDS: u64 = 150;
const NAMES: [&str; 2] = ["one", "two"];

pub fn options() -> Options {
    Options {
        segment_bytes: 256 << 10,
        memory_bytes_max: 64 << 12,
        // Nearly everything that a branch commits.
        prewrite_bytes_min: 200,
        side_copy_bytes_min: 200,
        initial_databases: NAMES.iter().map(|n| ((*n).to_owned(), Dialect::Sqlite)).collect(),
        ..Options::default()
    }
}

fn at_once(db: &Database, sql: &str) {
    db.submit(Submission::new(vec![step(db, sql).unwrap()], Box::new(Collect::new())))
        .unwrap()
        .wait()
        .unwrap()
        .result
        .unwrap();
}

/// The tables of the workload, and those of what goes over several databases.
pub fn begin(master: &Engine) {
    for name in NAMES {
        let db = master.database(name).unwrap();
        for sql in SCHEMA {
            send(&db, &Transaction::Message(vec![sql.to_owned()])).answer().unwrap().unwrap();
        }
        at_once(&db, "create table both(id integer primary key, v)");
    }
}

fn changing(db: &Database, sql: &str) -> Option<WriteTxn> {
    let mut txn = db.begin_write_blocking(WriteOptions::default()).ok()?;
    let stmt = db.prepare(sql, report_of(sql)).unwrap();
    txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(Collect::new())).ok()?.result.ok()?;
    Some(txn)
}

fn prepare(db: &Database, round: u64) {
    let txn = changing(db, &format!("insert into both values({}, 'prepared')", 100_000 + round)).unwrap();
    txn.prepare_transaction(&format!("g{round}"), "tom").unwrap().wait().unwrap().result.unwrap();
}

/// Something that is no transaction of one database.
fn other(master: &Engine, r: &mut Seeded, round: u64) {
    let [one, two] = NAMES.map(|name| master.database(name).unwrap());
    match r.below(8) {
        0 => {
            let sql = format!("insert into both values({round}, {})", r.below(100));
            let parts = [&one, &two].into_iter().filter_map(|db| changing(db, &sql)).collect::<Vec<_>>();
            if parts.len() == 2 {
                multi_database_commit(parts, Box::new(Collect::new())).unwrap().wait().unwrap().result.unwrap();
            }
        }
        1 => {
            let made = master.create_database("third", Dialect::Sqlite, Level::Local);
            let third = master.database("third").unwrap();
            at_once(&third, "create table if not exists x(id integer primary key, v)");
            at_once(&third, &format!("insert into x(v) values({round})"));
            drop(made);
        }
        2 => drop(master.drop_database("third", Level::Local)),
        3 => one.vacuum().unwrap(),
        4 => {
            // Not for long: who wants a database to itself waits for its end.
            prepare(&two, round);
            let ended = two.finish_prepared(&format!("g{round}"), r.one_in(2), Level::Local).unwrap();
            ended.wait().unwrap().result.unwrap();
        }
        5 => one.checkpoint().unwrap(),
        6 => change_roles(master, r, round),
        _ => {
            let set = ParameterChange::Set { name: "lock_timeout".to_owned(), value: format!("{round}s") };
            let change = if r.one_in(4) { ParameterChange::ResetAll } else { set };
            master.change_parameters("one", change, Level::Local).unwrap();
        }
    }
}

/// A new role, the end of one, or another name, password and membership for one; and the owner of a database.
fn change_roles(master: &Engine, r: &mut Seeded, round: u64) {
    let roles = master.roles();
    let own: Vec<_> = roles.list().into_iter().filter(|role| role.oid >= FIRST_ROLE_OID).collect();
    let mut changes = RoleChanges::default();
    let access = |owner| DatabaseAccess { owner, connection_limit: round as i32, acl: Some(Vec::new()) };
    let one = master.databases().into_iter().find(|d| d.name == "one").unwrap().oid;
    let owned = roles.database(one).owner;
    match own.last().filter(|_| !r.one_in(3)) {
        None => {
            let oid = master.reserve_role_oid().unwrap();
            let parameter = RoleParameter { database: VolumeId(0), name: "a".into(), value: format!("{round}") };
            let made = Role { parameters: vec![parameter], ..Role::new(oid, &format!("role{round}")) };
            changes.set_role(oid, None, Some(made));
        }
        Some(last) if r.one_in(3) => {
            changes.set_role(last.oid, Some(Role::clone(last)), None);
            if owned == last.oid {
                changes.set_database(one, roles.database(one), access(BOOTSTRAP_OID));
            }
        }
        Some(last) => {
            let membership = Membership { role: MONITOR_OID, grantor: BOOTSTRAP_OID, admin: r.one_in(2) };
            let after = Role {
                name: format!("renamed{round}"),
                password: Some(format!("SCRAM-SHA-256${round}")),
                member_of: vec![membership],
                ..Role::clone(last)
            };
            changes.set_role(last.oid, Some(Role::clone(last)), Some(after));
            changes.set_database(one, roles.database(one), access(last.oid));
        }
    }
    master.change_roles(changes, Level::Local).unwrap();
}

/// Work of all kinds, one piece after the other.
pub fn work(master: &Engine, r: &mut Seeded, rounds: std::ops::Range<u64>) {
    for round in rounds {
        let db = master.database(NAMES[r.below(2) as usize]).unwrap();
        if r.one_in(8) {
            other(master, r, round);
        } else {
            drop(send(&db, &transaction(r)).answer().expect("answered"));
        }
    }
}

/// Both databases at once, without what a transaction of the other could wait for.
fn work_beside(master: &Engine, seed: u64, rounds: u64) {
    std::thread::scope(|scope| {
        for (i, name) in NAMES.into_iter().enumerate() {
            scope.spawn(move || {
                let mut r = Seeded::new(seed << 8 | i as u64);
                let db = master.database(name).unwrap();
                for _ in 0..rounds {
                    drop(send(&db, &transaction(&mut r)).answer().expect("answered"));
                }
            });
        }
    });
}

#[test]
fn a_standby_is_its_master_again_and_takes_over() {
    for seed in seeds(SEEDS) {
        run(seed);
    }
}

fn run(seed: u64) {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut r = Seeded::new(seed);
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    work(&master, &mut r, 0..ROUNDS);
    // The copy is taken under load.
    std::thread::scope(|scope| {
        let load = scope.spawn(|| work_beside(&master, seed, 60));
        copy(&master, options().disk, b.path());
        load.join().unwrap();
    });
    let mut standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    assert_same(&master, &standby, &format!("seed {seed}, after the copy"));
    for piece in 1..4 {
        with_standby(&master, &standby, || work(&master, &mut r, piece * 1000..piece * 1000 + ROUNDS));
        catch_up(&master, &standby);
        assert_same(&master, &standby, &format!("seed {seed}, piece {piece}"));
        match piece {
            1 => standby.close().unwrap(),
            2 => standby.database("one").unwrap().checkpoint().unwrap(),
            _ => continue,
        }
        drop(standby);
        if piece == 1 {
            assert_sound(b.path(), &options());
        }
        standby = open_standby(b.path(), &options());
    }
    with_standby(&master, &standby, || work_beside(&master, seed + 1000, 40));
    for round in [20_000, 20_001] {
        prepare(&master.database("two").unwrap(), round);
    }
    catch_up(&master, &standby);
    let prepared = master.prepared();
    assert_eq!(prepared.len(), 2);
    promote(&master, standby, a.path(), b.path(), seed, &prepared);
}

/// The standby's directory as a master's, compared with the old master; then it works on.
fn promote(
    master: &Engine,
    standby: Engine,
    a: &std::path::Path,
    b: &std::path::Path,
    seed: u64,
    prepared: &[holdfast_engine::PreparedInfo],
) {
    let epoch = master.trail().epoch();
    standby.close().unwrap();
    drop(standby);
    let refused = Engine::open(b, options()).err().expect("it is a standby's").to_string();
    assert!(refused.contains("promote"), "{refused}");
    let promoted = Engine::open(b, Options { epoch_min: epoch, ..options() }).unwrap();
    assert!(promoted.trail().epoch() > epoch);
    assert_same(master, &promoted, &format!("seed {seed}, promoted"));
    assert_eq!(promoted.prepared(), prepared, "seed {seed}: prepared transactions");
    let two = promoted.database("two").unwrap();
    for info in prepared {
        let ended = two.finish_prepared(&info.gid, true, Level::Local).unwrap().wait().unwrap();
        ended.result.unwrap();
    }
    for name in NAMES {
        let db = promoted.database(name).unwrap();
        assert_eq!(query(&db, "pragma integrity_check").unwrap(), [[Value::Text("ok".into())]], "seed {seed}");
    }
    work(&promoted, &mut Seeded::new(seed + 77), 9000..9050);
    let dumps = |e: &Engine| NAMES.map(|name| super::pair::dump_of(&e.database(name).unwrap()));
    let before = dumps(&promoted);
    drop((two, promoted));
    assert_sound(b, &options());
    // Its own checkpoints and those of its time as a standby, together.
    let again = Engine::open(b, options()).unwrap();
    assert_eq!(dumps(&again), before, "seed {seed}");
    again.close().unwrap();
    drop(again);
    assert_sound(b, &options());
    master.close().unwrap();
    assert_sound(a, &options());
}

#[test]
fn a_long_reader_does_not_stop_applying() {
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    copy(&master, options().disk, b.path());
    let standby = open_standby(b.path(), &options());
    catch_up(&master, &standby);
    let db = standby.database("one").unwrap();
    let count = step(&db, "select count(*) from h").unwrap();
    let read = |reader: &mut holdfast_engine::Reader| {
        let rows = Collect::new();
        reader.run(&SessionContext::NONE, 0, &count, &mut rows.clone()).unwrap();
        rows.outcomes().remove(0).rows.remove(0).remove(0)
    };
    let mut long = db.reader().unwrap();
    long.begin().unwrap();
    assert_eq!(read(&mut long), Value::Int(0));
    let source = master.database("one").unwrap();
    for i in 0..50 {
        at_once(&source, &format!("insert into h values({i})"));
    }
    at_once(&source, "create table later(x)");
    // Catching up waits until all of it is applied, beside the reader.
    catch_up(&master, &standby);
    assert_eq!(query(&db, "select count(*) from h").unwrap(), [[Value::Int(50)]]);
    assert_eq!(read(&mut long), Value::Int(0), "its snapshot stays");
    db.checkpoint().unwrap();
    assert_eq!(read(&mut long), Value::Int(0), "its snapshot stays");
    drop(long);
    drop(db);
    standby.close().unwrap();
    drop(standby);
    let epoch_min = master.trail().epoch();
    let promoted = Engine::open(b.path(), Options { epoch_min, standby: false, ..options() }).unwrap();
    assert_same(&master, &promoted, "promoted");
    promoted.close().unwrap();
    drop(source);
    master.close().unwrap();
}
