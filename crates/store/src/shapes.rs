//! The internal table `holdfast_shapes`: what each published table was, and what publications took of it, from which schema
//! epoch on. A subscriber that lags reads changes of an earlier schema, and of earlier publications; the feed describes and
//! filters each change as it was at its place in the trail.
//!
//! | column | content |
//! |---|---|
//! | `object` | the table's stable id |
//! | `epoch` | the schema epoch of the database from which on the row counts |
//! | `name` | the table's name; empty where it is no longer published, or dropped |
//! | `definition` | its CREATE TABLE, and behind it the CREATE INDEX of a primary key that was added later; empty as well then |
//! | `published` | the text of an array, five elements for each publication that has the table, in the order of their numbers: number, name, options (as in `holdfast_publications`), columns (as there; NULL for all), filter (NULL for none) |
//!
//! [`record`] writes rows after each schema change, for tables that differ from their last row. Redo repeats that: a row depends on
//! the schema alone. The table is made by the first statement about a publication or a slot; while it does not exist nothing is
//! recorded, so that redo of an earlier release's trail ends with that release's schema.
//!
//! Failure: a row that cannot be read is damage; the feed ends.

use crate::names::{SHAPES_TABLE, is_internal};
use crate::privileges::{damaged_table, exists};
use crate::publications;
use crate::sqlite::{Conn, SqliteError};
use holdfast_types::array::Array;
use holdfast_types::definition::PRIMARY_MARK;
use holdfast_types::publication::{Publication, PublicationOptions, Publications, PublishedTable};
use holdfast_types::{TableId, Value, ValueRef};
use std::collections::{BTreeMap, HashMap};

/// Creates the table where it does not exist.
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS main.holdfast_shapes(object INTEGER NOT NULL, epoch INTEGER NOT NULL, \
     name TEXT NOT NULL, definition TEXT NOT NULL, published TEXT NOT NULL, PRIMARY KEY(object, epoch)) WITHOUT ROWID";

/// The tables that SQLite's own virtual tables keep their contents in, by module: `NAME_SUFFIX`.
const SHADOWS: [(&str, &[&str]); 5] = [
    ("fts5", &["data", "idx", "content", "docsize", "config"]),
    ("rtree", &["node", "parent", "rowid"]),
    ("geopoly", &["node", "parent", "rowid"]),
    ("fts4", &["content", "segments", "segdir", "docsize", "stat"]),
    ("fts3", &["content", "segments", "segdir"]),
];

/// What one publication takes of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The publication's number, name and options.
    pub number: u32,
    pub publication: String,
    pub options: PublicationOptions,
    /// Names; `None`: all columns.
    pub columns: Option<Vec<String>>,
    /// The condition on a row in SQLite's SQL, in parentheses.
    pub filter: Option<String>,
}

/// A published table from one schema epoch on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    pub table: TableId,
    pub epoch: u32,
    pub name: String,
    /// Its CREATE TABLE, and the index of a primary key that was added later.
    pub definition: String,
    pub taken: Vec<Taken>,
}

/// The shapes of a database, by table, each with those of later epochs behind it. `None`: published no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes(HashMap<TableId, BTreeMap<u32, Option<Shape>>>);

impl Shapes {
    /// What a table was at a schema epoch; `None` if it was in no publication.
    pub fn at(&self, table: TableId, epoch: u32) -> Option<&Shape> {
        self.0.get(&table)?.range(..=epoch).next_back()?.1.as_ref()
    }
}

/// Writes what differs from the last rows, within the transaction of the schema change. `epoch` is the new schema epoch, `tables`
/// are all real tables of the database.
pub(crate) fn record<'t>(
    conn: &mut Conn,
    epoch: u32,
    tables: impl Iterator<Item = (TableId, &'t str)>,
) -> Result<(), SqliteError> {
    if !exists(conn, SHAPES_TABLE)? {
        return Ok(());
    }
    let now = shapes_now(conn, tables)?;
    let mut last: BTreeMap<i64, [String; 3]> = BTreeMap::new();
    let sql = "SELECT object, name, definition, published, max(epoch) FROM main.holdfast_shapes GROUP BY object";
    for row in conn.query_rows(sql)? {
        let [Value::Int(object), Value::Text(name), Value::Text(definition), Value::Text(published), _] =
            row.as_slice()
        else {
            return Err(damaged("a row has values of other types"));
        };
        last.insert(*object, [name.clone(), definition.clone(), published.clone()]);
    }
    let insert = conn.prepare("INSERT INTO main.holdfast_shapes VALUES(?1, ?2, ?3, ?4, ?5)")?;
    let none = [const { String::new() }; 3];
    let gone = last.iter().filter(|(object, row)| !now.contains_key(object) && !row[0].is_empty());
    let changed = now.iter().filter(|(object, row)| last.get(object) != Some(row));
    let rows: Vec<(i64, &[String; 3])> =
        gone.map(|(object, _)| (*object, &none)).chain(changed.map(|(object, row)| (*object, row))).collect();
    for (object, [name, definition, published]) in rows {
        let text = |text: &'_ String| Value::Text(text.clone());
        let values = [Value::Int(object), Value::Int(epoch.into()), text(name), text(definition), text(published)];
        let values: Vec<ValueRef<'_>> = values.iter().map(Value::as_ref).collect();
        conn.run_with(insert, &values)?;
    }
    conn.finalize(insert);
    Ok(())
}

/// The unique indexes that are primary keys which were added later.
pub(crate) fn added_keys() -> String {
    format!(
        "SELECT tbl_name, name, sql FROM main.sqlite_schema WHERE type = 'index' AND (instr(sql, '{PRIMARY_MARK}') \
         OR (name = tbl_name || '_pkey' AND sql LIKE 'CREATE UNIQUE%'))"
    )
}

/// Name, definition and publications of each table that is published now.
fn shapes_now<'t>(
    conn: &mut Conn,
    tables: impl Iterator<Item = (TableId, &'t str)>,
) -> Result<BTreeMap<i64, [String; 3]>, SqliteError> {
    let mut now = BTreeMap::new();
    let publications = publications::read(conn, |id| id)?;
    if publications.list.is_empty() {
        return Ok(now);
    }
    let mut definitions = HashMap::new();
    let mut shadows = Vec::new();
    for row in conn.query_rows("SELECT name, sql FROM main.sqlite_schema WHERE type = 'table'")? {
        let [Value::Text(name), Value::Text(sql)] = row.as_slice() else { continue };
        shadows.extend(shadows_of(name, sql));
        definitions.insert(name.clone(), sql.clone());
    }
    for row in conn.query_rows(&added_keys())? {
        let [Value::Text(table), _, Value::Text(sql)] = row.as_slice() else { continue };
        if let Some(definition) = definitions.get_mut(table) {
            definition.push_str(";\n");
            definition.push_str(sql);
        }
    }
    for (id, name) in tables {
        let is_user = !is_internal(name.as_bytes()) && !name.starts_with("sqlite_");
        if !is_user || shadows.contains(&name.to_ascii_lowercase()) {
            continue;
        }
        let published = published_text(&publications, id);
        if let (Some(published), Some(definition)) = (published, definitions.get(name)) {
            now.insert(i64::from(id.0), [name.to_owned(), definition.clone(), published]);
        }
    }
    Ok(now)
}

/// The lower-case names of the tables below a virtual table.
fn shadows_of(name: &str, sql: &str) -> Vec<String> {
    let words = sql.to_ascii_lowercase();
    if !words.starts_with("create virtual table") {
        return Vec::new();
    }
    let module = words.rsplit(" using ").next().unwrap_or("");
    let of = SHADOWS.iter().find(|(prefix, _)| module.starts_with(prefix));
    let suffixes = of.map_or(&[][..], |(_, suffixes)| suffixes);
    suffixes.iter().map(|suffix| format!("{}_{suffix}", name.to_ascii_lowercase())).collect()
}

fn published_text(publications: &Publications, table: TableId) -> Option<String> {
    let all = PublishedTable { table: table.0, columns: None, filter: None };
    let mut elements = Vec::new();
    for publication in &publications.list {
        let entry = publication.table(table.0).or(publication.all_tables.then_some(&all));
        if let Some(entry) = entry {
            elements.extend(elements_of(publication, entry));
        }
    }
    (!elements.is_empty()).then(|| Array::flat(elements).to_text())
}

fn elements_of(publication: &Publication, entry: &PublishedTable) -> [Option<String>; 5] {
    let options = publication.option_letters();
    let (number, name) = (publication.number.to_string(), publication.name.clone());
    [Some(number), Some(name), Some(options), entry.columns_text(), entry.filter.clone()]
}

/// Reads all rows; nothing where the table does not exist.
pub fn read(conn: &mut Conn) -> Result<Shapes, SqliteError> {
    let mut shapes = Shapes::default();
    if !exists(conn, SHAPES_TABLE)? {
        return Ok(shapes);
    }
    for row in conn.query_rows("SELECT object, epoch, name, definition, published FROM main.holdfast_shapes")? {
        let [Value::Int(object), Value::Int(epoch), Value::Text(name), Value::Text(definition), Value::Text(published)] =
            row.as_slice()
        else {
            return Err(damaged("a row has values of other types"));
        };
        let (table, epoch) = (TableId(*object as u32), *epoch as u32);
        let shape = if name.is_empty() {
            None
        } else {
            let taken = taken(published).ok_or_else(|| damaged(published))?;
            Some(Shape { table, epoch, name: name.clone(), definition: definition.clone(), taken })
        };
        shapes.0.entry(table).or_default().insert(epoch, shape);
    }
    Ok(shapes)
}

fn taken(text: &str) -> Option<Vec<Taken>> {
    let elements = Array::parse_braces(text).ok()?.elements;
    let (parts, rest) = elements.as_chunks::<5>();
    let one = |[number, name, options, columns, filter]: &[Option<String>; 5]| {
        let (_, options) = Publication::parse_letters(options.as_deref()?)?;
        let columns = match columns {
            Some(text) => Some(PublishedTable::parse_columns(text)?),
            None => None,
        };
        let (number, publication) = (number.as_deref()?.parse().ok()?, name.clone()?);
        Some(Taken { number, publication, options, columns, filter: filter.clone() })
    };
    rest.is_empty().then(|| parts.iter().map(one).collect())?
}

fn damaged(what: &str) -> SqliteError {
    damaged_table(SHAPES_TABLE, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::change_schema;
    use crate::schema_map::{TableMap, create_internal_tables};
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;

    fn opened(sql: &str) -> (Conn, TableMap) {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(sql).unwrap();
        let map = create_internal_tables(&mut c, VolumeId(1)).unwrap();
        (c, map)
    }

    fn id(map: &TableMap, name: &str) -> TableId {
        map.by_name(name.as_bytes()).unwrap().id
    }

    fn publish(c: &mut Conn, list: Vec<Publication>) -> u32 {
        let before = publications::read(c, |id| id).unwrap();
        let after = Publications { list, ..before.clone() };
        let steps = publications::steps(&before, &after, |id| id);
        steps.iter().map(|step| change_schema(c, step).unwrap().epoch).last().unwrap()
    }

    fn publication(tables: Vec<PublishedTable>) -> Publication {
        let options = PublicationOptions::default();
        Publication { number: 1, name: "p".into(), owner: 10, all_tables: tables.is_empty(), options, tables }
    }

    /// Golden: what an earlier release has stored must be read by every later one.
    #[test]
    fn the_stored_row() {
        let (mut c, map) = opened("CREATE TABLE t(a INTEGER PRIMARY KEY, \"b\"\"c\" TEXT)");
        let columns = Some(vec!["a".to_owned(), "b\"c".to_owned()]);
        let table = PublishedTable { table: id(&map, "t").0, columns, filter: Some("(\"a\" > 1)".into()) };
        let epoch = publish(&mut c, vec![publication(vec![table])]);
        let rows = c.query_rows("SELECT * FROM holdfast_shapes").unwrap();
        let text = |text: &str| Value::Text(text.into());
        let definition = "CREATE TABLE t(a INTEGER PRIMARY KEY, \"b\"\"c\" TEXT)";
        let published = r#"{1,p,iudt,"{a,\"b\\\"c\"}","(\"a\" > 1)"}"#;
        let row = vec![Value::Int(1), Value::Int(epoch.into()), text("t"), text(definition), text(published)];
        assert_eq!(rows, [row]);
        let read = read(&mut c).unwrap();
        let taken = &read.at(TableId(1), epoch).unwrap().taken[0];
        assert_eq!((taken.number, taken.publication.as_str(), taken.options), (1, "p", PublicationOptions::default()));
        assert_eq!(taken.columns.as_deref(), Some(&["a".to_owned(), "b\"c".to_owned()][..]));
        assert_eq!(taken.filter.as_deref(), Some("(\"a\" > 1)"));
    }

    #[test]
    fn each_schema_change_is_one_version() {
        let (mut c, map) = opened(
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE other(a); CREATE VIRTUAL TABLE f USING fts5(x);
             CREATE TABLE f_mine(a)",
        );
        let (t, other, mine) = (id(&map, "t"), id(&map, "other"), id(&map, "f_mine"));
        let before = change_schema(&mut c, "CREATE TABLE unseen(a)").unwrap().epoch;
        let whole = |table: TableId| PublishedTable { table: table.0, columns: None, filter: None };
        let first = publish(&mut c, vec![publication(vec![whole(t)])]);
        let unrelated = change_schema(&mut c, "CREATE TABLE z(a)").unwrap().epoch;
        let wider = change_schema(&mut c, "ALTER TABLE t ADD COLUMN c").unwrap().epoch;
        let dropped = change_schema(&mut c, "DROP TABLE t").unwrap().epoch;
        let all = publish(&mut c, vec![publication(vec![])]);
        let none = publish(&mut c, Vec::new());
        let shapes = read(&mut c).unwrap();
        let at = |table, epoch| shapes.at(table, epoch).map(|shape| (shape.epoch, shape.definition.contains(", c")));
        assert_eq!(at(t, before), None, "not published yet");
        assert_eq!((at(t, first), at(t, unrelated)), (Some((first, false)), Some((first, false))));
        assert_eq!((at(t, wider), at(t, dropped)), (Some((wider, true)), None));
        assert_eq!((at(other, dropped), at(other, all), at(other, none)), (None, Some((all, false)), None));
        let shadow = map.by_name(b"f_data").unwrap().id;
        assert!(at(mine, all).is_some() && at(shadow, all).is_none(), "only the user's own");
    }

    #[test]
    fn nothing_is_recorded_for_an_earlier_release() {
        let (mut c, map) = opened("CREATE TABLE t(a INTEGER PRIMARY KEY)");
        let entry = PublishedTable { table: id(&map, "t").0, columns: None, filter: None };
        let before = Publications { recorded: true, ..Publications::default() };
        let after = Publications { list: vec![publication(vec![entry])], ..before.clone() };
        for step in publications::steps(&before, &after, |id| id) {
            change_schema(&mut c, &step).unwrap();
        }
        assert!(!exists(&mut c, SHAPES_TABLE).unwrap());
        assert_eq!(read(&mut c).unwrap(), Shapes::default());
    }
}
