//! The governor: slows the master smoothly where a standby cannot keep up, so that the lag stays bounded.
//!
//! Lag is what was written at the master and not yet applied at the standby, in bytes of the trail. Up to 0.3 of its
//! bound W (`lag_bytes_max`) nothing happens. Above that, each boxcar is delayed before it is appended, with no locks
//! held, by the time that the law computes ([`law`]); of several standbys the slowest one decides. Levels do not
//! change: they are a promise about durability ([`raise`] is the paper's method, an additional option).
//!
//! A standby is governed by state:
//!
//! | state | when | slows the master |
//! |---|---|---|
//! | catching up | connected with more lag than 0.3 W, not below it since | no |
//! | governed | was below 0.3 W | yes |
//! | stalled | has work and applied nothing for `stall_max` | no; becomes governed again below 0.3 W |
//!
//! A disconnected standby has none of these states and slows nothing. So a dead standby does not throttle the master
//! indefinitely, and one that returns after a day does not stop the master while it catches up.
//!
//! Figures of the simulation (`cargo run -p holdfast-standby --example governor`; described in [`simulation`]): a load
//! of 1.3 times what the standby applies, five minutes including the rise to it, W = 64 MiB = 3.4 s of work, checkpoint
//! pauses of 0.3 s. Means of eight seeds, the worst in parentheses:
//!
//! | law | variation of the 1 s rate | slowest second / mean | applied / capacity | most lag / W |
//! |---|---|---|---|---|
//! | curve | 0.098 (0.100) | 0.724 (0.708) | 1.000 | 0.733 (0.735) |
//! | **linear** | **0.088 (0.090)** | **0.768 (0.758)** | **1.000** | **0.746 (0.753)** |
//! | relay | 0.486 (0.491) | 0.000 (0.000) | 1.000 | 0.901 (0.901) |
//! | quota | 0.209 (0.212) | 0.551 (0.532) | 1.000 | 0.517 (0.537) |
//! | spring | 0.411 (0.418) | 0.272 (0.258) | 0.982 | 0.879 (0.894) |
//!
//! Linear is in use: it is the steadiest. The curve stays further below W when the standby suddenly becomes a fifth as
//! fast (0.807 against 0.937 of W); neither reaches W then. With pauses of 1 s, a third of the work in W, the variation
//! is 0.192 (linear), 0.226 (curve), 0.480 (relay), 1.160 (quota, which then gets only 0.48 of the capacity): for a
//! smooth rate make W large compared with the pauses.
//!
//! Failure: nothing here can fail. The master stops waiting for a standby that has applied nothing for `stall_max`.

pub mod law;
pub mod raise;
mod rate;
pub mod simulation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_types::Lsn;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use law::{FREE_SHARE, Law, Throttle};

/// The law in use.
pub const LAW: Law = Law::Linear;

#[derive(Clone, Debug)]
pub struct GovernorOptions {
    pub law: Law,
    /// W, the bound of the lag in bytes. 0 turns the governor off.
    pub lag_bytes_max: u64,
    /// The master no longer waits for a standby that has work and has applied nothing for this time.
    pub stall_max: Duration,
}

impl Default for GovernorOptions {
    fn default() -> GovernorOptions {
        GovernorOptions { law: LAW, lag_bytes_max: 256 << 20, stall_max: Duration::from_secs(10) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GovernorState {
    CatchingUp,
    Governed,
    Stalled,
}

/// The governor's report on one standby.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub standby: String,
    pub state: GovernorState,
    pub lag_bytes: u64,
    /// `None` until it has been seen applying.
    pub rate_bytes_per_s: Option<u64>,
    /// The last delay caused by this standby, in microseconds.
    pub delay_us: u64,
}

struct Governed {
    state: GovernorState,
    throttle: Throttle,
    applied: u64,
    moved_us: u64,
    delay_us: u64,
}

pub struct Governor {
    options: GovernorOptions,
    started: Instant,
    /// Whether any standby is governed. This check is the only cost for a master without standbys.
    active: AtomicBool,
    standbys: Mutex<BTreeMap<String, Governed>>,
}

impl Governor {
    pub fn new(options: GovernorOptions) -> Governor {
        Governor { options, started: Instant::now(), active: AtomicBool::new(false), standbys: Mutex::default() }
    }

    /// Records that a standby begins to follow: everything below `applied` is applied there.
    pub fn connected(&self, standby: &str, sent: Lsn, applied: Lsn) {
        if self.options.lag_bytes_max == 0 {
            return;
        }
        let now_us = self.now_us();
        let mut throttle = Throttle::new(self.options.law, self.options.lag_bytes_max);
        throttle.sample(now_us, sent.0, applied.0);
        let behind = throttle.lag_share(sent.0) > FREE_SHARE;
        let state = if behind { GovernorState::CatchingUp } else { GovernorState::Governed };
        let governed = Governed { state, throttle, applied: applied.0, moved_us: now_us, delay_us: 0 };
        self.standbys.lock().insert(standby.to_owned(), governed);
        self.active.store(true, Ordering::Release);
    }

    /// Records an ack.
    pub fn applied(&self, standby: &str, sent: Lsn, applied: Lsn) {
        let now_us = self.now_us();
        if let Some(governed) = self.standbys.lock().get_mut(standby) {
            governed.ack(now_us, sent.0, applied.0);
        }
    }

    pub fn disconnected(&self, standby: &str) {
        let mut standbys = self.standbys.lock();
        standbys.remove(standby);
        self.active.store(!standbys.is_empty(), Ordering::Release);
    }

    /// Whether a standby is connected that may slow the master.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// The time to wait before a boxcar of `bytes` is appended at `sent`. After waiting, ask again with 0 bytes until
    /// the answer is zero: the lag may have changed meanwhile.
    pub fn charge(&self, sent: Lsn, bytes: u64) -> Duration {
        if !self.is_active() {
            return Duration::ZERO;
        }
        let (now_us, stall_us) = (self.now_us(), self.options.stall_max.as_micros() as u64);
        let mut standbys = self.standbys.lock();
        let delays = standbys.iter_mut().map(|(name, governed)| governed.charge(name, now_us, stall_us, sent.0, bytes));
        Duration::from_micros(delays.max().unwrap_or(0))
    }

    /// Every standby's lag, rate, delay and state.
    pub fn report(&self, sent: Lsn) -> Vec<Report> {
        let report = |(name, governed): (&String, &Governed)| Report {
            standby: name.clone(),
            state: governed.state,
            lag_bytes: governed.throttle.lag_bytes(sent.0),
            rate_bytes_per_s: governed.throttle.rate_bytes_per_s().map(|rate| rate as u64),
            delay_us: governed.delay_us,
        };
        self.standbys.lock().iter().map(report).collect()
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }
}

impl Governed {
    fn ack(&mut self, now_us: u64, sent: u64, applied: u64) {
        if applied > self.applied || applied >= sent {
            (self.applied, self.moved_us) = (self.applied.max(applied), now_us);
        }
        self.throttle.sample(now_us, sent, applied);
        if self.throttle.lag_share(sent) <= FREE_SHARE {
            self.state = GovernorState::Governed;
        }
    }

    fn charge(&mut self, name: &str, now_us: u64, stall_us: u64, sent: u64, bytes: u64) -> u64 {
        if sent <= self.applied {
            // A standby without work does not stall.
            self.moved_us = now_us;
        }
        if self.state == GovernorState::Governed && now_us.saturating_sub(self.moved_us) >= stall_us {
            self.state = GovernorState::Stalled;
            let lag_bytes = self.throttle.lag_bytes(sent);
            tracing::warn!(target: "holdfast::governor", standby = name, lag_bytes, "the standby applies nothing; the master no longer waits for it");
        }
        if self.state != GovernorState::Governed {
            self.delay_us = 0;
            return 0;
        }
        let delay_us = self.throttle.charge(now_us, sent, bytes);
        if bytes > 0 {
            self.delay_us = delay_us;
        }
        delay_us
    }
}
