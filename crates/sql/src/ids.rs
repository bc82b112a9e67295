//! Ids of new rows, taken from a counter that all transactions share.
//!
//! Left to itself SQLite gives a new row the largest rowid plus one, so two transactions that insert beside each
//! other would give one id to two rows. Every INSERT that is translated therefore names the rowid and takes it from
//! the function [`NEXT_ID_FUNCTION`]; SQLite never chooses.
//!
//! | the table | an INSERT that gives no id |
//! |---|---|
//! | has an INTEGER PRIMARY KEY | gets that column |
//! | has a rowid of no name | gets the first of `rowid`, `_rowid_`, `oid` that is not a column's name |
//! | WITHOUT ROWID, a view, virtual, or all three names are taken | stays as it is |
//! | is a temporary one, which one session alone inserts into | stays as it is |
//!
//! What fails is the function, with the engine's error. The INSERTs of a trigger's body stand in the schema, where
//! none of our functions may be: there SQLite still chooses.

use crate::bind::quote;
use holdfast_types::schema::{Table, TableKind};

/// SQLite's name of the function that gives the next id of a table: one argument, the table's name; an integer. The
/// engine registers it on every connection that writes.
pub const NEXT_ID_FUNCTION: &str = "holdfast_next_id";

/// The names SQLite has for the rowid, as long as no column has them.
const ROWID_NAMES: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// The table's column of that name, ASCII case ignored as SQLite does.
fn has_column(table: &Table, name: &str) -> bool {
    table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(name))
}

/// The name by which SQLite's SQL reaches the rowid of a table. `None` where the table has none, or none that can
/// be named.
pub fn id_column(table: &Table) -> Option<&str> {
    if table.kind != TableKind::Table || table.without_rowid {
        return None;
    }
    match table.columns.iter().find(|c| c.rowid_alias) {
        Some(alias) => Some(&alias.name),
        None => ROWID_NAMES.into_iter().find(|name| !has_column(table, name)),
    }
}

/// This name means the rowid of the table in SQLite's SQL.
pub fn is_id(table: &Table, name: &str) -> bool {
    table.columns.iter().any(|c| c.rowid_alias && c.name.eq_ignore_ascii_case(name))
        || (ROWID_NAMES.iter().any(|n| n.eq_ignore_ascii_case(name)) && !has_column(table, name))
}

/// The columns that identify a row of a stored table, by the names SQLite's SQL has for them. `None` where none can
/// be named.
pub fn row_key(table: &Table) -> Option<Vec<String>> {
    if !table.without_rowid {
        return id_column(table).map(|id| vec![id.to_owned()]);
    }
    let mut key: Vec<_> = table.columns.iter().filter(|c| c.pk > 0).collect();
    key.sort_by_key(|c| c.pk);
    Some(key.into_iter().map(|c| c.name.clone()).collect())
}

/// The call that gives the next id. `None` for a temporary table, whose ids SQLite chooses.
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
        // Merged into this SELECT, the query's ORDER BY would sort rows that have their ids already.
        let numbered = items.iter().any(|i| i.contains(NEXT_ID_FUNCTION));
        let hint = if numbered && is_ordered(query) { "MATERIALIZED " } else { "" };
        let before = format!("SELECT {} FROM (WITH \"holdfast rows\"{names} AS {hint}(", items.join(", "));
        // The WHERE keeps SQLite from reading ON CONFLICT as a join's ON.
        OverRows { before, after: ") SELECT * FROM \"holdfast rows\") WHERE 1" }
    }
}

/// The text says ORDER BY somewhere.
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
