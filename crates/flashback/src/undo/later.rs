//! What later transactions did to the rows of one transaction, and to its tables.
//!
//! A later commit has a later reading of the clock: in one database it never goes back.

use super::net::Effects;
use crate::conflict::Conflict;
use crate::error::FlashbackError;
use crate::events::{Event, Wanted, What, collect_whole, mentions};
use crate::find::key_shown;
use crate::row::Keys;
use crate::source::{Range, Read, Source};
use crate::table::Table;
use holdfast_types::record::{Op, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, VolumeId};
use std::collections::HashMap;

/// A table with the rows of it that matter.
pub struct Rows {
    pub database: String,
    pub table: Table,
    pub keys: Keys,
}

pub type RowsOf = HashMap<(VolumeId, TableId), Rows>;

struct Later<'a> {
    than: Hlc,
    rows: &'a RowsOf,
}

impl Wanted for Later<'_> {
    fn volume(&self, volume: VolumeId) -> bool {
        self.rows.keys().any(|(of, _)| *of == volume)
    }

    fn transaction(&self, head: &TxnHead) -> bool {
        head.hlc > self.than
    }

    fn row(&self, volume: VolumeId, table: TableId, op: &Op<'_>) -> bool {
        self.rows.get(&(volume, table)).is_some_and(|rows| rows.keys.touched_by(op, &rows.table.key))
    }

    fn schema(&self, volume: VolumeId, sql: &str) -> bool {
        reshapes(sql) && self.rows.iter().any(|((of, _), rows)| *of == volume && mentions(sql, &rows.table.name))
    }
}

/// Indexes come and go without a change of rows.
fn reshapes(sql: &str) -> bool {
    let words: Vec<String> = sql.split_whitespace().take(2).map(str::to_ascii_lowercase).collect();
    matches!(words.iter().map(String::as_str).collect::<Vec<_>>()[..], ["alter" | "drop", "table"])
}

/// The later changes of rows that are not as they were left, in order, from a position on. A change that a still later one
/// has taken back, as by an undo, is none.
pub fn later(source: &Source, lsn: Lsn, than: Hlc, rows: &RowsOf) -> Result<(Vec<Conflict>, Read), FlashbackError> {
    let (events, read) = collect_whole(source, Range::from(lsn), &Later { than, rows })?;
    let changed = changed(&events, rows);
    let mut conflicts = Vec::new();
    for event in &events {
        let of = |found: &Rows, key: String, operation| Conflict {
            database: found.database.clone(),
            table: found.table.name.clone(),
            key,
            transaction: event.head.id.0,
            lsn: event.lsn.0,
            unix_ms: event.head.hlc.unix_ms(),
            operation,
        };
        match &event.what {
            What::Row { table, op, .. } => {
                let id = (event.volume, *table);
                let (Some(found), Some(changed)) = (rows.get(&id), changed.get(&id)) else { continue };
                let keys = [op.old_key(&found.table.key), op.new_key(&found.table.key)];
                let Some(key) = keys.into_iter().flatten().find(|key| changed.contains(key)) else { continue };
                conflicts.push(of(found, key_shown(&found.table, &key).to_string(), op.word()));
            }
            What::Schema { sql } => {
                let on = |(id, rows): &(&(VolumeId, TableId), &Rows)| {
                    id.0 == event.volume && mentions(sql, &rows.table.name)
                };
                conflicts.extend(rows.iter().find(on).map(|(_, found)| of(found, String::new(), "schema")));
            }
        }
    }
    conflicts.dedup();
    Ok((conflicts, read))
}

/// The rows on which the later changes together have an effect.
fn changed(events: &[Event], rows: &RowsOf) -> HashMap<(VolumeId, TableId), Keys> {
    let mut effects: HashMap<(VolumeId, TableId), Effects> = HashMap::new();
    for event in events {
        let What::Row { table, op, .. } = &event.what else { continue };
        let id = (event.volume, *table);
        if let Some(found) = rows.get(&id) {
            effects.entry(id).or_default().add(*table, &found.table.key, op);
        }
    }
    let mut changed: HashMap<(VolumeId, TableId), Keys> = HashMap::new();
    for (id, effects) in effects {
        for (_, net) in effects.backwards() {
            net.keys().into_iter().for_each(|key| _ = changed.entry(id).or_default().insert(key));
        }
    }
    changed
}
