//! From what a crash left to served databases.
//!
//! The trail is read twice: once to learn each volume's last checkpoint and last boxcar, and once more to redo. A volume
//! whose file has everything is not opened at all.
//!
//! What a volume's file says against what the trail says, checked when it is opened, row by row:
//!
//! | file's number | last checkpoint record | boxcars above the file's number | size and time | then |
//! |---|---|---|---|---|
//! | below the record's | there | any | any | refused: an older file was put in its place (RULE 6) |
//! | any | any | do not begin at number + 1 | any | refused: boxcars are missing |
//! | above every boxcar and the record | any | none | any | refused: the file is ahead of the trail |
//! | the record's | there | none or dense | as recorded | served, after redo |
//! | the record's | there | none or dense | differ | every page's checksum must hold, else refused as a foreign change |
//! | above the record's | any | none or dense | any | served: a checkpoint whose record was lost; it was copied again, or every checksum must hold |
//!
//! Redo applies whole boxcars in order, each exactly once, many to one store transaction; a boxcar at or below the file's
//! number is skipped.

use crate::engine::Shared;
use crate::error::OpenError;
use crate::manifest::{Entry, Manifest};
use holdfast_store::apply::{Applier, ApplyError};
use holdfast_store::schema_map::{PositionWriter, read_map, read_position};
use holdfast_store::sqlite::Conn;
use holdfast_store::volume::{Stamp, Volume, VolumeError};
use holdfast_trail::{Boxcar, Trail, TrailError};
use holdfast_types::record::{Batch, Checkpoint, Op, Record, RecordReader};
use holdfast_types::{Epoch, Hlc, Lsn, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What the trail says.
pub struct Survey {
    pub checkpoints: BTreeMap<VolumeId, (Checkpoint, Lsn)>,
    /// Each volume's last boxcar number in the trail.
    last: BTreeMap<VolumeId, u64>,
    first: Lsn,
    /// The latest clock reading seen.
    pub clock: Hlc,
}

impl Survey {
    /// A volume's last checkpoint record.
    pub fn checkpoint(&self, id: VolumeId) -> Option<Checkpoint> {
        self.checkpoints.get(&id).map(|(c, _)| *c)
    }
}

/// An opened volume and what a crash right now would make redo repeat: number, first LSN, microseconds, bytes.
pub struct Redone {
    pub entry: Entry,
    pub volume: Volume,
    /// The boxcar number its file stood at.
    pub found_at: u64,
    pub debt: Option<(u64, Lsn, u64, u64)>,
}

/// Where boxcars come from: a trail that is open for writing, or one that is only looked at.
pub trait Boxcars {
    /// All boxcars from `from` on.
    fn read_from(&self, from: Lsn) -> Result<impl Iterator<Item = Result<Boxcar, TrailError>>, TrailError>;
}

impl Boxcars for Trail {
    fn read_from(&self, from: Lsn) -> Result<impl Iterator<Item = Result<Boxcar, TrailError>>, TrailError> {
        self.read(from)
    }
}

/// Calls `each` for every record from `from` on.
fn records(
    trail: &impl Boxcars,
    from: Lsn,
    mut each: impl FnMut(Lsn, &Record<'_>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for boxcar in trail.read_from(from)? {
        let boxcar = boxcar?;
        for record in RecordReader::new(&boxcar.body) {
            let record = record.map_err(|source| OpenError::Record { lsn: boxcar.lsn, source })?;
            each(boxcar.lsn, &record)?;
        }
    }
    Ok(())
}

/// The first reading.
pub fn survey(trail: &impl Boxcars, first: Lsn, manifest: &Manifest) -> Result<Survey, OpenError> {
    let known = |id: VolumeId| manifest.databases.iter().any(|e| e.volume() == id);
    let mut s = Survey { checkpoints: BTreeMap::new(), last: BTreeMap::new(), first, clock: Hlc::default() };
    records(trail, first, |lsn, record| {
        match record {
            Record::Checkpoint(c) if known(c.volume) => {
                s.checkpoints.insert(c.volume, (*c, lsn));
            }
            Record::Batch(b) if known(b.volume) => {
                s.last.insert(b.volume, b.number);
                if let Some(Ok(t)) = b.transactions().last() {
                    s.clock = s.clock.max(t.head.hlc);
                }
            }
            // Of a database that was dropped since.
            Record::Batch(b) if b.volume.0 >= manifest.next_id => return Err(OpenError::UnknownVolume(b.volume)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(s)
}

/// The second reading: redoes every volume whose file lacks something.
pub fn redo(
    trail: &impl Boxcars,
    entries: &[Entry],
    found: &Survey,
    open: impl Fn(&Entry) -> Result<Volume, VolumeError>,
) -> Result<Vec<Redone>, OpenError> {
    let mut volumes = BTreeMap::new();
    let mut from = None;
    for entry in entries {
        let id = entry.volume();
        let checkpoint = found.checkpoint(id);
        let Some(&last) = found.last.get(&id) else { continue };
        if checkpoint.is_some_and(|c| c.number >= last) {
            continue;
        }
        let start = checkpoint.map_or(found.first, |c| c.redo_start.max(found.first));
        from = Some(from.map_or(start, |f: Lsn| f.min(start)));
        volumes.insert(id, Redo::begin(open(entry)?, entry, checkpoint, last)?);
    }
    let Some(from) = from else { return Ok(Vec::new()) };
    records(trail, from, |lsn, record| match record {
        Record::Batch(b) => volumes.get_mut(&b.volume).map_or(Ok(()), |r| r.batch(lsn, b)),
        Record::Fragment { volume, txn, ops, .. } => {
            if let Some(r) = volumes.get_mut(volume) {
                r.first = r.first.or(Some(lsn));
                r.applier.add_fragment(*txn, ops.bytes().to_vec());
            }
            Ok(())
        }
        Record::FragmentDrop { volume, txn } => {
            volumes.get_mut(volume).into_iter().for_each(|r| r.applier.drop_fragments(*txn));
            Ok(())
        }
        _ => Ok(()),
    })?;
    volumes.into_values().map(Redo::finish).collect()
}

/// Opens a volume that needs no redo.
pub fn open_clean(shared: &Arc<Shared>, entry: &Entry) -> Result<Redone, OpenError> {
    served_as_it_is(shared.open_volume(entry)?, entry, shared.last_checkpoint(entry.volume()))
}

/// Checks a volume that needs no redo against its last checkpoint record.
pub fn served_as_it_is(volume: Volume, entry: &Entry, checkpoint: Option<Checkpoint>) -> Result<Redone, OpenError> {
    let number = position(&volume, entry)?.0;
    check(&volume, entry, number, checkpoint, None)?;
    Ok(Redone { entry: entry.clone(), volume, found_at: number, debt: None })
}

/// Reads where the file stands and sets the store to it.
fn position(volume: &Volume, entry: &Entry) -> Result<(u64, Epoch), OpenError> {
    let mut conn = volume.open_reader()?;
    let schema = |source| OpenError::Schema { name: entry.name.clone(), source };
    let position = read_position(&mut conn).map_err(schema)?;
    drop(conn);
    if position.volume != entry.volume() {
        let message = format!("its file belongs to volume {}, not {}", position.volume, entry.volume());
        return Err(OpenError::Redo { name: entry.name.clone(), message });
    }
    volume.store().set_position(position.number, volume.store().durable_pages());
    Ok((position.number, position.epoch))
}

/// The table in the module's header, as far as no boxcar has to be read for it.
fn check(
    volume: &Volume,
    entry: &Entry,
    number: u64,
    checkpoint: Option<Checkpoint>,
    last: Option<u64>,
) -> Result<(), OpenError> {
    let recorded = checkpoint.map_or(0, |c| c.number);
    if number < recorded {
        return Err(OpenError::OlderFile { name: entry.name.clone(), found: number, expected: recorded });
    }
    if number > recorded.max(last.unwrap_or(0)) {
        let message =
            format!("its file stands at change {number}, the trail only at {}", recorded.max(last.unwrap_or(0)));
        return Err(OpenError::Redo { name: entry.name.clone(), message });
    }
    let as_recorded = checkpoint.is_some_and(|c| {
        volume.stamp() == Stamp { bytes: c.file_size_bytes, modified_unix_ns: i128::from(c.file_mtime_ns) }
    });
    if !(as_recorded || volume.checkpoint_finished()) {
        tracing::info!(database = entry.name, "size or time of the file are not as recorded: checking every page");
        volume.verify()?;
    }
    Ok(())
}

/// Redo of one volume at work.
struct Redo {
    entry: Entry,
    volume: Volume,
    conn: Conn,
    applier: Applier,
    writer: PositionWriter,
    /// Last boxcar applied or found in the file.
    number: u64,
    found_at: u64,
    epoch: Epoch,
    open_transaction: bool,
    /// Boxcars since the last store commit.
    pending: u32,
    first: Option<Lsn>,
    began: Instant,
    bytes: u64,
    last: u64,
}

/// Boxcars applied in one store transaction.
const BOXCARS_PER_COMMIT: u32 = 1000;

impl Redo {
    fn begin(volume: Volume, entry: &Entry, checkpoint: Option<Checkpoint>, last: u64) -> Result<Redo, OpenError> {
        let (number, epoch) = position(&volume, entry)?;
        check(&volume, entry, number, checkpoint, Some(last))?;
        let mut conn = volume.open_main()?;
        let sqlite = |source| OpenError::Sqlite { name: entry.name.clone(), source };
        let schema = |source| OpenError::Schema { name: entry.name.clone(), source };
        let map = read_map(&mut conn).map_err(schema)?;
        let applier = Applier::begin(&mut conn, Arc::new(map)).map_err(sqlite)?;
        let writer = PositionWriter::prepare(&mut conn).map_err(sqlite)?;
        Ok(Redo {
            entry: entry.clone(),
            volume,
            conn,
            applier,
            writer,
            number,
            found_at: number,
            epoch,
            open_transaction: false,
            pending: 0,
            first: None,
            began: Instant::now(),
            bytes: 0,
            last,
        })
    }

    fn refuse(&self, message: String) -> OpenError {
        OpenError::Redo { name: self.entry.name.clone(), message }
    }

    fn batch(&mut self, lsn: Lsn, batch: &Batch<'_>) -> Result<(), OpenError> {
        if batch.number <= self.number {
            return self.skip(lsn, batch);
        }
        if batch.number != self.number + 1 {
            return Err(self.refuse(format!(
                "the trail goes on with change {} at LSN {lsn}, but the last one applied is {}",
                batch.number, self.number
            )));
        }
        self.first = self.first.or(Some(lsn));
        if !self.open_transaction {
            self.exec("begin immediate")?;
            self.open_transaction = true;
        }
        for transaction in batch.transactions() {
            let transaction = transaction.map_err(|source| OpenError::Record { lsn, source })?;
            self.bytes += transaction.ops.bytes().len() as u64;
            self.applier
                .apply(&mut self.conn, transaction.ops)
                .map_err(|e: ApplyError| self.refuse(format!("change {} at LSN {lsn}: {e}", batch.number)))?;
        }
        self.number = batch.number;
        self.pending += 1;
        if self.pending >= BOXCARS_PER_COMMIT { self.commit() } else { Ok(()) }
    }

    /// The file has this boxcar; fragments it refers to are not needed.
    fn skip(&mut self, lsn: Lsn, batch: &Batch<'_>) -> Result<(), OpenError> {
        for transaction in batch.transactions() {
            let transaction = transaction.map_err(|source| OpenError::Record { lsn, source })?;
            for op in transaction.ops {
                if let Op::Fragments { txn, .. } = op.map_err(|source| OpenError::Record { lsn, source })? {
                    self.applier.drop_fragments(txn);
                }
            }
        }
        Ok(())
    }

    fn exec(&mut self, sql: &str) -> Result<(), OpenError> {
        let name = &self.entry.name;
        self.conn.exec(sql).map_err(|source| OpenError::Sqlite { name: name.clone(), source })
    }

    fn commit(&mut self) -> Result<(), OpenError> {
        if !self.open_transaction {
            return Ok(());
        }
        let name = &self.entry.name;
        self.writer
            .write(&mut self.conn, self.number, self.epoch)
            .map_err(|source| OpenError::Sqlite { name: name.clone(), source })?;
        self.volume.store().set_next(self.number);
        self.exec("commit")?;
        self.volume.store().set_durable(self.number);
        (self.open_transaction, self.pending) = (false, 0);
        Ok(())
    }

    fn finish(mut self) -> Result<Redone, OpenError> {
        self.commit()?;
        if self.number != self.last {
            return Err(self.refuse(format!("redo ended at change {}, the trail has {}", self.number, self.last)));
        }
        let time_us = self.began.elapsed().as_micros() as u64;
        tracing::info!(
            database = self.entry.name,
            number = self.number,
            bytes = self.bytes,
            time_ms = time_us / 1000,
            "redone"
        );
        let Redo { entry, volume, conn, applier, first, number, found_at, bytes, .. } = self;
        // Shadow tables were written as plain tables: this connection must not be used for anything else (RULE 19).
        drop((applier, conn));
        Ok(Redone { entry, volume, found_at, debt: first.map(|lsn| (number, lsn, time_us, bytes)) })
    }
}
