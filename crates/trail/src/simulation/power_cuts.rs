//! Random work, random power cuts, also during recovery: nothing acknowledged is lost, nothing that was not appended
//! appears, order and gaplessness hold, and recovery never calls a mere power cut damage.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-trail power_cuts` replays one seed.

use std::collections::VecDeque;

use holdfast_seams::SyncMethod;
use holdfast_seams::testing::{FaultDisk, Fired, Seeded};

use super::{Bench, options};
use crate::error::TrailError;

const SEEDS: u64 = 120;
const CUTS_PER_SEED: u64 = 30;

/// What must hold over all restarts.
#[derive(Default)]
struct Model {
    /// The next record to append.
    next: u64,
    /// The oldest record that the recycle floor protects, and the newest that was acknowledged (both plus one).
    floor: u64,
    acknowledged: u64,
}

#[derive(Default)]
struct Totals {
    cuts: u64,
    torn_tails: u64,
    lost_unacknowledged: u64,
    survived_unacknowledged: u64,
    recycled: u64,
    cuts_while_opening: u64,
}

#[test]
fn power_cuts() {
    let (mut totals, mut fired) = (Totals::default(), Fired::default());
    let only: Option<u64> = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..SEEDS, |seed| seed..seed + 1) {
        let happened = run(seed, &mut totals);
        fired.garbage_sectors += happened.garbage_sectors;
        fired.dropped_sectors += happened.dropped_sectors;
        fired.lost_names += happened.lost_names;
    }
    if only.is_none() {
        assert!(totals.cuts >= 3000, "{} power cuts", totals.cuts);
        let each = [
            totals.torn_tails,
            totals.lost_unacknowledged,
            totals.survived_unacknowledged,
            totals.recycled,
            totals.cuts_while_opening,
            fired.garbage_sectors,
            fired.dropped_sectors,
            fired.lost_names,
        ];
        assert!(each.iter().all(|count| *count > 10), "some fault never happened: {each:?}");
    }
}

fn run(seed: u64, totals: &mut Totals) -> Fired {
    let mut random = Seeded::new(seed);
    let disk = FaultDisk::new(seed);
    let methods = [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync, SyncMethod::OpenSync, SyncMethod::Fsync];
    let method = methods[random.below(4) as usize];
    let mut model = Model::default();
    for _ in 0..CUTS_PER_SEED {
        disk.cut_power_after(1 + random.below(60));
        match Bench::open_with(&disk, crate::TrailOptions { sync_method: method, ..options() }) {
            Ok(mut bench) => {
                check(&bench, &mut model, seed, totals);
                work(&mut bench, &mut model, &mut random);
                totals.recycled += bench.trail.stats().segments_recycled;
                model.acknowledged = newest(&bench).map_or(model.acknowledged, |newest| newest + 1);
            }
            Err(TrailError::Io { .. }) if disk.power_is_off() => totals.cuts_while_opening += 1,
            Err(error) => panic!("seed {seed}: {error}"),
        }
        disk.restore_power();
        totals.cuts += 1;
    }
    disk.fired()
}

/// Appends, proofs, preparing and recycling until the power fails.
fn work(bench: &mut Bench, model: &mut Model, random: &mut Seeded) {
    loop {
        for _ in 0..random.below(6) {
            let bytes = if random.one_in(8) { 12_000 } else { 12 + random.below(3000) };
            bench.queue(model.next, bytes as usize);
            model.next += 1;
        }
        if random.one_in(8) {
            let acknowledged = bench.acknowledged.lock();
            let pick = acknowledged.len().checked_sub(1).map(|last| random.below(last as u64 + 1) as usize);
            if let Some((number, span)) = pick.and_then(|index| acknowledged.get(index)) {
                bench.trail.set_recycle_floor(span.start);
                model.floor = model.floor.max(*number);
            }
        }
        if !bench.write(random.one_in(3)) {
            return;
        }
    }
}

fn newest(bench: &Bench) -> Option<u64> {
    bench.acknowledged.lock().last().map(|(number, _)| *number)
}

fn check(bench: &Bench, model: &mut Model, seed: u64, totals: &mut Totals) {
    let cut = bench.recovered.cut.is_some();
    totals.torn_tails += u64::from(cut);
    let mut numbers = VecDeque::from(
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.numbers()))
            .unwrap_or_else(|_| panic!("seed {seed}: what is read back is damaged")),
    );
    let Some(first) = numbers.front().copied() else {
        assert_eq!(model.acknowledged, 0, "seed {seed}: acknowledged records are gone");
        model.next = 0;
        return;
    };
    assert!(first <= model.floor, "seed {seed}: begins at record {first}, floor {}", model.floor);
    let last = numbers.back().copied().unwrap_or(first);
    assert!(numbers.drain(..).eq(first..=last), "seed {seed}: records are missing or out of order");
    assert!(last + 1 >= model.acknowledged, "seed {seed}: lost acknowledged records behind {last}");
    assert!(last < model.next, "seed {seed}: record {last} was never appended");
    totals.lost_unacknowledged += u64::from(last + 1 < model.next);
    totals.survived_unacknowledged += u64::from(last + 1 > model.acknowledged);
    // What recovery accepted stays: it may have been shipped or read.
    model.acknowledged = last + 1;
    model.next = last + 1;
}
