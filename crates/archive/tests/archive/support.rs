//! A trail whose segments are small, and what it holds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_archive::{Codec, FileStore, Kept, Store, put};
use holdfast_seams::testing::{FaultDisk, StepClock};
use holdfast_trail::{CommitDelay, FollowFrom, Shipped, Trail, TrailError, TrailId, TrailOptions};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;

pub const SEGMENT_BYTES: u64 = 64 << 10;
pub const ID: TrailId = TrailId(*b"simulated trail!");

pub fn options(dir: &str) -> TrailOptions {
    TrailOptions {
        segment_bytes: SEGMENT_BYTES,
        boxcar_bytes_max: 12 << 10,
        kept_back_bytes: 8192,
        commit_delay: CommitDelay::Off,
        // Proofs come from a thread, in real time: none here.
        proof_delay: Duration::from_secs(1 << 30),
        on_failure: Arc::new(|_| {}),
        new_trail_id: Some(ID),
        ..TrailOptions::new(dir)
    }
}

pub fn open(disk: &FaultDisk, options: TrailOptions) -> Result<Trail, TrailError> {
    let clock = Arc::new(StepClock::starting_at(1_700_000_000_000));
    Trail::open(Arc::new(disk.clone()), clock, options).map(|(trail, _)| trail)
}

/// Appends a record of so many bytes of `fill`; false when the disk has failed.
pub fn append(trail: &Trail, bytes: usize, fill: u8) -> bool {
    let durable = Arc::new(Mutex::new(false));
    let set = durable.clone();
    let Ok(reservation) = trail.reserve(bytes as u64) else { return false };
    let on_durable = Box::new(move |_| *set.lock() = true);
    if trail.append_now(reservation, vec![fill; bytes], on_durable).is_err() {
        return false;
    }
    // Whoever is writing otherwise is the trail's own thread; a trail that has failed reserves nothing more.
    loop {
        if *durable.lock() {
            return true;
        }
        if trail.reserve(1).is_err() {
            return *durable.lock();
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Appends until the trail is in segment `number`.
pub fn fill_up_to(trail: &Trail, number: u32, fill: u8) {
    while trail.durable() <= trail.start_of(number) {
        assert!(append(trail, 9000, fill));
    }
}

/// A trail with the segments before `number` finished.
pub fn trail_up_to(disk: &FaultDisk, dir: &str, number: u32) -> Trail {
    let trail = open(disk, options(dir)).unwrap();
    fill_up_to(&trail, number, 1);
    trail
}

pub fn store(disk: &FaultDisk) -> FileStore {
    FileStore::new(Arc::new(disk.clone()), Path::new("/archive"), "a")
}

pub async fn put_one(store: &dyn Store, trail: &Trail, number: u32) -> Kept {
    put(store, trail, number, Codec::Zstd).await.unwrap().unwrap()
}

/// Lets the trail recycle everything before segment `number`, and waits until it has.
pub fn recycle_up_to(trail: &Trail, number: u32) {
    trail.retain_from(trail.start_of(number));
    while trail.first() < trail.start_of(number) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Every boxcar of a trail that is durable.
pub fn shipped(trail: &Trail) -> Vec<Shipped> {
    trail.read_shipped(trail.first()).unwrap().map(Result::unwrap).collect()
}

/// A copy of a trail up to `end`, opened as a master of that epoch, or a later one: a standby that was promoted.
pub fn promoted(disk: &FaultDisk, dir: &str, of: &Trail, end: Lsn, epoch: u32) -> Trail {
    let from = FollowFrom {
        trail_id: of.trail_id(),
        segment_bytes: SEGMENT_BYTES,
        first_segment: of.segment_of(of.first()),
        epoch: of.epoch(),
    };
    Trail::found(disk, Path::new(dir), &from).unwrap();
    let standby = open(disk, TrailOptions { follow: true, ..options(dir) }).unwrap();
    for boxcar in shipped(of).into_iter().take_while(|boxcar| boxcar.end <= end) {
        standby.receive(&[boxcar]).unwrap();
    }
    standby.close().unwrap();
    drop(standby);
    open(disk, TrailOptions { epoch_min: Epoch(epoch - 1), ..options(dir) }).unwrap()
}
