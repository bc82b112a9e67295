//! Reads the pages that boxcars will change, before these are applied, where a volume's reads are slow.
//!
//! The rows of the boxcars are sorted by table and key, so that a part of a file is read once; a few threads share them, each with
//! a reader's snapshot. Applying runs at the same time and waits for none of them. Rows of a database that does not exist yet,
//! and boxcars that a file has, are left out.
//!
//! Failure: none. What cannot be read is an error when it is applied.

use super::open::open_volume;
use crate::background::redo::fragments_of;
use crate::state::database::DatabaseState;
use crate::state::engine::EngineState;
use crate::state::registry::Registry;
use holdfast_store::schema_map::read_map;
use holdfast_store::touch::{Row, Toucher, rows};
use holdfast_store::volume::VolumeError;
use holdfast_trail::Shipped;
use holdfast_types::record::{Ops, Record, RecordReader};
use holdfast_types::{TxnId, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows for which another thread is worth its connection.
const ROWS_MIN: usize = 256;

/// Reads ahead for these boxcars; returns when everything is read.
pub fn read_ahead<'a>(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    boxcars: impl Iterator<Item = &'a Shipped>,
    threads: usize,
) {
    for (id, mut found) in changed(engine, registry, boxcars) {
        let Some(database) = open(engine, registry, id) else { continue };
        found.sort_by_key(Row::place);
        found.dedup_by(|a, b| a == b);
        let part = found.len().div_ceil(threads.max(1)).max(ROWS_MIN);
        std::thread::scope(|scope| {
            for rows in found.chunks(part) {
                let database = &database;
                scope.spawn(move || {
                    if let Err(error) = touch(database, rows) {
                        tracing::debug!("pages of {} are not read ahead: {error}", database.name);
                    }
                });
            }
        });
    }
}

/// The rows that the boxcars change, by volume.
fn changed<'a>(
    engine: &Arc<EngineState>,
    registry: &Arc<Registry>,
    boxcars: impl Iterator<Item = &'a Shipped>,
) -> BTreeMap<VolumeId, Vec<Row>> {
    let mut found: BTreeMap<VolumeId, Vec<Row>> = BTreeMap::new();
    let mut numbers: BTreeMap<VolumeId, u64> = BTreeMap::new();
    let mut fragments: BTreeMap<(VolumeId, TxnId), Vec<Ops<'_>>> = BTreeMap::new();
    for boxcar in boxcars {
        for record in RecordReader::new(boxcar.body()) {
            match record {
                Ok(Record::Batch(batch)) => {
                    let used: Vec<_> = fragments_of(boxcar.lsn, &batch).flatten().collect();
                    let used = used.into_iter().filter_map(|txn| fragments.remove(&(batch.volume, txn))).flatten();
                    let of_file =
                        || open(engine, registry, batch.volume).map_or(u64::MAX, |d| d.volume().store().visible());
                    if batch.number <= *numbers.entry(batch.volume).or_insert_with(of_file) {
                        continue;
                    }
                    let into = found.entry(batch.volume).or_default();
                    used.for_each(|ops| rows(ops, into));
                    batch.transactions().flatten().for_each(|transaction| rows(transaction.ops, into));
                }
                Ok(Record::Fragment { volume, txn, ops, .. }) => fragments.entry((volume, txn)).or_default().push(ops),
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    // Of transactions that end in later boxcars.
    for ((volume, _), parts) in fragments {
        parts.into_iter().for_each(|ops| rows(ops, found.entry(volume).or_default()));
    }
    found
}

/// The database, opened now if need be.
fn open(engine: &Arc<EngineState>, registry: &Arc<Registry>, id: VolumeId) -> Option<Arc<DatabaseState>> {
    let entry = engine.catalog.lock().manifest.databases.iter().find(|entry| entry.volume() == id).cloned()?;
    let _one_at_a_time = engine.lifecycle.lock();
    open_volume(engine, registry, &entry).ok()
}

fn touch(database: &DatabaseState, rows: &[Row]) -> Result<(), VolumeError> {
    let mut conn = database.volume().open_reader()?;
    let Ok(map) = read_map(&mut conn) else { return Ok(()) };
    // One snapshot for all of them; the connection's end is its end.
    if conn.exec("begin").is_ok() {
        let mut toucher = Toucher::new(&map);
        rows.iter().for_each(|row| toucher.touch(&mut conn, row));
    }
    Ok(())
}
