//! When to checkpoint, and what the trail is told of it.
//!
//! One thread serves all volumes. It looks ten times a second, or when woken:
//!
//! | observed | done |
//! |---|---|
//! | this master is deposed | no checkpoint: its record would reach standbys that the new master's trail goes on from |
//! | redo debt of all volumes beyond half its limit | checkpoint of the volume with the largest debt |
//! | a volume's pages fill three quarters of its memory and it has an eighth of the debt allowed | checkpoint of it |
//! | a volume with debt had no boxcar for IDLE | checkpoint of it, so that it pins nothing (RULE 6) |
//! | the archive has got further | the recycle floor is moved |
//! | more waits for the archive than allowed, or no longer | what was chosen for that ([`crate::archiving`]) |
//!
//! After each the trail's recycle floor is moved: below every redo start, below what standbys and the archive lack ([`crate::floor`]), and
//! below each volume's last checkpoint record; volumes whose record would hold old segments are listed again.
//!
//! Failure: a checkpoint that cannot be written is tried again a second later and logged; one whose database file may be
//! half written ends the process, as the `-wal` then holds what only a start can finish.

use crate::database::Inner;
use crate::engine::{Follow, Shared};
use holdfast_store::checkpoint::{CheckpointError, Checkpointed, run};
use holdfast_trail::Span;
use holdfast_types::Lsn;
use holdfast_types::record::{Checkpoint, put_checkpoint};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
const IDLE: Duration = Duration::from_secs(3);
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Wakes and stops the thread.
#[derive(Default)]
pub struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    woken: bool,
    stop: bool,
}

impl Signal {
    pub fn wake(&self) {
        let mut state = self.state.lock();
        if !state.woken {
            state.woken = true;
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// Waits that long, or until told to stop.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.stop && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// Waits for a wake-up or the time to look; false when told to stop.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stop {
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        state.woken = false;
        !state.stop
    }
}

/// The thread's body.
pub fn serve(shared: &Arc<Shared>) {
    while shared.checkpointer.wait() {
        if shared.archiving.take_news() {
            advance_floor(shared);
        }
        shared.look_at_archive();
        if let Some(inner) = choose(shared)
            && let Err(e) = checkpoint(&inner)
        {
            tracing::error!(database = inner.name, "{e}");
            shared.checkpointer.pause(RETRY_AFTER);
        }
    }
}

/// The volume that needs a checkpoint most, by the table above.
fn choose(shared: &Shared) -> Option<Arc<Inner>> {
    if shared.deposed.load(Ordering::Acquire) {
        return None;
    }
    let open = shared.open_databases();
    let with_debt: Vec<_> = open.into_iter().filter(|d| !d.redo.is_empty()).collect();
    if shared.redo_used() > 0.5
        && let Some(largest) = with_debt.iter().max_by_key(|d| d.redo.time_us())
    {
        return Some(largest.clone());
    }
    // Pages the file has count as memory in use, too: so some debt must stand against them, or a warm store would be
    // checkpointed without end.
    let worth_us = shared.options.redo_time_max.as_micros() as u64 / 8;
    let full = |d: &&Arc<Inner>| {
        let stats = d.volume().store().stats();
        stats.memory_pages * 4096 > shared.options.memory_bytes_max / 4 * 3 && d.redo.time_us() > worth_us
    };
    let idle = |d: &&Arc<Inner>| d.redo.idle_for() > IDLE;
    with_debt.iter().find(full).or_else(|| with_debt.iter().find(idle)).cloned()
}

/// Checkpoints one volume now.
pub fn checkpoint(inner: &Arc<Inner>) -> Result<(), CheckpointError> {
    let _one_at_a_time = inner.checkpointing.lock();
    if inner.dropped.load(Ordering::Relaxed) {
        return Ok(());
    }
    let started = Instant::now();
    let volume = inner.volume();
    let shared = &inner.shared;
    match run(&*shared.options.disk, volume.store(), |done| record(inner, done)) {
        Ok(None) => {
            inner.redo.settled(volume.store().durable());
            Ok(())
        }
        Ok(Some(done)) => {
            inner.redo.settled(done.number);
            shared.stats.checkpoint(done.pages_written);
            advance_floor(shared);
            let took_ms = started.elapsed().as_millis() as u64;
            tracing::debug!(
                database = inner.name,
                number = done.number,
                pages = done.pages_written,
                took_ms,
                "checkpoint"
            );
            Ok(())
        }
        Err(e @ CheckpointError::Fatal { .. }) => {
            tracing::error!(database = inner.name, "{e}");
            shared.fail(&e.to_string());
            Err(e)
        }
        Err(e) => Err(e),
    }
}

/// Tells the trail that the volume's file stands at `done.number`, and waits until that is durable.
fn record(inner: &Arc<Inner>, done: &Checkpointed) {
    // Read before the debt, see there.
    let told = inner.shared.redo.told();
    let redo_start = inner.redo.start_after(done.number).unwrap_or(told);
    let checkpoint = Checkpoint {
        volume: inner.id,
        number: done.number,
        redo_start,
        file_size_bytes: done.file_bytes,
        file_mtime_ns: done.file_modified_unix_ns as i64,
    };
    log(&inner.shared, &[checkpoint]);
}

/// Appends checkpoint records, waits for them, and remembers them as the volumes' last. A standby notes them in a file.
pub fn log(shared: &Arc<Shared>, checkpoints: &[Checkpoint]) {
    let _in_order = shared.listing.lock();
    match &shared.follow {
        // The trail's records are the master's.
        Some(follow) => shared.list_locally(follow, checkpoints),
        None => append(shared, checkpoints),
    }
}

fn append(shared: &Arc<Shared>, checkpoints: &[Checkpoint]) {
    if shared.deposed.load(Ordering::Acquire) {
        return; // as if it could not be logged: redo begins earlier
    }
    let mut body = Vec::new();
    checkpoints.iter().for_each(|c| put_checkpoint(&mut body, c));
    let (sender, receiver) = crossbeam_channel::bounded(1);
    let redo = shared.redo.clone();
    let told = move |span: Span| {
        redo.tell(span.start);
        sender.send(span.start).unwrap_or_default();
    };
    let appended = shared.trail.append_kept(body, Box::new(told));
    if let Err(e) = appended {
        tracing::warn!("a checkpoint record cannot be logged: {e}");
        return;
    }
    if let Ok(lsn) = receiver.recv() {
        checkpoints.iter().for_each(|c| shared.listed(*c, lsn));
    }
}

/// Lets the trail recycle what nobody needs.
fn advance_floor(shared: &Arc<Shared>) {
    if shared.keeps_trail || shared.follow.as_ref().is_some_and(Follow::is_unwritten) {
        return;
    }
    give_up_standbys(shared);
    // A base copy finds where it has to start under the same lock.
    let held = shared.floor.lock();
    let needed = held.lowest().into_iter().chain([redo_starts(shared)]).min().unwrap_or_default();
    if shared.follow.is_none() {
        // Under the lock: a newer record of the same volume must not be followed by the older one.
        let _in_order = shared.listing.lock();
        let stale = shared.listed_below(Lsn(needed.0.saturating_sub(shared.options.segment_bytes)));
        if !stale.is_empty() {
            append(shared, &stale);
        }
    }
    shared.trail.set_recycle_floor(needed.min(shared.oldest_listing().unwrap_or(needed)));
    drop(held);
}

/// Where redo of any volume would have to start if the power failed now.
pub fn redo_starts(shared: &Shared) -> Lsn {
    // Read before the debt, see there.
    let told = shared.redo.told();
    shared.open_databases().into_iter().filter_map(|d| d.redo.start()).min().unwrap_or(told).min(told)
}

/// Standbys that are too far behind hold nothing any more.
fn give_up_standbys(shared: &Shared) {
    let (disk, end, max) = (&*shared.options.disk, shared.trail.durable(), shared.options.standby_keep_bytes_max);
    let given_up = shared.floor.lock().give_up(disk, &shared.dir, end, max);
    match given_up {
        Ok(names) => names.iter().for_each(|name| (shared.options.on_given_up)(name)),
        Err(e) => tracing::warn!("the list of standbys cannot be written: {e}"),
    }
}

impl Shared {
    /// Part of the redo limit that is used up, by time or bytes.
    pub fn redo_used(&self) -> f64 {
        self.redo_used_by(self.redo.time_us.load(Ordering::Relaxed))
    }

    /// The same without the time of large transactions: to slow others down does not make those shorter.
    pub fn redo_used_by_small(&self) -> f64 {
        let large_us = self.redo.large_time_us.load(Ordering::Relaxed);
        self.redo_used_by(self.redo.time_us.load(Ordering::Relaxed).saturating_sub(large_us))
    }

    fn redo_used_by(&self, time_us: u64) -> f64 {
        let time = time_us as f64 / self.options.redo_time_max.as_micros() as f64;
        let bytes = self.redo.bytes.load(Ordering::Relaxed) as f64 / self.options.redo_bytes_max as f64;
        time.max(bytes)
    }
}
