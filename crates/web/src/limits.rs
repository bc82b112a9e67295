//! The limits of the HTTP listener. A page for operators needs little; what exceeds a limit is refused.

use std::time::Duration;

/// Connections at a time. One more ends the connection whose last request is the oldest: idle and stalled connections cannot keep
/// a load balancer's check out.
pub const CONNECTIONS_MAX: usize = 128;

/// How long the head of a request may take, the time before its first byte included: a connection that is kept open sends the next
/// request within this time, or is closed. Prometheus's longest usual interval is one minute.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(75);

/// How long the first request of a connection may take to arrive: a client that connects has something to ask.
pub const FIRST_TIME_MAX: Duration = Duration::from_secs(5);

/// How long TLS may take to be agreed on.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a request's body may take, and an answer until it has been handed to the operating system.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 16 << 10;

/// Lines in a request's head.
pub const HEADERS_MAX: usize = 64;

/// Bytes of a request's body.
pub const BODY_BYTES_MAX: usize = 4 << 10;

/// Sessions of the console.
pub const CONSOLE_SESSIONS_MAX: usize = 64;

/// A console session ends after this time without a request, and after this time in any case.
pub const CONSOLE_IDLE_MAX: Duration = Duration::from_secs(30 * 60);
pub const CONSOLE_TIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Failed logins of one address within the time of one minute; beyond, further attempts are refused unchecked.
pub const LOGIN_FAILURES_MAX: u32 = 10;

/// Addresses whose failed logins are remembered.
pub const LOGIN_ADDRESSES_MAX: usize = 1024;

/// Seconds that the history goes back: one point a second.
pub const HISTORY_POINTS: usize = 900;

/// Sessions shown in the console, the busiest first.
pub const SESSIONS_SHOWN_MAX: usize = 500;

/// Events sent at a time.
pub const EVENTS_SHOWN_MAX: usize = 200;
