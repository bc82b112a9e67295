//! What the callers, the writer and the preparer share, under one mutex that nobody holds during I/O.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use holdfast_seams::{Clock, Disk, DiskFile};
use holdfast_types::{Epoch, Lsn};
use parking_lot::{Condvar, Mutex};

use crate::boxcar::Last;
use crate::control::Control;
use crate::delay::Delay;
use crate::layout::{Layout, TrailId};
use crate::live::Live;
use crate::options::{Failure, TrailOptions};
use crate::room::Room;

/// Where a boxcar lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub start: Lsn,
    /// Where the boxcar behind it starts, if that is in the same segment.
    pub end: Lsn,
}

/// Called by the thread that writes, in append order, when the append is durable. It must not block nor append.
pub type OnDurable = Box<dyn FnOnce(Span) + Send>;

pub struct Append {
    pub body: Vec<u8>,
    pub charge: u64,
    /// Transactions that wait for it.
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
    /// Closing: what is queued is still written, nothing new is taken.
    Stopping,
    /// The writer is done.
    Stopped,
    /// A write or sync failed; nothing will become durable any more.
    Failed,
}

pub struct State {
    pub phase: Phase,
    pub queue: VecDeque<Append>,
    /// Transactions that wait for what is queued.
    pub queued_commits: usize,
    pub delay: Delay,
    pub room: Room,
    pub ready: VecDeque<Ready>,
    /// When the last boxcar with records became durable, until a proof follows it.
    pub unproven_since: Option<Instant>,
    /// The writer's thread waits until it is woken, not for a proof to be due.
    pub dozing: bool,
    /// Callers of `reserve` waiting for the preparer.
    pub waiters: usize,
    /// The last attempt to prepare a segment found the disk full.
    pub disk_full: bool,
    /// Why nothing more is to be reserved, though there is room.
    pub refusal: Option<Arc<str>>,
    /// The disk may have room again, or segments may be recycled.
    pub retry: bool,
    pub recycle_floor: Lsn,
    /// Readable segments: those entered and those ready.
    pub segments: BTreeMap<u32, PathBuf>,
    pub stats: TrailStats,
}

/// Counters since the trail was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TrailStats {
    pub appends: u64,
    /// Boxcars with records; divide `appends` by it for the size of a group commit.
    pub boxcars: u64,
    pub body_bytes: u64,
    /// Bytes on disk, padding included.
    pub disk_bytes: u64,
    /// Times the writer waited for more commits, and microseconds in all.
    pub delays: u64,
    pub delayed_us: u64,
    /// Empty boxcars written to prove the one before durable.
    pub proofs: u64,
    pub segments_prepared: u64,
    pub segments_recycled: u64,
    /// Times the writer found no segment ready and had to wait.
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
    /// Something was queued, or the trail stops.
    pub work: Condvar,
    /// The preparer has something to do.
    pub prepare: Condvar,
    /// Room was made, or there will be none.
    pub room: Condvar,
    /// A segment is ready.
    pub segment_ready: Condvar,
    pub control: Mutex<Control>,
    /// For those who follow the trail while it is written.
    pub live: Live,
    durable: AtomicU64,
    /// The same position, and what of the boxcar that ends there the next one must fit; `None`: there is none.
    tip: Mutex<(Lsn, Option<Last>)>,
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

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Everything below `lsn`, where the next boxcar goes, has become durable; `last` is of the boxcar before it.
    pub fn advance(&self, lsn: Lsn, last: Last) {
        {
            // Both under the lock: who sees one and then asks for the tip sees the other.
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

    /// The same with the epoch of that boxcar.
    pub fn end(&self) -> (Lsn, Option<Last>) {
        *self.tip.lock()
    }

    /// That of the boxcars being written; of a follower, the highest it has met.
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// The control file says so durably.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.epoch.store(epoch.0, Ordering::Release);
    }

    /// The oldest position that can be read.
    pub fn first(&self) -> Lsn {
        self.layout.first_lsn(self.control.lock().first_segment)
    }

    /// Logs, marks the trail failed, wakes everybody and calls the failure hook, which does not return outside tests.
    pub fn fail(&self, failure: &Failure) {
        tracing::error!(
            file = %failure.file.display(),
            offset = failure.offset,
            error = %failure.error,
            "cannot {} the trail: nothing is written to it any more, because what was not synced may be lost",
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
