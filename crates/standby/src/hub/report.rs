//! A connected standby as the status shows it.

use serde::Serialize;

/// One connected standby, as the status shows it.
#[derive(Clone, Debug, Serialize)]
pub struct StandbyReport {
    pub name: String,
    pub address: String,
    pub sent_lsn: u64,
    /// `None` before its first ack.
    pub received_lsn: Option<u64>,
    pub durable_lsn: Option<u64>,
    pub applied_lsn: Option<u64>,
    /// Bytes that are written here and not yet applied there.
    pub lag_bytes: Option<u64>,
    /// The age of the oldest of them, in microseconds.
    pub lag_us: Option<u64>,
    pub round_trip_us: Option<u64>,
    /// Its place in the sync set, from 0.
    pub priority: Option<usize>,
    /// It has caught up with the state when it connected, and counts for the sync set if it is listed.
    pub counts: bool,
}
