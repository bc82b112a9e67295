//! The current time, as a trait so that tests control it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync {
    /// Milliseconds since 1970-01-01 UTC. May jump when the operator or NTP sets the clock.
    fn unix_ms(&self) -> u64;

    /// A reading that never goes back, for delays and time-outs.
    fn monotonic(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Clone, Copy, Default, Debug)]
pub struct RealClock;

impl Clock for RealClock {
    fn unix_ms(&self) -> u64 {
        // A clock set before 1970 reads as 0: only the displayed time depends on it.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}
