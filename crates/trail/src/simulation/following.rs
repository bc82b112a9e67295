//! A trail that follows another one: what it accepts, what it refuses, and what it has after a power cut.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_seams::Disk;
use holdfast_seams::testing::{FaultDisk, Seeded, StepClock};
use holdfast_types::{Epoch, Lsn};

use super::{
    Bench, DIR, Follower, SEGMENT_BYTES, follow_from, forged, layout, numbers, options, record, segment_file, shipped,
};
use crate::boxcar::{BoxcarKind, SHIPPED_HEAD_BYTES};
use crate::control::Control;
use crate::layout::BLOCK;
use crate::shipped::ShippedFlaw;
use crate::{Match, ReceiveError, ReserveError, Shipped, Trail, TrailError, TrailOptions};

/// A master of `count` boxcars of records of `bytes` bytes, the last of them proven.
fn master(count: u64, bytes: usize) -> (FaultDisk, Bench) {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    (0..count).for_each(|number| {
        bench.append(number, bytes);
    });
    bench.prove();
    (disk, bench)
}

/// A follower that has the first `count` boxcars of the master.
fn follower(master: &Bench, count: usize) -> (FaultDisk, Follower, Vec<Shipped>) {
    let disk = FaultDisk::new(2);
    let mut follower = Follower::new(&disk, &master.trail).unwrap();
    let all = shipped(&master.trail);
    follower.receive(&all[..count]).unwrap();
    (disk, follower, all)
}

fn control(disk: &FaultDisk) -> Control {
    Control::read(disk, Path::new(DIR)).unwrap().unwrap()
}

#[test]
fn a_follower_has_the_same_shipped_bytes_and_its_own_proofs_over_segments() {
    let (_, master) = master(20, 9000);
    let (disk, mut follower, all) = follower(&master, 5);
    assert!(layout().segment_of(master.end()) > 3 && all.iter().any(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd));
    let position = follower.trail.durable();
    for boxcar in &all[5..] {
        follower.receive(std::slice::from_ref(boxcar)).unwrap();
    }
    assert_eq!(shipped(&follower.trail), all);
    assert_eq!(follower.trail.tip(), master.trail.tip());
    assert_eq!(numbers(&follower.trail), (0..20).collect::<Vec<_>>());
    let theirs = master.boxcars();
    let boxcars: Vec<_> = follower.trail.read(follower.trail.first()).unwrap().map(Result::unwrap).collect();
    assert!(boxcars.iter().all(|boxcar| boxcar.incarnation == 2 && boxcar.epoch == Epoch(1)));
    assert_eq!(boxcars[0].proven, boxcars[0].lsn);
    assert_eq!(boxcars[4].proven, boxcars[0].lsn, "one write, one proof");
    assert!(boxcars[4].proven < theirs[4].proven, "it is not the master's");
    assert_eq!(boxcars[5].proven, position);
    drop(follower);
    let again = Follower::open(&disk).unwrap();
    assert_eq!((shipped(&again.trail), again.recovered.cut.clone()), (all, None));
    assert_eq!((again.recovered.epoch, again.recovered.incarnation), (Epoch(1), 3));
}

#[test]
fn boxcars_of_one_segment_share_a_write_and_a_sync() {
    let (_, master) = master(12, 9000);
    let (disk, mut follower, all) = follower(&master, 0);
    let end = all.iter().position(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).unwrap();
    // Prepared beforehand, so that only the writes of boxcars are counted.
    follower.receive(&[]).unwrap();
    let before = disk.stats();
    follower.receive(&all[..end]).unwrap();
    assert_eq!((disk.stats().writes - before.writes, disk.stats().syncs - before.syncs), (1, 1));
    follower.receive(&all[end..end + 4]).unwrap();
    assert_eq!((disk.stats().writes - before.writes, disk.stats().syncs - before.syncs), (3, 3));
    assert_eq!(end + 4, shipped(&follower.trail).len());
}

/// Each kind of misfit is refused by its own error, and not a byte is written.
#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (_, master) = master(6, 3000);
    let (disk, mut follower, all) = follower(&master, 3);
    let (next, behind) = (&all[3], &all[4]);
    let mut refused = |boxcars: &[Shipped]| {
        let before = (disk.stats().writes, follower.trail.tip());
        let error = follower.receive(boxcars).expect_err("it must be refused");
        assert_eq!((disk.stats().writes, follower.trail.tip()), before, "{error}");
        error
    };
    let place = |error| matches!(error, ReceiveError::Position { .. });
    assert!(place(refused(std::slice::from_ref(behind))), "a gap");
    assert!(place(refused(std::slice::from_ref(&all[2]))), "again");
    assert!(place(refused(&[behind.clone(), next.clone()])), "out of order");
    let other_chain = forged(next, |bytes| bytes[56] ^= 1);
    assert!(matches!(refused(std::slice::from_ref(&other_chain)), ReceiveError::Chain { .. }));
    let older = forged(next, |bytes| bytes[12..16].fill(0));
    let error = refused(&[older]);
    assert_eq!(error, ReceiveError::OldEpoch { lsn: next.lsn, found: Epoch(0), last: Epoch(1) });
    let other_trail = forged(next, |bytes| bytes[16] ^= 1);
    let error = refused(&[other_trail]);
    assert!(matches!(error, ReceiveError::Flaw { flaw: ShippedFlaw::OtherTrail(_), .. }), "{error}");
    let other_kind = forged(next, |bytes| bytes[10] = 9);
    assert!(matches!(refused(&[other_kind]), ReceiveError::Flaw { flaw: ShippedFlaw::Kind(9), .. }));
    let newer = forged(next, |bytes| bytes[8] = 2);
    assert!(matches!(refused(&[newer]), ReceiveError::Flaw { flaw: ShippedFlaw::Newer(2), .. }));
    let elsewhere = forged(next, |bytes| bytes[32] = 2);
    assert!(matches!(refused(&[elsewhere]), ReceiveError::Flaw { flaw: ShippedFlaw::Position { .. }, .. }));
    let mut bytes = next.bytes.to_vec();
    bytes[1000] ^= 4;
    let changed = Shipped { bytes: bytes.into(), ..next.clone() };
    assert!(matches!(refused(&[changed]), ReceiveError::Flaw { flaw: ShippedFlaw::Checksum, .. }));
    let lying = Shipped { lsn: next.lsn, end: next.end, ..behind.clone() };
    assert!(place(refused(&[lying])), "the bytes count, not the fields next to them");
    assert!(place(refused(&[next.clone(), all[5].clone()])), "the first of them would have fitted");
    follower.receive(&all[3..]).unwrap();
    assert_eq!(shipped(&follower.trail), all);
}

/// A peer that can compute checksums: whatever the head says, the boxcar is refused and nothing is written, or it is
/// one that could have followed, and the trail continues with it.
#[test]
fn a_forged_head_with_a_fitting_checksum_harms_nothing() {
    let (_, master) = master(9, 9000);
    let all = shipped(&master.trail);
    let (mut taken, mut turned_down) = (0, 0);
    for seed in 0..400 {
        let mut random = Seeded::new(seed);
        let at = random.below(all.len() as u64) as usize;
        let (disk, mut follower, _) = follower(&master, at);
        let bad = forged(&all[at], |bytes| {
            for _ in 0..1 + random.below(2) {
                let offset = random.below(SHIPPED_HEAD_BYTES as u64) as usize;
                bytes[offset] = [0, 1, 2, 3, 0x80, 0xff, random.draw() as u8][random.below(7) as usize];
            }
        });
        // The preparer has finished its work: a write from now on would be the boxcar.
        follower.receive(&[]).unwrap();
        let before = (disk.stats().writes, follower.trail.tip());
        let result = follower.receive(&[bad]);
        let after = follower.trail.tip();
        match result {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!((disk.stats().writes, after), before, "seed {seed}: {error}");
                turned_down += 1;
            }
        }
        drop(follower);
        let mut again = Follower::open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!((again.trail.tip(), again.recovered.cut.clone()), (after, None), "seed {seed}");
        if after == before.1 {
            again.receive(&all[at..]).unwrap();
        }
    }
    assert!(taken > 20 && turned_down > 200, "{taken} taken, {turned_down} turned down");
}

#[test]
fn only_a_follower_receives_and_it_takes_no_appends() {
    let (_, master) = master(2, 100);
    let (_, follower, all) = follower(&master, 1);
    assert_eq!(master.trail.receive(&all[1..]), Err(ReceiveError::NotFollowing));
    assert!(matches!(follower.trail.reserve(10), Err(ReserveError::Following)));
    let refused = follower.trail.append_kept(record(1, 10), Box::new(|_| {}));
    assert!(matches!(refused, Err(ReserveError::Following)));
    assert!(follower.trail.is_following() && !master.trail.is_following());
}

/// Appends boxcars of epoch 2 to the master and returns everything it has.
fn in_epoch_2(disk: &FaultDisk, master: Bench) -> Vec<Shipped> {
    drop(master);
    let mut master = Bench::open(disk).unwrap();
    master.append(100, 9000);
    master.append(101, 9000);
    shipped(&master.trail)
}

#[test]
fn a_higher_epoch_is_durable_before_the_first_boxcar_of_it() {
    let mut raised = 0;
    for changes in 1..14 {
        let (disk, master) = master(3, 3000);
        let (own, mut follower, _) = follower(&master, 3);
        let all = in_epoch_2(&disk, master);
        follower.preparer.round();
        own.cut_power_after(changes);
        let received = follower.receive(&all[3..]);
        drop(follower);
        own.restore_power();
        let follower = Follower::open(&own).unwrap();
        let newest = shipped(&follower.trail).last().unwrap().epoch;
        assert!(newest <= control(&own).epoch, "after {changes} changes");
        assert_eq!(follower.trail.epoch(), control(&own).epoch);
        assert!(received.is_err() || newest == Epoch(2), "after {changes} changes");
        raised += u32::from(received.is_err() && control(&own).epoch == Epoch(2) && newest == Epoch(1));
    }
    assert!(raised > 0, "the power never failed between the two");
}

#[test]
fn a_boxcar_of_a_deposed_master_is_refused_after_a_restart_too() {
    let (disk, master) = master(3, 3000);
    let (own, mut follower, first) = follower(&master, 3);
    let all = in_epoch_2(&disk, master);
    follower.receive(&all[3..5]).unwrap();
    drop(follower);
    let mut follower = Follower::open(&own).unwrap();
    let old = forged(&all[5], |bytes| bytes[12..16].copy_from_slice(&1u32.to_le_bytes()));
    assert_eq!(first[0].epoch, Epoch(1));
    assert!(matches!(follower.receive(&[old]), Err(ReceiveError::OldEpoch { last: Epoch(2), .. })));
    follower.receive(&all[5..]).unwrap();
}

#[test]
fn a_full_disk_is_an_error_that_can_be_tried_again() {
    let (_, master) = master(20, 9000);
    let (disk, mut follower, all) = follower(&master, 0);
    // Room for the segment in use, two ready ones, and the control file with its successor.
    disk.set_capacity(Some(3 * SEGMENT_BYTES + 2 * BLOCK));
    let ends: Vec<usize> = (0..all.len()).filter(|index| all[*index].kind == BoxcarKind::SegmentEnd).collect();
    follower.receive(&all[..=ends[1]]).unwrap();
    let before = follower.trail.tip();
    for _ in 0..3 {
        let full = follower.receive(&all[ends[1] + 1..]).unwrap_err();
        assert!(matches!(full, ReceiveError::Full { .. }) && full.to_string().contains("Free space"), "{full}");
        assert_eq!(before, follower.trail.tip());
    }
    // Boxcars in the current segment can still be received.
    follower.receive(&all[ends[1] + 1..ends[2]]).unwrap();
    disk.set_capacity(None);
    // The preparer tries again because a receive was attempted, but after the answer.
    assert!(matches!(follower.receive(&all[ends[2]..]), Err(ReceiveError::Full { .. })));
    follower.receive(&all[ends[2]..]).unwrap();
    assert_eq!(shipped(&follower.trail), all);
}

#[test]
fn what_is_received_after_a_check_of_room_is_not_refused_again() {
    let (_, master) = master(20, 9000);
    let (disk, mut follower, all) = follower(&master, 0);
    disk.set_capacity(Some(3 * SEGMENT_BYTES + 2 * BLOCK));
    assert!(matches!(follower.receive(&all), Err(ReceiveError::Full { .. })));
    follower.trail.check_room();
    assert!(matches!(follower.receive(&all), Err(ReceiveError::Full { .. })), "there is none yet");
    disk.set_capacity(None);
    follower.trail.check_room();
    follower.receive(&all).unwrap();
    assert_eq!(shipped(&follower.trail), all);
}

#[test]
fn a_failed_write_or_sync_ends_it() {
    for sync in [false, true] {
        let (_, master) = master(6, 3000);
        let (disk, follower, all) = follower(&master, 2);
        drop(follower);
        let failures = Arc::new(AtomicU32::new(0));
        let count = failures.clone();
        let hook = Arc::new(move |_: &crate::Failure| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut follower = Follower::open_with(&disk, TrailOptions { on_failure: hook, ..options() }).unwrap();
        follower.receive(&[]).unwrap();
        if sync {
            disk.fail_sync(1)
        } else {
            disk.fail_write(1, rustix::io::Errno::IO)
        }
        assert_eq!(follower.receive(&all[2..4]), Err(ReceiveError::Failed));
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        assert_eq!(follower.receive(&all[2..4]), Err(ReceiveError::Failed), "it is never tried again");
        assert_eq!(follower.trail.tip().0, all[2].lsn);
        drop(follower);
        disk.cut_power();
        disk.restore_power();
        let kept = shipped(&Follower::open(&disk).unwrap().trail);
        assert!(kept.len() >= 2 && kept == all[..kept.len()]);
    }
}

/// A power cut in a write of several boxcars may keep a later one and lose an earlier one.
#[test]
fn a_torn_write_of_several_boxcars_is_a_tail_wherever_it_is_torn() {
    for (torn, recycled) in [(0, false), (1, false), (2, false), (0, true), (1, true), (2, true)] {
        for within in [0, 33, 300] {
            let (_, master) = master(40, 9000);
            let (disk, mut follower, all) = follower(&master, 1);
            // The last three boxcars of a segment, the end among them.
            let end = (0..all.len())
                .filter(|index| all[*index].kind == BoxcarKind::SegmentEnd)
                .nth(4 * usize::from(recycled));
            let last = end.unwrap();
            for boxcar in &all[1..last - 2] {
                follower.trail.retain_from(boxcar.lsn);
                follower.receive(std::slice::from_ref(boxcar)).unwrap();
            }
            follower.receive(&all[last - 2..=last]).unwrap();
            let hit = &all[last - 2 + torn];
            let segment = layout().segment_of(hit.lsn);
            drop(follower);
            let offset = layout().offset_of(hit.lsn) + within;
            let byte = disk.contents(&segment_file(1, segment)).unwrap()[offset as usize];
            disk.overwrite(&segment_file(1, segment), offset, &[byte ^ 0x10]);
            let again = Follower::open(&disk).unwrap_or_else(|error| panic!("boxcar {torn} byte {within}: {error}"));
            let unharmed = hit.kind == BoxcarKind::SegmentEnd && within == 300;
            assert_eq!(again.recovered.end, if unharmed { hit.end } else { hit.lsn });
            // In a recycled segment, a last boxcar without its head is taken for the segment's earlier content.
            let unseen = unharmed || (recycled && torn == 2 && within == 33);
            assert_eq!(again.recovered.cut.is_some(), !unseen, "boxcar {torn} byte {within}");
            if let Some(cut) = &again.recovered.cut {
                assert_eq!(cut.bytes, all[last].lsn.0 + BLOCK - hit.lsn.0, "with everything of the same write");
            }
        }
    }
}

#[test]
fn recycling_works_and_the_last_boxcar_stays_known() {
    let (_, master) = master(30, 9000);
    let (disk, mut follower, all) = follower(&master, 1);
    let end = all.iter().rposition(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).unwrap();
    for boxcar in &all[1..=end] {
        follower.trail.retain_from(Lsn(u64::MAX));
        follower.receive(std::slice::from_ref(boxcar)).unwrap();
    }
    follower.receive(&[]).unwrap();
    assert!(follower.trail.stats().segments_recycled > 3);
    // The current segment is still empty: the end of the previous one must be there for the next boxcar to refer to.
    drop(follower);
    let mut follower = Follower::open(&disk).unwrap();
    assert_eq!(follower.trail.tip(), (all[end].end, all[end].checksum));
    let other_chain = forged(&all[end + 1], |bytes| bytes[56] ^= 1);
    assert!(matches!(follower.receive(&[other_chain]), Err(ReceiveError::Chain { .. })));
    follower.receive(&all[end + 1..]).unwrap();
}

#[test]
fn a_follower_is_founded_in_the_middle_of_a_trail_and_only_once() {
    let (_, mut master) = master(20, 9000);
    master.trail.retain_from(master.end());
    master.prepare();
    let disk = FaultDisk::new(3);
    assert!(matches!(Follower::open(&disk), Err(TrailError::NothingToFollow { .. })));
    let mut follower = Follower::new(&disk, &master.trail).unwrap();
    assert!(layout().segment_of(master.trail.first()) > 1);
    assert_eq!(follower.trail.tip(), (master.trail.first(), 0));
    assert_eq!(master.trail.ends_with(master.trail.first(), 0).unwrap(), Match::Yes);
    let all = shipped(&master.trail);
    follower.receive(&all).unwrap();
    assert_eq!(shipped(&follower.trail), all);
    drop(follower);
    let again = Trail::found(&disk, Path::new(DIR), &follow_from(&master.trail));
    assert!(matches!(again, Err(TrailError::Exists { .. })));
    let mut nonsense = follow_from(&master.trail);
    nonsense.segment_bytes = 5000;
    assert!(matches!(Trail::found(&disk, Path::new("/other"), &nonsense), Err(TrailError::Option { .. })));
}

#[test]
fn a_founding_that_a_power_cut_ended_is_made_again() {
    let (_, master) = master(2, 100);
    let mut interrupted = 0;
    for changes in 1..30 {
        let disk = FaultDisk::new(changes);
        disk.cut_power_after(changes);
        let founded = Trail::found(&disk, Path::new(DIR), &follow_from(&master.trail));
        interrupted += u32::from(founded.is_err());
        disk.restore_power();
        disk.do_not_cut();
        let mut follower = match Follower::open(&disk) {
            Ok(follower) => follower,
            Err(TrailError::NothingToFollow { .. }) if founded.is_err() => Follower::new(&disk, &master.trail).unwrap(),
            Err(error) => panic!("after {changes} changes: {error}"),
        };
        follower.receive(&shipped(&master.trail)).unwrap();
    }
    assert!(interrupted > 5);
}

#[test]
fn a_promoted_follower_goes_on_in_a_higher_epoch() {
    let (_, master) = master(8, 9000);
    let (disk, follower, _) = follower(&master, 9);
    let (end, checksum) = follower.trail.tip();
    drop(follower);
    let mut promoted = Bench::open_with(&disk, TrailOptions { epoch_min: Epoch(6), ..options() }).unwrap();
    assert_eq!((promoted.recovered.epoch, promoted.recovered.end), (Epoch(7), end));
    assert_eq!(control(&disk).epoch, Epoch(7));
    promoted.append(8, 9000);
    let boxcar = shipped(&promoted.trail).into_iter().find(|boxcar| boxcar.lsn == end).unwrap();
    assert_eq!((boxcar.epoch, boxcar.previous_checksum), (Epoch(7), checksum));
    assert_eq!(numbers(&promoted.trail), (0..9).collect::<Vec<_>>());
    drop(promoted);
    let again = Bench::open(&disk).unwrap();
    assert_eq!(again.recovered.epoch, Epoch(8));
    drop(again);
    let none_left = Bench::open_with(&disk, TrailOptions { epoch_min: Epoch(u32::MAX), ..options() });
    assert!(matches!(none_left, Err(TrailError::Option { name: "epoch_min", .. })));
}

/// Also tests the preparer's thread: waiting for segments, and a clean close.
#[test]
fn a_closed_follower_has_proven_everything() {
    let (_, master) = master(20, 9000);
    let all = shipped(&master.trail);
    let disk = FaultDisk::new(2);
    Trail::found(&disk, Path::new(DIR), &follow_from(&master.trail)).unwrap();
    let clock = Arc::new(StepClock::starting_at(0));
    let options = TrailOptions { follow: true, segments_ready: 1, ..options() };
    let (trail, _) = Trail::open(Arc::new(disk.clone()), clock, options).unwrap();
    trail.receive(&all).unwrap();
    assert_eq!(trail.tip(), master.trail.tip());
    trail.close().unwrap();
    assert_eq!(trail.receive(&[]), Err(ReceiveError::Closed));
    assert_eq!(control(&disk).proven, trail.durable());
    assert_eq!(shipped(&Follower::open(&disk).unwrap().trail), all);
}
