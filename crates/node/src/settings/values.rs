//! What follows from a session's parameters, in the form in which the session uses it.

use std::time::Duration;

/// The time-outs that apply to every statement of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    pub statement: Duration,
    pub lock: Duration,
    pub idle_in_transaction: Duration,
    pub idle: Duration,
    /// How often to look, while a statement runs, whether its client is still there; 0 is never.
    pub connection_check: Duration,
    /// How long a wait for a lock lasts before it is logged; 0 is never.
    pub deadlock: Duration,
}

/// Which statements are logged before they run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStatements {
    #[default]
    None,
    Ddl,
    Mod,
    All,
}

/// What of a session is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    pub connections: bool,
    pub disconnections: bool,
    /// Messages that take at least this long; `None`: none.
    pub min_duration: Option<Duration>,
    pub statements: LogStatements,
    /// Errors that the client gets.
    pub errors: bool,
    /// Waits for locks that are longer than `deadlock_timeout`.
    pub lock_waits: bool,
}

/// The settings of automatic transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomaticSettings {
    pub on: bool,
    pub time_max: Duration,
    pub rows_max: u64,
    pub idle: Duration,
}
