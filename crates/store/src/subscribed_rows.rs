//! Which rows of a table are a subscription's, as the map of tables has it; see [`crate::partition`].
//!
//! Failure: the internal table of subscriptions cannot be read.

use crate::sqlite::{Conn, SqliteError};
use crate::subscriptions;
use holdfast_types::quoting::quote;
use holdfast_types::{TableId, Value};

/// Which rows of a table are a subscription's.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscribedRows {
    pub subscription: String,
    pub(crate) condition: String,
    /// Declared types of the stored columns.
    pub(crate) declared: Vec<String>,
}

/// Reads which tables have such rows. `tables`: each with its name and the positions of its stored columns in the declaration.
/// Returns them by their place in it.
pub(crate) fn read<'t>(
    conn: &mut Conn,
    tables: impl Iterator<Item = (TableId, &'t str, Vec<u16>)>,
) -> Result<Vec<(usize, SubscribedRows)>, SqliteError> {
    let subscriptions = subscriptions::read(conn, |id| id)?.list;
    let mut found = Vec::new();
    if subscriptions.iter().all(|subscription| subscription.conditions.is_empty()) {
        return Ok(found);
    }
    for (at, (id, name, columns)) in tables.enumerate() {
        let of_it = subscriptions.iter().find_map(|s| Some((s, s.conditions.get(&id.0)?)));
        let Some((subscription, condition)) = of_it else { continue };
        // cid, name, type, notnull, dflt_value, pk, hidden
        let rows = conn.query_rows(&format!("PRAGMA main.table_xinfo({})", quote(name)))?;
        let declared = columns.iter().map(|column| match rows.get(usize::from(*column)).and_then(|row| row.get(2)) {
            Some(Value::Text(declared)) => declared.clone(),
            _ => String::new(),
        });
        let (subscription, condition) = (subscription.name.clone(), condition.clone());
        found.push((at, SubscribedRows { subscription, condition, declared: declared.collect() }));
    }
    Ok(found)
}
