//! The preupdate hook of the writer: registers new versions, and notices the locks of branches (RULE 21).

use crate::state::database::DatabaseState;
use crate::state::ids::Ids;
use crate::state::locks::{LockId, LockManager, LockMode, OwnerId, Target};
use crate::statement::row_locks::touch;
use holdfast_store::capture::{Watch, Watched};
use holdfast_store::locking::{Touch, touches};
use holdfast_store::schema_map::{TableInfo, TableMap};
use holdfast_store::sqlite::RowChange;
use holdfast_types::{Row, RowLock, TableLockMode, VolumeId};
use parking_lot::Mutex;
use std::sync::Arc;

/// What the writer's hook needs to know of the request at work.
#[derive(Default)]
pub struct WriterWork {
    /// The transaction being merged, or the exclusive one.
    pub owner: Option<OwnerId>,
    /// A branch is at work.
    pub registering: bool,
    /// The request at work changes what another transaction has locked, or has met values too large for its functions.
    pub conflict: bool,
}

/// Registers what the writer changes, and notices when another transaction has it locked (RULE 21).
pub struct WriterWatch {
    pub on: Arc<Mutex<WriterWork>>,
    pub locks: Arc<LockManager>,
    pub volume: VolumeId,
    pub ids: Arc<Ids>,
    pub touched: Vec<Touch>,
}

impl Watch for WriterWatch {
    fn on_change(&mut self, _: &TableMap, table: &TableInfo, change: &RowChange<'_>) -> Watched {
        self.ids.changed(table, change);
        let mut on = self.on.lock();
        if !on.registering || on.conflict {
            return Watched::Record;
        }
        self.touched.clear();
        // What cannot be registered needs the exclusive writer: the way there leads over a branch.
        on.conflict = match touches(table, change, &mut self.touched) {
            Ok(()) => self.locks.writer_touches(on.owner, self.volume, table.id, &self.touched).is_err(),
            Err(_) => on.owner.is_none(),
        };
        Watched::Record
    }
}

/// Whether the writer may return the row: no other transaction has locked it, nor its table as a whole.
pub fn is_free(database: &DatabaseState, map: &TableMap, locks: &[RowLock], row: &dyn Row) -> bool {
    locks.iter().filter_map(|lock| touch(lock, map, row)).all(|t| {
        let row = (Target::Row { class: t.class, table: t.table, hash: t.hash }, LockMode::Row(t.mode));
        let whole = (Target::Table(t.table), LockMode::Table(TableLockMode::RowShare));
        let is_free = |(target, mode)| database.engine.locks.is_free(LockId { volume: database.id, target }, mode);
        is_free(row) && is_free(whole)
    })
}
