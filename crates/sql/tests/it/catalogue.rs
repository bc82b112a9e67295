//! The catalogue queries of psql, drivers and pgbench on real SQLite, compared with PostgreSQL's answers.

use crate::common::Db;
use holdfast_types::schema::Dialect;

const SETUP: &str = "create table a(id serial primary key, name varchar(20) not null, n numeric(10,2) default 0, ok boolean default true, t timestamp default now(), u int unique);
create table b(id int primary key references a(id) on delete cascade, c char(5), check (id > 0));
create index b_c on b(c) where c is not null;
create index b_lower on b(lower(c), id desc);
create view v as select id, name from a";

fn db() -> Db {
    let mut db = Db::postgres();
    db.run(SETUP).unwrap();
    db
}

fn oid(db: &mut Db, name: &str) -> String {
    db.lines(&format!("select '{name}'::regclass::oid")).remove(0)
}

/// The queries of psql 15, as `psql -E` prints them; `{oid}` stands for the table's OID.
const PSQL: &str = include_str!("catalogue/psql.sql");

fn psql(title: &str) -> Vec<&'static str> {
    let mut parts = PSQL.split("--- ").filter(|p| p.lines().next().map(str::trim) == Some(title));
    let part = parts.next().unwrap_or_else(|| panic!("no section {title}"));
    part.split_once('\n').unwrap().1.split(";\n").map(str::trim).filter(|q| !q.is_empty()).collect()
}

fn answers(db: &mut Db, title: &str, table: &str) -> Vec<Vec<String>> {
    let id = if table.is_empty() { String::new() } else { oid(db, table) };
    psql(title).into_iter().map(|q| db.lines(&q.replace("{oid}", &id).replace("{name}", table))).collect()
}

#[test]
fn psql_lists() {
    let mut db = db();
    assert_eq!(answers(&mut db, "\\l", "")[0], ["postgres|holdfast|UTF8|C|C|NULL|libc|NULL"]);
    assert_eq!(
        answers(&mut db, "\\d", "")[0],
        [
            "public|a|table|holdfast",
            "public|a_id_seq|sequence|holdfast",
            "public|b|table|holdfast",
            "public|v|view|holdfast"
        ]
    );
    assert_eq!(answers(&mut db, "\\dt", "")[0], ["public|a|table|holdfast", "public|b|table|holdfast"]);
    assert_eq!(
        answers(&mut db, "\\di", "")[0],
        [
            "public|a_pkey|index|holdfast|a",
            "public|a_u_key|index|holdfast|a",
            "public|b_c|index|holdfast|b",
            "public|b_lower|index|holdfast|b",
            "public|b_pkey|index|holdfast|b",
        ]
    );
    assert_eq!(answers(&mut db, "\\dv", "")[0], ["public|v|view|holdfast"]);
    assert_eq!(answers(&mut db, "\\dn", "")[0], ["public|pg_database_owner"]);
    assert_eq!(answers(&mut db, "\\du", "")[0], ["holdfast|t|t|t|t|t|-1|NULL|{}|t|t"]);
    assert!(answers(&mut db, "\\dt+", "")[0][0].starts_with("public|a|table|holdfast|permanent|heap|"));
    assert_eq!(answers(&mut db, "\\df", "")[0], [""; 0]);
}

#[test]
fn psql_describes_a_table() {
    let mut db = db();
    let found = answers(&mut db, "\\d table", "a");
    assert_eq!(found[0].len(), 1);
    assert_eq!(found[1], ["0|r|t|f|t|f|f|f|f||0||p|d|heap"]);
    assert_eq!(
        found[2],
        [
            "id|integer|nextval('a_id_seq'::regclass)|t|NULL||",
            "name|character varying(20)|NULL|t|NULL||",
            "n|numeric(10,2)|0.00|f|NULL||",
            "ok|boolean|true|f|NULL||",
            "t|timestamp without time zone|now()|f|NULL||",
            "u|integer|NULL|f|NULL||",
        ]
    );
    assert_eq!(
        found[3],
        [
            "a_pkey|t|t|f|t|CREATE UNIQUE INDEX a_pkey ON public.a USING btree (id)|PRIMARY KEY (id)|p|f|f|f|0",
            "a_u_key|f|t|f|t|CREATE UNIQUE INDEX a_u_key ON public.a USING btree (u)|UNIQUE (u)|u|f|f|f|0",
        ]
    );
    assert_eq!(found[5], [""; 0], "foreign keys");
    assert_eq!(found[6], ["b_id_fkey|b|FOREIGN KEY (id) REFERENCES a(id) ON DELETE CASCADE"]);
    for empty in &found[7..] {
        assert_eq!(*empty, [""; 0]);
    }
    let found = answers(&mut db, "\\d table", "b");
    assert_eq!(found[2], ["id|integer|NULL|t|NULL||", "c|character(5)|NULL|f|NULL||"]);
    assert_eq!(
        found[3],
        [
            "b_pkey|t|t|f|t|CREATE UNIQUE INDEX b_pkey ON public.b USING btree (id)|PRIMARY KEY (id)|p|f|f|f|0",
            "b_c|f|f|f|t|CREATE INDEX b_c ON public.b USING btree (c) WHERE (c IS NOT NULL)|NULL|NULL|NULL|NULL|f|0",
            "b_lower|f|f|f|t|CREATE INDEX b_lower ON public.b USING btree (lower(c), id DESC)|NULL|NULL|NULL|NULL|f|0",
        ]
    );
    assert_eq!(found[4], ["b_id_check|CHECK (id > 0)"]);
    assert_eq!(found[5], ["t|b_id_fkey|FOREIGN KEY (id) REFERENCES a(id) ON DELETE CASCADE|b"]);
}

#[test]
fn psql_describes_with_details_and_views_and_indexes() {
    let mut db = db();
    for (title, table) in [("\\d+ table", "a"), ("\\d view", "v"), ("\\d index", "a_u_key")] {
        let found = answers(&mut db, title, table);
        assert_eq!(found[0].len(), 1, "{title}");
        assert!(!found[2].is_empty(), "{title}");
    }
    assert_eq!(db.lines("select pg_get_viewdef('v'::regclass, true)").len(), 1);
}

#[test]
fn a_sqlite_database_shows_itself_too() {
    let mut db = Db::new(Dialect::Sqlite);
    db.conn
        .execute_batch(
            "create table t (id integer primary key autoincrement, name text not null default 'x', v, r real, check (r > 0));
             create table w (a text, b int, primary key (a, b)) without rowid;
             create unique index t_name on t (name collate nocase);
             create view tv as select * from t;
             create trigger tr after insert on t begin select 1; end",
        )
        .unwrap();
    db.reload();
    assert_eq!(
        answers(&mut db, "\\d", "")[0],
        ["public|t|table|holdfast", "public|tv|view|holdfast", "public|w|table|holdfast"]
    );
    let found = answers(&mut db, "\\d table", "t");
    assert_eq!(
        found[2],
        [
            "id|bigint|NULL|t|NULL||",
            "name|text|'x'::text|t|NULL||",
            "v|text|NULL|f|NULL||",
            "r|double precision|NULL|f|NULL||"
        ]
    );
    assert_eq!(found[4], ["t_check|CHECK (r > 0)"]);
    assert_eq!(answers(&mut db, "\\d table", "w")[3].len(), 1);
}

#[test]
fn drivers_ask() {
    let mut db = db();
    for query in include_str!("catalogue/drivers.sql").split(";\n").map(str::trim).filter(|q| !q.is_empty()) {
        if let Err(e) = db.translate(query).and_then(|t| {
            let params = vec![holdfast_types::Value::Text("1".into()); t.desc.params.len()];
            let params = t.bind(&[], &params, &crate::common::Session).or_else(|_| {
                let scan = holdfast_sql::Scan::new(query, Dialect::Postgres)?;
                let piece = scan.pieces().next().unwrap();
                t.bind(&piece.literals(), &params, &crate::common::Session)
            })?;
            db.execute(&t, params)
        }) {
            panic!("{query}\n{e:?}");
        }
    }
    assert_eq!(db.lines("select typname from pg_type where oid = 'int4'::regtype"), ["int4"]);
    assert_eq!(
        db.lines("select column_name, data_type, is_nullable from information_schema.columns where table_name = 'b' order by ordinal_position"),
        ["id|integer|NO", "c|character|YES"]
    );
    assert_eq!(
        db.lines("select constraint_name, constraint_type from information_schema.table_constraints where table_name = 'b' order by 1"),
        ["b_id_check|CHECK", "b_id_fkey|FOREIGN KEY", "b_pkey|PRIMARY KEY"]
    );
}
