//! The mirror's state, and what commits do in each.
//!
//! | phase | `mirror_away = "wait"` | `"go_on"` |
//! |---|---|---|
//! | opening, copying, away | commits wait | commits continue, once the record says that the mirror is left behind |
//! | catching up: it has not received or applied everything yet | commits wait | commits continue until the mirror is near the end, then they wait |
//! | in service: it has everything acknowledged | commits wait for the mirror | commits wait for the mirror; if it does not answer for too long, it is left behind |
//! | refused | nothing is acknowledged | nothing is acknowledged |
//!
//! The record is durable before the gate is opened without the mirror, and says that the mirror is in service only after it has
//! everything that was acknowledged without it. So the record never promises more than the mirror has.
//!
//! Failure: while the record cannot be written commits wait, and writing it is retried.

use crate::records::{CopyState, MirrorOf, Record, RecordState};
use holdfast_engine::Engine;
use holdfast_replication::Notify;
use holdfast_replication::settings::Away;
use holdfast_types::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Commits wait for a mirror again when it lags less than this.
const NEAR_BYTES: u64 = 4 << 20;

/// Pause before a record that could not be written is written again.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often the directory of a mirror in service is updated, for a case in which only its disk is left.
const UPDATE_EVERY: Duration = Duration::from_secs(20);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    Opening,
    Copying { compared_bytes: u64, total_bytes: u64 },
    CatchingUp,
    InService,
    Away { why: String },
    Refused { why: String },
}

impl Phase {
    /// In one word.
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Opening => "opening",
            Phase::Copying { .. } => "copying",
            Phase::CatchingUp => "catchup",
            Phase::InService => "streaming",
            Phase::Away { .. } => "away",
            Phase::Refused { .. } => "refused",
        }
    }
}

/// What does not change while the mirror runs.
pub struct Setup {
    pub main: Engine,
    /// The data directory.
    pub dir: PathBuf,
    pub mirror: PathBuf,
    pub away: Away,
    /// A mirror that does not answer for this long, while commits wait for it, counts as away.
    pub silence_max: Duration,
    pub notify: Notify,
}

/// The mirror's state, shared by the supervisor, the link and the views.
pub struct MirrorState {
    pub setup: Setup,
    /// The mirror has everything below on its disk; 0 while it is not followed.
    has: AtomicU64,
    /// The mirror has applied everything below to its databases.
    applied: AtomicU64,
    /// What the mirror has lets commits pass.
    serves: AtomicBool,
    current: Mutex<Current>,
    changed: Condvar,
    /// What the mirror's directory says about itself, once it was read or written.
    of: Mutex<Option<MirrorOf>>,
    updating: AtomicBool,
}

struct Current {
    phase: Phase,
    record: Record,
    /// The record differs from the one on the disk.
    unwritten: bool,
    /// When writing it failed last.
    failed: Option<Instant>,
    /// Commits wait for the mirror.
    waits: bool,
    /// Commits wait again: the mirror is in service when it has everything below.
    target: Option<Lsn>,
    /// It did not answer: commits wait for it again when it has everything below.
    must_reach: Lsn,
    /// What it had written and applied at the last check, and since when commits wait for more.
    seen: (u64, Instant),
    reported_silent: bool,
    updated: Option<Instant>,
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl MirrorState {
    /// `record`: as on the disk. Commits wait from now on, unless the record says that they need not.
    pub fn new(setup: Setup, record: Record) -> Arc<MirrorState> {
        let waits = setup.away == Away::Wait || record.state == RecordState::InService;
        if waits {
            setup.main.wait_for_mirror(true);
        }
        let current = Current {
            phase: Phase::Opening,
            record,
            unwritten: false,
            failed: None,
            waits,
            target: None,
            must_reach: Lsn(0),
            seen: (0, Instant::now()),
            reported_silent: false,
            updated: None,
        };
        Arc::new(MirrorState {
            setup,
            has: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            current: Mutex::new(current),
            changed: Condvar::new(),
            of: Mutex::default(),
            updating: AtomicBool::new(false),
        })
    }

    pub fn phase(&self) -> Phase {
        self.current.lock().phase.clone()
    }

    pub fn record(&self) -> Record {
        self.current.lock().record.clone()
    }

    /// Whether commits wait for the mirror.
    pub fn waits(&self) -> bool {
        self.current.lock().waits
    }

    pub fn has(&self) -> Lsn {
        Lsn(self.has.load(Ordering::Acquire))
    }

    /// The mirror's directory is being read, recovered or copied.
    pub fn set_phase(&self, phase: Phase) {
        self.current.lock().phase = phase;
        self.changed.notify_all();
    }

    /// Replaces what the mirror's directory says about itself, on its disk.
    pub fn write_of(&self, mut new: MirrorOf) -> io::Result<()> {
        let mut of = self.of.lock();
        new.away = self.setup.away;
        new.write(&self.setup.mirror)?;
        *of = Some(new);
        Ok(())
    }

    /// A copy begins: from here on the mirror has nothing. `true`: the record is durable.
    pub fn begin_copy(&self, copy: &str) -> bool {
        let mut state = self.current.lock();
        state.record = Record { since_unix_ms: unix_ms(), ..Record::begin(&self.setup.mirror, copy) };
        state.unwritten = true;
        self.write(&mut state)
    }

    /// Everything below is in the mirror's databases.
    pub fn applied(&self, end: Lsn) {
        self.applied.store(end.0, Ordering::Release);
    }

    /// The mirror follows, and has everything below `from`.
    pub fn follows(&self, from: Lsn) {
        let mut state = self.current.lock();
        state.phase = Phase::CatchingUp;
        state.target = None;
        self.serves.store(false, Ordering::Release);
        self.has.store(from.0, Ordering::Release);
    }

    /// The mirror has everything below on its disk. Answers that waited for it are sent on this thread.
    pub fn received(&self, end: Lsn) {
        self.has.fetch_max(end.0, Ordering::AcqRel);
        if self.serves.load(Ordering::Acquire) {
            self.setup.main.mirrored(end);
        }
    }

    /// The mirror is lost, for this reason. `distrusted`: what its disk holds is not trusted any more.
    pub fn lost(self: &Arc<MirrorState>, why: &str, distrusted: bool) {
        let Setup { main, mirror, away, notify, .. } = &self.setup;
        let mut state = self.current.lock();
        self.serves.store(false, Ordering::Release);
        let had = Lsn(self.has.swap(0, Ordering::AcqRel));
        self.applied.store(0, Ordering::Release);
        let phase = Phase::Away { why: why.to_owned() };
        let is_news = state.phase != phase;
        state.phase = phase;
        state.target = None;
        if distrusted && state.record.distrusted.is_none() {
            state.record.distrusted = Some(why.to_owned());
            state.unwritten = true;
        }
        if state.waits {
            main.wait_for_mirror(true);
        }
        if *away == Away::GoOn {
            self.leave_behind(&mut state, had);
        }
        self.apply_record(&mut state);
        self.changed.notify_all();
        drop(state);
        if is_news {
            let then = match away {
                Away::Wait => "commits WAIT until it is back (mirror_away = \"wait\")",
                Away::GoOn => "commits continue WITHOUT it, on one disk only",
            };
            notify.warn(&format!("the mirror {} is out of service: {why}; {then}", mirror.display()));
        }
        self.update_directory();
    }

    /// The mirror was promoted, or has data that this server lost: nothing is acknowledged any more.
    pub fn refused(&self, why: &str) {
        self.setup.main.hold("the mirror does not fit this directory");
        self.set_phase(Phase::Refused { why: why.to_owned() });
        self.setup.notify.warn(&format!("nothing is acknowledged any more: {why}"));
    }

    /// Waits until clients may be admitted: the mirror has everything, or it was reported that commits wait, or continue without
    /// it. Err: why clients may not be admitted. After `max` they are admitted, and commits wait.
    pub fn until_settled(&self, max: Duration) -> Result<(), String> {
        let until = Instant::now() + max;
        let mut state = self.current.lock();
        loop {
            match &state.phase {
                Phase::Refused { why } => return Err(why.clone()),
                Phase::InService | Phase::Copying { .. } | Phase::Away { .. } => return Ok(()),
                Phase::CatchingUp if !state.waits => return Ok(()),
                Phase::Opening | Phase::CatchingUp => {}
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return Ok(());
            }
        }
    }

    /// Checks the state; called many times a second, by a thread that the mirror's disk cannot block.
    pub fn check(self: &Arc<MirrorState>) {
        let mut state = self.current.lock();
        self.apply_record(&mut state);
        if !matches!(state.phase, Phase::Opening | Phase::CatchingUp | Phase::InService) {
            return;
        }
        self.check_silence(&mut state);
        if state.phase == Phase::Opening {
            return;
        }
        if state.phase == Phase::InService {
            let due = state.updated.is_none_or(|at| at.elapsed() >= UPDATE_EVERY);
            drop(state);
            if due {
                self.update_directory();
            }
            return;
        }
        let main = &self.setup.main;
        let whole = self.has().min(Lsn(self.applied.load(Ordering::Acquire)));
        let behind = main.trail().durable().0.saturating_sub(whole.0);
        if !state.waits && whole >= state.must_reach && behind < NEAR_BYTES {
            main.wait_for_mirror(true);
            (state.waits, state.target) = (true, None);
        }
        if !state.waits {
            return;
        }
        // Read after commits began to wait: nothing above it is acknowledged without the mirror.
        let target = *state.target.get_or_insert_with(|| main.trail().durable());
        if whole >= target {
            self.begin_service(state);
        }
    }

    fn begin_service(self: &Arc<MirrorState>, mut state: MutexGuard<'_, Current>) {
        let before = state.record.clone();
        let now = unix_ms();
        state.record =
            Record { state: RecordState::InService, since_unix_ms: now, lsn: 0, distrusted: None, ..before.clone() };
        state.unwritten = true;
        if !self.write(&mut state) {
            state.record = before;
            return;
        }
        (state.phase, state.target) = (Phase::InService, None);
        // In this order: what arrives in between is let through by one of the two.
        self.serves.store(true, Ordering::Release);
        self.setup.main.mirrored(self.has());
        self.changed.notify_all();
        drop(state);
        let mirror = self.setup.mirror.display();
        self.setup.notify.info(&format!("the mirror {mirror} is in service: commits wait for both disks"));
        self.update_directory();
    }

    /// Reports a mirror that commits have waited for too long, or leaves it behind.
    fn check_silence(&self, state: &mut Current) {
        let Setup { main, mirror, away, silence_max, notify, .. } = &self.setup;
        let has = self.has();
        let done = has.0 + self.applied.load(Ordering::Acquire);
        let waiting = state.waits && main.gate().first.is_some_and(|(_, end)| end > has || state.target.is_some());
        if !waiting || state.seen.0 != done {
            state.seen = (done, Instant::now());
            state.reported_silent = false;
            return;
        }
        if state.seen.1.elapsed() < *silence_max || state.reported_silent {
            return;
        }
        state.reported_silent = true;
        let (mirror, ms) = (mirror.display(), silence_max.as_millis());
        match away {
            Away::Wait => {
                notify.warn(&format!("the mirror {mirror} has not answered for {ms} ms: commits WAIT for it"))
            }
            Away::GoOn => {
                if state.phase == Phase::InService {
                    state.phase = Phase::CatchingUp;
                }
                self.serves.store(false, Ordering::Release);
                state.must_reach = main.trail().durable();
                self.leave_behind(state, has);
                self.apply_record(state);
                notify.warn(&format!(
                    "the mirror {mirror} has not answered for {ms} ms: commits continue WITHOUT it, on one disk only"
                ));
            }
        }
    }

    /// Makes the record say that the mirror has everything below `had`, and perhaps nothing more.
    fn leave_behind(&self, state: &mut Current, had: Lsn) {
        state.target = None;
        if state.record.state == RecordState::InService {
            state.record.state = RecordState::LeftBehind;
            (state.record.lsn, state.record.since_unix_ms) = (had.0, unix_ms());
            state.unwritten = true;
        }
    }

    /// Writes the record first; then opens the gate where commits need not wait.
    fn apply_record(&self, state: &mut Current) {
        let was_just_tried = state.failed.is_some_and(|at| at.elapsed() < WRITE_AGAIN_AFTER);
        if state.unwritten && (was_just_tried || !self.write(state)) {
            return;
        }
        let alone = self.setup.away == Away::GoOn && state.record.state != RecordState::InService;
        let is_joining = state.phase == Phase::CatchingUp && state.target.is_some();
        if alone && state.waits && !is_joining {
            state.waits = false;
            self.setup.main.wait_for_mirror(false);
        }
    }

    fn write(&self, state: &mut Current) -> bool {
        match state.record.write(&self.setup.dir) {
            Ok(()) => {
                (state.unwritten, state.failed) = (false, None);
                true
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                tracing::error!("commits wait until mirror.toml can be written: {error}");
                false
            }
        }
    }

    /// Writes the state to the mirror's directory, if its disk allows. Nothing waits for that.
    fn update_directory(self: &Arc<MirrorState>) {
        self.current.lock().updated = Some(Instant::now());
        if self.updating.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        let updated = std::thread::Builder::new().name("mirror state".into()).spawn(move || {
            if let Err(error) = shared.write_state() {
                tracing::warn!("cannot write the state to the mirror's directory: {error}");
            }
            shared.updating.store(false, Ordering::Release);
        });
        if let Err(error) = updated {
            self.updating.store(false, Ordering::Release);
            tracing::warn!("cannot write the state to the mirror's directory: {error}");
        }
    }

    fn write_state(&self) -> io::Result<()> {
        let mut of = self.of.lock();
        // Read under that lock: a change of the directory is set in the phase first.
        let (phase, record) = (self.phase(), self.record());
        let state = match (phase, record.state) {
            (Phase::InService, _) => CopyState::Following,
            (Phase::Away { .. } | Phase::CatchingUp, RecordState::LeftBehind) => CopyState::LeftBehind,
            _ => return Ok(()),
        };
        let found = match of.take() {
            Some(found) => Some(found),
            None => MirrorOf::read(&self.setup.mirror)?.filter(|found| found.copy == record.copy),
        };
        let Some(mut new) = found else { return Ok(()) };
        new.state = state;
        new.away = self.setup.away;
        if state == CopyState::Following {
            new.seen_unix_ms = unix_ms();
        }
        let written = new.write(&self.setup.mirror);
        *of = Some(new);
        written
    }
}

#[cfg(test)]
mod tests;
