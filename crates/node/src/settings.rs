//! Run-time parameters of a session: SET, SHOW, RESET.
//!
//! `parameters` has the table of all parameters with the values that they take, `values` what sessions read from them.

mod parameters;
mod units;
mod values;

pub use parameters::{
    AUTO_IDLE_MS, AUTO_ROWS, AUTO_TIME_MS, REQUIRE_TRANSACTION, check_logging, check_stored, defaults, is_superusers,
    known,
};
pub use units::{bytes, duration, shown_time};
pub use values::{AutomaticSettings, LogSettings, LogStatements, Timeouts};

use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use holdfast_wire::ResultLimits;
use parameters::{OWN_PARAMETERS_MAX, PARAMETERS, Parameter, Takes, check_is_stored, check_own, find, unknown};
use std::collections::HashMap;
use std::time::Duration;

/// The level that a value of `synchronous_commit` promises, or a higher one: no level is below durable on this node.
fn level_of(synchronous_commit: &str) -> Level {
    match synchronous_commit {
        "off" | "false" | "no" | "0" | "local" => Level::Local,
        "remote_apply" => Level::Commit,
        _ => Level::Hot,
    }
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
    result_limits: ResultLimits,
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
        if find(name).is_some_and(|p| matches!(p.takes, Takes::DatabaseBool)) {
            Ok(())
        } else {
            self.start(name, value)
        }
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
            deadlock: time("deadlock_timeout"),
        };
        let number = |name| self.get(name).ok().and_then(|(_, v)| v.parse().ok()).unwrap_or_default();
        let automatic = AutomaticSettings {
            on: matches!(self.get("auto_transaction"), Ok((_, "on"))),
            time_max: Duration::from_millis(number("auto_transaction_time_max_ms")),
            rows_max: number("auto_transaction_rows_max"),
            idle: Duration::from_millis(number("auto_transaction_idle_ms")),
        };
        let size = |name| self.get(name).ok().and_then(|(_, v)| bytes(v)).unwrap_or_default();
        let result_limits = ResultLimits::new(number("result_rows_max"), size("result_bytes_max"));
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
            lock_waits: setting("log_lock_waits") == "on",
        };
        // PostgreSQL's parameter asks for something only where it is said whose acknowledgement counts.
        let asked = match setting("synchronous_standby_names") {
            "" => Level::Local,
            _ => level_of(setting("synchronous_commit")),
        };
        self.level = setting("holdfast.level").parse::<Level>().unwrap_or_default().max(asked);
        (self.automatic, self.result_limits, self.logging) = (automatic, result_limits, logging);
    }

    /// What the answer to a commit waits for: the stronger of what `holdfast.level` and `synchronous_commit` ask for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// What of the session is logged.
    pub fn logging(&self) -> LogSettings {
        self.logging
    }

    /// How large a result may be.
    pub fn result_limits(&self) -> ResultLimits {
        self.result_limits
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
    fn limits_of_results() {
        let mut s = Settings::default();
        assert_eq!(s.result_limits(), ResultLimits::default());
        s.set("result_rows_max", Some("7"), false).unwrap();
        s.set("result_bytes_max", Some("64kB"), false).unwrap();
        assert_eq!(s.result_limits(), ResultLimits::new(7, 64 << 10));
        for (name, value) in [("result_rows_max", "-1"), ("result_rows_max", "many"), ("result_bytes_max", "64 kg")] {
            assert_eq!(s.set(name, Some(value), false).unwrap_err().state().0, "22023", "{name}");
        }
        assert_eq!(s.result_limits(), ResultLimits::new(7, 64 << 10));
    }
}
