//! SELECT ... FOR UPDATE and its weaker forms: the keys of the rows are part of the result, and each row is locked
//! before it is emitted (RULE 30).

use super::watch::stale_schema;
use crate::state::database::DatabaseState;
use crate::state::locks::{Checked, Grant, LockId, LockMode, Target};
use crate::state::running::Running;
use crate::statement::row_locks::touch;
use crate::statement::run::Take;
use holdfast_store::locking::Touch;
use holdfast_types::{LockWait, Row, RowLock, SqlError, SqlResult, SqlState, TableLockMode, ValueRef};
use parking_lot::Mutex;

/// Locks the rows of a statement's result as they arrive.
pub struct RowLocker<'a> {
    pub database: &'a DatabaseState,
    pub running: &'a Mutex<Running>,
    pub locks: &'a [RowLock],
    pub granted: i64,
}

impl RowLocker<'_> {
    pub fn visit(&mut self, row: &dyn Row) -> SqlResult<Take> {
        let limit = self.limit(row);
        if limit == Some(0) {
            return Ok(Take::Stop);
        }
        let map = self.database.map();
        for lock in self.locks {
            let Some(touch) = touch(lock, &map, row) else { continue };
            if let Some(take) = self.lock(lock, touch)? {
                return Ok(take);
            }
        }
        self.granted += 1;
        Ok(if limit == Some(self.granted) { Take::Last } else { Take::Emit })
    }

    fn limit(&self, row: &dyn Row) -> Option<i64> {
        let column = self.locks.iter().find_map(|l| l.limit)?;
        match row.get(column) {
            ValueRef::Int(n) if n >= 0 => Some(n),
            _ => None,
        }
    }

    /// The outcome when the row cannot be emitted as it is.
    fn lock(&self, lock: &RowLock, touch: Touch) -> SqlResult<Option<Take>> {
        let mut running = self.running.lock();
        let Some(owner) = running.owner else { return Ok(None) };
        let locks = &self.database.engine.locks;
        let table = LockId { volume: self.database.id, target: Target::Table(touch.table) };
        let mode = LockMode::Table(TableLockMode::RowShare);
        let granted = locks.try_lock(owner, table, mode);
        stale_schema(&mut running, &self.database.schema_number);
        let checked = match granted {
            Grant::Granted => {
                locks.lock_touches(owner, self.database.id, &[touch], running.snapshot, running.locks_max, &[])
            }
            Grant::Blocked => Checked::Blocked(table, mode),
        };
        match (checked, lock.wait) {
            (Checked::Fresh, _) => Ok(None),
            (Checked::Stale(number), _) => {
                running.found.stale = running.found.stale.max(Some(number));
                Ok(None)
            }
            (Checked::TooMany, _) => {
                running.found.needs_exclusive = true;
                Ok(Some(Take::Stop))
            }
            (Checked::Blocked(..), LockWait::SkipLocked) => Ok(Some(Take::Skip)),
            (Checked::Blocked(..), LockWait::NoWait) => Err(not_available(&lock.table)),
            (Checked::Blocked(id, mode), LockWait::Wait) => {
                running.found.blocked = Some((id, mode));
                Ok(Some(Take::Stop))
            }
        }
    }
}

fn not_available(table: &str) -> SqlError {
    SqlError::new(SqlState::LOCK_NOT_AVAILABLE, format!("could not obtain lock on row in relation \"{table}\""))
}
