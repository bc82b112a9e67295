//! The writer: one boxcar at a time, one write, one sync.
//!
//! Natural batching: while a boxcar is being synced, appends queue up; when the sync returns, everything queued goes
//! into the next boxcar. A single append pays one sync, forty concurrent ones share it. When nothing was appended for
//! `proof_delay` after a boxcar with records, or for the time of several syncs where those are slow, an empty boxcar
//! proves it durable. Later damage in it is then recognised as damage and not taken for a torn tail.
//!
//! An append by [`crate::Trail::append_now`] is written by its own thread when no other thread is writing, which saves
//! waking two threads for a single client. The writer's own thread then only has the proof to write.
//!
//! A failed write or sync ends the process: the kernel may have dropped the bytes and does not report it a second time.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use holdfast_types::Lsn;

use crate::boxcar::{BoxcarKind, Builder, HEAD_BYTES, Head, Last, disk_bytes};
use crate::layout::BLOCK;
use crate::options::Failure;
use crate::shared::{Append, OnDurable, Phase, Ready, Shared, Span};
use crate::shipped::Shipped;

/// How often preparing a segment is retried on a full disk while the writer waits for it.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Minimum delay of a proof, in times of a sync: a commit that comes while a proof is written waits for one sync more.
const PROOF_SYNCS: u32 = 4;

/// The writer's next task.
#[derive(PartialEq, Eq, Debug)]
enum Work {
    Boxcar,
    /// Prove the boxcar that has been unproven since then.
    Proof(Instant),
    /// End this segment, which is not full.
    SegmentEnd(u32),
    Stop,
}

/// The writer cannot continue: it has failed, or the trail has.
pub struct Stopped;

/// The body of the thread: returns at a stop, with everything queued written and proven, or after a failure.
pub fn serve(shared: &Shared, writer: &Mutex<Writer>) {
    loop {
        let work = next_work(shared);
        let mut writer = writer.lock();
        let done = match work {
            Work::Boxcar => writer.drain(true),
            Work::Proof(since) => writer.write_proof_if_idle(since),
            Work::SegmentEnd(segment) => writer.end_segment(segment),
            Work::Stop => return,
        };
        if done.is_err() {
            return;
        }
    }
}

/// Waits for appends, for a proof to be due, or for a stop.
fn next_work(shared: &Shared) -> Work {
    let mut state = shared.state.lock();
    loop {
        if !state.queue.is_empty() {
            return Work::Boxcar;
        }
        if let Some(segment) = state.end_wanted.filter(|_| state.phase == Phase::Running && state.can_end_segment()) {
            state.end_wanted = None;
            return Work::SegmentEnd(segment);
        }
        match (state.phase, state.unproven_since) {
            (Phase::Failed | Phase::Stopped, _) | (Phase::Stopping, None) => return Work::Stop,
            (Phase::Stopping, Some(since)) => return Work::Proof(since),
            (Phase::Running, None) => {
                state.dozing = true;
                shared.work.wait(&mut state);
                state.dozing = false;
            }
            (Phase::Running, Some(since)) => {
                let delay = shared.options.proof_delay.max(PROOF_SYNCS * state.delay.sync());
                let timed_out = shared.work.wait_until(&mut state, since + delay).timed_out();
                if timed_out && state.queue.is_empty() && state.unproven_since == Some(since) {
                    return Work::Proof(since);
                }
            }
        }
    }
}

pub struct Writer {
    shared: Arc<Shared>,
    current: Ready,
    /// Position of the next boxcar.
    position: Lsn,
    previous_checksum: u32,
    builder: Builder,
    /// Taken from the queue, not yet written.
    taken: VecDeque<Append>,
    callbacks: Vec<OnDurable>,
}

impl Writer {
    pub fn new(shared: Arc<Shared>, current: Ready, position: Lsn, previous_checksum: u32) -> Writer {
        Writer {
            shared,
            current,
            position,
            previous_checksum,
            builder: Builder::default(),
            taken: VecDeque::new(),
            callbacks: Vec::new(),
        }
    }

    /// Does one turn without waiting, for tests that run without threads: writes a boxcar if anything is queued;
    /// otherwise, when `idle`, the proof that is due.
    #[cfg(test)]
    pub fn step(&mut self, idle: bool) -> Result<(), Stopped> {
        if self.taken.is_empty() {
            self.take(false);
        }
        let ends = self.taken.is_empty().then(|| self.shared.state.lock().end_wanted.take()).flatten();
        if let Some(segment) = ends {
            return self.end_segment(segment);
        }
        let unproven_since = self.shared.state.lock().unproven_since;
        match (self.taken.is_empty(), unproven_since) {
            (false, _) => {}
            (true, Some(_)) if idle => return self.write_proof(),
            _ => return Ok(()),
        }
        self.write_boxcar()
    }

    /// Writes what is queued, boxcar by boxcar, until nothing is. With `patient`, it may wait for more appends first.
    pub fn drain(&mut self, patient: bool) -> Result<(), Stopped> {
        loop {
            if self.taken.is_empty() {
                self.take(patient);
            }
            if self.taken.is_empty() {
                return Ok(());
            }
            if let Err(stopped) = self.write_boxcar() {
                // Dropping the callbacks reports to the waiting callers that the appends will not become durable.
                self.taken.clear();
                self.callbacks.clear();
                return Err(stopped);
            }
        }
    }

    /// Takes the queued appends, after the commit delay where one is due.
    fn take(&mut self, patient: bool) {
        let mut state = self.shared.state.lock();
        let from = state.queued_commits;
        if let Some(plan) = state.delay.plan(from).filter(|_| patient) {
            let started = Instant::now();
            let until = started + plan.delay;
            while state.queued_commits < plan.commits
                && state.phase == Phase::Running
                && !self.shared.work.wait_until(&mut state, until).timed_out()
            {}
            let to = state.queued_commits;
            state.delay.waited(started.elapsed(), from, to);
            state.stats.delays += 1;
            state.stats.delayed_us += started.elapsed().as_micros() as u64;
        }
        state.queued_commits = 0;
        std::mem::swap(&mut state.queue, &mut self.taken);
    }

    /// Puts as many taken appends into one boxcar as fit, makes it durable and calls their callbacks.
    fn write_boxcar(&mut self) -> Result<(), Stopped> {
        let Some(first) = self.taken.front() else { return Ok(()) };
        if disk_bytes(first.body.len() as u64) > self.room_bytes() {
            self.enter_next_segment()?;
        }
        let body_bytes_max = self.shared.options.boxcar_bytes_max;
        let room_bytes = self.room_bytes();
        let (mut charge, mut commits) = (0, 0);
        self.builder.begin();
        while let Some(append) = self.taken.front() {
            let body_bytes = (self.builder.body_bytes() + append.body.len()) as u64;
            let fits = disk_bytes(body_bytes) <= room_bytes && body_bytes <= body_bytes_max;
            if !fits && !self.callbacks.is_empty() {
                break;
            }
            let Some(append) = self.taken.pop_front() else { break };
            self.builder.push(&append.body);
            self.callbacks.push(append.on_durable);
            charge += append.charge;
            commits += append.commits;
        }
        let started = Instant::now();
        let span = self.write(BoxcarKind::Data)?;
        self.account(span, charge, commits, started.elapsed());
        for on_durable in self.callbacks.drain(..) {
            on_durable(span);
        }
        Ok(())
    }

    /// Writes the proof unless an append was queued since. Another thread may have been writing when the proof became
    /// due: its boxcar has proven what came before, and its clients' next commits must not wait for the sync of a
    /// proof.
    fn write_proof_if_idle(&mut self, since: Instant) -> Result<(), Stopped> {
        let idle = {
            let state = self.shared.state.lock();
            state.queue.is_empty() && state.unproven_since == Some(since)
        };
        if idle { self.write_proof() } else { Ok(()) }
    }

    fn write_proof(&mut self) -> Result<(), Stopped> {
        if self.room_bytes() < BLOCK {
            // The segment end is a proof as well.
            self.enter_next_segment()?;
        } else {
            self.builder.begin();
            let span = self.write(BoxcarKind::Proof)?;
            let mut state = self.shared.state.lock();
            state.room.used(span.end.0 - span.start.0);
            state.stats.proofs += 1;
        }
        self.shared.state.lock().unproven_since = None;
        Ok(())
    }

    fn account(&mut self, span: Span, charge: u64, commits: usize, time: Duration) {
        let bytes = span.end.0 - span.start.0;
        if commits > 0 {
            self.shared.boxcar_commits.observe(commits as u64);
        }
        let now = self.shared.clock.monotonic();
        let mut state = self.shared.state.lock();
        state.unproven_since = Some(now);
        state.room.used(bytes);
        state.room.release(charge);
        // Taken appends that did not fit come next, as if they were queued.
        let queued = state.queued_commits + self.taken.iter().map(|a| a.commits).sum::<usize>();
        state.delay.wrote(commits, queued, time);
        state.stats.appends += self.callbacks.len() as u64;
        state.stats.boxcars += 1;
        state.stats.body_bytes += self.builder.body_bytes() as u64;
        state.stats.disk_bytes += bytes;
        if state.waiters > 0 {
            self.shared.room.notify_all();
        }
    }

    /// Bytes left for boxcars; the last block of a segment is reserved for the segment end.
    pub(crate) fn room_bytes(&self) -> u64 {
        let layout = self.shared.layout;
        layout.lsn(self.current.segment, layout.segment_bytes).0 - self.position.0 - BLOCK
    }

    /// Ends the segment and continues in the next one, waiting for the preparer if it is late. The end is written only
    /// when the next segment exists, so that recovery can rely on finding it.
    fn enter_next_segment(&mut self) -> Result<(), Stopped> {
        let next = self.wait_for_segment()?;
        self.builder.begin();
        self.write(BoxcarKind::SegmentEnd)?;
        self.position = self.shared.layout.first_lsn(next.segment);
        self.shared.advance(self.position, self.last());
        self.current = next;
        let mut state = self.shared.state.lock();
        state.room.segment_entered();
        self.shared.prepare.notify_one();
        Ok(())
    }

    /// Ends a segment that is not full, if it is the one being written and has a boxcar.
    fn end_segment(&mut self, segment: u32) -> Result<(), Stopped> {
        let has_boxcars = self.position > self.shared.layout.first_lsn(segment);
        if self.current.segment != segment || !has_boxcars || !self.taken.is_empty() {
            return Ok(());
        }
        {
            let mut state = self.shared.state.lock();
            // Reservations may have taken the room meanwhile.
            if !state.can_end_segment() {
                return Ok(());
            }
            state.room.leave_segment();
        }
        self.enter_next_segment()?;
        // The segment end is a proof as well.
        self.shared.state.lock().unproven_since = None;
        Ok(())
    }

    /// Describes the boxcar written last.
    fn last(&self) -> Last {
        Last { checksum: self.previous_checksum, epoch: self.shared.epoch() }
    }

    fn wait_for_segment(&self) -> Result<Ready, Stopped> {
        let mut state = self.shared.state.lock();
        if state.ready.is_empty() {
            state.stats.segment_waits += 1;
        }
        loop {
            if state.phase == Phase::Failed {
                return Err(Stopped);
            }
            if let Some(next) = state.ready.pop_front() {
                return Ok(next);
            }
            state.retry = true;
            self.shared.prepare.notify_one();
            // Retried at intervals: the disk may have been full, and no event reports that it no longer is.
            self.shared.segment_ready.wait_for(&mut state, RETRY_DELAY);
        }
    }

    /// Writes and syncs the boxcar in the builder.
    fn write(&mut self, kind: BoxcarKind) -> Result<Span, Stopped> {
        let shared = &self.shared;
        let body_bytes = self.builder.body_bytes() as u32;
        let head = Head {
            proven: shared.durable(),
            incarnation: shared.incarnation,
            kind,
            epoch: shared.epoch(),
            trail_id: shared.trail_id,
            segment: self.current.segment,
            lsn: self.position,
            written_unix_ms: shared.clock.unix_ms(),
            body_bytes,
            previous_checksum: self.previous_checksum,
            checksum: 0,
        };
        assert_eq!(head.proven, self.position, "a boxcar is written only when everything before it is durable");
        let offset = shared.layout.offset_of(self.position);
        let (blocks, checksum) = self.builder.finish(&head);
        let span = Span { start: self.position, end: Lsn(self.position.0 + blocks.len() as u64) };
        if shared.live.is_tapped() {
            let (head, whole) = (Head { checksum, ..head }, &blocks[..HEAD_BYTES + body_bytes as usize]);
            shared.live.hand(Shipped::new(&head, whole, shared.layout), self.position);
            shared.live.progress();
        }
        let started = shared.sync_begins();
        let written = self.current.file.write_at(&[IoSlice::new(blocks)], offset);
        self.check("write", offset, written)?;
        self.check("sync", offset, self.shared.options.sync_method.sync(&*self.current.file))?;
        shared.sync_ended(started);
        self.previous_checksum = checksum;
        self.position = span.end;
        if kind != BoxcarKind::SegmentEnd {
            // After a segment end the next segment follows; the caller knows its position.
            self.shared.advance(span.end, self.last());
        }
        Ok(span)
    }

    fn check(&self, what: &'static str, offset: u64, result: io::Result<()>) -> Result<(), Stopped> {
        result.map_err(|error| {
            self.shared.fail(&Failure { what, file: self.current.path.clone(), offset, error });
            Stopped
        })
    }
}
