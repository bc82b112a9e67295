//! Cutting a trail back to the position where it diverged from its new master's.

use std::path::Path;

use holdfast_seams::Disk;
use holdfast_seams::testing::FaultDisk;
use holdfast_types::Lsn;

use super::{Bench, DIR, Follower, layout, shipped};
use crate::boxcar::{HEAD_BYTES, SHIPPED};
use crate::layout::BLOCK;
use crate::{Match, Shipped, Trail, TrailError};

/// A trail over several segments after a power cut, and its boxcars.
fn forked() -> (FaultDisk, Vec<Shipped>) {
    let disk = FaultDisk::new(1);
    let mut bench = Bench::open(&disk).unwrap();
    for number in 0..20 {
        bench.append(number, 9000);
    }
    let all = shipped(&bench.trail);
    disk.cut_power();
    drop(bench);
    disk.restore_power();
    (disk, all)
}

/// Shipped bytes of the boxcars in a saved tail.
fn saved(disk: &FaultDisk, path: &Path) -> Vec<Vec<u8>> {
    let bytes = disk.contents(path).unwrap();
    let mut boxcars = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = HEAD_BYTES + crate::bytes::u32_at(&bytes, at + 84) as usize;
        boxcars.push(bytes[at + SHIPPED..at + len].to_vec());
        at += crate::boxcar::disk_bytes((len - HEAD_BYTES) as u64) as usize;
    }
    boxcars
}

#[test]
fn what_is_cut_off_is_saved_and_everything_in_front_stays() {
    let (_, all) = forked();
    for keep in 0..all.len() {
        let (disk, all) = forked();
        let lsn = all[keep].lsn;
        let cut = Trail::cut_back(&disk, Path::new(DIR), lsn).unwrap().unwrap();
        let kept_aside: Vec<Vec<u8>> = all[keep..].iter().map(|boxcar| boxcar.bytes.to_vec()).collect();
        assert_eq!(saved(&disk, &cut.saved_to), kept_aside, "cut at boxcar {keep}");
        disk.cut_power();
        disk.restore_power();
        let mut follower = Follower::open(&disk).unwrap();
        assert_eq!((follower.recovered.cut.clone(), follower.recovered.end), (None, lsn));
        assert_eq!(shipped(&follower.trail), all[..keep]);
        let last = keep.checked_sub(1).map_or(0, |last| all[last].checksum);
        assert_eq!(follower.trail.tip(), (lsn, last));
        assert_eq!(follower.trail.ends_with(lsn, last).unwrap(), Match::Yes);
        follower.receive(&all[keep..]).unwrap();
        assert_eq!(shipped(&follower.trail), all);
    }
}

#[test]
fn only_the_end_of_a_boxcar_can_be_cut_at() {
    let (disk, all) = forked();
    let before = disk.contents(&super::segment_file(1, 1));
    let end = all.last().unwrap().end;
    let wrong = [
        Lsn(all[2].lsn.0 + BLOCK),
        Lsn(all[2].lsn.0 + 1),
        Lsn(end.0 + BLOCK),
        Lsn(u64::MAX),
        layout().lsn(2, 0),
        layout().lsn(2, 1),
    ];
    for lsn in wrong {
        let refused = Trail::cut_back(&disk, Path::new(DIR), lsn);
        assert!(matches!(refused, Err(TrailError::NotABoundary { .. })), "{lsn}: {refused:?}");
    }
    assert!(matches!(Trail::cut_back(&disk, Path::new(DIR), Lsn(7)), Err(TrailError::Gone { .. })));
    assert_eq!(Trail::cut_back(&disk, Path::new(DIR), end).unwrap(), None);
    assert_eq!(disk.contents(&super::segment_file(1, 1)), before);
    let bench = Bench::open(&disk).unwrap();
    assert!(matches!(Trail::cut_back(&disk, Path::new(DIR), end), Err(TrailError::InUse { .. })));
    drop(bench);
    let none = Trail::cut_back(&FaultDisk::new(1), Path::new("/"), Lsn(4096));
    assert!(matches!(none, Err(TrailError::NothingToFollow { .. })));
}

/// After a crash at any point the trail is as before, or it ends at the cut; it is never reported as damaged, and the
/// part cut off is saved.
#[test]
fn a_crash_while_cutting_back_leaves_the_trail_whole_or_cut() {
    let (mut whole, mut cut_there) = (0, 0);
    for changes in 1..60 {
        for open_between in [false, true] {
            let (disk, all) = forked();
            let lsn = all[4].lsn;
            disk.cut_power_after(changes);
            let done = Trail::cut_back(&disk, Path::new(DIR), lsn).is_ok();
            disk.restore_power();
            disk.do_not_cut();
            if open_between {
                let follower = Follower::open(&disk).unwrap_or_else(|error| panic!("after {changes}: {error}"));
                let found = shipped(&follower.trail);
                assert!(found == all || found == all[..4], "after {changes} changes: {} boxcars", found.len());
                assert!(!done || found.len() == 4);
                whole += u32::from(found.len() > 4);
                cut_there += u32::from(found.len() == 4 && !done);
            }
            Trail::cut_back(&disk, Path::new(DIR), lsn).unwrap();
            let mut follower = Follower::open(&disk).unwrap();
            assert_eq!(shipped(&follower.trail), all[..4], "after {changes} changes");
            let names = disk.list(Path::new(DIR)).unwrap();
            let kept_aside: Vec<Vec<u8>> = all[4..].iter().map(|boxcar| boxcar.bytes.to_vec()).collect();
            let is_saved = |name: &String| saved(&disk, &Path::new(DIR).join(name)) == kept_aside;
            assert!(names.iter().filter(|name| name.ends_with(".tail")).any(is_saved), "{names:?}");
            follower.receive(&all[4..]).unwrap();
        }
    }
    assert!(whole > 3 && cut_there > 3, "{whole} whole, {cut_there} cut by recovery");
}
