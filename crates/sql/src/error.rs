//! Errors at run time: SQLite's errors in PostgreSQL's words, and Holdfast's own errors through SQLite and back.
//!
//! A function of Holdfast that fails gives SQLite the text of [`encode`]; [`from_sqlite`] reads it from SQLite's
//! message.

use crate::keys::index_name;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlState};

/// The character before and after the SQLSTATE in an encoded error.
const MARK: char = '\u{1}';

/// An error as a message for SQLite to carry.
pub fn encode(error: &SqlError) -> String {
    format!("{MARK}{}{MARK}{}", error.state().0, error.message())
}

fn decode(message: &str) -> Option<SqlError> {
    let (_, rest) = message.split_once(MARK)?;
    let (state, text) = rest.split_once(MARK)?;
    Some(SqlError::new(known_state(state)?, text))
}

/// The SQLSTATE that a function of Holdfast raised, as a static string.
fn known_state(state: &str) -> Option<SqlState> {
    const STATES: &[&str] = &[
        "0A000", "22001", "22003", "22007", "22008", "22012", "2201B", "2201E", "2201F", "2201W", "2201X", "22023",
        "22025", "22P02", "22P03", "2BP01", "23502", "23503", "23505", "23514", "42704", "42804", "42846", "54000",
        "XX000", "22011", "42883",
    ];
    STATES.iter().find(|s| **s == state).map(|s| SqlState(s))
}

/// SQLite's primary result codes (sqlite3.h).
mod code {
    pub const ERROR: i32 = 1;
    pub const LOCKED: i32 = 6;
    pub const BUSY: i32 = 5;
    pub const NOMEM: i32 = 7;
    pub const READONLY: i32 = 8;
    pub const INTERRUPT: i32 = 9;
    pub const IOERR: i32 = 10;
    pub const CORRUPT: i32 = 11;
    pub const FULL: i32 = 13;
    pub const TOOBIG: i32 = 18;
    pub const CONSTRAINT: i32 = 19;
    pub const MISMATCH: i32 = 20;
    pub const RANGE: i32 = 25;
}

/// Converts an error of SQLite to what a client of PostgreSQL expects. `extended` is the extended result code.
pub fn from_sqlite(extended: i32, message: &str, schema: &Schema) -> SqlError {
    if let Some(ours) = decode(message) {
        return ours;
    }
    let plain = |state: SqlState| SqlError::new(state, message);
    match extended & 0xff {
        code::CONSTRAINT => constraint(message, schema),
        code::ERROR if message.contains("integer overflow") => {
            SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range")
        }
        code::ERROR if message.starts_with("no such table: ") => {
            let name = message["no such table: ".len()..].trim_start_matches("main.");
            SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
        }
        code::ERROR if message.starts_with("no such column: ") => {
            let name = &message["no such column: ".len()..];
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {name} does not exist"))
        }
        code::ERROR if message.starts_with("no such function: ") => {
            let name = &message["no such function: ".len()..];
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist"))
        }
        code::ERROR if message.contains("Expression tree is too large") || message.contains("too many terms") => {
            plain(SqlState::STATEMENT_TOO_COMPLEX)
        }
        code::ERROR if message.contains("syntax error") || message.contains("incomplete input") => {
            plain(SqlState::SYNTAX_ERROR)
        }
        code::ERROR if message.contains("already exists") => plain(SqlState::DUPLICATE_TABLE),
        code::ERROR if message.contains("duplicate column name") => plain(SqlState::DUPLICATE_COLUMN),
        code::ERROR => plain(SqlState::INTERNAL_ERROR),
        code::BUSY | code::LOCKED => plain(SqlState::OBJECT_IN_USE),
        code::NOMEM => plain(SqlState::OUT_OF_MEMORY),
        code::READONLY => plain(SqlState::READ_ONLY_SQL_TRANSACTION),
        code::INTERRUPT => SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"),
        code::IOERR => plain(SqlState::IO_ERROR),
        code::CORRUPT => plain(SqlState::DATA_CORRUPTED),
        code::FULL => plain(SqlState::DISK_FULL),
        code::TOOBIG => plain(SqlState::PROGRAM_LIMIT_EXCEEDED),
        code::MISMATCH => plain(SqlState::DATATYPE_MISMATCH),
        code::RANGE => plain(SqlState::UNDEFINED_PARAMETER),
        _ => plain(SqlState::INTERNAL_ERROR),
    }
}

fn constraint(message: &str, schema: &Schema) -> SqlError {
    let (what, rest) = message.split_once(" constraint failed").unwrap_or((message, ""));
    let rest = rest.trim_start_matches(": ");
    match what {
        "UNIQUE" | "PRIMARY KEY" => unique(rest, schema),
        "NOT NULL" => {
            let (table, column) = rest.split_once('.').unwrap_or(("", rest));
            let text =
                format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint");
            SqlError::new(SqlState::NOT_NULL_VIOLATION, text)
        }
        "CHECK" => {
            let text = format!("new row violates check constraint \"{rest}\"");
            SqlError::new(SqlState::CHECK_VIOLATION, text).with_constraint(rest)
        }
        "FOREIGN KEY" => {
            SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, "insert, update or delete violates a foreign key constraint")
        }
        _ => SqlError::new(SqlState::INTEGRITY_CONSTRAINT_VIOLATION, message),
    }
}

/// The 23505 for a violated unique index; `what` is `t.a, t.b` or `index 'name'`.
fn unique(what: &str, schema: &Schema) -> SqlError {
    let name = match what.strip_prefix("index '").and_then(|w| w.strip_suffix('\'')) {
        Some(index) => Some(index.to_owned()),
        None => constraint_of(what, schema),
    };
    let shown = name.unwrap_or_else(|| what.to_owned());
    let text = format!("duplicate key value violates unique constraint \"{shown}\"");
    SqlError::new(SqlState::UNIQUE_VIOLATION, text).with_constraint(shown)
}

fn constraint_of(columns: &str, schema: &Schema) -> Option<String> {
    let (table, _) = columns.split_once('.')?;
    let prefix = format!("{table}.");
    let names: Vec<&str> = columns.split(", ").map(|c| c.strip_prefix(&prefix).unwrap_or(c)).collect();
    let table = schema.table(table)?;
    if let [only] = names.as_slice()
        && table.columns.iter().any(|c| c.rowid_alias && c.name == *only)
    {
        return Some(table.key_name.clone());
    }
    let index = table.indexes.iter().filter(|i| i.unique).find(|i| {
        i.columns.len() == names.len() && i.columns.iter().zip(&names).all(|(a, b)| a.as_deref() == Some(*b))
    })?;
    Some(index_name(table, index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_errors_survive_sqlite() {
        let ours = SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero");
        let schema = Schema::default();
        let back = from_sqlite(1, &encode(&ours), &schema);
        assert_eq!((back.state(), back.message()), (SqlState::DIVISION_BY_ZERO, "division by zero"));
    }

    #[test]
    fn sqlite_errors_get_states() {
        let schema = Schema::default();
        let state = |code, message| from_sqlite(code, message, &schema).state();
        assert_eq!(state(1299, "NOT NULL constraint failed: t.a"), SqlState::NOT_NULL_VIOLATION);
        assert_eq!(state(2067, "UNIQUE constraint failed: t.a, t.b"), SqlState::UNIQUE_VIOLATION);
        assert_eq!(state(275, "CHECK constraint failed: c"), SqlState::CHECK_VIOLATION);
        assert_eq!(state(1, "no such table: x"), SqlState::UNDEFINED_TABLE);
        assert_eq!(state(9, "interrupted"), SqlState::QUERY_CANCELED);
    }
}
