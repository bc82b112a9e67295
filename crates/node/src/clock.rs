//! The time of day, and the moments that the server remembers.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// When the server started, and when its settings were read last; 0 before that.
static SERVER_START_US: AtomicI64 = AtomicI64::new(0);
static SETTINGS_READ_US: AtomicI64 = AtomicI64::new(0);

/// Microseconds since 1970 UTC.
pub fn now_us() -> i64 {
    // A clock before 1970 reads as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}

/// The server starts now, and has read its settings.
pub fn server_starts() {
    SERVER_START_US.store(now_us(), Ordering::Relaxed);
    settings_were_read();
}

/// The settings were read again.
pub fn settings_were_read() {
    SETTINGS_READ_US.store(now_us(), Ordering::Relaxed);
}

pub fn server_start_us() -> i64 {
    SERVER_START_US.load(Ordering::Relaxed)
}

pub fn settings_read_us() -> i64 {
    SETTINGS_READ_US.load(Ordering::Relaxed)
}
