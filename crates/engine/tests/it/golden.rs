//! A directory that format 1 left behind opens, and everything in it is there.
//!
//! `golden/format-1.tar.gz` is a crashed directory: its last changes are only in the trail. It must open in every later
//! release. [`make`] made it (`cargo test -p holdfast-engine --test it golden -- --ignored`); a new format gets a file of
//! its own beside it.

use crate::support::report_of;
use holdfast_engine::check::check;
use holdfast_engine::trail_dump::{Filter, Item, dump};
use holdfast_engine::{Collect, Database, Engine, Options, Step, Submission};
use holdfast_types::schema::Dialect;
use holdfast_types::{SessionContext, Value};
use std::path::{Path, PathBuf};
use std::process::Command;

fn options() -> Options {
    let initial_databases = vec![("shop".to_owned(), Dialect::Sqlite), ("idle".to_owned(), Dialect::Postgres)];
    Options { segment_bytes: 4 << 20, initial_databases, ..Options::default() }
}

fn archive() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1.tar.gz")
}

fn tar(flags: &str, archive: &Path, dir: &Path) {
    let ran = Command::new("tar").arg(flags).arg(archive).arg("-C").arg(dir).arg(".").status().unwrap();
    assert!(ran.success());
}

fn step(db: &Database, sql: &str) -> Step {
    Step { stmt: db.prepare(sql, report_of(sql)).unwrap(), params: Vec::new() }
}

fn change(db: &Database, sql: &str) {
    let batch = Submission::new(vec![step(db, sql)], Box::new(Collect::new()));
    db.submit(batch).unwrap().wait().unwrap().result.unwrap();
}

fn read(db: &Database, sql: &str) -> Vec<Vec<Value>> {
    let rows = Collect::new();
    db.reader().unwrap().run(&SessionContext::NONE, 0, &step(db, sql), &mut rows.clone()).unwrap();
    rows.outcomes().remove(0).rows
}

#[test]
#[ignore = "writes the golden directory of the present format anew"]
fn make() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    change(&db, "create table t(id integer primary key autoincrement, x)");
    change(&db, "create table pair(a, b, c, primary key(b, a)) without rowid");
    change(&db, "insert into t(x) values('in the file'), (1.5), (x'00ff'), (null)");
    db.checkpoint().unwrap();
    change(&db, "insert into pair values(1, 'k', 'only in the trail')");
    change(&db, "update t set x = 'changed' where id = 2");
    change(&db, "delete from t where id = 4");
    change(&db, "create index tx on t(x)");
    tar("-czf", &archive(), dir.path());
    engine.close().unwrap();
}

#[test]
fn the_directory_of_format_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    tar("-xzf", &archive(), dir.path());
    let report = check(dir.path(), &options()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let mut boxcars = 0;
    dump(dir.path(), &options(), Filter::default(), |item| {
        boxcars += u32::from(matches!(item, Item::Boxcar { .. }));
        assert!(!item.to_string().contains("unreadable"), "{item}");
        true
    })
    .unwrap();
    assert!(boxcars > 8);

    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    let text = |t: &str| Value::Text(t.to_owned());
    assert_eq!(
        read(&db, "select id, x from t order by id"),
        [
            [Value::Int(1), text("in the file")],
            [Value::Int(2), text("changed")],
            [Value::Int(3), Value::Blob(vec![0, 255])]
        ]
    );
    assert_eq!(read(&db, "select a, b, c from pair"), [[Value::Int(1), text("k"), text("only in the trail")]]);
    change(&db, "insert into t(x) values('after')");
    assert_eq!(read(&db, "select max(id) from t"), [[Value::Int(5)]]);
    assert_eq!(read(&engine.database("idle").unwrap(), "select 1"), [[Value::Int(1)]]);
    engine.close().unwrap();
}
