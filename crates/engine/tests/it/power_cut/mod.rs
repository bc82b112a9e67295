//! The whole engine on a simulated disk that loses power: trail, checkpoints and recovery together.
//!
//! Two threads, each with its own database, send random transactions, several under way at a time, take checkpoints, and
//! come and go with a third database, until the power fails at a random disk operation, perhaps again during recovery.
//! Then each database must hold exactly what plain SQLite holds after all acknowledged transactions and the first few of
//! those that were under way: nothing half done, nothing out of order.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it power_cut` repeats one seed, `HOLDFAST_SEEDS=n` runs more, from
//! `HOLDFAST_SEED_FIRST` on. The seed decides the work and the operation at which the power fails; threads decide how the work is interleaved.

use crate::support::client::{Sent, query, send};
use crate::support::model::{Answer, Model, Unanswered, each_seed, seeds};
use crate::support::plain::dump;
use crate::support::workload::{Transaction, transaction};
use holdfast_engine::{Database, Engine, Options};
use holdfast_seams::SyncMethod;
use holdfast_seams::testing::{FaultDisk, Fired, Seeded};
use holdfast_types::Level;
use holdfast_types::schema::Dialect;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 120;
const CUTS_PER_SEED: u64 = 4;
const UNDER_WAY_MAX: u64 = 6;
const NAMES: [&str; 2] = ["one", "two"];

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
    let seeds = seeds(SEEDS);
    let totals = Totals::default();
    let (outcomes, failed) = each_seed(&seeds, |seed| run(seed, &totals));
    let mut fired = Fired::default();
    outcomes.iter().for_each(|happened| fired.add(happened));
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
        // Nearly everything that a branch commits.
        prewrite_bytes_min: 200,
        side_copy_bytes_min: 200,
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
                None => *model = Some(Model::begin(&db, seed ^ u64::from(db.oid()) << 32)),
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

/// What is there must be what was acknowledged and a beginning of what was not answered.
fn check(db: &Database, model: &mut Model, seed: u64, totals: &Totals) {
    let failed = |e| -> Unanswered { panic!("seed {seed}, database {}: {e}", db.name()) };
    let there = Model::read(db).unwrap_or_else(|e| panic!("seed {seed}, database {}: {e}", db.name()));
    let unanswered = model.compare(&there).unwrap_or_else(failed);
    totals.survived.fetch_add(unanswered.survived, Ordering::Relaxed);
    totals.lost.fetch_add(unanswered.lost, Ordering::Relaxed);
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
            let made = engine.create_database("third", Dialect::Sqlite, Level::Local).is_ok();
            if !made && model.random.one_in(2) {
                drop(engine.drop_database("third", Level::Local));
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
    let count = match model.answered(transaction, sent, |_| disk.power_is_off()) {
        Answer::Acknowledged => &totals.acknowledged,
        Answer::Refused => &totals.refused,
        Answer::Failed | Answer::None => return,
    };
    count.fetch_add(1, Ordering::Relaxed);
}
