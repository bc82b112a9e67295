//! Tables in which some rows are a subscription's, and the others the database's own (`mode = 'partition'`): every change that is
//! captured is checked by the row before and after it, so that cascades, REPLACE and triggers are covered as well.
//!
//! | change by | of a row that meets the condition, before or after | of another |
//! |---|---|---|
//! | a statement | refused | made |
//! | the subscription | made | refused |
//! | redo, or images of a branch, which were checked when they were made | not checked | not checked |
//!
//! Failure: the change is refused, also where the condition cannot be evaluated for a row.

use crate::capture::CaptureError;
use crate::row_filter::RowFilter;
use crate::schema_map::{SchemaError, TableInfo, TableMap, quote};
use crate::sqlite::{ChangeKind, Conn, RowChange};
use crate::subscriptions;
use holdfast_types::{TableId, Value, ValueRef};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::raw::c_int;

/// Which rows of a table are a subscription's.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    pub subscription: String,
    condition: String,
    /// Declared types of the stored columns.
    declared: Vec<String>,
}

/// Who makes the changes that are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangedBy {
    /// They were checked before, or come from the trail.
    #[default]
    Images,
    Statement,
    Subscription,
}

/// Reads which tables have rows of subscriptions; the tables by their position in the map.
pub(crate) fn read(conn: &mut Conn, map: &TableMap) -> Result<Vec<(usize, Partition)>, SchemaError> {
    let mut found = Vec::new();
    for subscription in subscriptions::read(conn, |id| id)?.list {
        for (table, condition) in subscription.conditions {
            let Some(at) = map.position(TableId(table)) else { continue };
            let rows = conn.query_rows(&format!("PRAGMA main.table_xinfo({})", quote(&map.tables()[at].name)))?;
            let declared = map.tables()[at].columns.iter().map(|column| match rows.get(usize::from(column.index)) {
                Some(row) => match &row[2] {
                    Value::Text(declared) => declared.clone(),
                    _ => String::new(),
                },
                None => String::new(),
            });
            let declared = declared.collect();
            found.push((at, Partition { subscription: subscription.name.clone(), condition, declared }));
        }
    }
    Ok(found)
}

/// Evaluates the conditions for one connection.
#[derive(Default)]
pub struct Partitions {
    pub by: ChangedBy,
    filters: HashMap<TableId, RowFilter>,
}

impl Partitions {
    /// The schema has changed.
    pub fn forget(&mut self) {
        self.filters.clear();
    }

    /// Refuses a change of a row that is not of the one who makes it.
    pub fn check(
        &mut self,
        table: &TableInfo,
        partition: &Partition,
        change: &RowChange<'_>,
    ) -> Result<(), CaptureError> {
        let wanted = match self.by {
            ChangedBy::Images => return Ok(()),
            ChangedBy::Statement => false,
            ChangedBy::Subscription => true,
        };
        let broken = |why: String| {
            let (table, subscription) = (table.name.clone(), partition.subscription.clone());
            CaptureError::Condition { table, subscription, why }
        };
        let filter = match self.filters.entry(table.id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let declared = partition.declared.iter().map(String::as_str);
                let columns = table.columns.iter().map(|column| column.name.as_str()).zip(declared);
                let filter = RowFilter::new(columns, [partition.condition.as_str()].into_iter());
                entry.insert(filter.map_err(|e| broken(e.to_string()))?)
            }
        };
        let before = change.kind() != ChangeKind::Insert;
        let after = change.kind() != ChangeKind::Delete;
        for is_after in [false, true].into_iter().filter(|is_after| if *is_after { after } else { before }) {
            let value = |column: u16| if is_after { change.after(column) } else { change.before(column) };
            let values: Result<Vec<ValueRef<'_>>, c_int> =
                table.columns.iter().map(|column| value(column.index)).collect();
            let values = values.map_err(|code| broken(format!("SQLite code {code}")))?;
            let holds = filter.put(&values).and_then(|()| filter.holds(0)).map_err(|e| broken(e.to_string()))?;
            if holds != wanted {
                let (table, subscription) = (table.name.clone(), partition.subscription.clone());
                return Err(CaptureError::OfAnother { table, subscription, by: self.by });
            }
        }
        Ok(())
    }
}
