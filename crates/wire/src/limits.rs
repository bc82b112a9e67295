//! The limits of what a client may ask of the server. When a client exceeds a limit, the error has an SQLSTATE and the
//! limit's name, so that it can be found here and in the documentation.

use std::time::Duration;

/// Largest start-up packet (PostgreSQL's MAX_STARTUP_PACKET_LENGTH).
pub const STARTUP_PACKET_BYTES_MAX: usize = 10_000;

/// Largest body of a message without a statement, parameters or data: Describe, Execute, Close, Sync ... (PostgreSQL's
/// PQ_SMALL_MESSAGE_LIMIT).
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;

/// Output is written to the socket when the buffer has this size, even before Sync.
pub const FLUSH_BYTES: usize = 64 * 1024;

/// A buffer that grew beyond this for one large message or result is freed afterwards.
pub const BUFFER_KEPT_BYTES_MAX: usize = 256 * 1024;

/// Clients at a time that are answered with an error while the server serves none.
pub const REFUSALS_MAX: usize = 100;

/// The pause before the next accept when the process has run out of file descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How TCP notices that a silent client has gone; 0 is the system's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keepalives {
    /// Silence before the first probe, in seconds.
    pub idle_s: u32,
    /// Time between two probes, in seconds.
    pub interval_s: u32,
    /// Probes without an answer after which the connection is lost.
    pub count: u32,
    /// Time in milliseconds that sent data may stay unacknowledged before the connection is lost.
    pub user_timeout_ms: u32,
}

/// Limits that the operator sets.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest Query, Parse, Bind or CopyData message in bytes.
    pub message_bytes_max: usize,
    /// Largest number of sessions at one time.
    pub connections_max: usize,
    /// Largest time from accept to the end of the start-up exchange, TLS and authentication included.
    pub startup_timeout: Duration,
    /// Largest number of connections that have not completed their start-up.
    pub half_open_max: usize,
    pub keepalives: Keepalives,
    /// Largest number of named prepared statements of one session.
    pub prepared_statements_max: usize,
    /// Largest number of open named portals of one session.
    pub portals_max: usize,
    /// Largest number of statements in one batch, from one Sync to the next.
    pub batch_steps_max: usize,
    /// Largest size of what a session keeps for its client: see [`crate::memory`].
    pub session_memory_bytes_max: usize,
    /// Largest sum of that over all sessions.
    pub sessions_memory_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            message_bytes_max: 256 * 1024 * 1024,
            connections_max: 2_500,
            startup_timeout: Duration::from_secs(60),
            half_open_max: 1_000,
            keepalives: Keepalives::default(),
            prepared_statements_max: 10_000,
            portals_max: 1_000,
            batch_steps_max: 100_000,
            session_memory_bytes_max: 256 * 1024 * 1024,
            sessions_memory_bytes_max: 1024 * 1024 * 1024,
        }
    }
}
