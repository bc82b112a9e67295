//! Slows the writer down when checkpoints fall behind, so that recovery stays within its bound (RULE 9).
//!
//! A governor may request a delay as well, so that standbys keep up ([`crate::Engine::set_delay`]).
//!
//! The delay grows with the redo debt, with that of large transactions counted apart: none below [`FREE`] of the limit,
//! then in proportion to what is used, up to [`DELAY_MAX`] a batch. There is no hard stop: a slow disk makes writers
//! slow, never stuck.

use super::connection::Writer;
use std::time::Duration;

/// Part of the limit up to which no writer is slowed down.
const FREE: f64 = 0.7;

/// Large transactions may take the debt to this many times its limit before writers are slowed down for them: one of 174 MiB
/// is a second of it by itself, and a checkpoint of as much takes some seconds, in which no other writer made progress.
const WITH_LARGE: f64 = 3.0;

/// Longest delay before one batch; far below what a client would notice as a stall.
const DELAY_MAX: Duration = Duration::from_millis(20);

impl Writer {
    /// With no transaction open on this volume, and so with nothing held that other sessions wait for.
    pub(super) fn throttle(&mut self) {
        let engine = &self.database.engine;
        let used = counted(engine.redo_used_by_small(), engine.redo_used());
        if used > FREE {
            self.database.engine.checkpointer.wake();
            std::thread::sleep(delay(used));
        }
        let bytes = std::mem::take(&mut self.last_batch_bytes);
        self.database.wait_for_governor(bytes);
    }
}

/// For the delay: the part of the redo limit that small transactions have used, and the part that all have used.
fn counted(by_small: f64, by_all: f64) -> f64 {
    by_small.max(by_all / WITH_LARGE)
}

/// Delay before a batch when `used` of the redo limit is used up.
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
