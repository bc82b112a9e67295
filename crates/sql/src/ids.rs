//! Ids of new rows. They come from a counter that all transactions share.
//!
//! SQLite gives a new row the largest rowid plus one, so two concurrent transactions would give the same id to two
//! rows. Every translated INSERT therefore names the rowid and takes its value from the function [`NEXT_ID_FUNCTION`];
//! SQLite never chooses.
//!
//! | the table | an INSERT that gives no id |
//! |---|---|
//! | has an INTEGER PRIMARY KEY | gets that column |
//! | has a rowid without a column | gets the first of `rowid`, `_rowid_`, `oid` that is not a column's name |
//! | WITHOUT ROWID, a view, virtual, or all three names are columns | is unchanged |
//! | is temporary, so that only one session inserts into it | is unchanged |
//!
//! The function can fail, with an error of the engine. The INSERTs in a trigger's body are stored in the schema, which
//! may not call functions of Holdfast: there SQLite still chooses.

use crate::names::quote;
use holdfast_types::schema::{Table, TableKind};

/// The SQLite function that returns the next id of a table, an integer. Its argument is the table's name. The engine
/// registers it on every connection that writes.
pub const NEXT_ID_FUNCTION: &str = "holdfast_next_id";

/// SQLite's names for the rowid, unless a column has that name.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// True if the table has a column of this name. ASCII case is ignored, as in SQLite.
fn has_column(table: &Table, name: &str) -> bool {
    table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name))
}

/// The name of a table's rowid in SQLite's SQL. `None` where the table has no rowid, or columns use all its names.
pub fn id_column(table: &Table) -> Option<&str> {
    if table.kind != TableKind::Table || table.without_rowid {
        return None;
    }
    match table.columns.iter().find(|c| c.rowid_alias) {
        Some(alias) => Some(&alias.name),
        None => ROWID_NAMES.into_iter().find(|name| !has_column(table, name)),
    }
}

/// The name under which SQLite's rowid can be read even where a column is the rowid.
pub fn hidden_name(table: &Table) -> Option<&'static str> {
    ROWID_NAMES.into_iter().find(|name| !has_column(table, name))
}

/// True where this name means the rowid of the table in SQLite's SQL.
pub fn is_id(table: &Table, name: &str) -> bool {
    table.columns.iter().any(|c| c.rowid_alias && c.name.eq_ignore_ascii_case(name))
        || (ROWID_NAMES.iter().any(|n| n.eq_ignore_ascii_case(name)) && !has_column(table, name))
}

/// The columns that identify a row of a stored table, with their names in SQLite's SQL. `None` where no name is left
/// for the rowid.
pub fn row_key(table: &Table) -> Option<Vec<String>> {
    if !table.without_rowid {
        return id_column(table).map(|id| vec![id.to_owned()]);
    }
    let mut key: Vec<_> = table.columns.iter().filter(|c| c.pk > 0).collect();
    key.sort_by_key(|c| c.pk);
    Some(key.into_iter().map(|c| c.name.clone()).collect())
}

/// The call that returns the next id. `None` for a temporary table, whose ids SQLite chooses.
pub fn next_id(table: &Table) -> Option<String> {
    (!table.temp).then(|| format!("{NEXT_ID_FUNCTION}('{}')", table.name.replace('\'', "''")))
}

/// A SELECT of `items` over the rows of a query: `before`, then the query's text, then `after`. The items name the
/// query's columns `"c1"`, `"c2"` and so on.
pub struct OverRows {
    pub before: String,
    pub after: &'static str,
}

impl OverRows {
    /// `width` is the number of the query's columns.
    pub fn new(items: &[String], width: usize, query: &str) -> OverRows {
        let names: Vec<String> = (1..=width).map(|i| quote(&format!("c{i}"))).collect();
        let names = if width == 0 { String::new() } else { format!("({})", names.join(", ")) };
        // If SQLite merged the query into this SELECT, its ORDER BY would sort rows that already have ids.
        let numbered = items.iter().any(|i| i.contains(NEXT_ID_FUNCTION));
        let hint = if numbered && is_ordered(query) { "MATERIALIZED " } else { "" };
        let before = format!("SELECT {} FROM (WITH \"holdfast rows\"{names} AS {hint}(", items.join(", "));
        // The WHERE keeps SQLite from reading ON CONFLICT as a join's ON.
        OverRows { before, after: ") SELECT * FROM \"holdfast rows\") WHERE 1" }
    }
}

/// True where the text contains ORDER BY.
fn is_ordered(sql: &str) -> bool {
    let mut words = sql.split_ascii_whitespace().peekable();
    let ends_with = |word: &str, end: &str| {
        word.len() >= end.len() && {
            let tail = &word.as_bytes()[word.len() - end.len()..];
            tail.eq_ignore_ascii_case(end.as_bytes())
        }
    };
    while let Some(word) = words.next() {
        if ends_with(word, "order") && words.peek().is_some_and(|w| w.eq_ignore_ascii_case("by")) {
            return true;
        }
    }
    false
}
