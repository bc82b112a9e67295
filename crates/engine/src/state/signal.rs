//! How the checkpointer is woken and stopped.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Wakes and stops the checkpointer.
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

    /// Waits for `time`, or until it is stopped.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.stop && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// Waits for a wake-up or the time to look; false when it is stopped.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stop {
            self.changed.wait_for(&mut state, LOOK_EVERY);
        }
        state.woken = false;
        !state.stop
    }
}
