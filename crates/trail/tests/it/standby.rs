//! A master's trail and one that follows it, with their threads, on the machine's own file system.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use holdfast_seams::{RealClock, RealDisk, SyncMethod};
use holdfast_trail::{FollowFrom, Match, Shipped, Tap, Trail, TrailOptions};
use holdfast_types::Epoch;

fn options(dir: &Path) -> TrailOptions {
    TrailOptions {
        segment_bytes: 256 << 10,
        boxcar_bytes_max: 32 << 10,
        kept_back_bytes: 16 << 10,
        ..TrailOptions::new(dir)
    }
}

fn open(options: TrailOptions) -> Trail {
    Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options).unwrap().0
}

fn everything(trail: &Trail) -> Vec<Shipped> {
    let mut tap = trail.tap(trail.first()).unwrap();
    std::iter::from_fn(|| tap.next().unwrap()).collect()
}

/// Ships whatever there is, many boxcars at a time, each time there is more, until it learns that there is nothing left.
fn ship(mut tap: Tap, follower: &Trail, more: &mpsc::Receiver<bool>) {
    loop {
        let group: Vec<Shipped> = std::iter::from_fn(|| tap.next().unwrap()).take(50).collect();
        follower.receive(&group).unwrap();
        if group.is_empty() && !more.recv().unwrap() {
            return;
        }
    }
}

#[test]
fn a_follower_has_what_the_master_wrote_and_can_be_promoted() {
    for method in [SyncMethod::OpenDirectDsync, SyncMethod::Fdatasync] {
        let dir = tempfile::tempdir().unwrap();
        let (of_master, of_follower) = (dir.path().join("master"), dir.path().join("follower"));
        let master = open(TrailOptions { sync_method: method, ..options(&of_master) });
        let from = FollowFrom {
            trail_id: master.trail_id(),
            segment_bytes: master.segment_bytes(),
            first_segment: 1,
            epoch: master.epoch(),
        };
        Trail::found(&RealDisk::new(), &of_follower, &from).unwrap();
        let following = TrailOptions { sync_method: method, ..options(&of_follower) };
        let follower = open(TrailOptions { follow: true, ..following.clone() });
        let (progress, more) = mpsc::sync_channel(1);
        // A caller that knows it already need not learn it again.
        let hooked = progress.clone();
        master.on_progress(Arc::new(move || {
            let _ = hooked.try_send(true);
        }));
        let (tap, to) = (master.tap(master.first()).unwrap(), follower.clone());
        let shipper = std::thread::spawn(move || ship(tap, &to, &more));
        for number in 0..600_u32 {
            let reservation = master.reserve(3000).unwrap();
            let body = number.to_le_bytes().repeat(750);
            master.append(reservation, body, Box::new(|_| {})).unwrap();
        }
        master.close().unwrap();
        while follower.tip() != master.tip() {
            assert!(!shipper.is_finished(), "nothing more is shipped: {:?}", shipper.join());
            std::thread::sleep(Duration::from_millis(1));
        }
        let (end, checksum) = follower.tip();
        assert_eq!(master.ends_with(end, checksum).unwrap(), Match::Yes);
        assert_eq!((follower.end(), master.end()), ((end, checksum, master.epoch()), (end, checksum, master.epoch())));
        let written = everything(&master);
        assert_eq!(everything(&follower), written);
        assert!(follower.stats().segments_prepared > 5 && master.stats().appends == 600);
        progress.send(false).unwrap();
        shipper.join().unwrap();
        follower.close().unwrap();
        let closed = follower.closed();
        drop(follower);
        let promoted = open(TrailOptions { closed, ..following });
        assert_eq!(promoted.epoch().0, 2);
        let kept = everything(&promoted);
        assert_eq!(kept[..written.len()], written);
    }
}

/// A master writes nothing in its second and third epoch: a follower knows of them, and the master can forget them.
#[test]
fn epochs_without_boxcars_are_known_to_followers_and_can_be_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let (of_master, of_follower) = (dir.path().join("master"), dir.path().join("follower"));
    let master = open(options(&of_master));
    let reservation = master.reserve(100).unwrap();
    master.append(reservation, vec![7; 100], Box::new(|_| {})).unwrap();
    let from = FollowFrom {
        trail_id: master.trail_id(),
        segment_bytes: master.segment_bytes(),
        first_segment: 1,
        epoch: master.epoch(),
    };
    master.close().unwrap();
    Trail::found(&RealDisk::new(), &of_follower, &from).unwrap();
    let follow = |dir: &Path| open(TrailOptions { follow: true, ..options(dir) });
    let follower = follow(&of_follower);
    for epoch in [2, 3] {
        drop(master_again(&of_master, epoch));
        follower.know_epoch(Epoch(epoch)).unwrap();
        follower.know_epoch(Epoch(1)).unwrap();
        assert_eq!(follower.epoch(), Epoch(epoch));
    }
    follower.close().unwrap();
    drop(follower);
    assert_eq!(follow(&of_follower).epoch(), Epoch(3), "it is durable");
    assert_eq!(open(options(&of_follower)).epoch(), Epoch(4));

    Trail::forget_epochs(&RealDisk::new(), &of_master).unwrap();
    Trail::forget_epochs(&RealDisk::new(), &of_master).unwrap();
    let kept = follow(&of_master);
    assert_eq!(kept.epoch(), Epoch(1), "that of its last boxcar");
    assert!(Trail::forget_epochs(&RealDisk::new(), &of_master).is_err(), "it is open");
}

#[test]
fn the_epoch_of_a_failed_promotion_is_withdrawn() {
    let dir = tempfile::tempdir().unwrap();
    let (of_master, of_follower) = (dir.path().join("master"), dir.path().join("follower"));
    let master = open(options(&of_master));
    let from = FollowFrom {
        trail_id: master.trail_id(),
        segment_bytes: master.segment_bytes(),
        first_segment: 1,
        epoch: master.epoch(),
    };
    Trail::found(&RealDisk::new(), &of_follower, &from).unwrap();
    let withdraw = || Trail::withdraw_epoch(&RealDisk::new(), &of_follower, Epoch(1)).unwrap();
    let follow = || open(TrailOptions { follow: true, ..options(&of_follower) });
    // With an empty trail, and with one that has a boxcar.
    for _ in 0..2 {
        assert!(!withdraw(), "nothing was raised");
        drop(master_again(&of_follower, 2));
        assert!(withdraw());
        let follower = follow();
        assert_eq!(follower.epoch(), Epoch(1));
        let reservation = master.reserve(100).unwrap();
        let (sender, written) = mpsc::channel();
        master.append(reservation, vec![7; 100], Box::new(move |_| sender.send(()).unwrap())).unwrap();
        written.recv().unwrap();
        let mut tap = master.tap(follower.tip().0).unwrap();
        let group: Vec<Shipped> = std::iter::from_fn(|| tap.next().unwrap()).collect();
        follower.receive(&group).unwrap();
        follower.close().unwrap();
    }
    let promoted = open(options(&of_follower));
    let reservation = promoted.reserve(100).unwrap();
    promoted.append(reservation, vec![7; 100], Box::new(|_| {})).unwrap();
    promoted.close().unwrap();
    drop(promoted);
    assert!(!withdraw(), "something was written in it");
    assert_eq!(follow().epoch(), Epoch(2));
}

fn master_again(dir: &Path, epoch: u32) -> Trail {
    let master = open(options(dir));
    assert_eq!(master.epoch(), Epoch(epoch));
    master.close().unwrap();
    master
}

/// The last boxcar is of an older epoch until something is written in the new one, which may be nothing.
#[test]
fn a_master_that_has_nothing_to_write_can_have_a_boxcar_of_its_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let trail = open(options(dir.path()));
    assert_eq!(trail.end().2, Epoch(0), "there is none");
    let reservation = trail.reserve(100).unwrap();
    trail.append(reservation, vec![7; 100], Box::new(|_| {})).unwrap();
    trail.close().unwrap();
    let first = trail.end();
    assert_eq!(first.2, Epoch(1));
    drop(trail);
    let trail = open(options(dir.path()));
    assert_eq!((trail.end(), trail.epoch()), (first, Epoch(2)));
    for _ in 0..2 {
        trail.prove_soon();
    }
    while trail.end().2 != Epoch(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(trail.ends_with(first.0, first.1).unwrap(), Match::Yes);
    assert_eq!(trail.stats().proofs, 1);
    trail.close().unwrap();
}
