//! The base copy: what a new standby begins with, taken from its master while that works on.
//!
//! | step | master ([`BaseCopy`]) | standby ([`BaseReceiver`]) |
//! |---|---|---|
//! | 1 | holds every volume's newest visible snapshot and the trail from where redo of all of them starts | |
//! | 2 | sends the plan: list of databases, trail, snapshots | checks it; refuses a directory that holds something |
//! | 3 | sends the pages of each snapshot, with the checksums a file has | checks each, writes `NAME.db.new` |
//! | 4 | | syncs and renames the files, notes them in `checkpoints`, writes the list of databases |
//! | 5 | | founds the trail: from here on the directory is a standby's |
//! | 6 | lets go | follows the trail from its first segment on |
//!
//! The snapshots are of one moment, [`CopyPlan::shown`]: what readers see moves on in all volumes under one lock, in the
//! trail's order, and the snapshots are taken under that lock. The list of databases may be newer, so a standby's copy is
//! whole when the trail is applied up to [`CopyPlan::whole_from`]. Until then the standby lets no reader in, and cannot be
//! promoted.
//!
//! A dump is taken from a standby, too; a standby's base copy is not.
//!
//! Failure: before step 5 the directory is nothing ([`BaseReceiver::is_in_use`]): an interrupted copy is begun again there.

mod receiver;

pub use receiver::{BaseReceiver, CopyError};

use crate::api::engine::Engine;
use crate::background::checkpointer::redo_starts;
use crate::state::database::{DatabaseState, Peers};
use crate::state::engine::EngineState;
use crate::state::manifest::Manifest;
use crate::state::retention::Slot;
use holdfast_store::checkpoint::dress_for_copy;
use holdfast_store::pages::{PAGE_BYTES, PageStore, ReadError};
use holdfast_types::{Epoch, Lsn, SqlError, SqlResult, SqlState, VolumeId};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// A page on its way.
pub type PageBytes = [u8; PAGE_BYTES];

/// What is copied. It is sent before the pages.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    pub trail_id: [u8; 16],
    pub segment_bytes: u64,
    /// The standby's trail begins with this segment.
    pub first_segment: u32,
    pub epoch: u32,
    /// The list of databases, as written to its file.
    pub manifest: String,
    /// What the trail says below this LSN about databases that come and go is in that list.
    pub listed_to: u64,
    /// The copy is one moment's when everything below is applied.
    pub whole_from: u64,
    pub volumes: Vec<VolumePlan>,
    /// The snapshots show everything below this LSN, and nothing else. 0: of an earlier release, which took them one after
    /// the other.
    #[serde(default)]
    pub shown: u64,
    /// No commit in the snapshots has a later clock reading.
    #[serde(default)]
    pub clock: u64,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    pub volume: u32,
    /// The last boxcar in the snapshot.
    pub number: u64,
    pub pages: u32,
    /// Redo behind the snapshot starts here.
    pub redo_start: u64,
}

/// A base copy under way: it holds its snapshots and the trail until it is dropped.
pub struct BaseCopy {
    engine: Arc<EngineState>,
    held: u64,
    plan: CopyPlan,
    snapshots: Vec<Snapshot>,
}

struct Snapshot {
    id: VolumeId,
    store: Arc<PageStore>,
    number: u64,
    pages: u32,
    /// Where it is in a data directory.
    file: String,
    /// Keeps the file open, though it may be replaced or removed.
    _volume: Arc<holdfast_store::volume::Volume>,
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.store.release(self.number);
    }
}

impl Drop for BaseCopy {
    fn drop(&mut self) {
        self.engine.retention.lock().end_copy(self.held);
    }
}

impl BaseCopy {
    pub fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    /// Where the volume in place `volume` of the plan is in a data directory.
    pub fn file(&self, volume: usize) -> Option<&str> {
        self.snapshots.get(volume).map(|s| s.file.as_str())
    }

    /// The page `page`, from 1, of the volume in place `volume` of the plan, as a file has it.
    pub fn page(&self, volume: usize, page: u32, out: &mut PageBytes) -> Result<(), ReadError> {
        let Some(s) = self.snapshots.get(volume).filter(|s| (1..=s.pages).contains(&page)) else {
            let source = io::Error::new(io::ErrorKind::NotFound, "not a page of the copy");
            return Err(ReadError::Io { page, offset: 0, path: format!("volume {volume} of the copy"), source });
        };
        s.store.read(page, s.number, 0, out)?;
        dress_for_copy(page, s.id.0, s.number, out);
        Ok(())
    }
}

impl Engine {
    /// Begins a base copy. Opens every database.
    pub fn base_copy(&self) -> SqlResult<BaseCopy> {
        if self.is_standby() {
            return Err(SqlError::unsupported("a base copy of a standby").with_hint("Take it from its master."));
        }
        self.copy_of_all()
    }

    /// Begins a copy for a dump: also on a standby, of what its readers see.
    pub fn dump_copy(&self) -> SqlResult<BaseCopy> {
        if let Some(follow) = &self.engine().follow {
            follow.refuse_before_whole()?;
        }
        self.copy_of_all()
    }

    fn copy_of_all(&self) -> SqlResult<BaseCopy> {
        let engine = self.engine().clone();
        let (held, from) = hold(&engine, &*self.0.registry);
        let mut copy = BaseCopy { engine: engine.clone(), held, plan: empty_plan(&engine), snapshots: Vec::new() };
        loop {
            for entry in engine.manifest().databases {
                // One that was dropped since is not missed.
                self.database_by_id(entry.volume())?;
            }
            let _nothing_changes = engine.cataloguing();
            let (manifest, durable) = (engine.manifest(), engine.trail.durable());
            let Some(open) = self.all_open(&manifest) else { continue };
            if self.take_snapshots(&mut copy, &manifest, &open, durable)? {
                break;
            }
        }
        let plan = &mut copy.plan;
        let starts = plan.volumes.iter().map(|v| v.redo_start);
        let start = starts.chain([plan.listed_to, from.0]).min().unwrap_or(from.0);
        plan.first_segment = (start / plan.segment_bytes) as u32;
        Ok(copy)
    }

    /// The databases of the list; `None` if one that has come since is not open.
    fn all_open(&self, manifest: &Manifest) -> Option<Vec<Arc<DatabaseState>>> {
        let open = self.open_databases();
        let find = |id| open.iter().find(|database: &&Arc<DatabaseState>| database.id == id).cloned();
        manifest.databases.iter().map(|e| find(e.volume())).collect()
    }

    /// Takes the snapshots of all databases at one moment. False: a standby's list of databases has changed meanwhile.
    fn take_snapshots(
        &self,
        copy: &mut BaseCopy,
        manifest: &Manifest,
        open: &[Arc<DatabaseState>],
        durable: Lsn,
    ) -> SqlResult<bool> {
        let engine = self.engine();
        let text = manifest.text().map_err(|e| SqlError::new(SqlState::IO_ERROR, e.to_string()))?;
        // A checkpoint that went on meanwhile would take away the debt behind a snapshot.
        let _no_checkpoints: Vec<_> = open.iter().map(|database| database.checkpointing.lock()).collect();
        let shown = engine.shown.lock();
        if engine.manifest() != *manifest {
            return Ok(false);
        }
        for (database, entry) in open.iter().zip(&manifest.databases) {
            let (snapshot, plan) = take_snapshot(database, entry.file.clone());
            copy.plan.volumes.push(plan);
            copy.snapshots.push(snapshot);
        }
        let (shown, clock) = (*shown, *engine.clock.lock());
        let plan = &mut copy.plan;
        plan.manifest = text;
        (plan.shown, plan.clock) = (shown.0, clock.0);
        (plan.listed_to, plan.whole_from) = match engine.follow {
            // A change of the list at this position is repeated, which changes nothing.
            Some(_) => (shown.0, shown.0),
            // What is logged is on the list. Whatever a snapshot has is durable by now.
            None => (durable.0, engine.trail.durable().0),
        };
        Ok(true)
    }

    /// Keeps the trail for a standby that has everything below `lsn`; it stays registered under that name, over restarts,
    /// until it is released or further behind than [`crate::Options::standby_keep_bytes_max`].
    pub fn hold_slot(&self, name: &str, lsn: Lsn) -> io::Result<()> {
        let engine = self.engine();
        let step_bytes = engine.options.segment_bytes;
        engine.retention.lock().hold(&*engine.options.disk, &engine.dir, name, lsn, step_bytes)
    }

    /// Keeps the trail from `lsn` on for a standby that begins there, also where it was further once: it may have lost its
    /// disk.
    pub fn register_slot(&self, name: &str, lsn: Lsn) -> io::Result<()> {
        let engine = self.engine();
        engine.retention.lock().register(&*engine.options.disk, &engine.dir, name, lsn)
    }

    /// Forgets a registered standby. False: there is none of that name.
    pub fn release_slot(&self, name: &str) -> io::Result<bool> {
        let engine = self.engine();
        engine.retention.lock().release(&*engine.options.disk, &engine.dir, name)
    }

    /// The registered standbys.
    pub fn slots(&self) -> Vec<Slot> {
        self.engine().retention.lock().slots()
    }
}

fn empty_plan(engine: &EngineState) -> CopyPlan {
    CopyPlan {
        trail_id: engine.trail.trail_id().0,
        segment_bytes: engine.trail.segment_bytes(),
        first_segment: 0,
        epoch: engine.epoch.0,
        manifest: String::new(),
        listed_to: 0,
        whole_from: 0,
        volumes: Vec::new(),
        shown: 0,
        clock: 0,
    }
}

/// Holds the trail from where redo would start now; no volume's redo behind a later snapshot starts before that. The trail is held
/// from what readers see now, as well: a dump names the boxcar in front of it.
fn hold(engine: &EngineState, databases: &dyn Peers) -> (u64, Lsn) {
    let shown = *engine.shown.lock();
    let mut floor = engine.retention.lock();
    let from = redo_starts(engine, databases);
    (floor.begin_copy(from.min(shown)), from)
}

/// The caller holds the lock of checkpoints.
fn take_snapshot(database: &Arc<DatabaseState>, file: String) -> (Snapshot, VolumePlan) {
    let volume = database.volume();
    let store = volume.store().clone();
    let (number, pages) = store.acquire();
    // Read before the debt, see there.
    let counted_to = database.engine.redo.counted_to();
    let redo_start = database.redo.start_after(number).unwrap_or(counted_to);
    let snapshot = Snapshot { id: database.id, store, number, pages, file, _volume: volume };
    (snapshot, VolumePlan { volume: database.id.0, number, pages, redo_start: redo_start.0 })
}

impl CopyPlan {
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }
}
