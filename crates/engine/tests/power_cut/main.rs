//! The whole engine on a simulated disk that loses power: trail, checkpoints and recovery together.
//!
//! Two threads, each with its own database, send random transactions, several under way at a time, take checkpoints, and
//! come and go with a third database, until the power fails at a random disk operation, perhaps again during recovery.
//! Then each database must hold exactly what plain SQLite holds after all acknowledged transactions and the first few of
//! those that were under way: nothing half done, nothing out of order.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test power_cut` repeats one seed, `HOLDFAST_SEEDS=n` runs more, from
//! `HOLDFAST_SEED_FIRST` on. The seed decides the work and the operation at which the power fails; threads decide how the work is interleaved.

#[path = "../support/mod.rs"]
#[allow(dead_code)] // Each test program uses a part of it.
mod support;

use holdfast_engine::{Database, Engine, Options};
use holdfast_seams::SyncMethod;
use holdfast_seams::testing::{FaultDisk, Fired, Seeded};
use holdfast_types::schema::Dialect;
use holdfast_types::{Level, Value};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use support::client::{Sent, query, send};
use support::plain::{Plain, dump};
use support::workload::{SCHEMA, Transaction, transaction};

const SEEDS: u64 = 120;
const CUTS_PER_SEED: u64 = 4;
const UNDER_WAY_MAX: u64 = 6;
const NAMES: [&str; 2] = ["one", "two"];

/// One database and what it must hold.
struct Model {
    plain: Plain,
    /// Sent, not answered when the power failed, in order.
    unanswered: Vec<Transaction>,
    random: Seeded,
}

#[derive(Default)]
struct Totals {
    acknowledged: AtomicU64,
    survived: AtomicU64,
    lost: AtomicU64,
    cuts_while_opening: AtomicU64,
    checkpoints: AtomicU64,
    refused: AtomicU64,
}

#[test]
fn power_cuts() {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("HOLDFAST_SEED_FIRST").unwrap_or(0);
            first..first + number("HOLDFAST_SEEDS").unwrap_or(SEEDS)
        }
    };
    let next = AtomicU64::new(seeds.start);
    let totals = Totals::default();
    let (fired, failed) = (Mutex::new(Fired::default()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    match std::panic::catch_unwind(|| run(seed, &totals)) {
                        Ok(happened) => fired.lock().unwrap().add(&happened),
                        Err(_) => failed.lock().unwrap().push(seed),
                    }
                }
            });
        }
    });
    let (fired, failed) = (fired.into_inner().unwrap(), failed.into_inner().unwrap());
    println!("seeds {seeds:?}: {} failed, {fired:?}", failed.len());
    assert!(failed.is_empty(), "repeat with HOLDFAST_SEED: {failed:?}");
    if seeds.end - seeds.start >= SEEDS {
        let Totals { acknowledged, survived, lost, cuts_while_opening, checkpoints, refused } = totals;
        let each = [acknowledged, survived, lost, cuts_while_opening, checkpoints, refused].map(AtomicU64::into_inner);
        println!("acknowledged, survived, lost, cuts while opening, checkpoints, refused: {each:?}");
        assert!(each.iter().all(|n| *n > 10), "something never happened: {each:?}");
    }
}

fn options(disk: &FaultDisk, method: SyncMethod) -> Options {
    Options {
        disk: Arc::new(disk.clone()),
        sync_method: method,
        segment_bytes: 256 << 10,
        memory_bytes_max: 64 << 12,
        initial_databases: NAMES.iter().map(|n| ((*n).to_owned(), Dialect::Sqlite)).collect(),
        on_failure: Arc::new(|_| {}),
        ..Options::default()
    }
}

fn run(seed: u64, totals: &Totals) -> Fired {
    let mut random = Seeded::new(seed);
    let disk = FaultDisk::new(seed);
    // Journals and spilled pages need no simulation: they do not outlive the process. They are real files.
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    let methods = [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync, SyncMethod::OpenSync, SyncMethod::Fsync];
    let method = methods[random.below(4) as usize];
    let mut models = NAMES.map(|_| None::<Model>);
    for cut in 0..=CUTS_PER_SEED {
        if cut > 0 && random.one_in(3) {
            disk.cut_power_after(1 + random.below(40));
        }
        let opened = open(&disk, dir.path(), method, seed, totals);
        disk.do_not_cut();
        let engine = opened.unwrap_or_else(|| open(&disk, dir.path(), method, seed, totals).expect("the power is on"));
        for (name, model) in NAMES.iter().zip(&mut models) {
            let db = engine.database(name).unwrap_or_else(|e| panic!("seed {seed}, database {name}: {e}"));
            match model {
                None => *model = Some(begin(&db, seed ^ u64::from(db.oid()) << 32)),
                Some(model) => check(&db, model, seed, totals),
            }
        }
        if cut < CUTS_PER_SEED {
            let changes_max = if random.one_in(4) { 30 } else { 300 };
            disk.cut_power_after(1 + random.below(changes_max));
            std::thread::scope(|scope| {
                for (name, model) in NAMES.iter().zip(models.iter_mut().flatten()) {
                    let (engine, disk) = (&engine, &disk);
                    scope.spawn(move || work(engine, name, model, disk, totals));
                }
            });
        }
        drop(engine);
        disk.restore_power();
    }
    disk.fired()
}

/// `None`: the power failed.
fn open(disk: &FaultDisk, dir: &Path, method: SyncMethod, seed: u64, totals: &Totals) -> Option<Engine> {
    match Engine::open(dir, options(disk, method)) {
        Ok(engine) if disk.power_is_off() => drop(engine),
        Ok(engine) => return Some(engine),
        Err(_) if disk.power_is_off() => {}
        Err(e) => panic!("seed {seed}: a power cut is no damage: {e}"),
    }
    totals.cuts_while_opening.fetch_add(1, Ordering::Relaxed);
    disk.restore_power();
    None
}

fn begin(db: &Database, seed: u64) -> Model {
    let mut model = Model { plain: Plain::new(), unanswered: Vec::new(), random: Seeded::new(seed) };
    for sql in SCHEMA {
        let made = Transaction::Message(vec![sql.to_owned()]);
        send(db, &made).answer().expect("answered").unwrap();
        assert!(model.plain.run(&made));
    }
    model
}

/// What is there must be what was acknowledged and a beginning of what was not answered.
fn check(db: &Database, model: &mut Model, seed: u64, totals: &Totals) {
    let name = db.name().to_owned();
    assert_eq!(query(db, "pragma integrity_check").unwrap(), [[Value::Text("ok".into())]], "seed {seed}, {name}");
    let there = dump(|sql| query(db, sql)).unwrap_or_else(|e| panic!("seed {seed}, {name}: {e}"));
    let mut survived = 0;
    let mut unanswered = std::mem::take(&mut model.unanswered).into_iter();
    while model.plain.dump() != there {
        let Some(next) = unanswered.next() else {
            let plain = model.plain.dump();
            let at = there.lines().zip(plain.lines()).position(|(a, b)| a != b).unwrap_or_default();
            let line = |s: &str| s.lines().nth(at).unwrap_or("").chars().take(300).collect::<String>();
            panic!(
                "seed {seed}, database {name}: not what was acknowledged, nor with what was under way\n there {}\n plain {}",
                line(&there),
                line(&plain)
            );
        };
        model.plain.run(&next);
        survived += 1;
    }
    totals.survived.fetch_add(survived, Ordering::Relaxed);
    totals.lost.fetch_add(unanswered.count() as u64, Ordering::Relaxed);
}

/// Sends transactions until the power fails.
fn work(engine: &Engine, name: &str, model: &mut Model, disk: &FaultDisk, totals: &Totals) {
    let Ok(db) = engine.database(name) else { return };
    let mut under_way: VecDeque<(Transaction, Sent)> = VecDeque::new();
    while !disk.power_is_off() {
        let next = transaction(&mut model.random);
        let sent = send(&db, &next);
        let keep = if next.changes_schema() { 0 } else { model.random.below(UNDER_WAY_MAX) as usize };
        under_way.push_back((next, sent));
        while under_way.len() > keep {
            answered(&mut under_way, model, disk, totals);
        }
        if model.random.one_in(15) && db.checkpoint().is_ok() {
            totals.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
        if name == NAMES[0] && model.random.one_in(40) {
            // One of the two fails; neither may harm the others.
            let made = engine.create_database("third", Dialect::Sqlite, Level::Cold).is_ok();
            if !made && model.random.one_in(2) {
                drop(engine.drop_database("third", Level::Cold));
            }
        }
        if under_way.is_empty() && model.random.one_in(10) && model.unanswered.is_empty() {
            match dump(|sql| query(&db, sql)) {
                Ok(there) => assert_eq!(there, model.plain.dump(), "while the power is on"),
                Err(e) => assert!(disk.power_is_off(), "{e}"),
            }
        }
    }
    while !under_way.is_empty() {
        answered(&mut under_way, model, disk, totals);
    }
}

/// Takes the oldest answer.
fn answered(under_way: &mut VecDeque<(Transaction, Sent)>, model: &mut Model, disk: &FaultDisk, totals: &Totals) {
    let Some((transaction, sent)) = under_way.pop_front() else { return };
    if matches!(sent, Sent::Lost) {
        return assert!(disk.power_is_off(), "lost while the power is on: {transaction:?}");
    }
    match sent.answer() {
        None => model.unanswered.push(transaction),
        Some(Ok(())) => {
            // What was sent before it ran before it, and is durable if it changed anything: only the answer was lost.
            for earlier in std::mem::take(&mut model.unanswered) {
                model.plain.run(&earlier);
            }
            totals.acknowledged.fetch_add(1, Ordering::Relaxed);
            assert!(model.plain.run(&transaction), "SQLite refuses {transaction:?}");
        }
        Some(Err(_)) if disk.power_is_off() => {}
        Some(Err(e)) => {
            totals.refused.fetch_add(1, Ordering::Relaxed);
            assert!(!model.plain.run(&transaction), "{e}, but SQLite accepts {transaction:?}");
        }
    }
}
