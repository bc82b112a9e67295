//! A SQLite file with everything a schema can have, and statements to change it.

use holdfast_store::sqlite::{Conn, OpenFlags, SqliteError};
use holdfast_types::Value;
use std::path::Path;

/// Stock SQLite on a file.
pub fn stock(path: &Path) -> Conn {
    let flags = OpenFlags { write: true, create: true };
    let mut conn = Conn::open(path.to_str().unwrap(), flags, None).unwrap();
    conn.exec("pragma foreign_keys=on").unwrap();
    conn
}

const SCHEMA: &str = r#"
create table plain(a, b);
create table auto(id integer primary key autoincrement, name text unique collate nocase, note default 'x');
create table wr(k1 text, k2 int, v blob, primary key(k2 desc, k1)) without rowid;
create table gen(a integer, b int as (a * 2) stored, c text as ('c' || a) virtual, d real not null default 1.5);
create table parent(id integer primary key, name varchar(20) check (length(name) < 20));
create table child(id integer primary key, parent references parent(id) on delete cascade on update cascade, qty numeric);
create table "we ""ird ß"("col umn" text, "select" int, rowid text, _rowid_ int);
create table typed(i int, r real, t text, b blob) strict;
create table log(what text, at integer);
create index plain_partial on plain(a) where b is not null;
create index plain_expr on plain(lower(a), b desc);
create unique index child_pair on child(parent, id);
create view totals as select p.name, sum(c.qty) as qty from parent p left join child c on c.parent = p.id group by p.id;
create view all_plain as select a, b from plain;
create trigger parent_log after insert on parent begin insert into log values('parent ' || new.name, new.id); end;
create trigger child_log after delete on child begin insert into log values('child gone', old.id); end;
create trigger view_insert instead of insert on all_plain begin insert into plain values(new.a, new.b); end;
create table article(id integer primary key, title text, body text);
create virtual table words using fts5(title, body, content='article', content_rowid='id');
create trigger article_ai after insert on article begin
    insert into words(rowid, title, body) values(new.id, new.title, new.body); end;
create trigger article_ad after delete on article begin
    insert into words(words, rowid, title, body) values('delete', old.id, old.title, old.body); end;
create trigger article_au after update on article begin
    insert into words(words, rowid, title, body) values('delete', old.id, old.title, old.body);
    insert into words(rowid, title, body) values(new.id, new.title, new.body); end;
create virtual table docs using fts5(text);
create virtual table boxes using rtree(id, x0, x1, y0, y1);
"#;

const ROWS: &str = r#"
insert into plain select 'Row ' || value, iif(value % 3, value, null) from generate(3000);
insert into plain values(null, x'00ff'), (1e300, -9223372036854775808), ('naïve 日本 😀', zeroblob(30000));
delete from plain where rowid % 7 in (2, 3);
insert into auto(name) select 'name ' || value from generate(500);
delete from auto where id > 450;
insert into wr select 'k' || value, value % 10, randomblob(300) from generate(800);
insert into gen(a) select value * 3 from generate(100);
insert into parent select value, 'p' || value from generate(50);
insert into child select value, value % 50 + 1, value / 4.0 from generate(400);
insert into "we ""ird ß" select 'ü' || value, value, 'r' || value, -value from generate(60);
delete from "we ""ird ß" where "select" % 4 = 0;
insert into typed values(1, 2.5, 'text', x'01'), (null, null, '', x'');
insert into article select value, 'title ' || value, 'some words about ' || (value % 17) || ' things' from generate(300);
delete from article where id % 5 = 0;
insert into docs(rowid, text) select value * 2, 'document number ' || value || ' naïve café' from generate(200);
insert into boxes select value, value, value + 2, value * 2, value * 2 + 3 from generate(300);
analyze;
pragma user_version = 77;
pragma application_id = 1234567;
"#;

/// Fills an empty database.
pub fn fill(conn: &mut Conn) {
    conn.exec(SCHEMA).unwrap();
    let numbers = |sql: &str| {
        let mut text = sql.to_owned();
        while let Some(at) = text.find("generate(") {
            let end = at + text[at..].find(')').unwrap();
            let count: u32 = text[at + 9..end].parse().unwrap();
            let n = format!(
                "(with recursive n(value) as (select 1 union all select value + 1 from n where value < {count}) select value from n)"
            );
            text.replace_range(at..=end, &n);
        }
        text
    };
    conn.exec(&format!("begin; {} commit;", numbers(ROWS).replace("analyze;", ""))).unwrap();
    conn.exec("analyze").unwrap();
}

/// Statements that touch everything the fixture has, each a transaction of its own.
pub const CHANGES: &[&str] = &[
    "insert into plain values('new', 1), ('Ünïcode', null)",
    "update plain set b = coalesce(b, 0) + 1 where rowid % 5 = 0",
    "delete from plain where rowid % 11 = 0",
    "insert into all_plain values('through the view', 5)",
    "insert into auto(name) values('after'), ('after 2')",
    "update auto set name = upper(name) where id % 50 = 0",
    "insert into wr values('k1', 77, x'aabb')",
    "update wr set k1 = k1 || '!' where k2 = 3",
    "delete from wr where k2 = 4",
    "insert into gen(a, d) values(1000, 2.5)",
    "update gen set a = a + 1 where a < 30",
    "insert into parent values(100, 'hundred')",
    "update parent set id = 101 where id = 100",
    "delete from parent where id in (3, 4, 5)",
    "insert into child values(1000, 101, 3.25)",
    "update \"we \"\"ird ß\" set \"col umn\" = 'changed' where \"select\" < 10",
    "insert into \"we \"\"ird ß\" values('x', 1000, null, null)",
    "insert into typed values(5, 6.5, 'späť', zeroblob(9000))",
    "insert into article values(1000, 'fresh', 'entirely fresh words')",
    "update article set body = 'changed words' where id < 20",
    "delete from article where id between 100 and 120",
    "insert into docs(text) values('a document that came later')",
    "update docs set text = 'rewritten café' where rowid = 20",
    "delete from docs where rowid in (30, 32, 34)",
    "insert into boxes values(1000, 1, 2, 3, 4)",
    "update boxes set x1 = x1 + 10 where id < 50",
    "delete from boxes where id % 9 = 0",
    "create table later(x, y unique)",
    "insert into later select a, rowid from plain where rowid < 200",
    "alter table later add column z default 9",
    "create index later_x on later(x)",
    "drop index plain_expr",
];

/// What a query returned, or why not.
type Queried = Result<Vec<Vec<Value>>, String>;

/// Everything in a database: its schema, every table row by row with its rowid, and what its virtual tables find.
pub fn contents(query: &mut dyn FnMut(&str) -> Queried) -> Vec<(String, Vec<Vec<Value>>)> {
    let user = "name not like 'holdfast\\_%' escape '\\' and tbl_name not like 'holdfast\\_%' escape '\\'";
    let schema = format!("select type, name, tbl_name, sql from sqlite_schema where {user} order by type, name");
    let mut all = vec![("schema".to_owned(), query(&schema).unwrap())];
    let tables = query(&format!(
        "select name from sqlite_schema where type = 'table' and rootpage > 0 and {user} order by name"
    ));
    for row in tables.unwrap() {
        let Value::Text(name) = &row[0] else { panic!("{row:?}") };
        let quoted = name.replace('"', "\"\"");
        // Which of rowid's names is free differs; oid is never taken here.
        let rows = query(&format!("select oid, * from \"{quoted}\" order by 1"))
            .or_else(|_| query(&format!("select * from \"{quoted}\"")));
        all.push((name.clone(), rows.unwrap()));
    }
    for sql in [
        "select rowid, title from words where words match 'words' order by rowid",
        "select rowid from words where words match 'fresh OR changed' order by rowid",
        "select rowid, text from docs where docs match 'cafe' order by rowid",
        "select * from boxes where x0 > 40 and x1 < 90 order by id",
        "select * from totals order by 1",
        "pragma user_version",
        "pragma application_id",
    ] {
        all.push((sql.to_owned(), query(sql).unwrap()));
    }
    all
}

/// The contents as stock SQLite sees them.
pub fn stock_contents(conn: &mut Conn) -> Vec<(String, Vec<Vec<Value>>)> {
    contents(&mut |sql| conn.query_rows(sql).map_err(|e: SqliteError| e.message))
}

/// Fails naming the first table that differs.
pub fn assert_same(found: &[(String, Vec<Vec<Value>>)], expected: &[(String, Vec<Vec<Value>>)], when: &str) {
    let names = |all: &[(String, Vec<Vec<Value>>)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{when}");
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{when}: rows of {name}");
        for (f, e) in found.iter().zip(expected) {
            assert_eq!(f, e, "{when}: {name}");
        }
    }
}
