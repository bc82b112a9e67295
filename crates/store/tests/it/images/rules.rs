//! One test for each trap that led to a rule: what is recorded, and what a copy makes of it.

use super::volume::{Copy, Source, VOLUME, count_ops, dump, open, ops};
use holdfast_store::apply::{Applier, ApplyError};
use holdfast_store::capture::CaptureError;
use holdfast_store::schema_map::{SchemaError, create_internal_tables, read_map};
use holdfast_store::sqlite::RowsTable;
use holdfast_types::record::{Op, Ops, op, put_cell};
use holdfast_types::{TableId, Value, ValueRef};
use std::sync::Arc;
use tempfile::TempDir;

struct Pair {
    dir: TempDir,
    source: Source,
    copy: Copy,
}

impl Pair {
    fn new(schema: &[&str]) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let mut source = Source::create(&dir.path().join("source"));
        let mut copy = Copy::create(&dir.path().join("copy"));
        source.begin();
        for sql in schema {
            source.ddl(sql).unwrap();
        }
        copy.apply(&source.commit().unwrap()).unwrap();
        Pair { dir, source, copy }
    }

    /// Runs the statements as one batch on the source, applies it to the copy, compares, and returns it.
    fn batch(&mut self, statements: &[&str]) -> Vec<u8> {
        self.source.begin();
        for sql in statements {
            self.source.run(sql).unwrap();
        }
        self.ship()
    }

    fn ship(&mut self) -> Vec<u8> {
        let body = self.source.commit().unwrap();
        self.copy.apply(&body).unwrap();
        assert_eq!(dump(&mut self.source.conn), dump(&mut self.copy.conn));
        body
    }
}

fn is_insert(op: &Op<'_>) -> bool {
    matches!(op, Op::Insert { .. })
}

fn is_delete(op: &Op<'_>) -> bool {
    matches!(op, Op::Delete { .. })
}

/// RULE 8: the effects of triggers and cascades are recorded, and redo does not repeat them.
#[test]
fn triggers_and_cascades_are_recorded_once() {
    let mut pair = Pair::new(&[
        "CREATE TABLE parent(id INTEGER PRIMARY KEY)",
        "CREATE TABLE child(p REFERENCES parent ON DELETE CASCADE)",
        "CREATE TABLE log(n)",
        "CREATE TRIGGER t AFTER DELETE ON child BEGIN INSERT INTO log VALUES(random()); END",
    ]);
    pair.batch(&["INSERT INTO parent VALUES(1); INSERT INTO child VALUES(1), (1)"]);
    let body = pair.batch(&["DELETE FROM parent"]);
    assert_eq!((ops(&body, is_delete), ops(&body, is_insert)), (3, 2));
}

/// RULE 8: only the text of a schema change is recorded, except for foreign key actions when a parent is dropped.
#[test]
fn images_of_a_schema_change_are_muted() {
    let mut pair = Pair::new(&[
        "CREATE TABLE t(a)",
        "CREATE INDEX i ON t(a)",
        "CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT)",
    ]);
    pair.batch(&["INSERT INTO t VALUES(1), (2); INSERT INTO counted VALUES(7)"]);
    for sql in [
        "CREATE VIRTUAL TABLE words USING fts5(a)",
        "ANALYZE",
        "ALTER TABLE counted RENAME TO tallied",
        "DROP TABLE tallied",
        "ALTER TABLE t ADD COLUMN b DEFAULT 3",
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE words RENAME TO others",
        "DROP TABLE others",
        "DROP TABLE t",
    ] {
        pair.source.begin();
        if sql.ends_with("COLUMN a") {
            pair.source.ddl("DROP INDEX i").unwrap();
        }
        pair.source.ddl(sql).unwrap();
        let body = pair.ship();
        assert_eq!(ops(&body, |op| !matches!(op, Op::Ddl(_))), 0, "{sql}");
    }
}

/// RULE 8: redo has no foreign keys, so what DROP TABLE does to children must be recorded.
#[test]
fn dropping_a_parent_records_what_happens_to_its_children() {
    let mut pair = Pair::new(&[
        "CREATE TABLE parent(id INTEGER PRIMARY KEY, up REFERENCES parent ON DELETE CASCADE)",
        "CREATE TABLE child(p REFERENCES parent ON DELETE CASCADE)",
    ]);
    pair.batch(&["INSERT INTO parent VALUES(1, NULL), (2, 1); INSERT INTO child VALUES(1), (2), (NULL)"]);
    pair.source.begin();
    pair.source.ddl("DROP TABLE parent").unwrap();
    pair.ship();
    assert_eq!(pair.copy.conn.query_value("SELECT count(*) FROM child").unwrap(), Value::Int(1));
}

/// RULE 17: with the hook in place from the start, emptying a table reports every row.
#[test]
fn emptying_a_table_reports_every_row() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)", "CREATE TABLE k(a PRIMARY KEY) WITHOUT ROWID"]);
    pair.batch(&["INSERT INTO t VALUES(1), (2), (3); INSERT INTO k SELECT a FROM t"]);
    assert_eq!(ops(&pair.batch(&["DELETE FROM t; DELETE FROM k"]), is_delete), 6);
}

/// RULE 17: a TEMP table of the same name is not the table.
#[test]
fn temp_tables_leave_no_record() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)"]);
    let body = pair.batch(&["CREATE TEMP TABLE t(a); INSERT INTO t VALUES(1)", "UPDATE t SET a = 2; DELETE FROM t"]);
    assert_eq!(count_ops(&body), 0);
}

/// RULE 17: generated columns cannot be read in the hook nor written in redo.
#[test]
fn generated_columns_are_not_recorded() {
    let mut pair = Pair::new(&["CREATE TABLE t(v AS (a + 1), a, s AS (a * 2) STORED, b)"]);
    let body = pair.batch(&["INSERT INTO t(a, b) VALUES(1, 2)", "UPDATE t SET b = 3"]);
    assert_eq!(ops(&body, |op| matches!(op, Op::Insert { values, .. } if values.len() == 2)), 1);
    assert_eq!(ops(&body, |op| matches!(op, Op::Update { mask, .. } if mask.positions().eq([1]))), 1);
}

/// RULE 17: SQLite moves an AUTOINCREMENT counter without reporting it, even when no row results.
#[test]
fn autoincrement_counters_are_recorded() {
    let mut pair = Pair::new(&[
        "CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)",
        "CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT)",
    ]);
    let is_sequence = |op: &Op<'_>| matches!(op, Op::Sequence { .. } | Op::AllSequences(_));
    pair.batch(&["INSERT INTO a(u) VALUES(1)"]);
    let body = pair.batch(&["INSERT OR IGNORE INTO a(u) VALUES(1)"]);
    assert_eq!((count_ops(&body), ops(&body, is_sequence)), (1, 1));
    assert_eq!(ops(&pair.batch(&["INSERT INTO b VALUES(7); DELETE FROM b"]), is_sequence), 1);
    pair.batch(&["DELETE FROM sqlite_sequence WHERE name = 'a'; INSERT INTO sqlite_sequence VALUES('x', 'y')"]);
    pair.batch(&["INSERT INTO a(u) VALUES(5)"]);
    assert_eq!(count_ops(&pair.batch(&["UPDATE a SET u = u"])), 0);
}

/// RULE 17: a new rowid is a change even when no column's value changes; an update to the same values is not a change.
#[test]
fn an_update_of_the_rowid_alone_is_recorded() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)"]);
    pair.batch(&["INSERT INTO t VALUES(1)"]);
    assert_eq!(count_ops(&pair.batch(&["UPDATE t SET rowid = 40"])), 1);
    pair.source.begin();
    pair.source.run("UPDATE t SET a = a").unwrap();
    assert_eq!(pair.source.conn.capture().unchanged(), 1);
    assert_eq!(count_ops(&pair.ship()), 0);
}

/// Rolling back to a savepoint also truncates the capture.
#[test]
fn a_savepoint_rolled_back_is_forgotten() {
    let mut pair = Pair::new(&["CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a)"]);
    pair.source.begin();
    pair.source.run("INSERT INTO t(a) VALUES(1)").unwrap();
    pair.source.conn.exec("SAVEPOINT s").unwrap();
    let mark = pair.source.conn.capture().mark();
    pair.source.run("UPDATE t SET a = 2; INSERT INTO t(a) VALUES(3)").unwrap();
    pair.source.conn.exec("ROLLBACK TO s; RELEASE s").unwrap();
    pair.source.conn.capture().truncate(mark);
    pair.source.run("INSERT INTO t(a) VALUES(4)").unwrap();
    assert_eq!(ops(&pair.ship(), is_insert), 2);
}

/// A change of a table that the map does not know must be reported.
#[test]
fn a_change_of_an_unknown_table_is_an_error() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)"]);
    pair.source.begin();
    let mark = pair.source.conn.capture().mark();
    pair.source.conn.exec("CREATE TABLE unseen(a); INSERT INTO unseen VALUES(1)").unwrap();
    let error = pair.source.conn.capture().check().unwrap_err();
    assert!(matches!(&error, CaptureError::UnknownTable { table, .. } if table == "unseen"));
    pair.source.conn.exec("ALTER TABLE t ADD COLUMN b").unwrap();
    pair.source.conn.capture().truncate(mark);
    pair.source.conn.exec("INSERT INTO t VALUES(1, 2)").unwrap();
    let error = pair.source.conn.capture().check().unwrap_err();
    assert!(matches!(error, CaptureError::ColumnCount { found: 2, expected: 1, .. }));
}

/// RULE 19: FTS5 keeps its index in memory until the transaction ends; it must be in the batch that is recorded.
#[test]
fn a_full_text_index_travels_with_its_rows() {
    let mut pair = Pair::new(&["CREATE VIRTUAL TABLE words USING fts5(a)"]);
    pair.source.begin();
    pair.source.conn.exec("INSERT INTO words VALUES('storm'), ('harbour')").unwrap();
    pair.ship();
    pair.batch(&["DELETE FROM words WHERE rowid = 1"]);
    let Pair { dir, copy, .. } = pair;
    drop(copy);
    let mut fresh = open(&dir.path().join("copy"));
    fresh.exec("INSERT INTO words(words) VALUES('integrity-check')").unwrap();
    let found = fresh.query_value("SELECT group_concat(rowid) FROM words('storm OR harbour')").unwrap();
    assert_eq!(found, Value::Text("2".into()));
}

/// RULE 19: reading the map and applying images opens no virtual table: here its module does not even exist.
#[test]
fn redo_opens_no_virtual_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume");
    let mut conn = open(&path);
    conn.exec("CREATE TABLE t(a)").unwrap();
    let table = RowsTable { columns: vec![("a".into(), String::new())], rows: Arc::new(Vec::new) };
    conn.register_rows_table("ghost_rows", table).unwrap();
    conn.create_rows_table("main", "ghost", "ghost_rows").unwrap();
    create_internal_tables(&mut conn, VOLUME).unwrap();
    drop(conn);
    let mut conn = open(&path);
    let map = Arc::new(read_map(&mut conn).unwrap());
    assert!(map.object("ghost").is_some() && map.by_name(b"ghost").is_none());
    let table = map.by_name(b"t").unwrap().id;
    let mut buf = Vec::new();
    op::put_insert(&mut buf, table, Some(5), 1);
    put_cell(&mut buf, ValueRef::Int(1));
    let mut applier = Applier::begin(&mut conn, map).unwrap();
    applier.apply(&mut conn, Ops::new(&buf)).unwrap();
    assert_eq!(conn.query_value("SELECT rowid FROM t").unwrap(), Value::Int(5));
    assert!(conn.query_value("SELECT * FROM ghost").unwrap_err().message.contains("no such module"));
}

/// An image that does not match its row is reported with the row, not skipped.
#[test]
fn an_image_without_its_row_is_loud() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)", "CREATE TABLE k(a PRIMARY KEY) WITHOUT ROWID"]);
    pair.batch(&["INSERT INTO t VALUES(1); INSERT INTO k VALUES('x')"]);
    pair.copy.conn.exec("DELETE FROM t; DELETE FROM k").unwrap();
    for (sql, expected) in [
        ("UPDATE t SET a = 2", "update of table t, row rowid 1, changed 0 rows"),
        ("DELETE FROM t", "delete of table t, row rowid 1, changed 0 rows"),
        ("DELETE FROM k", "delete of table k, row (Text(\"x\")), changed 0 rows"),
    ] {
        pair.source.begin();
        pair.source.run(sql).unwrap();
        let body = pair.source.commit().unwrap();
        let error = pair.copy.apply(&body).unwrap_err();
        pair.copy.conn.exec("ROLLBACK").unwrap();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// The trail decides, not the table's own ON CONFLICT or CHECK clauses.
#[test]
fn redo_neither_resolves_conflicts_nor_checks() {
    let mut pair = Pair::new(&["CREATE TABLE t(a UNIQUE ON CONFLICT REPLACE CHECK (a < 10))"]);
    pair.source.conn.exec("PRAGMA ignore_check_constraints = ON").unwrap();
    pair.batch(&["INSERT INTO t VALUES(11)", "UPDATE t SET a = 12"]);
    pair.copy.conn.exec("INSERT INTO t(rowid, a) VALUES(50, 13)").unwrap();
    pair.source.begin();
    pair.source.run("INSERT INTO t VALUES(13)").unwrap();
    let body = pair.source.commit().unwrap();
    let error = pair.copy.apply(&body).unwrap_err();
    assert!(matches!(error, ApplyError::Row { what: "insert", .. }), "{error}");
}

/// Redo of a schema change on a different schema is detected.
#[test]
fn a_schema_that_diverged_is_refused() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)"]);
    pair.copy.conn.exec("CREATE INDEX stray ON t(a)").unwrap();
    pair.source.begin();
    pair.source.ddl("CREATE TABLE u(a)").unwrap();
    let body = pair.source.commit().unwrap();
    let error = pair.copy.apply(&body).unwrap_err();
    assert!(matches!(error, ApplyError::SchemaDiverged { .. }), "{error}");
}

/// Operations that do not fit the table are typed errors.
#[test]
fn images_that_do_not_fit_are_refused() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)", "CREATE TABLE k(a PRIMARY KEY) WITHOUT ROWID"]);
    let id = |name: &[u8], pair: &mut Pair| pair.source.conn.capture().map().by_name(name).unwrap().id;
    let (t, k) = (id(b"t", &mut pair), id(b"k", &mut pair));
    let insert = |table, rowid, cells: usize| {
        let mut buf = Vec::new();
        op::put_insert(&mut buf, table, rowid, cells);
        (0..cells).for_each(|_| put_cell(&mut buf, ValueRef::Null));
        buf
    };
    let mut conn = open(&pair.dir.path().join("copy"));
    let map = Arc::new(read_map(&mut conn).unwrap());
    let mut applier = Applier::begin(&mut conn, map).unwrap();
    let mut apply = |ops: &[u8]| applier.apply(&mut conn, Ops::new(ops)).unwrap_err();
    assert!(matches!(apply(&insert(TableId(99), Some(1), 1)), ApplyError::UnknownTable { table: TableId(99), .. }));
    assert!(matches!(apply(&insert(t, Some(1), 2)), ApplyError::Columns { found: 2, expected: 1, .. }));
    assert!(matches!(apply(&insert(t, None, 1)), ApplyError::KeyKind { .. }));
    assert!(matches!(apply(&insert(k, Some(1), 1)), ApplyError::KeyKind { .. }));
    assert!(matches!(apply(&[99]), ApplyError::Decode(_)));
}

/// Ids follow a table through renames and are never reused.
#[test]
fn table_ids_are_stable() {
    let mut pair = Pair::new(&["CREATE TABLE a(x)", "CREATE TABLE b(x)", "CREATE VIRTUAL TABLE w USING fts5(x)"]);
    let id = |pair: &mut Pair, name: &str| pair.source.conn.capture().map().object(name);
    let (a, b, w) = (id(&mut pair, "a"), id(&mut pair, "b"), id(&mut pair, "w"));
    pair.source.begin();
    for sql in [
        "ALTER TABLE a RENAME TO z",
        "ALTER TABLE b RENAME TO a",
        "ALTER TABLE w RENAME TO words",
        "DROP TABLE z",
        "CREATE TABLE z(x)",
        "VACUUM",
    ] {
        if sql == "VACUUM" {
            pair.ship();
            pair.source.conn.exec(sql).unwrap();
        } else {
            pair.source.ddl(sql).unwrap();
        }
    }
    assert_eq!((id(&mut pair, "a"), id(&mut pair, "words")), (b, w));
    let z = id(&mut pair, "z");
    assert!(z > w && z > a, "{z:?}");
    let map = read_map(&mut pair.source.conn).unwrap();
    assert_eq!(map.object("z"), z);
}

/// Tables that could not be recorded are refused when they are made.
#[test]
fn tables_that_cannot_be_addressed_are_refused() {
    let mut pair = Pair::new(&[]);
    pair.source.begin();
    let error = pair.source.ddl("CREATE TABLE t(rowid, \"_RowId_\", oid)").unwrap_err();
    assert_eq!(error, SchemaError::NoRowidName("t".into()).to_string());
    let error = pair.source.ddl("CREATE TABLE Holdfast_mine(a)").unwrap_err();
    assert_eq!(error, SchemaError::ReservedName("Holdfast_mine".into()).to_string());
    pair.source.ddl("CREATE TABLE t(rowid, _rowid_, oid, id INTEGER PRIMARY KEY)").unwrap();
    pair.source.ddl("CREATE TABLE u(rowid, _rowid_)").unwrap();
    pair.source.run("INSERT INTO t VALUES(1, 2, 3, 4); INSERT INTO u VALUES(1, 2)").unwrap();
    pair.ship();
}

/// Internal tables have no images: a change by anything other than a schema change or the store itself is an error,
/// which ends with its transaction.
#[test]
fn a_change_of_an_internal_table_is_an_error() {
    let mut pair = Pair::new(&["CREATE TABLE t(a)"]);
    pair.source.begin();
    pair.source.conn.exec("UPDATE holdfast_meta SET next_table_id = 1").unwrap();
    let error = pair.source.conn.capture().check().unwrap_err();
    assert!(matches!(&error, CaptureError::Internal { table } if table == "holdfast_meta"), "{error}");
    pair.source.conn.exec("ROLLBACK").unwrap();
    pair.source.conn.capture().take();
    assert_eq!(pair.source.conn.capture().check(), Ok(()));
    for sql in [
        "CREATE TRIGGER x AFTER UPDATE ON holdfast_meta BEGIN INSERT INTO t VALUES(1); END",
        "CREATE TEMP TRIGGER x AFTER UPDATE ON main.holdfast_meta BEGIN INSERT INTO t VALUES(1); END",
        "CREATE INDEX x ON holdfast_tables(name)",
    ] {
        pair.source.begin();
        let refused = pair.source.ddl(sql).unwrap_err();
        assert!(refused.contains("reserved"), "{refused}");
        pair.source.rollback();
    }
    pair.batch(&["INSERT INTO t VALUES(1)"]);
}

/// The images of a published table have its key, the columns of its filter, and every published column but large ones that do not
/// change; these too when a column of the filter changes.
#[test]
fn published_tables_carry_what_subscribers_need() {
    let publications = "INSERT INTO holdfast_publications VALUES(1, 0, 'p', 10, 'iudt', NULL, NULL)";
    let mut pair = Pair::new(&[
        "CREATE TABLE by_text(k TEXT PRIMARY KEY, a, b, c, region)",
        "CREATE TABLE by_number(id INTEGER PRIMARY KEY, a, b)",
        "CREATE TABLE by_pair(x, y, a, b, PRIMARY KEY(x, y)) WITHOUT ROWID",
        "CREATE TABLE unseen(k TEXT PRIMARY KEY, a)",
        "CREATE TABLE holdfast_publications(publication INTEGER NOT NULL, object INTEGER NOT NULL, name TEXT NOT NULL, \
         owner INTEGER NOT NULL, options TEXT NOT NULL, columns TEXT, filter TEXT, PRIMARY KEY(publication, object)) WITHOUT ROWID",
        publications,
        "INSERT INTO holdfast_publications SELECT 1, id, '', 0, '', '{k,a,b,region}', '(\"region\" = 2)' \
         FROM holdfast_tables WHERE name = 'by_text'",
        "INSERT INTO holdfast_publications SELECT 1, id, '', 0, '', NULL, NULL FROM holdfast_tables \
         WHERE name IN ('by_number', 'by_pair')",
    ]);
    pair.batch(&["INSERT INTO by_text VALUES('x', 1, 1, 1, 1); INSERT INTO by_number VALUES(1, 1, 1); \
                   INSERT INTO by_pair VALUES(1, 1, 1, 1); INSERT INTO unseen VALUES('x', 1)"]);
    let carried = |pair: &mut Pair, sql: &str| {
        let body = pair.batch(&[sql]);
        let mut masks = Vec::new();
        ops(&body, |op| {
            if let Op::Update { mask, .. } = op {
                masks.push(mask.positions().collect::<Vec<usize>>());
            }
            true
        });
        masks
    };
    assert_eq!(
        carried(&mut pair, "UPDATE by_text SET a = 2"),
        [[0, 1, 2, 4]],
        "the key, what is published, the filter's column"
    );
    assert_eq!(
        carried(&mut pair, "UPDATE by_text SET c = 2"),
        [[0, 1, 2, 3, 4]],
        "also of a column that is not published"
    );
    assert_eq!(carried(&mut pair, "UPDATE by_text SET region = 2"), [[0, 1, 2, 4]], "every published column");
    assert_eq!(carried(&mut pair, "UPDATE by_text SET k = 'y'"), [[0, 1, 2, 4]]);
    assert_eq!(carried(&mut pair, "UPDATE by_text SET a = a"), [[0usize; 0]; 0], "nothing changed");
    assert_eq!(carried(&mut pair, "UPDATE by_number SET b = 2"), [[0, 1, 2]], "the whole row");
    assert_eq!(carried(&mut pair, "UPDATE by_pair SET b = 2"), [[0, 1, 2, 3]]);
    assert_eq!(carried(&mut pair, "UPDATE unseen SET a = 2"), [[1]]);
    let large = "UPDATE by_number SET b = zeroblob(2001); UPDATE by_text SET b = printf('%2001d', 1)";
    assert_eq!(carried(&mut pair, large), [vec![0usize, 1, 2], vec![0, 1, 2, 4]], "they change");
    assert_eq!(carried(&mut pair, "UPDATE by_number SET a = 3"), [[0, 1]]);
    assert_eq!(carried(&mut pair, "UPDATE by_text SET a = 3"), [[0, 1, 4]]);
    assert_eq!(carried(&mut pair, "UPDATE by_text SET region = 3"), [[0, 1, 2, 4]], "the row may come in");
}
