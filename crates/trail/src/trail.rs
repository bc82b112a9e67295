//! The handle on an open trail.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use holdfast_seams::{Clock, Disk, DiskLock};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;

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

/// What opening the trail found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    pub trail_id: TrailId,
    /// Already raised and durable; of a trail that follows, the highest it has met.
    pub epoch: Epoch,
    pub incarnation: u32,
    /// The oldest position that can be read.
    pub first: Lsn,
    /// Where the next boxcar goes.
    pub end: Lsn,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<Cut>,
    /// The trail was made by this open.
    pub fresh: bool,
}

/// An open trail. Clones share it; the last one dropped stops it as [`Trail::close`] does.
#[derive(Clone)]
pub struct Trail {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    role: Role,
    /// The writer, if there is one, then the preparer; empty when closed.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Given up by closing.
    lock: Mutex<Option<Box<dyn DiskLock>>>,
}

/// Who writes the boxcars: whoever holds its lock.
pub enum Role {
    /// They are made here.
    Writes(Arc<Mutex<Writer>>),
    /// They are another trail's.
    Receives(Mutex<Receiver>),
    /// A test drives the writer itself.
    #[cfg(test)]
    Driven,
}

impl Role {
    pub fn writes(writer: Writer) -> Role {
        Role::Writes(Arc::new(Mutex::new(writer)))
    }

    pub fn receives(receiver: Receiver) -> Role {
        Role::Receives(Mutex::new(receiver))
    }
}

impl Trail {
    /// Opens the trail in `options.dir`, or makes one, by the recovery table (module `recovery`). The epoch and the
    /// incarnation are raised durably before this returns; of one that follows only the incarnation is.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: TrailOptions,
    ) -> Result<(Trail, Recovered), TrailError> {
        let dir = options.dir.clone();
        let Parts { shared, role, preparer, lock, recovered } = open_parts(disk, clock, options)?;
        let mut threads = Vec::new();
        if let Role::Writes(writer) = &role {
            let (shared, writer) = (shared.clone(), writer.clone());
            threads.push(spawn(&dir, "trail-writer", move || crate::writer::serve(&shared, &writer))?);
        }
        threads.push(spawn(&dir, "trail-preparer", move || preparer.run())?);
        let inner = Arc::new(Inner { shared, role, threads: Mutex::new(threads), lock: Mutex::new(Some(lock)) });
        Ok((Trail { inner }, recovered))
    }

    /// A trail whose writer, if it has one, and preparer the test drives itself.
    #[cfg(test)]
    pub(crate) fn without_threads(shared: Arc<Shared>, role: Role, lock: Box<dyn DiskLock>) -> Trail {
        let (threads, lock) = (Mutex::new(Vec::new()), Mutex::new(Some(lock)));
        Trail { inner: Arc::new(Inner { shared, role, threads, lock }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    pub(crate) fn role(&self) -> &Role {
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

    /// The same for who is in no hurry: waits until `left_bytes` besides are prepared, for others.
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
                // Tells the preparer to look again: space may have been freed since.
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

    /// Queues whole records. Returns at once; `on_durable` is called by the writer thread, in append order over all
    /// callers, when they are durable. After a failed write it is never called.
    ///
    /// A body longer than reserved takes the difference from the kept-back room.
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

    /// Appends and, when nobody else is writing, writes on the caller's own thread: on return the append is then durable
    /// and `on_durable` has been called. For a caller that has nothing else to do meanwhile.
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
            Role::Writes(writer) if !waits => writer.try_lock().map(|mut writer| writer.drain(false)),
            _ => None,
        };
        // The writer's thread is needed when another thread was writing, for the proof after a while, and to end when
        // writing has failed.
        if !matches!(drained, Some(Ok(()))) || shared.state.lock().dozing {
            shared.work.notify_one();
        }
        Ok(())
    }

    /// The thread that has just written by [`Trail::append_now`] finds so many commits waiting that came meanwhile: the
    /// commit delay reckons with them as with those that queued here.
    pub fn commits_behind(&self, commits: usize) {
        self.inner.shared.state.lock().delay.behind(commits);
    }

    /// Queues records that must get in when the disk is full: checkpoints and what recovery writes. They use the
    /// kept-back room and need no reservation.
    pub fn append_kept(&self, body: Vec<u8>, on_durable: OnDurable) -> Result<(), ReserveError> {
        let needed = charge_bytes(body.len() as u64);
        self.push(body, 0, needed, 0, on_durable)?;
        self.inner.shared.work.notify_one();
        Ok(())
    }

    /// Whether the writer will wait for more.
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

    /// Reads forward from a position that the trail handed out (`Recovered::first`, the start or end of a span, a
    /// boxcar's end).
    pub fn read(&self, from: Lsn) -> Result<Reader, TrailError> {
        Reader::new(self.inner.shared.clone(), from)
    }

    /// The same as the boxcars travel.
    pub fn read_shipped(&self, from: Lsn) -> Result<ShippedReader, TrailError> {
        self.read(from).map(ShippedReader::new)
    }

    /// The position of a segment's first boxcar.
    pub fn start_of(&self, segment: u32) -> Lsn {
        self.inner.shared.layout.first_lsn(segment)
    }

    /// The segment that a position is in.
    pub fn segment_of(&self, lsn: Lsn) -> u32 {
        self.inner.shared.layout.segment_of(lsn)
    }

    /// With a reason, nothing more can be reserved until it is taken back with `None`: [`ReserveError::Refused`], which says
    /// this and nothing else. What is reserved already, and what uses the kept-back room, is still taken.
    pub fn refuse_reservations(&self, why: Option<&str>) {
        let shared = &self.inner.shared;
        shared.state.lock().refusal = why.map(Into::into);
        // Who waits for room is told.
        shared.room.notify_all();
    }

    /// Segments that lie wholly below `floor` may be recycled. The floor never goes back.
    pub fn set_recycle_floor(&self, floor: Lsn) {
        let shared = &self.inner.shared;
        let mut state = shared.state.lock();
        state.recycle_floor = state.recycle_floor.max(floor);
        state.retry = true;
        shared.prepare.notify_one();
    }

    /// Has an empty boxcar written as soon as nothing else is to be, as it is behind every other one: for whoever needs one
    /// that was written in this epoch.
    pub fn prove_soon(&self) {
        let shared = &self.inner.shared;
        let now = shared.clock.monotonic();
        let mut state = shared.state.lock();
        if state.unproven_since.is_none() {
            state.unproven_since = Some(now);
            shared.work.notify_one();
        }
    }

    /// Everything below is durable on this node.
    pub fn durable(&self) -> Lsn {
        self.inner.shared.durable()
    }

    pub fn trail_id(&self) -> TrailId {
        self.inner.shared.trail_id
    }

    /// That of the boxcars it writes; of a trail that follows, the highest it has met.
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

    /// Most bytes one append may have.
    pub fn body_bytes_max(&self) -> u64 {
        self.inner.shared.options.boxcar_bytes_max
    }

    pub fn stats(&self) -> TrailStats {
        self.inner.shared.state.lock().stats
    }

    /// Writes what is queued, proves it durable and stops. Further appends are refused. Closing twice is no error.
    pub fn close(&self) -> Result<(), TrailError> {
        self.inner.close()
    }
}

impl Inner {
    fn close(&self) -> Result<(), TrailError> {
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return Ok(());
        }
        self.enter(Phase::Stopping);
        if let Role::Receives(receiver) = &self.role {
            // What is being received is still made durable; there is no thread whose end tells that it is.
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

    /// Everything written is durable: so says the control file from now on.
    fn write_clean_end(&self) -> Result<(), TrailError> {
        let shared = &self.shared;
        if shared.state.lock().phase == Phase::Failed {
            return Ok(());
        }
        let mut control = shared.control.lock();
        control.proven = shared.durable();
        control.write(&*shared.disk, &shared.options.dir)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the trail was not closed cleanly; the next open recovers it");
        }
    }
}

/// Room set aside for one append; given back when dropped unused.
pub struct Reservation {
    shared: Arc<Shared>,
    charge: u64,
    /// Transactions that wait for the append.
    commits: usize,
    body_bytes: u64,
}

impl Reservation {
    /// The longest body it covers.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// For an append that so many transactions wait for, instead of one.
    pub fn for_commits(mut self, commits: usize) -> Reservation {
        self.commits = commits;
        self
    }

    /// Adds another one's room to it, for one append of both bodies. The sum may be more than the trail takes at once.
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
