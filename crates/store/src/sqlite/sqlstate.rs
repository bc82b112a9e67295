//! Translates SQLite's errors for the client: to PostgreSQL's SQLSTATE and, where the statement would fail in
//! PostgreSQL for the same reason, to PostgreSQL's message.
//!
//! SQLite has one code for most mistakes in a statement, so they are distinguished by the beginning of its message (a
//! test checks them against the built-in library). An unknown message is kept as it is, under 42000.
//!
//! An error raised by one of our own functions goes through SQLite as a message that begins with U+0001:
//!
//! | part | text |
//! |---|---|
//! | 1 | U+0001 and the five characters of the SQLSTATE |
//! | 2 to 5 | message, detail, hint, constraint, each after U+001F; an absent one is empty |

use super::error::SqliteError;
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{SqlError, SqlState};
use parking_lot::Mutex;
use rusqlite::ffi;

const MARK: char = '\u{1}';
const SEPARATOR: char = '\u{1f}';

const SYNTAX_OR_ACCESS: SqlState = SqlState("42000");
const RAISE_EXCEPTION: SqlState = SqlState("P0001");
const INVALID_FOREIGN_KEY: SqlState = SqlState("42830");

/// The SQLSTATEs that our functions have raised so far, a few dozen at most, because only their five characters pass
/// through SQLite.
static RAISED: Mutex<Vec<SqlState>> = Mutex::new(Vec::new());

/// Encodes an error as a message that passes through SQLite.
pub(super) fn encode_error(error: &SqlError) -> String {
    let parts = error.parts();
    let mut raised = RAISED.lock();
    if !raised.contains(&parts.state) {
        raised.push(parts.state);
    }
    drop(raised);
    let mut text = format!("{MARK}{}", parts.state.0);
    for field in [Some(&parts.message), parts.detail.as_ref(), parts.hint.as_ref(), parts.constraint.as_ref()] {
        text.push(SEPARATOR);
        text.extend(field.into_iter().flat_map(|f| f.chars()).map(|c| match c {
            '\0' | SEPARATOR => char::REPLACEMENT_CHARACTER,
            other => other,
        }));
    }
    text
}

/// The reverse of [`encode_error`].
fn decode_error(message: &str) -> Option<SqlError> {
    let mut parts = message.strip_prefix(MARK)?.split(SEPARATOR);
    let code = parts.next()?;
    let state = RAISED.lock().iter().find(|state| state.0 == code).copied().unwrap_or(SqlState::INTERNAL_ERROR);
    let mut error = SqlError::new(state, parts.next()?);
    let mut field = || parts.next().filter(|text| !text.is_empty());
    if let Some(detail) = field() {
        error = error.with_detail(detail);
    }
    if let Some(hint) = field() {
        error = error.with_hint(hint);
    }
    if let Some(constraint) = field() {
        error = error.with_constraint(constraint);
    }
    Some(error)
}

/// Translates SQLite's error for `sql`. The schema, if given, supplies the name of the violated constraint.
pub fn sql_error(error: &SqliteError, sql: &str, schema: Option<&Schema>) -> SqlError {
    if let Some(ours) = decode_error(&error.message) {
        return ours;
    }
    let message = error.message.as_str();
    let new = |state| SqlError::new(state, message);
    match error.primary() {
        ffi::SQLITE_CONSTRAINT => constraint_error(error, schema),
        ffi::SQLITE_ERROR => statement_error(error, sql),
        ffi::SQLITE_INTERRUPT => SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"),
        ffi::SQLITE_MISMATCH => new(SqlState::DATATYPE_MISMATCH),
        ffi::SQLITE_TOOBIG => new(SqlState::PROGRAM_LIMIT_EXCEEDED),
        ffi::SQLITE_FULL => new(SqlState::DISK_FULL),
        ffi::SQLITE_NOMEM => new(SqlState::OUT_OF_MEMORY)
            .with_detail("Values of 1 MiB and more of all statements together may take statements_memory_bytes_max."),
        ffi::SQLITE_IOERR | ffi::SQLITE_CANTOPEN => new(SqlState::IO_ERROR),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => new(SqlState::DATA_CORRUPTED),
        ffi::SQLITE_READONLY => new(SqlState::READ_ONLY_SQL_TRANSACTION),
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => new(SqlState::LOCK_NOT_AVAILABLE),
        ffi::SQLITE_AUTH => new(SqlState::INSUFFICIENT_PRIVILEGE),
        _ => new(SqlState::INTERNAL_ERROR),
    }
}

fn constraint_error(error: &SqliteError, schema: Option<&Schema>) -> SqlError {
    let message = error.message.as_str();
    let what = message.split_once("constraint failed: ").map_or("", |(_, what)| what);
    match error.code {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            let name = unique_name(what, error.code == ffi::SQLITE_CONSTRAINT_UNIQUE, schema);
            let text = format!("duplicate key value violates unique constraint \"{name}\"");
            SqlError::new(SqlState::UNIQUE_VIOLATION, text)
                .with_detail(format!("SQLite: {message}."))
                .with_constraint(name)
        }
        ffi::SQLITE_CONSTRAINT_NOTNULL => {
            let (table, column) = what.split_once('.').unwrap_or(("", what));
            let text =
                format!("null value in column \"{column}\" of relation \"{table}\" violates not-null constraint");
            SqlError::new(SqlState::NOT_NULL_VIOLATION, text)
        }
        ffi::SQLITE_CONSTRAINT_CHECK => {
            let text = format!("new row violates check constraint \"{what}\"");
            SqlError::new(SqlState::CHECK_VIOLATION, text).with_constraint(what)
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => {
            let text = "insert, update or delete violates a foreign key constraint";
            SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, text)
        }
        ffi::SQLITE_CONSTRAINT_TRIGGER => SqlError::new(RAISE_EXCEPTION, message),
        ffi::SQLITE_CONSTRAINT_DATATYPE => SqlError::new(SqlState::DATATYPE_MISMATCH, message),
        _ => SqlError::new(SqlState::INTEGRITY_CONSTRAINT_VIOLATION, message),
    }
}

/// The name of the index behind `t.a, t.b` or `index 'name'`: its own name if it was created with one, otherwise the
/// name that PostgreSQL would have given it.
fn unique_name(what: &str, is_unique: bool, schema: Option<&Schema>) -> String {
    if let Some(name) = what.strip_prefix("index '") {
        return name.trim_end_matches('\'').to_string();
    }
    let (mut table, mut columns) = ("", Vec::new());
    for part in what.split(", ") {
        if let Some((t, column)) = part.split_once('.') {
            table = t;
            columns.push(column);
        }
    }
    let known = schema.and_then(|schema| schema.table(table));
    if let Some(name) = known.and_then(|known| named_index(known, &columns)) {
        return name;
    }
    match known.map(|known| known.key_name.as_str()).filter(|name| !is_unique && !name.is_empty()) {
        Some(name) => name.to_owned(),
        None if is_unique => format!("{table}_{}_key", columns.join("_")),
        None => format!("{table}_pkey"),
    }
}

/// Finds a unique index that CREATE INDEX made over exactly these columns.
fn named_index(table: &Table, columns: &[&str]) -> Option<String> {
    let over = |index: &[Option<String>]| {
        index.len() == columns.len() && index.iter().zip(columns).all(|(a, b)| a.as_deref() == Some(*b))
    };
    table.indexes.iter().find(|i| i.unique && i.sql.is_some() && over(&i.columns)).map(|i| i.name.clone())
}

/// Beginning of SQLite's message, SQLSTATE, and the text that PostgreSQL writes around the name that follows.
type Begin = (&'static str, SqlState, Option<(&'static str, &'static str)>);

const BEGINS: &[Begin] = &[
    ("no such table: ", SqlState::UNDEFINED_TABLE, Some(("relation \"", "\" does not exist"))),
    ("no such view: ", SqlState::UNDEFINED_TABLE, Some(("view \"", "\" does not exist"))),
    ("no such column: ", SqlState::UNDEFINED_COLUMN, Some(("column \"", "\" does not exist"))),
    ("no such index: ", SqlState::UNDEFINED_OBJECT, Some(("index \"", "\" does not exist"))),
    ("no such trigger: ", SqlState::UNDEFINED_OBJECT, Some(("trigger \"", "\" does not exist"))),
    ("no such collation sequence: ", SqlState::UNDEFINED_OBJECT, Some(("collation \"", "\" does not exist"))),
    ("no such module: ", SqlState::UNDEFINED_OBJECT, None),
    ("no such savepoint: ", SqlState::INVALID_SAVEPOINT_SPECIFICATION, Some(("savepoint \"", "\" does not exist"))),
    ("no such function: ", SqlState::UNDEFINED_FUNCTION, Some(("function ", " does not exist"))),
    ("unknown function: ", SqlState::UNDEFINED_FUNCTION, None),
    ("wrong number of arguments to function ", SqlState::UNDEFINED_FUNCTION, None),
    ("ambiguous column name: ", SqlState::AMBIGUOUS_COLUMN, Some(("column reference \"", "\" is ambiguous"))),
    ("duplicate column name: ", SqlState::DUPLICATE_COLUMN, Some(("column \"", "\" specified more than once"))),
    ("there is already ", SqlState::DUPLICATE_TABLE, None),
    ("misuse of aggregate", SqlState::GROUPING_ERROR, None),
    ("foreign key mismatch", INVALID_FOREIGN_KEY, None),
    ("unrecognized token: ", SqlState::SYNTAX_ERROR, Some(("syntax error at or near ", ""))),
    ("incomplete input", SqlState::SYNTAX_ERROR, Some(("syntax error at end of input", ""))),
    ("integer overflow", SqlState::NUMERIC_VALUE_OUT_OF_RANGE, Some(("bigint out of range", ""))),
    ("malformed JSON", SqlState::INVALID_TEXT_REPRESENTATION, None),
    ("cannot start a transaction within", SqlState::ACTIVE_SQL_TRANSACTION, None),
    ("cannot commit - no transaction", SqlState::NO_ACTIVE_SQL_TRANSACTION, None),
    ("cannot rollback - no transaction", SqlState::NO_ACTIVE_SQL_TRANSACTION, None),
    ("cannot modify ", SqlState::WRONG_OBJECT_TYPE, None),
    ("too many ", SqlState::STATEMENT_TOO_COMPLEX, None),
    ("Expression tree is too large (maximum depth 1000)", SqlState::STATEMENT_TOO_COMPLEX, Some((TOO_DEEP, ""))),
    ("Recursion limit", SqlState::STATEMENT_TOO_COMPLEX, Some((TOO_DEEP, ""))),
    ("parser stack overflow", SqlState::STATEMENT_TOO_COMPLEX, Some((TOO_DEEP, ""))),
];

/// A chain of operators is as deep as it is long, except for AND, OR and `||`.
const TOO_DEEP: &str = "the expression is nested too deeply; the limit is 1000 operators in one another";

/// Text within SQLite's message, and SQLSTATE.
const INSIDE: &[(&str, SqlState)] = &[
    (" has no column named ", SqlState::UNDEFINED_COLUMN),
    (" values for ", SqlState::SYNTAX_ERROR),
    (" values were supplied", SqlState::SYNTAX_ERROR),
    (" may not be modified", SqlState::INSUFFICIENT_PRIVILEGE),
    (" is not a function", SqlState::UNDEFINED_FUNCTION),
    ("do not have the same number of result columns", SqlState::SYNTAX_ERROR),
];

/// Translates a mistake in the statement.
fn statement_error(error: &SqliteError, sql: &str) -> SqlError {
    let mut result = classify(&error.message);
    if let Some(before) = error.offset.and_then(|offset| sql.get(..offset as usize)) {
        result = result.with_position(before.chars().count() as u32 + 1);
    }
    result
}

fn classify(message: &str) -> SqlError {
    for (begin, state, words) in BEGINS {
        if let Some(rest) = message.strip_prefix(begin) {
            return match words {
                Some((before, after)) => SqlError::new(*state, format!("{before}{rest}{after}")),
                None => SqlError::new(*state, message),
            };
        }
    }
    if let Some(near) = message.strip_suffix(": syntax error").and_then(|m| m.strip_prefix("near ")) {
        return SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near {near}"));
    }
    if let Some(object) = message.strip_suffix(" already exists") {
        let (kind, name) = object.split_once(' ').unwrap_or(("relation", object));
        return match kind {
            "trigger" => SqlError::new(SqlState::DUPLICATE_OBJECT, format!("trigger \"{name}\" already exists")),
            _ => SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")),
        };
    }
    let inside = INSIDE.iter().find(|(text, _)| message.contains(text));
    SqlError::new(inside.map_or(SYNTAX_OR_ACCESS, |(_, state)| *state), message)
}

#[cfg(test)]
mod tests {
    use super::super::{Conn, OpenFlags};
    use super::*;

    /// Statements that fail in the built-in SQLite, the SQLSTATE and the message a client gets.
    const CASES: &[(&str, &str, &str)] = &[
        ("SELECT * FROM nix", "42P01", "relation \"nix\" does not exist"),
        ("SELECT nix FROM t", "42703", "column \"nix\" does not exist"),
        ("INSERT INTO t(nix) VALUES(1)", "42703", "table t has no column named nix"),
        ("SELECT nix(1)", "42883", "function nix does not exist"),
        ("SELECT abs(1, 2)", "42883", "wrong number of arguments to function abs()"),
        ("SELECT a FROM t x, t y", "42702", "column reference \"a\" is ambiguous"),
        ("SELEC 1", "42601", "syntax error at or near \"SELEC\""),
        ("SELECT 'ab", "42601", "syntax error at or near \"'ab\""),
        ("SELECT (", "42601", "syntax error at end of input"),
        ("INSERT INTO t VALUES(1)", "42601", "table t has 4 columns but 1 values were supplied"),
        ("CREATE TABLE t(a)", "42P07", "relation \"t\" already exists"),
        ("CREATE TABLE u(a, a)", "42701", "column \"a\" specified more than once"),
        ("DROP INDEX nix", "42704", "index \"nix\" does not exist"),
        ("CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END", "42710", "trigger \"g\" already exists"),
        ("INSERT INTO v VALUES(1)", "42809", "cannot modify v because it is a view"),
        ("RELEASE nix", "3B001", "savepoint \"nix\" does not exist"),
        ("SELECT count(count(*))", "42803", "misuse of aggregate function count()"),
        ("SELECT abs(-9223372036854775807 - 1)", "22003", "bigint out of range"),
        ("SELECT json('{')", "22P02", "malformed JSON"),
        ("COMMIT", "25P01", "cannot commit - no transaction is active"),
        ("DELETE FROM sqlite_schema", "42501", "table sqlite_master may not be modified"),
        ("INSERT INTO t(id, a) VALUES(1, 9)", "23505", "duplicate key value violates unique constraint \"t_pkey\""),
        ("INSERT INTO t(a) VALUES(1)", "23505", "duplicate key value violates unique constraint \"t_a_key\""),
        (
            "INSERT INTO t(a) VALUES(NULL)",
            "23502",
            "null value in column \"a\" of relation \"t\" violates not-null constraint",
        ),
        ("INSERT INTO t(a, b) VALUES(2, -1)", "23514", "new row violates check constraint \"b_positive\""),
        ("INSERT INTO t(a, up) VALUES(3, 77)", "23503", "insert, update or delete violates a foreign key constraint"),
        ("INSERT INTO t(a) VALUES(13)", "P0001", "unlucky"),
        ("INSERT INTO t(id, a) VALUES('x', 4)", "42804", "datatype mismatch"),
        ("SELECT zeroblob(2000000000)", "54000", "string or blob too big"),
    ];

    #[test]
    fn every_refusal_has_its_sqlstate() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE t(id INTEGER PRIMARY KEY, a NOT NULL UNIQUE, b CONSTRAINT b_positive CHECK (b > 0),
                 up REFERENCES t(id));
             CREATE VIEW v AS SELECT 1;
             CREATE TRIGGER g BEFORE INSERT ON t WHEN new.a = 13 BEGIN SELECT raise(ABORT, 'unlucky'); END;
             INSERT INTO t(id, a) VALUES(1, 1)",
        )
        .unwrap();
        for (sql, state, message) in CASES {
            let error = c.query_value(sql).expect_err(sql);
            let seen = sql_error(&error, sql, None);
            assert_eq!((seen.state().0, seen.message()), (*state, *message), "{sql}");
        }
    }

    #[test]
    fn a_position_counts_characters() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        let sql = "SELECT 'ü', nix";
        let error = sql_error(&c.query_value(sql).unwrap_err(), sql, None);
        assert_eq!(error.parts().position, Some(13));
    }
}
