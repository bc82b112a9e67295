//! Schema changes. They run the same way in the writer, on a branch and in redo: the statement's text runs, then the table
//! map is reconciled.
//!
//! In the writer the text is recorded in order with the images, together with the SQLite version and a hash of the resulting
//! schema; redo compares the hash. Images of the rows that the statement itself writes are muted. A branch records the
//! same, except the AUTOINCREMENT counters, which only the writer records.
//!
//! CREATE TABLE AS must not run a second time, because its query would find other rows. It is recorded as the CREATE
//! TABLE that SQLite has made of it, followed by the rows as images (RULE 8).
//!
//! A redefinition ([`holdfast_types::definition::redefinition`]) is a schema change that SQLite does not have.
//!
//! Failure: the caller rolls back to its savepoint, truncates the capture, and sets the capture's old map again if an
//! earlier schema change of the same savepoint had replaced it.

use crate::capture::Mute;
use crate::schema_map::{RowKey, SchemaError, TableInfo, TableMap, begin_ddl, end_ddl};
use crate::sequences::{flush_sequences, sequences_follow_ddl};
use crate::sqlite::{Conn, SqliteError, sqlite_version};
use holdfast_types::definition::redefinition::Redefinition;
use holdfast_types::quoting::quote;
use holdfast_types::record::{Ddl, op, put_cell};
use holdfast_types::{Value, ValueRef};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Runs one schema change on a capturing connection and records it. The capture gets the new map, which is also
/// returned.
pub fn execute_ddl(conn: &mut Conn, text: &str) -> Result<Arc<TableMap>, SchemaError> {
    flush_sequences(conn)?;
    let before = Arc::clone(conn.capture().map());
    let map = change_muted(conn, text)?;
    sequences_follow_ddl(conn)?;
    record(conn, text, &before, &map)?;
    Ok(map)
}

/// Runs and records one schema change on a branch, without the AUTOINCREMENT counters.
pub fn execute_ddl_on_branch(conn: &mut Conn, text: &str) -> Result<Arc<TableMap>, SchemaError> {
    let before = Arc::clone(conn.capture().map());
    let map = change_muted(conn, text)?;
    record(conn, text, &before, &map)?;
    Ok(map)
}

fn change_muted(conn: &mut Conn, text: &str) -> Result<Arc<TableMap>, SchemaError> {
    conn.capture().set_mute(Mute::Ddl);
    let changed = change_schema(conn, text);
    conn.capture().set_mute(Mute::Nothing);
    let map = Arc::new(changed?);
    conn.capture().set_map(Arc::clone(&map));
    Ok(map)
}

fn record(conn: &mut Conn, text: &str, before: &TableMap, map: &TableMap) -> Result<(), SchemaError> {
    let schema_hash = schema_hash(conn)?;
    let made = made_from_a_query(conn, text, before, map)?;
    let stored = made.as_ref().map_or(text, |(_, stored)| stored);
    let ddl = Ddl { text: stored, epoch_after: map.epoch, sqlite_version: sqlite_version(), schema_hash };
    conn.capture().append(|buf| op::put_ddl(buf, &ddl));
    match made {
        Some((table, _)) => record_rows(conn, table),
        None => Ok(()),
    }
}

/// The table that CREATE TABLE AS has made, and the CREATE TABLE text that SQLite stores for it, which is not part of
/// the statement's own text.
fn made_from_a_query<'m>(
    conn: &mut Conn,
    text: &str,
    before: &TableMap,
    map: &'m TableMap,
) -> Result<Option<(&'m TableInfo, String)>, SchemaError> {
    let mut made = map.tables().iter().filter(|t| before.by_id(t.id).is_none());
    let (Some(table), None) = (made.next(), made.next()) else { return Ok(None) };
    let name = table.name.replace('\'', "''");
    let stored =
        conn.query_value(&format!("SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = '{name}'"))?;
    let Value::Text(stored) = stored else { return Ok(None) };
    let definition = stored.strip_prefix("CREATE TABLE ").unwrap_or(&stored);
    let is_from_the_text = text.contains(definition) || stored.starts_with("CREATE VIRTUAL");
    Ok((!is_from_the_text).then_some((table, stored)))
}

/// Records the rows of a new table as inserts.
fn record_rows(conn: &mut Conn, table: &TableInfo) -> Result<(), SchemaError> {
    let RowKey::Rowid { name: rowid, .. } = &table.key else { return Ok(()) };
    let columns: Vec<String> = table.columns.iter().map(|c| quote(&c.name)).collect();
    let sql = format!("SELECT {rowid}, {} FROM main.{}", columns.join(", "), quote(&table.name));
    let query = conn.prepare(&sql)?;
    let recorded = loop {
        match conn.step(query) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(e) => break Err(e.into()),
        }
        let values: Vec<Value> = (0..=columns.len()).map(|i| conn.column(query, i).to_value()).collect();
        let [Value::Int(rowid), cells @ ..] = values.as_slice() else { continue };
        conn.capture().append(|buf| {
            op::put_insert(buf, table.id, Some(*rowid), cells.len());
            cells.iter().for_each(|cell| put_cell(buf, cell.as_ref()));
        });
    };
    conn.finalize(query);
    recorded
}

/// Runs one schema change and reconciles the table ids.
pub(crate) fn change_schema(conn: &mut Conn, text: &str) -> Result<TableMap, SchemaError> {
    let before = begin_ddl(conn)?;
    match Redefinition::of(text) {
        Some(redefinition) => redefine(conn, &redefinition)?,
        None => run_once(conn, text, &[])?,
    }
    end_ddl(conn, &before)
}

fn run_once(conn: &mut Conn, sql: &str, params: &[String]) -> Result<(), SqliteError> {
    let statement = conn.prepare(sql)?;
    let params: Vec<ValueRef<'_>> = params.iter().map(|p| ValueRef::Text(p.as_bytes())).collect();
    let run = conn.run_with(statement, &params);
    conn.finalize(statement);
    run
}

/// Replaces the texts of a table and its indexes. SQLite reads the schema again under the new version, so an error in
/// the texts shows here; rolling back brings the old schema back.
fn redefine(conn: &mut Conn, redefinition: &Redefinition) -> Result<(), SchemaError> {
    let name = redefinition.table.replace('\'', "''");
    let stored = format!("SELECT sql FROM main.sqlite_schema WHERE type = 'table' AND name = '{name}'");
    match conn.query_value(&stored)? {
        Value::Text(stored) if redefinition.keeps_columns(&stored) => {}
        _ => return Err(SchemaError::Redefinition(redefinition.table.clone())),
    }
    if let Some(column) = redefinition.rewritten_column().map(|column| quote(&column)) {
        run_once(conn, &format!("UPDATE main.{} SET {column} = {column}", quote(&redefinition.table)), &[])?;
    }
    let Value::Int(version) = conn.query_value("PRAGMA main.schema_version")? else {
        return Err(SchemaError::Redefinition(redefinition.table.clone()));
    };
    conn.exec("PRAGMA writable_schema = ON")?;
    let written = redefinition.updates().iter().try_for_each(|(sql, params)| run_once(conn, sql, params));
    let written = written.and_then(|()| conn.exec(&format!("PRAGMA main.schema_version = {}", version + 1)));
    conn.exec("PRAGMA writable_schema = OFF")?;
    written?;
    conn.query_value("SELECT count(*) FROM main.sqlite_schema")?;
    Ok(())
}

/// Hashes every object's type, name and text. Page numbers and the order of creation do not count.
pub fn schema_hash(conn: &mut Conn) -> Result<u64, SqliteError> {
    let sql = "SELECT type, name, tbl_name, sql FROM main.sqlite_schema ORDER BY type, name";
    let mut hash = Xxh3::new();
    for value in conn.query_rows(sql)?.iter().flatten() {
        if let Value::Text(text) = value {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        } else {
            hash.update(&u64::MAX.to_le_bytes());
        }
    }
    Ok(hash.digest())
}
