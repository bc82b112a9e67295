//! What later transactions did to the rows of one transaction, and to its tables.
//!
//! What is later is decided by the place in the trail, not by the clock.

use super::net::Effects;
use super::nets::Nets;
use crate::by::By;
use crate::conflict::Conflict;
use crate::error::FlashbackError;
use crate::events::{Behind, Event, Wanted, What, collect_whole};
use crate::find::key_shown;
use crate::row::Keys;
use crate::schema_text::reshapes;
use crate::source::{Range, Read, Source};
use crate::table::Table;
use holdfast_types::record::{Op, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, VolumeId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// A table with the rows of it that matter.
pub struct Rows {
    pub database: String,
    pub table: Table,
    pub keys: Keys,
}

pub type RowsOf = HashMap<(VolumeId, TableId), Rows>;

struct Later<'a> {
    than: &'a Behind,
    rows: &'a RowsOf,
    epochs: Mutex<Epochs>,
}

/// The number of the schema of each database where the reading ended.
pub type Epochs = BTreeMap<VolumeId, u32>;

impl<'a> Later<'a> {
    fn new(than: &'a Behind, rows: &'a RowsOf) -> Later<'a> {
        Later { than, rows, epochs: Mutex::default() }
    }
}

impl Wanted for Later<'_> {
    fn volume(&self, volume: VolumeId) -> bool {
        self.rows.keys().any(|(of, _)| *of == volume)
    }

    fn transaction(&self, lsn: Lsn, head: &TxnHead) -> bool {
        self.than.has(lsn, head.id)
    }

    fn schema_epoch(&self, volume: VolumeId, epoch: u32) {
        let mut epochs = self.epochs.lock();
        let newest = epochs.entry(volume).or_default();
        *newest = epoch.max(*newest);
    }

    fn row(&self, volume: VolumeId, table: TableId, op: &Op<'_>) -> bool {
        self.rows.get(&(volume, table)).is_some_and(|rows| rows.keys.touched_by(op, &rows.table.key))
    }

    fn schema(&self, volume: VolumeId, sql: &str) -> bool {
        self.rows.iter().any(|((of, _), rows)| *of == volume && reshapes(sql, &rows.table.name))
    }
}

/// The later changes of rows that are not as they were left, in order, from a position on. A change that a still later one
/// has taken back, as by an undo, is none. And the numbers of the schemas at the end.
pub fn later(source: &Source, than: &Behind, rows: &RowsOf) -> Result<(Vec<Conflict>, Read, Epochs), FlashbackError> {
    let wanted = Later::new(than, rows);
    let (events, read) = collect_whole(source, Range::from(than.lsn), &wanted)?;
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
            by: By::of(event.author.as_deref()),
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
                    id.0 == event.volume && reshapes(sql, &rows.table.name)
                };
                conflicts.extend(rows.iter().find(on).map(|(_, found)| of(found, String::new(), "schema")));
            }
        }
    }
    conflicts.dedup();
    Ok((conflicts, read, wanted.epochs.into_inner()))
}

/// The first later commit whose net effects on these rows are the wanted ones: its number and its position.
pub fn commit_of(
    source: &Source,
    lsn: Lsn,
    than: &Behind,
    rows: &RowsOf,
    is_wanted: &dyn Fn(&Nets) -> bool,
) -> Result<Option<(u64, u64)>, FlashbackError> {
    let (events, _) = collect_whole(source, Range::from(lsn), &Later::new(than, rows))?;
    let mut commits: BTreeMap<(Lsn, Hlc), (u64, HashMap<VolumeId, Effects>)> = BTreeMap::new();
    for event in &events {
        let What::Row { table, op, .. } = &event.what else { continue };
        let Some(found) = rows.get(&(event.volume, *table)) else { continue };
        let commit = commits.entry((event.lsn, event.head.hlc)).or_default();
        commit.0 = event.head.id.0;
        commit.1.entry(event.volume).or_default().add(*table, &found.table.key, op);
    }
    let wanted = commits.into_iter().find_map(|((lsn, _), (transaction, effects))| {
        let mut nets = Nets::default();
        effects.into_iter().for_each(|(volume, effects)| nets.add(volume, effects));
        is_wanted(&nets).then_some((transaction, lsn.0))
    });
    Ok(wanted)
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
