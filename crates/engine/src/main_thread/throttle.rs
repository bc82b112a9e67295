//! Slows MAIN down when checkpoints fall behind, so that recovery stays within its bound (RULE 9).
//!
//! A governor may ask for a delay as well, so that standbys keep up ([`crate::Engine::set_delay`]).
//!
//! The delay grows with the redo debt, that of large transactions apart: none below [`FREE`] of the limit, then in
//! proportion to how far it is gone, up to [`DELAY_MAX`] a boxcar. No hard stop: a slow disk makes writers slow, never stuck.

use super::exec::Main;
use crate::database::Inner;
use std::time::Duration;

/// Part of the limit up to which nobody is slowed down.
const FREE: f64 = 0.7;

/// Large transactions may take the debt to so many times its limit before anybody is slowed down for them: one of 174 MiB
/// is a second of it by itself, and a checkpoint of as much takes some seconds, in which nobody else got on.
const WITH_LARGE: f64 = 3.0;

/// Longest delay before one boxcar; far below what a client would take for a stall.
const DELAY_MAX: Duration = Duration::from_millis(20);

impl Main {
    /// With no transaction open on this volume, and so with nothing that anybody else waits for but MAIN itself.
    pub(super) fn throttle(&mut self) {
        let shared = &self.inner.shared;
        let used = counted(shared.redo_used_by_small(), shared.redo_used());
        if used > FREE {
            self.inner.shared.checkpointer.wake();
            std::thread::sleep(delay(used));
        }
        let bytes = std::mem::take(&mut self.last_boxcar_bytes);
        governed(&self.inner, bytes);
    }
}

/// Waits as long as the governor wants after a boxcar of `bytes`.
pub fn governed(inner: &Inner, bytes: u64) {
    let Some(governor) = inner.shared.delay.get() else { return };
    let mut delay = governor(bytes);
    // It is asked until it is content: that is its hard stop. Not by a database that is being closed.
    while !delay.is_zero() && inner.main.read().is_some() {
        std::thread::sleep(delay);
        delay = governor(0);
    }
}

/// Of the redo limit, for the delay: what small transactions have used of it, and all with the large ones.
fn counted(by_small: f64, by_all: f64) -> f64 {
    by_small.max(by_all / WITH_LARGE)
}

/// Delay before a boxcar when `used` of the redo limit is used up.
fn delay(used: f64) -> Duration {
    DELAY_MAX.mul_f64(((used - FREE) / (1.5 - FREE)).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_rises_and_is_bounded() {
        assert_eq!(delay(0.5), Duration::ZERO);
        assert!(delay(0.8) < delay(1.0));
        assert_eq!(delay(9.0), DELAY_MAX);
    }

    #[test]
    fn one_large_transaction_slows_nobody_down_and_many_do() {
        assert_eq!(delay(counted(0.5, 1.7)), Duration::ZERO);
        assert!(delay(counted(0.9, 1.7)) > Duration::ZERO, "small ones do as before");
        assert_eq!(delay(counted(0.0, 4.5)), DELAY_MAX);
    }
}
