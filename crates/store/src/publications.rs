//! The internal table of publications, `holdfast_publications`. It is created by the first publication; a volume without it
//! needs nothing.
//!
//! | column | content |
//! |---|---|
//! | `publication` | the publication's number |
//! | `object` | 0: the publication itself; else the stable id of a table in it |
//! | `name` | of a publication; else empty |
//! | `owner` | the owner's OID, of a publication; else 0 |
//! | `options` | of a publication, letters: `a` FOR ALL TABLES; `i`, `u`, `d`, `t` the changes that it publishes; `r` via the root; else empty |
//! | `columns` | of a table: the names of its columns as the text of an array; NULL for all |
//! | `filter` | of a table: the condition on its rows in SQLite's SQL; NULL for all |
//!
//! Its rows are changed by schema changes only, as those of `holdfast_privileges` are and for the same reason. After each
//! schema change the rows of dropped tables are removed, and those of tables without a column that they name; renamed
//! columns are followed in lists and conditions.
//!
//! Failure: a row that cannot be read is damage, and the schema cannot be served.

use crate::names::{PUBLICATIONS_TABLE, SHAPES_TABLE};
use crate::privileges::{ColumnsBefore, column_names, damaged_table, exists, literal};
use crate::shapes;
use crate::sqlite::{Conn, SqliteError};
use holdfast_types::Value;
use holdfast_types::definition::token::{self, tokens};
use holdfast_types::publication::{Publication, Publications, PublishedTable};

/// Creates the table where it does not exist.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS main.holdfast_publications(publication INTEGER NOT NULL, \
     object INTEGER NOT NULL, name TEXT NOT NULL, owner INTEGER NOT NULL, options TEXT NOT NULL, columns TEXT, \
     filter TEXT, PRIMARY KEY(publication, object)) WITHOUT ROWID";

/// The schema changes that turn the stored publications into others. `id` makes a table's stable id of its OID.
pub fn steps(before: &Publications, after: &Publications, id: impl Fn(u32) -> u32) -> Vec<String> {
    let mut steps = Vec::new();
    for gone in before.list.iter().filter(|b| !after.list.iter().any(|a| a.number == b.number)) {
        steps.push(format!("DELETE FROM main.{PUBLICATIONS_TABLE} WHERE publication = {}", gone.number));
    }
    for new in &after.list {
        let old = before.list.iter().find(|b| b.number == new.number);
        if old.map(head) != Some(head(new)) {
            steps.push(put(new.number, 0, &new.name, new.owner, &new.option_letters(), None, None));
        }
        let of_old = old.map_or(&[][..], |old| &old.tables);
        for gone in of_old.iter().filter(|t| new.table(t.table).is_none()) {
            let (number, object) = (new.number, id(gone.table));
            steps.push(format!(
                "DELETE FROM main.{PUBLICATIONS_TABLE} WHERE publication = {number} AND object = {object}"
            ));
        }
        for table in new.tables.iter().filter(|t| !of_old.contains(t)) {
            let columns = table.columns_text();
            steps.push(put(new.number, id(table.table), "", 0, "", columns.as_deref(), table.filter.as_deref()));
        }
    }
    if !before.stored && !steps.is_empty() {
        steps.insert(0, CREATE.to_owned());
    }
    if !before.recorded && !steps.is_empty() {
        // In front of the rows, so that it has what they publish. Publications of an earlier release come without it.
        steps.insert(0, shapes::CREATE.to_owned());
    }
    steps
}

/// What the row of the publication itself holds.
fn head(publication: &Publication) -> (&str, u32, String) {
    (&publication.name, publication.owner, publication.option_letters())
}

fn put(
    publication: u32,
    object: u32,
    name: &str,
    owner: u32,
    options: &str,
    columns: Option<&str>,
    filter: Option<&str>,
) -> String {
    let or_null = |text: Option<&str>| text.map_or("NULL".to_owned(), literal);
    format!(
        "INSERT OR REPLACE INTO main.{PUBLICATIONS_TABLE} VALUES({publication}, {object}, {}, {owner}, {}, {}, {})",
        literal(name),
        literal(options),
        or_null(columns),
        or_null(filter)
    )
}

/// Reads all rows. `oid` makes a table's OID of its stable id.
pub fn read(conn: &mut Conn, oid: impl Fn(u32) -> u32) -> Result<Publications, SqliteError> {
    let mut publications = Publications { recorded: exists(conn, SHAPES_TABLE)?, ..Publications::default() };
    if !exists(conn, PUBLICATIONS_TABLE)? {
        return Ok(publications);
    }
    publications.stored = true;
    let sql = format!(
        "SELECT publication, object, name, owner, options, columns, filter FROM main.{PUBLICATIONS_TABLE} \
         ORDER BY publication, object"
    );
    for row in conn.query_rows(&sql)? {
        let [
            Value::Int(number),
            Value::Int(object),
            Value::Text(name),
            Value::Int(owner),
            Value::Text(options),
            columns,
            filter,
        ] = row.as_slice()
        else {
            return Err(damaged("a row has values of other types"));
        };
        let number = *number as u32;
        if *object == 0 {
            let (all_tables, options) = Publication::parse_letters(options).ok_or_else(|| damaged(options))?;
            let (name, owner) = (name.clone(), *owner as u32);
            publications.list.push(Publication { number, name, owner, all_tables, options, tables: Vec::new() });
            continue;
        }
        // The row of the publication itself comes first.
        let of = publications.list.last_mut().filter(|p| p.number == number);
        let of = of.ok_or_else(|| damaged("a table is in no publication"))?;
        let columns = match columns {
            Value::Null => None,
            Value::Text(text) => Some(PublishedTable::parse_columns(text).ok_or_else(|| damaged(text))?),
            _ => return Err(damaged("a list of columns is not text")),
        };
        let filter = match filter {
            Value::Null => None,
            Value::Text(text) => Some(text.clone()),
            _ => return Err(damaged("a condition is not text")),
        };
        of.tables.push(PublishedTable { table: oid(*object as u32), columns, filter });
    }
    Ok(publications)
}

fn damaged(what: &str) -> SqliteError {
    damaged_table(PUBLICATIONS_TABLE, what)
}

/// Reads what [`follow_schema`] compares with: the columns of the tables of which columns are named.
pub(crate) fn columns_before(conn: &mut Conn) -> Result<ColumnsBefore, SqliteError> {
    named_columns(conn, PUBLICATIONS_TABLE, "p.columns IS NOT NULL OR p.filter IS NOT NULL")
}

/// The columns of the tables that are objects of an internal table `p`, in rows that name some of them.
pub(crate) fn named_columns(conn: &mut Conn, of: &str, names_some: &str) -> Result<ColumnsBefore, SqliteError> {
    let mut columns = ColumnsBefore::new();
    if !exists(conn, of)? {
        return Ok(columns);
    }
    let sql = format!(
        "SELECT DISTINCT p.object, t.name FROM main.{of} p JOIN main.holdfast_tables t ON t.id = p.object WHERE {names_some}"
    );
    for row in conn.query_rows(&sql)? {
        if let [Value::Int(id), Value::Text(name)] = row.as_slice() {
            columns.insert(*id, column_names(conn, name)?);
        }
    }
    Ok(columns)
}

/// After a schema change: removes the rows of tables that were dropped, or that lost a column that a row names, and follows
/// renamed columns.
pub(crate) fn follow_schema(conn: &mut Conn, before: &ColumnsBefore) -> Result<(), SqliteError> {
    if !exists(conn, PUBLICATIONS_TABLE)? {
        return Ok(());
    }
    conn.exec(&format!(
        "DELETE FROM main.{PUBLICATIONS_TABLE} WHERE object <> 0 AND object NOT IN (SELECT id FROM main.holdfast_tables)"
    ))?;
    for Changed { table, old, new } in changed_columns(conn, before)? {
        follow_column(conn, table, &old, new.as_ref())?;
    }
    Ok(())
}

/// A column that has another name, or is gone.
pub(crate) struct Changed {
    /// Stable id of its table.
    pub table: i64,
    pub old: String,
    pub new: Option<String>,
}

/// What a schema change has made of the columns of tables.
pub(crate) fn changed_columns(conn: &mut Conn, before: &ColumnsBefore) -> Result<Vec<Changed>, SqliteError> {
    let mut changed = Vec::new();
    for (id, columns) in before {
        let Value::Text(table) = conn.query_value(&format!("SELECT name FROM main.holdfast_tables WHERE id = {id}"))?
        else {
            continue;
        };
        let now = column_names(conn, &table)?;
        // One ALTER TABLE renames one column, and changes no positions then.
        let renamed = columns.len() == now.len();
        for (at, old) in columns.iter().enumerate().filter(|(_, name)| !now.contains(name)) {
            changed.push(Changed { table: *id, old: old.clone(), new: now.get(at).filter(|_| renamed).cloned() });
        }
    }
    Ok(changed)
}

/// A column of a table has another name, or is gone.
fn follow_column(conn: &mut Conn, id: i64, old: &str, new: Option<&String>) -> Result<(), SqliteError> {
    for mut publication in read(conn, |id| id)?.list {
        let number = publication.number;
        for table in publication.tables.iter_mut().filter(|t| i64::from(t.table) == id && names(t, old)) {
            let sql = match new {
                None => {
                    format!("DELETE FROM main.{PUBLICATIONS_TABLE} WHERE publication = {number} AND object = {id}")
                }
                Some(new) => {
                    table.columns.iter_mut().flatten().filter(|c| *c == old).for_each(|c| c.clone_from(new));
                    table.filter = table.filter.as_deref().map(|filter| with_renamed(filter, old, new));
                    let columns = table.columns_text();
                    put(number, table.table, "", 0, "", columns.as_deref(), table.filter.as_deref())
                }
            };
            conn.exec(&sql)?;
        }
    }
    Ok(())
}

fn names(table: &PublishedTable, column: &str) -> bool {
    table.columns.iter().flatten().any(|c| c == column) || in_filter(table, column)
}

/// Whether the condition on a table's rows names a column.
pub(crate) fn in_filter(table: &PublishedTable, column: &str) -> bool {
    table.filter.as_deref().is_some_and(|filter| tokens(filter).iter().any(|t| is_column(t, filter, column)))
}

/// Whether a token of a condition is the quoted name of a column. Strings are in other quotes, and words are functions
/// and operators.
fn is_column(token: &token::Token, text: &str, column: &str) -> bool {
    token.text(text).starts_with('"') && token.name(text).as_deref() == Some(column)
}

pub(crate) fn with_renamed(filter: &str, old: &str, new: &str) -> String {
    let mut out = String::with_capacity(filter.len());
    let mut from = 0;
    for token in tokens(filter).iter().filter(|t| is_column(t, filter, old)) {
        out.push_str(filter.get(from..token.at.start).unwrap_or(""));
        out.push_str(&holdfast_types::quoting::quote(new));
        from = token.at.end;
    }
    out.push_str(filter.get(from..).unwrap_or(""));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::change_schema;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;
    use holdfast_types::publication::PublicationOptions;

    fn opened(sql: &str) -> Conn {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(sql).unwrap();
        create_internal_tables(&mut c, VolumeId(1)).unwrap();
        c
    }

    fn id(c: &mut Conn, name: &str) -> u32 {
        match c.query_value(&format!("SELECT id FROM holdfast_tables WHERE name = '{name}'")).unwrap() {
            Value::Int(id) => id as u32,
            other => panic!("{other:?}"),
        }
    }

    fn put_all(c: &mut Conn, after: &Publications) {
        let before = read(c, |id| id).unwrap();
        for step in steps(&before, after, |id| id) {
            change_schema(c, &step).unwrap();
        }
        let read = read(c, |id| id).unwrap();
        assert_eq!(read.list, after.list);
    }

    fn publication(number: u32, tables: Vec<PublishedTable>) -> Publication {
        let (name, options) = (format!("it's {number}"), PublicationOptions::default());
        Publication { number, name, owner: 10, all_tables: false, options, tables }
    }

    #[test]
    fn rows_follow_their_tables_and_columns() {
        let mut c = opened("CREATE TABLE t(a, b, c, d); CREATE TABLE gone(a); CREATE TABLE u(a, b)");
        let (t, gone, u) = (id(&mut c, "t"), id(&mut c, "gone"), id(&mut c, "u"));
        let entry = |table, columns: Option<&[&str]>, filter: Option<&str>| PublishedTable {
            table,
            columns: columns.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
            filter: filter.map(str::to_owned),
        };
        // In the order of their ids, which new tables get by name.
        let first = publication(
            1,
            vec![entry(gone, None, None), entry(t, Some(&["a", "b"]), Some("(\"a\" = 'a' OR \"b\" > 1)"))],
        );
        let second = publication(2, vec![entry(t, Some(&["a", "c"]), None), entry(u, None, Some("(\"b\" IS NULL)"))]);
        let third = publication(3, vec![entry(u, None, None)]);
        put_all(&mut c, &Publications { stored: true, recorded: true, list: vec![first, second, third] });
        change_schema(&mut c, "ALTER TABLE t RENAME COLUMN a TO \"x \"\"y\"").unwrap();
        change_schema(&mut c, "ALTER TABLE t RENAME TO other").unwrap();
        change_schema(&mut c, "DROP TABLE gone").unwrap();
        change_schema(&mut c, "ALTER TABLE other DROP COLUMN c").unwrap();
        change_schema(&mut c, "ALTER TABLE other DROP COLUMN d").unwrap();
        change_schema(&mut c, "ALTER TABLE u DROP COLUMN b").unwrap();
        let now = read(&mut c, |id| id).unwrap();
        let kept = entry(t, Some(&["x \"y", "b"]), Some("(\"x \"\"y\" = 'a' OR \"b\" > 1)"));
        assert_eq!(now.list[0].tables, [kept], "followed, and without the dropped table");
        assert!(now.list[1].tables.is_empty(), "both lost a column that their entries name");
        assert_eq!(now.list[2].tables, [entry(u, None, None)]);
    }

    #[test]
    fn changes_write_what_differs_only() {
        let mut c = opened("CREATE TABLE t(a); CREATE TABLE u(a)");
        let entry = |table| PublishedTable { table, columns: None, filter: None };
        let (t, u) = (id(&mut c, "t"), id(&mut c, "u"));
        let mut wanted =
            Publications { stored: true, recorded: true, list: vec![publication(1, vec![entry(t), entry(u)])] };
        assert_eq!(steps(&Publications::default(), &wanted, |id| id).len(), 5, "with both CREATE");
        put_all(&mut c, &wanted);
        let before = wanted.clone();
        wanted.list[0].tables.remove(0);
        assert_eq!(steps(&before, &wanted, |id| id).len(), 1);
        put_all(&mut c, &wanted);
        wanted.list[0].options.insert = false;
        wanted.list.push(publication(2, Vec::new()));
        put_all(&mut c, &wanted);
        wanted.list.remove(0);
        put_all(&mut c, &wanted);
        assert!(steps(&wanted, &wanted, |id| id).is_empty());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_damage() {
        for row in ["1, 0, 'p', 10, 'z', NULL, NULL", "1, 5, '', 0, '', NULL, NULL", "1, 0, 'p', 'x', '', NULL, NULL"] {
            let mut c = opened("");
            change_schema(&mut c, CREATE).unwrap();
            c.exec(&format!("INSERT INTO holdfast_publications VALUES({row})")).unwrap();
            let error = read(&mut c, |id| id).unwrap_err();
            assert!(error.message.contains("holdfast_publications is damaged"), "{error}");
        }
    }
}
