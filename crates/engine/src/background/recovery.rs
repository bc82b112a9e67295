//! From what a crash left to served databases.
//!
//! The trail is read twice: once to learn each volume's last checkpoint and last batch, and again to redo. A volume
//! whose file has everything is not opened at all.
//!
//! What a volume's file says against what the trail says, checked when it is opened, row by row:
//!
//! | file's number | last checkpoint record | batches above the file's number | size and time | then |
//! |---|---|---|---|---|
//! | below the record's | there | any | any | refused: an older file was put in its place (RULE 6) |
//! | any | any | do not begin at number + 1 | any | refused: batches are missing |
//! | above every batch and the record | any | none | any | refused: the file is ahead of the trail |
//! | the record's | there | none or dense | as recorded | served, after redo |
//! | the record's | there | none or dense | differ | every page's checksum must hold, else refused as a foreign change |
//! | above the record's | any | none or dense | any | served: a checkpoint whose record was lost; it was copied again, or every checksum must hold |
//!
//! A standby's own checkpoints are noted in a file of its own ([`crate::state::checkpoint_file`]); the records in its trail are its master's.
//! It redoes nothing here: its thread of applying begins where redo would.

use crate::background::checkpointer;
use crate::background::redo::{Done, Redo, fragments_of};
use crate::state::checkpoint_file::CheckpointFile;
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::follow::LastBatch;
use crate::state::fragments::is_dead;
use crate::state::manifest::{Entry, Manifest, ParameterOwner, Parameters, owned};
use crate::state::registry::Registry;
use holdfast_store::schema_map::read_position;
use holdfast_store::volume::{Stamp, Volume, VolumeError, stamp_of};
use holdfast_trail::{Boxcar, Trail, TrailError};
use holdfast_types::access::{DatabaseAccess, Role};
use holdfast_types::record::{Batch, Checkpoint, DecodeError, Record, RecordReader};
use holdfast_types::{Epoch, Hlc, Lsn, TxnId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// What the trail and the file `checkpoints` contain.
pub struct Survey {
    /// Each volume's last checkpoint and where its record is; one of the file holds nothing of the trail, so its
    /// place is behind everything.
    pub checkpoints: BTreeMap<VolumeId, (Checkpoint, Lsn)>,
    /// Each volume's last batch in the trail.
    pub last: BTreeMap<VolumeId, LastBatch>,
    first: Lsn,
    /// Where the last boxcar of any kind starts.
    pub last_boxcar: Lsn,
    /// Where the fragments of unfinished transactions begin.
    fragments: BTreeMap<(VolumeId, TxnId), Lsn>,
    /// Volumes that the trail has an end of, and where that is.
    ended: BTreeMap<VolumeId, Lsn>,
    /// Those of them that the list of databases still contains.
    pub dropped: BTreeSet<VolumeId>,
    /// Volumes whose beginning is in the trail, but neither an end nor an entry in the list of databases.
    pub unlisted: BTreeSet<VolumeId>,
    /// Parameters, as last set.
    pub parameters: BTreeMap<ParameterOwner, Parameters>,
    /// Roles as last set, or `None` if last dropped.
    pub roles: BTreeMap<u32, Option<Role>>,
    /// Owners and grants of databases, as last set.
    pub access: BTreeMap<VolumeId, DatabaseAccess>,
    /// Where the last boxcar ends that changes the list of databases; 0: none does.
    pub list_end: Lsn,
    /// The latest clock reading seen.
    pub clock: Hlc,
    /// When the newest boxcar of any kind was written.
    pub written_unix_ms: u64,
}

/// The place of a checkpoint that is noted in the file.
const NOT_IN_THE_TRAIL: Lsn = Lsn(u64::MAX);

impl Survey {
    fn new(first: Lsn, local: Option<&CheckpointFile>) -> Survey {
        let listed = local.into_iter().flat_map(|local| &local.volumes);
        Survey {
            checkpoints: listed.map(|(id, v)| (*id, (v.checkpoint, NOT_IN_THE_TRAIL))).collect(),
            last: BTreeMap::new(),
            first,
            last_boxcar: first,
            fragments: BTreeMap::new(),
            ended: BTreeMap::new(),
            dropped: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            parameters: BTreeMap::new(),
            roles: BTreeMap::new(),
            access: BTreeMap::new(),
            list_end: Lsn(0),
            clock: Hlc::default(),
            written_unix_ms: 0,
        }
    }

    /// A volume's last checkpoint record.
    pub fn checkpoint(&self, id: VolumeId) -> Option<Checkpoint> {
        self.checkpoints.get(&id).map(|(c, _)| *c)
    }

    /// Where redo of a volume starts.
    fn start(&self, id: VolumeId) -> Lsn {
        self.checkpoint(id).map_or(self.first, |c| c.redo_start.max(self.first))
    }

    /// Where a standby begins to apply to a volume; `None`: behind what it has, because the file lacks nothing.
    pub fn start_to_follow(&self, id: VolumeId) -> Option<Lsn> {
        let lacks = self.last.get(&id).is_some_and(|last| self.checkpoint(id).is_none_or(|c| c.number < last.number));
        let open = self.fragments.keys().any(|(volume, _)| *volume == id);
        (lacks || open).then(|| self.start(id))
    }

    /// Volumes whose end is in the trail for good: what comes behind it followed it at the master.
    pub fn ended(&self) -> BTreeSet<VolumeId> {
        self.ended.iter().filter(|(_, lsn)| **lsn < self.last_boxcar).map(|(id, _)| *id).collect()
    }

    /// Notes what a record says about the list of databases. Each one holds all of what it is about.
    fn listed(&mut self, record: &Record<'_>) -> Result<(), DecodeError> {
        match record {
            Record::Parameters { of, pairs } => _ = self.parameters.insert((*of).into(), owned(*pairs)),
            Record::Role(body) => {
                let role = body.role()?;
                // It has taken over what an older program stored for its name.
                self.parameters.remove(&ParameterOwner::Role(role.name.clone()));
                self.roles.insert(role.oid, Some(role));
            }
            Record::RoleDrop { oid } => _ = self.roles.insert(*oid, None),
            Record::DatabaseAccess { volume, access } => _ = self.access.insert(*volume, access.access()?),
            _ => {}
        }
        Ok(())
    }

    fn batch(&mut self, boxcar: &Boxcar, b: &Batch<'_>) -> Result<(), OpenError> {
        let lsn = boxcar.lsn;
        self.last.insert(b.volume, LastBatch { number: b.number, start: lsn, end: boxcar.end });
        if let Some(Ok(t)) = b.transactions().last() {
            self.clock = self.clock.max(t.head.hlc);
        }
        if self.fragments.keys().any(|(volume, _)| *volume == b.volume) {
            for txn in fragments_of(lsn, b) {
                self.fragments.remove(&(b.volume, txn?));
            }
        }
        Ok(())
    }
}

/// An opened volume and what a crash right now would make redo repeat: number, first LSN, microseconds, bytes.
pub struct Redone {
    pub entry: Entry,
    pub volume: Arc<Volume>,
    /// The batch number of its file.
    pub found_at: u64,
    pub debt: Option<(u64, Lsn, u64, u64)>,
}

/// The source of boxcars: a trail that is open for writing, or one that is only read.
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
pub fn records(
    trail: &impl Boxcars,
    from: Lsn,
    mut each: impl FnMut(&Boxcar, &Record<'_>) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    for boxcar in trail.read_from(from)? {
        let boxcar = boxcar?;
        for record in RecordReader::new(&boxcar.body) {
            let record = record.map_err(|source| OpenError::Record { lsn: boxcar.lsn, source })?;
            each(&boxcar, &record)?;
        }
    }
    Ok(())
}

/// The first reading. `local` is the file `checkpoints`, if there is one.
pub fn survey(
    trail: &impl Boxcars,
    first: Lsn,
    manifest: &Manifest,
    local: Option<&CheckpointFile>,
) -> Result<Survey, OpenError> {
    let known = |id: VolumeId| manifest.databases.iter().any(|e| e.volume() == id);
    // A standby's list of databases may be behind its trail.
    let standby = local.is_some_and(CheckpointFile::is_standby);
    let own_from = local.map_or(Some(Lsn(0)), |local| local.own_from);
    let mut s = Survey::new(first, local);
    for boxcar in trail.read_from(first)? {
        let boxcar = boxcar?;
        let lsn = boxcar.lsn;
        s.last_boxcar = lsn;
        s.written_unix_ms = s.written_unix_ms.max(boxcar.written_unix_ms);
        s.fragments.retain(|(_, txn), _| !is_dead(*txn, boxcar.epoch));
        for record in RecordReader::new(&boxcar.body) {
            let record = record.map_err(|source| OpenError::Record { lsn, source })?;
            if let Record::VolumeDrop { volume } = record {
                s.ended.insert(volume, lsn);
            }
            if changes_list(&record) {
                s.list_end = boxcar.end;
            }
            match record {
                Record::Checkpoint(c) if known(c.volume) && own_from.is_some_and(|from| lsn >= from) => {
                    s.checkpoints.insert(c.volume, (c, lsn));
                }
                Record::Batch(b) if standby || known(b.volume) => s.batch(&boxcar, &b)?,
                // Of a database that was dropped later.
                Record::Batch(b) if b.volume.0 >= manifest.next_id => return Err(OpenError::UnknownVolume(b.volume)),
                Record::Fragment { volume, txn, .. } => _ = s.fragments.entry((volume, txn)).or_insert(lsn),
                Record::FragmentDrop { volume, txn } => _ = s.fragments.remove(&(volume, txn)),
                Record::VolumeCreate { volume, .. } if !known(volume) => _ = s.unlisted.insert(volume),
                Record::VolumeDrop { volume } if known(volume) => _ = s.dropped.insert(volume),
                Record::VolumeDrop { volume } => _ = s.unlisted.remove(&volume),
                Record::Parameters { .. }
                | Record::Role(_)
                | Record::RoleDrop { .. }
                | Record::DatabaseAccess { .. } => {
                    s.listed(&record).map_err(|source| OpenError::Record { lsn, source })?;
                }
                _ => {}
            }
        }
    }
    Ok(s)
}

/// Whether a record changes the list of databases.
fn changes_list(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::VolumeCreate { .. }
            | Record::VolumeDrop { .. }
            | Record::Parameters { .. }
            | Record::Role(_)
            | Record::RoleDrop { .. }
            | Record::DatabaseAccess { .. }
    )
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
        let Some(last) = found.last.get(&id).map(|last| last.number) else { continue };
        if checkpoint.is_some_and(|c| c.number >= last) {
            continue;
        }
        let start = found.start(id);
        from = Some(from.map_or(start, |f: Lsn| f.min(start)));
        volumes.insert(id, AtStart::begin(open(entry)?, entry, checkpoint, last)?);
    }
    let Some(from) = from else { return Ok(Vec::new()) };
    records(trail, from, |boxcar, record| match record {
        Record::Batch(b) => volumes.get_mut(&b.volume).map_or(Ok(()), |v| v.batch(boxcar.lsn, b)),
        Record::Fragment { volume, txn, ops, .. } => {
            if let Some(v) = volumes.get_mut(volume) {
                v.fragments_from = v.fragments_from.or(Some(boxcar.lsn));
                v.redo.fragment(*txn, *ops)?;
            }
            Ok(())
        }
        Record::FragmentDrop { volume, txn } => {
            volumes.get_mut(volume).into_iter().for_each(|v| v.redo.drop_fragments(*txn));
            Ok(())
        }
        _ => Ok(()),
    })?;
    volumes.into_values().map(AtStart::finish).collect()
}

/// Opens a volume that needs no redo, or whose redo comes later: `last` is then its last batch in the trail.
pub fn open_clean(engine: &Arc<EngineState>, entry: &Entry, last: Option<u64>) -> Result<Redone, OpenError> {
    served_as_it_is(engine.open_volume(entry)?, entry, engine.last_checkpoint(entry.volume()), last)
}

/// Writes a new checkpoint record for a file that has everything but differs from its last record (a crash came between
/// the file and the record, or the checkpoint was copied again). Otherwise the file would be ahead of the trail as soon
/// as the boxcars between are recycled.
pub fn list_again(engine: &Arc<EngineState>, redone: &Redone) {
    let (number, stamp) = (redone.volume.store().visible(), redone.volume.stamp());
    let checkpoint = Checkpoint {
        volume: redone.entry.volume(),
        number,
        redo_start: engine.redo.counted_to(),
        file_size_bytes: stamp.bytes,
        file_mtime_ns: stamp.modified_unix_ns as i64,
    };
    let same = |last: Checkpoint| Checkpoint { redo_start: checkpoint.redo_start, ..last } == checkpoint;
    if redone.debt.is_none() && !engine.last_checkpoint(checkpoint.volume).is_some_and(same) {
        checkpointer::log(engine, &[checkpoint]);
    }
}

/// Databases whose file has another size or time than was recorded: they are opened now and not when a session asks for
/// them, as another program may have changed the file (RULE 13). One look at each file's directory entry; nothing is
/// opened that is as it was.
pub fn changed_files(engine: &EngineState, registry: &Registry, manifest: &Manifest) -> Vec<Entry> {
    let has_changed = |entry: &&Entry| {
        let stamp = match stamp_of(&*engine.options.disk, &engine.dir.join(&entry.file)) {
            Ok(stamp) => stamp,
            Err(error) => {
                tracing::error!(database = entry.name, "cannot open the database: {error}");
                return false;
            }
        };
        let checkpoint = engine.last_checkpoint(entry.volume());
        let recorded = checkpoint.map(|c| (c.file_size_bytes, i128::from(c.file_mtime_ns)));
        registry.get(entry.volume()).is_none() && recorded != Some((stamp.bytes, stamp.modified_unix_ns))
    };
    manifest.databases.iter().filter(has_changed).cloned().collect()
}

/// Checks a volume against its last checkpoint record.
pub fn served_as_it_is(
    volume: Volume,
    entry: &Entry,
    checkpoint: Option<Checkpoint>,
    last: Option<u64>,
) -> Result<Redone, OpenError> {
    let number = position(&volume, entry)?.0;
    check(&volume, entry, number, checkpoint, last)?;
    Ok(Redone { entry: entry.clone(), volume: Arc::new(volume), found_at: number, debt: None })
}

/// Reads which batch the file is at and sets the store to it.
fn position(volume: &Volume, entry: &Entry) -> Result<(u64, Epoch), OpenError> {
    let mut conn = volume.open_reader()?;
    let schema = |source| OpenError::Schema { name: entry.shown(), source };
    let position = read_position(&mut conn).map_err(schema)?;
    drop(conn);
    if position.volume != entry.volume() {
        let message = format!("its file belongs to volume {}, not {}", position.volume, entry.volume());
        return Err(OpenError::Redo { name: entry.shown(), message });
    }
    volume.store().set_position(position.number, volume.store().visible_pages());
    Ok((position.number, position.epoch))
}

/// The table in the module's header, for rows that need no boxcar.
fn check(
    volume: &Volume,
    entry: &Entry,
    number: u64,
    checkpoint: Option<Checkpoint>,
    last: Option<u64>,
) -> Result<(), OpenError> {
    let recorded = checkpoint.map_or(0, |c| c.number);
    if number < recorded {
        return Err(OpenError::OlderFile { name: entry.shown(), found: number, expected: recorded });
    }
    if number > recorded.max(last.unwrap_or(0)) {
        let message = format!("its file is at change {number}, the trail only at {}", recorded.max(last.unwrap_or(0)));
        return Err(OpenError::Redo { name: entry.shown(), message });
    }
    let as_recorded = checkpoint.is_some_and(|c| {
        volume.stamp() == Stamp { bytes: c.file_size_bytes, modified_unix_ns: i128::from(c.file_mtime_ns) }
    });
    if !(as_recorded || volume.checkpoint_finished()) {
        tracing::info!(database = entry.name, "size or time of the file differ from the record: checking every page");
        volume.verify()?;
    }
    Ok(())
}

/// Redo of one volume from its last checkpoint to the trail's end.
struct AtStart {
    entry: Entry,
    redo: Redo,
    found_at: u64,
    /// The first batch that was applied, or the first fragment that such a one may use.
    first: Option<Lsn>,
    fragments_from: Option<Lsn>,
    began: Instant,
    bytes: u64,
    last: u64,
}

/// Batches applied in one store transaction.
const BATCHES_PER_COMMIT: u32 = 1000;

impl AtStart {
    fn begin(volume: Volume, entry: &Entry, checkpoint: Option<Checkpoint>, last: u64) -> Result<AtStart, OpenError> {
        let (number, epoch) = position(&volume, entry)?;
        check(&volume, entry, number, checkpoint, Some(last))?;
        let redo = Redo::begin(Arc::new(volume), &entry.shown(), number, epoch)?;
        Ok(AtStart {
            entry: entry.clone(),
            redo,
            found_at: number,
            first: None,
            fragments_from: None,
            began: Instant::now(),
            bytes: 0,
            last,
        })
    }

    fn batch(&mut self, lsn: Lsn, batch: &Batch<'_>) -> Result<(), OpenError> {
        if let Done::Applied { bytes } = self.redo.batch(lsn, batch)? {
            self.first = self.first.or(self.fragments_from).or(Some(lsn));
            self.bytes += bytes;
        }
        if self.redo.pending() >= BATCHES_PER_COMMIT { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), OpenError> {
        if let Some(number) = self.redo.commit()? {
            self.redo.volume().store().set_visible(number);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Redone, OpenError> {
        self.commit()?;
        let number = self.redo.number();
        if number != self.last {
            return Err(self.redo.refuse(format!("redo ended at change {number}, the trail has {}", self.last)));
        }
        let AtStart { entry, redo, found_at, first, began, bytes, .. } = self;
        let time_us = began.elapsed().as_micros() as u64;
        tracing::info!(database = entry.name, number, bytes, time_ms = time_us / 1000, "redone");
        Ok(Redone { entry, volume: redo.end(), found_at, debt: first.map(|lsn| (number, lsn, time_us, bytes)) })
    }
}
