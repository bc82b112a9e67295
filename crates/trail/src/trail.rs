//! The handle on an open trail.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use holdfast_seams::{Clock, Disk, DiskLock};
use holdfast_types::histogram::HistogramFigures;
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;

use crate::closed::Closed;
use crate::cut::Cut;
use crate::error::{ReserveError, TrailError};
use crate::layout::TrailId;
use crate::open::{Parts, open_parts};
use crate::options::TrailOptions;
use crate::reader::{Reader, ShippedReader};
use crate::receiver::Receiver;
use crate::room::charge_bytes;
use crate::shared::{Append, OnDurable, Phase, Shared, TrailStats};
use crate::writer::Writer;

/// The result of opening the trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    pub trail_id: TrailId,
    /// The epoch, already raised and durable; in a trail that follows another one, the highest epoch received.
    pub epoch: Epoch,
    pub incarnation: u32,
    /// The oldest position that can be read.
    pub first: Lsn,
    /// Position of the next boxcar.
    pub end: Lsn,
    /// The torn tail that was cut off, if any.
    pub cut: Option<Cut>,
    /// Whether this open made the trail.
    pub fresh: bool,
}

/// An open trail. Clones share it; dropping the last one stops it as [`Trail::close`] does.
#[derive(Clone)]
pub struct Trail {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    role: TrailRole,
    /// The writer, if any, then the preparer; empty when closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The lock on the directory; released by closing.
    lock: Mutex<Option<Box<dyn DiskLock>>>,
    /// Set by closing in order.
    closed: Mutex<Option<Closed>>,
}

/// How boxcars are written; the thread that holds the lock writes.
pub enum TrailRole {
    /// The trail makes its own boxcars.
    Writes(Arc<Mutex<Writer>>),
    /// The boxcars come from another trail.
    Receives(Mutex<Receiver>),
    /// A test runs the writer itself.
    #[cfg(test)]
    Driven,
}

impl TrailRole {
    pub fn writes(writer: Writer) -> TrailRole {
        TrailRole::Writes(Arc::new(Mutex::new(writer)))
    }

    pub fn receives(receiver: Receiver) -> TrailRole {
        TrailRole::Receives(Mutex::new(receiver))
    }
}

impl Trail {
    /// Opens the trail in `options.dir`, or makes one, by the recovery table (module `recovery`). The epoch and the
    /// incarnation are raised durably before this returns; in a trail that follows another one, only the incarnation
    /// is.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: TrailOptions,
    ) -> Result<(Trail, Recovered), TrailError> {
        let dir = options.dir.clone();
        let Parts { shared, role, preparer, lock, recovered } = open_parts(disk, clock, options)?;
        let mut threads = Vec::new();
        if let TrailRole::Writes(writer) = &role {
            let (shared, writer) = (shared.clone(), writer.clone());
            threads.push(spawn(&dir, "trail-writer", move || crate::writer::serve(&shared, &writer))?);
        }
        threads.push(spawn(&dir, "trail-preparer", move || preparer.run())?);
        let inner = Arc::new(Inner {
            shared,
            role,
            threads: Mutex::new(threads),
            lock: Mutex::new(Some(lock)),
            closed: Mutex::default(),
        });
        Ok((Trail { inner }, recovered))
    }

    /// Makes a trail whose writer (if any) and preparer are run by the test itself.
    #[cfg(test)]
    pub(crate) fn without_threads(shared: Arc<Shared>, role: TrailRole, lock: Box<dyn DiskLock>) -> Trail {
        let (threads, lock) = (Mutex::new(Vec::new()), Mutex::new(Some(lock)));
        Trail { inner: Arc::new(Inner { shared, role, threads, lock, closed: Mutex::default() }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(crate) fn role(&self) -> &TrailRole {
        &self.inner.role
    }

    #[cfg(test)]
    pub(crate) fn state(&self) -> parking_lot::MutexGuard<'_, crate::shared::State> {
        self.inner.shared.state.lock()
    }

    /// Sets prepared room aside for one append of up to `body_bytes`. Waits for the preparer while the disk has room.
    pub fn reserve(&self, body_bytes: u64) -> Result<Reservation, ReserveError> {
        self.reserve_beside(body_bytes, 0)
    }

    /// Reserves for a caller that can wait: waits until `left_bytes` more are prepared, which stay for others.
    pub fn reserve_beside(&self, body_bytes: u64, left_bytes: u64) -> Result<Reservation, ReserveError> {
        let shared = &self.inner.shared;
        if shared.options.follow {
            return Err(ReserveError::Following);
        }
        let bytes_max = shared.options.boxcar_bytes_max;
        if body_bytes > bytes_max {
            return Err(ReserveError::TooLarge { bytes: body_bytes, bytes_max });
        }
        let charge = charge_bytes(body_bytes);
        let mut state = shared.state.lock();
        loop {
            if state.phase != Phase::Running {
                return Err(ReserveError::Closed);
            }
            if let Some(why) = &state.refusal {
                return Err(ReserveError::Refused { why: why.to_string() });
            }
            if state.room.try_charge(charge + left_bytes) {
                state.room.release(left_bytes);
                return Ok(Reservation { shared: shared.clone(), charge, body_bytes, commits: 1 });
            }
            if state.disk_full {
                // Makes the preparer try again: space may have been freed since.
                state.retry = true;
                shared.prepare.notify_one();
                return Err(ReserveError::TrailFull { bytes: body_bytes, dir: shared.options.dir.clone() });
            }
            state.waiters += 1;
            shared.prepare.notify_one();
            shared.room.wait(&mut state);
            state.waiters -= 1;
        }
    }

    /// Queues whole records and returns immediately. When they are durable, the writer thread calls `on_durable`, in
    /// append order over all callers. After a failed write it is never called.
    ///
    /// If the body is longer than reserved, the difference is taken from the kept-back room.
    pub fn append(
        &self,
        mut reservation: Reservation,
        body: Vec<u8>,
        on_durable: OnDurable,
    ) -> Result<(), ReserveError> {
        let needed = charge_bytes(body.len() as u64);
        let (reserved, commits) = (std::mem::take(&mut reservation.charge), reservation.commits);
        drop(reservation);
        self.push(body, reserved, needed, commits, on_durable)?;
        self.inner.shared.work.notify_one();
        Ok(())
    }

    /// Appends and, when no other thread is writing, writes on the caller's own thread: on return the append is then
    /// durable and `on_durable` has been called. For a caller that has nothing else to do meanwhile.
    pub fn append_now(
        &self,
        mut reservation: Reservation,
        body: Vec<u8>,
        on_durable: OnDurable,
    ) -> Result<(), ReserveError> {
        let needed = charge_bytes(body.len() as u64);
        let (reserved, commits) = (std::mem::take(&mut reservation.charge), reservation.commits);
        drop(reservation);
        let waits = self.push(body, reserved, needed, commits, on_durable)?;
        let shared = &self.inner.shared;
        let drained = match &self.inner.role {
            TrailRole::Writes(writer) if !waits => writer.try_lock().map(|mut writer| writer.drain(false)),
            _ => None,
        };
        // The writer's thread is needed in three cases: another thread was writing, a proof will be due, or the write
        // has failed and the thread must end.
        if !matches!(drained, Some(Ok(()))) || shared.state.lock().dozing {
            shared.work.notify_one();
        }
        Ok(())
    }

    /// Reports that `commits` commits arrived while this thread wrote by [`Trail::append_now`]. The commit delay counts
    /// them like commits queued here.
    pub fn commits_behind(&self, commits: usize) {
        self.inner.shared.state.lock().delay.behind(commits);
    }

    /// Queues records that must be written even when the disk is full: checkpoints and the records of recovery. They
    /// use the kept-back room and need no reservation.
    pub fn append_kept(&self, body: Vec<u8>, on_durable: OnDurable) -> Result<(), ReserveError> {
        let needed = charge_bytes(body.len() as u64);
        self.push(body, 0, needed, 0, on_durable)?;
        self.inner.shared.work.notify_one();
        Ok(())
    }

    /// Returns whether the writer will wait for more.
    fn push(
        &self,
        body: Vec<u8>,
        reserved: u64,
        needed: u64,
        commits: usize,
        on_durable: OnDurable,
    ) -> Result<bool, ReserveError> {
        let shared = &self.inner.shared;
        if shared.options.follow {
            return Err(ReserveError::Following);
        }
        let mut state = shared.state.lock();
        state.room.release(reserved);
        let (bytes, bytes_max) = (body.len() as u64, shared.options.boxcar_bytes_max);
        if bytes > bytes_max {
            return Err(ReserveError::TooLarge { bytes, bytes_max });
        }
        if state.phase != Phase::Running {
            return Err(ReserveError::Closed);
        }
        state.room.charge_kept(needed);
        state.queue.push_back(Append { body, charge: needed, commits, on_durable });
        state.queued_commits += commits;
        Ok(state.delay.plan(state.queued_commits).is_some())
    }

    /// Reads forward from a position that the trail has returned (`Recovered::first`, the start or end of a span, a
    /// boxcar's end).
    pub fn read(&self, from: Lsn) -> Result<Reader, TrailError> {
        Reader::new(self.inner.shared.clone(), from)
    }

    /// Reads forward like [`Trail::read`], but returns shipped boxcars.
    pub fn read_shipped(&self, from: Lsn) -> Result<ShippedReader, TrailError> {
        self.read(from).map(ShippedReader::new)
    }

    /// LSN of a segment's first boxcar.
    pub fn start_of(&self, segment: u32) -> Lsn {
        self.inner.shared.layout.first_lsn(segment)
    }

    /// The segment that a position is in.
    pub fn segment_of(&self, lsn: Lsn) -> u32 {
        self.inner.shared.layout.segment_of(lsn)
    }

    /// Refuses all further reservations with [`ReserveError::Refused`] and this reason, until it is called with `None`.
    /// Reservations already made and appends that use the kept-back room are still accepted.
    pub fn refuse_reservations(&self, why: Option<&str>) {
        let shared = &self.inner.shared;
        shared.state.lock().refusal = why.map(Into::into);
        // Wakes the threads that wait for room, so that they fail with the reason.
        shared.room.notify_all();
    }

    /// Allows segments that are wholly below `lsn` to be recycled. The position never goes back.
    pub fn retain_from(&self, lsn: Lsn) {
        let shared = &self.inner.shared;
        let mut state = shared.state.lock();
        state.retained_from = state.retained_from.max(lsn);
        state.retry = true;
        shared.prepare.notify_one();
    }

    /// Requests that an empty boxcar be written as soon as nothing else is queued, as after every boxcar with records.
    /// For a caller that needs a boxcar written in this epoch.
    pub fn prove_soon(&self) {
        let shared = &self.inner.shared;
        let now = shared.clock.monotonic();
        let mut state = shared.state.lock();
        if state.unproven_since.is_none() {
            state.unproven_since = Some(now);
            shared.work.notify_one();
        }
    }

    /// Requests that the segment with the newest boxcar end, although it is not full, so that an archive can have it: as
    /// soon as the next one is prepared and no append needs its room. No effect on a trail that follows another one. A
    /// request may be lost: the caller checks [`Trail::durable`] and repeats it.
    pub fn end_segment(&self) {
        let shared = &self.inner.shared;
        if matches!(self.inner.role, TrailRole::Receives(_)) {
            return;
        }
        let segment = shared.layout.segment_of(shared.durable());
        let mut state = shared.state.lock();
        state.end_wanted = Some(segment);
        // A preparer without a reason to work prepares one ahead.
        state.retry = true;
        shared.prepare.notify_one();
        shared.work.notify_one();
    }

    /// All bytes below this LSN are durable on this node.
    pub fn durable(&self) -> Lsn {
        self.inner.shared.durable()
    }

    pub fn trail_id(&self) -> TrailId {
        self.inner.shared.trail_id
    }

    /// The epoch of the boxcars being written; in a trail that follows another one, the highest epoch received.
    pub fn epoch(&self) -> Epoch {
        self.inner.shared.epoch()
    }

    pub fn segment_bytes(&self) -> u64 {
        self.inner.shared.layout.segment_bytes
    }

    /// The oldest position that can be read.
    pub fn first(&self) -> Lsn {
        self.inner.shared.first()
    }

    /// Maximum bytes of one append.
    pub fn body_bytes_max(&self) -> u64 {
        self.inner.shared.options.boxcar_bytes_max
    }

    pub fn stats(&self) -> TrailStats {
        self.inner.shared.state.lock().stats
    }

    /// The time of each write and sync since the trail was opened, in microseconds.
    pub fn sync_times(&self) -> HistogramFigures {
        self.inner.shared.sync_times.figures()
    }

    /// For how long a write and its sync have been under way; `None`: none is. A disk that hangs shows here.
    pub fn sync_under_way(&self) -> Option<Duration> {
        self.inner.shared.sync_under_way()
    }

    /// Number of transactions that waited for each boxcar since the trail was opened.
    pub fn boxcar_commits(&self) -> HistogramFigures {
        self.inner.shared.boxcar_commits.figures()
    }

    /// Number of segments on disk: those with records, and those that are prepared.
    pub fn segments(&self) -> SegmentCount {
        let state = self.inner.shared.state.lock();
        SegmentCount { all: state.segments.len(), ready: state.ready.len() }
    }

    /// Writes the queued appends, proves them durable and stops. Further appends are refused. Closing twice is not an
    /// error.
    pub fn close(&self) -> Result<(), TrailError> {
        self.inner.close()
    }

    /// What opens the trail again without a search for its end; `None` before it was closed in order.
    pub fn closed(&self) -> Option<Closed> {
        *self.inner.closed.lock()
    }
}

impl Inner {
    fn close(&self) -> Result<(), TrailError> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return Ok(());
        }
        self.enter(Phase::Stopping);
        if let TrailRole::Receives(receiver) = &self.role {
            // A receive in progress still becomes durable; taking its lock waits for it, as there is no thread to join.
            drop(receiver.lock());
            self.enter(Phase::Stopped);
        }
        let own = std::thread::current().id();
        for thread in threads.drain(..) {
            // The last handle may be dropped by a callback, on the writer thread itself.
            if thread.thread().id() != own && thread.join().is_err() {
                tracing::error!("a trail thread panicked");
            }
            self.enter(Phase::Stopped);
        }
        let written = self.write_clean_end();
        *self.lock.lock() = None;
        written
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.shared.state.lock();
        if state.phase != Phase::Failed {
            state.phase = phase;
        }
        drop(state);
        self.shared.wake_all();
    }

    /// Records in the control file that everything written is durable.
    fn write_clean_end(&self) -> Result<(), TrailError> {
        let shared = &self.shared;
        if shared.state.lock().phase == Phase::Failed {
            return Ok(());
        }
        let mut control = shared.control.lock();
        let end = shared.end();
        control.proven = end.0;
        control.write(&*shared.disk, &shared.options.dir)?;
        *self.closed.lock() = Some(Closed::new(&control, end));
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the trail was not closed cleanly; the next open recovers it");
        }
    }
}

/// The segments of a trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCount {
    pub all: usize,
    /// Prepared, and not written yet.
    pub ready: usize,
}

/// Room set aside for one append; returned when dropped unused.
pub struct Reservation {
    shared: Arc<Shared>,
    charge: u64,
    /// Number of transactions that wait for the append.
    commits: usize,
    body_bytes: u64,
}

impl Reservation {
    /// The longest body it covers.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Declares that `commits` transactions wait for the append, instead of one.
    pub fn for_commits(mut self, commits: usize) -> Reservation {
        self.commits = commits;
        self
    }

    /// Adds another reservation's room to this one, for one append of both bodies. The sum may exceed the limit of an
    /// append.
    pub fn join(&mut self, mut other: Reservation) {
        self.charge += std::mem::take(&mut other.charge);
        self.body_bytes += other.body_bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.charge > 0 {
            self.shared.state.lock().room.release(self.charge);
            self.shared.room.notify_all();
        }
    }
}

fn spawn(dir: &Path, name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, TrailError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(TrailError::io("start a thread for", dir))
}

/// A new trail's id, from the kernel's random numbers.
pub(crate) fn random_trail_id() -> Result<TrailId, TrailError> {
    let source = Path::new("/dev/urandom");
    let mut id = [0; 16];
    std::fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut id))
        .map_err(TrailError::io("read random numbers from", source))?;
    Ok(TrailId(id))
}
