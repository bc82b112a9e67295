//! The trail on a simulated disk, without threads: the test takes each step of the writer and the preparer itself, so
//! that a seed decides the whole run.

mod faults;
mod power_cuts;
mod rules;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::testing::{FaultDisk, StepClock};
use holdfast_types::Lsn;
use parking_lot::Mutex;

use crate::error::TrailError;
use crate::layout::{Layout, TrailId, segment_name};
use crate::open::{Parts, open_parts};
use crate::options::TrailOptions;
use crate::preparer::{Preparer, Round};
use crate::room::charge_bytes;
use crate::shared::Span;
use crate::trail::{Recovered, Role, Trail};
use crate::writer::Writer;
use crate::{Boxcar, Kind};

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

/// The path of a segment by the epoch it was put into service in.
pub fn segment_file(epoch: u32, segment: u32) -> PathBuf {
    Path::new(DIR).join(segment_name(holdfast_types::Epoch(epoch), segment))
}

/// An open trail and its steps.
pub struct Bench {
    pub trail: Trail,
    pub writer: Writer,
    pub preparer: Preparer,
    pub recovered: Recovered,
    /// Number and place of every append that was reported durable.
    pub acknowledged: Arc<Mutex<Vec<(u64, Span)>>>,
}

impl Bench {
    pub fn open(disk: &FaultDisk) -> Result<Bench, TrailError> {
        Bench::open_with(disk, options())
    }

    pub fn open_with(disk: &FaultDisk, options: TrailOptions) -> Result<Bench, TrailError> {
        Bench::open_at(disk, options, 1_700_000_000_000)
    }

    /// Opens with a clock that stands there.
    pub fn open_at(disk: &FaultDisk, options: TrailOptions, unix_ms: u64) -> Result<Bench, TrailError> {
        let clock = Arc::new(StepClock::starting_at(unix_ms));
        let Parts { shared, role, preparer, lock, recovered } = open_parts(Arc::new(disk.clone()), clock, options)?;
        let Role::Writes(writer) = role else { panic!("it follows") };
        let writer = Arc::into_inner(writer).unwrap().into_inner();
        let trail = Trail::without_threads(shared, Role::Driven, lock);
        Ok(Bench { trail, writer, preparer, recovered, acknowledged: Arc::default() })
    }

    /// Queues record `number` of `bytes` bytes in all, without a reservation.
    pub fn queue(&self, number: u64, bytes: usize) {
        let acknowledged = self.acknowledged.clone();
        let told = Box::new(move |span| acknowledged.lock().push((number, span)));
        // A trail that has failed refuses; its records are not acknowledged.
        let _ = self.trail.append_kept(record(number, bytes), told);
    }

    /// Lets the preparer work until it has nothing to do; false when it failed.
    pub fn prepare(&mut self) -> bool {
        loop {
            match self.preparer.round() {
                Round::Busy => {}
                Round::Idle => return true,
                Round::Failed => return false,
            }
        }
    }

    /// One turn of the writer with the segments it may need ready; false when it failed.
    pub fn write(&mut self, idle: bool) -> bool {
        self.prepare() && self.writer.step(idle).is_ok()
    }

    /// Queues, writes and returns where it went. For tests in which nothing fails.
    pub fn append(&mut self, number: u64, bytes: usize) -> Span {
        self.queue(number, bytes);
        assert!(self.write(false));
        self.acknowledged.lock().last().unwrap().1
    }

    /// The idle proof.
    pub fn prove(&mut self) {
        assert!(self.write(true));
    }

    pub fn boxcars(&self) -> Vec<Boxcar> {
        self.trail.read(self.recovered.first).unwrap().map(Result::unwrap).collect()
    }

    /// Numbers of all readable records; every byte of them is checked.
    pub fn numbers(&self) -> Vec<u64> {
        self.boxcars()
            .iter()
            .filter(|boxcar| boxcar.kind == Kind::Data)
            .flat_map(|boxcar| parse(&boxcar.body))
            .collect()
    }

    /// Whether a reservation of that many bytes would be granted at once.
    pub fn has_room(&self, body_bytes: u64) -> bool {
        self.trail.state().room.clone().try_charge(charge_bytes(body_bytes))
    }

    /// Does what a caller of `reserve` that finds no room does before it waits.
    pub fn want_segment(&mut self) {
        self.trail.state().waiters += 1;
        self.prepare();
        self.trail.state().waiters -= 1;
    }

    pub fn end(&self) -> Lsn {
        self.trail.durable()
    }
}

/// Length, number, and bytes that follow from both.
pub fn record(number: u64, bytes: usize) -> Vec<u8> {
    let mut record = Vec::with_capacity(bytes.max(12));
    record.extend_from_slice(&(bytes.max(12) as u32).to_le_bytes());
    record.extend_from_slice(&number.to_le_bytes());
    while record.len() < bytes {
        record.push((number as usize * 31 + record.len()) as u8);
    }
    record
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
