//! A standby that loses power at any operation of its disk goes on exactly where it was.

use super::pair::{assert_same, catch_up, copy, hand_over};
use super::workload::{begin, options, work};
use crate::support::model::seeds;
use holdfast_engine::{Engine, Options};
use holdfast_seams::testing::{FaultDisk, Seeded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEEDS: u64 = 15;
const CUTS_PER_SEED: u64 = 5;

#[test]
fn a_standby_goes_on_after_a_power_cut() {
    let mut cuts = 0;
    for seed in seeds(SEEDS) {
        cuts += run(seed);
    }
    assert!(cuts > 0, "the power never failed");
}

/// Scratch files are real ones.
fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("scratch")).unwrap();
    dir
}

fn run(seed: u64) -> u64 {
    let mut random = Seeded::new(seed);
    let (a, b) = (tempfile::tempdir().unwrap(), dir());
    let disk = FaultDisk::new(seed);
    let standbys = Options { disk: Arc::new(disk.clone()), standby: true, on_failure: Arc::new(|_| {}), ..options() };
    let master = Engine::open(a.path(), options()).unwrap();
    begin(&master);
    work(&master, &mut random, 0..30);
    copy(&master, standbys.disk.clone(), b.path());
    let mut cuts = 0;
    for piece in 1..=CUTS_PER_SEED {
        disk.cut_power_after(1 + random.below(250));
        if let Ok(standby) = Engine::open(b.path(), standbys.clone()) {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let link = scope.spawn(|| hand_over(&master, &standby, &stop));
                work(&master, &mut random, piece * 100..piece * 100 + 25);
                if let (true, Ok(db)) = (random.one_in(2), standby.database("one")) {
                    drop(db.checkpoint());
                }
                stop.store(true, Ordering::Release);
                link.join().unwrap();
            });
            if let Some(failure) = standby.apply_failure() {
                assert!(disk.power_is_off(), "seed {seed}: {failure}");
            }
        } else {
            assert!(disk.power_is_off(), "seed {seed}: a power cut is no damage");
        }
        disk.do_not_cut();
        cuts += u64::from(disk.power_is_off());
        disk.restore_power();
    }
    let standby = Engine::open(b.path(), standbys.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    catch_up(&master, &standby);
    assert_same(&master, &standby, &format!("seed {seed}"));
    let epoch_min = master.trail().epoch();
    standby.close().unwrap();
    drop(standby);
    let promoted = Engine::open(b.path(), Options { standby: false, epoch_min, ..standbys }).unwrap();
    assert_same(&master, &promoted, &format!("seed {seed}, promoted"));
    drop(promoted);
    master.close().unwrap();
    cuts
}
