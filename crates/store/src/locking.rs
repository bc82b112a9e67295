//! What is locked and versioned when a row changes: its own address, its unique keys, and the parents it refers to.
//! Every lock is a hash of what it stands for. When two things have the same hash, they wait for each other needlessly,
//! and nothing worse happens.
//!
//! | change | locked | must not have changed since the snapshot | counts as changed afterwards |
//! |---|---|---|---|
//! | insert | the row `Update` | the row | row, existence |
//! | delete, key change | the row `Update` | the row, references to it | row, existence |
//! | update that leaves keys alone | the row `NoKeyUpdate` | the row | row |
//! | a unique key appears or disappears | the key `Update` | the key, references to it | key |
//! | a reference appears | the parent's row or key, `KeyShare` | its existence, or the key | references |
//!
//! Keys are normalised the way a UNIQUE index compares (RULE 22): 1 and 1.0 are the same key, NOCASE and RTRIM are
//! applied, and a key with a NULL is not a key. Indexes on expressions and partial indexes are left to the writer, which
//! enforces them when a transaction is merged.

use crate::schema_map::{RowKey, TableInfo, TableMap};
use crate::sqlite::{ChangeKind, Conn, RowChange, SqliteError};
use holdfast_types::quoting::quote;
use holdfast_types::{LockStrength, TableId, Value, ValueRef};
use std::os::raw::c_int;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// What a hash stands for. The last three carry versions only, never locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    Row,
    Key,
    /// The row was inserted or deleted, or its key changed.
    Existence,
    /// A reference to the row was added.
    RowReferences,
    /// A reference to the key was added.
    KeyReferences,
}

/// One thing a change touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    pub class: Class,
    pub table: TableId,
    pub hash: u64,
    /// Unique keys use the weakest and the strongest.
    pub mode: LockStrength,
    /// Versions with this table and hash that must be no newer than the snapshot.
    pub checks: &'static [Class],
    /// Versions that the change raises.
    pub raises: &'static [Class],
}

/// How a table takes part in locking.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Locking {
    pub unique: Vec<UniqueKey>,
    pub parents: Vec<Parent>,
    /// Some foreign key refers to it.
    pub is_parent: bool,
    /// It has triggers, or belongs to a virtual table: its writers run as the exclusive writer.
    pub exclusive: bool,
    /// It has unique keys that are not locked and are only enforced at COMMIT: partial ones, and those over expressions
    /// or generated columns.
    pub has_open_keys: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collation {
    Binary,
    NoCase,
    RTrim,
}

/// A UNIQUE or PRIMARY KEY index over plain columns.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueKey {
    /// Distinguishes it from the table's other keys.
    pub seed: u64,
    /// Each column's position in the declaration, and how it compares.
    pub columns: Vec<(u16, Collation)>,
}

/// A foreign key of this table, and what it refers to.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent {
    pub table: TableId,
    /// This table's columns, in the order of the parent's key.
    pub columns: Vec<(u16, Collation)>,
    /// The parent's unique key; `None` for its rowid.
    pub seed: Option<u64>,
}

/// Reads a column of the row, before or after the change, or fails with SQLite's result code.
type Get<'a, 'v> = &'a dyn Fn(u16) -> Result<ValueRef<'v>, c_int>;

/// Hash of a key; `None` when one of its values is NULL.
pub fn key_hash<'v>(seed: u64, columns: &[(u16, Collation)], get: Get<'_, 'v>) -> Result<Option<u64>, c_int> {
    let mut bytes = Vec::with_capacity(32);
    for (column, collation) in columns {
        if !put_normal(&mut bytes, get(*column)?, *collation) {
            return Ok(None);
        }
    }
    Ok(Some(xxh3_64_with_seed(&bytes, seed)))
}

/// Hash of a row of a WITHOUT ROWID table by the values of its primary key, in the order of [`RowKey::Columns`].
pub fn row_hash<'v>(values: impl Iterator<Item = ValueRef<'v>>) -> u64 {
    let mut bytes = Vec::with_capacity(32);
    values.for_each(|v| {
        put_normal(&mut bytes, v, Collation::Binary);
    });
    xxh3_64(&bytes)
}

/// A rowid is its own hash.
pub fn rowid_hash(rowid: i64) -> u64 {
    rowid as u64
}

/// Appends a normalised value. Returns false for NULL.
fn put_normal(bytes: &mut Vec<u8>, value: ValueRef<'_>, collation: Collation) -> bool {
    match value {
        ValueRef::Null => return false,
        ValueRef::Int(i) => put_number(bytes, i),
        ValueRef::Real(r) if r.fract() == 0.0 && r.abs() < 9.0e18 => put_number(bytes, r as i64),
        ValueRef::Real(r) => {
            bytes.push(2);
            bytes.extend_from_slice(&r.to_bits().to_le_bytes());
        }
        ValueRef::Text(text) => put_text(bytes, text, collation),
        ValueRef::Blob(blob) => put_bytes(bytes, 4, blob),
    }
    true
}

fn put_number(bytes: &mut Vec<u8>, i: i64) {
    bytes.push(1);
    bytes.extend_from_slice(&i.to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8], collation: Collation) {
    match collation {
        Collation::Binary => put_bytes(bytes, 3, text),
        Collation::NoCase => put_bytes(bytes, 3, &text.to_ascii_lowercase()),
        Collation::RTrim => {
            let end = text.iter().rposition(|b| *b != b' ').map_or(0, |i| i + 1);
            put_bytes(bytes, 3, &text[..end]);
        }
    }
}

fn put_bytes(bytes: &mut Vec<u8>, tag: u8, content: &[u8]) {
    bytes.push(tag);
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(content);
}

/// Lists what a change touches, as in the module's table. Fails with SQLite's code when a value cannot be read.
pub fn touches(table: &TableInfo, change: &RowChange<'_>, out: &mut Vec<Touch>) -> Result<(), c_int> {
    let before = |column: u16| change.before(column);
    let after = |column: u16| change.after(column);
    let old = match change.kind() {
        ChangeKind::Insert => None,
        _ => Some(row_of(table, change.old_rowid(), &before)?),
    };
    let new = match change.kind() {
        ChangeKind::Delete => None,
        _ => Some(row_of(table, change.new_rowid(), &after)?),
    };
    let start = out.len();
    let mut keys_change = old != new;
    for key in &table.locking.unique {
        let then = old.map_or(Ok(None), |_| key_hash(key.seed, &key.columns, &before))?;
        let now = new.map_or(Ok(None), |_| key_hash(key.seed, &key.columns, &after))?;
        if then != now {
            keys_change = true;
            out.extend(then.into_iter().chain(now).map(|hash| key_touch(table, hash)));
        }
    }
    let rows = old.into_iter().chain(new.filter(|n| Some(*n) != old));
    let first: Vec<Touch> = rows.map(|hash| row_touch(table, hash, keys_change, old.is_some())).collect();
    // The row before its keys: the order in which PostgreSQL takes them.
    out.splice(start..start, first);
    if new.is_some() {
        for parent in &table.locking.parents {
            let seed = parent.seed.unwrap_or_default();
            let now = reference(parent, seed, &after)?;
            let then = old.map_or(Ok(None), |_| reference(parent, seed, &before))?;
            out.extend(now.filter(|_| now != then).map(|hash| parent_touch(parent, hash)));
        }
    }
    Ok(())
}

fn row_of(table: &TableInfo, rowid: i64, get: Get<'_, '_>) -> Result<u64, c_int> {
    let RowKey::Columns(positions) = &table.key else { return Ok(rowid_hash(rowid)) };
    let values: Result<Vec<ValueRef<'_>>, c_int> = positions.iter().map(|&p| get(table.columns[p].index)).collect();
    Ok(row_hash(values?.into_iter()))
}

fn reference(parent: &Parent, seed: u64, get: Get<'_, '_>) -> Result<Option<u64>, c_int> {
    if parent.seed.is_some() {
        return key_hash(seed, &parent.columns, get);
    }
    let [(column, _)] = parent.columns.as_slice() else { return Ok(None) };
    Ok(match get(*column)? {
        ValueRef::Int(rowid) => Some(rowid_hash(rowid)),
        // Any other value refers to no row, or to one that the writer will look up.
        _ => None,
    })
}

fn row_touch(table: &TableInfo, hash: u64, keys_change: bool, existed: bool) -> Touch {
    let is_parent = table.locking.is_parent;
    let mode = if keys_change { LockStrength::Update } else { LockStrength::NoKeyUpdate };
    let checks: &[Class] =
        if keys_change && existed && is_parent { &[Class::Row, Class::RowReferences] } else { &[Class::Row] };
    let raises: &[Class] = if keys_change && is_parent { &[Class::Row, Class::Existence] } else { &[Class::Row] };
    Touch { class: Class::Row, table: table.id, hash, mode, checks, raises }
}

fn key_touch(table: &TableInfo, hash: u64) -> Touch {
    let checks: &[Class] = if table.locking.is_parent { &[Class::Key, Class::KeyReferences] } else { &[Class::Key] };
    Touch { class: Class::Key, table: table.id, hash, mode: LockStrength::Update, checks, raises: &[Class::Key] }
}

fn parent_touch(parent: &Parent, hash: u64) -> Touch {
    let (class, checks, raises): (Class, &[Class], &[Class]) = match parent.seed {
        None => (Class::Row, &[Class::Existence], &[Class::RowReferences]),
        Some(_) => (Class::Key, &[Class::Key], &[Class::KeyReferences]),
    };
    Touch { class, table: parent.table, hash, mode: LockStrength::KeyShare, checks, raises }
}

fn text(value: &Value) -> &str {
    if let Value::Text(t) = value { t } else { "" }
}

fn int(value: &Value) -> i64 {
    if let Value::Int(i) = value { *i } else { 0 }
}

/// Reads a table's keys. [`link`] adds the references when all tables are known.
pub(crate) fn read(conn: &mut Conn, table: &str) -> Result<Locking, SqliteError> {
    let mut locking = Locking::default();
    // seq, name, unique, origin, partial
    for index in conn.query_rows(&format!("PRAGMA main.index_list({})", quote(table)))? {
        if int(&index[2]) == 0 {
            continue;
        }
        if int(&index[4]) != 0 {
            locking.has_open_keys = true;
            continue;
        }
        // seqno, cid, name, desc, coll, key
        let parts = conn.query_rows(&format!("PRAGMA main.index_xinfo({})", quote(text(&index[1]))))?;
        let columns: Option<Vec<(u16, Collation)>> = parts
            .iter()
            .filter(|part| int(&part[5]) == 1)
            .map(|part| Some((u16::try_from(int(&part[1])).ok()?, collation(text(&part[4]))?)))
            .collect();
        match columns {
            Some(columns) => {
                locking.unique.push(UniqueKey { seed: xxh3_64(text(&index[1]).as_bytes()) | 1, columns });
            }
            None => locking.has_open_keys = true,
        }
    }
    let sql = format!(
        "SELECT EXISTS(SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = '{0}' COLLATE NOCASE)
             OR EXISTS(SELECT 1 FROM pragma_table_list WHERE schema = 'main' AND name = '{0}' AND type = 'shadow')",
        table.replace('\'', "''")
    );
    locking.exclusive = conn.query_value(&sql)? != Value::Int(0);
    Ok(locking)
}

fn collation(name: &str) -> Option<Collation> {
    match name.to_ascii_uppercase().as_str() {
        "BINARY" => Some(Collation::Binary),
        "NOCASE" => Some(Collation::NoCase),
        "RTRIM" => Some(Collation::RTrim),
        _ => None,
    }
}

/// A foreign key as PRAGMA foreign_key_list reports it, with its columns in order.
struct Found {
    parent: TableId,
    from: Vec<String>,
    to: Vec<String>,
}

/// Finds which table refers to which key of which other table.
pub(crate) fn link(conn: &mut Conn, map: &TableMap) -> Result<Vec<(usize, Parent)>, SqliteError> {
    let mut links = Vec::new();
    for (i, table) in map.tables().iter().enumerate() {
        for found in foreign_keys(conn, map, &table.name)? {
            let Some(parent) = map.by_id(found.parent) else { continue };
            links.extend(resolve(table, parent, &found).map(|p| (i, p)));
        }
    }
    Ok(links)
}

fn foreign_keys(conn: &mut Conn, map: &TableMap, table: &str) -> Result<Vec<Found>, SqliteError> {
    let mut found: Vec<(i64, Found)> = Vec::new();
    // id, seq, table, from, to, ...
    for row in conn.query_rows(&format!("PRAGMA main.foreign_key_list({})", quote(table)))? {
        let wanted = text(&row[2]);
        let Some(parent) = map.tables().iter().find(|t| t.name.eq_ignore_ascii_case(wanted)) else { continue };
        if found.last().is_none_or(|(id, _)| *id != int(&row[0])) {
            found.push((int(&row[0]), Found { parent: parent.id, from: Vec::new(), to: Vec::new() }));
        }
        if let Some((_, last)) = found.last_mut() {
            last.from.push(text(&row[3]).to_owned());
            last.to.extend(matches!(row[4], Value::Text(_)).then(|| text(&row[4]).to_owned()));
        }
    }
    Ok(found.into_iter().map(|(_, f)| f).collect())
}

fn column_of(table: &TableInfo, name: &str) -> Option<u16> {
    table.columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)).map(|c| c.index)
}

/// Resolves a foreign key to the parent's key: its rowid, or one of its unique keys.
fn resolve(child: &TableInfo, parent: &TableInfo, found: &Found) -> Option<Parent> {
    let from: Vec<u16> = found.from.iter().filter_map(|name| column_of(child, name)).collect();
    let alias = match &parent.key {
        RowKey::Rowid { alias: Some(p), .. } => Some(parent.columns[*p].index),
        _ => None,
    };
    let to: Vec<u16> = found.to.iter().filter_map(|name| column_of(parent, name)).collect();
    if from.len() == 1 && (to.is_empty() || to.first().copied() == alias) && alias.is_some() {
        return Some(Parent { table: parent.id, columns: vec![(from[0], Collation::Binary)], seed: None });
    }
    let wanted = |key: &&UniqueKey| {
        key.columns.len() == from.len() && (to.is_empty() || key.columns.iter().all(|(c, _)| to.contains(c)))
    };
    let key = parent.locking.unique.iter().find(wanted)?;
    let columns = key.columns.iter().enumerate().map(|(i, (column, collation))| {
        let at = to.iter().position(|c| c == column).unwrap_or(i);
        (from[at], *collation)
    });
    Some(Parent { table: parent.id, columns: columns.collect(), seed: Some(key.seed) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;

    fn map(schema: &str) -> TableMap {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec(schema).unwrap();
        create_internal_tables(&mut conn, VolumeId(1)).unwrap()
    }

    fn hash(collation: Collation, value: Value) -> Option<u64> {
        key_hash(7, &[(0, collation)], &|_| Ok(value.as_ref())).unwrap()
    }

    #[test]
    fn keys_compare_as_an_index_does() {
        use Collation::*;
        let text = |t: &str| Value::Text(t.into());
        assert_eq!(hash(Binary, Value::Int(1)), hash(Binary, Value::Real(1.0)));
        assert_ne!(hash(Binary, Value::Int(1)), hash(Binary, Value::Real(1.5)));
        assert_ne!(hash(Binary, Value::Int(1)), hash(Binary, text("1")));
        assert_eq!(hash(NoCase, text("Ab")), hash(NoCase, text("aB")));
        assert_ne!(hash(Binary, text("Ab")), hash(Binary, text("aB")));
        assert_eq!(hash(RTrim, text("a  ")), hash(RTrim, text("a")));
        assert_eq!(hash(Binary, Value::Null), None);
        let two = |a: &str, b: &str| {
            let get = |c: u16| Ok(ValueRef::Text(if c == 0 { a.as_bytes() } else { b.as_bytes() }));
            key_hash(7, &[(0, Binary), (1, Binary)], &get).unwrap()
        };
        assert_ne!(two("a", "bc"), two("ab", "c"));
    }

    #[test]
    fn a_foreign_key_names_the_rowid_or_a_unique_key() {
        let m = map(
            "create table p(id integer primary key, a, b, unique(a, b));
             create table c1(p references p); create table c2(x, y, foreign key(y, x) references p(b, a));
             create table c3(p references p(id)); create table t(x); create trigger tr after insert on t begin select 1; end",
        );
        let of = |name: &str| m.by_name(name.as_bytes()).unwrap().locking.clone();
        let p = m.by_name(b"p").unwrap();
        assert!(of("p").is_parent && !of("c1").is_parent);
        let by_rowid = vec![Parent { table: p.id, columns: vec![(0, Collation::Binary)], seed: None }];
        assert_eq!((of("c1").parents, of("c3").parents), (by_rowid.clone(), by_rowid));
        let columns = vec![(0, Collation::Binary), (1, Collation::Binary)];
        assert_eq!(of("c2").parents, [Parent { table: p.id, columns, seed: Some(of("p").unique[0].seed) }]);
        assert!(of("t").exclusive && !of("p").exclusive && m.has_triggers && !m.tables().is_empty());
    }
}
