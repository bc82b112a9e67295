//! A data directory in use: its trail, its databases, its checkpointer.
//!
//! Databases are opened when first asked for, except those that recovery had to redo: a thousand idle ones cost neither
//! time at start nor memory.

use crate::api::database::Database;
use crate::background::follow::open::open_volume;
use crate::background::recovery;
use crate::state::database::{DatabaseState, Peers, database_oid};
use crate::state::engine::EngineState;
use crate::state::error::OpenError;
use crate::state::manifest::Entry;
use crate::state::registry::Registry;
use holdfast_store::volume::VolumeError;
use holdfast_trail::{Recovered, Trail, TrailStats};
use holdfast_types::schema::Dialect;
use holdfast_types::{SqlError, SqlResult, SqlState, VolumeId};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// An opened data directory. Clones are the same one.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<EngineInner>);

/// What the handles of an engine share; dropping the last one stops it.
pub(crate) struct EngineInner {
    pub(crate) engine: Arc<EngineState>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) recovered: Recovered,
}

/// A database in the list on disk.
enum Found {
    Open(Database),
    Closed(Entry),
}

/// A database as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseInfo {
    pub name: String,
    pub dialect: Dialect,
    pub oid: u32,
    pub volume: VolumeId,
    /// Where its file is.
    pub path: PathBuf,
}

/// undefined_file
const UNDEFINED_FILE: SqlState = SqlState("58P01");

impl Engine {
    /// Databases whose file does not exist.
    pub fn missing_files(&self) -> Vec<DatabaseInfo> {
        let is_missing = |of: &DatabaseInfo| matches!(self.0.engine.options.disk.metadata(&of.path), Ok(None));
        self.databases().into_iter().filter(is_missing).collect()
    }

    /// All databases.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let engine = &self.0.engine;
        engine.visible.list().databases.iter().map(|e| info(&engine.dir, e)).collect()
    }

    /// A database by name, opened now if need be.
    pub fn database(&self, name: &str) -> SqlResult<Database> {
        if let Some(follow) = &self.0.engine.follow {
            follow.refuse_before_whole()?;
        }
        let listed = self.0.engine.visible.list().databases.iter().find(|e| e.name == name).map(Entry::volume);
        self.database_by_id(listed.ok_or_else(|| no_such_database(name))?)?.ok_or_else(|| being_dropped(name))
    }

    /// A database by number, opened now if need be; `None`: it is not in the list on disk.
    pub(crate) fn database_by_id(&self, id: VolumeId) -> SqlResult<Option<Database>> {
        match self.find(id) {
            None => return Ok(None),
            Some(Found::Open(database)) => return Ok(Some(database)),
            Some(Found::Closed(_)) => {}
        }
        let _one_at_a_time = self.0.engine.lifecycle.lock();
        let entry = match self.find(id) {
            None => return Ok(None),
            Some(Found::Open(database)) => return Ok(Some(database)),
            Some(Found::Closed(entry)) => entry,
        };
        let refuse = |e: OpenError| refuse_to_open(&entry.name, e);
        if self.0.engine.follow.is_some() {
            let opened = open_volume(&self.0.engine, &self.0.registry, &entry);
            return opened.map(Database).map(Some).map_err(refuse);
        }
        let redone = recovery::open_clean(&self.0.engine, &entry, None).map_err(refuse)?;
        recovery::list_again(&self.0.engine, &redone);
        self.serve(&entry, redone).map(Some).map_err(refuse)
    }

    fn find(&self, id: VolumeId) -> Option<Found> {
        let entry = self.0.engine.catalog.lock().manifest.databases.iter().find(|e| e.volume() == id).cloned()?;
        Some(match self.0.registry.get(id) {
            Some(database) => Found::Open(Database(database)),
            None => Found::Closed(entry),
        })
    }

    pub(crate) fn open_databases(&self) -> Vec<Arc<DatabaseState>> {
        self.0.registry.all()
    }

    pub(crate) fn engine(&self) -> &Arc<EngineState> {
        &self.0.engine
    }

    /// The trail, to be tapped and read by the shipping of standbys. Only the engine may append to it: anything else is
    /// damage.
    pub fn trail(&self) -> &Trail {
        &self.0.engine.trail
    }

    /// What opening the trail found.
    pub fn recovered(&self) -> &Recovered {
        &self.0.recovered
    }

    pub fn trail_stats(&self) -> TrailStats {
        self.0.engine.trail.stats()
    }

    /// Counters by name, for `holdfast_stat_trail`.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let engine = &self.0.engine;
        let disk = engine.options.disk.stats();
        let trail = engine.trail.stats();
        let s = &engine.stats;
        vec![
            ("transactions", s.transactions.load(Ordering::Relaxed)),
            ("batches", s.batches.load(Ordering::Relaxed)),
            ("boxcars", trail.boxcars),
            ("bytes", trail.body_bytes),
            ("syncs", disk.syncs),
            ("checkpoints", s.checkpoints.load(Ordering::Relaxed)),
            ("checkpoint_pages", s.checkpoint_pages.load(Ordering::Relaxed)),
            ("redo_time_us", engine.redo.time_us.load(Ordering::Relaxed)),
            ("redo_bytes", engine.redo.bytes.load(Ordering::Relaxed)),
            ("statement_restarts", s.restarts.load(Ordering::Relaxed)),
            ("lock_waits", s.lock_waits.load(Ordering::Relaxed)),
            ("deadlocks", engine.locks.deadlocks()),
            ("requests_sent_to_branches", s.sent_to_branches.load(Ordering::Relaxed)),
            ("side_copies", s.side_copies.load(Ordering::Relaxed)),
            ("row_versions_kept", engine.locks.versions_kept() as u64),
        ]
    }
}

fn info(dir: &Path, entry: &Entry) -> DatabaseInfo {
    DatabaseInfo {
        name: entry.name.clone(),
        dialect: entry.dialect.into(),
        oid: database_oid(entry.volume()),
        volume: entry.volume(),
        path: dir.join(&entry.file),
    }
}

fn refuse_to_open(name: &str, error: OpenError) -> SqlError {
    match error {
        OpenError::Volume(missing @ VolumeError::Missing { .. }) => {
            SqlError::new(UNDEFINED_FILE, format!("database \"{name}\" cannot be opened: {missing}"))
                .with_hint("The other databases are served meanwhile. DROP DATABASE gives this one up.")
        }
        error => SqlError::new(SqlState::DATA_CORRUPTED, error.or_cause().to_string()),
    }
}

/// Of one that is still seen: its end is in the trail, and may yet be lost.
pub(crate) fn being_dropped(name: &str) -> SqlError {
    SqlError::new(SqlState::OBJECT_IN_USE, format!("database \"{name}\" is being dropped"))
}

pub(crate) fn no_such_database(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{name}\" does not exist"))
}

pub(crate) fn stopped() -> SqlError {
    SqlError::new(SqlState::ADMIN_SHUTDOWN, "the trail is closed, or the server is stopping")
}
