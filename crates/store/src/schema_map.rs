//! What capture and redo need to know about a volume's tables: stable ids, stored columns, and how a row is addressed.
//!
//! Every volume has two internal tables:
//!
//! | table | row |
//! |---|---|
//! | `holdfast_meta` | the only one, id 1: format, volume, number of the last batch applied, its epoch, schema epoch, next table id |
//! | `holdfast_tables` | for each table, view and virtual table: its id and current name |
//!
//! `holdfast_privileges` is created by the first GRANT or by the first object of another owner: see [`crate::privileges`]; `holdfast_publications` by the first publication: see [`crate::publications`],
//! and `holdfast_shapes` with it: see [`crate::shapes`]; `holdfast_subscriptions` by the first subscription: see
//! [`crate::subscriptions`].
//!
//! Three more, `holdfast_prepared`, `holdfast_slots` and `holdfast_positions`, are created by the first PREPARE TRANSACTION, the first
//! logical replication slot and the first subscription. They are internal too, but they have ids, and the trail carries their rows like those of a user's table.
//!
//! Ids depend only on the statements, never on the positions of pages, so redo of the same statements on another copy
//! gives the same ids:
//!
//! | after a statement | id |
//! |---|---|
//! | the name was there before | stays |
//! | a name is new, and exactly one name that had its root page is gone (0 for views and virtual tables) | moves: it was renamed |
//! | a name is new otherwise | next number, new names in byte order |
//! | a name is gone otherwise | is dropped and never used again |
//!
//! Reading the map never touches a virtual table, so that redo may write its shadow tables as plain ones.
//!
//! Failure: a table whose hidden rowid has no free name, or whose name is reserved, is refused; the caller then
//! rolls the statement back.

use crate::carried::{Carried, carried};
use crate::locking::{self, Locking};
pub use crate::names::{
    POSITIONS_TABLE, PREPARED_TABLE, PRIVILEGES_TABLE, PUBLICATIONS_TABLE, SHAPES_TABLE, SLOTS_TABLE,
    SUBSCRIPTIONS_TABLE, is_audited, is_internal,
};
use crate::privileges::{self, ColumnsBefore};
use crate::publications;
use crate::shapes;
use crate::sqlite::{Conn, SqliteError};
use crate::subscribed_rows::{self, SubscribedRows};
use crate::subscriptions;
use holdfast_types::quoting::quote;
use holdfast_types::{Epoch, TableId, Value, ValueRef, VolumeId};
use std::collections::{BTreeMap, HashMap};

/// Version of the internal tables' layout.
pub const VOLUME_FORMAT: i64 = 1;

const INTERNAL_TABLES: [&str; 6] =
    ["holdfast_meta", "holdfast_tables", PRIVILEGES_TABLE, PUBLICATIONS_TABLE, SHAPES_TABLE, SUBSCRIPTIONS_TABLE];

/// Why a schema cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error(
        "table {0} has no primary key, and its columns use all three names of the hidden rowid (rowid, _rowid_, oid); rename one of these columns"
    )]
    NoRowidName(String),
    #[error("the name {0} is reserved: names that begin with holdfast_ are internal")]
    ReservedName(String),
    #[error("the database is not a Holdfast volume, or it is damaged: {0}")]
    NotAVolume(String),
    #[error(
        "the volume has format {found}; this release reads format {VOLUME_FORMAT}; use the release that wrote the volume"
    )]
    Format { found: i64 },
    #[error("table {0} has other columns than its new definition")]
    Redefinition(String),
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
}

/// How an image names its row.
#[derive(Clone, Debug, PartialEq)]
pub enum RowKey {
    /// By rowid. `name` is the SQL expression for the rowid (quoted); `alias` is the position of the INTEGER PRIMARY
    /// KEY column if there is one.
    Rowid { name: String, alias: Option<usize> },
    /// WITHOUT ROWID: positions of the primary key's columns among the stored ones.
    Columns(Vec<usize>),
}

/// A column that is stored: not a generated column of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredColumn {
    pub name: String,
    /// Position in the declaration, from 0, counting generated columns.
    pub index: u16,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableInfo {
    pub id: TableId,
    pub name: String,
    pub columns: Vec<StoredColumn>,
    /// Number of all columns, generated ones included.
    pub column_count: usize,
    pub key: RowKey,
    pub autoincrement: bool,
    /// Its keys that are locked in addition to the row, and whether it may be changed on a branch at all.
    pub locking: Locking,
    /// Positions of the primary key's columns in the key's order; none without a primary key.
    pub primary: Vec<usize>,
    /// What an update's image has in addition to what changed; `None` for a table that no publication has.
    pub carried: Option<Box<Carried>>,
    /// Which of its rows are a subscription's; `None` where none is, or all are.
    pub subscribed_rows: Option<Box<SubscribedRows>>,
}

impl TableInfo {
    /// Whether an image's key has the value of a stored column.
    pub fn has_in_key(&self, position: usize) -> bool {
        match &self.key {
            RowKey::Rowid { alias, .. } => *alias == Some(position),
            RowKey::Columns(key) => key.contains(&position),
        }
    }
}

/// All tables of a volume at one schema epoch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableMap {
    /// Raised by every schema change.
    pub epoch: u32,
    /// `sqlite_sequence` exists.
    pub has_sequences: bool,
    /// There are triggers, on tables or views.
    pub has_triggers: bool,
    /// There are tables that only the exclusive writer changes.
    pub has_exclusive: bool,
    tables: Vec<TableInfo>,
    by_name: HashMap<Vec<u8>, usize>,
    by_id: HashMap<TableId, usize>,
    objects: HashMap<String, TableId>,
}

impl TableMap {
    /// A table by its name as declared.
    pub fn by_name(&self, name: &[u8]) -> Option<&TableInfo> {
        self.by_name.get(name).map(|&i| &self.tables[i])
    }

    pub fn by_id(&self, id: TableId) -> Option<&TableInfo> {
        self.position(id).map(|i| &self.tables[i])
    }

    /// The index of a table in [`TableMap::tables`].
    pub fn position(&self, id: TableId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Real tables, including shadow tables, but neither views nor virtual tables.
    pub fn tables(&self) -> &[TableInfo] {
        &self.tables
    }

    /// The id of a table, view or virtual table.
    pub fn object(&self, name: &str) -> Option<TableId> {
        self.objects.get(name).copied()
    }
}

/// How far the trail has been applied to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub volume: VolumeId,
    /// Number of the last batch applied; the next one is this plus one.
    pub number: u64,
    /// Epoch in which that batch was written.
    pub epoch: Epoch,
    pub schema_epoch: u32,
}

/// Makes the internal tables in a new or just imported database, gives ids to the tables it has, and returns the map.
/// Runs within the caller's transaction.
pub fn create_internal_tables(conn: &mut Conn, volume: VolumeId) -> Result<TableMap, SchemaError> {
    conn.exec(
        "CREATE TABLE holdfast_meta(id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL,
             volume INTEGER NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL,
             schema_epoch INTEGER NOT NULL, next_table_id INTEGER NOT NULL);
         CREATE TABLE holdfast_tables(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    )?;
    conn.exec(&format!("INSERT INTO holdfast_meta VALUES(1, {VOLUME_FORMAT}, {volume}, 0, 0, 0, 1)"))?;
    end_ddl(conn, &ObjectsBefore::default())
}

/// Reads the only row of `holdfast_meta`.
pub fn read_position(conn: &mut Conn) -> Result<Position, SchemaError> {
    let missing = |e: SqliteError| SchemaError::NotAVolume(e.message);
    let rows = conn
        .query_rows("SELECT format, volume, number, epoch, schema_epoch FROM main.holdfast_meta WHERE id = 1")
        .map_err(missing)?;
    let [row] = rows.as_slice() else { return Err(SchemaError::NotAVolume("holdfast_meta is empty".into())) };
    let number = |i: usize| match row[i] {
        Value::Int(n) => Ok(n),
        _ => Err(SchemaError::NotAVolume("holdfast_meta holds a value that is not a number".into())),
    };
    if number(0)? != VOLUME_FORMAT {
        return Err(SchemaError::Format { found: number(0)? });
    }
    Ok(Position {
        volume: VolumeId(number(1)? as u32),
        number: number(2)? as u64,
        epoch: Epoch(number(3)? as u32),
        schema_epoch: number(4)? as u32,
    })
}

/// Tables, views and virtual tables with their root pages, before a schema change.
#[derive(Clone, Debug, Default)]
pub struct ObjectsBefore {
    objects: BTreeMap<String, i64>,
    columns: ColumnsBefore,
    published: ColumnsBefore,
    subscribed: ColumnsBefore,
}

/// Must be called before a statement that changes the schema.
pub fn begin_ddl(conn: &mut Conn) -> Result<ObjectsBefore, SqliteError> {
    let (columns, published) = (privileges::columns_before(conn)?, publications::columns_before(conn)?);
    let subscribed = subscriptions::columns_before(conn)?;
    Ok(ObjectsBefore { objects: read_objects(conn)?, columns, published, subscribed })
}

/// Must be called after a statement that changed the schema: raises the schema epoch, gives ids to new objects, and
/// returns the new map.
pub fn end_ddl(conn: &mut Conn, before: &ObjectsBefore) -> Result<TableMap, SchemaError> {
    refuse_attachments(conn)?;
    let now = read_objects(conn)?;
    reconcile(conn, &before.objects, &now)?;
    privileges::follow_schema(conn, &before.columns)?;
    publications::follow_schema(conn, &before.published)?;
    subscriptions::follow_schema(conn, &before.subscribed)?;
    conn.exec("UPDATE main.holdfast_meta SET schema_epoch = schema_epoch + 1 WHERE id = 1")?;
    let map = read_map(conn)?;
    let tables = map.tables.iter().map(|table| (table.id, table.name.as_str()));
    shapes::record(conn, map.epoch, tables)?;
    Ok(map)
}

/// Refuses a user's trigger or index on an internal table: a trigger there would run with every batch, after its
/// images are complete.
fn refuse_attachments(conn: &mut Conn) -> Result<(), SchemaError> {
    let sql = "SELECT name FROM (SELECT name, tbl_name, type FROM main.sqlite_schema
                         UNION ALL SELECT name, tbl_name, type FROM temp.sqlite_schema)
               WHERE type IN ('trigger', 'index') AND lower(substr(tbl_name, 1, 9)) = 'holdfast_'
                     AND substr(name, 1, 7) <> 'sqlite_'";
    match conn.query_value(sql)? {
        Value::Text(name) => Err(SchemaError::ReservedName(name)),
        _ => Ok(()),
    }
}

/// All objects that get an id. Statistics tables are included, because users may write to them.
fn read_objects(conn: &mut Conn) -> Result<BTreeMap<String, i64>, SqliteError> {
    let rows = conn.query_rows("SELECT name, rootpage FROM main.sqlite_schema WHERE type IN ('table', 'view')")?;
    let objects = rows.into_iter().filter_map(|row| match (&row[0], &row[1]) {
        (Value::Text(name), Value::Int(root)) => Some((name.clone(), *root)),
        (Value::Text(name), _) => Some((name.clone(), 0)),
        _ => None,
    });
    let named = |name: &str| {
        !INTERNAL_TABLES.contains(&name) && (!name.starts_with("sqlite_") || name.starts_with("sqlite_stat"))
    };
    Ok(objects.filter(|(name, _)| named(name)).collect())
}

/// Gives and removes ids by the table in the module's description.
fn reconcile(conn: &mut Conn, before: &BTreeMap<String, i64>, now: &BTreeMap<String, i64>) -> Result<(), SchemaError> {
    let gone: Vec<_> = before.iter().filter(|(name, _)| !now.contains_key(*name)).collect();
    let mut dropped: Vec<&String> = gone.iter().map(|(name, _)| *name).collect();
    let mut created = Vec::new();
    let rename = conn.prepare("UPDATE main.holdfast_tables SET name = ?2 WHERE name = ?1")?;
    for (name, root) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        if !is_audited(name.as_bytes()) {
            return Err(SchemaError::ReservedName(name.clone()));
        }
        let same_root: Vec<_> = gone.iter().filter(|(_, old)| *old == root).collect();
        match same_root.as_slice() {
            [(old, _)] => {
                conn.run_with(rename, &[ValueRef::Text(old.as_bytes()), ValueRef::Text(name.as_bytes())])?;
                dropped.retain(|name| name != old);
            }
            _ => created.push(name),
        }
    }
    conn.finalize(rename);
    let delete = conn.prepare("DELETE FROM main.holdfast_tables WHERE name = ?1")?;
    for name in dropped {
        conn.run_with(delete, &[ValueRef::Text(name.as_bytes())])?;
    }
    conn.finalize(delete);
    let insert =
        conn.prepare("INSERT INTO main.holdfast_tables SELECT next_table_id, ?1 FROM main.holdfast_meta WHERE id = 1")?;
    for name in created {
        conn.run_with(insert, &[ValueRef::Text(name.as_bytes())])?;
        conn.exec("UPDATE main.holdfast_meta SET next_table_id = next_table_id + 1 WHERE id = 1")?;
    }
    conn.finalize(insert);
    Ok(())
}

/// Reads the map from the volume.
pub fn read_map(conn: &mut Conn) -> Result<TableMap, SchemaError> {
    let mut map = TableMap { epoch: read_position(conn)?.schema_epoch, ..TableMap::default() };
    let rows = conn.query_rows(
        "SELECT t.id, t.name, coalesce(s.rootpage, 0) FROM main.holdfast_tables t
         JOIN main.sqlite_schema s ON s.name = t.name AND s.type IN ('table', 'view') ORDER BY t.id",
    )?;
    for row in rows {
        let [Value::Int(id), Value::Text(name), Value::Int(root)] = row.as_slice() else { continue };
        let id = TableId(*id as u32);
        map.objects.insert(name.clone(), id);
        if *root != 0 {
            map.by_name.insert(name.clone().into_bytes(), map.tables.len());
            map.by_id.insert(id, map.tables.len());
            map.tables.push(read_table(conn, id, name)?);
        }
    }
    take_added_keys(conn, &mut map)?;
    let sequences = "SELECT count(*) FROM main.sqlite_schema WHERE name = 'sqlite_sequence'";
    map.has_sequences = conn.query_value(sequences)? != Value::Int(0);
    let triggers = "SELECT count(*) FROM main.sqlite_schema WHERE type = 'trigger'";
    map.has_triggers = conn.query_value(triggers)? != Value::Int(0);
    map.has_exclusive = map.has_triggers || map.tables.iter().any(|t| t.locking.exclusive);
    for (child, parent) in locking::link(conn, &map)? {
        if let Some(position) = map.position(parent.table) {
            map.tables[position].locking.is_parent = true;
        }
        map.tables[child].locking.parents.push(parent);
    }
    let published = publications::read(conn, |id| id)?;
    for table in map.tables.iter_mut().filter(|table| !is_internal(table.name.as_bytes())) {
        let key = table.primary.iter().copied().filter(|&position| !table.has_in_key(position)).collect();
        let columns = table.columns.iter().map(|column| &column.name);
        table.carried = carried(&published, table.id.0, columns, key).map(Box::new);
    }
    let columns = |table: &TableInfo| table.columns.iter().map(|column| column.index).collect();
    let tables = map.tables.iter().map(|table| (table.id, table.name.as_str(), columns(table)));
    for (at, rows) in subscribed_rows::read(conn, tables)? {
        map.tables[at].subscribed_rows = Some(Box::new(rows));
    }
    Ok(map)
}

/// Takes the keys that SQLite shows as unique indexes only.
fn take_added_keys(conn: &mut Conn, map: &mut TableMap) -> Result<(), SchemaError> {
    for row in conn.query_rows(&shapes::added_keys())? {
        let [Value::Text(table), Value::Text(index), _] = row.as_slice() else { continue };
        let Some(at) = map.by_name.get(table.as_bytes()).copied().filter(|&at| map.tables[at].primary.is_empty())
        else {
            continue;
        };
        // seqno, cid, name
        let columns = conn.query_rows(&format!("PRAGMA main.index_info({})", quote(index)))?;
        let stored = &map.tables[at].columns;
        let position = |row: &Vec<Value>| match row.get(1) {
            Some(Value::Int(cid)) => stored.iter().position(|column| i64::from(column.index) == *cid),
            _ => None,
        };
        let key: Option<Vec<usize>> = columns.iter().map(position).collect();
        map.tables[at].primary = key.unwrap_or_default();
    }
    Ok(())
}

fn read_table(conn: &mut Conn, id: TableId, name: &str) -> Result<TableInfo, SchemaError> {
    // cid, name, type, notnull, dflt_value, pk, hidden (2 and 3: generated)
    let rows = conn.query_rows(&format!("PRAGMA main.table_xinfo({})", quote(name)))?;
    let mut columns = Vec::with_capacity(rows.len());
    let mut all_names = Vec::with_capacity(rows.len());
    let mut key_column = None;
    let mut primary_key_columns = Vec::new();
    for row in &rows {
        let (Value::Int(index), Value::Text(column)) = (&row[0], &row[1]) else { continue };
        all_names.push(column.to_ascii_lowercase());
        if !matches!(row[6], Value::Int(2 | 3)) {
            if row[5] == Value::Int(1) {
                key_column = Some(columns.len());
            }
            if let Value::Int(place @ 1..) = row[5] {
                primary_key_columns.push((place, columns.len()));
            }
            columns.push(StoredColumn { name: column.clone(), index: *index as u16 });
        }
    }
    primary_key_columns.sort_unstable();
    let stored_as = primary_key(conn, "main", name)?;
    let key = match (stored_as, key_column) {
        (Primary::WithoutRowid(indexes), _) => {
            let position = |index| columns.iter().position(|c| i64::from(c.index) == index);
            RowKey::Columns(indexes.into_iter().filter_map(position).collect())
        }
        (Primary::Rowid, Some(position)) => {
            RowKey::Rowid { name: quote(&columns[position].name), alias: Some(position) }
        }
        (Primary::Rowid | Primary::Other, _) => {
            let free = ["rowid", "_rowid_", "oid"].into_iter().find(|n| !all_names.iter().any(|column| column == n));
            let free = free.ok_or_else(|| SchemaError::NoRowidName(name.into()))?;
            RowKey::Rowid { name: free.into(), alias: None }
        }
    };
    let autoincrement = match &key {
        RowKey::Rowid { alias: Some(position), .. } => conn.is_autoincrement("main", name, &columns[*position].name)?,
        _ => false,
    };
    let mut locking = locking::read(conn, name)?;
    // The hook does not show generated columns: only the writer enforces keys that have one.
    let keys = locking.unique.len();
    locking.unique.retain(|key| key.columns.iter().all(|(c, _)| columns.iter().any(|stored| stored.index == *c)));
    locking.has_open_keys |= locking.unique.len() < keys;
    let primary = primary_key_columns.into_iter().map(|(_, position)| position).collect();
    let (name, column_count) = (name.into(), rows.len());
    Ok(TableInfo {
        id,
        name,
        column_count,
        columns,
        key,
        autoincrement,
        locking,
        primary,
        carried: None,
        subscribed_rows: None,
    })
}

/// How a table stores its primary key.
pub(crate) enum Primary {
    /// The rowid itself, when the table has a primary key at all.
    Rowid,
    /// An index in addition to the rowid.
    Other,
    /// The table's own b-tree, with the declared positions of the key's columns.
    WithoutRowid(Vec<i64>),
}

pub(crate) fn primary_key(conn: &mut Conn, schema: &str, name: &str) -> Result<Primary, SqliteError> {
    // index_info of a table's own name lists the key of a WITHOUT ROWID table, and nothing for any other table
    // (sqlite.org/withoutrowid.html).
    let own = conn.query_rows(&format!("PRAGMA {schema}.index_info({})", quote(name)))?;
    if !own.is_empty() {
        let index = |row: &Vec<Value>| if let Value::Int(cid) = row[1] { Some(cid) } else { None };
        return Ok(Primary::WithoutRowid(own.iter().filter_map(index).collect()));
    }
    let indexes = conn.query_rows(&format!("PRAGMA {schema}.index_list({})", quote(name)))?;
    let beside = indexes.iter().any(|row| row[3] == Value::Text("pk".into()));
    Ok(if beside { Primary::Other } else { Primary::Rowid })
}
