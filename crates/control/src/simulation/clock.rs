//! A node's clock: virtual time, faster or slower, with jumps ahead.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::LeaseClock;

pub struct SimClock {
    state: Mutex<State>,
}

struct State {
    /// When the rate was last set, in virtual time and on this clock.
    since: Instant,
    base_ns: u64,
    rate_percent: u64,
}

impl State {
    fn now_ns(&self) -> u64 {
        self.base_ns + self.since.elapsed().as_nanos() as u64 * self.rate_percent / 100
    }
}

impl SimClock {
    pub fn new(base_ns: u64) -> SimClock {
        SimClock { state: Mutex::new(State { since: Instant::now(), base_ns, rate_percent: 100 }) }
    }

    pub fn set_rate(&self, rate_percent: u64) {
        let mut state = self.state.lock();
        *state = State { base_ns: state.now_ns(), since: Instant::now(), rate_percent };
    }

    pub fn jump_ms(&self, ms: u64) {
        self.state.lock().base_ns += ms * 1_000_000;
    }
}

impl LeaseClock for SimClock {
    fn now_ns(&self) -> u64 {
        self.state.lock().now_ns()
    }
}
