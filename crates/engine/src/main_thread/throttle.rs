//! Slows MAIN down when checkpoints fall behind, so that recovery stays within its bound (RULE 9).
//!
//! A governor may ask for a delay as well, so that standbys keep up ([`crate::Engine::set_delay`]).
//!
//! The delay grows with the redo debt: none below [`FREE`] of the limit, then in proportion to how far it is gone, up to
//! [`DELAY_MAX`] a boxcar. No hard stop: a slow disk makes writers slow, never stuck.

use super::exec::Main;
use std::time::Duration;

/// Part of the limit up to which nobody is slowed down.
const FREE: f64 = 0.7;

/// Longest delay before one boxcar; far below what a client would take for a stall.
const DELAY_MAX: Duration = Duration::from_millis(20);

impl Main {
    /// With no transaction open on this volume, and so with nothing that anybody else waits for but MAIN itself.
    pub(super) fn throttle(&mut self) {
        let used = self.inner.shared.redo_used();
        if used > FREE {
            self.inner.shared.checkpointer.wake();
            std::thread::sleep(delay(used));
        }
        let bytes = std::mem::take(&mut self.last_boxcar_bytes);
        let Some(governor) = self.inner.shared.delay.get() else { return };
        let mut governed = governor(bytes);
        // It is asked until it is content: that is its hard stop. Not by a database that is being closed.
        while !governed.is_zero() && self.inner.main.read().is_some() {
            std::thread::sleep(governed);
            governed = governor(0);
        }
    }
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
}
