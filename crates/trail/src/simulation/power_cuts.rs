//! Random work and random power cuts, also during recovery: nothing acknowledged is lost, nothing appears that was not
//! appended, the order has no gaps, and recovery never reports a mere power cut as damage.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-trail power_cuts` replays one seed. `HOLDFAST_SEEDS=n` runs n seeds from
//! `HOLDFAST_SEED_FIRST` on and prints counts. A seed that fails is named, and the others still run.

use std::collections::VecDeque;

use holdfast_seams::SyncMethod;
use holdfast_seams::testing::{FaultDisk, Fired, Seeded};

use super::{Bench, layout, options};
use crate::error::TrailError;

const SEEDS: u64 = 120;
const CUTS_PER_SEED: u64 = 30;

/// What must hold after all restarts.
#[derive(Default)]
struct Model {
    /// The next record to append.
    next: u64,
    /// The oldest record that must be retained, and the newest that was acknowledged (both plus one).
    retained: u64,
    acknowledged: u64,
}

/// Why a seed failed.
enum Failure {
    /// Acknowledged records are gone.
    Lost(String),
    /// Recovery reports a power cut as damage.
    Refused(String),
    /// The records read are not those appended.
    Wrong(String),
}

#[derive(Default)]
struct Totals {
    cuts: u64,
    acknowledged: u64,
    lost: u64,
    refused: u64,
    wrong: u64,
    torn_tails: u64,
    lost_unacknowledged: u64,
    survived_unacknowledged: u64,
    recycled: u64,
    /// Segments that were ended before they were full.
    ended_early: u64,
    cuts_while_opening: u64,
}

#[test]
fn power_cuts() {
    let seeds = super::seeds(SEEDS);
    let (mut totals, mut fired, mut failed) = (Totals::default(), Fired::default(), Vec::new());
    for seed in seeds.clone() {
        let disk = FaultDisk::new(seed);
        if let Err(failure) = run(seed, &disk, &mut totals) {
            failed.push(totals.count(seed, failure));
        }
        fired.add(&disk.fired());
    }
    let Totals { cuts, acknowledged, lost, refused, wrong, .. } = totals;
    println!(
        "seeds {seeds:?}: {cuts} cuts, {acknowledged} acknowledged, {lost} seeds lost some, {refused} refused, {wrong} wrong"
    );
    println!("{fired:?}");
    assert!(failed.is_empty(), "repeat with HOLDFAST_SEED: {failed:#?}");
    if seeds.end - seeds.start >= SEEDS {
        assert!(cuts >= 3000, "{cuts} power cuts");
        let each = [
            totals.torn_tails,
            totals.lost_unacknowledged,
            totals.survived_unacknowledged,
            totals.recycled,
            totals.ended_early,
            totals.cuts_while_opening,
            fired.garbage_sectors,
            fired.dropped_sectors,
            fired.lost_names,
        ];
        assert!(each.iter().all(|count| *count > 10), "some fault never happened: {each:?}");
    }
}

impl Totals {
    fn count(&mut self, seed: u64, failure: Failure) -> String {
        let (count, what) = match failure {
            Failure::Lost(what) => (&mut self.lost, what),
            Failure::Refused(what) => (&mut self.refused, what),
            Failure::Wrong(what) => (&mut self.wrong, what),
        };
        *count += 1;
        format!("seed {seed}: {what}")
    }
}

fn run(seed: u64, disk: &FaultDisk, totals: &mut Totals) -> Result<(), Failure> {
    let mut random = Seeded::new(seed);
    let methods = [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync, SyncMethod::OpenSync, SyncMethod::Fsync];
    let method = methods[random.below(4) as usize];
    let mut model = Model::default();
    for _ in 0..CUTS_PER_SEED {
        disk.cut_power_after(1 + random.below(60));
        match Bench::open_with(disk, crate::TrailOptions { sync_method: method, ..options() }) {
            Ok(mut bench) => {
                check(&bench, &mut model, totals)?;
                totals.ended_early += work(&mut bench, &mut model, &mut random);
                totals.recycled += bench.trail.stats().segments_recycled;
                totals.acknowledged += bench.acknowledged.lock().len() as u64;
                model.acknowledged = newest(&bench).map_or(model.acknowledged, |newest| newest + 1);
            }
            Err(TrailError::Io { .. }) if disk.power_is_off() => totals.cuts_while_opening += 1,
            Err(error) => return Err(Failure::Refused(error.to_string())),
        }
        disk.restore_power();
        totals.cuts += 1;
    }
    Ok(())
}

/// Appends, proofs, preparing, ending segments early and recycling until the power fails. Returns how many segments were ended
/// early.
fn work(bench: &mut Bench, model: &mut Model, random: &mut Seeded) -> u64 {
    let mut ended_early = 0;
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
                bench.trail.retain_from(span.start);
                model.retained = model.retained.max(*number);
            }
        }
        if random.one_in(10) {
            bench.trail.end_segment();
            // Nothing is written but the end.
            let (before, boxcars) = (bench.end(), bench.trail.stats().boxcars);
            while bench.trail.state().end_wanted.is_some() {
                if !bench.write(false) {
                    return ended_early;
                }
            }
            let crossed = layout().segment_of(bench.end()) > layout().segment_of(before);
            ended_early += u64::from(crossed && bench.trail.stats().boxcars == boxcars);
        }
        if !bench.write(random.one_in(3)) {
            return ended_early;
        }
    }
}

fn newest(bench: &Bench) -> Option<u64> {
    bench.acknowledged.lock().last().map(|(number, _)| *number)
}

fn check(bench: &Bench, model: &mut Model, totals: &mut Totals) -> Result<(), Failure> {
    let cut = bench.recovered.cut.is_some();
    totals.torn_tails += u64::from(cut);
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.numbers()));
    let mut numbers = VecDeque::from(read.map_err(|_| Failure::Wrong("what is read back is damaged".to_owned()))?);
    let Some(first) = numbers.front().copied() else {
        if model.acknowledged > 0 {
            return Err(Failure::Lost(format!("all {} acknowledged records are gone", model.acknowledged)));
        }
        model.next = 0;
        return Ok(());
    };
    if first > model.retained {
        return Err(Failure::Lost(format!("begins at record {first}, must retain {}", model.retained)));
    }
    let last = numbers.back().copied().unwrap_or(first);
    if !numbers.drain(..).eq(first..=last) {
        return Err(Failure::Wrong("records are missing or out of order".to_owned()));
    }
    if last + 1 < model.acknowledged {
        return Err(Failure::Lost(format!("{} acknowledged, the last is {last}", model.acknowledged)));
    }
    if last >= model.next {
        return Err(Failure::Wrong(format!("record {last} was never appended")));
    }
    totals.lost_unacknowledged += u64::from(last + 1 < model.next);
    totals.survived_unacknowledged += u64::from(last + 1 > model.acknowledged);
    // Records that recovery accepted must stay: they may have been shipped or read.
    model.acknowledged = last + 1;
    model.next = last + 1;
    Ok(())
}
