//! Run-time parameters of a session: SET, SHOW, RESET.
//!
//! `parameters` has the table of all parameters with the values that they take, `values` what sessions read from them.

mod parameters;
mod postgres;
mod statement_settings;
#[cfg(test)]
mod tests;
mod units;
mod values;
mod zone;

pub use parameters::{
    AUTO_IDLE_MS, AUTO_ROWS, AUTO_TIME_MS, REQUIRE_TRANSACTION, check_logging, check_stored, defaults, is_hidden,
    is_superusers, known,
};
pub use statement_settings::StatementSettings;
pub use units::{bytes, duration, shown_time};
pub use values::{AutomaticSettings, LogSettings, LogStatements, Timeouts};

use holdfast_types::SettingRow;
use holdfast_types::{Level, SqlResult};
use holdfast_wire::{Keepalives, ResultLimits, Severity};
use parameters::{
    OWN_PARAMETERS_MAX, PARAMETERS, Parameter, Takes, all, check_is_stored, check_own, find, is_applications, row,
    too_many_own, unknown,
};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
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
    initial: HashMap<Cow<'static, str>, String>,
    changed: HashMap<String, String>,
    timeouts: Timeouts,
    automatic: AutomaticSettings,
    level: Level,
    logging: LogSettings,
    result_limits: ResultLimits,
    least_severity: Severity,
    /// Counts the changes.
    changes: u32,
}

impl Settings {
    /// Parameters as the server's configuration has them.
    pub fn new(configured: &[(&'static str, String)]) -> Settings {
        let mut settings = Settings {
            initial: configured.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
            ..Settings::default()
        };
        settings.refresh();
        settings
    }

    /// Sets a parameter from the start-up packet, or one that is stored for a database or role.
    pub fn start(&mut self, name: &str, value: &str) -> SqlResult<()> {
        let Some(parameter) = find(name) else { return self.start_own(name, value) };
        check_is_stored(parameter)?;
        let value = check_own(parameter, value)?;
        self.initial.insert(parameter.name.into(), value);
        self.refresh();
        Ok(())
    }

    /// Sets a parameter of the application's own from the start-up packet.
    fn start_own(&mut self, name: &str, value: &str) -> SqlResult<()> {
        if !is_applications(name) {
            return Err(unknown(name));
        }
        let own = self.initial.keys().filter(|name| is_applications(name)).count();
        if own >= OWN_PARAMETERS_MAX {
            return Err(too_many_own());
        }
        self.initial.insert(name.to_ascii_lowercase().into(), value.to_owned());
        Ok(())
    }

    /// Sets a parameter that only the server sets.
    pub fn start_fixed(&mut self, name: &'static str, value: &str) {
        self.initial.insert(name.into(), value.to_owned());
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
        let own = name.to_ascii_lowercase();
        let changed = self.changed.get_key_value(&own).map(|(name, value)| (name.as_str(), value.as_str()));
        let initial = || self.initial.get_key_value(own.as_str()).map(|(name, value)| (&**name, value.as_str()));
        changed.or_else(initial).ok_or_else(|| unknown(name))
    }

    /// SHOW ALL.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str)> {
        all().map(|p| (p.name, self.value(p)))
    }

    /// All parameters as `pg_settings` shows them. `shown` gives the values that depend on more than the settings.
    pub fn rows(&self, shown: impl Fn(&'static str) -> Option<String>) -> Vec<SettingRow> {
        let one = |p: &'static Parameter| {
            let reset = self.initial.get(p.name).map_or(p.default, String::as_str);
            let value = shown(p.name);
            row(p, value.as_deref().unwrap_or(self.value(p)), reset, self.changed.contains_key(p.name))
        };
        all().map(one).collect()
    }

    /// The parameters reported to the client at start.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        PARAMETERS.iter().filter(|p| p.reported).map(|p| (p.name, self.value(p)))
    }

    /// SET (`None`: to its default). Returns how to undo it.
    pub fn set(&mut self, name: &str, value: Option<&str>, local: bool) -> SqlResult<Undo> {
        let (key, value) = match find(name) {
            Some(p) => (p.name.to_owned(), value.map(|v| check_own(p, v)).transpose()?),
            // As in PostgreSQL, a name with a dot is the application's own, unless the prefix is the server's.
            None if is_applications(name) => {
                let own = self.changed.keys().filter(|k| k.contains('.')).count();
                if own >= OWN_PARAMETERS_MAX {
                    return Err(too_many_own());
                }
                (name.to_ascii_lowercase(), value.map(str::to_owned))
            }
            None => return Err(unknown(name)),
        };
        let before = match value {
            Some(value) => self.changed.insert(key.clone(), value),
            None => self.changed.remove(&key),
        };
        self.refresh();
        Ok(Undo { name: key, value: before, local })
    }

    /// RESET ALL. Returns how to undo it.
    pub fn reset_all(&mut self) -> Vec<Undo> {
        // As in PostgreSQL it does not change the session's roles.
        let is_reset = |name: &String, _: &mut String| !["role", "session_authorization"].contains(&name.as_str());
        let reset = self.changed.extract_if(is_reset);
        let undo = reset.map(|(name, value)| Undo { name, value: Some(value), local: false }).collect();
        self.refresh();
        undo
    }

    /// A transaction ended: SET LOCAL is undone, and after a rollback every SET in it.
    pub fn end_transaction(&mut self, undo: Vec<Undo>, committed: bool) {
        if undo.is_empty() {
            return;
        }
        let mut kept = HashSet::new();
        for change in undo.into_iter().rev() {
            // What a later SET has set stays, whatever SET LOCAL has set before.
            if committed && (!change.local || kept.contains(&change.name)) {
                kept.insert(change.name);
                continue;
            }
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
        let least_severity = Severity::named(setting("client_min_messages"));
        // PostgreSQL's parameter asks for something only where it is said whose acknowledgement counts.
        let asked = match setting("synchronous_standby_names") {
            "" => Level::Local,
            _ => level_of(setting("synchronous_commit")),
        };
        self.level = setting("holdfast.level").parse::<Level>().unwrap_or_default().max(asked);
        self.least_severity = least_severity;
        (self.automatic, self.result_limits, self.logging) = (automatic, result_limits, logging);
    }

    /// What the answer to a commit waits for: the stronger of what `holdfast.level` and `synchronous_commit` ask for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The least severe notices that the client gets (`client_min_messages`).
    pub fn least_severity(&self) -> Severity {
        self.least_severity
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

    /// When TCP notices that the client has gone.
    pub fn keepalives(&self) -> Keepalives {
        let number = |name| self.get(name).ok().and_then(|(_, v)| v.parse().ok()).unwrap_or_default();
        Keepalives {
            idle_s: number("tcp_keepalives_idle"),
            interval_s: number("tcp_keepalives_interval"),
            count: number("tcp_keepalives_count"),
            user_timeout_ms: number("tcp_user_timeout"),
        }
    }

    /// A number that differs after every change.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }
}
