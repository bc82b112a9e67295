//! Power cuts between every two steps of archiving and recycling: the trail and the archive on one disk, or each on its
//! own. Afterwards every segment that the trail has recycled must be in the archive, whole, with the boxcars it had.
//!
//! `HOLDFAST_SEED=n` repeats one seed.

use std::collections::BTreeMap;

use crate::support::{append, open, options, store};
use holdfast_archive::{Codec, Holdings, Segment, Store, put};
use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_trail::{Shipped, Trail, TrailError};

const SEEDS: u64 = 60;
const CUTS_PER_SEED: u64 = 4;

/// What the trail had, by segment, as it was when it was durable.
type Model = BTreeMap<u32, Vec<Shipped>>;

#[derive(Default)]
struct Totals {
    recycled: u64,
    cut_while_archiving: u64,
    was_there: u64,
    torn: u64,
}

#[test]
fn nothing_is_recycled_that_the_archive_does_not_hold_whole() {
    let seeds = match std::env::var("HOLDFAST_SEED").ok().and_then(|n| n.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS,
    };
    let all = seeds.end - seeds.start == SEEDS;
    let mut totals = Totals::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for seed in seeds {
        runtime.block_on(run(seed, &mut totals));
    }
    let Totals { recycled, cut_while_archiving, was_there, torn } = totals;
    println!("recycled {recycled}, cut while archiving {cut_while_archiving}, was there {was_there}, left over {torn}");
    assert!(!all || [recycled, cut_while_archiving, was_there, torn].iter().all(|n| *n > 10));
}

async fn run(seed: u64, totals: &mut Totals) {
    let mut random = Seeded::new(seed);
    let disk = FaultDisk::new(seed);
    let archive = if random.one_in(2) { disk.clone() } else { FaultDisk::new(seed ^ 1 << 32) };
    let mut model = Model::new();
    for _ in 0..CUTS_PER_SEED {
        let trail = open(&disk, options("/trail")).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        check(seed, &trail, &archive, &model, totals).await;
        work(&trail, &archive, &mut random, &disk, &mut model, totals).await;
        drop(trail);
        for each in [&disk, &archive] {
            each.do_not_cut();
            each.restore_power();
        }
    }
    let trail = open(&disk, options("/trail")).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    check(seed, &trail, &archive, &model, totals).await;
}

/// Fills, archives and recycles, until the power fails.
async fn work(
    trail: &Trail,
    archive: &FaultDisk,
    random: &mut Seeded,
    disk: &FaultDisk,
    model: &mut Model,
    totals: &mut Totals,
) {
    let store = store(archive);
    let mut next = trail.segment_of(trail.first());
    for _ in 0..6 {
        let until = trail.segment_of(trail.durable()) + 1;
        while trail.segment_of(trail.durable()) < until {
            if !append(trail, 1 + random.below(11_000) as usize, random.below(256) as u8) {
                return;
            }
        }
        if remember(trail, model).is_err() {
            return;
        }
        if random.one_in(2) {
            disk.cut_power_after(1 + random.below(25));
        } else {
            archive.cut_power_after(1 + random.below(12));
        }
        loop {
            match put(&store, trail, next, Codec::Raw).await {
                Ok(Some(kept)) => totals.was_there += u64::from(kept.was_there),
                Ok(None) => break,
                Err(_) => {
                    totals.cut_while_archiving += 1;
                    return;
                }
            }
            next += 1;
            trail.retain_from(trail.start_of(next));
        }
    }
}

/// What is durable now, by segment. It is never written otherwise again.
fn remember(trail: &Trail, model: &mut Model) -> Result<(), TrailError> {
    let last = trail.segment_of(trail.durable());
    let known = model.keys().next_back().map_or(0, |n| n + 1);
    for number in known.max(trail.segment_of(trail.first()))..last {
        let end = trail.start_of(number + 1);
        let mut boxcars = Vec::new();
        for boxcar in trail.read_shipped(trail.start_of(number))? {
            match boxcar? {
                boxcar if boxcar.lsn < end => boxcars.push(boxcar),
                _ => break,
            }
        }
        model.insert(number, boxcars);
    }
    Ok(())
}

async fn check(seed: u64, trail: &Trail, archive: &FaultDisk, model: &Model, totals: &mut Totals) {
    let store = store(archive);
    let holdings = Holdings::of(&store, trail.trail_id()).await.unwrap();
    let files = store.list(&trail.trail_id().to_string()).await.unwrap();
    totals.torn += files.len().saturating_sub(holdings.objects().count()) as u64;
    let first = trail.segment_of(trail.first());
    for (number, boxcars) in model {
        for name in holdings.names(*number) {
            // Whatever has an object's name is one, recycled or not.
            let object = store.get(&name.to_string(), 1 << 20).await.unwrap().unwrap();
            let segment = Segment::decode(&name, &object).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let found: Vec<Shipped> = segment.boxcars_from(trail.start_of(*number)).map(Result::unwrap).collect();
            assert_eq!(found, *boxcars, "seed {seed}, {name}");
        }
        let recycled = *number < first;
        assert!(!recycled || holdings.names(*number).len() == 1, "seed {seed}: segment {number} is lost");
        totals.recycled += u64::from(recycled);
    }
}
