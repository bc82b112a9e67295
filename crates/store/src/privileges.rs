//! The internal table of owners and privileges, `holdfast_privileges`. It is created when an object gets another owner
//! than the bootstrap superuser, or a grant; a volume without it needs nothing.
//!
//! | column | content |
//! |---|---|
//! | `kind` | 0: table or view; 1: column; 2: implied sequence of a serial column; 3: schema public; 4: default privileges; 5: publication |
//! | `object` | the table's stable id; the role's OID for default privileges; 0 for the schema; the publication's number |
//! | `part` | the column's name; for default privileges the kind of object (`r`, `S`, `n`), with a `+` for IN SCHEMA; else empty |
//! | `owner` | the owner's OID, for a table or view and the schema; else 0 |
//! | `acl` | the list as text ([`holdfast_types::access::grants::acl_text`]); NULL where nothing was granted or revoked |
//!
//! Its rows are changed by schema changes only: GRANT is one, so that it raises the schema's epoch and everything that
//! was prepared is checked again, on the master, on standbys and in redo alike. After each schema change the rows of
//! dropped tables and columns are removed and renamed columns are followed.
//!
//! Failure: a list that cannot be read is damage, and the schema cannot be served.

use crate::names::{PRIVILEGES_TABLE, PUBLICATIONS_TABLE};
use crate::sqlite::{Conn, SqliteError, ffi};
use holdfast_types::access::grants::{DefaultGrants, Grants, ObjectGrants, acl_text, parse_acl};
use holdfast_types::access::privilege::Acl;
use holdfast_types::quoting::quote;
use holdfast_types::{Value, ValueRef};
use std::collections::BTreeMap;

/// Creates the table where it does not exist.
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS main.holdfast_privileges(kind INTEGER NOT NULL, \
     object INTEGER NOT NULL, part TEXT NOT NULL, owner INTEGER NOT NULL, acl TEXT, \
     PRIMARY KEY(kind, object, part)) WITHOUT ROWID";

const TABLE: i64 = 0;
const COLUMN: i64 = 1;
const SEQUENCE: i64 = 2;
const SCHEMA: i64 = 3;
const DEFAULT: i64 = 4;
const PUBLICATION: i64 = 5;

/// The columns of the tables that have grants on columns, by table id.
pub type ColumnsBefore = BTreeMap<i64, Vec<String>>;

/// A row to write, as statements of SQL.
#[derive(Clone, Debug, PartialEq)]
pub enum Row<'a> {
    /// A table or view by its stable id.
    Table {
        id: u32,
        owner: u32,
        acl: Option<&'a Acl>,
    },
    /// A table or view that the statement before has created, by its name.
    Created {
        name: &'a str,
        owner: u32,
        acl: Option<&'a Acl>,
        sequence: Option<&'a Acl>,
    },
    /// A column of a table or view that the statement before has created, by its name.
    CreatedColumn {
        of: &'a str,
        name: &'a str,
        acl: &'a Acl,
    },
    Column {
        id: u32,
        name: &'a str,
        acl: Option<&'a Acl>,
    },
    Sequence {
        id: u32,
        acl: Option<&'a Acl>,
    },
    Schema {
        owner: u32,
        acl: Option<&'a Acl>,
    },
    /// A publication by its number.
    Publication {
        number: u32,
        acl: Option<&'a Acl>,
    },
    Default {
        role: u32,
        in_schema: bool,
        object: char,
        acl: Option<&'a Acl>,
    },
}

pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Row<'_> {
    /// The schema changes that store the row.
    pub fn steps(&self) -> Vec<String> {
        let put = |kind: i64, object: &str, part: &str, owner: u32, acl: Option<&Acl>| {
            let acl = acl.map_or("NULL".to_owned(), |acl| literal(&acl_text(acl)));
            let part = literal(part);
            format!("INSERT OR REPLACE INTO main.{PRIVILEGES_TABLE} VALUES({kind}, {object}, {part}, {owner}, {acl})")
        };
        let remove = |kind: i64, object: u32, part: &str| {
            let part = literal(part);
            format!("DELETE FROM main.{PRIVILEGES_TABLE} WHERE kind = {kind} AND object = {object} AND part = {part}")
        };
        let put_or_remove = |kind, object: u32, part: &str, acl: Option<&Acl>| match acl {
            Some(acl) => put(kind, &object.to_string(), part, 0, Some(acl)),
            None => remove(kind, object, part),
        };
        vec![match self {
            Row::Table { id, owner, acl } => put(TABLE, &id.to_string(), "", *owner, *acl),
            Row::Created { name, owner, acl, sequence } => {
                let id = format!("(SELECT id FROM main.holdfast_tables WHERE name = {})", literal(name));
                let table = put(TABLE, &id, "", *owner, *acl);
                match sequence {
                    Some(sequence) => return vec![table, put(SEQUENCE, &id, "", 0, Some(sequence))],
                    None => table,
                }
            }
            Row::CreatedColumn { of, name, acl } => {
                let id = format!("(SELECT id FROM main.holdfast_tables WHERE name = {})", literal(of));
                put(COLUMN, &id, name, 0, Some(acl))
            }
            Row::Column { id, name, acl } => put_or_remove(COLUMN, *id, name, *acl),
            Row::Sequence { id, acl } => put_or_remove(SEQUENCE, *id, "", *acl),
            Row::Schema { owner, acl } => put(SCHEMA, "0", "", *owner, *acl),
            Row::Publication { number, acl } => put_or_remove(PUBLICATION, *number, "", *acl),
            Row::Default { role, in_schema, object, acl } => {
                let part = if *in_schema { format!("{object}+") } else { object.to_string() };
                put_or_remove(DEFAULT, *role, &part, *acl)
            }
        }]
    }
}

/// Whether an internal table has been created.
pub(crate) fn exists(conn: &mut Conn, table: &str) -> Result<bool, SqliteError> {
    let sql = format!("SELECT count(*) FROM main.sqlite_schema WHERE name = '{table}' AND type = 'table'");
    Ok(conn.query_value(&sql)? == Value::Int(1))
}

/// Reads all rows. `oid` makes a table's OID of its stable id.
pub fn read(conn: &mut Conn, oid: impl Fn(u32) -> u32) -> Result<Grants, SqliteError> {
    let mut grants = Grants::default();
    if !exists(conn, PRIVILEGES_TABLE)? {
        return Ok(grants);
    }
    grants.stored = true;
    for row in conn.query_rows(&format!("SELECT kind, object, part, owner, acl FROM main.{PRIVILEGES_TABLE}"))? {
        let [Value::Int(kind), Value::Int(object), Value::Text(part), Value::Int(owner), acl] = row.as_slice() else {
            return Err(damaged("a row has values of other types"));
        };
        let acl = match acl {
            Value::Null => None,
            Value::Text(text) => Some(parse_acl(text).ok_or_else(|| damaged(text))?),
            _ => return Err(damaged("a list is not text")),
        };
        let (object, owner) = (*object as u32, *owner as u32);
        match *kind {
            TABLE => {
                let table = grants.of_mut(oid(object));
                (table.owner, table.acl) = (owner, acl);
            }
            COLUMN => {
                grants.of_mut(oid(object)).columns.insert(part.clone(), acl.unwrap_or_default());
            }
            SEQUENCE => grants.of_mut(oid(object)).sequence = acl,
            SCHEMA => grants.schema = ObjectGrants { owner, acl, ..ObjectGrants::default() },
            PUBLICATION => {
                grants.publications.insert(object, acl.unwrap_or_default());
            }
            DEFAULT => {
                let mut letters = part.chars();
                let entry = letters.next().map(|letter| DefaultGrants {
                    role: object,
                    in_schema: letters.next() == Some('+'),
                    object: letter,
                    acl: acl.unwrap_or_default(),
                });
                grants.defaults.push(entry.ok_or_else(|| damaged("default privileges of nothing"))?);
            }
            other => return Err(damaged(&format!("the kind {other} is unknown"))),
        }
    }
    Ok(grants)
}

fn damaged(what: &str) -> SqliteError {
    damaged_table(PRIVILEGES_TABLE, what)
}

/// The error for an internal table that cannot be read.
pub(crate) fn damaged_table(table: &str, what: &str) -> SqliteError {
    SqliteError { code: ffi::SQLITE_CORRUPT, message: format!("table {table} is damaged: {what}"), offset: None }
}

/// Reads what [`follow_schema`] compares with.
pub fn columns_before(conn: &mut Conn) -> Result<ColumnsBefore, SqliteError> {
    let mut columns = ColumnsBefore::new();
    if !exists(conn, PRIVILEGES_TABLE)? {
        return Ok(columns);
    }
    let sql = format!(
        "SELECT DISTINCT p.object, t.name FROM main.{PRIVILEGES_TABLE} p \
         JOIN main.holdfast_tables t ON t.id = p.object WHERE p.kind = {COLUMN}"
    );
    for row in conn.query_rows(&sql)? {
        if let [Value::Int(id), Value::Text(name)] = row.as_slice() {
            columns.insert(*id, column_names(conn, name)?);
        }
    }
    Ok(columns)
}

pub(crate) fn column_names(conn: &mut Conn, table: &str) -> Result<Vec<String>, SqliteError> {
    let rows = conn.query_rows(&format!("PRAGMA main.table_xinfo({})", quote(table)))?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().nth(1)).filter_map(as_text).collect())
}

fn as_text(value: Value) -> Option<String> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// After a schema change: removes the rows of what was dropped, and follows renamed columns.
pub fn follow_schema(conn: &mut Conn, before: &ColumnsBefore) -> Result<(), SqliteError> {
    if !exists(conn, PRIVILEGES_TABLE)? {
        return Ok(());
    }
    conn.exec(&format!(
        "DELETE FROM main.{PRIVILEGES_TABLE} WHERE kind IN ({TABLE}, {COLUMN}, {SEQUENCE}) \
         AND object NOT IN (SELECT id FROM main.holdfast_tables)"
    ))?;
    if exists(conn, PUBLICATIONS_TABLE)? {
        conn.exec(&format!(
            "DELETE FROM main.{PRIVILEGES_TABLE} WHERE kind = {PUBLICATION} \
             AND object NOT IN (SELECT publication FROM main.{PUBLICATIONS_TABLE} WHERE object = 0)"
        ))?;
    }
    for (id, columns) in before {
        let Value::Text(table) = conn.query_value(&format!("SELECT name FROM main.holdfast_tables WHERE id = {id}"))?
        else {
            continue;
        };
        let now = column_names(conn, &table)?;
        // One ALTER TABLE renames one column, and changes no positions then.
        let renamed = columns.len() == now.len();
        for (at, name) in columns.iter().enumerate().filter(|(_, name)| !now.contains(name)) {
            let of_it = format!("kind = {COLUMN} AND object = {id} AND part = ?1");
            let (sql, new) = match now.get(at).filter(|_| renamed) {
                Some(new) => (format!("UPDATE main.{PRIVILEGES_TABLE} SET part = ?2 WHERE {of_it}"), Some(new)),
                None => (format!("DELETE FROM main.{PRIVILEGES_TABLE} WHERE {of_it}"), None),
            };
            let params = std::iter::once(name).chain(new).map(|t| ValueRef::Text(t.as_bytes())).collect::<Vec<_>>();
            let statement = conn.prepare(&sql)?;
            let ran = conn.run_with(statement, &params);
            conn.finalize(statement);
            ran?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddl::change_schema;
    use crate::publications;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::OpenFlags;
    use holdfast_types::VolumeId;
    use holdfast_types::access::{AclItem, Privileges};
    use holdfast_types::publication::{Publication, PublicationOptions, Publications};

    #[test]
    fn rows_follow_their_tables_and_columns() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec("CREATE TABLE t(a, b, c); CREATE TABLE gone(a)").unwrap();
        let map = create_internal_tables(&mut c, VolumeId(1)).unwrap();
        assert_eq!(read(&mut c, |id| id).unwrap(), Grants::default());
        let acl = vec![AclItem { grantee: 0, grantor: 10, granted: Privileges::SELECT, grantable: Privileges::NONE }];
        let (t, gone) = (map.object("t").unwrap().0, map.object("gone").unwrap().0);
        let mut run = |sql: &str| change_schema(&mut c, sql).map(|map| map.epoch).unwrap();
        let first = run(CREATE);
        let publication = |number, name: &str| Publication {
            number,
            name: name.into(),
            owner: 10,
            all_tables: true,
            options: PublicationOptions::default(),
            tables: Vec::new(),
        };
        let both = Publications { list: vec![publication(1, "p"), publication(2, "q")], ..Publications::default() };
        let one = Publications { list: vec![publication(1, "renamed")], stored: true, recorded: true };
        let to_both = publications::steps(&Publications::default(), &both, |id| id);
        let both = Publications { stored: true, recorded: true, ..both };
        for step in to_both {
            run(&step);
        }
        let rows = [
            Row::Table { id: t, owner: 16384, acl: Some(&acl) },
            Row::Column { id: t, name: "a", acl: Some(&acl) },
            Row::Column { id: t, name: "b", acl: Some(&acl) },
            Row::Table { id: gone, owner: 10, acl: None },
            Row::Schema { owner: 10, acl: None },
            Row::Publication { number: 1, acl: Some(&acl) },
            Row::Publication { number: 2, acl: Some(&acl) },
            Row::Default { role: 16384, in_schema: true, object: 'r', acl: Some(&acl) },
        ];
        let last = rows.iter().flat_map(|row| row.steps()).map(|step| run(&step)).last();
        assert!(last > Some(first), "a grant raises the epoch");
        publications::steps(&both, &one, |id| id).iter().for_each(|step| assert!(run(step) > first));
        run("ALTER TABLE t RENAME TO \"it's\"");
        run("ALTER TABLE \"it's\" RENAME COLUMN a TO x");
        run("ALTER TABLE \"it's\" DROP COLUMN b");
        run("DROP TABLE gone");
        run("CREATE VIEW v AS SELECT 1");
        run(&Row::Created { name: "v", owner: 7, acl: None, sequence: Some(&acl) }.steps()[0]);
        let mut grants = read(&mut c, |id| id + 100).unwrap();
        let of_t = grants.of(t + 100).unwrap();
        assert_eq!((of_t.owner, of_t.acl.as_ref()), (16384, Some(&acl)));
        assert_eq!(of_t.columns.keys().collect::<Vec<_>>(), ["x"]);
        assert!(grants.of(gone + 100).is_none() && grants.stored && grants.schema.owner == 10);
        assert_eq!(std::mem::take(&mut grants.publications).into_iter().collect::<Vec<_>>(), [(1, acl.clone())]);
        assert_eq!(grants.tables().filter(|(_, g)| g.owner == 7).count(), 1);
        assert_eq!(grants.defaults, [DefaultGrants { role: 16384, in_schema: true, object: 'r', acl }]);
    }

    #[test]
    fn a_list_that_cannot_be_read_is_damage() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        create_internal_tables(&mut c, VolumeId(1)).unwrap();
        change_schema(&mut c, CREATE).unwrap();
        change_schema(&mut c, "INSERT INTO holdfast_privileges VALUES(3, 0, '', 10, '9 =U/10')").unwrap();
        let error = read(&mut c, |id| id).unwrap_err();
        assert!(error.message.contains("holdfast_privileges is damaged"), "{error}");
    }
}
