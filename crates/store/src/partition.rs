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

use crate::row_filter::RowFilter;
use crate::schema_map::TableInfo;
use crate::sqlite::{ChangeKind, RowChange};
use crate::subscribed_rows::SubscribedRows;
use holdfast_types::{TableId, ValueRef};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::raw::c_int;

/// Who makes the changes that are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangedBy {
    /// They were checked before, or come from the trail.
    #[default]
    Images,
    Statement,
    Subscription,
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    #[error("{}", of_another(.table, .subscription, *.by))]
    OfAnother { table: String, subscription: String, by: ChangedBy },
    #[error("the condition of subscription \"{subscription}\" on table \"{table}\" cannot be evaluated: {why}")]
    Condition { table: String, subscription: String, why: String },
}

fn of_another(table: &str, subscription: &str, by: ChangedBy) -> String {
    match by {
        ChangedBy::Subscription => format!(
            "a row of table \"{table}\" that does not meet the condition of subscription \"{subscription}\" is this database's own"
        ),
        _ => format!(
            "cannot change rows of table \"{table}\" that meet the condition of subscription \"{subscription}\""
        ),
    }
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
        rows: &SubscribedRows,
        change: &RowChange<'_>,
    ) -> Result<(), PartitionError> {
        let wanted = match self.by {
            ChangedBy::Images => return Ok(()),
            ChangedBy::Statement => false,
            ChangedBy::Subscription => true,
        };
        let broken = |why: String| {
            let (table, subscription) = (table.name.clone(), rows.subscription.clone());
            PartitionError::Condition { table, subscription, why }
        };
        let filter = match self.filters.entry(table.id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let declared = rows.declared.iter().map(String::as_str);
                let columns = table.columns.iter().map(|column| column.name.as_str()).zip(declared);
                let filter = RowFilter::new(columns, [rows.condition.as_str()].into_iter());
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
                let (table, subscription) = (table.name.clone(), rows.subscription.clone());
                return Err(PartitionError::OfAnother { table, subscription, by: self.by });
            }
        }
        Ok(())
    }
}
