//! Column defaults that depend on the clock.
//!
//! They are stored as functions of SQLite, so that stock sqlite3 can insert. An INSERT through Holdfast takes the
//! transaction's time from the session, as PostgreSQL's now() does.
//!
//! | PostgreSQL | stored as |
//! |---|---|
//! | now(), CURRENT_TIMESTAMP of timestamptz | `strftime('%Y-%m-%d %H:%M:%f+00','now')` |
//! | now(), CURRENT_TIMESTAMP of timestamp | `strftime('%Y-%m-%d %H:%M:%f','now')` |
//! | CURRENT_DATE | `date('now')` |
//! | CURRENT_TIME | `strftime('%H:%M:%f','now')` |

use crate::params::SessionValue;
use crate::types::Type;
use holdfast_types::desc::oid;

const STORED: [(u32, &str, &str); 4] = [
    (oid::TIMESTAMPTZ, "strftime('%Y-%m-%d %H:%M:%f+00','now')", "now()"),
    (oid::TIMESTAMP, "strftime('%Y-%m-%d %H:%M:%f','now')", "now()"),
    (oid::DATE, "date('now')", "CURRENT_DATE"),
    (oid::TIME, "strftime('%H:%M:%f','now')", "LOCALTIME"),
];

/// The stored text of a default that is the current time in this type.
pub fn stored_clock(ty: Type) -> Option<&'static str> {
    STORED.iter().find(|(o, ..)| *o == ty.oid).map(|(_, text, _)| *text)
}

fn bare(default: &str) -> &str {
    let trimmed = default.trim();
    trimmed.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(trimmed).trim()
}

/// The clock that a stored default reads.
pub fn clock(default: &str) -> Option<SessionValue> {
    STORED.iter().any(|(_, text, _)| *text == bare(default)).then_some(SessionValue::TransactionTime)
}

/// The default as PostgreSQL's catalogue shows it.
pub fn shown(default: &str, ty: Type) -> String {
    let bare = bare(default);
    if let Some((.., shown)) = STORED.iter().find(|(o, text, _)| *o == ty.oid && *text == bare) {
        return (*shown).to_owned();
    }
    match (ty.oid, bare) {
        (oid::BOOL, "1") => "true".into(),
        (oid::BOOL, "0") => "false".into(),
        _ if bare.starts_with('\'') && ty.oid != oid::NUMERIC => format!("{bare}::{}", Type::new(ty.oid).name()),
        _ if bare.starts_with('\'') => bare.trim_matches('\'').to_owned(),
        _ => bare.to_owned(),
    }
}
