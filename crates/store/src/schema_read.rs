//! Reads a volume's schema for the dialect and the catalogue.
//!
//! Objects that are not the user's are left out: internal tables, `sqlite_...`, shadow tables of virtual tables.
//! Listing the columns of a virtual table opens it, so this runs on a reader's connection, never on one that applies
//! images.
//!
//! OIDs: a table's OID is [`FIRST_OID`] plus its stable id. An index's OID is above [`FIRST_INDEX_OID`] and made of its
//! table's id and its number among the table's indexes in order of creation.
//!
//! Failure: a view over an object that no longer exists has no columns; the rest is read all the same.

use crate::privileges;
use crate::publications;
use crate::schema_map::{RowKey, TableMap, is_internal};
use crate::sqlite::{Conn, SqliteError};
use crate::subscriptions;
use holdfast_types::quoting::quote;
use holdfast_types::schema::{Column, ForeignKey, Index, Schema, Table, TableKind, Trigger};
use holdfast_types::{TableId, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// PostgreSQL's first OID for user objects.
pub const FIRST_OID: u32 = 16384;
/// OIDs of tables are below this one.
pub const FIRST_INDEX_OID: u32 = 1 << 30;
const MAIN: &str = "main";
/// Number of OIDs set aside for the indexes of one table.
const INDEXES_A_TABLE: u32 = 256;

/// Reads all user-visible objects of the main database; `map` must have the same schema epoch.
pub fn read_schema(conn: &mut Conn, map: &TableMap) -> Result<Schema, SqliteError> {
    let texts = read_texts(conn, MAIN)?;
    let mut triggers = read_triggers(conn)?;
    let mut schema = Schema { epoch: map.epoch, ..Schema::default() };
    // schema, name, type, ncol, wr, strict
    for row in conn.query_rows("PRAGMA main.table_list")? {
        let (name, kind) = (text(&row[1]), text(&row[2]));
        let kind = match kind.as_str() {
            "table" => TableKind::Table,
            "view" => TableKind::View,
            "virtual" => TableKind::Virtual,
            _ => continue,
        };
        let Some(id) = map.object(&name).filter(|_| !name.starts_with("sqlite_") && !is_internal(name.as_bytes()))
        else {
            continue;
        };
        let is_table = kind == TableKind::Table;
        let table = Table {
            oid: FIRST_OID + id.0,
            kind,
            without_rowid: row[4] == Value::Int(1),
            sql: texts.get(&name).cloned().unwrap_or_default(),
            columns: read_columns(conn, &name, id, map)?,
            indexes: if is_table { read_indexes(conn, MAIN, &name, id, &texts)? } else { Vec::new() },
            foreign_keys: if is_table { read_foreign_keys(conn, MAIN, &name)? } else { Vec::new() },
            temp: false,
            triggers: triggers.remove(&name.to_ascii_lowercase()).unwrap_or_default(),
            key_name: String::new(),
            name,
        };
        schema.tables.push(Arc::new(table.with_definition()));
    }
    schema.grants = Arc::new(privileges::read(conn, |id| FIRST_OID + id)?);
    schema.publications = Arc::new(publications::read(conn, |id| FIRST_OID + id)?);
    schema.subscriptions = Arc::new(subscriptions::read(conn, |id| FIRST_OID + id)?);
    schema.tables.sort_by_key(|table| table.oid);
    schema.by_name = schema.tables.iter().enumerate().map(|(i, t)| (t.name.to_ascii_lowercase(), i)).collect();
    Ok(schema)
}

/// CREATE statements by name. Names are unique over the tables, views and indexes of one schema.
pub(crate) fn read_texts(conn: &mut Conn, schema: &str) -> Result<HashMap<String, String>, SqliteError> {
    let sql = format!("SELECT name, sql FROM {schema}.sqlite_schema WHERE type <> 'trigger' AND sql IS NOT NULL");
    let rows = conn.query_rows(&sql)?;
    Ok(rows.iter().map(|row| (text(&row[0]), text(&row[1]))).collect())
}

/// Triggers by the lower-case name of their table or view.
fn read_triggers(conn: &mut Conn) -> Result<HashMap<String, Vec<Trigger>>, SqliteError> {
    let sql = "SELECT lower(tbl_name), name, sql FROM main.sqlite_schema WHERE type = 'trigger' ORDER BY rowid";
    let mut triggers: HashMap<String, Vec<Trigger>> = HashMap::new();
    for row in conn.query_rows(sql)? {
        let trigger = Trigger { name: text(&row[1]), sql: text(&row[2]) };
        triggers.entry(text(&row[0])).or_default().push(trigger);
    }
    Ok(triggers)
}

fn read_columns(conn: &mut Conn, name: &str, id: TableId, map: &TableMap) -> Result<Vec<Column>, SqliteError> {
    let info = map.by_id(id);
    let alias = info.and_then(|info| match &info.key {
        RowKey::Rowid { alias: Some(position), .. } => info.columns.get(*position).map(|column| column.name.as_str()),
        _ => None,
    });
    let rows = match conn.query_rows(&format!("PRAGMA main.table_xinfo({})", quote(name))) {
        Ok(rows) => rows,
        // This is a view or virtual table that cannot be resolved; see the module's description.
        Err(_) if info.is_none() => Vec::new(),
        Err(error) => return Err(error),
    };
    let autoincrement = info.is_some_and(|info| info.autoincrement);
    Ok(columns(&rows, alias, autoincrement))
}

/// Makes columns from the rows of table_xinfo: cid, name, type, notnull, dflt_value, pk, hidden (1: hidden column of a
/// virtual table; 2: generated, virtual; 3: generated, stored).
pub(crate) fn columns(rows: &[Vec<Value>], alias: Option<&str>, autoincrement: bool) -> Vec<Column> {
    let column = |row: &Vec<Value>| {
        let name = text(&row[1]);
        let rowid_alias = alias == Some(name.as_str());
        Column {
            decl_type: text(&row[2]),
            not_null: row[3] == Value::Int(1),
            default: if row[4] == Value::Null { None } else { Some(text(&row[4])) },
            pk: int(&row[5]) as u32,
            rowid_alias,
            autoincrement: rowid_alias && autoincrement,
            generated: matches!(row[6], Value::Int(2 | 3)),
            generated_virtual: row[6] == Value::Int(2),
            name,
        }
    };
    rows.iter().filter(|row| row[6] != Value::Int(1)).map(column).collect()
}

/// The indexes that SQLite has, in order of creation. A primary key that is the rowid has no index.
pub(crate) fn read_indexes(
    conn: &mut Conn,
    schema: &str,
    table: &str,
    id: TableId,
    texts: &HashMap<String, String>,
) -> Result<Vec<Index>, SqliteError> {
    // seq, name, unique, origin, partial; the newest comes first
    let rows = conn.query_rows(&format!("PRAGMA {schema}.index_list({})", quote(table)))?;
    let mut indexes = Vec::with_capacity(rows.len());
    for (place, row) in rows.iter().rev().enumerate() {
        let name = text(&row[1]);
        // seqno, cid (-2 for an expression), name
        let columns = conn.query_rows(&format!("PRAGMA {schema}.index_info({})", quote(&name)))?;
        let columns = columns.iter().map(|c| if let Value::Text(name) = &c[2] { Some(name.clone()) } else { None });
        indexes.push(Index {
            oid: FIRST_INDEX_OID.wrapping_add(id.0.wrapping_mul(INDEXES_A_TABLE)).wrapping_add(place as u32),
            unique: row[2] == Value::Int(1),
            primary: text(&row[3]) == "pk",
            columns: columns.collect(),
            sql: texts.get(&name).cloned(),
            name,
        });
    }
    Ok(indexes)
}

pub(crate) fn read_foreign_keys(conn: &mut Conn, schema: &str, table: &str) -> Result<Vec<ForeignKey>, SqliteError> {
    // id (0 is the last declared), seq, table, from, to, on_update, on_delete, match
    let mut keys: BTreeMap<i64, ForeignKey> = BTreeMap::new();
    for row in conn.query_rows(&format!("PRAGMA {schema}.foreign_key_list({})", quote(table)))? {
        let key = keys.entry(-int(&row[0])).or_insert_with(|| ForeignKey {
            parent: text(&row[2]),
            on_update: text(&row[5]),
            on_delete: text(&row[6]),
            ..ForeignKey::default()
        });
        key.columns.push(text(&row[3]));
        key.parent_columns.push(if let Value::Text(to) = &row[4] { Some(to.clone()) } else { None });
    }
    Ok(keys.into_values().collect())
}

pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    }
}

fn int(value: &Value) -> i64 {
    match value {
        Value::Int(n) => *n,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;

    #[test]
    fn a_schema_as_a_person_sees_it() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(
            "CREATE TABLE parent(id INTEGER PRIMARY KEY AUTOINCREMENT, name VARCHAR(20) NOT NULL DEFAULT 'x' UNIQUE);
             CREATE TABLE Child(a, b REFERENCES parent ON DELETE CASCADE, c AS (a + 1), PRIMARY KEY(b, a),
                 FOREIGN KEY(a) REFERENCES parent(id)) WITHOUT ROWID;
             CREATE UNIQUE INDEX child_expr ON child(a + 1, b);
             CREATE VIEW good AS SELECT id AS n FROM parent;
             CREATE VIEW broken AS SELECT * FROM gone;
             CREATE TRIGGER tr AFTER INSERT ON CHILD BEGIN SELECT 1; END;
             CREATE VIRTUAL TABLE words USING fts5(title)",
        )
        .unwrap();
        let map = create_internal_tables(&mut c, VolumeId(1)).unwrap();
        let schema = read_schema(&mut c, &map).unwrap();
        let mut names: Vec<_> = schema.tables.iter().map(|t| (t.name.as_str(), t.kind)).collect();
        names.sort_by_key(|(name, _)| name.to_lowercase());
        use TableKind::{Table, View, Virtual};
        assert_eq!(names, [("broken", View), ("Child", Table), ("good", View), ("parent", Table), ("words", Virtual)]);
        let parent = schema.table("PARENT").unwrap();
        assert!(parent.columns[0].rowid_alias && parent.columns[0].autoincrement && parent.columns[0].pk == 1);
        assert_eq!(parent.columns[1].decl_type, "VARCHAR(20)");
        assert_eq!(parent.columns[1].default.as_deref(), Some("'x'"));
        assert_eq!(parent.oid, FIRST_OID + map.object("parent").unwrap().0);
        let child = schema.table("child").unwrap();
        assert!(child.without_rowid && child.columns[2].generated && child.triggers.len() == 1);
        let indexes: Vec<_> = child.indexes.iter().map(|i| (i.primary, i.unique, i.columns.clone())).collect();
        let names = |names: &[Option<&str>]| names.iter().map(|n| n.map(String::from)).collect::<Vec<_>>();
        assert_eq!(indexes, [(true, true, names(&[Some("b"), Some("a")])), (false, true, names(&[None, Some("b")]))]);
        let keys: Vec<_> = child.foreign_keys.iter().map(|k| (k.columns[0].as_str(), k.on_delete.as_str())).collect();
        assert_eq!(keys, [("b", "CASCADE"), ("a", "NO ACTION")]);
        assert_eq!(schema.table("good").unwrap().columns[0].name, "n");
        assert!(schema.table("broken").unwrap().columns.is_empty());
        assert_eq!(schema.table("words").unwrap().columns.len(), 1);
    }
}
