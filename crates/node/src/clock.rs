//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970 UTC.
pub fn now_us() -> i64 {
    // A clock before 1970 reads as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
