//! The recovery table (module `recovery`), row by row, each on a trail damaged for it.

use std::path::{Path, PathBuf};

use holdfast_seams::testing::FaultDisk;
use holdfast_seams::{AlignedBuf, Create, Disk, OpenHow};
use holdfast_types::{Epoch, Lsn};

use super::{Bench, DIR, ID, SEGMENT_BYTES, layout, segment_file};
use crate::Span;
use crate::boxcar::{BoxcarKind, Builder, Flaw, Head};
use crate::control::Control;
use crate::dump::{Dump, DumpItem};
use crate::error::TrailError;
use crate::layout::{BLOCK, CONTROL, TrailId};
use crate::segment::SegmentHeader;

/// A trail of three records in boxcars of their own, the last one unproven, after a power cut.
fn crashed() -> (FaultDisk, [Lsn; 3], Lsn) {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let starts = [1, 2, 3].map(|number| bench.append(number, 5000).start);
    let end = bench.end();
    disk.cut_power();
    drop(bench);
    disk.restore_power();
    (disk, starts, end)
}

fn refused(disk: &FaultDisk) -> TrailError {
    let before = disk.contents(&segment_file(1, 1));
    let error = Bench::open(disk).err().expect("the trail must refuse to open");
    assert_eq!(disk.contents(&segment_file(1, 1)), before, "a refusal changes nothing");
    error
}

fn damaged_at(disk: &FaultDisk) -> (PathBuf, u64) {
    match refused(disk) {
        error @ TrailError::Damaged { .. } => {
            let text = error.to_string();
            assert!(text.contains("byte") && text.contains("Restore"), "{text}");
            let TrailError::Damaged { file, offset, .. } = error else { unreachable!() };
            (file, offset)
        }
        other => panic!("{other}"),
    }
}

fn flip(disk: &FaultDisk, path: &Path, offset: u64) {
    let byte = disk.contents(path).unwrap()[offset as usize];
    disk.overwrite(path, offset, &[byte ^ 0x40]);
}

fn remove(disk: &FaultDisk, path: &Path) {
    disk.remove(path).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
}

fn copy(disk: &FaultDisk, from: &Path, to: &Path) {
    let bytes = disk.contents(from).unwrap();
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let file = disk.open(to, &how).unwrap();
    file.set_len(0).unwrap();
    file.write_at(&[std::io::IoSlice::new(&bytes)], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
}

fn control_path() -> PathBuf {
    Path::new(DIR).join(CONTROL)
}

#[test]
fn row_1_an_empty_directory_becomes_a_new_trail() {
    let bench = Bench::open(&FaultDisk::new(1)).unwrap();
    let recovered = &bench.recovered;
    assert!(recovered.fresh && recovered.epoch == Epoch(1) && recovered.first == recovered.end);
}

#[test]
fn row_2_segments_without_a_control_file_are_refused() {
    let (disk, ..) = crashed();
    remove(&disk, &control_path());
    let error = refused(&disk);
    assert!(error.to_string().contains("missing, but segments exist"), "{error}");
}

#[test]
fn row_3_an_interrupted_making_is_made_again() {
    let (disk, ..) = crashed();
    let control = Control::read(&disk, Path::new(DIR)).unwrap().unwrap();
    Control { incarnation: 0, ..control }.write(&disk, Path::new(DIR)).unwrap();
    let bench = Bench::open(&disk).unwrap();
    assert!(bench.recovered.fresh && bench.numbers().is_empty());
}

#[test]
fn row_4_a_damaged_control_file_is_refused() {
    let (disk, ..) = crashed();
    flip(&disk, &control_path(), 40);
    assert!(matches!(refused(&disk), TrailError::File { .. }));
}

#[test]
fn row_5_two_files_for_one_segment_are_refused() {
    let (disk, ..) = crashed();
    copy(&disk, &segment_file(1, 1), &segment_file(2, 1));
    let error = refused(&disk);
    assert!(error.to_string().contains("same segment"), "{error}");
}

/// A trail over several segments, cleanly closed as far as its boxcars go.
fn long() -> (FaultDisk, Bench) {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    for number in 0..20 {
        bench.append(number, 12_000);
    }
    bench.prove();
    assert!(layout().segment_of(bench.end()) > 3);
    (disk, bench)
}

#[test]
fn row_6_a_missing_segment_is_damage() {
    for segment in [1, 2] {
        let (disk, bench) = long();
        drop(bench);
        remove(&disk, &segment_file(1, segment));
        let error = Bench::open(&disk).err().unwrap();
        let TrailError::Damaged { what, file, .. } = &error else { panic!("{error}") };
        assert!(what.contains("missing") && file.display().to_string().contains(&format!("{segment:08x}")), "{error}");
    }
}

#[test]
fn row_7_a_bad_header_size_or_number_is_damage() {
    let (disk, bench) = long();
    drop(bench);
    let path = segment_file(1, 2);
    let good = disk.contents(&path).unwrap();
    flip(&disk, &path, 20);
    assert_eq!(damaged_at(&disk), (path.clone(), 0));
    copy(&disk, &segment_file(1, 3), &path);
    assert_eq!(damaged_at(&disk), (path.clone(), 0));
    disk.overwrite(&path, 0, &good);
    Bench::open(&disk).unwrap();
    disk.open(&path, &OpenHow { write: true, ..OpenHow::default() }).unwrap().set_len(SEGMENT_BYTES / 2).unwrap();
    assert_eq!(damaged_at(&disk), (path, 0));
}

#[test]
fn row_8_another_trail_and_a_newer_format_are_refused() {
    let (disk, ..) = crashed();
    let path = segment_file(1, 1);
    let header = SegmentHeader::decode(&disk.contents(&path).unwrap()[..BLOCK as usize]).unwrap();
    let other = SegmentHeader { trail_id: TrailId([9; 16]), ..header };
    disk.overwrite(&path, 0, other.encode().as_slice());
    assert!(matches!(refused(&disk), TrailError::OtherTrail { .. }));
    let mut newer = header.encode();
    newer.as_mut_slice()[8] = 2;
    let sum = crc32c::crc32c(&newer.as_slice()[..56]);
    newer.as_mut_slice()[56..60].copy_from_slice(&sum.to_le_bytes());
    disk.overwrite(&path, 0, newer.as_slice());
    assert!(matches!(refused(&disk), TrailError::Newer { found: 2, .. }));
}

#[test]
fn row_9_an_interrupted_recycling_is_finished() {
    let (disk, bench) = long();
    drop(bench);
    let control = Control::read(&disk, Path::new(DIR)).unwrap().unwrap();
    Control { first_segment: 3, ..control }.write(&disk, Path::new(DIR)).unwrap();
    let bench = Bench::open(&disk).unwrap();
    assert_eq!(bench.recovered.first, layout().first_lsn(3));
    assert!(disk.contents(&segment_file(1, 1)).is_none());
    assert_eq!(bench.numbers().last(), Some(&19));
}

#[test]
fn rows_10_and_11_sound_boxcars_are_accepted_over_segments() {
    let (disk, bench) = long();
    drop(bench);
    let mut bench = Bench::open(&disk).unwrap();
    assert_eq!(bench.numbers(), (0..20).collect::<Vec<_>>());
    assert_eq!((bench.recovered.cut.clone(), bench.recovered.epoch), (None, Epoch(2)));
    bench.append(20, 100);
    assert_eq!(bench.numbers(), (0..21).collect::<Vec<_>>());
    assert!(bench.boxcars().last().unwrap().epoch == Epoch(2));
}

#[test]
fn row_12_a_boxcar_of_a_newer_format_is_refused() {
    let (disk, starts, _) = crashed();
    disk.overwrite(&segment_file(1, 1), layout().offset_of(starts[2]) + 40, &[2]);
    assert!(matches!(refused(&disk), TrailError::Newer { found: 2, .. }));
}

#[test]
fn row_13_rot_below_what_the_control_file_proves_is_damage() {
    let (disk, starts, _) = crashed();
    Bench::open(&disk).unwrap();
    // No later boxcar can prove it: only the control file of the second open does so.
    flip(&disk, &segment_file(1, 1), layout().offset_of(starts[2]) + 200);
    assert_eq!(damaged_at(&disk), (segment_file(1, 1), layout().offset_of(starts[2])));
}

#[test]
fn row_13_a_clean_close_proves_everything() {
    let disk = FaultDisk::new(1);
    let options = super::options();
    let clock = std::sync::Arc::new(holdfast_seams::RealClock);
    let (trail, _) = crate::Trail::open(std::sync::Arc::new(disk.clone()), clock, options).unwrap();
    trail.append_kept(super::record(1, 5000), Box::new(|_| {})).unwrap();
    trail.close().unwrap();
    let control = Control::read(&disk, Path::new(DIR)).unwrap().unwrap();
    assert_eq!(control.proven, trail.durable());
    // Damage in the proof boxcar itself, in the very last block.
    flip(&disk, &segment_file(1, 1), layout().offset_of(control.proven) - BLOCK + 50);
    assert_eq!(damaged_at(&disk).1, layout().offset_of(control.proven) - BLOCK);
}

#[test]
fn row_14_rot_in_front_of_a_later_boxcar_is_damage_wherever_it_hits() {
    for at in [0, 12, 33, 84, 200, 5000] {
        let (disk, starts, _) = crashed();
        let offset = layout().offset_of(starts[1]);
        flip(&disk, &segment_file(1, 1), offset + at);
        assert_eq!(damaged_at(&disk), (segment_file(1, 1), offset), "byte {at}");
    }
}

#[test]
fn row_14_the_idle_proof_makes_rot_in_the_last_acknowledged_boxcar_damage() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let span = bench.append(1, 5000);
    bench.prove();
    drop(bench);
    flip(&disk, &segment_file(1, 1), layout().offset_of(span.start) + 200);
    assert_eq!(damaged_at(&disk), (segment_file(1, 1), layout().offset_of(span.start)));
}

#[test]
fn row_14_evidence_in_a_later_segment_counts() {
    let (disk, bench) = long();
    let control = Control::read(&disk, Path::new(DIR)).unwrap().unwrap();
    let end_of_second =
        bench.boxcars().into_iter().filter(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).nth(1).unwrap();
    drop(bench);
    assert!(control.proven < end_of_second.lsn);
    flip(&disk, &segment_file(1, 2), layout().offset_of(end_of_second.lsn) + 33);
    assert_eq!(damaged_at(&disk), (segment_file(1, 2), layout().offset_of(end_of_second.lsn)));
}

/// Cuts the last boxcar of [`crashed`] and checks that it was saved aside and zeroed.
fn check_cut(disk: &FaultDisk, at: Lsn, end: Lsn) {
    let offset = layout().offset_of(at) as usize;
    let torn = disk.contents(&segment_file(1, 1)).unwrap()[offset..].to_vec();
    let mut bench = Bench::open(disk).unwrap();
    let cut = bench.recovered.cut.clone().expect("a torn tail is cut");
    assert_eq!((cut.lsn, bench.recovered.end), (at, at));
    assert_eq!(cut.bytes, end.0 - at.0);
    assert_eq!(disk.contents(&cut.saved_to).unwrap(), torn[..cut.bytes as usize]);
    let after = disk.contents(&segment_file(1, 1)).unwrap();
    assert!(after[offset..].iter().all(|byte| *byte == 0), "the rest is zeroed");
    assert_eq!(bench.numbers(), [1, 2]);
    assert_eq!(bench.append(4, 100).start, at);
    drop(bench);
    assert_eq!(Bench::open(disk).unwrap().numbers(), [1, 2, 4]);
}

#[test]
fn row_15_a_torn_boxcar_is_saved_aside_and_cut() {
    for at in [0, 12, 84, 85, 200, 5000] {
        let (disk, starts, end) = crashed();
        flip(&disk, &segment_file(1, 1), layout().offset_of(starts[2]) + at);
        check_cut(&disk, starts[2], end);
    }
}

#[test]
fn row_16_a_boxcar_whose_first_sector_is_missing_is_saved_aside_and_cut() {
    let (disk, starts, end) = crashed();
    disk.overwrite(&segment_file(1, 1), layout().offset_of(starts[2]), &[0; 512]);
    check_cut(&disk, starts[2], end);
}

/// A trail that is writing into a recycled segment: its last boxcar, of 8192 bytes, and that segment's file.
fn in_recycled_segment() -> (FaultDisk, Bench, u64, Span, PathBuf) {
    let (disk, mut bench) = long();
    for number in 20..200 {
        bench.trail.retain_from(bench.end());
        let span = bench.append(number, 5000);
        let path = segment_file(1, layout().segment_of(span.start));
        let header = SegmentHeader::decode(&disk.contents(&path).unwrap()[..BLOCK as usize]).unwrap();
        if header.recycled && number > 40 {
            return (disk, bench, number, span, path);
        }
    }
    panic!("no segment was recycled")
}

#[test]
fn row_17_what_a_recycled_segment_held_before_is_neither_tail_nor_damage() {
    let (disk, bench, last, span, path) = in_recycled_segment();
    let end = layout().offset_of(span.end) as usize;
    let content = disk.contents(&path).unwrap();
    assert!(content[end..].iter().any(|byte| *byte != 0), "old bytes are there to be ignored");
    drop(bench);
    let bench = Bench::open(&disk).unwrap();
    assert_eq!((bench.recovered.cut.clone(), bench.numbers().last().copied()), (None, Some(last)));
}

#[test]
fn row_15_a_torn_boxcar_in_a_recycled_segment_is_cut_as_long_as_it_claims_to_be() {
    let (disk, bench, last, span, path) = in_recycled_segment();
    drop(bench);
    flip(&disk, &path, layout().offset_of(span.start) + 4500);
    let bench = Bench::open(&disk).unwrap();
    let cut = bench.recovered.cut.clone().unwrap();
    assert_eq!((cut.lsn, cut.bytes, bench.numbers().last().copied()), (span.start, 8192, Some(last - 1)));
}

#[test]
fn row_18_zeros_are_the_end() {
    let (disk, _, end) = crashed();
    let bench = Bench::open(&disk).unwrap();
    assert_eq!((bench.recovered.cut.clone(), bench.recovered.end, bench.numbers()), (None, end, vec![1, 2, 3]));
}

#[test]
fn row_19_later_segments_are_zeroed_at_a_cut_and_become_spares() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let span = bench.append(1, 5000);
    drop(bench);
    assert!(disk.contents(&segment_file(1, 2)).is_some());
    disk.overwrite(&segment_file(1, 2), BLOCK + 7, b"left over");
    flip(&disk, &segment_file(1, 1), layout().offset_of(span.start) + 300);
    let bench = Bench::open(&disk).unwrap();
    assert!(bench.recovered.cut.is_some() && disk.contents(&segment_file(1, 2)).is_none());
    let spares = disk.list(Path::new(DIR)).unwrap().into_iter().filter(|name| name.starts_with("spare"));
    let contents: Vec<Vec<u8>> = spares.map(|name| disk.contents(&Path::new(DIR).join(name)).unwrap()).collect();
    assert_eq!(contents.len(), 2);
    assert!(contents.iter().all(|content| content[BLOCK as usize..].iter().all(|byte| *byte == 0)));
}

/// Writes a boxcar durably at the position where another open of the trail would have written it.
fn forged(disk: &FaultDisk, lsn: Lsn, incarnation: u32, previous_checksum: u32) -> u32 {
    let (blocks, checksum) = built(lsn, incarnation, previous_checksum);
    disk.overwrite(&segment_file(1, 1), layout().offset_of(lsn), blocks.as_slice());
    checksum
}

/// A boxcar with record 77 for segment 1.
fn built(lsn: Lsn, incarnation: u32, previous_checksum: u32) -> (AlignedBuf, u32) {
    let mut builder = Builder::default();
    builder.begin();
    builder.push(&super::record(77, 100));
    let head = Head {
        proven: lsn,
        incarnation,
        kind: BoxcarKind::Data,
        epoch: Epoch(1),
        trail_id: ID,
        segment: 1,
        lsn,
        written_unix_ms: 0,
        body_bytes: 0,
        previous_checksum,
        checksum: 0,
    };
    let (blocks, checksum) = builder.finish(&head);
    let mut aligned = AlignedBuf::zeroed(blocks.len());
    aligned.as_mut_slice().copy_from_slice(blocks);
    (aligned, checksum)
}

/// The process was killed between the write and the sync, and the machine continued: the next open makes durable what
/// it accepts before anything else.
#[test]
fn what_recovery_accepts_survives_a_power_cut_right_after() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        let mut bench = Bench::open(&disk).unwrap();
        let end = bench.append(1, 100).end;
        let (blocks, _) = built(end, 1, bench.boxcars()[0].checksum);
        drop(bench);
        let file = disk.open(&segment_file(1, 1), &OpenHow::WRITE_DIRECT).unwrap();
        file.write_at(&[std::io::IoSlice::new(blocks.as_slice())], layout().offset_of(end)).unwrap();
        assert_eq!(Bench::open(&disk).unwrap().numbers(), [1, 77]);
        disk.cut_power();
        disk.restore_power();
        assert_eq!(Bench::open(&disk).unwrap().numbers(), [1, 77], "seed {seed}");
    }
}

#[test]
fn a_boxcar_of_an_older_incarnation_is_neither_accepted_nor_evidence() {
    let (disk, _, end) = crashed();
    let bench = Bench::open(&disk).unwrap();
    let last = bench.boxcars().last().unwrap().checksum;
    assert_eq!(bench.recovered.incarnation, 2);
    drop(bench);
    // A boxcar that incarnation 1 wrote after the end survived, and its successor claims that it was durable.
    let checksum = forged(&disk, end, 1, last);
    forged(&disk, Lsn(end.0 + 2 * BLOCK), 1, checksum);
    let bench = Bench::open(&disk).unwrap();
    assert_eq!((bench.recovered.cut.as_ref().unwrap().lsn, bench.numbers()), (end, vec![1, 2, 3]));
}

#[test]
fn a_boxcar_that_does_not_follow_its_predecessor_is_not_accepted() {
    let (disk, _, end) = crashed();
    forged(&disk, end, 1, 0xbad);
    let bench = Bench::open(&disk).unwrap();
    assert_eq!((bench.recovered.cut.as_ref().unwrap().lsn, bench.numbers()), (end, vec![1, 2, 3]));
}

#[test]
fn a_crash_while_cutting_keeps_the_tail_that_was_saved_first() {
    for changes in 1..40 {
        let (disk, starts, _) = crashed();
        flip(&disk, &segment_file(1, 1), layout().offset_of(starts[2]) + 200);
        let offset = layout().offset_of(starts[2]) as usize;
        let torn = disk.contents(&segment_file(1, 1)).unwrap()[offset..offset + 8192].to_vec();
        disk.cut_power_after(changes);
        drop(Bench::open(&disk));
        disk.restore_power();
        let bench = Bench::open(&disk).unwrap();
        assert_eq!((bench.recovered.end, bench.numbers()), (starts[2], vec![1, 2]));
        let names = disk.list(Path::new(DIR)).unwrap();
        let saved = names.iter().find(|name| name.ends_with(".tail")).expect("the tail is kept");
        let saved = disk.contents(&Path::new(DIR).join(saved)).unwrap();
        assert_eq!(saved[..], torn[..saved.len()]);
    }
}

#[test]
fn a_dump_shows_a_trail_that_refuses_to_open() {
    let (disk, starts, _) = crashed();
    flip(&disk, &segment_file(1, 1), layout().offset_of(starts[1]) + 200);
    refused(&disk);
    let items: Vec<_> = Dump::open(&disk, Path::new(DIR)).unwrap().map(Result::unwrap).collect();
    let DumpItem::Segment { segment: 1, epoch: Some(Epoch(1)), recycled: false, .. } = &items[0] else {
        panic!("{items:?}")
    };
    let DumpItem::Boxcar(first) = &items[1] else { panic!("{items:?}") };
    assert_eq!((first.lsn, first.incarnation, first.proven), (starts[0], 1, starts[0]));
    let DumpItem::Stop { lsn, flaw: Flaw::Checksum, .. } = &items[2] else { panic!("{items:?}") };
    assert_eq!(*lsn, starts[1]);
}
