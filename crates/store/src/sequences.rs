//! AUTOINCREMENT counters. SQLite keeps them in `sqlite_sequence` and does not report its own writes there, not even
//! those of an INSERT OR IGNORE that adds no row. Therefore the table, one short row for each AUTOINCREMENT table, is
//! compared with what the trail holds, once per batch and before every schema change.
//!
//! | difference | operation |
//! |---|---|
//! | a counter of a known table moved or is new | its new value |
//! | a row is gone, or has a name that is not a table's, or the last state is not known (start, rollback) | all rows |
//! | none | nothing |

use crate::schema_map::TableMap;
use crate::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::record::op;
use holdfast_types::{TableId, Value, ValueRef};
use std::sync::Arc;

/// A row of `sqlite_sequence`. Neither column is constrained.
#[derive(Clone, Debug, PartialEq)]
struct Counter {
    rowid: i64,
    name: Value,
    value: Value,
}

/// What the trail knows of the counters.
#[derive(Debug, Default)]
pub(crate) struct SequenceState {
    /// `None` when not known.
    recorded: Option<Vec<Counter>>,
    /// Raised whenever `recorded` changes.
    generation: u64,
    query: Option<StmtId>,
}

impl SequenceState {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// To be called when operations after this generation were rolled back.
    pub(crate) fn back_to(&mut self, generation: u64) {
        if generation != self.generation {
            self.forget();
        }
    }

    pub(crate) fn forget(&mut self) {
        self.generation += 1;
        self.recorded = None;
    }

    fn set(&mut self, recorded: Vec<Counter>) {
        self.generation += 1;
        self.recorded = Some(recorded);
    }
}

/// Appends the counters that moved to the connection's capture. Must be called within the transaction, at the end of
/// every batch that has operations or may have moved a counter.
pub fn flush_sequences(conn: &mut Conn) -> Result<(), SqliteError> {
    let map = Arc::clone(conn.capture().map());
    if !map.has_sequences {
        return Ok(());
    }
    let now = read(conn)?;
    let capture = conn.capture();
    if capture.sequences.recorded.as_ref() == Some(&now) {
        return Ok(());
    }
    match capture.sequences.recorded.as_ref().and_then(|recorded| moved(recorded, &now, &map)) {
        Some(moved) => {
            for (table, counter) in moved {
                let value = counter.value.as_ref();
                capture.append(|buf| op::put_sequence(buf, table, counter.rowid, value));
            }
        }
        None => {
            let rows = now.iter().map(|c| (c.rowid, c.name.as_ref(), c.value.as_ref()));
            capture.append(|buf| op::put_all_sequences(buf, rows));
        }
    }
    capture.sequences.set(now);
    Ok(())
}

/// Takes the counters as a schema change left them for recorded: in redo, its text moves them the same way.
pub(crate) fn sequences_follow_ddl(conn: &mut Conn) -> Result<(), SqliteError> {
    let now = if conn.capture().map().has_sequences { read(conn)? } else { Vec::new() };
    conn.capture().sequences.set(now);
    Ok(())
}

/// The rows of `now` that are not in `recorded`; `None` when recording these alone would not be enough.
fn moved<'n>(recorded: &[Counter], now: &'n [Counter], map: &TableMap) -> Option<Vec<(TableId, &'n Counter)>> {
    let gone = |old: &Counter| !now.iter().any(|new| new.rowid == old.rowid && new.name == old.name);
    if recorded.iter().any(gone) {
        return None;
    }
    let table = |name: &Value| match name {
        Value::Text(name) => map.by_name(name.as_bytes()).map(|table| table.id),
        _ => None,
    };
    let new = now.iter().filter(|counter| !recorded.contains(counter));
    new.map(|counter| Some((table(&counter.name)?, counter))).collect()
}

fn read(conn: &mut Conn) -> Result<Vec<Counter>, SqliteError> {
    let query = match conn.capture().sequences.query {
        Some(query) => query,
        None => {
            let query = conn.prepare("SELECT rowid, name, seq FROM main.sqlite_sequence ORDER BY rowid")?;
            *conn.capture().sequences.query.insert(query)
        }
    };
    let mut counters = Vec::new();
    let result = loop {
        match conn.step(query) {
            Ok(true) => counters.push(Counter {
                rowid: if let ValueRef::Int(rowid) = conn.column(query, 0) { rowid } else { 0 },
                name: conn.column(query, 1).to_value(),
                value: conn.column(query, 2).to_value(),
            }),
            Ok(false) => break Ok(counters),
            Err(error) => break Err(error),
        }
    };
    conn.reset(query);
    result
}
