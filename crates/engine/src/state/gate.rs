//! The gate between "durable here" and "answered": commits wait here for the standbys that their level requires.
//!
//! Every batch passes it, in the order of the trail: until it has passed, no reader sees it and no client that wrote it, or
//! saw it, is answered (guarantee 2). A batch's level is the highest of its transactions'.
//!
//! | the gate | a batch whose level is reached, with none waiting before it | any other batch |
//! |---|---|---|
//! | open | passes | waits, and so does everything behind it |
//! | held: this node may not acknowledge anything, or its right is checked for the batch and is missing | waits | waits |
//! | closing | passes | the gate is closed |
//! | closed | dropped: it is in the trail, and its clients do not learn how it ended | dropped |
//!
//! While the gate waits for a mirror, no batch's level is reached before the mirror has the batch ([`Gate::wait_for_mirror`]).
//!
//! With nothing above local, no mirror and nothing waiting, a batch costs one atomic load.
//!
//! Failure: there is none here. A standby that never reaches a level keeps commits waiting until the gate is closed.

use holdfast_types::histogram::{Histogram, HistogramFigures};
use holdfast_types::{Level, Lsn};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What a batch does when it passes.
type Then = Box<dyn FnOnce() + Send>;

/// The gate: see the module.
#[derive(Default)]
pub struct Gate {
    /// Batches wait or pass by another thread, or nothing may pass.
    shut: AtomicBool,
    /// The lowest level that batches wait for, whatever they ask: the number of a level.
    floor: AtomicU8,
    /// Called at the moment of use: whether anything may be acknowledged (the lease of a control plane).
    right: OnceLock<Right>,
    state: Mutex<State>,
    /// How long batches waited that did not pass at once, in microseconds.
    waits: Histogram,
}

/// See [`Gate::set_right`].
pub type Right = Arc<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    phase: Phase,
    waiting: VecDeque<Waiting>,
    /// The positions up to which warm, hot and commit are reached.
    reached: [Lsn; 3],
    /// The position up to which the mirror has everything; `None`: the gate does not wait for a mirror.
    mirrored: Option<Lsn>,
    /// Why nothing may pass.
    held: Option<String>,
    /// A thread is passing batches; other threads leave theirs to it, so that the order is kept.
    busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Open,
    Closing,
    Closed,
}

struct Waiting {
    end: Lsn,
    level: Level,
    since: Instant,
    then: Then,
}

/// What waits at the gate, for display.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateInfo {
    /// Batches that are durable here and not yet answered.
    pub batches: usize,
    /// What the first of them waits for, and where it ends.
    pub first: Option<(Level, Lsn)>,
    /// Why nothing may pass.
    pub held: Option<String>,
}

impl State {
    fn has_reached(&self, level: Level, end: Lsn) -> bool {
        if self.mirrored.is_some_and(|mirrored| mirrored < end) {
            return false;
        }
        match level {
            Level::Local => true,
            Level::Warm => self.reached[0] >= end,
            Level::Hot => self.reached[1] >= end,
            Level::Commit => self.reached[2] >= end,
        }
    }

    /// The next batch that may pass.
    fn next(&mut self, waits: &Histogram) -> Option<Then> {
        if self.held.is_some() || self.phase == Phase::Closed {
            return None;
        }
        let first = self.waiting.front()?;
        let passes = self.has_reached(first.level, first.end);
        let passing = if passes { self.waiting.pop_front() } else { None }?;
        waits.observe(passing.since.elapsed().as_micros() as u64);
        Some(passing.then)
    }
}

impl Gate {
    /// Sets the check of the right to acknowledge: nothing passes while it returns false. [`Gate::look`] checks waiting
    /// batches again. Called once for a gate.
    pub fn set_right(&self, right: Right) -> bool {
        self.right.set(right).is_ok()
    }

    /// Whether anything may be acknowledged, or read as current, at this moment.
    pub fn has_right(&self) -> bool {
        self.right.get().is_none_or(|right| right())
    }

    /// Makes every later batch wait for at least this level.
    pub fn set_floor(&self, level: Level) {
        self.floor.store(level as u8, Ordering::Relaxed);
    }

    fn floor(&self) -> Level {
        [Level::Local, Level::Warm, Level::Hot, Level::Commit][usize::from(self.floor.load(Ordering::Relaxed).min(3))]
    }

    /// Runs `then` as soon as everything below `end` has reached `level`, after all earlier batches. Call it in the
    /// order of the trail, from one thread at a time. Returns false if the gate is closed and `then` was dropped.
    pub fn pass(&self, end: Lsn, level: Level, then: impl FnOnce() + Send + 'static) -> bool {
        let level = level.max(self.floor());
        if level == Level::Local && !self.shut.load(Ordering::Acquire) && self.has_right() {
            then();
            return true;
        }
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Closed {
                return false;
            }
            self.shut.store(true, Ordering::Release);
            state.waiting.push_back(Waiting { end, level, since: Instant::now(), then: Box::new(then) });
        }
        self.let_through()
    }

    /// Records that enough standbys have everything below `lsn` at this level and the levels below it. Returns false as
    /// [`Gate::pass`] does.
    pub fn reached(&self, level: Level, lsn: Lsn) -> bool {
        {
            let mut state = self.state.lock();
            let included = match level {
                Level::Local => 0,
                Level::Warm => 1,
                Level::Hot => 2,
                Level::Commit => 3,
            };
            state.reached.iter_mut().take(included).for_each(|r| *r = lsn.max(*r));
            if state.waiting.is_empty() {
                return state.phase != Phase::Closed;
            }
        }
        self.let_through()
    }

    /// Everything that was answered at level hot or above ends below this.
    pub fn reached_hot(&self) -> Lsn {
        self.state.lock().reached[1]
    }

    /// From now on nothing passes, at any level, that the mirror does not have; it is taken to have nothing yet. Or the
    /// mirror is no longer waited for. False as for [`Gate::pass`].
    pub fn wait_for_mirror(&self, wait: bool) -> bool {
        {
            let mut state = self.state.lock();
            state.mirrored = wait.then_some(Lsn(0));
            self.shut.store(true, Ordering::Release);
        }
        self.let_through()
    }

    /// Records that the mirror has everything below `lsn` on its disk. Has no effect while the gate does not wait for a
    /// mirror. Returns false as [`Gate::pass`] does.
    pub fn mirrored(&self, lsn: Lsn) -> bool {
        {
            let mut state = self.state.lock();
            state.mirrored = state.mirrored.map(|mirrored| mirrored.max(lsn));
            if state.waiting.is_empty() {
                return state.phase != Phase::Closed;
            }
        }
        self.let_through()
    }

    /// Stops every batch, at any level, from now on. A batch that is passing at this moment still passes.
    pub fn hold(&self, reason: &str) {
        let mut state = self.state.lock();
        state.held = Some(reason.to_owned());
        self.shut.store(true, Ordering::Release);
    }

    /// Ends what [`Gate::hold`] began. Returns false as [`Gate::pass`] does.
    pub fn release(&self) -> bool {
        self.state.lock().held = None;
        self.let_through()
    }

    /// Passes what may pass by now, because the right to acknowledge has come back. What [`Gate::hold`] holds stays
    /// held. Returns false as [`Gate::pass`] does.
    pub fn recheck(&self) -> bool {
        self.let_through()
    }

    /// Ends all waiting: what cannot pass is dropped, with everything behind it. Returns false if that has happened
    /// before.
    pub fn close(&self) -> bool {
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Open {
                state.phase = Phase::Closing;
            }
        }
        self.let_through()
    }

    /// How long batches waited that did not pass at once, in microseconds.
    pub fn waits(&self) -> HistogramFigures {
        self.waits.figures()
    }

    pub fn info(&self) -> GateInfo {
        let state = self.state.lock();
        let first = state.waiting.front().map(|w| (w.level, w.end));
        GateInfo { batches: state.waiting.len(), first, held: state.held.clone() }
    }

    fn let_through(&self) -> bool {
        let mut state = self.state.lock();
        if state.busy {
            return state.phase != Phase::Closed;
        }
        state.busy = true;
        while self.has_right()
            && let Some(then) = state.next(&self.waits)
        {
            MutexGuard::unlocked(&mut state, then);
        }
        state.busy = false;
        let left = !state.waiting.is_empty();
        let mut dropped = VecDeque::new();
        if state.phase == Phase::Closing && left {
            state.phase = Phase::Closed;
            dropped = std::mem::take(&mut state.waiting);
        }
        let closed = state.phase == Phase::Closed;
        self.shut.store(left || closed || state.held.is_some() || state.mirrored.is_some(), Ordering::Release);
        drop(state);
        // Without the lock: a session that waited may do anything when it learns that there is no answer.
        drop(dropped);
        !closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<u64>>>);

    impl Seen {
        fn pass(&self, gate: &Gate, end: u64, level: Level) -> bool {
            let seen = self.clone();
            gate.pass(Lsn(end), level, move || seen.0.lock().push(end))
        }

        fn is(&self, expected: &[u64]) {
            assert_eq!(*self.0.lock(), expected);
        }
    }

    #[test]
    fn cold_passes_at_once_and_waits_behind_what_waits() {
        let (gate, seen) = (Gate::default(), Seen::default());
        seen.pass(&gate, 10, Level::Local);
        seen.is(&[10]);
        seen.pass(&gate, 20, Level::Hot);
        seen.pass(&gate, 30, Level::Local);
        seen.pass(&gate, 40, Level::Warm);
        gate.reached(Level::Warm, Lsn(40));
        seen.is(&[10]);
        assert_eq!(gate.info().first, Some((Level::Hot, Lsn(20))));
        gate.reached(Level::Hot, Lsn(19));
        seen.is(&[10]);
        gate.reached(Level::Commit, Lsn(20));
        seen.is(&[10, 20, 30, 40]);
        seen.pass(&gate, 50, Level::Local);
        seen.is(&[10, 20, 30, 40, 50]);
        seen.pass(&gate, 20, Level::Commit);
        seen.is(&[10, 20, 30, 40, 50, 20]);
    }

    #[test]
    fn what_comes_while_others_pass_passes_after_them() {
        let (gate, seen) = (Arc::new(Gate::default()), Seen::default());
        let (database, later) = (gate.clone(), seen.clone());
        gate.pass(Lsn(10), Level::Hot, move || {
            // As if the trail continued while the thread of an ack is at work.
            later.pass(&database, 20, Level::Local);
            later.0.lock().push(10);
        });
        gate.reached(Level::Hot, Lsn(10));
        seen.is(&[10, 20]);
    }

    #[test]
    fn nothing_passes_at_any_level_that_the_mirror_does_not_have() {
        let (gate, seen) = (Gate::default(), Seen::default());
        gate.mirrored(Lsn(1000));
        assert!(gate.wait_for_mirror(true));
        gate.reached(Level::Commit, Lsn(1000));
        seen.pass(&gate, 10, Level::Local);
        seen.pass(&gate, 20, Level::Hot);
        seen.is(&[]);
        gate.mirrored(Lsn(19));
        seen.is(&[10]);
        gate.mirrored(Lsn(30));
        gate.mirrored(Lsn(5));
        seen.pass(&gate, 30, Level::Local);
        seen.is(&[10, 20, 30]);
        seen.pass(&gate, 40, Level::Local);
        seen.is(&[10, 20, 30]);
        gate.wait_for_mirror(true);
        gate.mirrored(Lsn(39));
        seen.is(&[10, 20, 30]);
        gate.wait_for_mirror(false);
        seen.pass(&gate, 50, Level::Local);
        seen.is(&[10, 20, 30, 40, 50]);
        assert!(!gate.shut.load(Ordering::Acquire), "without a mirror it costs one load again");
    }

    #[test]
    fn held_is_held_at_every_level() {
        let (gate, seen) = (Gate::default(), Seen::default());
        gate.reached(Level::Commit, Lsn(1000));
        gate.hold("no lease");
        seen.pass(&gate, 10, Level::Local);
        seen.pass(&gate, 20, Level::Hot);
        seen.is(&[]);
        assert_eq!(gate.info().held.as_deref(), Some("no lease"));
        gate.release();
        seen.is(&[10, 20]);
    }

    #[test]
    fn without_the_right_nothing_passes_until_it_is_back() {
        let (gate, seen) = (Gate::default(), Seen::default());
        let has = Arc::new(AtomicBool::new(true));
        let asked = has.clone();
        assert!(gate.set_right(Arc::new(move || asked.load(Ordering::Acquire))));
        seen.pass(&gate, 10, Level::Local);
        has.store(false, Ordering::Release);
        seen.pass(&gate, 20, Level::Local);
        gate.reached(Level::Commit, Lsn(1000));
        gate.recheck();
        seen.is(&[10]);
        has.store(true, Ordering::Release);
        gate.recheck();
        seen.pass(&gate, 30, Level::Local);
        seen.is(&[10, 20, 30]);
        gate.hold("deposed");
        seen.pass(&gate, 40, Level::Local);
        gate.recheck();
        seen.is(&[10, 20, 30]);
    }

    #[test]
    fn a_floor_raises_what_asks_for_less_and_lowers_nothing() {
        let (gate, seen) = (Gate::default(), Seen::default());
        gate.set_floor(Level::Warm);
        seen.pass(&gate, 10, Level::Local);
        seen.pass(&gate, 20, Level::Hot);
        seen.is(&[]);
        gate.reached(Level::Warm, Lsn(20));
        seen.is(&[10]);
        gate.set_floor(Level::Local);
        gate.reached(Level::Hot, Lsn(20));
        seen.pass(&gate, 30, Level::Local);
        seen.is(&[10, 20, 30]);
    }

    #[test]
    fn a_closed_gate_drops_what_waits_and_what_comes_behind_it() {
        let (gate, seen) = (Gate::default(), Seen::default());
        assert!(seen.pass(&gate, 10, Level::Hot));
        assert!(seen.pass(&gate, 20, Level::Local));
        assert!(!gate.close());
        assert!(!seen.pass(&gate, 30, Level::Local));
        gate.reached(Level::Commit, Lsn(1000));
        seen.is(&[]);
        assert_eq!(Arc::strong_count(&seen.0), 1, "nothing is kept");
    }

    #[test]
    fn a_closing_gate_lets_through_what_waits_for_nothing() {
        let (gate, seen) = (Gate::default(), Seen::default());
        assert!(gate.close());
        assert!(seen.pass(&gate, 10, Level::Local));
        assert!(!seen.pass(&gate, 20, Level::Warm));
        assert!(!seen.pass(&gate, 30, Level::Local));
        seen.is(&[10]);
    }
}
