//! What the trail promises beyond recovery; each test provokes a violation.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_seams::testing::FaultDisk;
use holdfast_seams::{Disk, SyncMethod};
use holdfast_types::{Epoch, Lsn};

use super::{Bench, DIR, SEGMENT_BYTES, layout, options, record, segment_file};
use crate::boxcar::disk_bytes;
use crate::control::Control;
use crate::layout::BLOCK;
use crate::{BoxcarKind, ReserveError, TrailOptions};

/// Options whose failure hook counts.
fn counting() -> (TrailOptions, Arc<AtomicU32>) {
    let failures = Arc::new(AtomicU32::new(0));
    let count = failures.clone();
    let hook = Arc::new(move |_: &crate::Failure| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    (TrailOptions { on_failure: hook, ..options() }, failures)
}

/// Rule 1.
#[test]
fn an_acknowledged_block_is_never_written_again() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let mut end = layout().offset_of(bench.end()) as usize;
    let mut written = disk.contents(&segment_file(1, 1)).unwrap();
    for number in 0..5 {
        let span = bench.append(number, 100 + number as usize * 1500);
        bench.prove();
        let now = disk.contents(&segment_file(1, 1)).unwrap();
        assert_eq!(now[..end], written[..end], "boxcar {number} changed earlier blocks");
        assert!(span.start.0.is_multiple_of(BLOCK) && span.end.0.is_multiple_of(BLOCK));
        (end, written) = (layout().offset_of(bench.end()) as usize, now);
    }
}

/// Rule 2.
#[test]
fn idle_and_closing_trails_prove_the_last_boxcar_once() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let span = bench.append(1, 100);
    bench.prove();
    bench.prove();
    let boxcars = bench.boxcars();
    assert_eq!(boxcars.iter().map(|boxcar| boxcar.kind).collect::<Vec<_>>(), [BoxcarKind::Data, BoxcarKind::Proof]);
    assert_eq!(boxcars[1].proven, span.end);
}

/// Rule 4: the failed sync's bytes are still in the page cache when the trail is opened again.
#[test]
fn a_failed_sync_ends_it_and_recovery_does_not_believe_the_page_cache() {
    for method in [SyncMethod::Fdatasync, SyncMethod::Fsync, SyncMethod::OpenSync, SyncMethod::OpenDirectDsync] {
        let disk = FaultDisk::new(1);
        let (options, failures) = counting();
        let mut bench = Bench::open_with(&disk, TrailOptions { sync_method: method, ..options }).unwrap();
        bench.append(1, 100);
        bench.prepare();
        bench.queue(2, 5000);
        bench.queue(3, 5000);
        disk.fail_sync(1);
        assert!(!bench.write(false));
        assert_eq!((failures.load(Ordering::Relaxed), disk.fired().failed_syncs), (1, 1));
        assert_eq!(bench.acknowledged.lock().len(), 1, "no append was acknowledged");
        assert!(matches!(bench.trail.reserve(10), Err(ReserveError::Closed)));
        let refused = bench.trail.append_kept(record(4, 10), Box::new(|_| {}));
        assert!(matches!(refused, Err(ReserveError::Closed)));
        drop(bench);
        assert_eq!(Bench::open(&disk).unwrap().numbers(), [1], "{method:?}");
    }
}

#[test]
fn a_failed_write_ends_it() {
    let disk = FaultDisk::new(1);
    let (options, failures) = counting();
    let mut bench = Bench::open_with(&disk, options).unwrap();
    bench.append(1, 100);
    bench.prepare();
    bench.queue(2, 9000);
    disk.fail_write(1, rustix::io::Errno::IO);
    assert!(!bench.write(false));
    assert_eq!((failures.load(Ordering::Relaxed), disk.fired().failed_writes), (1, 1));
    drop(bench);
    let bench = Bench::open(&disk).unwrap();
    assert_eq!((bench.numbers(), bench.recovered.cut.is_some()), (vec![1], true));
}

/// Rule 5.
#[test]
fn every_open_raises_epoch_and_incarnation_before_the_first_append() {
    for seed in 0..20 {
        let disk = FaultDisk::new(seed);
        for round in 1..5 {
            let bench = Bench::open(&disk).unwrap();
            assert_eq!((bench.recovered.epoch, bench.recovered.incarnation), (Epoch(round), round));
            // Only durable bytes count: the power fails before anything was appended.
            disk.cut_power();
            disk.restore_power();
            let control = Control::read(&disk, Path::new(DIR)).unwrap().unwrap();
            assert_eq!((control.epoch, control.incarnation), (Epoch(round), round));
            assert_eq!((control.incarnation_lsn, control.proven), (bench.recovered.end, bench.recovered.end));
        }
        let mut bench = Bench::open(&disk).unwrap();
        bench.append(1, 100);
        assert!(bench.boxcars().last().is_some_and(|boxcar| boxcar.epoch == Epoch(5)));
    }
}

/// Rule 5: the name of a segment has the epoch in which it was put into service.
#[test]
fn segment_names_carry_the_epoch() {
    let disk = FaultDisk::new(1);
    drop(Bench::open(&disk).unwrap());
    let mut bench = Bench::open(&disk).unwrap();
    bench.prepare();
    assert!(disk.contents(&segment_file(1, 1)).is_some() && disk.contents(&segment_file(2, 2)).is_some());
    assert!(disk.contents(&segment_file(1, 2)).is_none());
}

/// Rule 6.
#[test]
fn only_whole_segments_below_the_floor_are_recycled() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    let spans: Vec<_> = (0..20).map(|number| bench.append(number, 12_000)).collect();
    bench.trail.retain_from(spans[10].start);
    bench.prepare();
    assert!(bench.trail.stats().segments_recycled > 0);
    let first = layout().first_lsn(layout().segment_of(spans[10].start));
    assert!(bench.trail.read(spans[0].start).err().unwrap().to_string().contains("archive"));
    assert!(bench.trail.read(first).unwrap().all(|boxcar| boxcar.is_ok()));
    bench.trail.retain_from(Lsn(u64::MAX));
    bench.prepare();
    assert!(bench.trail.read(spans[19].start).unwrap().all(|boxcar| boxcar.is_ok()), "the current one stays");
}

/// Rule 7.
#[test]
fn a_full_disk_is_met_by_reserve_and_leaves_everything_intact() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    // Room for the segment in use, two ready ones, and the control file with its successor; not one block more.
    disk.set_capacity(Some(3 * SEGMENT_BYTES + 2 * BLOCK));
    bench.prepare();
    let mut number = 0;
    let full = loop {
        assert!(number < 1000, "the disk never fills");
        if !bench.has_room(3000) {
            bench.want_segment();
        }
        match bench.trail.reserve(3000) {
            Ok(reservation) => {
                let acknowledged = bench.acknowledged.clone();
                let on_durable = Box::new(move |span| acknowledged.lock().push((number, span)));
                bench.trail.append(reservation, record(number, 3000), on_durable).unwrap();
                let prepared = bench.writer.room_bytes() >= disk_bytes(3000) || !bench.trail.state().ready.is_empty();
                assert!(prepared, "reserved room is missing");
                assert!(bench.write(false));
                number += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(full, ReserveError::TrailFull { .. }), "{full}");
    assert!(disk.fired().disk_full > 0 && number > 5);
    // Checkpoints are still written, and the segments that they release make room again.
    bench.queue(number, 3000);
    assert!(bench.write(false));
    assert_eq!(bench.acknowledged.lock().len() as u64, number + 1);
    bench.trail.retain_from(bench.end());
    bench.prepare();
    assert!(bench.has_room(3000));
    drop(bench);
    disk.restore_power();
    assert_eq!(Bench::open(&disk).unwrap().numbers().last(), Some(&number), "a trail on a full disk can be opened");
}

#[test]
fn a_body_that_no_boxcar_holds_is_refused() {
    let bench = Bench::open(&FaultDisk::new(1)).unwrap();
    assert!(matches!(bench.trail.reserve(12_289), Err(ReserveError::TooLarge { bytes_max: 12_288, .. })));
    let refused = bench.trail.append_kept(vec![0; 12_289], Box::new(|_| {}));
    assert!(matches!(refused, Err(ReserveError::TooLarge { .. })));
}

#[test]
fn appends_queued_together_share_a_boxcar() {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    bench.prepare();
    let syncs = disk.stats().syncs;
    (0..20).for_each(|number| bench.queue(number, 100));
    assert!(bench.write(false));
    assert_eq!((disk.stats().syncs - syncs, bench.trail.stats().boxcars), (1, 1));
    assert_eq!(
        bench.acknowledged.lock().iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
}
