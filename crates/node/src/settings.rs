//! Run-time parameters: SET, SHOW, RESET.
//!
//! One table holds every parameter and the values it takes. A parameter that is not in it is 42704, as in PostgreSQL; a
//! value that Holdfast does not support is 22023.

use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::time::Duration;

/// What values a parameter takes.
#[derive(Clone, Copy)]
enum Takes {
    Any,
    Bool,
    /// A whole number from the first to the second.
    Int(i64, i64),
    /// A duration: milliseconds, or a number with `us`, `ms`, `s`, `min`, `h`, `d`. 0 switches it off.
    Time,
    /// As [`Takes::Time`], with -1 for off.
    TimeOrOff,
    /// One of these, ASCII case ignored.
    OneOf(&'static [&'static str]),
    /// On or off for a database, by ALTER DATABASE: it holds for all its sessions at once, and none can change it.
    DatabaseBool,
    /// Cannot be changed.
    Fixed,
}

struct Parameter {
    name: &'static str,
    default: &'static str,
    takes: Takes,
    /// Changes are reported to the client by ParameterStatus.
    reported: bool,
}

const fn p(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, takes, reported: false }
}

const fn r(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, takes, reported: true }
}

use Takes::{Any, Bool, DatabaseBool, Fixed, Int, OneOf, Time, TimeOrOff};

/// The smallest and largest values of the bounds of automatic transactions.
pub const AUTO_TIME_MS: (i64, i64) = (1, 3_600_000);
pub const AUTO_ROWS: (i64, i64) = (1, 1_000_000_000);
pub const AUTO_IDLE_MS: (i64, i64) = (0, 3_600_000);

const UTC: &[&str] = &["UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "0", "+00", "00:00", "+00:00", "Zulu", "Universal"];
const SEVERITIES: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"];
const ISOLATION: &[&str] = &["read committed", "read uncommitted", "repeatable read", "serializable"];

/// Parameters with a dot in their name that a session may set.
const OWN_PARAMETERS_MAX: usize = 1000;

/// Version of PostgreSQL whose behaviour drivers may expect.
pub const SERVER_VERSION: &str = "15.0";

/// Takes changes in transactions only; see [`crate::database::Served`].
pub const REQUIRE_TRANSACTION: &str = "require_transaction";

static PARAMETERS: &[Parameter] = &[
    r("application_name", "", Any),
    p("authentication_timeout", "1min", Fixed),
    p("auto_transaction", "off", Bool),
    p("auto_transaction_idle_ms", "10", Int(AUTO_IDLE_MS.0, AUTO_IDLE_MS.1)),
    p("auto_transaction_rows_max", "1000", Int(AUTO_ROWS.0, AUTO_ROWS.1)),
    p("auto_transaction_time_max_ms", "100", Int(AUTO_TIME_MS.0, AUTO_TIME_MS.1)),
    p("bytea_output", "hex", OneOf(&["hex"])),
    p("check_function_bodies", "on", Bool),
    p("client_connection_check_interval", "0", Time),
    p("commit_delay", "auto", Fixed),
    p("commit_siblings", "5", Fixed),
    r("client_encoding", "UTF8", OneOf(&["UTF8", "UTF-8", "unicode", "SQL_ASCII"])),
    p(
        "client_min_messages",
        "notice",
        OneOf(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]),
    ),
    r("DateStyle", "ISO, MDY", OneOf(&["ISO, MDY", "ISO,MDY", "ISO"])),
    p("database", "", Fixed),
    p("deadlock_timeout", "1s", Time),
    p("default_table_access_method", "heap", OneOf(&["heap"])),
    p("default_tablespace", "", OneOf(&[""])),
    p("default_toast_compression", "pglz", Any),
    p("default_transaction_deferrable", "off", Bool),
    p("default_transaction_isolation", "read committed", OneOf(ISOLATION)),
    r("default_transaction_read_only", "off", Bool),
    p("escape_string_warning", "on", Bool),
    p("extra_float_digits", "1", Int(-15, 3)),
    p("holdfast.level", "local", OneOf(&["local", "cold", "warm", "hot", "commit"])),
    p("hba_file", "", Fixed),
    p("ident_file", "", Fixed),
    p("idle_in_transaction_session_timeout", "0", Time),
    p("idle_session_timeout", "0", Time),
    r("in_hot_standby", "off", Fixed),
    r("integer_datetimes", "on", Fixed),
    r("IntervalStyle", "postgres", OneOf(&["postgres"])),
    r("is_superuser", "on", Fixed),
    p("jit", "off", Bool),
    p("lc_collate", "C", Fixed),
    p("lc_ctype", "C", Fixed),
    p("lc_messages", "C", Any),
    p("lc_monetary", "C", OneOf(&["C", "POSIX"])),
    p("lc_numeric", "C", OneOf(&["C", "POSIX"])),
    p("lc_time", "C", OneOf(&["C", "POSIX"])),
    p("listen_addresses", "127.0.0.1", Fixed),
    p("lock_timeout", "0", Time),
    p("log_connections", "off", Bool),
    p("log_disconnections", "off", Bool),
    p("log_min_duration_statement", "-1", TimeOrOff),
    p("log_min_error_statement", "panic", OneOf(SEVERITIES)),
    p("log_statement", "none", OneOf(&["none", "ddl", "mod", "all"])),
    p("max_connections", "2500", Fixed),
    p("max_identifier_length", "63", Fixed),
    p("pg_stat_statements.max", "5000", Fixed),
    p("port", "5433", Fixed),
    p("quote_all_identifiers", "off", Bool),
    p(REQUIRE_TRANSACTION, "off", DatabaseBool),
    p("role", "none", Any),
    p("row_security", "on", Bool),
    p("search_path", "\"$user\", public", Any),
    r("server_encoding", "UTF8", Fixed),
    r("server_version", SERVER_VERSION, Fixed),
    p("server_version_num", "150000", Fixed),
    r("session_authorization", "", Any),
    p("ssl", "off", Fixed),
    p("ssl_ca_file", "", Fixed),
    p("ssl_cert_file", "", Fixed),
    p("ssl_crl_file", "", Fixed),
    p("ssl_key_file", "", Fixed),
    p("ssl_library", "rustls", Fixed),
    p("ssl_max_protocol_version", "", Fixed),
    p("ssl_min_protocol_version", "TLSv1.2", Fixed),
    r("standard_conforming_strings", "on", OneOf(&["on", "true", "1", "yes"])),
    p("statement_timeout", "0", Time),
    p("superuser_reserved_connections", "3", Fixed),
    p("synchronize_seqscans", "on", Bool),
    p("synchronous_standby_names", "", Fixed),
    p(
        "synchronous_commit",
        "on",
        OneOf(&["off", "local", "remote_write", "on", "remote_apply", "true", "false", "yes", "no", "1", "0"]),
    ),
    p("tcp_keepalives_count", "6", Fixed),
    p("tcp_keepalives_idle", "60", Fixed),
    p("tcp_keepalives_interval", "10", Fixed),
    r("TimeZone", "UTC", OneOf(UTC)),
    p("transaction_isolation", "read committed", Fixed),
    p("transaction_read_only", "off", Fixed),
    p("transaction_timeout", "0", OneOf(&["0"])),
    p("unix_socket_directories", "", Fixed),
    p("work_mem", "4MB", Any),
    p("xmloption", "content", Any),
];

fn find(name: &str) -> Option<&'static Parameter> {
    let name = if name.eq_ignore_ascii_case("time zone") { "TimeZone" } else { name };
    PARAMETERS.iter().find(|p| p.name.eq_ignore_ascii_case(name))
}

fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// Every parameter with its value at start, for `pg_settings`.
pub fn defaults() -> Vec<(String, String)> {
    PARAMETERS.iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect()
}

/// How the value is shown, or why it is refused.
fn check(parameter: &Parameter, value: &str) -> SqlResult<String> {
    let refused = || {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{}\": \"{value}\"", parameter.name),
        )
    };
    match parameter.takes {
        Any => Ok(value.to_owned()),
        Bool | DatabaseBool => match value.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" | "1" | "t" | "y" => Ok("on".into()),
            "off" | "false" | "no" | "0" | "f" | "n" => Ok("off".into()),
            _ => Err(refused()),
        },
        Int(min, max) => match value.trim().parse::<i64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n.to_string()),
            _ => Err(refused()),
        },
        TimeOrOff if value.trim() == "-1" => Ok("-1".into()),
        Time | TimeOrOff => duration(value).map(|_| value.to_owned()).ok_or_else(refused),
        OneOf(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value.trim())) {
            Some(_) if parameter.name == "TimeZone" => Ok("UTC".into()),
            Some(_) if parameter.name == "client_encoding" => Ok("UTF8".into()),
            Some(&"cold") => Ok("local".into()), // its former name
            Some(v) => Ok((*v).to_owned()),
            None => Err(refused().with_hint(hint(parameter, values))),
        },
        Fixed => Err(SqlError::new(SqlState("55P02"), format!("parameter \"{}\" cannot be changed", parameter.name))),
    }
}

/// As [`check`], for a value that a session or its client sets.
fn check_own(parameter: &Parameter, value: &str) -> SqlResult<String> {
    match parameter.takes {
        DatabaseBool => Err(for_databases_only(parameter)),
        _ => check(parameter, value),
    }
}

fn for_databases_only(parameter: &Parameter) -> SqlError {
    let message = format!("parameter \"{}\" can only be set for a database", parameter.name);
    SqlError::new(SqlState("55P02"), message).with_hint(format!("ALTER DATABASE ... SET {} = ...", parameter.name))
}

/// Checks the values that the configuration has of what is logged.
pub fn check_logging(parameters: &[(&'static str, String)]) -> Result<(), String> {
    for (name, value) in parameters.iter().filter(|(name, _)| name.starts_with(LOGGING)) {
        let known = find(name).map(|parameter| check(parameter, value));
        if let Some(Err(error)) = known {
            return Err(error.message().to_owned());
        }
    }
    Ok(())
}

/// What begins the name of a parameter of what is logged: that is not for other roles than superusers to decide.
const LOGGING: &str = "log_";

/// Whether only superusers may set the parameter (PostgreSQL's context `superuser`).
pub fn is_superusers(name: &str) -> bool {
    let known = find(name).map_or(name, |parameter| parameter.name);
    known.starts_with(LOGGING) || ["deadlock_timeout", "lc_messages"].iter().any(|p| p.eq_ignore_ascii_case(name))
}

/// The spelling of a parameter's name.
pub fn known(name: &str) -> SqlResult<&'static str> {
    find(name).map(|p| p.name).ok_or_else(|| unknown(name))
}

/// 0A000 for the role of a session: no session begins in another role than it has logged in as.
fn check_is_stored(parameter: &Parameter) -> SqlResult<()> {
    if ["role", "session_authorization"].contains(&parameter.name) {
        return Err(SqlError::unsupported(format!("a start value of the parameter \"{}\"", parameter.name))
            .with_hint("SET ROLE in the session."));
    }
    Ok(())
}

/// The longest value that ALTER DATABASE and ALTER ROLE ... SET take.
const STORED_BYTES_MAX: usize = 8192;

/// Checks a name and value that later sessions of a database or of a user start with.
pub fn check_stored(name: &str, value: &str, for_database: bool) -> SqlResult<(&'static str, String)> {
    let parameter = find(name).ok_or_else(|| unknown(name))?;
    check_is_stored(parameter)?;
    if value.len() > STORED_BYTES_MAX {
        let message = format!("a stored parameter has at most {STORED_BYTES_MAX} bytes, not {}", value.len());
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let value = if for_database { check(parameter, value) } else { check_own(parameter, value) };
    value.map(|value| (parameter.name, value))
}

fn hint(parameter: &Parameter, values: &[&str]) -> String {
    match parameter.name {
        "TimeZone" => "Only UTC is supported.".into(),
        "holdfast.level" => "Supported: local, warm, hot, commit.".into(),
        _ => format!("Supported: {}.", values.join(", ")),
    }
}

/// A duration as PostgreSQL writes it; a bare number is milliseconds.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let us = match unit.trim() {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.checked_mul(us)?))
}

/// Milliseconds as PostgreSQL shows them: in the largest unit that gives a whole number.
pub fn shown_time(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    match units.iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// The level that a value of `synchronous_commit` promises, or a higher one: no level is below durable on this node.
fn level_of(synchronous_commit: &str) -> Level {
    match synchronous_commit {
        "off" | "false" | "no" | "0" | "local" => Level::Local,
        "remote_apply" => Level::Commit,
        _ => Level::Hot,
    }
}

/// The time-outs that apply to every statement of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    pub statement: Duration,
    pub lock: Duration,
    pub idle_in_transaction: Duration,
    pub idle: Duration,
    /// How often to look, while a statement runs, whether its client is still there; 0 is never.
    pub connection_check: Duration,
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
}

/// The settings of automatic transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomaticSettings {
    pub on: bool,
    pub time_max: Duration,
    pub rows_max: u64,
    pub idle: Duration,
}

/// A value before a change, to be restored when the transaction ends.
#[derive(Clone, Debug)]
pub struct Undo {
    name: String,
    value: Option<String>,
    local: bool,
}

/// One session's parameters.
#[derive(Clone, Default)]
pub struct Settings {
    /// Values at the start of the session: the server's configuration, then the client's start-up packet.
    initial: HashMap<&'static str, String>,
    changed: HashMap<String, String>,
    timeouts: Timeouts,
    automatic: AutomaticSettings,
    level: Level,
    logging: LogSettings,
    /// Counts the changes.
    changes: u32,
}

impl Settings {
    /// Parameters as the server's configuration has them.
    pub fn new(configured: &[(&'static str, String)]) -> Settings {
        let mut settings = Settings { initial: configured.iter().cloned().collect(), ..Settings::default() };
        settings.refresh();
        settings
    }

    /// Sets a parameter from the start-up packet. An unsupported value of TimeZone, which the JDBC driver always sends, is
    /// not an error: ParameterStatus reports the value in force.
    pub fn start(&mut self, name: &str, value: &str) -> SqlResult<()> {
        let parameter = find(name).ok_or_else(|| unknown(name))?;
        check_is_stored(parameter)?;
        match check_own(parameter, value) {
            Ok(value) => {
                self.initial.insert(parameter.name, value);
                self.refresh();
                Ok(())
            }
            Err(_) if matches!(parameter.name, "TimeZone" | "DateStyle") => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets a parameter that only the server sets.
    pub fn start_fixed(&mut self, name: &'static str, value: &str) {
        self.initial.insert(name, value.to_owned());
    }

    /// Sets a parameter that was stored for the database or the user, unless it applies to the database as a whole.
    pub fn start_stored(&mut self, name: &str, value: &str) -> SqlResult<()> {
        if find(name).is_some_and(|p| matches!(p.takes, DatabaseBool)) { Ok(()) } else { self.start(name, value) }
    }

    fn value(&self, parameter: &Parameter) -> &str {
        let name = parameter.name;
        self.changed.get(name).or_else(|| self.initial.get(name)).map_or(parameter.default, String::as_str)
    }

    /// SHOW: the spelling of the parameter's name, and its value.
    pub fn get(&self, name: &str) -> SqlResult<(&str, &str)> {
        if let Some(parameter) = find(name) {
            return Ok((parameter.name, self.value(parameter)));
        }
        let custom = self.changed.get_key_value(&name.to_ascii_lowercase());
        custom.map(|(name, value)| (name.as_str(), value.as_str())).ok_or_else(|| unknown(name))
    }

    /// SHOW ALL.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        PARAMETERS.iter().map(|p| (p.name, self.value(p)))
    }

    /// The parameters reported to the client at start.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        PARAMETERS.iter().filter(|p| p.reported).map(|p| (p.name, self.value(p)))
    }

    /// SET (`None`: to its default). Returns how to undo it and whether it is reported to the client.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> SqlResult<(Undo, bool)> {
        let (key, value, reported) = match find(name) {
            Some(p) => (p.name.to_owned(), value.map(|v| check_own(p, v)).transpose()?, p.reported),
            // As in PostgreSQL, a name with a dot is the application's own, unless the prefix is the server's.
            None if name.contains('.') && !name.to_ascii_lowercase().starts_with("holdfast.") => {
                let own = self.changed.keys().filter(|k| k.contains('.')).count();
                if own >= OWN_PARAMETERS_MAX {
                    let message = format!("a session has at most {OWN_PARAMETERS_MAX} parameters of its own");
                    return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
                }
                (name.to_ascii_lowercase(), value.map(str::to_owned), false)
            }
            None => return Err(unknown(name)),
        };
        let before = match value {
            Some(value) => self.changed.insert(key.clone(), value),
            None => self.changed.remove(&key),
        };
        self.refresh();
        Ok((Undo { name: key, value: before, local }, reported))
    }

    /// RESET ALL.
    pub fn reset_all(&mut self) {
        // As in PostgreSQL it does not change the session's roles.
        self.changed.retain(|name, _| ["role", "session_authorization"].contains(&name.as_str()));
        self.refresh();
    }

    /// A transaction ended: SET LOCAL is undone, and after a rollback every SET in it.
    pub fn end_transaction(&mut self, undo: Vec<Undo>, committed: bool) {
        if undo.is_empty() {
            return;
        }
        for change in undo.into_iter().rev().filter(|u| u.local || !committed) {
            match change.value {
                Some(value) => _ = self.changed.insert(change.name, value),
                None => _ = self.changed.remove(&change.name),
            }
        }
        self.refresh();
    }

    fn refresh(&mut self) {
        self.changes = self.changes.wrapping_add(1);
        let time = |name| self.get(name).ok().and_then(|(_, v)| duration(v)).unwrap_or_default();
        self.timeouts = Timeouts {
            statement: time("statement_timeout"),
            lock: time("lock_timeout"),
            idle_in_transaction: time("idle_in_transaction_session_timeout"),
            idle: time("idle_session_timeout"),
            connection_check: time("client_connection_check_interval"),
        };
        let number = |name| self.get(name).ok().and_then(|(_, v)| v.parse().ok()).unwrap_or_default();
        let automatic = AutomaticSettings {
            on: matches!(self.get("auto_transaction"), Ok((_, "on"))),
            time_max: Duration::from_millis(number("auto_transaction_time_max_ms")),
            rows_max: number("auto_transaction_rows_max"),
            idle: Duration::from_millis(number("auto_transaction_idle_ms")),
        };
        self.automatic = automatic;
        let setting = |name| self.get(name).map_or("", |(_, value)| value);
        let logging = LogSettings {
            connections: setting("log_connections") == "on",
            disconnections: setting("log_disconnections") == "on",
            min_duration: duration(setting("log_min_duration_statement")),
            statements: match setting("log_statement") {
                "ddl" => LogStatements::Ddl,
                "mod" => LogStatements::Mod,
                "all" => LogStatements::All,
                _ => LogStatements::None,
            },
            errors: !matches!(setting("log_min_error_statement"), "log" | "fatal" | "panic"),
        };
        // PostgreSQL's parameter asks for something only where it is said whose acknowledgement counts.
        let asked = match setting("synchronous_standby_names") {
            "" => Level::Local,
            _ => level_of(setting("synchronous_commit")),
        };
        self.level = setting("holdfast.level").parse::<Level>().unwrap_or_default().max(asked);
        self.logging = logging;
    }

    /// What the answer to a commit waits for: the stronger of what `holdfast.level` and `synchronous_commit` ask for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What of the session is logged.
    pub fn logging(&self) -> LogSettings {
        self.logging
    }

    pub fn automatic(&self) -> AutomaticSettings {
        self.automatic
    }

    /// A number that differs after every change.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_show_and_undo() {
        let mut s = Settings::new(&[("statement_timeout", "30s".into())]);
        assert_eq!(s.timeouts().statement, Duration::from_secs(30));
        let (a, _) = s.set("Statement_Timeout", Some("100"), false).unwrap();
        let (b, _) = s.set("statement_timeout", Some("2min"), true).unwrap();
        assert_eq!(s.timeouts().statement, Duration::from_secs(120));
        s.end_transaction(vec![a.clone(), b.clone()], true);
        assert_eq!(s.timeouts().statement, Duration::from_millis(100));
        s.end_transaction(vec![a], false);
        assert_eq!(s.get("statement_timeout").unwrap().1, "30s");
    }

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let shown = [0, 100, 1_000, 1_500, 60_000, 90_000, 3_600_000].map(shown_time);
        assert_eq!(shown, ["0", "100ms", "1s", "1500ms", "1min", "90s", "1h"]);
    }

    #[test]
    fn what_is_unknown_or_not_done_is_refused() {
        let mut s = Settings::default();
        assert_eq!(s.set("no_such", Some("1"), false).unwrap_err().state().0, "42704");
        for (name, value) in [("holdfast.level", "lukewarm"), ("TimeZone", "Europe/Berlin"), ("lock_timeout", "soon")] {
            assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
        }
        assert_eq!(s.set("server_version", Some("16"), false).unwrap_err().state().0, "55P02");
        assert_eq!(s.set("holdfast.nosuch", Some("1"), false).unwrap_err().state().0, "42704");
        assert!(s.set("My.App", Some("x"), false).is_ok());
        assert_eq!(s.get("my.app").unwrap().1, "x");
        assert!(s.set("synchronous_commit", Some("off"), false).is_ok());
        assert!(s.start("TimeZone", "Europe/Berlin").is_ok());
        assert_eq!(s.get("TimeZone").unwrap().1, "UTC");
    }

    #[test]
    fn automatic_transactions() {
        let mut s = Settings::new(&[("auto_transaction_rows_max", "7".into())]);
        let defaults = s.automatic();
        assert_eq!((defaults.on, defaults.rows_max), (false, 7));
        assert_eq!((defaults.time_max, defaults.idle), (Duration::from_millis(100), Duration::from_millis(10)));
        s.start("auto_transaction", "true").unwrap();
        s.set("auto_transaction_idle_ms", Some("0"), false).unwrap();
        assert_eq!((s.automatic().on, s.automatic().idle), (true, Duration::ZERO));
        for (name, value) in [("auto_transaction_rows_max", "0"), ("auto_transaction_time_max_ms", "0")] {
            assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
        }
    }

    #[test]
    fn a_session_cannot_lift_what_its_database_requires() {
        let mut s = Settings::default();
        assert_eq!(s.set("require_transaction", Some("off"), false).unwrap_err().state().0, "55P02");
        assert_eq!(s.start("require_transaction", "off").unwrap_err().state().0, "55P02");
        assert_eq!(check_stored("require_transaction", "on", false).unwrap_err().state().0, "55P02");
        assert_eq!(check_stored("Lock_Timeout", "1s", false).unwrap(), ("lock_timeout", "1s".to_owned()));
        assert_eq!(check_stored("server_version", "16", true).unwrap_err().state().0, "55P02");
    }

    #[test]
    fn the_stronger_of_two_parameters_is_the_level() {
        let mut s = Settings::default();
        assert_eq!(s.level(), Level::Local, "nobody is named");
        s.set("holdfast.level", Some("warm"), false).unwrap();
        assert_eq!(s.level(), Level::Warm);
        s.set("holdfast.level", Some("cold"), false).unwrap();
        assert_eq!((s.level(), s.get("holdfast.level").unwrap().1), (Level::Local, "local"), "its former name");
        let mut s = Settings::new(&[("synchronous_standby_names", "a".into())]);
        for (value, level) in [
            ("on", Level::Hot),
            ("remote_write", Level::Hot),
            ("remote_apply", Level::Commit),
            ("local", Level::Local),
            ("off", Level::Local),
        ] {
            s.set("synchronous_commit", Some(value), false).unwrap();
            assert_eq!(s.level(), level, "{value}");
        }
        s.set("HOLDFAST.LEVEL", Some("hot"), false).unwrap();
        assert_eq!(s.level(), Level::Hot);
    }

    #[test]
    fn durations() {
        assert_eq!(duration("250"), Some(Duration::from_millis(250)));
        assert_eq!(duration("1 min"), Some(Duration::from_secs(60)));
        assert_eq!(duration("99999999999999999999"), None);
        assert_eq!(duration("1y"), None);
    }
}
