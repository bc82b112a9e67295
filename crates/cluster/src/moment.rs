//! The two clocks of leases: the holder counts by the one that ends its lease first.
//!
//! CLOCK_BOOTTIME counts the time of a suspend, but chrony may slew it by several per cent; CLOCK_MONOTONIC_RAW is not slewed,
//! but stands still in a suspend.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// A reading of both clocks, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    pub boot_ns: u64,
    pub raw_ns: u64,
}

impl Moment {
    /// RAW is read first: an end on RAW that is computed from what is left on BOOTTIME is never too late, however long the thread
    /// is stopped in between.
    pub fn now() -> Moment {
        let raw_ns = nanoseconds(clock_gettime(ClockId::MonotonicRaw));
        Moment { boot_ns: boot_ns(), raw_ns }
    }
}

/// CLOCK_BOOTTIME in nanoseconds.
pub fn boot_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Boottime))
}

fn nanoseconds(time: Timespec) -> u64 {
    // Both parts are positive on a running machine.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// The wall clock, for events that a person reads.
pub fn unix_ms() -> u64 {
    // A clock before 1970 shows 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
