//! What a transaction did to each row in the end, so that each row needs one statement to be as before.
//!
//! Failure: none; an image that does not fit its table is left to the statements.

use crate::row::{Key, RowOp, TableKey};
use holdfast_types::record::put_cell;
use holdfast_types::{TableId, Value};
use std::collections::{BTreeMap, HashMap};

/// The net effect on one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Net {
    Inserted {
        key: Key,
        values: Vec<Value>,
    },
    Deleted {
        key: Key,
        values: Vec<Value>,
    },
    /// Changes are position, value before, value after.
    Updated {
        before: Key,
        after: Key,
        changes: Vec<(usize, Value, Value)>,
    },
}

impl Net {
    /// The keys under which the row was before and after.
    pub fn keys(&self) -> [&Key; 2] {
        match self {
            Net::Inserted { key, .. } | Net::Deleted { key, .. } => [key, key],
            Net::Updated { before, after, .. } => [before, after],
        }
    }
}

/// A row's known columns under a key.
type Side = Option<(Key, BTreeMap<usize, Value>)>;

struct State {
    table: TableId,
    /// Before the transaction, and by now.
    before: Side,
    now: Side,
    /// The number of its last operation.
    last: usize,
}

/// Puts operations together, one after the other.
#[derive(Default)]
pub struct Effects {
    states: Vec<State>,
    /// Rows that are there, and rows that are gone, by their last key.
    present: HashMap<(TableId, Vec<u8>), usize>,
    gone: HashMap<(TableId, Vec<u8>), usize>,
    count: usize,
}

impl Effects {
    /// Adds an operation; false if its image does not fit the key of the table.
    pub fn add(&mut self, table: TableId, key: &TableKey, op: &RowOp) -> bool {
        let (Some(old), Some(new)) = (op.old_key(key), op.new_key(key)) else { return false };
        self.count += 1;
        let at = match op {
            RowOp::Insert { .. } => self.gone.remove(&(table, old.bytes())),
            _ => self.present.remove(&(table, old.bytes())),
        };
        let at = at.unwrap_or_else(|| {
            let side = Some((old.clone(), BTreeMap::new()));
            let (before, now) = if matches!(op, RowOp::Insert { .. }) { (None, None) } else { (side.clone(), side) };
            self.states.push(State { table, before, now, last: 0 });
            self.states.len() - 1
        });
        let state = &mut self.states[at];
        state.last = self.count;
        let numbered = |values: &[Value]| values.iter().cloned().enumerate().collect::<BTreeMap<usize, Value>>();
        match op {
            RowOp::Insert { values, .. } => {
                state.now = Some((new.clone(), numbered(values)));
                self.present.insert((table, new.bytes()), at);
            }
            RowOp::Update { changes, .. } => {
                for (position, was, is) in changes {
                    state
                        .before
                        .iter_mut()
                        .for_each(|(_, row)| _ = row.entry(*position).or_insert_with(|| was.clone()));
                    state.now.iter_mut().for_each(|(_, row)| _ = row.insert(*position, is.clone()));
                }
                state.now.iter_mut().for_each(|(key, _)| *key = new.clone());
                self.present.insert((table, new.bytes()), at);
            }
            RowOp::Delete { before, .. } => {
                for (position, value) in before.iter().enumerate() {
                    state
                        .before
                        .iter_mut()
                        .for_each(|(_, row)| _ = row.entry(position).or_insert_with(|| value.clone()));
                }
                state.now = None;
                self.gone.insert((table, old.bytes()), at);
            }
        }
        true
    }

    /// The net effects, the row that was changed last first.
    pub fn backwards(mut self) -> Vec<(TableId, Net)> {
        self.states.sort_by_key(|state| std::cmp::Reverse(state.last));
        self.states.into_iter().filter_map(|state| Some((state.table, net(state.before, state.now)?))).collect()
    }
}

fn net(before: Side, now: Side) -> Option<Net> {
    let values = |row: BTreeMap<usize, Value>| row.into_values().collect();
    match (before, now) {
        (None, None) => None,
        (None, Some((key, row))) => Some(Net::Inserted { key, values: values(row) }),
        (Some((key, row)), None) => Some(Net::Deleted { key, values: values(row) }),
        (Some((before, mut was)), Some((after, is))) => {
            let pairs = is.into_iter().filter_map(|(position, is)| Some((position, was.remove(&position)?, is)));
            let changes: Vec<_> = pairs.filter(|(_, was, is)| !same(was, is)).collect();
            (!changes.is_empty() || before != after).then_some(Net::Updated { before, after, changes })
        }
    }
}

/// The same value, to the sign of zero.
pub fn same(one: &Value, other: &Value) -> bool {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    put_cell(&mut a, one.as_ref());
    put_cell(&mut b, other.as_ref());
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(1);

    fn row(values: &[i64]) -> Vec<Value> {
        values.iter().map(|value| Value::Int(*value)).collect()
    }

    fn insert(rowid: i64, values: &[i64]) -> RowOp {
        RowOp::Insert { rowid: Some(rowid), values: row(values) }
    }

    fn update(from: i64, to: i64, changes: &[(usize, i64, i64)]) -> RowOp {
        let changes = changes.iter().map(|(at, was, is)| (*at, Value::Int(*was), Value::Int(*is))).collect();
        RowOp::Update { key: Key::Rowid(from), new_key: (from != to).then_some(Key::Rowid(to)), changes }
    }

    fn delete(rowid: i64, values: &[i64]) -> RowOp {
        RowOp::Delete { key: Key::Rowid(rowid), before: row(values) }
    }

    fn net_of(ops: &[RowOp]) -> Vec<Net> {
        let key = TableKey::Rowid { name: "rowid".to_owned(), alias: None };
        let mut effects = Effects::default();
        assert!(ops.iter().all(|op| effects.add(TABLE, &key, op)));
        effects.backwards().into_iter().map(|(_, net)| net).collect()
    }

    #[test]
    fn each_row_has_one_net_effect() {
        let inserted = |rowid, values: &[i64]| Net::Inserted { key: Key::Rowid(rowid), values: row(values) };
        let deleted = |rowid, values: &[i64]| Net::Deleted { key: Key::Rowid(rowid), values: row(values) };
        let updated = |from, to, changes: &[(usize, i64, i64)]| {
            let changes = changes.iter().map(|(at, was, is)| (*at, Value::Int(*was), Value::Int(*is))).collect();
            Net::Updated { before: Key::Rowid(from), after: Key::Rowid(to), changes }
        };
        assert_eq!(net_of(&[insert(1, &[1, 2]), delete(1, &[1, 2])]), []);
        assert_eq!(net_of(&[insert(1, &[1, 2]), update(1, 3, &[(0, 1, 5)])]), [inserted(3, &[5, 2])]);
        assert_eq!(net_of(&[update(1, 1, &[(0, 1, 5)]), update(1, 1, &[(0, 5, 1)])]), []);
        assert_eq!(net_of(&[update(1, 1, &[(0, 1, 5)]), delete(1, &[5, 2])]), [deleted(1, &[1, 2])]);
        let replaced = [delete(1, &[1, 2]), insert(1, &[1, 3])];
        assert_eq!(net_of(&replaced), [updated(1, 1, &[(1, 2, 3)])]);
        // Two rows that change places.
        let swapped = [update(1, 9, &[]), update(2, 1, &[]), update(9, 2, &[])];
        assert_eq!(net_of(&swapped), [updated(1, 2, &[]), updated(2, 1, &[])]);
    }
}
