//! Where the mirror stands, and what commits do meanwhile.
//!
//! | phase | `mirror_away = "wait"` | `"go_on"` |
//! |---|---|---|
//! | opening, copying, away | commits wait | commits go on, once the record says that the mirror is left behind |
//! | catching up: it has not all of it yet, or has not put all of it into its databases | commits wait | commits go on until the mirror is near the end, then they wait |
//! | in service: it has all that was acknowledged | commits wait for the mirror | the same; where it does not answer for too long, it is left behind |
//! | refused | nothing is acknowledged, in either mode | the same |
//!
//! The record is durable before the gate is opened without the mirror, and says that the mirror is in service only after
//! all that was acknowledged without it is there. So whoever reads the record never believes too much.
//!
//! Failure: while the record cannot be written commits wait, and it is tried again.

use super::files::{CopyState, MirrorOf, Record, RecordState};
use crate::config::Away;
use crate::replication::Notify;
use holdfast_engine::Engine;
use holdfast_types::Lsn;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// With less to go than this a mirror that commits do not wait for is waited for again.
const NEAR_BYTES: u64 = 4 << 20;

/// A record that could not be written is tried again after that.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How often a mirror in service is told so, for whoever has only its disk later.
const NOTE_EVERY: Duration = Duration::from_secs(20);

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

/// What does not change while the server has its role.
pub struct Setup {
    pub main: Engine,
    /// The data directory.
    pub dir: PathBuf,
    pub mirror: PathBuf,
    pub away: Away,
    /// A mirror in service that is silent for so long, while commits wait for it, counts as away.
    pub silence_max: Duration,
    pub notify: Notify,
}

/// See the module.
pub struct Shared {
    pub setup: Setup,
    /// The mirror has everything below on its disk; 0 while it is not followed.
    has: AtomicU64,
    /// The same of its databases.
    applied: AtomicU64,
    /// What it has lets commits pass.
    serves: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// What the mirror's directory says of itself, once it was read or made.
    of: Mutex<Option<MirrorOf>>,
    noting: AtomicBool,
}

struct State {
    phase: Phase,
    record: Record,
    /// The record is not on the disk as it is here.
    unwritten: bool,
    /// When writing it has failed last.
    failed: Option<Instant>,
    /// Commits wait for the mirror.
    waits: bool,
    /// Waited for again: it is in service when it has everything below.
    target: Option<Lsn>,
    /// It was silent: it is waited for again when it has everything below.
    must_reach: Lsn,
    /// What it had written and applied at the last look, and since when commits wait for more.
    seen: (u64, Instant),
    told_silent: bool,
    noted: Option<Instant>,
}

pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

impl Shared {
    /// `record`: as it is on the disk. Commits wait from now on, unless the record says that they need not.
    pub fn new(setup: Setup, record: Record) -> Arc<Shared> {
        let waits = setup.away == Away::Wait || record.state == RecordState::InService;
        if waits {
            setup.main.wait_for_mirror(true);
        }
        let state = State {
            phase: Phase::Opening,
            record,
            unwritten: false,
            failed: None,
            waits,
            target: None,
            must_reach: Lsn(0),
            seen: (0, Instant::now()),
            told_silent: false,
            noted: None,
        };
        Arc::new(Shared {
            setup,
            has: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            of: Mutex::default(),
            noting: AtomicBool::new(false),
        })
    }

    pub fn phase(&self) -> Phase {
        self.state.lock().phase.clone()
    }

    pub fn record(&self) -> Record {
        self.state.lock().record.clone()
    }

    /// Whether commits wait for the mirror.
    pub fn waits(&self) -> bool {
        self.state.lock().waits
    }

    pub fn has(&self) -> Lsn {
        Lsn(self.has.load(Ordering::Acquire))
    }

    /// The mirror's directory is read, recovered or copied.
    pub fn set_phase(&self, phase: Phase) {
        self.state.lock().phase = phase;
        self.changed.notify_all();
    }

    /// Replaces what the mirror's directory says of itself, on its disk.
    pub fn write_of(&self, mut new: MirrorOf) -> io::Result<()> {
        let mut of = self.of.lock();
        new.away = self.setup.away;
        new.write(&self.setup.mirror)?;
        *of = Some(new);
        Ok(())
    }

    /// A copy begins: the mirror has nothing from here on. Durable when it returns true.
    pub fn begin_copy(&self, copy: &str) -> bool {
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
        state.phase = Phase::CatchingUp;
        state.target = None;
        self.serves.store(false, Ordering::Release);
        self.has.store(from.0, Ordering::Release);
    }

    /// The mirror has everything below on its disk; answers that have waited for it leave on this thread.
    pub fn received(&self, end: Lsn) {
        self.has.fetch_max(end.0, Ordering::AcqRel);
        if self.serves.load(Ordering::Acquire) {
            self.setup.main.mirrored(end);
        }
    }

    /// The mirror is out of reach, for this reason. `distrusted`: what its disk holds is not believed any more.
    pub fn lost(self: &Arc<Shared>, why: &str, distrusted: bool) {
        let Setup { main, mirror, away, notify, .. } = &self.setup;
        let mut state = self.state.lock();
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
        self.settle(&mut state);
        self.changed.notify_all();
        drop(state);
        if is_news {
            let then = match away {
                Away::Wait => "commits WAIT until it is back (mirror_away = \"wait\")",
                Away::GoOn => "commits go on WITHOUT it: one disk is all there is",
            };
            notify.tell(&format!("the mirror {} is out of service: {why}; {then}", mirror.display()));
        }
        self.note();
    }

    /// The mirror has taken this server's place, or has what this server lost: nothing is acknowledged any more.
    pub fn refused(&self, why: &str) {
        self.setup.main.hold("the mirror does not fit this directory");
        self.set_phase(Phase::Refused { why: why.to_owned() });
        self.setup.notify.tell(&format!("nothing is acknowledged any more: {why}"));
    }

    /// Waits until it is known whether clients may be let in: the mirror has everything, or commits wait or go on without
    /// it, which was told. Err: why they may not. Beyond `max` they are let in, and commits wait.
    pub fn until_settled(&self, max: Duration) -> Result<(), String> {
        let until = Instant::now() + max;
        let mut state = self.state.lock();
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

    /// Looks how things are; to be called many times a second, by a thread that the mirror's disk cannot stop.
    pub fn look(self: &Arc<Shared>) {
        let mut state = self.state.lock();
        self.settle(&mut state);
        if !matches!(state.phase, Phase::Opening | Phase::CatchingUp | Phase::InService) {
            return;
        }
        self.look_for_silence(&mut state);
        if state.phase == Phase::Opening {
            return;
        }
        if state.phase == Phase::InService {
            let due = state.noted.is_none_or(|at| at.elapsed() >= NOTE_EVERY);
            drop(state);
            if due {
                self.note();
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
        // Read after the gate was shut: nothing above it is acknowledged without the mirror.
        let target = *state.target.get_or_insert_with(|| main.trail().durable());
        if whole >= target {
            self.begin_service(state);
        }
    }

    fn begin_service(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
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
        // In this order: what comes between is let through by one of both.
        self.serves.store(true, Ordering::Release);
        self.setup.main.mirrored(self.has());
        self.changed.notify_all();
        drop(state);
        let mirror = self.setup.mirror.display();
        self.setup.notify.tell(&format!("the mirror {mirror} is in service: commits wait for both disks"));
        self.note();
    }

    /// Commits have waited for the mirror for too long.
    fn look_for_silence(&self, state: &mut State) {
        let Setup { main, mirror, away, silence_max, notify, .. } = &self.setup;
        let has = self.has();
        let done = has.0 + self.applied.load(Ordering::Acquire);
        let waiting = state.waits && main.gate().first.is_some_and(|(_, end)| end > has || state.target.is_some());
        if !waiting || state.seen.0 != done {
            state.seen = (done, Instant::now());
            state.told_silent = false;
            return;
        }
        if state.seen.1.elapsed() < *silence_max || state.told_silent {
            return;
        }
        state.told_silent = true;
        let (mirror, ms) = (mirror.display(), silence_max.as_millis());
        match away {
            Away::Wait => {
                notify.tell(&format!("the mirror {mirror} has not answered for {ms} ms: commits WAIT for it"))
            }
            Away::GoOn => {
                if state.phase == Phase::InService {
                    state.phase = Phase::CatchingUp;
                }
                self.serves.store(false, Ordering::Release);
                state.must_reach = main.trail().durable();
                self.leave_behind(state, has);
                self.settle(state);
                notify.tell(&format!(
                    "the mirror {mirror} has not answered for {ms} ms: commits go on WITHOUT it, one disk is all there is"
                ));
            }
        }
    }

    /// The record is to say that the mirror has everything below `had`, and perhaps no more.
    fn leave_behind(&self, state: &mut State, had: Lsn) {
        state.target = None;
        if state.record.state == RecordState::InService {
            state.record.state = RecordState::LeftBehind;
            (state.record.lsn, state.record.since_unix_ms) = (had.0, unix_ms());
            state.unwritten = true;
        }
    }

    /// What the record says comes first; then the gate.
    fn settle(&self, state: &mut State) {
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

    fn write(&self, state: &mut State) -> bool {
        match state.record.write(&self.setup.dir) {
            Ok(()) => {
                (state.unwritten, state.failed) = (false, None);
                true
            }
            Err(error) => {
                state.failed = Some(Instant::now());
                tracing::error!("commits wait until it is written down how the mirror is: {error}");
                false
            }
        }
    }

    /// Tells the mirror's directory how things are, as far as its disk takes it. Nobody waits for that.
    fn note(self: &Arc<Shared>) {
        self.state.lock().noted = Some(Instant::now());
        if self.noting.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        let noted = std::thread::Builder::new().name("mirror note".into()).spawn(move || {
            if let Err(error) = shared.write_note() {
                tracing::warn!("the mirror's directory cannot be told how things are: {error}");
            }
            shared.noting.store(false, Ordering::Release);
        });
        if let Err(error) = noted {
            self.noting.store(false, Ordering::Release);
            tracing::warn!("the mirror's directory cannot be told how things are: {error}");
        }
    }

    fn write_note(&self) -> io::Result<()> {
        let mut of = self.of.lock();
        // Looked at under that lock: whoever changes the directory says so before.
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
