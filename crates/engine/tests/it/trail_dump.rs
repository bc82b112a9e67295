//! What a trail dump shows of every kind of change.

use crate::support::report_of;
use holdfast_engine::trail_dump::{Filter, dump};
use holdfast_engine::{Collect, Database, Engine, Options, Step, Submission};
use holdfast_types::schema::Dialect;
use holdfast_types::{Lsn, VolumeId};
use std::path::Path;

fn options() -> Options {
    Options {
        segment_bytes: 4 << 20,
        initial_databases: vec![("shop".to_owned(), Dialect::Sqlite), ("other".to_owned(), Dialect::Postgres)],
        ..Options::default()
    }
}

fn change(db: &Database, sql: &str) {
    let step = Step { stmt: db.prepare(sql, report_of(sql)).unwrap(), params: Vec::new() };
    let batch = Submission::new(vec![step], Box::new(Collect::new()));
    db.submit(batch).unwrap().wait().unwrap().result.unwrap();
}

fn text(dir: &Path, filter: Filter) -> Vec<String> {
    let mut lines = Vec::new();
    dump(dir, &options(), filter, |item| {
        lines.extend(item.to_string().lines().map(|line| line.trim().to_owned()));
        true
    })
    .unwrap();
    lines
}

#[test]
fn every_kind_of_change_is_shown_with_names() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    for sql in [
        "create table t(id integer primary key autoincrement, x, y)",
        "create table pair(a, b, c, primary key(b, a)) without rowid",
        "insert into t(x, y) values('it''s', x'00ff')",
        "update t set x = null, y = 1.5 where id = 1",
        "update t set id = 9 where id = 1",
        "insert into pair values(1, 'k', 2)",
        "delete from pair where a = 1 and b = 'k'",
    ] {
        change(&db, sql);
    }
    change(&engine.database("other").unwrap(), "create table elsewhere(x)");
    engine.close().unwrap();
    drop((db, engine));

    let lines = text(dir.path(), Filter::default());
    for expected in [
        "volume 1 created, dialect sqlite, name shop",
        "insert t rowid=1: id=1, x='it''s', y=x'00ff'",
        "update t id=1: x 'it''s' -> NULL, y x'00ff' -> 1.5",
        "insert pair: a=1, b='k', c=2",
        "delete pair b='k', a=1: a=1, b='k', c=2",
        "ddl to schema epoch 2: create table elsewhere(x)",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\nnot in\n{}", lines.join("\n"));
    }
    assert!(lines.iter().any(|line| line.starts_with("update t id=1 to id=9")), "{}", lines.join("\n"));
    assert!(lines.iter().any(|line| line.starts_with("checkpoint of volume 1 (shop) at 7,")), "{}", lines.join("\n"));
    assert!(lines.last().unwrap().starts_with("stop at LSN"));

    let other = text(dir.path(), Filter { volume: Some(VolumeId(2)), from: None });
    assert!(other.iter().any(|line| line.contains("elsewhere")) && !other.iter().any(|line| line.contains("pair")));
    let nothing = text(dir.path(), Filter { from: Some(Lsn(u64::MAX)), volume: None });
    assert!(nothing.iter().all(|line| line.starts_with("stop at LSN")), "{nothing:?}");
}

#[test]
fn json_can_be_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), options()).unwrap();
    let db = engine.database("shop").unwrap();
    change(&db, "create table t(x, y)");
    change(&db, "insert into t values('a', x'01')");
    engine.close().unwrap();
    drop((db, engine));
    let mut inserts = Vec::new();
    dump(dir.path(), &options(), Filter::default(), |item| {
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(item).unwrap()).unwrap();
        for record in json["records"].as_array().into_iter().flatten().filter(|r| r["record"] == "batch") {
            for op in record["transactions"][0]["ops"].as_array().unwrap() {
                if op["op"] == "insert" {
                    inserts.push(op.clone());
                }
            }
        }
        true
    })
    .unwrap();
    let expected = r#"[{"op":"insert","table":"t","rowid":1,"values":{"x":"a","y":{"blob":"01"}}}]"#;
    assert_eq!(serde_json::Value::from(inserts), serde_json::from_str::<serde_json::Value>(expected).unwrap());
}
