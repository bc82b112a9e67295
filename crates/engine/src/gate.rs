//! The gate between "durable here" and "answered": what a commit's level asks of standbys is waited for here.
//!
//! Every boxcar passes it, in the order of the trail: until it has passed, no reader sees it and nobody who wrote it, or
//! saw it, is answered (guarantee 2). A boxcar's level is the highest of its transactions'.
//!
//! | the gate | a boxcar whose level is reached, none waits before it | any other boxcar |
//! |---|---|---|
//! | open | passes | waits, and so does everything behind it |
//! | held: this node may not acknowledge anything; or it has no right to, asked as the boxcar comes | waits | waits |
//! | closing | passes | the gate is closed |
//! | closed | dropped: it is in the trail, and its clients are not told how it ended | dropped |
//!
//! Where a mirror is waited for, no boxcar's level is reached before the mirror has the boxcar, too ([`Gate::wait_for_mirror`]).
//!
//! With nothing above cold, no mirror and nothing waiting a boxcar costs one atomic load.
//!
//! Failure: there is none here. Who never reaches a level keeps its commits waiting until the gate is closed.

use holdfast_types::{Level, Lsn};
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

/// What a boxcar does when it passes.
type Then = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Default)]
pub struct Gate {
    /// Boxcars wait or pass by a thread of their own, or nothing may pass.
    shut: AtomicBool,
    /// The least that boxcars wait for, whatever they ask: the number of a level.
    floor: AtomicU8,
    /// Asked at the moment of use whether anything may be acknowledged: the lease of a control plane.
    right: OnceLock<Right>,
    state: Mutex<State>,
}

/// See [`Gate::set_right`].
pub type Right = Arc<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    phase: Phase,
    waiting: VecDeque<Waiting>,
    /// Up to where warm, hot and commit are reached.
    reached: [Lsn; 3],
    /// Up to where the mirror has everything; `None`: it is not waited for.
    mirrored: Option<Lsn>,
    /// Why nothing may pass.
    held: Option<String>,
    /// A thread is letting boxcars through; others leave theirs to it, so that the order stays.
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
    then: Then,
}

/// What waits at the gate, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateInfo {
    /// Boxcars that are durable here and not answered.
    pub boxcars: usize,
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
            Level::Cold => true,
            Level::Warm => self.reached[0] >= end,
            Level::Hot => self.reached[1] >= end,
            Level::Commit => self.reached[2] >= end,
        }
    }

    /// The next boxcar that may pass.
    fn next(&mut self) -> Option<Then> {
        if self.held.is_some() || self.phase == Phase::Closed {
            return None;
        }
        let first = self.waiting.front()?;
        let passes = self.has_reached(first.level, first.end);
        if passes { self.waiting.pop_front().map(|w| w.then) } else { None }
    }
}

impl Gate {
    /// From now on nothing passes at a moment at which this says false. What waits is looked at again by
    /// [`Gate::look`]. Once for a gate.
    pub fn set_right(&self, right: Right) -> bool {
        self.right.set(right).is_ok()
    }

    /// Whether anything may be acknowledged, or read as current, at this moment.
    pub fn has_right(&self) -> bool {
        self.right.get().is_none_or(|right| right())
    }

    /// From now on no boxcar waits for less than this level.
    pub fn set_floor(&self, level: Level) {
        self.floor.store(level as u8, Ordering::Relaxed);
    }

    fn floor(&self) -> Level {
        [Level::Cold, Level::Warm, Level::Hot, Level::Commit][usize::from(self.floor.load(Ordering::Relaxed).min(3))]
    }

    /// Runs `then` as soon as everything below `end` has reached `level`, after all that came before. To be called in
    /// the order of the trail, by one thread at a time. False: the gate is closed, `then` was dropped.
    pub fn pass(&self, end: Lsn, level: Level, then: impl FnOnce() + Send + 'static) -> bool {
        let level = level.max(self.floor());
        if level == Level::Cold && !self.shut.load(Ordering::Acquire) && self.has_right() {
            then();
            return true;
        }
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Closed {
                return false;
            }
            self.shut.store(true, Ordering::Release);
            state.waiting.push_back(Waiting { end, level, then: Box::new(then) });
        }
        self.let_through()
    }

    /// Standbys, as many as are asked for, have everything below `lsn` at this level and those under it. False as for
    /// [`Gate::pass`].
    pub fn reached(&self, level: Level, lsn: Lsn) -> bool {
        {
            let mut state = self.state.lock();
            let included = match level {
                Level::Cold => 0,
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

    /// From now on nothing passes, at any level, that the mirror does not have; it is taken to have nothing yet. Or the
    /// mirror is not waited for any more. False as for [`Gate::pass`].
    pub fn wait_for_mirror(&self, wait: bool) -> bool {
        {
            let mut state = self.state.lock();
            state.mirrored = wait.then_some(Lsn(0));
            self.shut.store(true, Ordering::Release);
        }
        self.let_through()
    }

    /// The mirror has everything below `lsn` on its disk. Means nothing while it is not waited for. False as for
    /// [`Gate::pass`].
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

    /// Nothing passes from now on, at any level. A boxcar that is passing at this moment still does.
    pub fn hold(&self, reason: &str) {
        let mut state = self.state.lock();
        state.held = Some(reason.to_owned());
        self.shut.store(true, Ordering::Release);
    }

    /// Ends what [`Gate::hold`] began. False as for [`Gate::pass`].
    pub fn release(&self) -> bool {
        self.state.lock().held = None;
        self.let_through()
    }

    /// Lets through what may pass by now: the right has come back. What [`Gate::hold`] holds stays held. False as for
    /// [`Gate::pass`].
    pub fn look(&self) -> bool {
        self.let_through()
    }

    /// From now on nothing waits: what cannot pass is dropped, and so is all that comes behind it. False: that has
    /// happened already.
    pub fn close(&self) -> bool {
        {
            let mut state = self.state.lock();
            if state.phase == Phase::Open {
                state.phase = Phase::Closing;
            }
        }
        self.let_through()
    }

    pub fn info(&self) -> GateInfo {
        let state = self.state.lock();
        let first = state.waiting.front().map(|w| (w.level, w.end));
        GateInfo { boxcars: state.waiting.len(), first, held: state.held.clone() }
    }

    fn let_through(&self) -> bool {
        let mut state = self.state.lock();
        if state.busy {
            return state.phase != Phase::Closed;
        }
        state.busy = true;
        while self.has_right()
            && let Some(then) = state.next()
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
        // Without the lock: whoever waited may do anything when it learns that there is no answer.
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
        seen.pass(&gate, 10, Level::Cold);
        seen.is(&[10]);
        seen.pass(&gate, 20, Level::Hot);
        seen.pass(&gate, 30, Level::Cold);
        seen.pass(&gate, 40, Level::Warm);
        gate.reached(Level::Warm, Lsn(40));
        seen.is(&[10]);
        assert_eq!(gate.info().first, Some((Level::Hot, Lsn(20))));
        gate.reached(Level::Hot, Lsn(19));
        seen.is(&[10]);
        gate.reached(Level::Commit, Lsn(20));
        seen.is(&[10, 20, 30, 40]);
        seen.pass(&gate, 50, Level::Cold);
        seen.is(&[10, 20, 30, 40, 50]);
        seen.pass(&gate, 20, Level::Commit);
        seen.is(&[10, 20, 30, 40, 50, 20]);
    }

    #[test]
    fn what_comes_while_others_pass_passes_after_them() {
        let (gate, seen) = (Arc::new(Gate::default()), Seen::default());
        let (inner, later) = (gate.clone(), seen.clone());
        gate.pass(Lsn(10), Level::Hot, move || {
            // As if the trail went on while the thread of an ack is at work.
            later.pass(&inner, 20, Level::Cold);
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
        seen.pass(&gate, 10, Level::Cold);
        seen.pass(&gate, 20, Level::Hot);
        seen.is(&[]);
        gate.mirrored(Lsn(19));
        seen.is(&[10]);
        gate.mirrored(Lsn(30));
        gate.mirrored(Lsn(5));
        seen.pass(&gate, 30, Level::Cold);
        seen.is(&[10, 20, 30]);
        seen.pass(&gate, 40, Level::Cold);
        seen.is(&[10, 20, 30]);
        gate.wait_for_mirror(true);
        gate.mirrored(Lsn(39));
        seen.is(&[10, 20, 30]);
        gate.wait_for_mirror(false);
        seen.pass(&gate, 50, Level::Cold);
        seen.is(&[10, 20, 30, 40, 50]);
        assert!(!gate.shut.load(Ordering::Acquire), "without a mirror it costs one load again");
    }

    #[test]
    fn held_is_held_at_every_level() {
        let (gate, seen) = (Gate::default(), Seen::default());
        gate.reached(Level::Commit, Lsn(1000));
        gate.hold("no lease");
        seen.pass(&gate, 10, Level::Cold);
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
        seen.pass(&gate, 10, Level::Cold);
        has.store(false, Ordering::Release);
        seen.pass(&gate, 20, Level::Cold);
        gate.reached(Level::Commit, Lsn(1000));
        gate.look();
        seen.is(&[10]);
        has.store(true, Ordering::Release);
        gate.look();
        seen.pass(&gate, 30, Level::Cold);
        seen.is(&[10, 20, 30]);
        gate.hold("deposed");
        seen.pass(&gate, 40, Level::Cold);
        gate.look();
        seen.is(&[10, 20, 30]);
    }

    #[test]
    fn a_floor_raises_what_asks_for_less_and_lowers_nothing() {
        let (gate, seen) = (Gate::default(), Seen::default());
        gate.set_floor(Level::Warm);
        seen.pass(&gate, 10, Level::Cold);
        seen.pass(&gate, 20, Level::Hot);
        seen.is(&[]);
        gate.reached(Level::Warm, Lsn(20));
        seen.is(&[10]);
        gate.set_floor(Level::Cold);
        gate.reached(Level::Hot, Lsn(20));
        seen.pass(&gate, 30, Level::Cold);
        seen.is(&[10, 20, 30]);
    }

    #[test]
    fn a_closed_gate_drops_what_waits_and_what_comes_behind_it() {
        let (gate, seen) = (Gate::default(), Seen::default());
        assert!(seen.pass(&gate, 10, Level::Hot));
        assert!(seen.pass(&gate, 20, Level::Cold));
        assert!(!gate.close());
        assert!(!seen.pass(&gate, 30, Level::Cold));
        gate.reached(Level::Commit, Lsn(1000));
        seen.is(&[]);
        assert_eq!(Arc::strong_count(&seen.0), 1, "nothing is kept");
    }

    #[test]
    fn a_closing_gate_lets_through_what_waits_for_nothing() {
        let (gate, seen) = (Gate::default(), Seen::default());
        assert!(gate.close());
        assert!(seen.pass(&gate, 10, Level::Cold));
        assert!(!seen.pass(&gate, 20, Level::Warm));
        assert!(!seen.pass(&gate, 30, Level::Cold));
        seen.is(&[10]);
    }
}
