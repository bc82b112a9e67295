//! Sums over the rows of a database's file, to compare two databases that were reached in different ways.
//!
//! The sum of a table is that of the hashes of its rows, so the order of the rows does not count, nor where they lie. The
//! definitions of tables, indexes, views and triggers are summed like the rows of a table.
//!
//! Not compared: the server's own tables, SQLite's statistics and sequences, and virtual tables, whose content lies in tables
//! that are compared.
//!
//! Failure: what SQLite cannot read is an error with its text.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::Path;

/// The definitions, as if they were rows of a table.
const DEFINITIONS: &str = "(definitions)";

/// Of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub rows: u64,
    hash: u128,
}

/// Of all tables of a database, by name.
pub type Sums = BTreeMap<String, Sum>;

/// Reads a whole database.
pub fn sums(file: &Path) -> Result<Sums, String> {
    let failed = |e: rusqlite::Error| format!("{}: {e}", file.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(failed)?;
    read(&connection).map_err(failed)
}

fn read(connection: &Connection) -> rusqlite::Result<Sums> {
    // The server's own tables begin with its name; a user's table cannot.
    let of_users = "name not like 'sqlite\\_%' escape '\\' and name not like 'holdfast\\_%' escape '\\'";
    let mut sums = Sums::new();
    let definitions = format!("select type, name, tbl_name, sql from sqlite_schema where {of_users}");
    sums.insert(DEFINITIONS.to_owned(), sum(connection, &definitions)?);
    let tables = format!(
        "select name from sqlite_schema where type = 'table' and sql not like 'create virtual%' and {of_users} order by name"
    );
    let mut tables = connection.prepare(&tables)?;
    let names: Vec<String> = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for name in names {
        let rows = format!("select * from \"{}\"", name.replace('"', "\"\""));
        let sum = sum(connection, &rows)?;
        sums.insert(name, sum);
    }
    Ok(sums)
}

fn sum(connection: &Connection, query: &str) -> rusqlite::Result<Sum> {
    let mut statement = connection.prepare(query)?;
    let columns = statement.column_count();
    let mut rows = statement.query([])?;
    let (mut sum, mut bytes) = (Sum::default(), Vec::new());
    while let Some(row) = rows.next()? {
        bytes.clear();
        for column in 0..columns {
            put(&mut bytes, row.get_ref(column)?);
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(&bytes).as_bytes()[..16]);
        sum.rows += 1;
        sum.hash = sum.hash.wrapping_add(u128::from_le_bytes(hash));
    }
    Ok(sum)
}

fn put(bytes: &mut Vec<u8>, value: ValueRef<'_>) {
    let mut tagged = |tag: u8, content: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
        bytes.extend_from_slice(content);
    };
    match value {
        ValueRef::Null => tagged(0, &[]),
        ValueRef::Integer(n) => tagged(1, &n.to_le_bytes()),
        ValueRef::Real(x) => tagged(2, &x.to_bits().to_le_bytes()),
        ValueRef::Text(text) => tagged(3, text),
        ValueRef::Blob(blob) => tagged(4, blob),
    }
}

/// What differs between two databases, one text for each table.
pub fn differences(database: &str, restored: &Sums, live: &Sums) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = restored.keys().chain(live.keys()).collect();
    let describe = |name: &String| match (restored.get(name), live.get(name)) {
        (here, there) if here == there => None,
        (None, _) => Some("was not restored".to_owned()),
        (_, None) => Some("is restored, and the live server does not have it".to_owned()),
        (Some(here), Some(there)) if here.rows == there.rows => {
            Some(format!("has other content in some of its {} rows", here.rows))
        }
        (Some(here), Some(there)) => {
            Some(format!("has {} rows when restored, and {} in the live server", here.rows, there.rows))
        }
    };
    let differs = |name: &String| describe(name).map(|what| format!("database {database}: {name} {what}"));
    names.into_iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dir: &Path, name: &str, sql: &str) -> Sums {
        let file = dir.join(name);
        Connection::open(&file).unwrap().execute_batch(sql).unwrap();
        sums(&file).unwrap()
    }

    #[test]
    fn rows_count_and_their_order_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let table = "create table t(a, b); create table holdfast_meta(x); create table u(k integer primary key);";
        let first = of(dir.path(), "a", &format!("{table} insert into t values (1, 'x'), (2, null), (2, null);"));
        let same = of(
            dir.path(),
            "b",
            &format!(
                "{table} insert into t values (2, null), (1, 'x'), (2, null); insert into holdfast_meta values (7);"
            ),
        );
        assert_eq!(differences("d", &first, &same), [""; 0]);
        for (place, other) in
            ["(1, 'x'), (2, null)", "(1, 'x'), (2, null), (2, '')", "(1, 'x'), ('2', null), (2, null)"]
                .into_iter()
                .enumerate()
        {
            let found = of(dir.path(), &place.to_string(), &format!("{table} insert into t values {other};"));
            let differs = differences("d", &found, &first);
            assert!(differs.len() == 1 && differs[0].contains("database d: t has"), "{other}: {differs:?}");
        }
        let more = of(
            dir.path(),
            "more",
            &format!("{table} insert into t values (1, 'x'), (2, null), (2, null); create index i on t(a);"),
        );
        assert!(differences("d", &more, &first)[0].contains(DEFINITIONS));
    }
}
