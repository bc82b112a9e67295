//! RULE 15: what is stored is readable and writable for stock SQLite, and the types come back from it.

use crate::common::Db;
use rusqlite::Connection;

const DDL: &str = "create table p (id serial primary key, name varchar(20) not null default 'n', ok boolean default true, at timestamptz default now(), day date default current_date);
create table q (id integer primary key, k text, n numeric(8,2) check (n > 0), j jsonb, u uuid, r real, d double precision, b bytea, c char(3), s smallint, p_id bigint references p (id) on delete set null, g int generated always as (s + 1) stored, unique (k), check (length(k) > 1 and d < 2.5));
create index q_k on q (lower(k) desc) where k is not null;
create index q_s on q (s, c);
create view v as select p.id, name, count(*) as n, max(q.s) as m from p left join q on q.p_id = p.id where name like 'a%' or ok group by p.id;
create table pair (a int, b text, primary key (a, b))";

fn db() -> Db {
    let mut db = Db::postgres();
    db.run(DDL).unwrap();
    db
}

#[test]
fn stock_sqlite_reads_and_writes_it() {
    let db = db();
    let mut list = db.conn.prepare("SELECT sql FROM main.sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid").unwrap();
    let texts: Vec<String> = list.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
    let stock = Connection::open_in_memory().unwrap();
    for text in &texts {
        assert!(!text.contains("hf_"), "{text}");
        stock.execute_batch(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    stock
        .execute_batch(
            "INSERT INTO p (name) VALUES ('abc');
             INSERT INTO q (id, k, n, j, u, r, d, b, c, s, p_id) VALUES (1, 'kk', '1.50', '1', 'x', 1, 1, x'00', 'a', 4, 1);
             REINDEX",
        )
        .unwrap();
    let kinds: String = stock
        .query_row("SELECT typeof(n) || typeof(j) || typeof(d) || typeof(s) || g FROM q", [], |r| r.get(0))
        .unwrap();
    assert_eq!(kinds, "texttextrealinteger5");
    let view: (i64, String, i64) =
        stock.query_row("SELECT id, name, n FROM v", [], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap();
    assert_eq!(view, (1, "abc".into(), 1));
    let at: String = stock.query_row("SELECT at FROM p", [], |r| r.get(0)).unwrap();
    assert!(at.ends_with("+00"), "{at}");
    assert!(stock.execute("INSERT INTO q (id, k, n) VALUES (2, 'kk2', '-1')", []).is_err());
}

#[test]
fn types_come_back_from_the_stored_schema() {
    let mut db = db();
    let types =
        |db: &mut Db, sql: &str| -> Vec<String> { db.run(sql).unwrap().columns.into_iter().map(|c| c.1).collect() };
    assert_eq!(
        types(&mut db, "select * from p"),
        ["integer", "character varying(20)", "boolean", "timestamp with time zone", "date"]
    );
    assert_eq!(
        types(&mut db, "select * from q"),
        [
            "integer",
            "text",
            "numeric(8,2)",
            "jsonb",
            "uuid",
            "real",
            "double precision",
            "bytea",
            "character(3)",
            "smallint",
            "bigint",
            "integer",
        ]
    );
    assert_eq!(types(&mut db, "select * from v"), ["integer", "character varying(20)", "bigint", "smallint"]);
}

#[test]
fn what_stock_sqlite_cannot_compute_is_refused_in_definitions() {
    let mut db = db();
    for sql in [
        "create view w as select n * 2 as twice from q",
        "create view w as select id / s from q",
        "create view w as select split_part(k, ',', 1) from q",
        "create view w as select $1::int",
        "create table w (a int check (a / (a - 1) > 2))",
        "create table w (a numeric check (a * 2 > 1))",
        "create table w (a text default md5('x'))",
        "create index w on q (initcap(k))",
        "create view w as select * from pg_class",
    ] {
        assert_eq!(db.state(sql), "0A000", "{sql}");
    }
}
