//! Tables and databases of a dump, brought back into the running server.

use super::bed::{Bed, fill, wal_lsn};
use crate::node::{Node, asked, holdfast, one, run, until_equal};
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;
use serde_json::Value as Json;
use std::path::Path;
use tokio_postgres::Client;

/// The arguments of a restore into the bed's server.
fn arguments(bed: &Bed, more: &[&str]) -> Vec<String> {
    let at = bed.node.at();
    let scratch = bed.path("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    let begin = ["restore", "--from", bed.place(), "--into", &at, "--scratch", scratch.to_str().unwrap(), "--json"];
    begin.iter().chain(more).map(|argument| (*argument).to_owned()).collect()
}

fn bring_back(bed: &Bed, more: &[&str]) -> Json {
    let arguments = arguments(bed, more);
    let output = holdfast(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_no_scratch(bed);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(bed: &Bed, more: &[&str]) -> String {
    let arguments = arguments(bed, more);
    let output = holdfast(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1), "{more:?}: {output:?}");
    assert_no_scratch(bed);
    String::from_utf8(output.stderr).unwrap()
}

fn assert_no_scratch(bed: &Bed) {
    let left: Vec<_> = std::fs::read_dir(bed.path("scratch")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn cell(value: &Value) -> String {
    match value {
        // Every bit of a number.
        Value::Real(n) => format!("real {:016x}", n.to_bits()),
        other => format!("{other:?}"),
    }
}

/// Everything in a database's file, as stored: definitions, and each row with the class and the bytes of each value.
async fn content(node: &Node, database: &str, only: Option<&str>, dir: &Path) -> Vec<String> {
    let file = dir.join("content.db");
    let _ = std::fs::remove_file(&file);
    let client = node.connect_to(database).await;
    run(&client, &format!("VACUUM INTO '{}'", file.display())).await;
    let mut conn = Conn::open(file.to_str().unwrap(), OpenFlags { write: false, create: false }, None).unwrap();
    let mut lines = Vec::new();
    let objects = conn.query_rows(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'holdfast!_%' ESCAPE '!' AND tbl_name NOT LIKE \
         'holdfast!_%' ESCAPE '!'",
    );
    for object in objects.unwrap() {
        let (Value::Text(kind), Value::Text(name), Value::Text(table)) = (&object[0], &object[1], &object[2]) else {
            panic!("{object:?}")
        };
        if only.is_some_and(|only| only != table) {
            continue;
        }
        lines.push(format!("{object:?}"));
        if kind != "table" || name.starts_with("words_") || name.starts_with("boxes_") {
            continue;
        }
        let name = name.replace('"', "\"\"");
        let columns = conn.query_rows(&format!("PRAGMA table_xinfo(\"{name}\")")).unwrap();
        let columns: Vec<String> = columns
            .iter()
            .filter(|column| column[6] != Value::Int(1))
            .map(|column| match &column[1] {
                Value::Text(name) => format!("\"{name}\", typeof(\"{name}\"), hex(CAST(\"{name}\" AS BLOB))"),
                other => panic!("{other:?}"),
            })
            .collect();
        for row in conn.query_rows(&format!("SELECT {} FROM \"{name}\"", columns.join(", "))).unwrap() {
            lines.push(format!("{name}: {}", row.iter().map(cell).collect::<Vec<_>>().join(", ")));
        }
    }
    lines.sort_unstable();
    lines
}

const TYPES: &str = "
    create table customer(id integer primary key, name text not null unique);
    insert into customer values (1, 'a'), (2, 'b');
    create table orders(
        id serial primary key, customer integer references customer(id) on delete cascade, s smallint, b bigint, r real,
        d double precision, n numeric(30,10), m numeric, yes boolean default true, t text default 'it''s', v varchar(20), c char(6),
        y bytea, u uuid, da date, ti time, ts timestamp default now(), tz timestamptz, j json, jb jsonb,
        twice bigint generated always as (b * 2) stored,
        constraint positive check (b > -9223372036854775808 and (t is null or length(t) < 2000) and t not like 'never%'),
        unique (s, b));
    create index orders_by_date on orders(da desc) where yes;
    create unique index on orders (lower(v), id);
    create index elsewhere on orders(customer, ts);";

const ROWS: &str = r#"
    insert into orders(customer, s, b, r, d, n, m, yes, t, v, c, y, u, da, ti, ts, tz, j, jb) values
    (1, 32767, 4611686018427387903, 3.4028235e38, 1.7976931348623157e308, 12345678901234567890.0123456789,
     '123456789012345678901234567890.123456789', true, e'tab\tline\nback\\slash\rend', 'Größe', 'ab',
     '\x00ff5c4e', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2026-11-23', '23:59:59.999999', '2026-11-23 01:02:03.000001',
     '0001-01-01 00:00:00+00', '{"a" : [1, null]}', '{"b": "\u00e9"}'),
    (2, -32768, -4611686018427387904, 1e-37, 5e-324, -0.0000000001, 0.10, false, '\N', '', '', '', null, '9999-12-31', '00:00', null,
     '2026-06-30 12:00:00+02', 'null', '[]'),
    (null, null, null, null, 0.1, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
    (1, 0, 0, -0.0, -0.0, 0, 1e20, true, '', ' x ', 'abcdef', '\x', '00000000-0000-0000-0000-000000000000', '0001-01-01',
     '12:30', '9999-12-31 23:59:59.999999', '1970-01-01', '"Q"', '1.50')"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_table_is_back_as_it_was_to_the_last_bit() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, TYPES).await;
    bed.dump();
    run(&client, ROWS).await;
    run(&client, "delete from orders where s = 32767; insert into orders(b, d) select g, g / 7.0 from generate_series(1, 3000) g").await;
    let (before, scratch) = (content(&bed.node, "holdfast", Some("orders"), &bed.path("")).await, bed.path(""));
    assert!(
        before.len() > 3000 && before.iter().filter(|line| line.contains("INDEX")).count() == 4,
        "{:?}",
        &before[..9]
    );
    // Dropped once before, made again, and what another session does meanwhile is not undone.
    run(
        &client,
        "create table other(k int); drop table other; drop table orders; insert into customer values (3, 'c')",
    )
    .await;
    run(&client, "create table orders_new(id integer)").await;
    let report = bring_back(&bed, &["--database", "holdfast", "--table", "orders", "--before-drop", "--as", "orders"]);
    assert_eq!(report["rows"], 3003, "{report}");
    assert!(report["dropped_by"]["transaction"].as_u64().unwrap() > 0);
    let after = content(&bed.node, "holdfast", Some("orders"), &scratch).await;
    let differs = before.iter().zip(&after).find(|(before, after)| before != after);
    assert_eq!(differs, None);
    assert_eq!(before.len(), after.len());
    // It is a table like any other, and the next one is made next to it.
    assert_eq!(one(&client, "insert into orders(b) values (9000) returning twice").await, "18000");
    assert_eq!(one(&client, "select count(*) from customer").await, "3");
    bring_back(&bed, &["--database", "holdfast", "--table", "orders", "--before-drop", "--as", "Orders of \"then\""]);
    let names =
        "select string_agg(indexname, ' ' order by indexname) from pg_indexes where tablename = 'Orders of \"then\"'";
    assert_eq!(
        one(&client, names).await,
        "Orders of \"then\"_by_date Orders of \"then\"_elsewhere Orders of \"then\"_lower_id_idx Orders of \"then\"_pkey \
         Orders of \"then\"_s_b_key"
    );
    assert_eq!(one(&client, "select count(*) from \"Orders of \"\"then\"\"\"").await, "3003");
    let copy = content(&bed.node, "holdfast", Some("Orders of \"then\""), &scratch).await;
    assert!(
        copy.iter().any(|line| line.contains("REFERENCES \\\"customer\\\"") && line.contains("CASCADE")),
        "{:?}",
        &copy[..3]
    );
}

const MIXED: &str = "
    create table mixed(a, b integer, c text, d real, e numeric, f blob);
    insert into mixed values (1, 'text', 2, 3, '1e2', x'00'), ('1', 2.5, x'ff00', 'r', x'31', 4.0), (null, null, null, null, null, null),
        (-0.0, 9223372036854775807, '', 1e308, 0.1, ''), (9e999, -9223372036854775807 - 1, 'é', 0.30000000000000004, 123456789012345678, 5e-324),
        (cast(x'610062ff' as text), 1.0, cast(x'ff' as text), 1, '007', x'');
    insert into mixed(rowid, a) values (77, 'far');
    create table \"with out\"(k text collate nocase primary key, v default (1 + 1)) without rowid;
    insert into \"with out\" values ('a', 1), ('B', x'01');
    create table strictly(i integer primary key autoincrement, x any, y int as (i * 2)) strict;
    insert into strictly(x) values ('1'), (1), (x'31'), (1.5);
    delete from strictly where i > 2;
    create table tree(id integer primary key, parent references tree(id));
    insert into tree values (5, null), (6, 5), (2, 6), (1, 2), (9, 9), (3, null);
    create table leaf(id integer primary key, of integer references later(id));
    create table later(id integer primary key);
    insert into later values (1); insert into leaf values (1, 1);
    create index tree_by_parent on tree(parent) where parent is not null;
    create table log(what);
    create trigger leaf_added after insert on leaf begin insert into log values ('leaf ' || new.id); end;
    insert into leaf values (2, 1);
    create view leaves as select leaf.id, later.id as l from leaf join later on later.id = leaf.of;
    create virtual table words using fts5(title, body);
    insert into words(rowid, title, body) values (7, 'one', 'the first'), (9, 'two', 'the second');
    create virtual table boxes using rtree(id, x0, x1);
    insert into boxes values (1, 0, 10), (2, 5, 6)";

async fn with_mixed(bed: &Bed) -> Client {
    run(&bed.node.connect().await, "create database mixed dialect sqlite").await;
    let client = bed.node.connect_to("mixed").await;
    for statement in MIXED.split(";\n") {
        run(&client, statement).await;
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_any_class_in_any_column_come_back_in_sqlites_dialect() {
    let bed = Bed::start();
    let client = with_mixed(&bed).await;
    bed.dump();
    let before = content(&bed.node, "mixed", None, &bed.path("")).await;
    run(&client, "delete from mixed; drop table \"with out\"").await;
    let lsn = wal_lsn(&client).await.to_string();
    run(&client, "drop table mixed").await;
    let moment = ["--to-lsn", &lsn];
    for (table, deleted) in [("mixed", true), ("with out", false)] {
        let how = if deleted { vec!["--before-transaction", "x"] } else { vec!["--before-drop"] };
        let how = if deleted { moment.to_vec() } else { how };
        let report = bring_back(&bed, &[&["--database", "mixed", "--table", table, "--as", table], &how[..]].concat());
        assert_eq!(report["rows"].as_u64().unwrap() == 0, deleted, "{report}");
    }
    // All of it, as of the dump.
    let dump: Json =
        serde_json::from_str(&crate::node::succeeds(&["dump", "list", "--from", bed.place(), "--json"])).unwrap();
    let lsn = dump[0]["lsn"].to_string();
    let report = bring_back(&bed, &["--database", "mixed", "--to-lsn", &lsn, "--as", "again"]);
    let after = content(&bed.node, "again", None, &bed.path("")).await;
    let differs = before.iter().zip(&after).find(|(before, after)| before != after);
    assert_eq!(differs, None, "{report}");
    assert_eq!(before.len(), after.len());
    let again = bed.node.connect_to("again").await;
    assert_eq!(one(&again, "select group_concat(rowid) from words where words match 'second'").await, "9");
    assert_eq!(one(&again, "select group_concat(id) from boxes where x0 <= 5.5 and x1 >= 5.5").await, "1,2");
    assert_eq!(one(&again, "insert into strictly(x) values (1) returning i").await, "5", "the counter is kept");
    run(&again, "insert into leaf values (3, 1)").await;
    assert_eq!(
        one(&again, "select group_concat(what) from log").await,
        "leaf 2,leaf 3",
        "no trigger has run meanwhile"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_comes_back_under_another_name_and_reaches_standbys() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create database shop").await;
    let shop = bed.node.connect_to("shop").await;
    run(&shop, TYPES).await;
    bed.dump();
    run(&shop, ROWS).await;
    run(&shop, "create view recent as select id, ts, n from orders where yes").await;
    // The first table refers to one that is created later, and to itself.
    run(&shop, "create table a(id integer primary key, up integer references a(id)); insert into a values (1, null), (3, 1), (2, 3)").await;
    let before = content(&bed.node, "shop", None, &bed.path("")).await;
    let lsn = wal_lsn(&client).await.to_string();
    run(&shop, "update orders set n = 0; drop view recent").await;
    let mut standby = Node::new(&bed.scratch, "b");
    crate::node::succeeds(&["standby", "create", "--from", &bed.node.at(), "--data", standby.data(), "--name", "b"]);
    standby.start();
    // What the other databases do does not have to be applied.
    fill(&client, 2).await;
    let report = bring_back(&bed, &["--database", "shop", "--as", "shop_then", "--to-lsn", &lsn]);
    assert_eq!((&report["tables"], &report["rows"]), (&Json::from(3), &Json::from(9)), "{report}");
    let after = content(&bed.node, "shop_then", None, &bed.path("")).await;
    let differs = before.iter().zip(&after).find(|(before, after)| before != after);
    assert_eq!(differs, None, "{report}");
    until_equal(&bed.node, &standby).await;
    let there = standby.connect_to("shop_then").await;
    assert_eq!(one(&there, "select count(*) from recent").await, "2");
    // A database that the dump does not have, because the trail creates it.
    run(&client, "create database late").await;
    run(&client, "use late; create table l(k int); insert into l values (1); use holdfast").await;
    let lsn = wal_lsn(&client).await.to_string();
    run(&client, "drop database late").await;
    bring_back(&bed, &["--database", "late", "--as", "late", "--to-lsn", &lsn]);
    assert_eq!(asked(&bed.node, "use late; select count(*) from l").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_brought_back_is_refused_and_leaves_nothing() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(
        &client,
        "create table parent(id int primary key); create table child(id int primary key, p int references parent)",
    )
    .await;
    run(
        &client,
        "insert into parent values (1); insert into child values (1, 1); create view v as select id from child",
    )
    .await;
    run(&client, "create role app login").await;
    run(&client, "create database other").await;
    bed.dump();
    let of = |table: &'static str, name: &'static str| vec!["--database", "holdfast", "--table", table, "--as", name];
    let says = |more: &[&str], part: &str| {
        let error = refused(&bed, more);
        assert!(error.contains(part), "{more:?}: {error}");
    };
    says(&of("child", "parent"), "relation \"parent\" already exists (42P07)");
    says(&["--database", "holdfast", "--as", "other"], "database other exists; choose another name");
    says(&of("gone", "x"), "there is no table gone in database holdfast at that moment; it has: ");
    says(&of("v", "x"), "v is a view");
    says(&["--database", "nowhere", "--as", "x"], "there is no database nowhere at LSN");
    says(&[&of("child", "x")[..], &["--before-drop"]].concat(), "no transaction in the archive");
    says(&[&of("child", "x")[..], &["--user", "app"]].concat(), "app");
    // A row whose parent is no longer there.
    run(&client, "delete from child; delete from parent").await;
    let error = refused(&bed, &[&of("child", "x")[..], &["--to-lsn", &of_dump(&bed)]].concat());
    assert!(error.contains("--without-foreign-keys"), "{error}");
    assert_eq!(one(&client, "select count(*) from pg_class where relname = 'x'").await, "0");
    let report =
        bring_back(&bed, &[&of("child", "x")[..], &["--without-foreign-keys", "--to-lsn", &of_dump(&bed)]].concat());
    assert_eq!(report["rows"], 1);
    assert_eq!(one(&client, "select p from x").await, "1");
    // A database that fails half way is not there.
    says(
        &["--database", "holdfast", "--as", "half", "--to-time", "2000-01-01 00:00"],
        "no dump that ends at or before",
    );
    assert_eq!(one(&client, "select count(*) from pg_database where datname in ('half', 'x')").await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_is_ended_on_request_of_a_superuser_only() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create role app; create table t(k int); insert into t values (1)").await;
    let before = wal_lsn(&client).await;
    let end = super::bed::lsn_number(&one(&client, "select pg_switch_wal()").await);
    assert!(end >= before && wal_lsn(&client).await > end);
    // An empty segment is not ended: it ends where it begins.
    let again = super::bed::lsn_number(&one(&client, "select pg_switch_wal()").await);
    assert_eq!(again, super::bed::lsn_number(&one(&client, "select pg_switch_wal()").await));
    assert!(one(&client, "select pg_switch_wal()").await.contains('/'), "a position as PostgreSQL writes it");
    run(&client, "insert into t values (2)").await;
    crate::node::until("it is archived", async || {
        let archived = one(&client, "select archived_lsn from holdfast_stat_archive").await;
        super::bed::lsn_number(&archived) >= end
    })
    .await;
    run(&client, "set role app").await;
    let error = client.simple_query("select pg_switch_wal()").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501", "{error:?}");
    run(&client, "reset role").await;
    assert_eq!(one(&client, "select count(*) from t").await, "2");
}

/// `CREATE STORED` is no way around privileges, nor to objects that are not a user's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_definition_needs_the_privileges_of_any_other() {
    let bed = Bed::start();
    let client = bed.node.connect().await;
    run(&client, "create role app; create table secret(v text); insert into secret values ('s'); set role app").await;
    let state = async |sql: &str| match client.simple_query(sql).await {
        Ok(_) => "done".to_owned(),
        Err(error) => error.code().unwrap_or_else(|| panic!("{sql}: {error:?}")).code().to_owned(),
    };
    assert_eq!(state("create stored table x(a integer)").await, "42501");
    run(&client, "reset role; grant create on schema public to app; set role app").await;
    for (sql, expected) in [
        ("create stored table x(a integer check (instr(a, 'b')))", "done"),
        ("create stored table x(a integer)", "42P07"),
        ("create stored table y as select * from secret", "42501"),
        // What the view reads is in a text that only SQLite reads.
        ("create stored view w as select v from secret", "42501"),
        ("create stored view w as select 1 as one", "42501"),
        ("create stored index i on secret(v)", "42501"),
        ("create stored index i on x(a)", "done"),
        ("create stored table temp.q(a integer)", "42601"),
        ("create stored table pg_catalog.q(a integer)", "42601"),
        ("create stored table main.q(a integer)", "42601"),
        ("begin; create stored table r(a integer); rollback; select * from r", "42P01"),
    ] {
        assert_eq!(state(sql).await, expected, "{sql}");
    }
    for sql in ["create stored table holdfast_meta(a)", "create stored table z(a default (load_extension('x')))"] {
        assert_ne!(state(sql).await, "done", "{sql}");
    }
    assert_eq!(one(&client, "select tableowner from pg_tables where tablename = 'x'").await, "app");
}

/// The dump's own moment.
fn of_dump(bed: &Bed) -> String {
    let dumps: Json =
        serde_json::from_str(&crate::node::succeeds(&["dump", "list", "--from", bed.place(), "--json"])).unwrap();
    dumps[0]["lsn"].to_string()
}
