//! A large import against stock SQLite as oracle, through changes, crash, redo, VACUUM and a clean stop.

mod fixture;

use crate::support::report_of;
use fixture::{CHANGES, assert_same, contents, fill, stock, stock_contents};
use holdfast_engine::import::{Import, ImportError, Imported, import};
use holdfast_engine::{Collect, Database, Engine, Options, Report, Step, Submission};
use holdfast_types::{SessionContext, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn options() -> Options {
    Options { segment_bytes: 4 << 20, ..Options::default() }
}

fn try_import(file: &Path, dir: &Path) -> Result<Imported, ImportError> {
    let what = Import { file: file.to_owned(), dir: dir.to_owned(), database: None, adopt: false };
    import(&what, options(), Arc::new(|_| ()))
}

fn step(db: &Database, sql: &str) -> Step {
    let report = Report { counts: true, ..report_of(sql) };
    Step { stmt: db.prepare(sql, report).unwrap_or_else(|e| panic!("{sql}: {e}")), params: Vec::new() }
}

fn change(db: &Database, sql: &str) {
    let batch = Submission::new(vec![step(db, sql)], Box::new(Collect::new()));
    db.submit(batch).unwrap().wait().unwrap().result.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

fn engine_contents(db: &Database) -> Vec<(String, Vec<Vec<Value>>)> {
    contents(&mut |sql| {
        let stmt = db.prepare(sql, report_of(sql)).map_err(|e| e.to_string())?;
        let rows = Collect::new();
        let mut reader = db.reader().unwrap();
        reader
            .run(&SessionContext::NONE, 0, &Step { stmt, params: Vec::new() }, &mut rows.clone())
            .map_err(|e| e.to_string())?;
        Ok(rows.outcomes().remove(0).rows)
    })
}

fn check_integrity(conn: &mut holdfast_store::sqlite::Conn) {
    assert_eq!(conn.query_rows("pragma integrity_check").unwrap(), [[Value::Text("ok".into())]]);
    assert_eq!(conn.query_rows("pragma foreign_key_check").unwrap().len(), 0);
}

/// What a kill leaves behind: the directory as it is while everything runs.
fn copy_of(dir: &Path) -> tempfile::TempDir {
    loop {
        let to = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(to.path()).output().unwrap();
        if copied.status.success() {
            return to;
        }
    }
}

/// Import, change, crash, VACUUM, change, crash, stop: after each the same as stock SQLite after the same statements.
fn as_stock_sqlite_does(prepare: &str) {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("big app.db");
    let mut oracle = stock(&source);
    oracle.exec(prepare).unwrap();
    fill(&mut oracle);
    drop(oracle);
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("data");
    let imported = try_import(&source, &dir).unwrap();
    assert_eq!(imported.database, "big app");
    let mut oracle = stock(&source);

    let engine = Engine::open(&dir, options()).unwrap();
    let db = engine.database("big app").unwrap();
    assert_same(&engine_contents(&db), &stock_contents(&mut oracle), "imported");
    let (first, second) = CHANGES.split_at(CHANGES.len() / 2);
    for sql in first {
        change(&db, sql);
        oracle.exec(sql).unwrap();
    }
    let expected = stock_contents(&mut oracle);
    assert_same(&engine_contents(&db), &expected, "changed");
    let crashed = copy_of(&dir);
    drop(db);
    engine.close().unwrap();

    let engine = Engine::open(crashed.path(), options()).unwrap();
    let db = engine.database("big app").unwrap();
    assert_same(&engine_contents(&db), &expected, "redone");
    db.vacuum().unwrap();
    assert_same(&engine_contents(&db), &expected, "vacuumed");
    for sql in second {
        change(&db, sql);
        oracle.exec(sql).unwrap();
    }
    let expected = stock_contents(&mut oracle);
    assert_same(&engine_contents(&db), &expected, "changed after VACUUM");
    let crashed_again = copy_of(crashed.path());
    drop(db);
    engine.close().unwrap();

    let engine = Engine::open(crashed_again.path(), options()).unwrap();
    let db = engine.database("big app").unwrap();
    assert_same(&engine_contents(&db), &expected, "redone after VACUUM");
    drop(db);
    let path = engine.databases().into_iter().find(|d| d.name == "big app").unwrap().path;
    engine.close().unwrap();
    drop(engine);
    let mut plain = stock(&path);
    check_integrity(&mut plain);
    assert_same(&stock_contents(&mut plain), &expected, "opened by stock SQLite");
}

#[test]
fn utf8_with_another_page_size_and_auto_vacuum() {
    as_stock_sqlite_does("pragma page_size=1024; pragma auto_vacuum=full");
}

#[test]
fn utf16() {
    as_stock_sqlite_does("pragma encoding='UTF-16le'");
}

fn bytes_of(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|p| (p.clone(), std::fs::read(p).unwrap()))
        .collect();
    all.sort();
    all
}

/// A WAL database whose last transactions are only in the `-wal`, as a crash of its program leaves it.
#[test]
fn a_wal_is_honoured_and_nothing_of_the_source_changes() {
    let files = tempfile::tempdir().unwrap();
    let mut conn = stock(&files.path().join("live.db"));
    conn.exec("pragma journal_mode=wal; pragma wal_autocheckpoint=0; create table t(x); insert into t values(1)")
        .unwrap();
    let left = tempfile::tempdir().unwrap();
    for name in ["live.db", "live.db-wal"] {
        std::fs::copy(files.path().join(name), left.path().join(name)).unwrap();
    }
    drop(conn);
    let before = bytes_of(left.path());
    assert!(before[1].1.len() > 4096);
    let dir = tempfile::tempdir().unwrap();
    try_import(&left.path().join("live.db"), dir.path()).unwrap();
    assert_eq!(bytes_of(left.path()), before);
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("live").unwrap();
    change(&db, "insert into t values(2)");
    engine.close().unwrap();
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, sql: &str| {
        let path = files.path().join(name);
        stock(&path).exec(sql).unwrap();
        path
    };
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| try_import(path, dir.path()).unwrap_err();

    let text = files.path().join("text.db");
    std::fs::write(&text, "not a database, but long enough to be taken for one".repeat(10)).unwrap();
    assert!(matches!(refused(&text), ImportError::NotSqlite { .. }));
    std::fs::write(&text, "").unwrap();
    assert!(matches!(refused(&text), ImportError::NotSqlite { .. }));
    assert!(matches!(refused(&files.path().join("missing.db")), ImportError::Io { .. }));

    let good = file("good.db", "create table t(x); insert into t values(zeroblob(100000))");
    let mut bytes = std::fs::read(&good).unwrap();
    bytes[4096..4200].fill(0xee);
    let damaged = files.path().join("damaged.db");
    std::fs::write(&damaged, bytes).unwrap();
    assert!(matches!(refused(&damaged), ImportError::Damaged { .. }));

    let no_name = file("noname.db", "create table t(rowid, oid, _rowid_)");
    assert!(matches!(refused(&no_name), ImportError::Schema { .. }));
    let reserved = file("reserved.db", "create table Holdfast_x(a)");
    assert!(matches!(refused(&reserved), ImportError::Schema { .. }));
    let claims = file("claims.db", "create table holdfast_meta(a)");
    assert!(matches!(refused(&claims), ImportError::Schema { .. }));

    let mut busy = stock(&good);
    busy.exec("begin exclusive").unwrap();
    assert!(matches!(refused(&good), ImportError::InUse { .. }));
    drop(busy);
    try_import(&good, dir.path()).unwrap();
    assert!(matches!(refused(&good), ImportError::Exists { .. }));

    let engine = Engine::open(dir.path(), options()).unwrap();
    assert!(matches!(refused(&file("another.db", "create table t(x)")), ImportError::Open(_)), "in use");
    let names: Vec<_> = engine.databases().into_iter().map(|d| d.name).collect();
    assert_eq!(names, ["holdfast", "postgres", "good"]);
    let files = bytes_of(&dir.path().join("volumes"));
    assert_eq!(files.iter().filter(|(p, _)| p.extension().is_some_and(|e| e == "db")).count(), 3, "{files:?}");
    engine.close().unwrap();
}

/// RULE 13: another program writes to a volume after a crash, with redo pending. The directory refuses to open until
/// the file's content is adopted, or the file put back.
#[test]
fn a_foreign_change_is_adopted_as_the_start_of_a_new_history() {
    let files = tempfile::tempdir().unwrap();
    let source = files.path().join("shop.db");
    stock(&source).exec("create table t(x); insert into t values(1)").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = try_import(&source, dir.path()).unwrap().path;
    let engine = Engine::open(dir.path(), options()).unwrap();
    change(&engine.database("shop").unwrap(), "insert into t values(2)");
    change(&engine.database("postgres").unwrap(), "create table kept(x)");
    let crashed = copy_of(dir.path());
    engine.close().unwrap();
    let path = crashed.path().join(path.strip_prefix(dir.path()).unwrap());
    stock(&path).exec("insert into t values('foreign')").unwrap();
    assert!(Engine::open(crashed.path(), options()).is_err());

    let adopt = |adopt| Import { file: path.clone(), dir: crashed.path().to_owned(), database: None, adopt };
    let refused = import(&adopt(false), options(), Arc::new(|_| ())).unwrap_err();
    assert!(matches!(refused, ImportError::OwnVolume { .. }), "{refused}");
    let adopted = import(&adopt(true), options(), Arc::new(|_| ())).unwrap();
    assert_eq!(adopted.database, "shop");
    assert!(!path.exists());
    let engine = Engine::open(crashed.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    let rows = Collect::new();
    db.reader().unwrap().run(&SessionContext::NONE, 0, &step(&db, "select x from t"), &mut rows.clone()).unwrap();
    assert_eq!(rows.outcomes()[0].rows, [[Value::Int(1)], [Value::Text("foreign".into())]]);
    step(&engine.database("postgres").unwrap(), "select * from kept");
    engine.close().unwrap();
}
