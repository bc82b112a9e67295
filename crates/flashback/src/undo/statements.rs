//! The statement that takes the net effect on one row back.
//!
//! It finds the row by its key and by the values that the transaction left, so that it changes no row of another version.
//! A row that is deleted must have no rows that would go with it, or lose their reference, by a foreign key: those that the
//! transaction itself has inserted are deleted before.
//!
//! Failure: an image with another number of columns than the table has now is refused.

use super::net::Net;
use crate::find::key_shown;
use crate::row::TableKey;
use crate::table::{Referring, Table, sql_of};
use holdfast_types::quoting::quote;
use holdfast_types::schema::Dialect;
use holdfast_types::{TableId, Value};
use serde::Serialize;

/// Foreign keys are followed up to this depth for the order of statements.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    Insert,
    Update,
    Delete,
}

/// One statement of an inverse.
#[derive(Clone, Debug, Serialize)]
pub struct Statement {
    pub database: String,
    pub table: String,
    pub kind: ChangeKind,
    /// Names and values, as text.
    pub key: String,
    pub sql: String,
    /// A query whose result has one row if the row is as before already.
    #[serde(skip)]
    pub is_done: String,
}

/// The inverse of a net effect.
pub fn of(database: &str, table: &Table, net: &Net) -> Result<Statement, String> {
    let name = quote(&table.name);
    let (kind, key, sql, is_done) = match net {
        Net::Inserted { key, values } => {
            fits(table, values.len())?;
            let all: Vec<(usize, &Value)> = values.iter().enumerate().collect();
            let found =
                with(&[vec![table.found(key)], guards(table, &all), unreferred(table, |r| r.on_delete)].concat());
            let is_done = format!("SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {name} WHERE {})", table.found(key));
            (ChangeKind::Delete, key, format!("DELETE FROM {name} WHERE {found}"), is_done)
        }
        Net::Deleted { key, values } => {
            fits(table, values.len())?;
            let hidden = match (key, &table.key) {
                (crate::row::Key::Rowid(rowid), TableKey::Rowid { name, alias: None }) => {
                    Some((quote(name), rowid.to_string()))
                }
                _ => None,
            };
            let stored = table.columns.iter().zip(values);
            let stored = stored.map(|(column, value)| (quote(&column.name), sql_of(value, table.dialect)));
            let (columns, cells): (Vec<_>, Vec<_>) = hidden.into_iter().chain(stored).unzip();
            let sql =
                format!("INSERT{} INTO {name} ({}) VALUES ({})", or_abort(table), columns.join(", "), cells.join(", "));
            let all: Vec<(usize, &Value)> = values.iter().enumerate().collect();
            let found = with(&[vec![table.found(key)], guards(table, &all)].concat());
            (ChangeKind::Insert, key, sql, format!("SELECT 1 FROM {name} WHERE {found}"))
        }
        Net::Updated { before, after, changes } => {
            let columns = table.columns.len();
            if changes.iter().any(|(position, ..)| *position >= columns) {
                fits(table, columns + 1)?;
            }
            let column = |position: &usize| quote(&table.columns[*position].name);
            let mut set: Vec<String> = changes
                .iter()
                .map(|(position, was, _)| format!("{} = {}", column(position), sql_of(was, table.dialect)))
                .collect();
            if let (crate::row::Key::Rowid(rowid), TableKey::Rowid { name, alias: None }) = (before, &table.key)
                && before != after
            {
                set.push(format!("{} = {rowid}", quote(name)));
            }
            let is: Vec<(usize, &Value)> = changes.iter().map(|(position, _, is)| (*position, is)).collect();
            let was: Vec<(usize, &Value)> = changes.iter().map(|(position, was, _)| (*position, was)).collect();
            let names: Vec<&str> = changes.iter().map(|(position, ..)| &*table.columns[*position].name).collect();
            let key_changes = |r: &Referring| r.on_update && r.columns.iter().any(|(_, here)| names.contains(&&**here));
            let found = with(&[vec![table.found(after)], guards(table, &is), unreferred(table, key_changes)].concat());
            let is_done = format!(
                "SELECT 1 FROM {name} WHERE {}",
                with(&[vec![table.found(before)], guards(table, &was)].concat())
            );
            (
                ChangeKind::Update,
                after,
                format!("UPDATE{} {name} SET {} WHERE {found}", or_abort(table), set.join(", ")),
                is_done,
            )
        }
    };
    let key = key_shown(table, key).to_string();
    Ok(Statement { database: database.to_owned(), table: table.name.clone(), kind, key, sql, is_done })
}

/// A constraint of SQLite's dialect may have a clause of its own, as UNIQUE ON CONFLICT REPLACE, by which the statement would
/// delete another row or do nothing.
fn or_abort(table: &Table) -> &'static str {
    match table.dialect {
        Dialect::Sqlite => " OR ABORT",
        Dialect::Postgres => "",
    }
}

fn fits(table: &Table, columns: usize) -> Result<(), String> {
    match columns == table.columns.len() {
        true => Ok(()),
        false => Err(format!("table {} has other columns now", table.name)),
    }
}

fn with(conditions: &[String]) -> String {
    conditions.join(" AND ")
}

/// That columns have these values; those of the key are left out.
fn guards(table: &Table, values: &[(usize, &Value)]) -> Vec<String> {
    let is_key = |position: usize| match &table.key {
        TableKey::Rowid { alias, .. } => *alias == Some(position),
        TableKey::Columns(positions) => positions.contains(&position),
    };
    let guarded = values.iter().filter(|(position, _)| !is_key(*position));
    guarded.map(|(position, value)| table.has_value(*position, value)).collect()
}

/// That no row refers to this one by a foreign key that would change it.
fn unreferred(table: &Table, which: impl Fn(&Referring) -> bool) -> Vec<String> {
    let (name, alias) = (quote(&table.name), "\"holdfast_referring\"");
    let no = |r: &Referring| {
        let mut same: Vec<String> = r
            .columns
            .iter()
            .map(|(there, here)| format!("{alias}.{} = {name}.{}", quote(there), quote(here)))
            .collect();
        if r.itself {
            let key = table.key_names();
            let own: Vec<String> = key.iter().map(|key| format!("{alias}.{0} = {name}.{0}", quote(key))).collect();
            same.push(format!("NOT ({})", own.join(" AND ")));
        }
        format!("NOT EXISTS (SELECT 1 FROM {} AS {alias} WHERE {})", quote(&r.table), same.join(" AND "))
    };
    table.referring.iter().filter(|r| which(r)).map(no).collect()
}

/// The same statements, with rows inserted after those that they refer to, and deleted before them. Where statements of
/// other kinds stand does not change.
pub fn parents_first(
    statements: Vec<(TableId, Statement)>,
    parents: &dyn Fn(TableId) -> Vec<TableId>,
) -> Vec<Statement> {
    let depth = |table: TableId| depth(table, parents, DEPTH_MAX);
    let of = |kind: ChangeKind| statements.iter().filter(move |(_, s)| s.kind == kind);
    let mut inserts: Vec<&(TableId, Statement)> = of(ChangeKind::Insert).collect();
    inserts.sort_by_key(|(table, _)| depth(*table));
    let mut deletes: Vec<&(TableId, Statement)> = of(ChangeKind::Delete).collect();
    deletes.sort_by_key(|(table, _)| std::cmp::Reverse(depth(*table)));
    let (mut inserts, mut deletes) = (inserts.into_iter(), deletes.into_iter());
    let place = |(_, statement): &(TableId, Statement)| {
        let next = match statement.kind {
            ChangeKind::Insert => inserts.next(),
            ChangeKind::Delete => deletes.next(),
            ChangeKind::Update => None,
        };
        next.map_or_else(|| statement.clone(), |(_, statement)| statement.clone())
    };
    statements.iter().map(place).collect()
}

fn depth(table: TableId, parents: &dyn Fn(TableId) -> Vec<TableId>, left: usize) -> usize {
    if left == 0 {
        return 0;
    }
    parents(table).into_iter().map(|parent| 1 + depth(parent, parents, left - 1)).max().unwrap_or(0)
}
