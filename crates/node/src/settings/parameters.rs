//! The table of run-time parameters: names, defaults, and the values that each takes.
//!
//! Failure: a name that is not in the table is 42704, as in PostgreSQL; a value that Holdfast does not support is 22023; a parameter
//! that cannot be changed is 55P02.

use super::units::{bytes, duration};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// What values a parameter takes.
#[derive(Clone, Copy)]
pub(super) enum Takes {
    /// Every text.
    Any,
    Bool,
    /// A whole number from the first to the second.
    Int(i64, i64),
    /// A duration: milliseconds, or a number with `us`, `ms`, `s`, `min`, `h`, `d`. 0 switches it off.
    Time,
    /// As [`Takes::Time`], with -1 for off.
    TimeOrOff,
    /// A whole number of seconds, from 0 to this, or with a unit. 0 is the system's default.
    Seconds(i64),
    /// As [`Takes::Seconds`], of milliseconds.
    Milliseconds(i64),
    /// A size: bytes, or a number with `kB`, `MB`, `GB`, `TB`. 0 switches it off.
    Size,
    /// One of these, ASCII case ignored.
    OneOf(&'static [&'static str]),
    /// On or off for a database, by ALTER DATABASE: it holds for all its sessions at once, and none can change it.
    DatabaseBool,
    /// Cannot be changed.
    Fixed,
}

pub(super) struct Parameter {
    pub name: &'static str,
    pub default: &'static str,
    pub takes: Takes,
    /// Changes are reported to the client by ParameterStatus.
    pub reported: bool,
}

const fn p(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, takes, reported: false }
}

const fn r(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, takes, reported: true }
}

use Takes::{Any, Bool, DatabaseBool, Fixed, Int, Milliseconds, OneOf, Seconds, Size, Time, TimeOrOff};

/// The smallest and largest values of the bounds of automatic transactions.
pub const AUTO_TIME_MS: (i64, i64) = (1, 3_600_000);
pub const AUTO_ROWS: (i64, i64) = (1, 1_000_000_000);
pub const AUTO_IDLE_MS: (i64, i64) = (0, 3_600_000);

/// The kernel's limits of keepalives: probes, and seconds.
const KEEPALIVES_MAX: i64 = 127;
const KEEPALIVE_S_MAX: i64 = 32_767;

const UTC: &[&str] = &["UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "0", "+00", "00:00", "+00:00", "Zulu", "Universal"];
const SEVERITIES: &[&str] =
    &["debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"];
const ISOLATION: &[&str] = &["read committed", "read uncommitted", "repeatable read", "serializable"];

/// Parameters with a dot in their name that a session may set.
pub(super) const OWN_PARAMETERS_MAX: usize = 1000;

/// Version of PostgreSQL whose behaviour drivers may expect.
const SERVER_VERSION: &str = "15.0";

/// Takes changes in transactions only; see [`crate::database::Served`].
pub const REQUIRE_TRANSACTION: &str = "require_transaction";

pub(super) static PARAMETERS: &[Parameter] = &[
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
    p("log_lock_waits", "off", Bool),
    p("log_min_duration_statement", "-1", TimeOrOff),
    p("log_min_error_statement", "panic", OneOf(SEVERITIES)),
    p("log_statement", "none", OneOf(&["none", "ddl", "mod", "all"])),
    p("max_connections", "2500", Fixed),
    p("max_identifier_length", "63", Fixed),
    p("password_encryption", "scram-sha-256", OneOf(&["scram-sha-256"])),
    p("pg_stat_statements.max", "5000", Fixed),
    p("port", "5433", Fixed),
    p("quote_all_identifiers", "off", Bool),
    p(REQUIRE_TRANSACTION, "off", DatabaseBool),
    p("result_bytes_max", "0", Size),
    p("result_rows_max", "0", Int(0, i64::MAX)),
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
    p("tcp_keepalives_count", "6", Int(0, KEEPALIVES_MAX)),
    p("tcp_keepalives_idle", "60", Seconds(KEEPALIVE_S_MAX)),
    p("tcp_keepalives_interval", "10", Seconds(KEEPALIVE_S_MAX)),
    p("tcp_user_timeout", "0", Milliseconds(i32::MAX as i64)),
    r("TimeZone", "UTC", OneOf(UTC)),
    p("transaction_isolation", "read committed", Fixed),
    p("transaction_read_only", "off", Fixed),
    p("transaction_timeout", "0", OneOf(&["0"])),
    p("unix_socket_directories", "", Fixed),
    p("work_mem", "4MB", Any),
    p("xmloption", "content", Any),
];

pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    let name = if name.eq_ignore_ascii_case("time zone") { "TimeZone" } else { name };
    PARAMETERS.iter().find(|p| p.name.eq_ignore_ascii_case(name))
}

pub(super) fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

/// Whether a name that is not the server's may be an application's own: as in PostgreSQL it has a dot, and its prefix is not
/// the server's.
pub(super) fn is_applications(name: &str) -> bool {
    name.contains('.') && find(name).is_none() && !name.to_ascii_lowercase().starts_with("holdfast.")
}

pub(super) fn too_many_own() -> SqlError {
    let message = format!("a session has at most {OWN_PARAMETERS_MAX} parameters of its own");
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
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
        Seconds(max) => whole(parameter, value, 1_000_000, "s", max),
        Milliseconds(max) => whole(parameter, value, 1_000, "ms", max),
        TimeOrOff if value.trim() == "-1" => Ok("-1".into()),
        Time | TimeOrOff => duration(value).map(|_| value.to_owned()).ok_or_else(refused),
        Size => bytes(value).map(|_| value.trim().to_owned()).ok_or_else(refused),
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

/// A time in whole units of `us` microseconds, shown as a number, as PostgreSQL shows what the socket has.
fn whole(parameter: &Parameter, value: &str, us: u128, unit: &str, max: i64) -> SqlResult<String> {
    let refused = |message: String| Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    let name = parameter.name;
    let number = match value.trim().parse::<i64>() {
        Ok(number) => number,
        Err(_) => match duration(value) {
            // Rounded to the nearest.
            Some(time) => i64::try_from((time.as_micros() + us / 2) / us).unwrap_or(i64::MAX),
            None => return refused(format!("invalid value for parameter \"{name}\": \"{value}\"")),
        },
    };
    if !(0..=max).contains(&number) {
        return refused(format!("{number} {unit} is outside the valid range for parameter \"{name}\" (0 .. {max})"));
    }
    Ok(number.to_string())
}

/// As [`check`], for a value that a session or its client sets.
pub(super) fn check_own(parameter: &Parameter, value: &str) -> SqlResult<String> {
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

/// Whether only superusers and roles with the privileges of `pg_read_all_settings` may see the parameter, as in PostgreSQL:
/// it names files and directories.
pub fn is_hidden(name: &str) -> bool {
    ["hba_file", "ident_file", "unix_socket_directories"].iter().any(|hidden| hidden.eq_ignore_ascii_case(name))
}

/// The spelling of a parameter's name.
pub fn known(name: &str) -> SqlResult<&'static str> {
    find(name).map(|p| p.name).ok_or_else(|| unknown(name))
}

/// 0A000 for the role of a session: no session begins in another role than it has logged in as.
pub(super) fn check_is_stored(parameter: &Parameter) -> SqlResult<()> {
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
