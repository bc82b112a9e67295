//! The run-time parameters of a session, for the functions and the view that read or set them while a statement runs.
//!
//! The session gives a statement a copy ([`crate::SessionContext::settings`]) and takes over what the statement has set when it has
//! succeeded. A statement that fails changes nothing.

use crate::error::SqlResult;
use std::fmt::Debug;

/// One parameter, as `pg_settings` shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SettingRow {
    pub name: String,
    /// In the parameter's base unit, without it.
    pub setting: String,
    pub unit: Option<&'static str>,
    /// When it can be changed: PostgreSQL's words, such as `user` and `postmaster`.
    pub context: &'static str,
    /// bool, integer, real, string or enum.
    pub vartype: &'static str,
    pub source: &'static str,
    pub min: Option<String>,
    pub max: Option<String>,
    /// The values of an enum.
    pub values: Vec<&'static str>,
    pub boot: String,
    pub reset: String,
}

/// The parameters of one session while one statement runs.
pub trait SessionSettings: Send + Sync + Debug {
    /// The value as SHOW returns it. `None`: there is no such parameter, and `missing_ok`.
    fn get(&self, name: &str, missing_ok: bool) -> SqlResult<Option<String>>;
    /// Sets a parameter (`None`: to its default), and returns its new value.
    fn set(&self, name: &str, value: Option<&str>, local: bool) -> SqlResult<String>;
    /// All that the session's role may see.
    fn rows(&self) -> Vec<SettingRow>;
}
