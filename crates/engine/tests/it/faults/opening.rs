//! Faults while it opens what a power cut has left: it refuses and names a file, or does not meet the fault; the next open
//! has everything. A fault of the start must not make it believe that something is not there.

use super::bed::{Bed, End};
use super::{Seen, aims};
use holdfast_seams::testing::Fired;
use rustix::io::Errno;
use std::path::Path;

type Aim = fn(&Path) -> bool;

pub fn a_sync_fails(seed: u64) -> Seen {
    fails(seed, |bed, nth| bed.disk.fail_sync(nth), |fired| fired.failed_syncs)
}

pub fn a_write_fails(seed: u64) -> Seen {
    fails(seed, |bed, nth| bed.disk.fail_write(nth, Errno::IO), |fired| fired.failed_writes)
}

pub fn a_read_fails(seed: u64) -> Seen {
    fails(seed, |bed, nth| bed.disk.fail_read(nth), |fired| fired.failed_reads)
}

fn fails(seed: u64, arm: fn(&Bed, u64), fired: fn(&Fired) -> u64) -> Seen {
    let mut bed = cut(seed);
    let aim = if bed.random.one_in(2) { aims::anything } else { aims::databases };
    open(&mut bed, aim, arm, fired)
}

/// What is not proven yet ends where the first bad boxcar is, and one read cannot be told from what is on the disk: the
/// trail is proven first, as every start does it.
pub fn a_read_is_flipped(seed: u64) -> Seen {
    let mut bed = cut(seed);
    let aim: Aim = if bed.random.one_in(2) {
        let engine = bed.open().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        bed.end(engine, End::PowerCut);
        aims::segments
    } else {
        aims::databases
    };
    open(&mut bed, aim, |bed, nth| bed.disk.flip_read(nth), |fired| fired.flipped_reads)
}

/// What a power cut leaves at a random operation, in or between checkpoints.
fn cut(seed: u64) -> Bed {
    let (mut bed, engine) = Bed::new(seed);
    let changes = 1 + bed.random.below(100);
    bed.disk.cut_power_after(changes);
    while !bed.disk.power_is_off() {
        bed.work_with_fault(&engine, 5);
        if let Ok(db) = engine.database("one") {
            // It may be what the power cut hits.
            drop(db.checkpoint());
        }
    }
    bed.end(engine, End::PowerCut);
    bed
}

/// Opens with the fault at a random operation; at an earlier one where the open does not do so many.
fn open(bed: &mut Bed, aim: Aim, arm: fn(&Bed, u64), fired: fn(&Fired) -> u64) -> Seen {
    let (mut seen, mut within, mut aim, mut anything) = (Seen::new(), 64, aim, false);
    let before = fired(&bed.fired());
    while fired(&bed.fired()) == before {
        if within == 1 {
            // Nothing of the kind is done to these files.
            assert!(!anything, "seed {}: nothing failed", bed.seed);
            (within, aim, anything) = (64, aims::anything, true);
        }
        bed.disk.aim(aim);
        let nth = 1 + bed.random.below(within);
        arm(bed, nth);
        within /= 2;
        seen.clear();
        match bed.open() {
            Ok(engine) => {
                match bed.read(&engine) {
                    Ok(there) => {
                        bed.compare(&there).unwrap_or_else(|e| panic!("seed {}: {e}", bed.seed));
                        seen.push("opened");
                    }
                    Err(e) => {
                        // integrity_check tells what it could not read in a row of its own.
                        assert!(e.contains("volumes/") || e.contains("unable to get"), "seed {}: {e}", bed.seed);
                        seen.push("opened, a read was refused");
                    }
                }
                bed.disk.heal();
                let how = if bed.random.one_in(2) { End::Killed } else { End::PowerCut };
                bed.end(engine, how);
            }
            Err(e) => {
                let (text, dir) = (e.to_string(), bed.dir().display().to_string());
                assert!(text.contains(&dir), "seed {}: no file is named: {text}", bed.seed);
                seen.push("refused");
                bed.disk.heal();
                let how = if bed.random.one_in(2) { End::Killed } else { End::PowerCut };
                bed.begin_again(how);
            }
        }
    }
    bed.must_be_whole();
    seen
}
