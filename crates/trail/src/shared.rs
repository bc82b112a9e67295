//! The state shared by the callers, the writer and the preparer, under one mutex that no thread holds during I/O.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_seams::{Clock, Disk, DiskFile};
use holdfast_types::histogram::Histogram;
use holdfast_types::{Epoch, Lsn};
use parking_lot::{Condvar, Mutex};

use crate::boxcar::Last;
use crate::control::Control;
use crate::delay::Delay;
use crate::layout::{Layout, TrailId};
use crate::live::Live;
use crate::options::{Failure, TrailOptions};
use crate::room::Room;

/// The position of a boxcar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub start: Lsn,
    /// LSN at which the next boxcar starts, if it is in this segment.
    pub end: Lsn,
}

/// Called by the writing thread, in append order, when the append is durable. It must neither block nor append.
pub type OnDurable = Box<dyn FnOnce(Span) + Send>;

pub struct Append {
    pub body: Vec<u8>,
    pub charge: u64,
    /// Number of transactions that wait for it.
    pub commits: usize,
    pub on_durable: OnDurable,
}

/// A prepared segment, open for the writer.
pub struct Ready {
    pub segment: u32,
    pub path: PathBuf,
    pub file: Box<dyn DiskFile>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Running,
    /// Closing: queued appends are still written, new ones are refused.
    Stopping,
    /// The writer has finished.
    Stopped,
    /// A write or sync failed; nothing more will become durable.
    Failed,
}

pub struct State {
    pub phase: Phase,
    pub queue: VecDeque<Append>,
    /// Number of transactions that wait for the queued appends.
    pub queued_commits: usize,
    pub delay: Delay,
    pub room: Room,
    pub ready: VecDeque<Ready>,
    /// Time at which the last boxcar with records became durable; `None` after a proof follows it.
    pub unproven_since: Option<Instant>,
    /// Whether the writer's thread waits until it is woken, and not until a proof is due.
    pub dozing: bool,
    /// Number of callers of `reserve` that wait for the preparer.
    pub waiters: usize,
    /// Whether the last attempt to prepare a segment found the disk full.
    pub disk_full: bool,
    /// Why reservations are refused although there is room.
    pub refusal: Option<Arc<str>>,
    /// Whether to try again: the disk may have room, or segments may be recyclable.
    pub retry: bool,
    pub retained_from: Lsn,
    /// The segment that is to end as soon as there is a next one, though it is not full.
    pub end_wanted: Option<u32>,
    /// Readable segments: those in use and those ready.
    pub segments: BTreeMap<u32, PathBuf>,
    pub stats: TrailStats,
}

impl State {
    /// Whether the segment being written can end although it is not full.
    pub fn can_end_segment(&self) -> bool {
        !self.ready.is_empty() && self.room.can_leave_segment()
    }
}

/// Counters since the trail was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TrailStats {
    pub appends: u64,
    /// Boxcars with records. `appends` divided by this is the size of a group commit.
    pub boxcars: u64,
    pub body_bytes: u64,
    /// Bytes on disk, padding included.
    pub disk_bytes: u64,
    /// Number of times the writer waited for more commits; the next field is the total in microseconds.
    pub delays: u64,
    pub delayed_us: u64,
    /// Empty boxcars written to prove the preceding one durable.
    pub proofs: u64,
    pub segments_prepared: u64,
    pub segments_recycled: u64,
    /// Number of times the writer found no segment ready and had to wait.
    pub segment_waits: u64,
}

pub struct Shared {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub options: TrailOptions,
    pub layout: Layout,
    pub trail_id: TrailId,
    epoch: AtomicU32,
    pub incarnation: u32,
    pub state: Mutex<State>,
    /// Signals that appends were queued, or that the trail stops.
    pub work: Condvar,
    /// Signals that the preparer has work.
    pub prepare: Condvar,
    /// Signals that room was made, or that there will be none.
    pub room: Condvar,
    /// Signals that a segment is ready.
    pub segment_ready: Condvar,
    pub control: Mutex<Control>,
    /// The time of each boxcar's write and sync, in microseconds.
    pub sync_times: Histogram,
    /// When the write and sync that is under way began.
    under_way: UnderWay,
    /// Number of transactions that waited for each boxcar; a trail that follows another one counts none.
    pub boxcar_commits: Histogram,
    /// The newest boxcars, for followers of the trail.
    pub live: Live,
    durable: AtomicU64,
    /// The durable position, and what the next boxcar needs to know about the one that ends there; `None` when there is
    /// none.
    tip: Mutex<(Lsn, Option<Last>)>,
}

/// Since when one thing has been under way, read by other threads without a lock.
struct UnderWay {
    origin: Instant,
    /// Microseconds since the origin, and 1; 0: nothing is under way.
    since: AtomicU64,
}

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay { origin: Instant::now(), since: AtomicU64::new(0) }
    }
}

impl UnderWay {
    fn begins(&self, now: Instant) {
        let since = now.saturating_duration_since(self.origin).as_micros() as u64 + 1;
        self.since.store(since, Ordering::Release);
    }

    fn ended(&self) {
        self.since.store(0, Ordering::Release);
    }

    fn since(&self) -> Option<Duration> {
        let since = self.since.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.origin.elapsed().saturating_sub(Duration::from_micros(since)))
    }
}

impl Shared {
    pub fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: TrailOptions,
        control: Control,
        (end, last): (Lsn, Option<Last>),
        state: State,
    ) -> Shared {
        Shared {
            disk,
            clock,
            sync_times: Histogram::of_times(),
            under_way: UnderWay::default(),
            boxcar_commits: Histogram::of_counts(),
            live: Live::new(options.tap_bytes_max),
            options,
            layout: Layout { segment_bytes: control.segment_bytes },
            trail_id: control.trail_id,
            epoch: AtomicU32::new(control.epoch.0),
            incarnation: control.incarnation,
            state: Mutex::new(state),
            work: Condvar::new(),
            prepare: Condvar::new(),
            room: Condvar::new(),
            segment_ready: Condvar::new(),
            control: Mutex::new(control),
            durable: AtomicU64::new(end.0),
            tip: Mutex::new((end, last)),
        }
    }

    /// A write and its sync begin.
    pub fn sync_begins(&self) -> Instant {
        let now = Instant::now();
        self.under_way.begins(now);
        now
    }

    /// They have returned.
    pub fn sync_ended(&self, began: Instant) {
        self.under_way.ended();
        self.sync_times.observe(began.elapsed().as_micros() as u64);
    }

    /// For how long a write and its sync have been under way; `None`: none is.
    pub fn sync_under_way(&self) -> Option<Duration> {
        self.under_way.since()
    }

    /// All bytes below this LSN are durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Records that all bytes below `lsn`, the position of the next boxcar, are durable; `last` describes the boxcar
    /// before it.
    pub fn advance(&self, lsn: Lsn, last: Last) {
        {
            // Both change under the lock, so that a thread that sees one and then reads the tip sees the other.
            let mut tip = self.tip.lock();
            *tip = (lsn, Some(last));
            self.durable.store(lsn.0, Ordering::Release);
        }
        self.live.progress();
    }

    /// The durable position and the checksum of the boxcar that ends there, 0 when there is none.
    pub fn tip(&self) -> (Lsn, u32) {
        let (lsn, last) = self.end();
        (lsn, last.map_or(0, |last| last.checksum))
    }

    /// The durable position, and the last boxcar with its epoch.
    pub fn end(&self) -> (Lsn, Option<Last>) {
        *self.tip.lock()
    }

    /// The epoch of the boxcars being written; in a follower, the highest epoch it has received.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Sets the epoch; the control file already has it durably.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }

    /// The oldest position that can be read.
    pub fn first(&self) -> Lsn {
        self.layout.first_lsn(self.control.lock().first_segment)
    }

    /// Logs the failure, marks the trail as failed, wakes all waiting threads and calls the failure hook, which does
    /// not return outside tests.
    pub fn fail(&self, failure: &Failure) {
        tracing::error!(
            file = %failure.file.display(),
            offset = failure.offset,
            error = %failure.error,
            "cannot {} the trail: nothing more is written to it, because unsynced data may be lost",
            failure.what
        );
        (self.options.on_failure)(failure);
        let mut state = self.state.lock();
        state.phase = Phase::Failed;
        state.queue.clear();
        drop(state);
        self.wake_all();
    }

    pub fn wake_all(&self) {
        self.work.notify_all();
        self.prepare.notify_all();
        self.room.notify_all();
        self.segment_ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_is_seen_until_it_ends() {
        let under_way = UnderWay::default();
        assert_eq!(under_way.since(), None);
        // Also what begins in the same microsecond.
        under_way.begins(under_way.origin);
        assert!(under_way.since().is_some());
        under_way.begins(under_way.origin + Duration::from_secs(3600));
        assert_eq!(under_way.since(), Some(Duration::ZERO));
        under_way.ended();
        assert_eq!(under_way.since(), None);
    }
}
