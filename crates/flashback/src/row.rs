//! One change of one row, owned, and what the row is found by.

use holdfast_types::record::{self, Op, put_cell};
use holdfast_types::{TableId, Value, ValueRef};
use std::collections::HashSet;

/// What a row is found by: its rowid, or the primary key of a WITHOUT ROWID table.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    Rowid(i64),
    Columns(Vec<Value>),
}

impl Key {
    fn of(key: record::Key<'_>) -> Key {
        match key {
            record::Key::Rowid(rowid) => Key::Rowid(rowid),
            record::Key::Columns(cells) => Key::Columns(cells.map(|cell| cell.to_value()).collect()),
        }
    }

    /// Bytes that are equal for equal keys.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Key::Rowid(rowid) => put_cell(&mut bytes, ValueRef::Int(*rowid)),
            Key::Columns(values) => values.iter().for_each(|value| put_cell(&mut bytes, value.as_ref())),
        }
        bytes
    }
}

/// A set of keys of one table.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    rowids: HashSet<i64>,
    columns: HashSet<Vec<u8>>,
}

impl Keys {
    /// True if the key is new.
    pub fn insert(&mut self, key: &Key) -> bool {
        match key {
            Key::Rowid(rowid) => self.rowids.insert(*rowid),
            Key::Columns(_) => self.columns.insert(key.bytes()),
        }
    }

    pub fn contains(&self, key: &Key) -> bool {
        match key {
            Key::Rowid(rowid) => self.rowids.contains(rowid),
            Key::Columns(_) => self.columns.contains(&key.bytes()),
        }
    }

    fn has(&self, key: &record::Key<'_>) -> bool {
        match key {
            record::Key::Rowid(rowid) => self.rowids.contains(rowid),
            record::Key::Columns(cells) => self.has_columns(*cells),
        }
    }

    fn has_columns<'a>(&self, cells: impl Iterator<Item = ValueRef<'a>>) -> bool {
        if self.columns.is_empty() {
            return false;
        }
        let mut bytes = Vec::new();
        cells.for_each(|cell| put_cell(&mut bytes, cell));
        self.columns.contains(&bytes)
    }

    /// Whether an operation is on one of these rows, before or after it. `key`: the positions of the key's columns.
    pub fn touched_by(&self, op: &Op<'_>, key: &TableKey) -> bool {
        match (op, key) {
            (Op::Insert { rowid: Some(rowid), .. }, _) => self.rowids.contains(rowid),
            (Op::Insert { rowid: None, values, .. }, TableKey::Columns(positions)) => {
                let cells: Vec<ValueRef<'_>> = (*values).collect();
                self.has_columns(positions.iter().filter_map(|at| cells.get(*at)).copied())
            }
            (Op::Update { key, new_key, .. }, _) => self.has(key) || new_key.as_ref().is_some_and(|key| self.has(key)),
            (Op::Delete { key, .. }, _) => self.has(key),
            _ => false,
        }
    }
}

/// How rows of a table are found.
#[derive(Clone, Debug, PartialEq)]
pub enum TableKey {
    /// By the rowid: its name in SQL, and the position of the stored column that is the rowid as well.
    Rowid { name: String, alias: Option<usize> },
    /// By these stored columns, in the key's order.
    Columns(Vec<usize>),
}

impl TableKey {
    /// A key, if it is of this kind.
    fn takes(&self, key: &Key) -> Option<Key> {
        match (self, key) {
            (TableKey::Rowid { .. }, Key::Rowid(_)) => Some(key.clone()),
            (TableKey::Columns(positions), Key::Columns(values)) => {
                (positions.len() == values.len()).then(|| key.clone())
            }
            _ => None,
        }
    }
}

/// One change of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOp {
    Insert {
        rowid: Option<i64>,
        values: Vec<Value>,
    },
    /// Changes are position, value before, value after.
    Update {
        key: Key,
        new_key: Option<Key>,
        changes: Vec<(usize, Value, Value)>,
    },
    Delete {
        key: Key,
        before: Vec<Value>,
    },
}

impl RowOp {
    /// `None` for an operation that changes no row.
    pub fn of(op: &Op<'_>) -> Option<(TableId, RowOp)> {
        let all = |cells: &record::Cells<'_>| (*cells).map(|cell| cell.to_value()).collect::<Vec<Value>>();
        Some(match op {
            Op::Insert { table, rowid, values } => (*table, RowOp::Insert { rowid: *rowid, values: all(values) }),
            Op::Update { table, key, new_key, mask, changes } => {
                let cells = all(changes);
                let pairs = mask.positions().zip(cells.chunks_exact(2));
                let mut changes: Vec<_> =
                    pairs.map(|(position, pair)| (position, pair[0].clone(), pair[1].clone())).collect();
                // Columns that the image carries for subscribers only. An update of nothing keeps what it has.
                if changes.iter().any(|(_, before, after)| before != after) || new_key.is_some() {
                    changes.retain(|(_, before, after)| before != after);
                }
                (*table, RowOp::Update { key: Key::of(*key), new_key: new_key.map(Key::of), changes })
            }
            Op::Delete { table, key, before } => (*table, RowOp::Delete { key: Key::of(*key), before: all(before) }),
            _ => return None,
        })
    }

    /// Whether an operation has a text that is not UTF-8, so that no literal stands for it.
    pub fn is_inexact(op: &Op<'_>) -> bool {
        let of = |mut cells: record::Cells<'_>| {
            cells.any(|cell| matches!(cell, ValueRef::Text(text) if std::str::from_utf8(text).is_err()))
        };
        let of_key = |key: &record::Key<'_>| matches!(key, record::Key::Columns(cells) if of(*cells));
        match op {
            Op::Insert { values, .. } => of(*values),
            Op::Update { key, new_key, changes, .. } => {
                of(*changes) || of_key(key) || new_key.as_ref().is_some_and(of_key)
            }
            Op::Delete { key, before, .. } => of(*before) || of_key(key),
            _ => false,
        }
    }

    pub fn word(&self) -> &'static str {
        match self {
            RowOp::Insert { .. } => "insert",
            RowOp::Update { .. } => "update",
            RowOp::Delete { .. } => "delete",
        }
    }

    /// The row's key before the change, or after an insert. `None`: the image does not fit the table's key.
    pub fn old_key(&self, key: &TableKey) -> Option<Key> {
        match self {
            RowOp::Insert { rowid, values } => match (rowid, key) {
                (Some(rowid), _) => key.takes(&Key::Rowid(*rowid)),
                (None, TableKey::Columns(positions)) => {
                    let cells: Vec<Value> = positions.iter().filter_map(|at| values.get(*at)).cloned().collect();
                    (cells.len() == positions.len()).then_some(Key::Columns(cells))
                }
                _ => None,
            },
            RowOp::Update { key: old, .. } | RowOp::Delete { key: old, .. } => key.takes(old),
        }
    }

    /// The row's key after the change, or before a delete.
    pub fn new_key(&self, key: &TableKey) -> Option<Key> {
        match self {
            RowOp::Update { new_key: Some(new), .. } => key.takes(new),
            other => other.old_key(key),
        }
    }

    /// Memory that it takes, about.
    pub fn bytes(&self) -> u64 {
        let of = |values: &[Value]| values.iter().map(size).sum::<u64>();
        64 + match self {
            RowOp::Insert { values, .. } => of(values),
            RowOp::Update { changes, .. } => {
                changes.iter().map(|(_, before, after)| 16 + size(before) + size(after)).sum()
            }
            RowOp::Delete { before, .. } => of(before),
        }
    }
}

fn size(value: &Value) -> u64 {
    let own = size_of::<Value>() as u64;
    match value {
        Value::Text(text) => own + text.len() as u64,
        Value::Blob(bytes) => own + bytes.len() as u64,
        _ => own,
    }
}
