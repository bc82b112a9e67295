//! The table of run-time parameters: names, defaults, and the values that each takes.
//!
//! PostgreSQL's parameters without an effect are in [`super::postgres`].
//!
//! Failure: a name that is in neither table is 42704, as in PostgreSQL; a value that PostgreSQL or Holdfast does not support
//! is 22023; a parameter that cannot be changed is 55P02, with PostgreSQL's reason.

use super::postgres::WITHOUT_EFFECT;
use super::units::{Unit, bytes, duration};
use super::zone;
use holdfast_types::{SettingRow, SqlError, SqlResult, SqlState};

/// What values a parameter takes.
#[derive(Clone, Copy)]
pub(super) enum Takes {
    /// Every text.
    Any,
    Bool,
    /// A whole number from the first to the second, perhaps with a unit.
    Number(Unit, i64, i64),
    /// A number from the first to the second, perhaps with a unit.
    Real(Unit, f64, f64),
    /// A whole number of seconds, from 0 to this, or with a unit. 0 is the system's default.
    Seconds(i64),
    /// As [`Takes::Seconds`], of milliseconds.
    Milliseconds(i64),
    /// A size: bytes, or a number with `kB`, `MB`, `GB`, `TB`. 0 switches it off.
    Size,
    /// One of these, ASCII case ignored.
    OneOf(&'static [&'static str]),
    /// One of these: PostgreSQL takes others as well, which would change results.
    Only(&'static [&'static str]),
    /// The name of a character encoding.
    Encoding,
    /// A time zone.
    Zone,
    /// On or off for a database, by ALTER DATABASE: it holds for all its sessions at once, and none can change it.
    DatabaseBool,
    /// Cannot be changed.
    Fixed,
}

/// When PostgreSQL lets a parameter be changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Internal,
    Postmaster,
    Sighup,
    Backend,
    SuperuserBackend,
    Superuser,
    User,
}

impl Context {
    fn word(self) -> &'static str {
        match self {
            Context::Internal => "internal",
            Context::Postmaster => "postmaster",
            Context::Sighup => "sighup",
            Context::Backend => "backend",
            Context::SuperuserBackend => "superuser-backend",
            Context::Superuser => "superuser",
            Context::User => "user",
        }
    }

    /// Why a session cannot change the parameter.
    fn refusal(self) -> Option<&'static str> {
        match self {
            Context::Internal => Some("cannot be changed"),
            Context::Postmaster => Some("cannot be changed without restarting the server"),
            Context::Sighup => Some("cannot be changed now"),
            Context::Backend | Context::SuperuserBackend => Some("cannot be set after connection start"),
            Context::Superuser | Context::User => None,
        }
    }
}

pub(super) struct Parameter {
    pub name: &'static str,
    /// As SHOW returns it.
    pub default: &'static str,
    pub takes: Takes,
    pub context: Context,
    /// Changes are reported to the client by ParameterStatus.
    pub reported: bool,
}

const fn context_of(takes: &Takes) -> Context {
    match takes {
        Takes::Fixed | Takes::DatabaseBool => Context::Internal,
        _ => Context::User,
    }
}

const fn p(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, context: context_of(&takes), takes, reported: false }
}

const fn r(name: &'static str, default: &'static str, takes: Takes) -> Parameter {
    Parameter { name, default, context: context_of(&takes), takes, reported: true }
}

/// A parameter that PostgreSQL does not let a session change.
const fn f(name: &'static str, default: &'static str, context: Context) -> Parameter {
    Parameter { name, default, takes: Takes::Fixed, context, reported: false }
}

use Context::{Postmaster, Sighup};
use Takes::{Any, Bool, DatabaseBool, Encoding, Fixed, Milliseconds, Number, OneOf, Only, Seconds, Size, Zone};

/// Whole numbers without a unit.
const fn int(min: i64, max: i64) -> Takes {
    Number(Unit::None, min, max)
}

/// A duration in milliseconds; 0 switches it off.
const TIME: Takes = Number(Unit::Ms, 0, i32::MAX as i64);

/// The smallest and largest values of the bounds of automatic transactions.
pub const AUTO_TIME_MS: (i64, i64) = (1, 3_600_000);
pub const AUTO_ROWS: (i64, i64) = (1, 1_000_000_000);
pub const AUTO_IDLE_MS: (i64, i64) = (0, 3_600_000);

/// The kernel's limits of keepalives: probes, and seconds.
const KEEPALIVES_MAX: i64 = 127;
const KEEPALIVE_S_MAX: i64 = 32_767;

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
    f("authentication_timeout", "1min", Sighup),
    p("auto_transaction", "off", Bool),
    p("auto_transaction_idle_ms", "10", int(AUTO_IDLE_MS.0, AUTO_IDLE_MS.1)),
    p("auto_transaction_rows_max", "1000", int(AUTO_ROWS.0, AUTO_ROWS.1)),
    p("auto_transaction_time_max_ms", "100", int(AUTO_TIME_MS.0, AUTO_TIME_MS.1)),
    p("bytea_output", "hex", Only(&["hex"])),
    p("check_function_bodies", "on", Bool),
    p("client_connection_check_interval", "0", TIME),
    p("commit_delay", "auto", Fixed),
    p("commit_siblings", "5", Fixed),
    r("client_encoding", "UTF8", Encoding),
    p(
        "client_min_messages",
        "notice",
        OneOf(&["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error"]),
    ),
    r("DateStyle", "ISO, MDY", Only(&["ISO, MDY", "ISO,MDY", "ISO"])),
    p("database", "", Fixed),
    p("deadlock_timeout", "1s", TIME),
    p("default_table_access_method", "heap", Only(&["heap"])),
    p("default_tablespace", "", Only(&[""])),
    p("default_toast_compression", "pglz", Any),
    p("default_transaction_deferrable", "off", Bool),
    p("default_transaction_isolation", "read committed", OneOf(ISOLATION)),
    r("default_transaction_read_only", "off", Bool),
    p("escape_string_warning", "on", Bool),
    p("extra_float_digits", "1", int(1, 3)),
    p("holdfast.level", "local", OneOf(&["local", "warm", "hot", "commit"])),
    f("hba_file", "", Postmaster),
    f("ident_file", "", Postmaster),
    p("idle_in_transaction_session_timeout", "0", TIME),
    p("idle_session_timeout", "0", TIME),
    r("in_hot_standby", "off", Fixed),
    r("integer_datetimes", "on", Fixed),
    r("IntervalStyle", "postgres", Only(&["postgres"])),
    r("is_superuser", "on", Fixed),
    p("jit", "off", Bool),
    p("lc_collate", "C", Fixed),
    p("lc_ctype", "C", Fixed),
    p("lc_messages", "C", Any),
    p("lc_monetary", "C", Only(&["C", "POSIX"])),
    p("lc_numeric", "C", Only(&["C", "POSIX"])),
    p("lc_time", "C", Only(&["C", "POSIX"])),
    f("listen_addresses", "127.0.0.1", Postmaster),
    p("lock_timeout", "0", TIME),
    p("log_connections", "off", Bool),
    p("log_disconnections", "off", Bool),
    p("log_lock_waits", "off", Bool),
    p("log_min_duration_statement", "-1", Number(Unit::Ms, -1, i32::MAX as i64)),
    p("log_min_error_statement", "panic", OneOf(SEVERITIES)),
    p("log_statement", "none", OneOf(&["none", "ddl", "mod", "all"])),
    f("max_connections", "2500", Postmaster),
    p("max_identifier_length", "63", Fixed),
    p("password_encryption", "scram-sha-256", Only(&["scram-sha-256"])),
    p("pg_stat_statements.max", "5000", Fixed),
    f("port", "5433", Postmaster),
    p("quote_all_identifiers", "off", Only(&["off", "false", "no", "0"])),
    p(REQUIRE_TRANSACTION, "off", DatabaseBool),
    p("result_bytes_max", "0", Size),
    p("result_rows_max", "0", int(0, i64::MAX)),
    p("role", "none", Any),
    p("row_security", "on", Bool),
    p("search_path", "\"$user\", public", Any),
    r("server_encoding", "UTF8", Fixed),
    r("server_version", SERVER_VERSION, Fixed),
    p("server_version_num", "150000", Fixed),
    r("session_authorization", "", Any),
    f("ssl", "off", Sighup),
    f("ssl_ca_file", "", Sighup),
    f("ssl_cert_file", "", Sighup),
    f("ssl_crl_file", "", Sighup),
    f("ssl_key_file", "", Sighup),
    p("ssl_library", "rustls", Fixed),
    f("ssl_max_protocol_version", "", Sighup),
    f("ssl_min_protocol_version", "TLSv1.2", Sighup),
    r("standard_conforming_strings", "on", Only(&["on", "true", "1", "yes"])),
    p("statement_timeout", "0", TIME),
    f("superuser_reserved_connections", "3", Postmaster),
    p("synchronize_seqscans", "on", Bool),
    f("synchronous_standby_names", "", Sighup),
    p("synchronous_commit", "on", OneOf(&["local", "remote_write", "remote_apply", "on", "off"])),
    p("tcp_keepalives_count", "6", int(0, KEEPALIVES_MAX)),
    p("tcp_keepalives_idle", "60", Seconds(KEEPALIVE_S_MAX)),
    p("tcp_keepalives_interval", "10", Seconds(KEEPALIVE_S_MAX)),
    p("tcp_user_timeout", "0", Milliseconds(i32::MAX as i64)),
    r("TimeZone", "UTC", Zone),
    p("transaction_isolation", "read committed", Fixed),
    p("transaction_read_only", "off", Fixed),
    p("transaction_timeout", "0", Only(&["0"])),
    f("unix_socket_directories", "", Postmaster),
    p("work_mem", "4MB", Number(Unit::Kib, 64, 2_147_483_647)),
    p("xmloption", "content", OneOf(&["content", "document"])),
];

/// Every parameter: those with an effect, then PostgreSQL's others.
pub(super) fn all() -> impl Iterator<Item = &'static Parameter> {
    PARAMETERS.iter().chain(WITHOUT_EFFECT)
}

pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    let name = if name.eq_ignore_ascii_case("time zone") { "TimeZone" } else { name };
    all().find(|p| p.name.eq_ignore_ascii_case(name))
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

/// Every parameter with its value at start, for `pg_settings` where the session is not known.
pub fn defaults() -> Vec<SettingRow> {
    all().map(|p| row(p, p.default, p.default, false)).collect()
}

/// A parameter as `pg_settings` shows it, from its values as SHOW returns them.
pub(super) fn row(parameter: &Parameter, value: &str, reset: &str, is_set: bool) -> SettingRow {
    let raw = |shown: &str| match parameter.takes {
        Number(unit, ..) => unit.parse(shown).map_or_else(|_| shown.to_owned(), |n| n.to_string()),
        Takes::Real(unit, ..) => unit.parse(shown).map_or_else(|_| shown.to_owned(), |n| n.to_string()),
        _ => shown.to_owned(),
    };
    let (unit, vartype, min, max, values) = match parameter.takes {
        Bool | DatabaseBool => (None, "bool", None, None, Vec::new()),
        Number(unit, min, max) => (unit.name(), "integer", Some(min.to_string()), Some(max.to_string()), Vec::new()),
        Takes::Real(unit, min, max) => (unit.name(), "real", Some(min.to_string()), Some(max.to_string()), Vec::new()),
        Seconds(max) => (Some("s"), "integer", Some("0".to_owned()), Some(max.to_string()), Vec::new()),
        Milliseconds(max) => (Some("ms"), "integer", Some("0".to_owned()), Some(max.to_string()), Vec::new()),
        OneOf(values) => (None, "enum", None, None, values.to_vec()),
        _ => (None, "string", None, None, Vec::new()),
    };
    SettingRow {
        name: parameter.name.to_owned(),
        setting: raw(value),
        unit,
        context: if is_superusers(parameter.name) { "superuser" } else { parameter.context.word() },
        vartype,
        source: if is_set { "session" } else { "default" },
        min,
        max,
        values,
        boot: raw(parameter.default),
        reset: raw(reset),
    }
}

fn invalid(parameter: &Parameter, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{}\": \"{value}\"", parameter.name);
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// How the value is shown, or why it is refused.
fn check(parameter: &Parameter, value: &str) -> SqlResult<String> {
    let refused = || invalid(parameter, value);
    if let Some(why) = parameter.context.refusal()
        && !matches!(parameter.takes, DatabaseBool)
    {
        let message = format!("parameter \"{}\" {why}", parameter.name);
        return Err(SqlError::new(SqlState("55P02"), message));
    }
    match parameter.takes {
        Any => Ok(value.to_owned()),
        Bool | DatabaseBool => boolean(value).map(|on| if on { "on".into() } else { "off".into() }).ok_or_else(|| {
            let message = format!("parameter \"{}\" requires a Boolean value", parameter.name);
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
        }),
        Number(unit, min, max) => {
            let number = parsed(parameter, unit, value)?.round_ties_even();
            if !(min as f64..=max as f64).contains(&number) {
                return Err(outside(parameter, unit, number, (min.to_string(), max.to_string())));
            }
            Ok(unit.shown(number as i64))
        }
        Takes::Real(unit, min, max) => {
            let number = parsed(parameter, unit, value)?;
            if !(min..=max).contains(&number) {
                return Err(outside(parameter, unit, number, (min.to_string(), max.to_string())));
            }
            let unit = unit.name().filter(|_| number > 0.0).unwrap_or_default();
            Ok(format!("{number}{unit}"))
        }
        Seconds(max) => whole(parameter, value, 1_000_000, "s", max),
        Milliseconds(max) => whole(parameter, value, 1_000, "ms", max),
        Size => bytes(value).map(|_| value.trim().to_owned()).ok_or_else(refused),
        // Its former name.
        OneOf(_) if value.eq_ignore_ascii_case("cold") && parameter.name == "holdfast.level" => Ok("local".into()),
        OneOf(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value)).or_else(|| synonym(values, value))
        {
            Some(v) => Ok((*v).to_owned()),
            None => Err(refused().with_hint(format!("Available values: {}.", values.join(", ")))),
        },
        Only(values) => match values.iter().find(|v| v.eq_ignore_ascii_case(value.trim())) {
            Some(locale) if parameter.name.starts_with("lc_") => Ok((*locale).to_owned()),
            // The first is how it is shown.
            Some(_) => Ok(values[0].to_owned()),
            None => Err(refused().with_hint(format!("Supported: {}.", values.join(", ")))),
        },
        Encoding => encoding(value).ok_or_else(|| refused().with_hint("Supported: UTF8, SQL_ASCII.")),
        Zone => zone::checked(value).map_err(|hint| match hint {
            Some(hint) => refused().with_hint(hint),
            None => refused(),
        }),
        Fixed => Err(SqlError::new(SqlState("55P02"), format!("parameter \"{}\" cannot be changed", parameter.name))),
    }
}

/// A Boolean as PostgreSQL reads it: also shortened, as long as it is not ambiguous.
fn boolean(value: &str) -> Option<bool> {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if begins("true", 1) || begins("yes", 1) || begins("on", 2) || value == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || value == "0" {
        Some(false)
    } else {
        None
    }
}

/// The words for on and off that PostgreSQL also takes for an enum with these values.
fn synonym(values: &'static [&'static str], value: &str) -> Option<&'static &'static str> {
    let word = match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => "on",
        "false" | "no" | "0" => "off",
        "debug" => "debug2",
        _ => return None,
    };
    values.iter().find(|v| **v == word)
}

/// As in PostgreSQL only letters and digits of an encoding's name count.
fn encoding(value: &str) -> Option<String> {
    let name: String = value.chars().filter(char::is_ascii_alphanumeric).collect();
    match name.to_ascii_lowercase().as_str() {
        "utf8" | "unicode" => Some("UTF8".into()),
        "sqlascii" => Some("SQL_ASCII".into()),
        _ => None,
    }
}

fn parsed(parameter: &Parameter, unit: Unit, value: &str) -> SqlResult<f64> {
    unit.parse(value).map_err(|only_the_unit| match unit.hint().filter(|_| only_the_unit) {
        Some(hint) => invalid(parameter, value).with_hint(hint),
        None => invalid(parameter, value),
    })
}

fn outside(parameter: &Parameter, unit: Unit, number: f64, (min, max): (String, String)) -> SqlError {
    let unit = unit.name().map(|unit| format!(" {unit}")).unwrap_or_default();
    let name = parameter.name;
    let message = format!("{number}{unit} is outside the valid range for parameter \"{name}\" ({min} .. {max})");
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
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
    let Some(known) = find(name) else { return false };
    let of_superusers = matches!(known.context, Context::Superuser | Context::SuperuserBackend);
    of_superusers || known.name.starts_with(LOGGING) || ["deadlock_timeout", "lc_messages"].contains(&known.name)
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

/// Checks a name and value that later sessions of a database or of a user start with. The value is stored as given, as in
/// PostgreSQL.
pub fn check_stored(name: &str, value: &str, for_database: bool) -> SqlResult<(&'static str, String)> {
    let parameter = find(name).ok_or_else(|| unknown(name))?;
    check_is_stored(parameter)?;
    if value.len() > STORED_BYTES_MAX {
        let message = format!("a stored parameter has at most {STORED_BYTES_MAX} bytes, not {}", value.len());
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let checked = if for_database { check(parameter, value) } else { check_own(parameter, value) };
    let of_database = matches!(parameter.takes, Takes::DatabaseBool);
    checked.map(|canonical| (parameter.name, if of_database { canonical } else { value.to_owned() }))
}
