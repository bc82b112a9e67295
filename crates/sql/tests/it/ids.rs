//! Ids of new rows: every INSERT takes them from the shared counter, and nothing that a client sees changes.

use crate::common::Db;
use holdfast_sql::{Kind, NEXT_ID_FUNCTION, ParamSource};
use holdfast_types::Value;
use holdfast_types::schema::Dialect;

fn step(db: &Db, sql: &str) -> String {
    db.translate(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}")).steps.pop().unwrap().sql
}

fn counts(db: &Db, sql: &str) -> usize {
    step(db, sql).matches(NEXT_ID_FUNCTION).count()
}

fn postgres() -> Db {
    let mut db = Db::postgres();
    db.run(
        "create table s (id bigserial primary key, a int unique, b text default 'd');
         create table h (a int, b text);
         create table n (rowid int, _rowid_ int, a int);
         create table full_up (rowid int, _rowid_ int, oid int);
         create table k (id int primary key, a int)",
    )
    .unwrap();
    db.conn.execute_batch("create table w (k text primary key, v) without rowid").unwrap();
    db.reload();
    db
}

#[test]
fn every_row_without_an_id_gets_one() {
    let mut db = postgres();
    for (sql, calls) in [
        ("insert into s (a) values (1)", 1),
        ("insert into s (a) values (2), (3)", 2),
        ("insert into s default values", 1),
        ("insert into s (id, a) values (default, 4), (70, 5)", 1),
        ("insert into s (a) select 6", 1),
        ("insert into s (a, b) values (1, 'x') on conflict (a) do update set b = excluded.b", 1),
        ("insert into h values (1, 'x'), (2, 'y')", 2),
        ("insert into h default values", 1),
        ("insert into h select from s", 1),
        ("insert into n values (1, 2, 3)", 1),
        ("insert into s values (80, 7)", 0),
        ("insert into k values (1, 1)", 0),
        ("insert into full_up values (1, 2, 3)", 0),
        ("insert into w values ('x', 1)", 0),
        ("update s set id = default where id = 70", 1),
    ] {
        assert_eq!(counts(&db, sql), calls, "{sql}");
        db.run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    let rows = db.lines("select id, a, b from s order by id");
    assert_eq!(rows, ["1|1|x", "2|2|d", "3|3|d", "4|NULL|d", "5|4|d", "6|6|d", "8|5|d", "80|7|d"]);
    assert!(step(&db, "insert into n values (1, 2, 3)").contains("\"oid\") VALUES"), "the first free name");
    assert_eq!(db.state("insert into k (a) values (5)"), "23502");
}

#[test]
fn a_hidden_id_is_the_counters_too() {
    let mut db = postgres();
    db.ids.lock().unwrap().insert("h".into(), 100);
    db.run("insert into h select i, 'x' from generate_series(1, 3) as g(i)").unwrap();
    let ids: Vec<i64> =
        db.conn.prepare("select rowid from h").unwrap().query_map([], |r| r.get(0)).unwrap().flatten().collect();
    assert_eq!(ids, [101, 102, 103]);
}

#[test]
fn rows_of_a_query_are_numbered_in_its_order() {
    let mut db = postgres();
    db.run("insert into h values (3, 'c'), (1, 'a'), (2, 'b')").unwrap();
    db.run("insert into s (a, b) select a, b from h order by b").unwrap();
    assert_eq!(db.lines("select id, a from s order by id"), ["1|1", "2|2", "3|3"]);
    db.run("insert into s (a) with x as (select a + 10 as y from h) select y from x order by y desc limit 2").unwrap();
    assert_eq!(db.lines("select id, a from s where id > 3 order by id"), ["4|13", "5|12"]);
    // A table may have the same name as a part of the translation.
    db.run("create table rows (a int)").unwrap();
    db.run("insert into rows values (9)").unwrap();
    db.run("insert into s (a) select a from rows on conflict do nothing").unwrap();
    assert_eq!(db.lines("select id, a from s where a = 9"), ["6|9"]);
}

#[test]
fn clients_see_what_they_saw() {
    let mut db = postgres();
    let translated = db.translate("insert into s (a, b) values (5, $1), ($2, 'x') returning *").unwrap();
    assert_eq!(translated.kind, Kind::Insert);
    assert_eq!(translated.verb, "INSERT 0");
    let names: Vec<&str> = translated.desc.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!((names, translated.desc.params.len()), (vec!["id", "a", "b"], 2));
    let lifted = translated.params.iter().filter(|p| matches!(p.source, ParamSource::Literal(_))).count();
    assert_eq!(lifted, 2);
    let answer = db.run_with("insert into s (a, b) values (5, $1) returning *", &[Value::Text("q".into())]).unwrap();
    assert_eq!((answer.lines(), answer.changes), (vec!["1|5|q".to_owned()], 1));
    assert_eq!(db.run("insert into h values (1, 'x') returning *").unwrap().lines(), ["1|x"]);
}

#[test]
fn copy_takes_ids_too() {
    let db = postgres();
    let calls = |sql: &str| {
        db.translate(sql).unwrap().steps.iter().map(|step| step.sql.matches(NEXT_ID_FUNCTION).count()).sum::<usize>()
    };
    assert_eq!(calls("copy s (a, b) from stdin"), 1);
    assert_eq!(calls("copy h from stdin"), 1);
    assert_eq!(calls("copy s from stdin"), 0);
    let mut other = sqlite();
    let copy = other.translate("copy t from stdin").unwrap();
    assert!(copy.steps[0].sql.contains("coalesce(?1, holdfast_next_id('t'))"), "{:?}", copy.steps);
    other.execute(&copy, vec![Value::Null, Value::Text("x".into()), Value::Null]).unwrap();
    assert_eq!(other.lines("select id, name from t"), ["11|x"]);
}

/// A statement that the engine runs in the writer must stay bounded after translation: it loops over nothing but its own
/// rows.
#[test]
fn values_stay_bounded() {
    let db = postgres();
    for sql in [
        "insert into s (a) values (1)",
        "insert into h values (1, 'x'), (2, 'y')",
        "insert into s (a) values (1), (2) on conflict (a) do update set b = 'x' returning id",
    ] {
        let step = step(&db, sql);
        assert!(step.contains("VALUES ("), "{step}");
        let mut explain = db.conn.prepare(&format!("explain {step}")).unwrap();
        let (mut rows, mut ops) = (explain.raw_query(), Vec::<(String, i64)>::new());
        while let Some(row) = rows.next().unwrap() {
            ops.push((row.get(1).unwrap(), row.get(2).unwrap()));
        }
        let ephemeral = |cursor: i64| ops.iter().any(|(op, p1)| op == "OpenEphemeral" && *p1 == cursor);
        assert!(ops.iter().all(|(op, p1)| op != "Next" || ephemeral(*p1)), "{step}\n{ops:?}");
    }
}

fn sqlite() -> Db {
    let mut db = Db::new(Dialect::Sqlite);
    db.conn
        .execute_batch(
            "create table t (id integer primary key, name text unique, g as (id + 1), x);
             create table h (a, b);
             create table \"it's\" (a);
             create table w (k primary key, v) without rowid;
             create table auto (id integer primary key autoincrement, a);
             create view v as select 1 as a;
             create virtual table f using fts5(body);",
        )
        .unwrap();
    db.reload();
    db.ids.lock().unwrap().insert("t".into(), 10);
    db
}

#[test]
fn sqlite_statements_keep_their_text_around_the_id() {
    let db = sqlite();
    for (sql, wanted) in [
        (
            "insert into t (name) values ('a'), (?) -- end",
            "insert into t (name, \"id\") values (?1, holdfast_next_id('t')), (?2, holdfast_next_id('t')) -- end",
        ),
        (
            "insert into h values (1, 2)",
            "insert into h (\"a\", \"b\", \"rowid\") values (?1, ?2, holdfast_next_id('h'))",
        ),
        ("insert into h(rowid, a) values (5, 1)", "insert into h(rowid, a) values (?1, ?2)"),
        (
            "insert into h(OID, a) values (null, 1)",
            "insert into h(OID, a) values (coalesce(null, holdfast_next_id('h')), ?1)",
        ),
        (
            "replace into main.t values (?, 'x', 1)",
            "replace into main.t values (coalesce(?1, holdfast_next_id('t')), ?2, ?3)",
        ),
        ("insert or ignore into t values (-5, 'x', 1)", "insert or ignore into t values (-5, ?1, ?2)"),
        (
            "insert into [it's] as i values ((select 1)) returning a",
            "insert into [it's] as i (\"a\", \"rowid\") values ((select 1), holdfast_next_id('it''s')) returning a",
        ),
        (
            "insert into t default values returning id",
            "insert into t (\"id\") VALUES (holdfast_next_id('t')) returning id",
        ),
        ("insert into w values (1, 2)", "insert into w values (?1, ?2)"),
        ("insert into f values ('x')", "insert into f values (?1)"),
        ("insert into t (name) values (1, 2)", "insert into t (name) values (?1, ?2)"),
        ("insert into nothing values (1)", "insert into nothing values (?1)"),
    ] {
        assert_eq!(step(&db, sql), wanted, "{sql}");
    }
}

#[test]
fn sqlite_inserts_run_with_the_counters_ids() {
    let mut db = sqlite();
    for sql in [
        "insert into t (name) values ('a')",
        "insert into t values (NULL, 'b', 1)",
        "insert into t (id, name) values (50, 'c')",
        "with q(n) as (values ('d'), ('e')) insert into t (name) select n from q order by n desc -- no more",
        "insert or replace into t (name, x) values ('a', 'again')",
        "insert into t (name) select 'b' where 1 on conflict (name) do update set x = 'met' returning id",
        "insert into t (id, name) select null, 'f' union all select 60, 'g'",
        "insert into t (name) values ('h') union select 'i'",
        "insert into t default values",
        "replace into t (name) values ('c')",
    ] {
        db.run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }
    assert_eq!(
        db.lines("select id, name, x from t order by id"),
        [
            "12|b|met",
            "13|e|NULL",
            "14|d|NULL",
            "15|a|again",
            "17|f|NULL",
            "18|h|NULL",
            "19|i|NULL",
            "20|NULL|NULL",
            "21|c|NULL",
            "60|g|NULL"
        ]
    );
    assert_eq!(db.lines("insert into t (name) values ('z') returning id, name"), ["22|z"]);
    db.run("insert into auto (a) values (1); insert into h select * from h; insert into h select 1, 2").unwrap();
    assert_eq!(db.lines("select rowid, a, b from h"), ["1|1|2"]);
    assert!(db.run("insert into t (name) select 1, 2").is_err());
    assert!(db.run("insert into t (name) values ('q'").is_err());
}
