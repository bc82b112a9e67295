//! Everything at once until enough has happened: writers, an interactive writer, readers of short and long snapshots, checkpoints,
//! with so little memory that most pages are in scratch or in the file. Money is moved between accounts, so the sum is
//! the same in every snapshot, and a snapshot shows the same rows for as long as it is held.
//!
//! `HOLDFAST_STRESS_S=n` sets for how many seconds at least.

use crate::support::client::step;
use holdfast_engine::{Collect, Database, Engine, Options, Reader, Step, Submission, WriteOptions};
use holdfast_seams::testing::{Patience, Seeded};
use holdfast_types::schema::Dialect;
use holdfast_types::{SessionContext, SqlState, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ACCOUNTS: i64 = 3000;
const SUM: &str = "select sum(balance), count(*), sum(length(pad)) from acc";

#[derive(Debug, Default)]
struct Seen {
    moved: AtomicU64,
    snapshots: AtomicU64,
    expired: AtomicU64,
    checkpoints: AtomicU64,
    most_scratch_bytes: AtomicU64,
}

impl Seen {
    /// Some seconds' worth on a quick machine.
    fn is_enough(&self) -> bool {
        let each = [&self.moved, &self.snapshots, &self.checkpoints, &self.most_scratch_bytes];
        each.into_iter().zip([5_000, 700, 100, 1]).all(|(n, enough)| n.load(Ordering::Relaxed) >= enough)
    }
}

/// Ends the threads.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(db: &Database, sql: &str) {
    let steps = vec![step(db, sql).unwrap()];
    db.submit(Submission::new(steps, Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
}

#[test]
fn sums_are_never_wrong() {
    let asked_s = std::env::var("HOLDFAST_STRESS_S").ok().and_then(|s| s.parse().ok());
    let at_least = Duration::from_secs(asked_s.unwrap_or(0));
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        initial_databases: vec![("one".to_owned(), Dialect::Sqlite)],
        segment_bytes: 4 << 20,
        memory_bytes_max: 256 << 10,
        scratch_bytes_max: 1 << 20,
        side_copy_bytes_min: 64,
        ..Options::default()
    };
    let e = Engine::open(dir.path(), options.clone()).unwrap();
    let db = e.database("one").unwrap();
    run(&db, "create table acc(id integer primary key, balance integer, pad text)");
    run(&db, "create index by_balance on acc(balance)");
    let fill = format!(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < {ACCOUNTS}) \
         insert into acc select i, 100, hex(zeroblob(200)) from n"
    );
    run(&db, &fill);
    let (stop, seen) = (AtomicBool::new(false), Seen::default());
    std::thread::scope(|scope| {
        let (db, stop, seen) = (&db, &stop, &seen);
        let on = move || !stop.load(Ordering::Relaxed);
        for writer in 0..3 {
            scope.spawn(move || write(db, writer, on, seen));
        }
        scope.spawn(move || write_interactively(db, on));
        for reader in 0..4 {
            scope.spawn(move || read(db, reader, Duration::ZERO, on, seen));
        }
        for reader in 4..6 {
            scope.spawn(move || read(db, reader, Duration::from_millis(400), on, seen));
        }
        scope.spawn(move || {
            while on() {
                db.checkpoint().unwrap();
                seen.checkpoints.fetch_add(1, Ordering::Relaxed);
                seen.most_scratch_bytes.fetch_max(db.page_stats().scratch_bytes, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        // However the wait ends: the threads are waited for.
        let _ends = Ends(stop);
        let (begun, mut patience) = (Instant::now(), Patience::new());
        while !seen.is_enough() || begun.elapsed() < at_least {
            if begun.elapsed() >= at_least {
                patience.sees(format!("{seen:?}"));
                patience.look("enough has happened");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    println!("{seen:?}");
    assert_eq!(check(&mut db.reader().unwrap(), &db), Ok(true));
    e.close().unwrap();
    drop((db, e));
    let e = Engine::open(dir.path(), options).unwrap();
    let db = e.database("one").unwrap();
    assert_eq!(check(&mut db.reader().unwrap(), &db), Ok(true));
    e.close().unwrap();
}

fn rows(reader: &mut Reader, statement: &Step) -> Result<Vec<Vec<Value>>, SqlState> {
    let rows = Collect::new();
    reader.run(&SessionContext::NONE, 0, statement, &mut rows.clone()).map_err(|e| e.state())?;
    Ok(rows.outcomes().remove(0).rows)
}

/// Whether the sum is right, through the table and through the index.
fn check(reader: &mut Reader, db: &Database) -> Result<bool, SqlState> {
    let sums = rows(reader, &step(db, SUM).map_err(|e| e.state())?)?;
    let by_index =
        rows(reader, &step(db, "select sum(balance) from acc indexed by by_balance").map_err(|e| e.state())?)?;
    Ok(sums[0][..2] == [Value::Int(100 * ACCOUNTS), Value::Int(ACCOUNTS)] && by_index[0][0] == sums[0][0])
}

fn transfer(random: &mut Seeded) -> [(i64, i64); 2] {
    let amount = random.below(100) as i64;
    let mut account = || 1 + random.below(ACCOUNTS as u64) as i64;
    [(account(), -amount), (account(), amount)]
}

fn write(db: &Database, writer: u64, on: impl Fn() -> bool, seen: &Seen) {
    let mut random = Seeded::new(writer);
    let change =
        step(db, "update acc set balance = balance + ?1, pad = hex(zeroblob(200 + ?1)) where id = ?2").unwrap();
    while on() {
        let tickets: Vec<_> = (0..8)
            .map(|_| {
                let steps = transfer(&mut random)
                    .map(|(id, amount)| Step { params: vec![Value::Int(amount), Value::Int(id)], ..change.clone() });
                db.submit(Submission::new(steps.to_vec(), Box::new(Collect::new()))).unwrap()
            })
            .collect();
        for ticket in tickets {
            ticket.wait().unwrap().result.unwrap();
            seen.moved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Half of its transactions are backed out between the two changes.
fn write_interactively(db: &Database, on: impl Fn() -> bool) {
    let mut random = Seeded::new(99);
    let change = step(db, "update acc set balance = balance + ?1 where id = ?2").unwrap();
    while on() {
        let mut txn = db.begin_write_blocking(WriteOptions::default()).unwrap();
        for (id, amount) in transfer(&mut random) {
            let step = Step { params: vec![Value::Int(amount), Value::Int(id)], ..change.clone() };
            txn.execute_blocking(step, Box::new(Collect::new())).unwrap().result.unwrap();
            if random.one_in(4) {
                break;
            }
        }
        if random.one_in(2) {
            drop(txn);
            continue;
        }
        // Put right what was left out: everybody has 100 on average, whatever happened.
        let sql = format!(
            "update acc set balance = balance + 100 * {ACCOUNTS} - (select sum(balance) from acc) where id = 1"
        );
        txn.execute_blocking(step(db, &sql).unwrap(), Box::new(Collect::new())).unwrap().result.unwrap();
        txn.commit_blocking(Box::new(Collect::new())).unwrap().result.unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Holds a snapshot, reads it again and again, and compares.
fn read(db: &Database, reader: u64, hold: Duration, on: impl Fn() -> bool, seen: &Seen) {
    let mut random = Seeded::new(1000 + reader);
    let all = step(db, "select id, balance from acc order by id").unwrap();
    let one = Arc::new(step(db, "select balance from acc where id = ?").unwrap());
    let mut last = 0;
    while on() {
        let mut reader = db.reader().unwrap();
        reader.begin().unwrap();
        let outcome = (|| -> Result<(), SqlState> {
            let first = rows(&mut reader, &all)?;
            assert!(check(&mut reader, db)?, "a wrong sum in snapshot {}", reader.snapshot());
            assert!(reader.snapshot() >= last, "older than what was seen before");
            last = reader.snapshot();
            std::thread::sleep(hold);
            for _ in 0..20 {
                let id = 1 + random.below(ACCOUNTS as u64) as i64;
                let found = rows(&mut reader, &Step { params: vec![Value::Int(id)], ..Step::clone(&one) })?;
                assert_eq!(found[0][0], first[id as usize - 1][1], "account {id} in snapshot {last}");
            }
            assert_eq!(rows(&mut reader, &all)?, first, "snapshot {last} changed");
            Ok(())
        })();
        match outcome {
            Ok(()) => seen.snapshots.fetch_add(1, Ordering::Relaxed),
            Err(state) => {
                assert_eq!(state, SqlState::SNAPSHOT_TOO_OLD);
                seen.expired.fetch_add(1, Ordering::Relaxed)
            }
        };
    }
}
