//! The session's parameters while a statement runs that reads or sets them: `set_config()`, `current_setting()` and
//! `pg_settings`.
//!
//! The statement works on a copy. What it has set is in [`StatementSettings::take_changes`], and the session sets it when the
//! statement has succeeded. Parameters that are more than a value to the session, such as its role, are refused (0A000).

use super::{Settings, is_hidden, is_superusers};
use holdfast_types::{SessionSettings, SettingRow, SqlError, SqlResult, SqlState};
use parking_lot::Mutex;

/// What a statement has set.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub name: String,
    /// `None`: to its default.
    pub value: Option<String>,
    pub local: bool,
}

/// Parameters that only SET changes, because more than their value changes.
const ONLY_BY_SET: [&str; 5] =
    ["role", "session_authorization", "transaction_isolation", "transaction_read_only", "transaction_deferrable"];

/// A session's parameters while one statement runs.
pub struct StatementSettings {
    working: Mutex<(Settings, Vec<Change>)>,
    /// Values that depend on more than the settings: the name and what SHOW returns.
    shown: Vec<(&'static str, String)>,
    is_superuser: bool,
    /// The role may see parameters that name files.
    sees_all: bool,
}

impl std::fmt::Debug for StatementSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatementSettings").finish_non_exhaustive()
    }
}

impl StatementSettings {
    pub fn new(
        settings: Settings,
        shown: Vec<(&'static str, String)>,
        is_superuser: bool,
        sees_all: bool,
    ) -> StatementSettings {
        StatementSettings { working: Mutex::new((settings, Vec::new())), shown, is_superuser, sees_all }
    }

    /// What the statement has set, in order.
    pub fn take_changes(&self) -> Vec<Change> {
        std::mem::take(&mut self.working.lock().1)
    }

    fn shown(&self, name: &str) -> Option<&str> {
        self.shown.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }
}

impl SessionSettings for StatementSettings {
    fn get(&self, name: &str, missing_ok: bool) -> SqlResult<Option<String>> {
        let working = self.working.lock();
        let (known, value) = match working.0.get(name) {
            Ok(found) => found,
            Err(error) if missing_ok && error.state() == SqlState::UNDEFINED_OBJECT => return Ok(None),
            Err(error) => return Err(error),
        };
        if is_hidden(known) && !self.sees_all {
            let rights = "must be superuser or have privileges of pg_read_all_settings";
            let message = format!("{rights} to examine \"{known}\"");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        Ok(Some(self.shown(known).unwrap_or(value).to_owned()))
    }

    fn set(&self, name: &str, value: Option<&str>, local: bool) -> SqlResult<String> {
        if ONLY_BY_SET.iter().any(|only| only.eq_ignore_ascii_case(name)) {
            return Err(SqlError::unsupported(format!("set_config of \"{name}\"")).with_hint("Use SET."));
        }
        if is_superusers(name) && !self.is_superuser {
            let message = format!("permission denied to set parameter \"{name}\"");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let mut working = self.working.lock();
        let undo = working.0.set(name, value, local)?;
        let change = Change { name: name.to_owned(), value: value.map(str::to_owned), local };
        // A statement that runs again, or a function that is called for many rows, sets it again.
        if working.1.last() != Some(&change) {
            working.1.push(change);
        }
        drop(undo);
        let now = working.0.get(name).map_or_else(|_| String::new(), |(_, value)| value.to_owned());
        Ok(now)
    }

    fn rows(&self) -> Vec<SettingRow> {
        let mut rows = self.working.lock().0.rows(|name| self.shown(name).map(str::to_owned));
        rows.retain(|row| self.sees_all || !is_hidden(&row.name));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_sees_what_it_has_set_and_the_session_gets_it_in_order() {
        let of = StatementSettings::new(Settings::default(), vec![("is_superuser", "off".into())], false, false);
        assert_eq!(of.set("My.App", Some("x"), false), Ok("x".into()));
        assert_eq!(of.set("work_mem", Some("65536"), true), Ok("64MB".into()));
        assert_eq!(of.get("my.app", false), Ok(Some("x".into())));
        assert_eq!(of.get("is_superuser", false), Ok(Some("off".into())));
        assert_eq!(of.get("no.such", true), Ok(None));
        assert_eq!(of.get("no_such", false).unwrap_err().state(), SqlState::UNDEFINED_OBJECT);
        assert_eq!(of.set("log_statement", Some("all"), false).unwrap_err().state(), SqlState::INSUFFICIENT_PRIVILEGE);
        assert_eq!(of.set("role", Some("x"), false).unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
        let names: Vec<String> = of.take_changes().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["My.App", "work_mem"]);
        let row = of.rows().into_iter().find(|r| r.name == "work_mem").unwrap();
        assert_eq!((row.setting.as_str(), row.unit, row.context, row.source), ("65536", Some("kB"), "user", "session"));
        assert!(of.rows().iter().all(|r| r.name != "hba_file"));
    }
}
