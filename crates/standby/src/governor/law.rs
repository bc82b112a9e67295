//! The laws by which lag becomes delay. [`Throttle`] is one law with its state, for one standby.
//!
//! With L the lag, W its bound and Lmin = 0.3 W, a boxcar of n bytes is delayed, counted from the one before it, by
//!
//! | law | delay |
//! |---|---|
//! | curve | n / rate * (L - Lmin) / (W - L), at most 20 n / rate |
//! | linear | n / rate * 2 (L - Lmin) / (W - Lmin) |
//! | relay | everything stops at 0.9 W and continues at 0.3 W (Galera, Rdb's governor) |
//! | quota | each second gets 0.9 of what was applied in the last one while L > Lmin, half as much more in each second after (MySQL Group Replication) |
//! | spring | the delay is a weight on a damped spring that the distance from 0.5 W pulls |
//!
//! Curve and linear use the rate at which the standby applies. Where the factor after n / rate is 1, master and standby
//! are equally fast, and the lag stays there: at 0.65 W for both. They accumulate nothing over time, so the lag does
//! not oscillate. The other three are for comparison.
//!
//! Under every law a boxcar that would raise the lag above W waits. For curve and linear this is only a safety net: in
//! the simulation they do not reach it.

use crate::governor::rate::Rate;

/// There is no delay below this share of W.
pub const FREE_SHARE: f64 = 0.3;

/// The largest factor of the curve.
const FACTOR_MAX: f64 = 20.0;

/// Delay that was too long because timers are coarse is credited up to this.
const CREDIT_US: u64 = 10_000;

/// The time after which a waiting commit asks again.
const ASK_AGAIN_US: u64 = 5_000;

const RELAY_STOP_SHARE: f64 = 0.9;
const QUOTA_PERIOD_US: u64 = 1_000_000;
const QUOTA_HOLD: f64 = 0.9;
const QUOTA_RELEASE: f64 = 1.5;
const SPRING_REST_SHARE: f64 = 0.5;
/// Pull per second squared and damping per second.
const SPRING_PULL: f64 = 4.0;
const SPRING_DAMPING: f64 = 1.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    Curve,
    Linear,
    Relay,
    Quota,
    Spring,
}

impl Law {
    pub const ALL: [Law; 5] = [Law::Curve, Law::Linear, Law::Relay, Law::Quota, Law::Spring];

    pub fn name(self) -> &'static str {
        match self {
            Law::Curve => "curve",
            Law::Linear => "linear",
            Law::Relay => "relay",
            Law::Quota => "quota",
            Law::Spring => "spring",
        }
    }
}

/// The state of a law.
#[derive(Clone, Debug)]
enum State {
    Curve,
    Linear,
    Relay { stopped: bool },
    Quota { period: u64, applied_at_start: u64, quota: Option<f64>, used: f64 },
    Spring { factor: f64, speed: f64, at_us: Option<u64> },
}

/// One law applied to one standby. Positions are LSNs; times are microseconds of one clock.
#[derive(Clone, Debug)]
pub struct Throttle {
    state: State,
    lag_bytes_max: u64,
    rate: Rate,
    applied: u64,
    /// The time at which the next boxcar may be appended.
    due_us: u64,
    /// The size of the boxcar that was charged last: it may be waiting.
    charged_bytes: u64,
}

impl Throttle {
    pub fn new(law: Law, lag_bytes_max: u64) -> Throttle {
        let state = match law {
            Law::Curve => State::Curve,
            Law::Linear => State::Linear,
            Law::Relay => State::Relay { stopped: false },
            Law::Quota => State::Quota { period: 0, applied_at_start: 0, quota: None, used: 0.0 },
            Law::Spring => State::Spring { factor: 0.0, speed: 0.0, at_us: None },
        };
        let lag_bytes_max = lag_bytes_max.max(1);
        Throttle { state, lag_bytes_max, rate: Rate::default(), applied: 0, due_us: 0, charged_bytes: 0 }
    }

    /// Records an ack.
    pub fn sample(&mut self, now_us: u64, sent: u64, applied: u64) {
        self.applied = self.applied.max(applied);
        self.rate.sample(now_us, sent, self.applied);
        let lag_share = self.lag_share(sent);
        match &mut self.state {
            State::Relay { stopped } => {
                *stopped = lag_share >= RELAY_STOP_SHARE || (*stopped && lag_share > FREE_SHARE);
            }
            State::Spring { factor, speed, at_us } => {
                let seconds = at_us.map_or(0.0, |at| now_us.saturating_sub(at) as f64 / 1e6);
                *at_us = Some(now_us);
                *speed += (SPRING_PULL * (lag_share - SPRING_REST_SHARE) - SPRING_DAMPING * *speed) * seconds;
                *factor = (*factor + *speed * seconds).clamp(0.0, FACTOR_MAX);
            }
            State::Curve | State::Linear | State::Quota { .. } => {}
        }
    }

    /// Charges a boxcar of `bytes` that is to be appended at `sent`, and returns the microseconds to wait before it.
    /// After waiting, the caller asks again with 0 bytes until the answer is 0.
    pub fn charge(&mut self, now_us: u64, sent: u64, bytes: u64) -> u64 {
        if bytes > 0 {
            self.charged_bytes = bytes;
        }
        if self.is_full(sent) {
            return ASK_AGAIN_US;
        }
        let lag_share = self.lag_share(sent);
        let factor = match &mut self.state {
            State::Relay { stopped: true } => return ASK_AGAIN_US,
            State::Relay { stopped: false } => 0.0,
            State::Quota { .. } => return self.charge_quota(now_us, lag_share),
            State::Spring { factor, .. } => *factor,
            State::Curve => ((lag_share - FREE_SHARE) / (1.0 - lag_share)).clamp(0.0, FACTOR_MAX),
            State::Linear => (2.0 * (lag_share - FREE_SHARE) / (1.0 - FREE_SHARE)).max(0.0),
        };
        if factor == 0.0 {
            self.due_us = now_us;
            return 0;
        }
        let delay_us = self.rate.bytes_per_us().map_or(0.0, |rate| factor * bytes as f64 / rate);
        self.due_us = (self.due_us + delay_us as u64).max(now_us.saturating_sub(CREDIT_US));
        self.due_us.saturating_sub(now_us)
    }

    fn charge_quota(&mut self, now_us: u64, lag_share: f64) -> u64 {
        let State::Quota { period, applied_at_start, quota, used } = &mut self.state else { return 0 };
        if now_us / QUOTA_PERIOD_US != *period {
            let applied = self.applied.saturating_sub(*applied_at_start) as f64;
            (*period, *applied_at_start) = (now_us / QUOTA_PERIOD_US, self.applied);
            let over = quota.map_or(0.0, |quota| (*used - quota).max(0.0));
            *quota = if lag_share > FREE_SHARE {
                Some((applied * QUOTA_HOLD - over).max(1.0))
            } else {
                quota.map(|quota| quota * QUOTA_RELEASE)
            };
            *used = 0.0;
        }
        if quota.is_some_and(|quota| *used >= quota) {
            return QUOTA_PERIOD_US - now_us % QUOTA_PERIOD_US;
        }
        *used += self.charged_bytes as f64;
        0
    }

    /// Whether the boxcar charged last would raise the lag above its bound. A boxcar larger than the bound is sent
    /// alone.
    pub fn is_full(&self, sent: u64) -> bool {
        let lag = self.lag_bytes(sent);
        lag > 0 && lag + self.charged_bytes > self.lag_bytes_max
    }

    /// The standby's lag in bytes.
    pub fn lag_bytes(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.applied)
    }

    /// The lag as a share of its bound.
    pub fn lag_share(&self, sent: u64) -> f64 {
        self.lag_bytes(sent) as f64 / self.lag_bytes_max as f64
    }

    /// The standby's apply rate in bytes per second when it has work; `None` while unknown.
    pub fn rate_bytes_per_s(&self) -> Option<f64> {
        self.rate.bytes_per_us().map(|rate| rate * 1e6)
    }
}
