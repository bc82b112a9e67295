//! A published table as it was at one schema epoch: its columns, how a row's key is found in an image, and whether a row is in
//! the publications that a subscriber has asked for.
//!
//! Columns are read in a private SQLite database in memory; conditions are evaluated by [`RowFilter`].
//!
//! Failure: a condition that fails for a row counts as false: the row is not published. The filter is a boundary, so nothing of the row
//! is logged.

use crate::feed::{FeedError, Types};
use crate::pgoutput::{Column, Relation};
use holdfast_store::row_filter::RowFilter;
use holdfast_store::schema_map::{RowKey, SchemaError, StoredColumn, create_internal_tables};
use holdfast_store::schema_read::{FIRST_OID, read_schema};
use holdfast_store::shapes::{Shape, Taken};
use holdfast_store::sqlite::{Conn, OpenFlags, SqliteError};
use holdfast_types::publication::PublicationOptions;
use holdfast_types::record::Key;
use holdfast_types::{ColumnDesc, Value, ValueRef, VolumeId};

/// Values of a row by the position of the stored column; `None` where an image does not have it.
pub type Row = Vec<Option<Value>>;

/// Which kind of change is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Insert,
    Update,
    Delete,
}

/// See the module.
pub struct Table {
    relation: Relation,
    /// For each stored column its place among the published ones.
    published: Vec<Option<usize>>,
    columns: Vec<ColumnDesc>,
    /// Positions of the primary key's columns in the key's order; of the columns in an image's key, unless that is a rowid; and
    /// of the column that is the rowid.
    key: Vec<usize>,
    image_key: Vec<usize>,
    rowid_alias: Option<usize>,
    taken: Vec<Taken>,
    filter: RowFilter,
    /// For each entry of `taken` the number of its condition in `filter`.
    conditions: Vec<Option<usize>>,
}

impl Table {
    /// `taken`: what the subscriber's publications take of the table; not empty.
    pub fn new(shape: &Shape, taken: Vec<Taken>, types: &dyn Types) -> Result<Table, FeedError> {
        let sqlite = |source: SqliteError| FeedError::Table { table: shape.name.clone(), source };
        let unreadable = |source: SchemaError| FeedError::Definition { table: shape.name.clone(), source };
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).map_err(sqlite)?;
        conn.exec(&shape.definition).map_err(sqlite)?;
        let map = create_internal_tables(&mut conn, VolumeId(0)).map_err(unreadable)?;
        let schema = read_schema(&mut conn, &map).map_err(sqlite)?;
        let lost = || FeedError::Unknown { table: shape.name.clone() };
        let info = map.by_name(shape.name.as_bytes()).ok_or_else(lost)?;
        let stored = schema.tables.iter().find(|table| table.name == shape.name).ok_or_else(lost)?;
        let of_position = |column: &StoredColumn| stored.columns.iter().find(|c| c.name == column.name);
        let stored: Vec<_> =
            info.columns.iter().filter_map(of_position).map(|c| (types.describe(stored, c), &c.decl_type)).collect();
        let lists: Vec<_> = taken.iter().map(|t| &t.columns).collect();
        if lists.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(FeedError::ColumnLists { table: shape.name.clone() });
        }
        let listed = |name: &str| lists[0].as_ref().is_none_or(|list| list.iter().any(|column| column == name));
        let mut relation = Relation { oid: FIRST_OID + shape.table.0, name: shape.name.clone(), columns: Vec::new() };
        let mut published = Vec::new();
        for (position, (desc, _)) in stored.iter().enumerate() {
            published.push(listed(&desc.name).then(|| {
                let ColumnDesc { name, type_oid, typmod, .. } = desc.clone();
                relation.columns.push(Column { name, type_oid, typmod, is_key: info.primary.contains(&position) });
                relation.columns.len() - 1
            }));
        }
        let columns = stored.iter().map(|(desc, of)| (desc.name.as_str(), of.as_str()));
        let conditions = taken.iter().filter_map(|t| t.filter.as_deref());
        let filter = RowFilter::new(columns, conditions).map_err(sqlite)?;
        let mut numbers = 0..;
        let conditions = taken.iter().map(|t| t.filter.as_ref().and_then(|_| numbers.next())).collect();
        let rowid_alias = match &info.key {
            RowKey::Rowid { alias, .. } => *alias,
            RowKey::Columns(_) => None,
        };
        let image_key = match &info.key {
            RowKey::Columns(positions) => positions.clone(),
            RowKey::Rowid { .. } => Vec::new(),
        };
        let (key, columns) = (info.primary.clone(), stored.into_iter().map(|(desc, _)| desc).collect());
        Ok(Table { relation, published, columns, key, image_key, rowid_alias, taken, filter, conditions })
    }

    pub fn relation(&self) -> &Relation {
        &self.relation
    }

    pub fn columns(&self) -> &[ColumnDesc] {
        &self.columns
    }

    /// For each stored column its place among the published ones.
    pub fn published(&self) -> &[Option<usize>] {
        &self.published
    }

    /// Positions of the primary key's columns.
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    pub fn empty_row(&self) -> Row {
        vec![None; self.columns.len()]
    }

    /// Puts what an image's key says into a row.
    pub fn put_key(&self, row: &mut Row, key: &Key<'_>) {
        match key {
            Key::Rowid(rowid) => {
                if let Some(at) = self.rowid_alias {
                    row[at] = Some(Value::Int(*rowid));
                }
            }
            Key::Columns(cells) => {
                for (&at, cell) in self.image_key.iter().zip(*cells) {
                    row[at] = Some(cell.to_value());
                }
            }
        }
    }

    /// Whether a kind of change is published at all.
    pub fn publishes(&self, kind: ChangeKind) -> bool {
        self.taken.iter().any(|taken| is_kind(&taken.options, kind))
    }

    /// Whether one of the publications with this kind of change has the row.
    pub fn has(&mut self, row: &Row, kind: ChangeKind) -> bool {
        let of_kind: Vec<usize> = (0..self.taken.len()).filter(|&at| is_kind(&self.taken[at].options, kind)).collect();
        if of_kind.iter().any(|&at| self.conditions[at].is_none()) {
            return true;
        }
        let values: Vec<ValueRef<'_>> =
            row.iter().map(|value| value.as_ref().map_or(ValueRef::Null, Value::as_ref)).collect();
        if self.filter.put(&values).is_err() {
            return false;
        }
        of_kind.into_iter().filter_map(|at| self.conditions[at]).any(|at| self.filter.holds(at).unwrap_or(false))
    }
}

fn is_kind(options: &PublicationOptions, kind: ChangeKind) -> bool {
    match kind {
        ChangeKind::Insert => options.insert,
        ChangeKind::Update => options.update,
        ChangeKind::Delete => options.delete,
    }
}
