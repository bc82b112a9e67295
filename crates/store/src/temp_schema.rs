//! Reads a session's temporary tables, as they are attached to a connection, for the dialect and the catalogue.
//!
//! A table's number is [`FIRST_TEMP_ID`] plus its root page, which the table keeps when it is renamed. The number is
//! higher than any permanent table's, so that the OIDs differ too.

use crate::schema_map::{Primary, primary_key};
use crate::schema_read::{FIRST_OID, columns, read_foreign_keys, read_indexes, read_texts, text};
use crate::sqlite::{Conn, SqliteError, TEMP_SCHEMA};
use holdfast_types::quoting::quote;
use holdfast_types::schema::{Table, TableKind};
use holdfast_types::{TableId, Value};
use std::sync::Arc;

/// The lowest number of a temporary table. Permanent tables are numbered from 1.
pub const FIRST_TEMP_ID: u32 = 1 << 23;

/// Reads all temporary tables, sorted by name.
pub fn read_temp_schema(conn: &mut Conn) -> Result<Vec<Arc<Table>>, SqliteError> {
    let texts = read_texts(conn, TEMP_SCHEMA)?;
    let mut tables = Vec::new();
    let sql = format!(
        "SELECT s.name, s.rootpage, l.wr FROM {TEMP_SCHEMA}.sqlite_schema s
         JOIN pragma_table_list l ON l.schema = '{TEMP_SCHEMA}' AND l.name = s.name
         WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY s.name"
    );
    for row in conn.query_rows(&sql)? {
        let (name, root) = (text(&row[0]), if let Value::Int(root) = row[1] { root as u32 } else { 0 });
        let id = TableId(FIRST_TEMP_ID.wrapping_add(root));
        let rows = conn.query_rows(&format!("PRAGMA {TEMP_SCHEMA}.table_xinfo({})", quote(&name)))?;
        let key = rows.iter().find(|column| column[5] == Value::Int(1)).map(|column| text(&column[1]));
        let alias = key.filter(|_| matches!(primary_key(conn, TEMP_SCHEMA, &name), Ok(Primary::Rowid)));
        let autoincrement = match &alias {
            Some(column) => conn.is_autoincrement(TEMP_SCHEMA, &name, column)?,
            None => false,
        };
        let table = Table {
            oid: FIRST_OID + id.0,
            kind: TableKind::Table,
            without_rowid: row[2] == Value::Int(1),
            sql: texts.get(&name).cloned().unwrap_or_default(),
            columns: columns(&rows, alias.as_deref(), autoincrement),
            indexes: read_indexes(conn, TEMP_SCHEMA, &name, id, &texts)?,
            foreign_keys: read_foreign_keys(conn, TEMP_SCHEMA, &name)?,
            triggers: Vec::new(),
            temp: true,
            key_name: String::new(),
            name,
        };
        tables.push(Arc::new(table.with_definition()));
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::scratch::Scratch;
    use crate::pages::{Limits, PageStore};
    use crate::sqlite::{OpenFlags, TempPages, Vfs};
    use holdfast_types::VolumeId;

    /// Connections of a volume, one after the other, as statements of one session take them.
    struct Connections {
        dir: tempfile::TempDir,
        vfs: Vfs,
    }

    impl Connections {
        fn new() -> Connections {
            let dir = tempfile::tempdir().unwrap();
            let file = std::fs::File::create_new(dir.path().join("v")).unwrap();
            drop(file);
            let disk = holdfast_seams::RealDisk::default();
            let how = holdfast_seams::OpenHow { write: true, ..Default::default() };
            let file = holdfast_seams::Disk::open(&disk, &dir.path().join("v"), &how).unwrap();
            let scratch = Scratch::new(dir.path()).unwrap();
            let limits = Limits { memory_bytes_max: 1 << 20, scratch_bytes_max: 1 << 20 };
            let store = PageStore::new(VolumeId(1), "v".into(), file.into(), scratch, limits, 0, 0);
            let vfs = Vfs::register(Arc::new(store), dir.path().into());
            Connections { dir, vfs }
        }

        fn run<T>(&self, pages: &TempPages, work: impl FnOnce(&mut Conn) -> T) -> T {
            let flags = OpenFlags { write: true, create: false };
            let mut c = Conn::open("file:volume?role=branch", flags, Some(self.vfs.name())).unwrap();
            c.attach_temp(pages).unwrap();
            let result = work(&mut c);
            c.detach_temp().unwrap();
            result
        }
    }

    #[test]
    fn tables_outlive_the_connection_and_go_back_with_the_marks() {
        let connections = Connections::new();
        let pages = TempPages::new(connections.dir.path().into(), 1 << 30);
        let create = "CREATE TABLE pg_temp.t(id INTEGER PRIMARY KEY AUTOINCREMENT, a TEXT UNIQUE, b AS (a || 'x'));
                      CREATE INDEX pg_temp.ta ON t(a); CREATE TABLE pg_temp.w(k TEXT PRIMARY KEY) WITHOUT ROWID;
                      CREATE TABLE pg_temp.c(t REFERENCES t(id))";
        connections.run(&pages, |c| c.exec(create).unwrap());
        let insert = "INSERT INTO pg_temp.t(a) SELECT printf('%0200d', value) FROM (
                      WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 2000)
                      SELECT value FROM n)";
        let count = "SELECT count(*) FROM pg_temp.t";
        pages.set_mark();
        connections.run(&pages, |c| c.exec(insert).unwrap());
        pages.set_mark();
        connections.run(&pages, |c| c.exec("DROP TABLE pg_temp.c; DROP TABLE pg_temp.t").unwrap());
        pages.back_to(1).unwrap();
        assert_eq!(connections.run(&pages, |c| c.query_value(count).unwrap()), Value::Int(2000));
        pages.back_to(0).unwrap();
        assert_eq!(connections.run(&pages, |c| c.query_value(count).unwrap()), Value::Int(0));
        let tables = connections.run(&pages, |c| read_temp_schema(c).unwrap());
        let names: Vec<_> = tables.iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["c", "t", "w"]);
        let t = &tables[1];
        assert!(t.columns[0].rowid_alias && t.columns[0].autoincrement && t.columns[2].generated && t.temp);
        assert_eq!((t.indexes.len(), tables[0].foreign_keys.len()), (2, 1));
        assert!(tables[2].without_rowid && !tables[2].columns[0].rowid_alias);
    }

    #[test]
    fn a_limit_ends_the_statement_and_nothing_else() {
        let connections = Connections::new();
        let pages = TempPages::new(connections.dir.path().into(), 64 << 10);
        connections.run(&pages, |c| c.exec("CREATE TABLE pg_temp.t(a); INSERT INTO pg_temp.t VALUES(1)").unwrap());
        let much = "INSERT INTO pg_temp.t SELECT randomblob(100000)";
        let error = connections.run(&pages, |c| c.exec(much).unwrap_err());
        assert_eq!(error.primary(), crate::sqlite::ffi::SQLITE_FULL);
        assert!(pages.take_overflow());
        let rows = connections.run(&pages, |c| c.query_rows("SELECT a FROM pg_temp.t").unwrap());
        assert_eq!(rows, [[Value::Int(1)]]);
    }
}
