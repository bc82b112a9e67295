//! The table row behind a row of a result, for statements that lock it (RULE 30).

use holdfast_store::locking::{Class, Touch, row_hash, rowid_hash};
use holdfast_store::schema_map::{RowKey, TableMap};
use holdfast_types::{LockStrength, Row, RowLock, ValueRef};

/// The table that must not have changed since the snapshot.
const CHECKS: &[Class] = &[Class::Row];

/// The table row behind a result row; `None` where an outer join found none.
pub fn touch(lock: &RowLock, map: &TableMap, row: &dyn Row) -> Option<Touch> {
    let table = map.by_name(lock.table.as_bytes())?;
    let hash = match (&table.key, lock.key.as_slice()) {
        (RowKey::Rowid { .. }, [column]) => match row.get(*column) {
            ValueRef::Int(rowid) => rowid_hash(rowid),
            _ => return None,
        },
        (RowKey::Columns(_), columns) => row_hash(columns.iter().map(|c| row.get(*c))),
        _ => return None,
    };
    let checks: &[Class] = match lock.strength {
        LockStrength::KeyShare if table.locking.is_parent => &[Class::Existence],
        _ => CHECKS,
    };
    Some(Touch { class: Class::Row, table: table.id, hash, mode: lock.strength, checks, raises: &[] })
}
