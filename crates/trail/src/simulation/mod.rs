//! The trail on a simulated disk, without threads: the test itself runs each step of the writer and the preparer, so
//! that a seed decides the whole run.

mod cutting_back;
mod faults;
mod following;
mod power_cuts;
mod rules;
mod standby;
mod table;
mod taps;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::testing::{FaultDisk, StepClock};
use holdfast_types::Lsn;
use parking_lot::Mutex;

use crate::boxcar::shipped_checksum;
use crate::error::{ReceiveError, TrailError};
use crate::follow::FollowFrom;
use crate::layout::{Layout, TrailId, segment_name};
use crate::open::{Parts, open_parts};
use crate::options::TrailOptions;
use crate::preparer::{Preparer, Round};
use crate::room::charge_bytes;
use crate::shared::{Phase, Span};
use crate::shipped::Shipped;
use crate::trail::{Recovered, Trail, TrailRole};
use crate::writer::Writer;
use crate::{Boxcar, BoxcarKind};

pub const SEGMENT_BYTES: u64 = 64 << 10;
pub const DIR: &str = "/trail";
pub const ID: TrailId = TrailId(*b"simulated trail!");

pub fn options() -> TrailOptions {
    TrailOptions {
        segment_bytes: SEGMENT_BYTES,
        boxcar_bytes_max: 12 << 10,
        kept_back_bytes: 8192,
        on_failure: Arc::new(|_| {}),
        new_trail_id: Some(ID),
        ..TrailOptions::new(DIR)
    }
}

pub fn layout() -> Layout {
    Layout { segment_bytes: SEGMENT_BYTES }
}

/// The path of a segment by the epoch in which it was put into service.
pub fn segment_file(epoch: u32, segment: u32) -> PathBuf {
    Path::new(DIR).join(segment_name(holdfast_types::Epoch(epoch), segment))
}

/// An open trail, with its steps.
pub struct Bench {
    pub trail: Trail,
    pub writer: Writer,
    pub preparer: Preparer,
    pub recovered: Recovered,
    /// Number and position of every append that was reported durable.
    pub acknowledged: Arc<Mutex<Vec<(u64, Span)>>>,
}

impl Bench {
    pub fn open(disk: &FaultDisk) -> Result<Bench, TrailError> {
        Bench::open_with(disk, options())
    }

    pub fn open_with(disk: &FaultDisk, options: TrailOptions) -> Result<Bench, TrailError> {
        Bench::open_at(disk, options, 1_700_000_000_000)
    }

    /// Opens with a clock that stands still at this time.
    pub fn open_at(disk: &FaultDisk, options: TrailOptions, unix_ms: u64) -> Result<Bench, TrailError> {
        let clock = Arc::new(StepClock::starting_at(unix_ms));
        let Parts { shared, role, preparer, lock, recovered } = open_parts(Arc::new(disk.clone()), clock, options)?;
        let TrailRole::Writes(writer) = role else { panic!("it follows") };
        let writer = Arc::into_inner(writer).unwrap().into_inner();
        let trail = Trail::without_threads(shared, TrailRole::Driven, lock);
        Ok(Bench { trail, writer, preparer, recovered, acknowledged: Arc::default() })
    }

    /// Queues record `number` with a total of `bytes` bytes, without a reservation.
    pub fn queue(&self, number: u64, bytes: usize) {
        let acknowledged = self.acknowledged.clone();
        let on_durable = Box::new(move |span| acknowledged.lock().push((number, span)));
        // A failed trail refuses; its records are not acknowledged.
        let _ = self.trail.append_kept(record(number, bytes), on_durable);
    }

    /// Lets the preparer work until it has nothing to do. Returns false when it failed.
    pub fn prepare(&mut self) -> bool {
        loop {
            match self.preparer.round() {
                Round::Busy => {}
                Round::Idle => return true,
                Round::Failed => return false,
            }
        }
    }

    /// One turn of the writer, with the segments that it may need. Returns false when it failed.
    pub fn write(&mut self, idle: bool) -> bool {
        self.prepare() && self.writer.step(idle).is_ok()
    }

    /// Queues and writes a record, and returns its position. For tests in which nothing fails.
    pub fn append(&mut self, number: u64, bytes: usize) -> Span {
        self.queue(number, bytes);
        assert!(self.write(false));
        self.acknowledged.lock().last().unwrap().1
    }

    /// Writes the idle proof.
    pub fn prove(&mut self) {
        assert!(self.write(true));
    }

    pub fn boxcars(&self) -> Vec<Boxcar> {
        self.trail.read(self.recovered.first).unwrap().map(Result::unwrap).collect()
    }

    /// Numbers of all readable records; checks every byte of them.
    pub fn numbers(&self) -> Vec<u64> {
        numbers(&self.trail)
    }

    /// Whether a reservation of that many bytes would be granted without waiting.
    pub fn has_room(&self, body_bytes: u64) -> bool {
        self.trail.state().room.clone().try_charge(charge_bytes(body_bytes))
    }

    /// Does the same as a caller of `reserve` that finds no room, before it waits.
    pub fn want_segment(&mut self) {
        self.trail.state().waiters += 1;
        self.prepare();
        self.trail.state().waiters -= 1;
    }

    pub fn end(&self) -> Lsn {
        self.trail.durable()
    }
}

/// A trail that follows another one, with its preparer's steps.
pub struct Follower {
    pub trail: Trail,
    pub preparer: Preparer,
    pub recovered: Recovered,
}

impl Follower {
    pub fn open(disk: &FaultDisk) -> Result<Follower, TrailError> {
        Follower::open_with(disk, options())
    }

    pub fn open_with(disk: &FaultDisk, options: TrailOptions) -> Result<Follower, TrailError> {
        let options = TrailOptions { follow: true, ..options };
        let clock = Arc::new(StepClock::starting_at(1_800_000_000_000));
        let Parts { shared, role, preparer, lock, recovered } = open_parts(Arc::new(disk.clone()), clock, options)?;
        Ok(Follower { trail: Trail::without_threads(shared, role, lock), preparer, recovered })
    }

    /// Makes a follower that begins where the master's trail does and is still empty.
    pub fn new(disk: &FaultDisk, master: &Trail) -> Result<Follower, TrailError> {
        Trail::found(disk, Path::new(DIR), &follow_from(master))?;
        Follower::open(disk)
    }

    /// Receives, with the segments that it may need. A preparer that failed has marked the trail as failed.
    pub fn receive(&mut self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        let ends = boxcars.iter().filter(|boxcar| boxcar.kind == BoxcarKind::SegmentEnd).count();
        while self.preparer.round() == Round::Busy {}
        loop {
            let state = self.trail.state();
            if state.ready.len() >= ends || state.disk_full || state.phase != Phase::Running {
                break;
            }
            drop(state);
            self.trail.state().waiters += 1;
            self.preparer.round();
            self.trail.state().waiters -= 1;
        }
        self.trail.receive(boxcars)
    }
}

/// What a follower needs to know to begin where that trail does.
pub fn follow_from(master: &Trail) -> FollowFrom {
    FollowFrom {
        trail_id: master.trail_id(),
        segment_bytes: master.segment_bytes(),
        first_segment: layout().segment_of(master.first()),
        epoch: master.epoch(),
    }
}

/// All durable boxcars of a trail in shipped form.
pub fn shipped(trail: &Trail) -> Vec<Shipped> {
    let mut tap = trail.tap(trail.first()).unwrap();
    std::iter::from_fn(|| tap.next().unwrap()).collect()
}

/// Makes a copy of the boxcar with some bytes changed and a checksum that matches them.
pub fn forged(boxcar: &Shipped, change: impl FnOnce(&mut [u8])) -> Shipped {
    let mut bytes = boxcar.bytes.to_vec();
    change(&mut bytes);
    let checksum = shipped_checksum(&bytes);
    bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
    Shipped { checksum, bytes: bytes.into(), ..boxcar.clone() }
}

/// The seeds to run: the one in `HOLDFAST_SEED`, or `HOLDFAST_SEEDS` of them from `HOLDFAST_SEED_FIRST` on.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("HOLDFAST_SEED_FIRST").unwrap_or(0);
            first..first + number("HOLDFAST_SEEDS").unwrap_or(usual)
        }
    }
}

/// A record: its length, its number, and bytes that follow from both.
pub fn record(number: u64, bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(bytes.max(12));
    record.extend_from_slice(&(bytes.max(12) as u32).to_le_bytes());
    record.extend_from_slice(&number.to_le_bytes());
    while record.len() < bytes {
        record.push((number as usize * 31 + record.len()) as u8);
    }
    record
}

/// Numbers of all readable records; checks every byte of them.
pub fn numbers(trail: &Trail) -> Vec<u64> {
    let boxcars = trail.read(trail.first()).unwrap().map(Result::unwrap);
    boxcars.filter(|boxcar| boxcar.kind == BoxcarKind::Data).flat_map(|boxcar| parse(&boxcar.body)).collect()
}

fn parse(mut body: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !body.is_empty() {
        let len = crate::bytes::u32_at(body, 0) as usize;
        let number = crate::bytes::u64_at(body, 4);
        assert_eq!(body[..len], record(number, len), "record {number} is not what was appended");
        numbers.push(number);
        body = &body[len..];
    }
    numbers
}
