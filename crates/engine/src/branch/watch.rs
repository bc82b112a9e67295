//! The preupdate hook of a branch: takes row locks and compares versions.

use crate::state::ids::Ids;
use crate::state::locks::{Checked, Grant, LockId, LockManager, LockMode, OwnerId, Target};
use crate::state::running::Running;
use holdfast_store::capture::{Watch, Watched};
use holdfast_store::locking::{Touch, touches};
use holdfast_store::schema_map::{TableInfo, TableMap};
use holdfast_store::sqlite::RowChange;
use holdfast_types::{TableId, TableLockMode, VolumeId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Locks rows for the transaction that uses the connection.
pub struct BranchWatch {
    pub running: Arc<Mutex<Running>>,
    pub locks: Arc<LockManager>,
    pub volume: VolumeId,
    pub ids: Arc<Ids>,
    /// The batch that published the present schema.
    pub schema_number: Arc<AtomicU64>,
    pub touched: Vec<Touch>,
}

impl BranchWatch {
    /// Locks a table as a whole. From then on its definition stays, so the newest published snapshot is current for it.
    fn lock_table(&self, running: &mut Running, owner: OwnerId, table: TableId, mode: TableLockMode) -> Grant {
        let id = LockId { volume: self.volume, target: Target::Table(table) };
        let mode = LockMode::Table(mode);
        let granted = self.locks.try_lock(owner, id, mode);
        match granted {
            Grant::Blocked => running.found.blocked = Some((id, mode)),
            Grant::Granted if self.locks.holds_whole(owner, id) => running.whole.push(table),
            Grant::Granted => {}
        }
        stale_schema(running, &self.schema_number);
        granted
    }
}

/// A statement on an older schema is retried.
pub fn stale_schema(running: &mut Running, schema_number: &AtomicU64) {
    let number = schema_number.load(Ordering::Acquire);
    if number > running.snapshot {
        running.found.stale = running.found.stale.max(Some(number));
    }
}

impl Watch for BranchWatch {
    fn on_change(&mut self, map: &TableMap, table: &TableInfo, change: &RowChange<'_>) -> Watched {
        self.ids.changed(table, change);
        let mut running = self.running.lock();
        let Some(owner) = running.owner else { return Watched::Record };
        // A foreign key's action follows from the change that caused it and is repeated wherever that change is
        // applied; a trigger may do anything.
        let follows = change.depth() > 0;
        if table.locking.exclusive || (follows && map.has_triggers) {
            running.found.needs_exclusive = true;
            return Watched::Stop;
        }
        if running.replaying && !follows {
            return Watched::Ignore;
        }
        if !running.tables.contains(&table.id) {
            if self.lock_table(&mut running, owner, table.id, TableLockMode::RowExclusive) == Grant::Blocked {
                return Watched::Stop;
            }
            running.tables.push(table.id);
        }
        self.touched.clear();
        if touches(table, change, &mut self.touched).is_err() {
            // What cannot be locked needs the exclusive writer.
            running.found.needs_exclusive = true;
            return Watched::Stop;
        }
        for parent in self.touched.iter().map(|t| t.table) {
            if parent == table.id || running.parents.contains(&parent) {
                continue;
            }
            if self.lock_table(&mut running, owner, parent, TableLockMode::RowShare) == Grant::Blocked {
                return Watched::Stop;
            }
            running.parents.push(parent);
        }
        let Running { snapshot, locks_max, whole, .. } = &*running;
        match self.locks.lock_touches(owner, self.volume, &self.touched, *snapshot, *locks_max, whole) {
            Checked::Fresh => {}
            // The statement continues and collects locks (RULE 25).
            Checked::Stale(number) => running.found.stale = running.found.stale.max(Some(number)),
            Checked::Blocked(id, mode) => {
                running.found.blocked = Some((id, mode));
                return Watched::Stop;
            }
            // Replayed images have been locked already.
            Checked::TooMany if running.replaying => {}
            Checked::TooMany => {
                running.found.needs_exclusive = true;
                return Watched::Stop;
            }
        }
        if follows || running.replaying { Watched::Ignore } else { Watched::Record }
    }
}
