//! Schema changes, run the same way on MAIN, on a branch and in redo: the statement's text, then the table map
//! reconciled.
//!
//! On MAIN the text is recorded, in its place among the images, with the SQLite version and a hash of the resulting
//! schema; redo compares the hash. Images of the rows that the statement itself writes are muted. A branch records the
//! same, without the AUTOINCREMENT counters, which are MAIN's to tell.
//!
//! Failure: the caller rolls back to its savepoint, truncates the capture, and gives the capture back the old map if
//! an earlier schema change of the same savepoint had replaced it.

use crate::capture::Mute;
use crate::schema_map::{SchemaError, TableMap, begin_ddl, end_ddl};
use crate::sequences::{flush_sequences, sequences_follow_ddl};
use crate::sqlite::{Conn, SqliteError, sqlite_version};
use holdfast_types::Value;
use holdfast_types::record::{Ddl, op};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Runs one schema change on a capturing connection, records it, and gives the capture the new map, which is returned.
pub fn execute_ddl(conn: &mut Conn, text: &str) -> Result<Arc<TableMap>, SchemaError> {
    flush_sequences(conn)?;
    let map = change_muted(conn, text)?;
    sequences_follow_ddl(conn)?;
    record(conn, text, &map)?;
    Ok(map)
}

/// The same on a branch.
pub fn execute_ddl_on_branch(conn: &mut Conn, text: &str) -> Result<Arc<TableMap>, SchemaError> {
    let map = change_muted(conn, text)?;
    record(conn, text, &map)?;
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

fn record(conn: &mut Conn, text: &str, map: &TableMap) -> Result<(), SchemaError> {
    let schema_hash = schema_hash(conn)?;
    let ddl = Ddl { text, epoch_after: map.epoch, sqlite_version: sqlite_version(), schema_hash };
    conn.capture().append(|buf| op::put_ddl(buf, &ddl));
    Ok(())
}

/// Runs one schema change and reconciles the table ids.
pub(crate) fn change_schema(conn: &mut Conn, text: &str) -> Result<TableMap, SchemaError> {
    let before = begin_ddl(conn)?;
    let statement = conn.prepare(text)?;
    let run = conn.run(statement);
    conn.finalize(statement);
    run?;
    end_ddl(conn, &before)
}

/// A hash of every object's type, name and text; neither page numbers nor the order of creation count.
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
