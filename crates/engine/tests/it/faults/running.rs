//! Faults while it runs: an operation of the disk fails, once or from then on, or the disk is full. What was asked for
//! fails, or the process ends; nothing that was acknowledged is lost, and at the next start all is there.

use super::bed::{Bed, End, NAMES};
use super::{Seen, aims};
use holdfast_engine::Engine;
use holdfast_seams::testing::Fired;
use rustix::io::Errno;
use std::path::Path;

/// Rounds of work in which a fault has to fire.
const ROUNDS: u64 = 60;
const TRANSACTIONS: u64 = 8;

/// Which files, and within how many operations on them.
type Aim = (fn(&Path) -> bool, u64);

const WRITTEN: [Aim; 4] = [(aims::segments, 12), (aims::volumes, 3), (aims::wals, 4), (aims::anything, 40)];
const READ: [Aim; 2] = [(aims::volumes, 5), (aims::anything, 5)];

pub fn a_sync_fails(seed: u64) -> Seen {
    fails(seed, &WRITTEN, false, |bed, nth| bed.disk.fail_sync(nth), |fired| fired.failed_syncs)
}

pub fn syncs_fail(seed: u64) -> Seen {
    fails(seed, &WRITTEN, true, |bed, nth| bed.disk.fail_sync(nth), |fired| fired.failed_syncs)
}

pub fn a_write_fails(seed: u64) -> Seen {
    fails(seed, &WRITTEN, false, |bed, nth| bed.disk.fail_write(nth, Errno::IO), |fired| fired.failed_writes)
}

pub fn writes_fail(seed: u64) -> Seen {
    fails(seed, &WRITTEN, true, |bed, nth| bed.disk.fail_write(nth, Errno::IO), |fired| fired.failed_writes)
}

pub fn a_read_fails(seed: u64) -> Seen {
    fails(seed, &READ, false, |bed, nth| bed.disk.fail_read(nth), |fired| fired.failed_reads)
}

pub fn reads_fail(seed: u64) -> Seen {
    fails(seed, &READ, true, |bed, nth| bed.disk.fail_read(nth), |fired| fired.failed_reads)
}

pub fn a_read_is_flipped(seed: u64) -> Seen {
    fails(seed, &READ, false, |bed, nth| bed.disk.flip_read(nth), |fired| fired.flipped_reads)
}

fn fails(seed: u64, aims: &[Aim], sticky: bool, arm: fn(&Bed, u64), fired: fn(&Fired) -> u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let (aim, within) = aims[bed.random.below(aims.len() as u64) as usize];
    bed.disk.aim(aim);
    bed.disk.stay(sticky);
    let nth = 1 + bed.random.below(within);
    arm(&bed, nth);
    let mut seen = Seen::new();
    let mut failed = work_until(&mut bed, &engine, |bed| fired(&bed.fired()) > 0);
    assert!(fired(&bed.fired()) > 0, "seed {seed}: nothing failed");
    failed += bed.work_with_fault(&engine, TRANSACTIONS).failed;
    bed.disk.heal();
    seen.extend((failed > 0).then_some("a transaction failed"));
    let how = if bed.has_ended() {
        seen.push("the process ended");
        bed.draw_end()
    } else {
        seen.push("it went on");
        bed.work_in_peace(&engine, TRANSACTIONS);
        bed.draw_end()
    };
    bed.end(engine, how);
    bed.must_be_whole();
    seen
}

/// Works and checkpoints until that is so or the process has ended; returns how many transactions failed.
fn work_until(bed: &mut Bed, engine: &Engine, done: impl Fn(&Bed) -> bool) -> u64 {
    let mut failed = 0;
    for _ in 0..ROUNDS {
        failed += bed.work_with_fault(engine, TRANSACTIONS).failed;
        if done(bed) || bed.has_ended() {
            break;
        }
        for db in NAMES.iter().filter_map(|name| engine.database(name).ok()) {
            // It may be what fails.
            drop(db.checkpoint());
        }
    }
    failed
}

/// Nothing ends the process; while the disk is full it may be killed and started.
pub fn the_disk_is_full(seed: u64) -> Seen {
    let (mut bed, engine) = Bed::new(seed);
    let used: u64 = bed.disk.files().iter().map(|(_, bytes)| bytes).sum();
    bed.disk.set_capacity(Some(used + bed.random.below(300 << 10)));
    let mut seen = Seen::new();
    let failed = work_until(&mut bed, &engine, |bed| bed.fired().disk_full > 2);
    let failed = failed + bed.work_with_fault(&engine, 20).failed;
    assert!(bed.fired().disk_full > 0, "seed {seed}: the disk never was full");
    assert!(!bed.has_ended(), "seed {seed}: a full disk ended the process");
    seen.extend((failed > 0).then_some("a transaction failed"));
    if bed.random.one_in(2) {
        bed.disk.heal();
        goes_on(&mut bed, &engine);
        seen.push("it went on");
        let how = bed.draw_end();
        bed.end(engine, how);
    } else {
        let how = if bed.random.one_in(2) { End::Killed } else { End::PowerCut };
        bed.end(engine, how);
        match bed.open() {
            Ok(engine) => {
                let there = bed.read(&engine).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                bed.compare(&there).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                bed.work_with_fault(&engine, 10);
                bed.end(engine, End::Killed);
                seen.push("it started while the disk was full");
            }
            Err(e) => {
                let text = e.to_string();
                assert!(text.contains("space"), "seed {seed}: {text}");
                seen.push("it did not start while the disk was full");
            }
        }
        bed.disk.heal();
    }
    bed.must_be_whole();
    seen
}

/// Room is looked for in the background.
fn goes_on(bed: &mut Bed, engine: &Engine) {
    while bed.work_with_fault(engine, TRANSACTIONS).acknowledged == 0 {
        std::thread::yield_now();
    }
}
