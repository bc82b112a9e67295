//! `holdfast trail dump`: the contents of the trail, for people and programs.
//!
//! Reads without opening: takes no lock and changes nothing. Tables and columns are called as the volumes' files call
//! them now; where a file cannot be read, or its schema has changed since, they have their numbers.
//!
//! Failure: a boxcar or record that cannot be read is shown as such, in its place; the dump goes on behind it where it
//! can.

mod names;
mod shown;
mod sql;
mod text;

pub use shown::{Cells, Change, Item, OpItem, RecordItem, TxnItem, Val};
pub use sql::{Script, literal};

use crate::state::error::OpenError;
use crate::state::manifest::Manifest;
use crate::state::options::Options;
use holdfast_trail::{Boxcar, BoxcarKind, Dump, DumpItem};
use holdfast_types::record::RecordReader;
use holdfast_types::{Lsn, VolumeId};
use names::Names;
use std::path::Path;

/// What to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Boxcars at or behind this position.
    pub from: Option<Lsn>,
    /// Records of this volume, and boxcars that have some.
    pub volume: Option<VolumeId>,
}

/// Hands everything in the trail of a data directory to `each`, in order, until that says false.
pub fn dump(
    dir: &Path,
    options: &Options,
    filter: Filter,
    mut each: impl FnMut(&Item) -> bool,
) -> Result<(), OpenError> {
    let disk = &*options.disk;
    let listed = Manifest::read(disk, dir)?;
    if listed.is_none() && !dir.join("trail/control").is_file() {
        return Err(OpenError::NotADirectory { dir: dir.display().to_string() });
    }
    let manifest = listed.unwrap_or_else(Manifest::empty);
    let names = Names::read(dir, options, &manifest);
    for item in Dump::open(disk, &dir.join("trail"))? {
        if let Some(item) = show(item?, filter, &names)
            && !each(&item)
        {
            break;
        }
    }
    Ok(())
}

fn show(item: DumpItem, filter: Filter, names: &Names) -> Option<Item> {
    match item {
        DumpItem::Segment { path, segment, epoch, recycled } => {
            let shown = filter.from.is_none() && filter.volume.is_none();
            let file = path.display().to_string();
            shown.then_some(Item::Segment { file, segment, epoch: epoch.map(|e| e.0), recycled })
        }
        DumpItem::Stop { path, offset, lsn, flaw } => {
            let file = path.display().to_string();
            Some(Item::Stop { file, offset, lsn: lsn.0, reason: flaw.to_string() })
        }
        DumpItem::Boxcar(boxcar) => show_boxcar(&boxcar, filter, names),
    }
}

fn show_boxcar(boxcar: &Boxcar, filter: Filter, names: &Names) -> Option<Item> {
    if filter.from.is_some_and(|from| boxcar.lsn < from) {
        return None;
    }
    let records: Vec<RecordItem> = RecordReader::new(&boxcar.body)
        .filter(|record| match (filter.volume, record) {
            (Some(volume), Ok(record)) => shown::volume_of(record) == volume,
            _ => true,
        })
        .map(|record| shown::record(record, names))
        .collect();
    if filter.volume.is_some() && records.is_empty() {
        return None;
    }
    Some(Item::Boxcar {
        lsn: boxcar.lsn.0,
        end: boxcar.end.0,
        kind: match boxcar.kind {
            BoxcarKind::Data => "data",
            BoxcarKind::Proof => "proof",
            BoxcarKind::SegmentEnd => "segment_end",
        },
        epoch: boxcar.epoch.0,
        incarnation: boxcar.incarnation,
        proven: boxcar.proven.0,
        written_unix_ms: boxcar.written_unix_ms,
        checksum: boxcar.checksum,
        records,
    })
}
