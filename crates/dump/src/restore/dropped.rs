//! Finds the transaction that dropped a table, in the archive.
//!
//! Objects are read from the newest back until one has a DROP TABLE of the name; the last one in it counts.
//!
//! Failure: an object of the living history that is damaged or missing ends the search, by name: a later drop may be in it.

use super::chain::{living, read, runtime};
use super::error::RestoreError;
use super::options::RestoreOptions;
use super::{matching_dumps, open_archive};
use crate::error::DumpError;
use crate::identifier::dropped_table;
use crate::repository::Repository;
use holdfast_archive::{ArchiveError, Segment};
use holdfast_engine::Manifest as DatabaseList;
use holdfast_trail::TrailId;
use holdfast_types::record::{DecodeError, Op, Record, RecordReader};
use holdfast_types::{Lsn, VolumeId};
use serde::Serialize;

/// A transaction that dropped a table.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct DroppedBy {
    pub transaction: u64,
    pub lsn: u64,
    pub unix_ms: u64,
}

/// The last transaction in the archive that dropped a table of this name in this database.
pub fn find_drop(
    repository: &Repository,
    options: &RestoreOptions<'_>,
    database: &str,
    table: &str,
) -> Result<DroppedBy, DumpError> {
    let dumps = matching_dumps(repository, options)?.readable;
    let newest = dumps.last().map(|(_, head)| head);
    let Some(store) = open_archive(repository, options, newest)? else {
        return Err(RestoreError::NoArchiveForDrop.into());
    };
    let mut volumes = Vec::new();
    for (_, head) in &dumps {
        let list = DatabaseList::parse(&head.plan.manifest).map_err(RestoreError::Settings)?;
        volumes.extend(list.databases.iter().filter(|entry| entry.name == database).map(|entry| VolumeId(entry.id)));
    }
    if volumes.is_empty() {
        let (place, database, table) = (repository.place().to_owned(), database.to_owned(), table.to_owned());
        return Err(RestoreError::NewDatabase { place, database, table }.into());
    }
    let trail = newest.map_or([0; 16], |head| head.plan.trail_id);
    let runtime = runtime()?;
    let (objects, ended_by) = living(&runtime, &*store, TrailId(trail), options.threads)?;
    for object in objects {
        let name = object.name();
        let segment = read(&runtime, &*store, name)?;
        let found = last_drop(&segment, &volumes, table);
        let damaged = |what: String| DumpError::Archive(ArchiveError::Damaged { name: name.to_string(), what });
        if let Some(dropped) = found.map_err(damaged)? {
            return Ok(dropped);
        }
    }
    if let Some(error) = ended_by {
        return Err(error);
    }
    let (place, database, table) = (store.place().to_owned(), database.to_owned(), table.to_owned());
    Err(RestoreError::NoDrop { place, database, table }.into())
}

fn last_drop(segment: &Segment, volumes: &[VolumeId], table: &str) -> Result<Option<DroppedBy>, String> {
    let mut found = None;
    for boxcar in segment.boxcars_from(Lsn(0)) {
        let boxcar = boxcar?;
        for record in RecordReader::new(boxcar.body()) {
            let Record::Batch(batch) = record.map_err(|e| e.to_string())? else { continue };
            if !volumes.contains(&batch.volume) {
                continue;
            }
            for transaction in batch.transactions() {
                let transaction = transaction.map_err(|e| e.to_string())?;
                if drops(transaction.ops, table).map_err(|e| e.to_string())? {
                    let head = transaction.head;
                    found = Some(DroppedBy { transaction: head.id.0, lsn: boxcar.lsn.0, unix_ms: head.hlc.unix_ms() });
                }
            }
        }
    }
    Ok(found)
}

fn drops(ops: holdfast_types::record::Ops<'_>, table: &str) -> Result<bool, DecodeError> {
    for op in ops {
        if let Op::Ddl(ddl) = op?
            && dropped_table(ddl.text).is_some_and(|dropped| dropped.eq_ignore_ascii_case(table))
        {
            return Ok(true);
        }
    }
    Ok(false)
}
