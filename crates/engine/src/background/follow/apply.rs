//! The thread that applies the trail to a standby's volumes.
//!
//! Boxcars are applied in the trail's order, and committed many at a time: when no more may be applied at the moment,
//! or enough have gathered. All volumes of such a group become visible together, so that a transaction over several
//! databases is seen in all of them or in none.
//!
//! A volume is opened when its first boxcar arrives. Records that its file contains are skipped without opening it.
//!
//! Failure: what cannot be applied ends the thread, and `Engine::apply_failure` says why; readers stay where they are and
//! receiving continues. A restart begins again where the files are.

use super::catalogue;
use super::open::{open_volume, read_published};
use crate::background::redo::{Done, Redo, fragments_of};
use crate::state::database::DatabaseState;
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::follow::Follow;
use crate::state::fragments::is_dead;
use crate::state::registry::Registry;
use holdfast_store::schema_map::{PREPARED_TABLE, TableMap};
use holdfast_store::volume::REDO_CACHE_KIB;
use holdfast_trail::{Boxcar, BoxcarKind, Reader};
use holdfast_types::record::{Batch, Record, RecordReader};
use holdfast_types::schema::Schema;
use holdfast_types::{Epoch, Hlc, Lsn, TxnId, VolumeId};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A group of boxcars is committed when it has this many, this many bytes of operations, or has taken this long.
#[derive(Clone, Copy)]
struct Full {
    boxcars: u32,
    bytes: u64,
    time: Duration,
}

/// Where it keeps up with its master: what was committed there is soon seen here.
const KEEPING_UP: Full = Full { boxcars: 1000, bytes: 4 << 20, time: Duration::from_millis(10) };
/// Far behind, where no reader sees the newest anyway: a page that many of these transactions change is put aside, sorted and
/// published once for all of them.
const CATCHING_UP: Full = Full { boxcars: 10_000, bytes: 16 << 20, time: Duration::from_millis(100) };
/// How far behind that is, in bytes of the trail: below the point where the governor begins to slow the master down.
const FAR_BEHIND_BYTES: u64 = 16 << 20;
/// All volumes together keep this much in SQLite's own caches while catching up, each at least its initial size.
const CATCHING_UP_CACHE_KIB: u32 = 64 << 10;

pub struct Apply {
    engine: Arc<EngineState>,
    registry: Arc<Registry>,
    reader: Reader,
    /// Read, and not yet allowed.
    next: Option<Boxcar>,
    position: Lsn,
    /// Each volume's records before this position are in its file.
    starts: BTreeMap<VolumeId, Lsn>,
    volumes: BTreeMap<VolumeId, Following>,
    /// Volumes whose end is in the trail.
    ended: BTreeSet<VolumeId>,
    epoch: Epoch,
    /// The latest reading of the commit clock in what was read.
    clock: Hlc,
    group: Group,
    is_far_behind: bool,
}

/// A volume that is being followed.
struct Following {
    database: Arc<DatabaseState>,
    redo: Redo,
    /// Where its last boxcar ends in the trail.
    end: Lsn,
}

/// What has been applied since the last commit.
struct Group {
    boxcars: u32,
    bytes: u64,
    began: Instant,
}

impl Group {
    fn new() -> Group {
        Group { boxcars: 0, bytes: 0, began: Instant::now() }
    }

    fn is_full(&self, full: &Full) -> bool {
        self.boxcars >= full.boxcars || self.bytes >= full.bytes || self.began.elapsed() >= full.time
    }
}

impl Apply {
    pub fn new(
        engine: Arc<EngineState>,
        registry: Arc<Registry>,
        from: Lsn,
        starts: BTreeMap<VolumeId, Lsn>,
        ended: BTreeSet<VolumeId>,
    ) -> Result<Apply, OpenError> {
        let reader = engine.trail.read(from)?;
        let (volumes, group) = (BTreeMap::new(), Group::new());
        let (next, epoch, is_far_behind) = (None, Epoch(0), false);
        Ok(Apply {
            engine,
            registry,
            reader,
            next,
            position: from,
            starts,
            volumes,
            ended,
            epoch,
            clock: Hlc::default(),
            group,
            is_far_behind,
        })
    }

    pub fn run(mut self) {
        let engine = self.engine.clone();
        let Some(follow) = &engine.follow else { return };
        let why = match catch_unwind(AssertUnwindSafe(|| self.serve(follow))) {
            Ok(Ok(())) => return,
            Ok(Err(e)) => e.to_string(),
            // The panic's own message has been printed.
            Err(_) => "the apply thread has panicked; this is a bug, and the log has the details".to_owned(),
        };
        tracing::error!(target: "holdfast::apply", position = %self.position, "applying ends: {why}");
        follow.state.lock().failure = Some(why);
        follow.changed.notify_all();
    }

    fn serve(&mut self, follow: &Follow) -> Result<(), OpenError> {
        let engine = self.engine.clone();
        let mut seen = self.position;
        while let Some(until) = follow.wait(&engine.trail, seen.max(self.position)) {
            // A master that names a position inside a boxcar is not asked repeatedly.
            seen = until;
            self.group = Group::new();
            self.pace(until)?;
            while let Some(boxcar) = self.take(until)? {
                if follow.stops() {
                    return Ok(());
                }
                self.boxcar(&boxcar)?;
                self.position = boxcar.end;
                engine.redo.appended(boxcar.end);
                self.group.boxcars += 1;
                if self.group.is_full(if self.is_far_behind { &CATCHING_UP } else { &KEEPING_UP }) {
                    self.commit(follow)?;
                    self.pace(until)?;
                }
            }
            self.commit(follow)?;
        }
        Ok(())
    }

    /// Between groups: how large the next one may be, given that everything up to `until` may be applied.
    fn pace(&mut self, until: Lsn) -> Result<(), OpenError> {
        let is_far_behind = until.0.saturating_sub(self.position.0) >= FAR_BEHIND_BYTES;
        if std::mem::replace(&mut self.is_far_behind, is_far_behind) != is_far_behind {
            let kib = self.cache_kib(self.volumes.len());
            self.volumes.values_mut().try_for_each(|f| f.redo.set_cache(kib))?;
        }
        Ok(())
    }

    /// The cache of each of this many volumes.
    fn cache_kib(&self, volumes: usize) -> u32 {
        let part = || CATCHING_UP_CACHE_KIB / u32::try_from(volumes.max(1)).unwrap_or(u32::MAX);
        if self.is_far_behind { part().max(REDO_CACHE_KIB) } else { REDO_CACHE_KIB }
    }

    /// The next boxcar, if all of it may be applied.
    fn take(&mut self, until: Lsn) -> Result<Option<Boxcar>, OpenError> {
        if self.next.is_none() {
            self.next = self.reader.next().transpose()?;
        }
        // The end of a segment ends in the next one.
        let may = |b: &Boxcar| b.end <= until || (b.kind != BoxcarKind::Data && b.lsn < until);
        Ok(self.next.take_if(|b| may(b)))
    }

    fn boxcar(&mut self, boxcar: &Boxcar) -> Result<(), OpenError> {
        if boxcar.epoch > self.epoch {
            self.epoch = boxcar.epoch;
            for f in self.volumes.values_mut() {
                f.redo.drop_dead_fragments(boxcar.epoch);
                f.database.redo.fragments_dead(|txn| is_dead(TxnId(txn), boxcar.epoch));
            }
        }
        for record in RecordReader::new(&boxcar.body) {
            self.record(boxcar, &record.map_err(|source| OpenError::Record { lsn: boxcar.lsn, source })?)?;
        }
        Ok(())
    }

    fn record(&mut self, boxcar: &Boxcar, record: &Record<'_>) -> Result<(), OpenError> {
        let lsn = boxcar.lsn;
        match record {
            Record::Batch(b) => self.batch(boxcar, b),
            Record::Fragment { volume, txn, ops, .. } => {
                if let Some(f) = self.volume(*volume, lsn)? {
                    f.redo.fragment(*txn, *ops)?;
                    f.database.redo.fragment(txn.0, lsn);
                }
                Ok(())
            }
            Record::FragmentDrop { volume, txn } => {
                if let Some(f) = self.volume(*volume, lsn)? {
                    f.redo.drop_fragments(*txn);
                    f.database.redo.fragments_dropped(txn.0);
                }
                Ok(())
            }
            Record::VolumeCreate { .. }
            | Record::VolumeDrop { .. }
            | Record::Parameters { .. }
            | Record::Role(_)
            | Record::RoleDrop { .. }
            | Record::DatabaseAccess { .. } => {
                let engine = self.engine.clone();
                if let Some(follow) = &engine.follow {
                    self.commit(follow)?;
                }
                if let Record::VolumeDrop { volume } = record {
                    self.volumes.remove(volume);
                }
                catalogue::apply(&engine, &self.registry, boxcar.lsn, record, &self.ended)
            }
            Record::Checkpoint(c) => catalogue::compare(&self.engine, c),
        }
    }

    fn batch(&mut self, boxcar: &Boxcar, batch: &Batch<'_>) -> Result<(), OpenError> {
        let lsn = boxcar.lsn;
        if let Some(Ok(last)) = batch.transactions().last() {
            self.clock = self.clock.max(last.head.hlc);
        }
        let Some(f) = self.volume(batch.volume, lsn)? else { return Ok(()) };
        let began = Instant::now();
        match f.redo.batch(lsn, batch)? {
            Done::Skipped => {
                for txn in fragments_of(lsn, batch) {
                    f.database.redo.fragments_dropped(txn?.0);
                }
            }
            Done::Applied { bytes } => {
                let time_us = began.elapsed().as_micros() as u64;
                // A transaction in fragments has its boxcar to itself.
                let txn = batch.transactions().next().and_then(Result::ok).map(|t| t.head.id.0);
                f.database.redo.add_after_fragments(batch.number, txn, lsn, time_us, bytes);
                f.end = boxcar.end;
                self.group.bytes += bytes;
            }
        }
        Ok(())
    }

    /// The volume, opened now if necessary; `None` if a record at `lsn` does not concern it.
    fn volume(&mut self, id: VolumeId, lsn: Lsn) -> Result<Option<&mut Following>, OpenError> {
        if self.starts.get(&id).is_some_and(|start| lsn < *start) {
            return Ok(None);
        }
        if !self.volumes.contains_key(&id) {
            let Some(mut following) = self.open(id)? else { return Ok(None) };
            following.redo.set_cache(self.cache_kib(self.volumes.len() + 1))?;
            self.volumes.insert(id, following);
        }
        Ok(self.volumes.get_mut(&id))
    }

    /// `None`: it was dropped later.
    fn open(&self, id: VolumeId) -> Result<Option<Following>, OpenError> {
        let engine = &self.engine;
        let (entry, next_id) = {
            let state = engine.catalog.lock();
            let entry = state.manifest.databases.iter().find(|e| e.volume() == id).cloned();
            (entry, state.manifest.next_id)
        };
        let Some(entry) = entry else {
            let gone = id.0 < next_id || self.ended.contains(&id);
            return if gone { Ok(None) } else { Err(OpenError::UnknownVolume(id)) };
        };
        let _one_at_a_time = engine.lifecycle.lock();
        let database = open_volume(engine, &self.registry, &entry)?;
        let volume = database.volume();
        let number = volume.store().visible();
        let redo = Redo::begin(volume, &entry.name, number, engine.epoch)?;
        Ok(Some(Following { database, redo, end: Lsn(0) }))
    }

    /// Shows readers what has been applied: in all volumes, or in none.
    fn commit(&mut self, follow: &Follow) -> Result<(), OpenError> {
        let published = match self.publish() {
            Ok(published) => published,
            Err(e) => {
                // Readers stay at the schema they have.
                self.volumes.values().for_each(|f| f.database.schema_is_changing(false));
                return Err(e);
            }
        };
        let mut changed = Vec::new();
        for Published { volume, database, number, end, schema } in &published {
            follow.published(*volume, *number, *end);
            if let Some((map, schema)) = schema {
                database.publish_schema(schema.clone(), map.clone(), *number);
                changed.push(*volume);
            }
        }
        // Held until the position is known, too: a dump is taken at one position of all volumes.
        let mut shown = self.engine.shown.lock();
        published.iter().for_each(|p| p.database.show_readers(p.number));
        *shown = shown.max(self.position);
        // A dump of this standby says up to which moment it has commits.
        let mut clock = self.engine.clock.lock();
        *clock = clock.max(self.clock);
        drop((clock, shown));
        published.iter().for_each(|p| p.database.now_visible(p.number));
        for id in changed {
            let Some(Following { database, redo, end }) = self.volumes.remove(&id) else { continue };
            self.volumes.insert(id, Following { database, redo: redo.renew()?, end });
        }
        self.group = Group::new();
        follow.applied_to(self.position);
        Ok(())
    }

    fn publish(&mut self) -> Result<Vec<Published>, OpenError> {
        let engine = &self.engine;
        let published = self.volumes.values_mut().filter_map(|f| f.publish(engine).transpose());
        published.collect()
    }
}

/// What was committed in one volume, and no reader sees yet.
struct Published {
    volume: VolumeId,
    database: Arc<DatabaseState>,
    number: u64,
    /// Where its last boxcar ends in the trail.
    end: Lsn,
    /// If that has changed.
    schema: Option<(Arc<TableMap>, Arc<Schema>)>,
}

impl Following {
    /// Commits what was applied, with the schema as it then is.
    fn publish(&mut self, engine: &EngineState) -> Result<Option<Published>, OpenError> {
        let map = self.redo.changed_map().cloned();
        let prepares = |map: &Arc<TableMap>| map.object(PREPARED_TABLE).is_some();
        if map.as_ref().is_some_and(prepares) {
            engine.list_as_preparing(self.database.id)?;
        }
        if map.is_some() {
            self.database.schema_is_changing(true);
        }
        let Some(number) = self.redo.commit()? else { return Ok(None) };
        let schema = map.map(|_| read_published(&self.database)).transpose()?;
        let (volume, database) = (self.database.id, self.database.clone());
        Ok(Some(Published { volume, database, number, end: self.end, schema }))
    }
}
