//! What stands behind the preupdate hook: row locks and versions for branches, and for MAIN.

use crate::ids::Ids;
use crate::locks::{Checked, Grant, LockId, LockManager, LockMode, OwnerId, TableMode, Target};
use holdfast_store::capture::{Change, ChangeKind, Watch, Watched};
use holdfast_store::locking::{Touch, touches};
use holdfast_store::schema_map::{RowKey, TableInfo, TableMap};
use holdfast_types::{TableId, VolumeId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the hook of a branch found out while a statement ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Something was changed after the snapshot, last by this boxcar.
    pub stale: Option<u64>,
    /// Somebody else holds this; the statement was interrupted.
    pub blocked: Option<(LockId, LockMode)>,
    /// It changes what only MAIN may change; the statement was interrupted.
    pub alone: bool,
}

/// Whose statement runs on a branch's connection.
#[derive(Default)]
pub struct Running {
    pub owner: Option<OwnerId>,
    pub snapshot: u64,
    /// With more locks than this only MAIN may run it.
    pub locks_max: usize,
    /// The transaction's own images are being put back.
    pub replaying: bool,
    /// Tables that the statement has locked already.
    pub tables: Vec<TableId>,
    /// Tables that it has locked because its rows refer to them.
    pub parents: Vec<TableId>,
    /// Owns advisory locks.
    pub session: Option<OwnerId>,
    /// An advisory lock that was waited for, and has not been taken up yet.
    pub granted: Option<(LockId, LockMode)>,
    /// Advisory locks taken that end with the transaction.
    pub advisory: Vec<(OwnerId, LockId, LockMode)>,
    pub found: Found,
}

/// Locks rows for whoever uses the connection.
pub struct BranchWatch {
    pub running: Arc<Mutex<Running>>,
    pub locks: Arc<LockManager>,
    pub volume: VolumeId,
    pub ids: Arc<Ids>,
    /// The boxcar that published the present schema.
    pub schema_number: Arc<AtomicU64>,
    pub touched: Vec<Touch>,
}

impl BranchWatch {
    /// Locks a table as a whole. From then on its definition stays, so what was published before is all there is to see.
    fn lock_table(&self, running: &mut Running, owner: OwnerId, table: TableId, mode: TableMode) -> Grant {
        let id = LockId { volume: self.volume, target: Target::Table(table) };
        let mode = LockMode::Table(mode);
        let granted = self.locks.try_lock(owner, id, mode);
        if granted == Grant::Blocked {
            running.found.blocked = Some((id, mode));
        }
        stale_schema(running, &self.schema_number);
        granted
    }
}

/// A statement on an older schema begins again.
pub fn stale_schema(running: &mut Running, schema_number: &AtomicU64) {
    let number = schema_number.load(Ordering::Acquire);
    if number > running.snapshot {
        running.found.stale = running.found.stale.max(Some(number));
    }
}

impl Watch for BranchWatch {
    fn on_change(&mut self, map: &TableMap, table: &TableInfo, change: &dyn Change) -> Watched {
        tell_ids(&self.ids, table, change);
        let mut running = self.running.lock();
        let Some(owner) = running.owner else { return Watched::Record };
        // What a foreign key does follows from the change that set it off and is done again wherever that is applied;
        // a trigger may do anything.
        let follows = change.depth() > 0;
        if table.locking.alone || (follows && map.has_triggers) {
            running.found.alone = true;
            return Watched::Stop;
        }
        if running.replaying && !follows {
            return Watched::Ignore;
        }
        if !running.tables.contains(&table.id) {
            if self.lock_table(&mut running, owner, table.id, TableMode::RowExclusive) == Grant::Blocked {
                return Watched::Stop;
            }
            running.tables.push(table.id);
        }
        self.touched.clear();
        if touches(table, change, &mut self.touched).is_err() {
            // What cannot be locked is for who has everything to himself.
            running.found.alone = true;
            return Watched::Stop;
        }
        for parent in self.touched.iter().map(|t| t.table) {
            if parent == table.id || running.parents.contains(&parent) {
                continue;
            }
            if self.lock_table(&mut running, owner, parent, TableMode::RowShare) == Grant::Blocked {
                return Watched::Stop;
            }
            running.parents.push(parent);
        }
        match self.locks.lock_touches(owner, self.volume, &self.touched, running.snapshot, running.locks_max) {
            Checked::Fresh => {}
            // It runs on and collects locks (RULE 25).
            Checked::Stale(number) => running.found.stale = running.found.stale.max(Some(number)),
            Checked::Blocked(id, mode) => {
                running.found.blocked = Some((id, mode));
                return Watched::Stop;
            }
            // What is being put on again has been locked already.
            Checked::TooMany if running.replaying => {}
            Checked::TooMany => {
                running.found.alone = true;
                return Watched::Stop;
            }
        }
        if follows || running.replaying { Watched::Ignore } else { Watched::Record }
    }
}

/// Explicit ids push the counter on as well.
fn tell_ids(ids: &Ids, table: &TableInfo, change: &dyn Change) {
    if matches!(table.key, RowKey::Rowid { .. }) && change.kind() != ChangeKind::Delete {
        ids.inserted(table.name.as_bytes(), change.new_rowid());
    }
}

/// What MAIN tells its hook.
#[derive(Default)]
pub struct OnMain {
    /// The transaction being merged, or that has MAIN to itself.
    pub owner: Option<OwnerId>,
    /// Somebody works on a branch.
    pub registering: bool,
    /// The request at work changes what somebody else has locked.
    pub conflict: bool,
}

/// Registers what MAIN changes, and notices when somebody else holds it (RULE 21).
pub struct MainWatch {
    pub on: Arc<Mutex<OnMain>>,
    pub locks: Arc<LockManager>,
    pub volume: VolumeId,
    pub ids: Arc<Ids>,
    pub touched: Vec<Touch>,
}

impl Watch for MainWatch {
    fn on_change(&mut self, _: &TableMap, table: &TableInfo, change: &dyn Change) -> Watched {
        tell_ids(&self.ids, table, change);
        let mut on = self.on.lock();
        if !on.registering || on.conflict {
            return Watched::Record;
        }
        self.touched.clear();
        // What cannot be registered is for who has everything to himself: the way there leads over a branch.
        on.conflict = match touches(table, change, &mut self.touched) {
            Ok(()) => self.locks.main_touches(on.owner, self.volume, table.id, &self.touched).is_err(),
            Err(_) => on.owner.is_none(),
        };
        Watched::Record
    }
}
