//! Databases of SQLite's dialect: SQLite's results, with the session commands and parameters of PostgreSQL's clients.

use crate::common::{Db, Session};
use holdfast_sql::{Kind, ParamSource, Scan, translate};
use holdfast_types::Value;
use holdfast_types::schema::Dialect;

fn db() -> Db {
    let mut db = Db::new(Dialect::Sqlite);
    db.conn
        .execute_batch(
            "create table t (id integer primary key, name text, price real, data blob, flag boolean, any);
             insert into t values (1, 'A', 1.5, x'01', 1, 'x'), (2, 'b', 2, x'02', 0, 5)",
        )
        .unwrap();
    db.reload();
    db
}

#[test]
fn results_are_sqlites() {
    let mut db = db();
    assert_eq!(db.lines("select 7/2, 1/0, 'ABC' like 'abc', '5' + 1, 1 = '1'"), ["3|NULL|1|6|0"]);
    assert_eq!(db.lines("select id from t order by name desc"), ["2", "1"]);
    assert_eq!(db.lines("select [id], `name`, \"price\" from t where id = 1"), ["1|A|1.5"]);
    assert_eq!(db.lines("select count(*) from t where rowid in (1, 2)"), ["2"]);
    assert_eq!(db.lines("pragma table_info(t)").len(), 6);
    assert_eq!(db.state("pragma journal_mode = off"), "0A000");
    assert_eq!(db.state("attach 'x' as y"), "0A000");
}

#[test]
fn columns_have_types_by_declaration_and_shape() {
    let mut db = db();
    let answer = db.run("select id, name, price, data, flag, any, count(*), 5, 2.5, id > 1 from t").unwrap();
    let types: Vec<&str> = answer.columns.iter().map(|c| c.1.as_str()).collect();
    assert_eq!(
        types,
        [
            "bigint",
            "text",
            "double precision",
            "bytea",
            "boolean",
            "text",
            "bigint",
            "bigint",
            "double precision",
            "bigint"
        ]
    );
}

#[test]
fn client_parameters_keep_their_numbers() {
    let mut db = db();
    let values = [Value::Int(2), Value::Text("b".into())];
    let answer =
        db.run_with("select id from t where name = $2 and id = $1 and $2 is not null and id < 100", &values).unwrap();
    assert_eq!(answer.lines(), ["2"]);
    let answer = db.run_with("select ?, ?", &[Value::Int(1), Value::Int(2)]).unwrap();
    assert_eq!(answer.lines(), ["1|2"]);
}

#[test]
fn literals_become_parameters_only_where_they_may() {
    let db = db();
    let lifted = |sql: &str| -> Vec<Value> {
        let scan = Scan::new(sql, Dialect::Sqlite).unwrap();
        let piece = scan.pieces().next().unwrap();
        let translated = translate(&piece, &db.context()).unwrap();
        let literals = translated.params.iter().filter(|p| matches!(p.source, ParamSource::Literal(_))).count();
        let values = translated.bind(&piece.literals(), &[], &Session).unwrap();
        assert_eq!(values.len(), literals);
        values
    };
    let text = |s: &str| Value::Text(s.into());
    assert_eq!(lifted("insert into t (id, name) values (3, 'it''s')"), [Value::Int(3), text("it's")]);
    assert_eq!(
        lifted("update t set name = 'x', price = price + 1 where id = 7"),
        [text("x"), Value::Int(1), Value::Int(7)]
    );
    assert_eq!(lifted("delete from t where id = 5 and name > 'a'"), [Value::Int(5), text("a")]);
    for fixed in [
        "select 1, 'a' from t limit 5",
        "select * from t order by 1",
        "select * from t where name like 'a%'",
        "insert into t (id) values (1 + 2)",
        "select json_extract(any, '$.a') from t",
        "create table x (a default 5)",
    ] {
        assert_eq!(lifted(fixed), [], "{fixed}");
    }
}

#[test]
fn commands_and_catalogue_queries_are_understood() {
    let mut db = db();
    let kind = |db: &Db, sql: &str| db.translate(sql).unwrap().kind;
    assert!(matches!(kind(&db, "begin immediate"), Kind::Begin(_)));
    assert!(matches!(kind(&db, "commit"), Kind::Commit { .. }));
    assert!(matches!(kind(&db, "set application_name = 'x'"), Kind::Set { .. }));
    assert!(matches!(kind(&db, "show server_version"), Kind::Show(_)));
    assert!(matches!(kind(&db, "copy t from stdin"), Kind::CopyIn(_)));
    assert!(matches!(kind(&db, "with x as (select 1) delete from t where id in (select * from x)"), Kind::Delete));
    assert_eq!(db.lines("select relname from pg_catalog.pg_class where relkind = 'r' and relnamespace = 2200"), ["t"]);
    assert_eq!(db.lines("select 't'::regclass::text, '5'::int4"), ["t|5"]);
    assert!(db.lines("select version()")[0].starts_with("PostgreSQL 15.0 (Holdfast"));
    let trigger = "create trigger tr after insert on t begin update t set name = 'q' where id = new.id; select 1; end";
    assert!(matches!(kind(&db, trigger), Kind::Ddl));
}
