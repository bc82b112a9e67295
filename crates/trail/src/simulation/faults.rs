//! Disks that do worse than lose power: bits that are damaged on disk or flip in transit, writes to a wrong offset,
//! reads that fail, syncs that lie. Appended records come back unchanged, or the trail refuses to open and names the
//! position. Only a disk that lies can lose acknowledged records, and then no wrong ones replace them.

use std::path::PathBuf;

use holdfast_seams::Disk;
use holdfast_seams::testing::{FaultDisk, Seeded};

use super::{Bench, layout, segment_file};
use crate::boxcar::{HEAD_BYTES, disk_bytes};
use crate::error::TrailError;
use crate::layout::BLOCK;

const RECORDS: u64 = 12;

/// A trail of proven records after a power cut, with the positions of the appends.
fn proven(seed: u64) -> (FaultDisk, Vec<crate::Span>) {
    let disk = FaultDisk::new(seed);
    let mut bench = Bench::open(&disk).unwrap();
    let mut random = Seeded::new(seed);
    let spans = (0..RECORDS).map(|number| bench.append(number, 12 + random.below(11_000) as usize)).collect();
    bench.prove();
    disk.cut_power();
    drop(bench);
    disk.restore_power();
    (disk, spans)
}

fn all() -> Vec<u64> {
    (0..RECORDS).collect()
}

/// The file and the offset that an error names; checks that it also gives advice.
fn place(error: &TrailError) -> (PathBuf, u64) {
    let text = error.to_string();
    let TrailError::Damaged { file, offset, .. } = error else { panic!("{text}") };
    assert!(text.contains(&format!("{} at byte {offset}", file.display())) && text.contains("Restore"), "{text}");
    (file.clone(), *offset)
}

#[test]
fn a_bit_that_rots_in_what_was_proven_is_named() {
    let (mut named, mut harmless) = (0, 0);
    for seed in 0..400 {
        let (disk, spans) = proven(seed);
        let mut random = Seeded::new(seed ^ 0xb17);
        let span = spans[random.below(RECORDS) as usize];
        let within = random.below(span.end.0 - span.start.0);
        let file = segment_file(1, layout().segment_of(span.start));
        let start = layout().offset_of(span.start);
        disk.rot(&file, start + within, random.below(8) as u8);
        assert_eq!(disk.fired().rotten_bits, 1);
        match Bench::open(&disk) {
            Err(error) => {
                assert_eq!(place(&error), (file, start), "seed {seed}");
                named += 1;
            }
            // Padding after the body, or the unused bytes between proof and head.
            Ok(bench) => {
                assert_eq!(bench.numbers(), all(), "seed {seed}");
                let body = bench.boxcars().iter().find(|b| b.lsn == span.start).unwrap().body.len() as u64;
                assert!(within >= HEAD_BYTES as u64 + body || (16..32).contains(&within), "seed {seed}: byte {within}");
                assert!(within < disk_bytes(body), "seed {seed}");
                harmless += 1;
            }
        }
    }
    assert!(named > 100 && harmless > 0, "{named} named, {harmless} harmless");
}

#[test]
fn a_write_that_misses_its_place_is_named_or_was_never_acknowledged() {
    let (mut named, mut at_end) = (0, 0);
    for seed in 0..300 {
        let disk = FaultDisk::new(seed);
        let mut random = Seeded::new(seed ^ 0x3157);
        let mut bench = Bench::open(&disk).unwrap();
        bench.prepare();
        let by_blocks = [-3, -2, -1, 1, 2, 3][random.below(6) as usize];
        let before = random.below(6);
        for number in 0..before {
            bench.append(number, 100);
        }
        bench.prepare();
        disk.misdirect_write(1, by_blocks * BLOCK as i64);
        for number in before..RECORDS {
            bench.queue(number, 100);
            assert!(bench.write(false));
        }
        bench.prove();
        disk.cut_power();
        drop(bench);
        disk.restore_power();
        if disk.fired().misdirected_writes == 0 {
            continue;
        }
        match Bench::open(&disk) {
            Err(error @ TrailError::Damaged { .. }) => {
                place(&error);
                named += 1;
            }
            // The segment's header was hit.
            Err(error) => assert!(error.to_string().contains("segment"), "seed {seed}: {error}"),
            Ok(bench) => {
                assert_eq!(bench.numbers(), all(), "seed {seed}");
                at_end += 1;
            }
        }
    }
    assert!(named > 250 && at_end == 0, "{named} named, {at_end} opened");
}

/// The bit on the disk is right. Nothing may be cut off or changed because of what a single read returned.
#[test]
fn a_bit_that_flips_on_the_way_loses_nothing() {
    let (mut refused, mut unharmed) = (0, 0);
    for seed in 0..300 {
        let (disk, _) = proven(seed);
        let reads = disk.stats().reads;
        disk.flip_read(1 + seed % 6);
        match Bench::open(&disk) {
            Err(error) => {
                assert!(error.to_string().contains("/trail/"), "seed {seed}: {error}");
                refused += 1;
            }
            Ok(bench) => {
                assert_eq!(bench.numbers(), all(), "seed {seed}");
                unharmed += 1;
            }
        }
        assert!(disk.fired().flipped_reads == 1 || disk.stats().reads - reads < 6, "seed {seed}");
        disk.flip_read(u64::MAX);
        disk.cut_power();
        disk.restore_power();
        let again = Bench::open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(again.numbers(), all(), "seed {seed}");
    }
    assert!(refused > 20 && unharmed > 20, "{refused} refused, {unharmed} unharmed");
}

#[test]
fn a_read_that_fails_once_is_an_error_and_the_next_open_has_everything() {
    let mut failed = 0;
    for nth in 1..20 {
        let (disk, _) = proven(nth);
        disk.fail_read(nth);
        if let Err(error) = Bench::open(&disk) {
            assert!(matches!(&error, TrailError::Io { what: "read", .. }), "read {nth}: {error}");
            assert_eq!(disk.fired().failed_reads, 1);
            failed += 1;
        }
        disk.fail_read(u64::MAX);
        disk.cut_power();
        disk.restore_power();
        assert_eq!(Bench::open(&disk).unwrap().numbers(), all(), "read {nth}");
    }
    assert!(failed > 3, "{failed} reads failed at an open");
}

/// No software can keep what the disk throws away. Recovery never shows a record that is not the one appended, and
/// refuses to open when a later record survived that proves the loss.
#[test]
fn a_lying_disk_loses_and_recovery_says_so_where_it_can() {
    let (mut whole, mut refused, mut shorter) = (0, 0, 0);
    for seed in 0..400 {
        let disk = FaultDisk::new(seed);
        let mut bench = Bench::open(&disk).unwrap();
        let honest = seed % 6;
        for number in 0..honest {
            bench.append(number, 3000);
        }
        bench.prepare();
        disk.lie(true);
        for number in honest..RECORDS {
            bench.append(number, 3000);
        }
        bench.prove();
        assert!(disk.fired().lied_syncs >= RECORDS - honest);
        disk.cut_power();
        drop(bench);
        disk.restore_power();
        disk.lie(false);
        match Bench::open(&disk) {
            Err(error) => {
                assert!(error.to_string().contains("/trail/"), "seed {seed}: {error}");
                refused += 1;
            }
            Ok(bench) => {
                let numbers = bench.numbers();
                let kept = numbers.len() as u64;
                assert!(kept >= honest, "seed {seed}: what was synced before the disk lied");
                assert_eq!(numbers, (0..kept).collect::<Vec<_>>(), "seed {seed}");
                whole += u32::from(kept == RECORDS);
                shorter += u32::from(kept < RECORDS);
            }
        }
    }
    println!("lying disk: {whole} whole, {refused} refused, {shorter} shorter without a trace");
    assert!(refused > shorter && shorter > 0, "{whole} whole, {refused} refused, {shorter} shorter");
}

/// Recovery orders by positions, epochs and incarnations; the time in a boxcar is only displayed.
#[test]
fn a_clock_that_jumps_back_changes_nothing() {
    let disk = FaultDisk::new(1);
    for (round, unix_ms) in [1_700_000_000_000, 5, 1_900_000_000_000, 1].into_iter().enumerate() {
        let mut bench = Bench::open_at(&disk, super::options(), unix_ms).unwrap();
        assert_eq!(bench.numbers(), (0..round as u64).collect::<Vec<_>>());
        bench.append(round as u64, 100);
        disk.cut_power();
        drop(bench);
        disk.restore_power();
    }
    assert_eq!(Bench::open(&disk).unwrap().numbers(), [0, 1, 2, 3]);
}
