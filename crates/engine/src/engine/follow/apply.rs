//! The thread that puts the trail on a standby's volumes.
//!
//! Boxcars are applied in the trail's order, and committed many at a time: when no more may be applied at the moment, or
//! enough have gathered. All volumes of such a group become visible together, so that a transaction over several
//! databases is seen in all of them or in none.
//!
//! A volume is opened when its first boxcar comes. Records that its file has already are passed over without opening it.
//!
//! Failure: what cannot be applied ends the thread, and `Engine::apply_failure` says why; readers stay where they are and
//! receiving goes on. A restart begins again where the files are.

use super::*;
use crate::redo::{Done, Redo, fragments_of};
use holdfast_store::schema_map::PREPARED_TABLE;
use holdfast_store::volume::REDO_CACHE_KIB;
use holdfast_trail::{Boxcar, Kind, Reader};
use holdfast_types::TxnId;
use holdfast_types::record::{Batch, Record, RecordReader};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A group of boxcars is committed when it has this many, this many bytes of operations, or has taken this long.
#[derive(Clone, Copy)]
struct Full {
    boxcars: u32,
    bytes: u64,
    time: Duration,
}

/// Beside a master that it keeps up with: what was committed there is soon seen here.
const KEEPING_UP: Full = Full { boxcars: 1000, bytes: 4 << 20, time: Duration::from_millis(10) };
/// Far behind, where nobody sees the newest anyway: a page that many of these transactions change is put aside, sorted and
/// published once for all of them.
const CATCHING_UP: Full = Full { boxcars: 10_000, bytes: 16 << 20, time: Duration::from_millis(100) };
/// That far, in bytes of the trail: below where the governor begins to hold the master back.
const FAR_BEHIND_BYTES: u64 = 16 << 20;
/// All volumes together keep so much in SQLite's own caches while catching up, each at least what it begins with.
const CATCHING_UP_CACHE_KIB: u32 = 64 << 10;

pub(super) struct Apply {
    shared: Arc<Shared>,
    reader: Reader,
    /// Read, and not allowed yet.
    next: Option<Boxcar>,
    position: Lsn,
    /// Each volume's records before its place here are in its file.
    starts: BTreeMap<VolumeId, Lsn>,
    volumes: BTreeMap<VolumeId, Following>,
    /// Volumes that the trail has an end of.
    ended: BTreeSet<VolumeId>,
    epoch: Epoch,
    group: Group,
    is_far_behind: bool,
}

/// A volume that is being followed.
struct Following {
    inner: Arc<Inner>,
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
        shared: Arc<Shared>,
        from: Lsn,
        starts: BTreeMap<VolumeId, Lsn>,
        ended: BTreeSet<VolumeId>,
    ) -> Result<Apply, OpenError> {
        let reader = shared.trail.read(from)?;
        let (volumes, group) = (BTreeMap::new(), Group::new());
        let (next, epoch, is_far_behind) = (None, Epoch(0), false);
        Ok(Apply { shared, reader, next, position: from, starts, volumes, ended, epoch, group, is_far_behind })
    }

    pub fn run(mut self) {
        let shared = self.shared.clone();
        let Some(follow) = &shared.follow else { return };
        let why = match catch_unwind(AssertUnwindSafe(|| self.serve(follow))) {
            Ok(Ok(())) => return,
            Ok(Err(e)) => e.to_string(),
            // The panic's own message has been printed.
            Err(_) => "the thread that applies has panicked: this is a bug; the log says where".to_owned(),
        };
        tracing::error!(target: "holdfast::apply", position = %self.position, "applying ends: {why}");
        follow.state.lock().failure = Some(why);
        follow.changed.notify_all();
    }

    fn serve(&mut self, follow: &Follow) -> Result<(), OpenError> {
        let shared = self.shared.clone();
        let mut seen = self.position;
        while let Some(until) = follow.wait(&shared, seen.max(self.position)) {
            // A master that names a place inside a boxcar is not asked again and again.
            seen = until;
            self.group = Group::new();
            self.pace(until)?;
            while let Some(boxcar) = self.take(until)? {
                if follow.stops() {
                    return Ok(());
                }
                self.boxcar(&boxcar)?;
                self.position = boxcar.end;
                shared.redo.tell(boxcar.end);
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

    /// Between groups: how large the next one may be, where all up to `until` may be applied.
    fn pace(&mut self, until: Lsn) -> Result<(), OpenError> {
        let is_far_behind = until.0.saturating_sub(self.position.0) >= FAR_BEHIND_BYTES;
        if std::mem::replace(&mut self.is_far_behind, is_far_behind) != is_far_behind {
            let kib = self.cache_kib(self.volumes.len());
            self.volumes.values_mut().try_for_each(|f| f.redo.set_cache(kib))?;
        }
        Ok(())
    }

    /// For each of so many volumes.
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
        let may = |b: &Boxcar| b.end <= until || (b.kind != Kind::Data && b.lsn < until);
        Ok(self.next.take_if(|b| may(b)))
    }

    fn boxcar(&mut self, boxcar: &Boxcar) -> Result<(), OpenError> {
        if boxcar.epoch > self.epoch {
            self.epoch = boxcar.epoch;
            for f in self.volumes.values_mut() {
                f.redo.drop_dead_fragments(boxcar.epoch);
                f.inner.redo.fragments_dead(|txn| recovery::is_dead(TxnId(txn), boxcar.epoch));
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
                    f.inner.redo.fragment(txn.0, lsn);
                }
                Ok(())
            }
            Record::FragmentDrop { volume, txn } => {
                if let Some(f) = self.volume(*volume, lsn)? {
                    f.redo.drop_fragments(*txn);
                    f.inner.redo.fragments_dropped(txn.0);
                }
                Ok(())
            }
            Record::VolumeCreate { .. } | Record::VolumeDrop { .. } | Record::Parameters { .. } => {
                let shared = self.shared.clone();
                if let Some(follow) = &shared.follow {
                    self.commit(follow)?;
                }
                if let Record::VolumeDrop { volume } = record {
                    self.volumes.remove(volume);
                }
                catalogue::apply(&shared, boxcar.lsn, record, &self.ended)
            }
            Record::Checkpoint(c) => catalogue::compare(&self.shared, c),
        }
    }

    fn batch(&mut self, boxcar: &Boxcar, batch: &Batch<'_>) -> Result<(), OpenError> {
        let lsn = boxcar.lsn;
        let Some(f) = self.volume(batch.volume, lsn)? else { return Ok(()) };
        let began = Instant::now();
        match f.redo.batch(lsn, batch)? {
            Done::Skipped => {
                for txn in fragments_of(lsn, batch) {
                    f.inner.redo.fragments_dropped(txn?.0);
                }
            }
            Done::Applied { bytes } => {
                let time_us = began.elapsed().as_micros() as u64;
                // A transaction that came in fragments has its boxcar to itself.
                let txn = batch.transactions().next().and_then(Result::ok).map(|t| t.head.id.0);
                f.inner.redo.add_after_fragments(batch.number, txn, lsn, time_us, bytes);
                f.end = boxcar.end;
                self.group.bytes += bytes;
            }
        }
        Ok(())
    }

    /// The volume, opened now if need be; `None` where a record at `lsn` is none of its business.
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

    /// `None`: it was dropped since.
    fn open(&self, id: VolumeId) -> Result<Option<Following>, OpenError> {
        let shared = &self.shared;
        let (entry, next_id) = {
            let state = shared.state.lock();
            let entry = state.manifest.databases.iter().find(|e| e.volume() == id).cloned();
            (entry, state.manifest.next_id)
        };
        let Some(entry) = entry else {
            let gone = id.0 < next_id || self.ended.contains(&id);
            return if gone { Ok(None) } else { Err(OpenError::UnknownVolume(id)) };
        };
        let _one_at_a_time = shared.lifecycle.lock();
        let inner = open_volume(shared, &entry)?;
        let volume = inner.volume();
        let number = volume.store().durable();
        let redo = Redo::begin(volume, &entry.name, number, shared.epoch)?;
        Ok(Some(Following { inner, redo, end: Lsn(0) }))
    }

    /// Lets readers see what has been applied: in all volumes, or in none.
    fn commit(&mut self, follow: &Follow) -> Result<(), OpenError> {
        let published = match self.publish() {
            Ok(published) => published,
            Err(e) => {
                // Readers stay at the schema they have.
                self.volumes.values().for_each(|f| f.inner.schema_is_changing(false));
                return Err(e);
            }
        };
        let mut changed = Vec::new();
        for Published { volume, inner, number, end, schema } in &published {
            follow.published(*volume, *number, *end);
            if let Some((map, schema)) = schema {
                *inner.schema.write() = schema.clone();
                inner.publish_map(map.clone(), *number);
                changed.push(*volume);
            }
        }
        published.iter().for_each(|p| p.inner.volume().store().set_durable(p.number));
        published.iter().for_each(|p| p.inner.durable_reached(p.number));
        for id in changed {
            let Some(Following { inner, redo, end }) = self.volumes.remove(&id) else { continue };
            self.volumes.insert(id, Following { inner, redo: redo.renew()?, end });
        }
        self.group = Group::new();
        follow.applied_to(self.position);
        Ok(())
    }

    fn publish(&mut self) -> Result<Vec<Published>, OpenError> {
        let shared = &self.shared;
        let published = self.volumes.values_mut().filter_map(|f| f.publish(shared).transpose());
        published.collect()
    }
}

/// What was committed in one volume, and nobody sees yet.
struct Published {
    volume: VolumeId,
    inner: Arc<Inner>,
    number: u64,
    /// Where its last boxcar ends in the trail.
    end: Lsn,
    /// If that has changed.
    schema: Option<(Arc<TableMap>, Arc<Schema>)>,
}

impl Following {
    /// Commits what was applied, with the schema as it then is.
    fn publish(&mut self, shared: &Shared) -> Result<Option<Published>, OpenError> {
        let map = self.redo.changed_map().cloned();
        let prepares = |map: &Arc<TableMap>| map.object(PREPARED_TABLE).is_some();
        if map.as_ref().is_some_and(prepares) {
            shared.list_as_preparing(self.inner.id)?;
        }
        if map.is_some() {
            self.inner.schema_is_changing(true);
        }
        let Some(number) = self.redo.commit()? else { return Ok(None) };
        let schema = map.map(|_| read_published(&self.inner)).transpose()?;
        let (volume, inner) = (self.inner.id, self.inner.clone());
        Ok(Some(Published { volume, inner, number, end: self.end, schema }))
    }
}
