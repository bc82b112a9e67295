//! Taps: boxcars from the segments, then while they are written; and where two trails diverge.

use std::sync::Arc;

use holdfast_seams::testing::FaultDisk;
use holdfast_types::Lsn;
use parking_lot::Mutex;

use super::{Bench, Follower, layout, options, shipped};
use crate::boxcar::BoxcarKind;
use crate::layout::BLOCK;
use crate::{Match, Shipped, Tap, Trail, TrailError, TrailOptions};

/// Reads a tap until it has no more boxcars.
fn drain(tap: &mut Tap) -> Vec<Shipped> {
    std::iter::from_fn(|| tap.next().unwrap()).collect()
}

/// Everything that was tapped, each with the trail's durable position at that time.
type Seen = Arc<Mutex<Vec<(Shipped, Lsn)>>>;

/// Drains a tap whenever the trail reports that there may be more.
fn watch(trail: &Trail, from: Lsn) -> (Arc<Mutex<Option<Tap>>>, Seen) {
    let tap = Arc::new(Mutex::new(Some(trail.tap(from).unwrap())));
    let seen = Seen::default();
    let (drained, into, shared) = (tap.clone(), seen.clone(), trail.shared().clone());
    trail.on_progress(Arc::new(move || {
        if let Some(tap) = drained.lock().as_mut() {
            into.lock().extend(drain(tap).into_iter().map(|boxcar| (boxcar, shared.durable())));
        }
    }));
    (tap, seen)
}

#[test]
fn a_tap_gives_the_segments_first_then_each_boxcar_before_it_is_durable() {
    let mut bench = Bench::open(&FaultDisk::new(1)).unwrap();
    (0..6).for_each(|number| {
        bench.append(number, 9000);
    });
    let from = bench.end();
    let (tap, seen) = watch(&bench.trail, bench.recovered.first);
    (6..20).for_each(|number| {
        bench.append(number, 9000);
    });
    bench.prove();
    let seen: Vec<(Shipped, Lsn)> = seen.lock().clone();
    let (boxcars, durable): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    let live = boxcars.iter().position(|boxcar| boxcar.lsn == from).unwrap();
    assert!(live > 5 && boxcars.len() > live + 14);
    assert_eq!(boxcars, shipped(&bench.trail), "the same bytes from the ring and from the disk");
    for (boxcar, durable) in boxcars[live..].iter().zip(&durable[live..]) {
        assert_eq!(boxcar.lsn, *durable, "everything before it was durable, it was not");
    }
    assert!(boxcars.iter().filter(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).count() >= 2);
    *tap.lock() = None;
}

#[test]
fn a_tap_that_fell_behind_the_ring_reads_segments_again() {
    let options = TrailOptions { tap_bytes_max: 20_000, ..options() };
    let mut bench = Bench::open_with(&FaultDisk::new(1), options).unwrap();
    let mut tap = bench.trail.tap(bench.recovered.first).unwrap();
    (0..20).for_each(|number| {
        bench.append(number, 9000);
    });
    assert!(bench.trail.shared().live.at(bench.recovered.first).is_none());
    assert_eq!(drain(&mut tap), shipped(&bench.trail));
    assert_eq!((tap.position(), tap.next().unwrap()), (bench.end(), None));
    bench.append(20, 9000);
    assert_eq!(drain(&mut tap).last(), shipped(&bench.trail).last());
}

#[test]
fn a_tap_is_refused_what_was_recycled() {
    let mut bench = Bench::open(&FaultDisk::new(1)).unwrap();
    let first = bench.recovered.first;
    let mut tap = bench.trail.tap(first).unwrap();
    (0..20).for_each(|number| {
        bench.append(number, 9000);
    });
    drop(bench.trail.tap(first).unwrap());
    bench.trail.retain_from(bench.end());
    bench.prepare();
    assert!(matches!(bench.trail.tap(first), Err(TrailError::Gone { .. })));
    // This one still has it in memory.
    assert_eq!(tap.next().unwrap().unwrap().lsn, first);
}

/// A follower's own taps feed the next follower, before the boxcars are durable here.
#[test]
fn followers_cascade() {
    let mut master = Bench::open(&FaultDisk::new(1)).unwrap();
    let mut middle = Follower::new(&FaultDisk::new(2), &master.trail).unwrap();
    let mut last = Follower::new(&FaultDisk::new(3), &master.trail).unwrap();
    let (tap, seen) = watch(&middle.trail, middle.recovered.end);
    (0..20).for_each(|number| {
        master.append(number, 9000);
    });
    let all = shipped(&master.trail);
    let mut given = 0;
    for group in all.chunks(3) {
        let durable = middle.trail.durable();
        middle.receive(group).unwrap();
        let seen: Vec<_> = seen.lock()[given..].to_vec();
        assert_eq!(seen[0].1, durable, "seen before it was durable");
        let boxcars: Vec<Shipped> = seen.into_iter().map(|(boxcar, _)| boxcar).collect();
        given += boxcars.len();
        last.receive(&boxcars).unwrap();
    }
    assert_eq!(shipped(&last.trail), all);
    *tap.lock() = None;
}

#[test]
fn every_end_of_a_boxcar_is_known_and_nothing_else() {
    let mut bench = Bench::open(&FaultDisk::new(1)).unwrap();
    assert_eq!(bench.trail.ends_with(bench.end(), 0).unwrap(), Match::Yes);
    (0..20).for_each(|number| {
        bench.append(number, 9000);
    });
    let all = shipped(&bench.trail);
    for boxcar in &all {
        assert_eq!(bench.trail.ends_with(boxcar.end, boxcar.checksum).unwrap(), Match::Yes, "{boxcar:?}");
        assert_eq!(bench.trail.ends_with(boxcar.end, boxcar.checksum ^ 1).unwrap(), Match::No, "{boxcar:?}");
        let within = [Lsn(boxcar.lsn.0 + BLOCK), Lsn(boxcar.end.0 - 1), Lsn(boxcar.end.0 + BLOCK)];
        for lsn in within.into_iter().filter(|lsn| all.iter().all(|other| other.end != *lsn)) {
            assert_eq!(bench.trail.ends_with(lsn, boxcar.checksum).unwrap(), Match::No, "{lsn}");
        }
    }
    for lsn in [Lsn(u64::MAX), Lsn(bench.end().0 + 4096), layout().lsn(2, 0)] {
        assert_eq!(bench.trail.ends_with(lsn, all[3].checksum).unwrap(), Match::No, "{lsn}");
    }
    assert_eq!(bench.trail.ends_with(Lsn(5), 7).unwrap(), Match::Gone);
    bench.trail.retain_from(bench.end());
    bench.prepare();
    assert_eq!(bench.trail.ends_with(all[3].end, all[3].checksum).unwrap(), Match::Gone);
    // The end of a recycled segment is still named by the boxcar after it.
    let end = all.iter().rfind(|boxcar| boxcar.end == bench.trail.first()).unwrap();
    assert_eq!(bench.trail.ends_with(end.end, end.checksum).unwrap(), Match::Yes);
}

/// A standby may already have the boxcar and lose its connection: the boxcar must not be taken for a fork.
#[test]
fn what_was_handed_out_and_is_not_yet_durable_is_known() {
    let mut bench = Bench::open(&FaultDisk::new(1)).unwrap();
    bench.append(1, 100);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let mut tap = bench.trail.tap(bench.end()).unwrap();
    let (into, trail) = (asked.clone(), Mutex::new(Some(bench.trail.clone())));
    let trail = Arc::new(trail);
    let (of_hook, hooked) = (trail.clone(), Mutex::new(tap.next().unwrap()));
    assert!(hooked.lock().is_none());
    let tap = Mutex::new(tap);
    bench.trail.on_progress(Arc::new(move || {
        let (trail, mut tap) = (of_hook.lock(), tap.lock());
        if let (Some(trail), Ok(Some(boxcar))) = (trail.as_ref(), tap.next()) {
            let durable = trail.durable() > boxcar.lsn;
            into.lock().push((durable, trail.ends_with(boxcar.end, boxcar.checksum).unwrap()));
            into.lock().push((durable, trail.ends_with(boxcar.end, boxcar.checksum ^ 1).unwrap()));
        }
    }));
    bench.append(2, 100);
    assert_eq!(*asked.lock(), [(false, Match::Yes), (false, Match::No)]);
    *trail.lock() = None;
}
