//! Transactions over several databases: all of it or nothing, whatever fails and whenever the power does.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it together::power` repeats one seed.

use crate::support::report_of;
use holdfast_engine::{
    Collect, Database, Engine, Options, Step, Submission, WholeTransaction, WriteIsolation, WriteOptions, WriteTxn,
    multi_database_commit,
};
use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlResult, SqlState, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const NAMES: [&str; 3] = ["one", "two", "three"];
const SEEDS: u64 = 40;
const CUTS_PER_SEED: u64 = 4;

fn options() -> Options {
    Options {
        initial_databases: NAMES.iter().map(|n| ((*n).to_owned(), Dialect::Sqlite)).collect(),
        ..Options::default()
    }
}

fn at_once(db: &Database, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
    let stmt = db.prepare(sql, report_of(sql))?;
    let rows = Collect::new();
    db.submit(Submission::new(vec![Step { stmt, params: vec![] }], Box::new(rows.clone())))?.wait().unwrap().result?;
    Ok(rows.outcomes().pop().unwrap_or_default().rows)
}

fn begin(db: &Database, isolation: WriteIsolation, part_of: Option<WholeTransaction>) -> SqlResult<WriteTxn> {
    db.begin_write_blocking(WriteOptions { isolation, part_of, ..WriteOptions::default() })
}

fn run(txn: &mut WriteTxn, sql: &str) -> SqlResult<()> {
    let stmt = txn.database().prepare(sql, report_of(sql))?;
    txn.execute_blocking(Step { stmt, params: vec![] }, Box::new(Collect::new()))?.result
}

fn commit(txns: Vec<WriteTxn>) -> Option<SqlResult<()>> {
    match multi_database_commit(txns, Box::new(Collect::new())) {
        Ok(ticket) => ticket.wait().map(|done| done.result),
        Err(e) => Some(Err(e)),
    }
}

fn ints(db: &Database, sql: &str) -> Vec<i64> {
    let int = |row: &Vec<Value>| match row[0] {
        Value::Int(n) => n,
        ref other => panic!("{other:?}"),
    };
    at_once(db, sql).unwrap().iter().map(int).collect()
}

const RC: WriteIsolation = WriteIsolation::ReadCommitted;

/// Three databases with ten accounts of 100 each.
fn bank(dir: &Path, options: Options) -> (Engine, Vec<Database>) {
    let engine = Engine::open(dir, options).unwrap();
    let dbs: Vec<Database> = NAMES.iter().map(|n| engine.database(n).unwrap()).collect();
    for db in &dbs {
        at_once(db, "create table if not exists a(id integer primary key, v integer check(v >= 0))").unwrap();
        at_once(db, "create table if not exists log(id integer primary key, v integer)").unwrap();
        at_once(
            db,
            "with recursive n(i) as (values(1) union all select i + 1 from n where i < 10)
                     insert or ignore into a select i, 100 from n",
        )
        .unwrap();
    }
    (engine, dbs)
}

/// Moves `v` from an account of one database to the same of another, and notes it in both.
fn transfer(
    from: &Database,
    to: &Database,
    how: WriteIsolation,
    account: u64,
    v: i64,
    id: u64,
) -> Option<SqlResult<()>> {
    let begun = || {
        let mut a = begin(from, how, None)?;
        run(&mut a, &format!("update a set v = v - {v} where id = {account}"))?;
        run(&mut a, &format!("insert into log values({id}, {})", -v))?;
        let mut b = begin(to, RC, Some(a.whole()))?;
        run(&mut b, &format!("update a set v = v + {v} where id = {account}"))?;
        run(&mut b, &format!("insert into log values({id}, {v})"))?;
        Ok(vec![a, b])
    };
    match begun() {
        Ok(txns) => commit(txns),
        Err(e) => Some(Err(e)),
    }
}

fn total(dbs: &[Database]) -> i64 {
    dbs.iter().map(|db| ints(db, "select sum(v) from a")[0]).sum()
}

#[test]
fn it_is_committed_in_all_or_in_none() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, dbs) = bank(dir.path(), options());
    transfer(&dbs[0], &dbs[1], RC, 1, 30, 1).unwrap().unwrap();
    transfer(&dbs[1], &dbs[0], WriteIsolation::Exclusive, 2, 20, 2).unwrap().unwrap();
    assert_eq!(ints(&dbs[0], "select v from a where id < 3"), [70, 120]);
    assert_eq!(ints(&dbs[1], "select v from a where id < 3"), [130, 80]);
    // A foreign key that is checked at the end refuses one part, and with it the other.
    at_once(&dbs[2], "create table c(p references a(id) deferrable initially deferred)").unwrap();
    let mut first = begin(&dbs[0], RC, None).unwrap();
    run(&mut first, "update a set v = 0").unwrap();
    let mut last = begin(&dbs[2], RC, Some(first.whole())).unwrap();
    run(&mut last, "insert into c values(77)").unwrap();
    assert_eq!(commit(vec![last, first]).unwrap().unwrap_err().state(), SqlState::FOREIGN_KEY_VIOLATION);
    assert_eq!(total(&dbs), 3000);
    // Nobody is left holding anything.
    for db in &dbs {
        at_once(db, "update a set v = v + 1").unwrap();
        at_once(db, "create table free(x)").unwrap();
    }
    assert_eq!(total(&dbs), 3030);
    drop(dbs);
    engine.close().unwrap();
    let (engine, dbs) = bank(dir.path(), options());
    assert_eq!(total(&dbs), 3030);
    drop(dbs);
    engine.close().unwrap();
}

#[test]
fn a_cycle_over_two_databases_is_a_deadlock() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, dbs) = bank(dir.path(), options());
    let mut a1 = begin(&dbs[0], RC, None).unwrap();
    let mut b2 = begin(&dbs[1], RC, None).unwrap();
    run(&mut a1, "update a set v = v - 1 where id = 1").unwrap();
    run(&mut b2, "update a set v = v - 1 where id = 1").unwrap();
    let mut a2 = begin(&dbs[1], RC, Some(a1.whole())).unwrap();
    let mut b1 = begin(&dbs[0], RC, Some(b2.whole())).unwrap();
    let (sender, receiver) = channel();
    let waits = || engine.stats().into_iter().find(|(name, _)| *name == "lock_waits").unwrap().1;
    let before = waits();
    std::thread::spawn(move || {
        let ran = run(&mut a2, "update a set v = v + 1 where id = 1");
        sender.send((a2, ran)).unwrap();
    });
    while waits() == before {
        assert!(receiver.try_recv().is_err(), "it did not wait");
        std::thread::sleep(Duration::from_millis(1));
    }
    let refused = run(&mut b1, "update a set v = v + 1 where id = 1").unwrap_err();
    assert_eq!(refused.state(), SqlState("40P01"), "{refused}");
    drop((b1, b2));
    let (a2, ran) = receiver.recv().unwrap();
    ran.unwrap();
    commit(vec![a1, a2]).unwrap().unwrap();
    assert_eq!(total(&dbs), 3000);
}

#[test]
fn transfers_in_all_directions_end() {
    let dir = tempfile::tempdir().unwrap();
    let (_engine, dbs) = bank(dir.path(), options());
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for n in 0..6u64 {
            let (dbs, done) = (&dbs, &done);
            scope.spawn(move || {
                let mut random = Seeded::new(n + 1);
                for i in 0..60 {
                    let from = random.below(3) as usize;
                    let to = (from + 1 + random.below(2) as usize) % 3;
                    let how = if random.one_in(4) { WriteIsolation::Exclusive } else { RC };
                    match transfer(&dbs[from], &dbs[to], how, 1 + random.below(3), 1, n * 1000 + i).unwrap() {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(e) => assert!(["40P01", "40001", "23514"].contains(&e.state().0), "{e}"),
                    }
                }
            });
        }
    });
    assert!(done.into_inner() > 50);
    assert_eq!(total(&dbs), 3000);
}

#[test]
fn power_cuts_leave_no_transfer_half_done() {
    let chosen = std::env::var("HOLDFAST_SEED").ok().and_then(|n| n.parse::<u64>().ok());
    let (survived, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    for seed in chosen.map_or(0..SEEDS, |seed| seed..seed + 1) {
        cuts(seed, &survived, &lost);
    }
    if chosen.is_none() {
        let (survived, lost) = (survived.into_inner(), lost.into_inner());
        assert!(survived > 100 && lost > 10, "survived {survived}, lost {lost}");
    }
}

fn cuts(seed: u64, survived: &AtomicU64, lost: &AtomicU64) {
    let disk = FaultDisk::new(seed);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let options = || Options {
        disk: Arc::new(disk.clone()),
        segment_bytes: 256 << 10,
        on_failure: Arc::new(|_| {}),
        ..options()
    };
    let mut acknowledged: Vec<u64> = Vec::new();
    let mut sent = 0;
    let mut random = Seeded::new(seed);
    for cut in 0..=CUTS_PER_SEED {
        let (engine, dbs) = bank(dir.path(), options());
        let logged: Vec<Vec<i64>> = dbs.iter().map(|db| ints(db, "select id from log order by id")).collect();
        let mut all: Vec<i64> = logged.concat();
        all.sort_unstable();
        assert!(all.chunks(2).all(|pair| pair.len() == 2 && pair[0] == pair[1]), "seed {seed}: half done: {all:?}");
        let missing: Vec<_> = acknowledged.iter().filter(|id| !all.contains(&(**id as i64))).collect();
        assert!(missing.is_empty(), "seed {seed}: acknowledged and lost: {missing:?}");
        assert_eq!(total(&dbs), 3000, "seed {seed}");
        survived.fetch_add(all.len() as u64 / 2, Ordering::Relaxed);
        lost.fetch_add(sent - all.len() as u64 / 2, Ordering::Relaxed);
        sent = all.len() as u64 / 2;
        if cut < CUTS_PER_SEED {
            disk.cut_power_after(1 + random.below(120));
            let answers: Vec<Vec<(u64, bool)>> = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..2u64)
                    .map(|n| {
                        let (disk, dbs) = (&disk, &dbs);
                        let first = (cut * 2 + n) * 100_000;
                        scope.spawn(move || client(disk, dbs, first, Seeded::new(seed * 100 + first)))
                    })
                    .collect();
                clients.into_iter().map(|c| c.join().unwrap()).collect()
            });
            sent += answers.iter().map(|a| a.len() as u64).sum::<u64>();
            acknowledged.extend(answers.concat().iter().filter(|(_, answered)| *answered).map(|(id, _)| id));
        }
        drop((dbs, engine));
        disk.restore_power();
    }
}

/// Transfers until the power fails; each number with whether it was answered.
fn client(disk: &FaultDisk, dbs: &[Database], first: u64, mut random: Seeded) -> Vec<(u64, bool)> {
    let mut sent = Vec::new();
    while !disk.power_is_off() {
        let id = first + sent.len() as u64 + 1;
        let from = random.below(3) as usize;
        let to = (from + 1 + random.below(2) as usize) % 3;
        let moved = transfer(&dbs[from], &dbs[to], RC, 1 + random.below(10), 1, id);
        sent.push((id, matches!(moved, Some(Ok(())))));
        if random.one_in(6) {
            // One that the power interrupts is no checkpoint.
            drop(dbs[random.below(3) as usize].checkpoint());
        }
    }
    sent
}
