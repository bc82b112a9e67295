//! The trail with its threads on the machine's own file system.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use holdfast_seams::{RealClock, RealDisk, SyncMethod};
use holdfast_trail::{Boxcar, BoxcarKind, Recovered, Trail, TrailError, TrailOptions};
use holdfast_types::Lsn;

/// Longer than anything here takes that ends at all.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub fn options(dir: &Path) -> TrailOptions {
    TrailOptions {
        segment_bytes: 256 << 10,
        boxcar_bytes_max: 32 << 10,
        kept_back_bytes: 16 << 10,
        ..TrailOptions::new(dir)
    }
}

pub fn open(options: TrailOptions) -> Result<(Trail, Recovered), TrailError> {
    Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options)
}

/// Waits for something that comes about.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WAIT_MAX, "still not so: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn records(trail: &Trail, from: Lsn) -> Vec<Vec<u8>> {
    let boxcars: Vec<Boxcar> = trail.read(from).unwrap().map(Result::unwrap).collect();
    boxcars.into_iter().filter(|boxcar| boxcar.kind == BoxcarKind::Data).map(|boxcar| boxcar.body).collect()
}

/// Appends `count` bodies of `bytes` and waits until all are durable.
pub fn append_all(trail: &Trail, count: u32, bytes: usize) -> Vec<u8> {
    let (done, durable) = mpsc::channel();
    let mut all = Vec::new();
    for number in 0..count {
        let mut body = vec![number as u8; bytes];
        body[..4].copy_from_slice(&number.to_le_bytes());
        all.extend_from_slice(&body);
        let reservation = trail.reserve(bytes as u64).unwrap();
        let done = done.clone();
        trail.append(reservation, body, Box::new(move |span| done.send((number, span)).unwrap())).unwrap();
    }
    let mut last = Lsn(0);
    for expected in 0..count {
        let (number, span) = durable.recv().unwrap();
        assert_eq!(number, expected, "called back in append order");
        assert!(span.start >= last && span.end > span.start && trail.durable() >= span.end);
        last = span.start;
    }
    all
}

#[test]
fn what_was_acknowledged_is_read_back_after_reopening_with_every_sync_method() {
    for method in [SyncMethod::OpenDirectDsync, SyncMethod::OpenSync, SyncMethod::Fdatasync, SyncMethod::Fsync] {
        let dir = tempfile::tempdir().unwrap();
        let options = TrailOptions { sync_method: method, ..options(&dir.path().join("trail")) };
        let (trail, recovered) = open(options.clone()).unwrap();
        assert!(recovered.fresh && recovered.epoch.0 == 1);
        let first = append_all(&trail, 1000, 1500);
        assert!(trail.stats().boxcars <= 1000 && trail.stats().segments_prepared > 4);
        trail.close().unwrap();
        let (trail, again) = open(options).unwrap();
        assert_eq!((again.fresh, again.epoch.0, again.cut.clone()), (false, 2, None));
        assert_eq!(again.trail_id, recovered.trail_id);
        let second = append_all(&trail, 10, 100);
        assert_eq!(records(&trail, again.first).concat(), [first, second.clone()].concat());
        assert_eq!(records(&trail, again.end).concat(), second);
    }
}

#[test]
fn a_second_process_is_told_that_the_trail_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(options(dir.path())).unwrap();
    let refused = open(options(dir.path())).err().unwrap();
    assert!(matches!(refused, TrailError::InUse { .. }) && refused.to_string().contains("in use"), "{refused}");
    drop(trail);
    open(options(dir.path())).unwrap();
}

#[test]
fn segments_not_retained_are_recycled_while_the_trail_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, recovered) = open(options(dir.path())).unwrap();
    for _ in 0..20 {
        append_all(&trail, 100, 3000);
        trail.retain_from(trail.durable());
    }
    // In the background; the last one's predecessor may have to stay.
    until("all segments that need not be retained are recycled", || {
        trail.durable().0 - trail.first().0 < 2 * trail.segment_bytes()
    });
    let stats = trail.stats();
    assert!(stats.segments_recycled > 10, "{stats:?}");
    assert!(matches!(trail.read(recovered.first), Err(TrailError::Gone { .. })));
    trail.close().unwrap();
    drop(trail);
    let files = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(files < 12, "{files} files are left");
    let (trail, again) = open(options(dir.path())).unwrap();
    assert_eq!(again.cut, None);
    assert!(again.first > recovered.first);
    let rest = records(&trail, again.first);
    assert!(!rest.is_empty());
    let tail = append_all(&trail, 3, 3000);
    assert_eq!(records(&trail, again.end).concat(), tail);
}

#[test]
fn an_idle_trail_proves_its_last_boxcar_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, recovered) = open(options(dir.path())).unwrap();
    append_all(&trail, 1, 100);
    until("it is proven", || trail.stats().proofs > 0);
    let last = trail.read(recovered.first).unwrap().last().unwrap().unwrap();
    assert_eq!(last.kind, BoxcarKind::Proof);
    trail.close().unwrap();
    let proofs = trail.stats().proofs;
    assert_eq!(proofs, 1, "closing need not prove it again");
}

#[test]
fn closing_writes_what_is_queued() {
    let dir = tempfile::tempdir().unwrap();
    let (trail, _) = open(options(dir.path())).unwrap();
    let (done, durable) = mpsc::channel();
    for number in 0..500_u32 {
        let done = done.clone();
        let on_durable = Box::new(move |_| done.send(number).unwrap());
        trail.append_kept(number.to_le_bytes().repeat(1000), on_durable).unwrap();
    }
    trail.close().unwrap();
    drop(done);
    assert_eq!(durable.iter().collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
    let (trail, again) = open(options(dir.path())).unwrap();
    assert_eq!(records(&trail, again.first).concat().len(), 500 * 4000);
}
