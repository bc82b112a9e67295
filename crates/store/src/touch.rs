//! Reads the pages that the trail's operations will change, before these are applied, so that slow reads of a volume happen in
//! the order of the file and on several connections.
//!
//! | an operation on a row | reads |
//! |---|---|
//! | any | the row by its key: the way to its leaf, and to where it would be |
//! | update, delete | the row's entries in the table's indexes, as the row is in the snapshot |
//! | insert | where its entries go in indexes of plain columns |
//!
//! Partial indexes, indexes of expressions and of columns with another collation are left out, and so are schema changes: the
//! operations read what is missing themselves.
//!
//! Failure: none. What cannot be read is an error of the operation that needs it.

use crate::schema_map::{RowKey, TableInfo, TableMap};
use crate::sqlite::{Conn, SqliteError, StmtId};
use holdfast_types::quoting::quote;
use holdfast_types::record::{Cells, Key, Op, Ops};
use holdfast_types::{TableId, Value, ValueRef};
use std::collections::HashMap;

/// A row that is going to be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub table: TableId,
    key: RowAt,
    /// Of an insert.
    values: Option<Vec<Value>>,
}

#[derive(Clone, Debug, PartialEq)]
enum RowAt {
    Rowid(i64),
    Columns(Vec<Value>),
}

impl Row {
    /// What rows are sorted by: table and place in the table. Those of a WITHOUT ROWID table stay in their order.
    pub fn place(&self) -> (TableId, i64) {
        match &self.key {
            RowAt::Rowid(rowid) => (self.table, *rowid),
            RowAt::Columns(_) => (self.table, 0),
        }
    }
}

/// The rows that operations change; the operations end at the first that cannot be read.
pub fn rows(ops: Ops<'_>, found: &mut Vec<Row>) {
    for op in ops {
        let row = match op {
            Ok(Op::Insert { table, rowid: Some(rowid), values }) => {
                Row { table, key: RowAt::Rowid(rowid), values: Some(owned(values)) }
            }
            Ok(Op::Update { table, key, .. } | Op::Delete { table, key, .. }) => {
                let key = match key {
                    Key::Rowid(rowid) => RowAt::Rowid(rowid),
                    Key::Columns(cells) => RowAt::Columns(owned(cells)),
                };
                Row { table, key, values: None }
            }
            Ok(_) => continue,
            Err(_) => return,
        };
        found.push(row);
    }
}

fn owned(cells: Cells<'_>) -> Vec<Value> {
    cells.map(|cell| cell.to_value()).collect()
}

/// Statements of one table.
#[derive(Default)]
struct Statements {
    row: Option<StmtId>,
    /// Of an existing row, by its key.
    entries: Vec<StmtId>,
    /// Of a new row: the positions of an index's columns in the image.
    new: Vec<(StmtId, Vec<usize>)>,
}

/// Reads the pages for rows on one connection.
pub struct Toucher<'a> {
    map: &'a TableMap,
    tables: HashMap<TableId, Statements>,
}

impl<'a> Toucher<'a> {
    pub fn new(map: &'a TableMap) -> Toucher<'a> {
        Toucher { map, tables: HashMap::new() }
    }

    /// Reads what one row needs.
    pub fn touch(&mut self, conn: &mut Conn, row: &Row) {
        let Some(info) = self.map.by_id(row.table) else { return };
        let statements = self.tables.entry(row.table).or_insert_with(|| prepare(conn, info));
        let key: Vec<ValueRef<'_>> = match &row.key {
            RowAt::Rowid(rowid) => vec![ValueRef::Int(*rowid)],
            RowAt::Columns(values) => values.iter().map(Value::as_ref).collect(),
        };
        let by_key = statements.row.iter().chain(&statements.entries);
        by_key.for_each(|statement| read(conn, *statement, &key));
        let (Some(values), RowAt::Rowid(rowid)) = (&row.values, &row.key) else { return };
        for (statement, positions) in &statements.new {
            let parts: Option<Vec<ValueRef<'_>>> =
                positions.iter().map(|position| values.get(*position).map(Value::as_ref)).collect();
            let Some(mut parts) = parts else { continue };
            parts.push(ValueRef::Int(*rowid));
            read(conn, *statement, &parts);
        }
    }
}

/// One row of the answer is enough, or none.
fn read(conn: &mut Conn, statement: StmtId, values: &[ValueRef<'_>]) {
    let bound = (1..).zip(values).try_for_each(|(index, value)| conn.bind(statement, index, *value));
    if bound.is_ok() {
        // An error is one of the operation that needs the page.
        let _ = conn.step(statement);
    }
    conn.reset(statement);
}

fn prepare(conn: &mut Conn, info: &TableInfo) -> Statements {
    let table = quote(&info.name);
    let key = match &info.key {
        RowKey::Rowid { name, .. } => vec![name.clone()],
        RowKey::Columns(positions) => positions.iter().map(|p| quote(&info.columns[*p].name)).collect(),
    };
    let is_row = |of: &str| {
        let parts = key.iter().zip(1..).map(|(column, n)| format!("{of}.{column} = ?{n}"));
        parts.collect::<Vec<_>>().join(" AND ")
    };
    let same: Vec<String> = key.iter().map(|column| format!("b.{column} = a.{column}")).collect();
    // Length of the whole row: pages that it continues on are read, too.
    let columns: Vec<String> = info.columns.iter().map(|c| format!("length(a.{})", quote(&c.name))).collect();
    let what = if columns.is_empty() { "1".to_owned() } else { columns.join(", ") };
    let row = conn.prepare(&format!("SELECT {what} FROM main.{table} a WHERE {}", is_row("a"))).ok();
    let mut statements = Statements { row, ..Statements::default() };
    for (index, names) in indexes(conn, info).unwrap_or_default() {
        let columns: Vec<String> = names.iter().map(|name| quote(name)).collect();
        let equal = columns.iter().map(|column| format!("b.{column} IS a.{column}")).chain(same.iter().cloned());
        let entry = format!(
            "SELECT 1 FROM main.{table} a CROSS JOIN main.{table} b INDEXED BY {} WHERE {} AND {}",
            quote(&index),
            is_row("a"),
            equal.collect::<Vec<_>>().join(" AND ")
        );
        statements.entries.extend(conn.prepare(&entry).ok());
        let positions: Option<Vec<usize>> =
            names.iter().map(|name| info.columns.iter().position(|column| column.name == *name)).collect();
        let (Some(positions), RowKey::Rowid { name, .. }) = (positions, &info.key) else { continue };
        let parts = (1..).zip(&columns).map(|(n, column)| format!("b.{column} IS ?{n}"));
        let all = parts.chain([format!("b.{name} = ?{}", columns.len() + 1)]).collect::<Vec<_>>().join(" AND ");
        let new = format!("SELECT 1 FROM main.{table} b INDEXED BY {} WHERE {all}", quote(&index));
        statements.new.extend(conn.prepare(&new).ok().map(|statement| (statement, positions)));
    }
    statements
}

/// The table's indexes of plain columns, with these.
fn indexes(conn: &mut Conn, info: &TableInfo) -> Result<Vec<(String, Vec<String>)>, SqliteError> {
    let text = |value: &Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
    let mut found = Vec::new();
    // seq, name, unique, origin, partial
    for index in conn.query_rows(&format!("PRAGMA main.index_list({})", quote(&info.name)))? {
        // A WITHOUT ROWID table's primary key is the table.
        let is_table = matches!(info.key, RowKey::Columns(_)) && text(&index[3]).is_some_and(|origin| origin == "pk");
        let (Some(name), Value::Int(0), false) = (text(&index[1]), &index[4], is_table) else { continue };
        // seqno, cid, name
        let parts = conn.query_rows(&format!("PRAGMA main.index_info({})", quote(&name)))?;
        let columns: Option<Vec<String>> = parts.iter().map(|part| text(&part[2])).collect();
        found.extend(columns.map(|columns| (name, columns)));
    }
    Ok(found)
}
