//! SELECT ... FOR UPDATE and its weaker forms: the keys of the rows come with the result, and each row is locked before
//! it is emitted (RULE 30).

use super::watch::{Running, stale_schema};
use crate::database::Inner;
use crate::locks::{Checked, Grant, LockId, LockMode, TableMode, Target};
use crate::run::Take;
use crate::statement::{LockWait, RowLock};
use holdfast_store::locking::{Class, RowMode, Touch, row_hash, rowid_hash};
use holdfast_store::schema_map::{RowKey, TableMap};
use holdfast_types::{Row, SqlError, SqlResult, SqlState, ValueRef};
use parking_lot::Mutex;

/// What must not have changed since the snapshot.
const CHECKS: &[Class] = &[Class::Row];

/// The row that a result row stands for; `None` where an outer join found none.
fn touch(lock: &RowLock, map: &TableMap, row: &dyn Row) -> Option<Touch> {
    let table = map.by_name(lock.table.as_bytes())?;
    let hash = match (&table.key, lock.key.as_slice()) {
        (RowKey::Rowid { .. }, [column]) => match row.get(*column) {
            ValueRef::Int(rowid) => rowid_hash(rowid),
            _ => return None,
        },
        (RowKey::Columns(_), columns) => row_hash(columns.iter().map(|c| row.get(*c))),
        _ => return None,
    };
    let checks: &[Class] = match lock.mode {
        RowMode::KeyShare if table.locking.is_parent => &[Class::Existence],
        _ => CHECKS,
    };
    Some(Touch { class: Class::Row, table: table.id, hash, mode: lock.mode, checks, raises: &[] })
}

/// Locks the rows of a statement's result as they come.
pub struct RowLocker<'a> {
    pub inner: &'a Inner,
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
        let map = self.inner.map();
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

    /// What follows when the row cannot be emitted as it is.
    fn lock(&self, lock: &RowLock, touch: Touch) -> SqlResult<Option<Take>> {
        let mut running = self.running.lock();
        let Some(owner) = running.owner else { return Ok(None) };
        let locks = &self.inner.shared.locks;
        let table = LockId { volume: self.inner.id, target: Target::Table(touch.table) };
        let mode = LockMode::Table(TableMode::RowShare);
        let granted = locks.try_lock(owner, table, mode);
        stale_schema(&mut running, &self.inner.schema_number);
        let checked = match granted {
            Grant::Granted => locks.lock_touches(owner, self.inner.id, &[touch], running.snapshot, running.locks_max),
            Grant::Blocked => Checked::Blocked(table, mode),
        };
        match (checked, lock.wait) {
            (Checked::Fresh, _) => Ok(None),
            (Checked::Stale(number), _) => {
                running.found.stale = running.found.stale.max(Some(number));
                Ok(None)
            }
            (Checked::TooMany, _) => {
                running.found.alone = true;
                Ok(Some(Take::Stop))
            }
            (Checked::Blocked(..), LockWait::Skip) => Ok(Some(Take::Skip)),
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

/// Whether MAIN may return the row: nobody else has locked it.
pub fn is_free(inner: &Inner, map: &TableMap, locks: &[RowLock], row: &dyn Row) -> bool {
    locks.iter().filter_map(|lock| touch(lock, map, row)).all(|t| {
        let target = Target::Row { class: t.class, table: t.table, hash: t.hash };
        inner.shared.locks.is_free(LockId { volume: inner.id, target }, LockMode::Row(t.mode))
    })
}
