//! `--where`: an equality in it that the trail can be searched for, and its evaluation by the server.
//!
//! The server evaluates the condition, so that it means what it means in a query: the versions of rows go there as the
//! rows of a VALUES list that has the table's name, columns and types.
//!
//! Failure: an error of the condition is the server's. A column that the table has not is found before the trail is read,
//! because no version of a row may be left for the server to look at.

use crate::error::FlashbackError;
use crate::row::{Key, Keys, TableKey};
use crate::schema_text::in_backquotes;
use crate::server::Session;
use crate::table::Table;
use holdfast_types::quoting::quote;
use holdfast_types::record::{self, Cells, Op};
use holdfast_types::schema::Dialect;
use holdfast_types::{Value, ValueRef};
use std::collections::BTreeSet;

/// Versions of rows that are evaluated at a time.
const ROWS_MAX: usize = 400;
/// About as many bytes of SQL at a time.
const BYTES_MAX: usize = 1 << 20;
/// The option, in front of an error of the condition.
const OPTION: &str = "--where";
/// PostgreSQL's code of the error about a column that does not exist.
const UNDEFINED_COLUMN: &str = "42703";
/// The name of the number of a version in the list.
const NUMBER: &str = "holdfast_row";

/// A version of a row: its values as SQL, by stored column; `None` where a value is not known.
pub type Version = Vec<Option<String>>;

/// `column = value`, which holds wherever the condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Equality {
    pub column: String,
    pub value: Value,
    /// It is the whole condition.
    pub is_all: bool,
}

/// The equality with which a condition begins.
pub fn equality(condition: &str) -> Option<Equality> {
    let (column, rest) = name(condition.trim())?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, rest) = value(rest)?;
    let rest = rest.trim();
    let is_all = rest.is_empty();
    let continues = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("and"))
        && rest[3..].starts_with(|c: char| c.is_whitespace() || c == '(');
    // OR binds weaker than AND.
    let has_or = rest.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.eq_ignore_ascii_case("or"));
    (is_all || (continues && !has_or)).then_some(Equality { column, value, is_all })
}

fn name(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix('"') {
        let (name, rest) = rest.split_once('"')?;
        return (!rest.starts_with('"')).then(|| (name.to_owned(), rest));
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let begins = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    begins.then(|| (text[..end].to_lowercase(), &text[end..]))
}

fn value(text: &str) -> Option<(Value, &str)> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (word, rest) = rest.split_once('\'')?;
        return (!rest.starts_with('\'') && !rest.starts_with("::")).then(|| (Value::Text(word.to_owned()), rest));
    }
    let end = text.find(|c: char| c.is_whitespace()).unwrap_or(text.len());
    text[..end].parse().ok().map(|number| (Value::Int(number), &text[end..]))
}

/// What the trail is searched for.
#[derive(Clone, Debug)]
pub enum Search {
    All,
    Rowid(i64),
    /// Rows that have the value, and those with these keys.
    Column {
        position: usize,
        value: Value,
        keys: Keys,
    },
}

impl Search {
    /// The narrowest search that finds every row that the condition may select.
    pub fn of(table: &Table, equality: Option<&Equality>) -> Search {
        let Some(equality) = equality else { return Search::All };
        let position = table.columns.iter().position(|column| column.name == equality.column);
        let rowid = match &equality.value {
            Value::Int(number) => Some(*number),
            Value::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        match (&table.key, rowid, position) {
            (TableKey::Rowid { alias: Some(alias), .. }, Some(rowid), Some(at)) if *alias == at => Search::Rowid(rowid),
            (TableKey::Rowid { name, .. }, Some(rowid), None) if *name == equality.column => Search::Rowid(rowid),
            (_, _, Some(position)) if table.dialect == Dialect::Postgres => {
                let value = match (&*table.columns[position].ty, &equality.value) {
                    ("smallint" | "integer" | "bigint", _) => rowid.map(Value::Int),
                    ("text", Value::Text(text)) => Some(Value::Text(text.clone())),
                    (ty, Value::Text(text)) if ty.starts_with("character varying") => Some(Value::Text(text.clone())),
                    _ => None,
                };
                value.map_or(Search::All, |value| Search::Column { position, value, keys: Keys::default() })
            }
            _ => Search::All,
        }
    }

    pub fn has(&self, op: &Op<'_>, key: &TableKey) -> bool {
        match self {
            Search::All => true,
            Search::Rowid(rowid) => {
                let is = |key: &record::Key<'_>| matches!(key, record::Key::Rowid(found) if found == rowid);
                match op {
                    Op::Insert { rowid: found, .. } => *found == Some(*rowid),
                    Op::Update { key, new_key, .. } => is(key) || new_key.as_ref().is_some_and(is),
                    Op::Delete { key, .. } => is(key),
                    _ => false,
                }
            }
            Search::Column { position, value, keys } => {
                has_value(op, *position, value.as_ref()) || keys.touched_by(op, key)
            }
        }
    }
}

fn has_value(op: &Op<'_>, position: usize, value: ValueRef<'_>) -> bool {
    match op {
        Op::Insert { values, .. } => nth(*values, position) == Some(value),
        Op::Delete { before, .. } => nth(*before, position) == Some(value),
        Op::Update { mask, changes, .. } => {
            let Some(at) = mask.positions().position(|changed| changed == position) else { return false };
            nth(*changes, at * 2) == Some(value) || nth(*changes, at * 2 + 1) == Some(value)
        }
        _ => false,
    }
}

fn nth(mut cells: Cells<'_>, place: usize) -> Option<ValueRef<'_>> {
    cells.nth(place)
}

/// Which of the versions the condition selects, by their places in the list.
pub fn selected(
    session: &Session,
    table: &Table,
    condition: &str,
    versions: &[(&Version, Option<Key>)],
) -> Result<BTreeSet<usize>, FlashbackError> {
    let mut selected = BTreeSet::new();
    let mut next = 0;
    while next < versions.len() {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while next < versions.len() && rows.len() < ROWS_MAX && bytes < BYTES_MAX {
            let row = row_sql(table, next, &versions[next]);
            bytes += row.len();
            rows.push(row);
            next += 1;
        }
        for row in session.rows(OPTION, &query(table, &rows, condition))? {
            selected.extend(row.first().and_then(|cell| cell.as_deref()?.parse::<usize>().ok()));
        }
    }
    Ok(selected)
}

/// Has the server read the condition, which finds names that the table has not.
pub fn check(session: &Session, table: &Table, condition: &str) -> Result<(), FlashbackError> {
    let row = row_sql(table, 0, &(&Version::new(), None));
    let (condition, hint) = match table.dialect {
        Dialect::Postgres => (condition.to_owned(), ""),
        Dialect::Sqlite => (in_backquotes(condition), " Write a text in single quotes."),
    };
    let sql = format!("{} LIMIT 0", query(table, &[row], &condition));
    match session.rows(OPTION, &sql) {
        Err(FlashbackError::Statement(error)) if error.is(UNDEFINED_COLUMN) => {
            let columns = table.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
            Err(FlashbackError::NoColumn { message: error.message, table: table.name.clone(), columns, hint })
        }
        asked => asked.map(drop),
    }
}

/// The query for the numbers of those rows of a list that the condition selects.
fn query(table: &Table, rows: &[String], condition: &str) -> String {
    let system = rowid_name(table).map(quote);
    let names: Vec<String> = system.into_iter().chain(table.columns.iter().map(|c| quote(&c.name))).collect();
    let (name, names, rows) = (quote(&table.name), names.join(", "), rows.join(", "));
    match table.dialect {
        Dialect::Postgres => {
            format!("SELECT {NUMBER} FROM (VALUES {rows}) AS {name}({NUMBER}, {names}) WHERE ({condition})")
        }
        Dialect::Sqlite => {
            format!("WITH {name}({NUMBER}, {names}) AS (VALUES {rows}) SELECT {NUMBER} FROM {name} WHERE ({condition})")
        }
    }
}

/// The rowid's name, which a condition may use.
fn rowid_name(table: &Table) -> Option<&str> {
    match &table.key {
        TableKey::Rowid { name, .. } => Some(name),
        TableKey::Columns(_) => None,
    }
}

fn row_sql(table: &Table, number: usize, (version, key): &(&Version, Option<Key>)) -> String {
    let cell = |(at, column): (usize, &crate::table::Column)| {
        let value = version.get(at).and_then(Option::as_deref).unwrap_or("NULL");
        match table.dialect {
            Dialect::Postgres => format!("{value}::{}", column.ty),
            Dialect::Sqlite => value.to_owned(),
        }
    };
    let system = rowid_name(table).map(|_| match key {
        Some(Key::Rowid(rowid)) if table.dialect == Dialect::Postgres => format!("'{rowid}'::bigint"),
        Some(Key::Rowid(rowid)) => rowid.to_string(),
        _ if table.dialect == Dialect::Postgres => "NULL::bigint".to_owned(),
        _ => "NULL".to_owned(),
    });
    let cells: Vec<String> = system.into_iter().chain(table.columns.iter().enumerate().map(cell)).collect();
    format!("({number}, {})", cells.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equality_is_found_where_it_must_hold() {
        let of = |text: &str| equality(text).map(|e| (e.column, e.value, e.is_all));
        let text = |t: &str| Value::Text(t.to_owned());
        assert_eq!(of("id = 7"), Some(("id".to_owned(), Value::Int(7), true)));
        assert_eq!(of(" ID=-7 "), Some(("id".to_owned(), Value::Int(-7), true)));
        assert_eq!(of("\"Id\" = 'a b'"), Some(("Id".to_owned(), text("a b"), true)));
        assert_eq!(of("id = 7 and (v > 3)"), Some(("id".to_owned(), Value::Int(7), false)));
        for other in
            ["id = 7 or v = 3", "id = 7 and v = 3 OR w", "id = 7 + 1", "id = 'it''s'", "id > 7", "not id = 7", ""]
        {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of("id = 7.5"), None);
        assert_eq!(of("id = 'x'::text"), None);
    }
}
