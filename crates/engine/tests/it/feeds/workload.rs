//! The tables of the random histories, what publications may take of them, and random statements.

use holdfast_seams::testing::Seeded;

/// A table that is published.
pub struct TableOf {
    pub name: &'static str,
    /// Its primary key.
    pub key: &'static [&'static str],
    /// What publications take: columns, `None` for all, and the conditions of which one is chosen at a time; in
    /// these a column's name is in quotes, as in every stored condition.
    pub columns: &'static [Option<&'static [&'static str]>],
    pub filters: &'static [Option<&'static str>],
}

/// Keys of each kind: the rowid, columns of a table with and without rowid; foreign keys with actions; a table of a trigger.
pub const SCHEMA: [&str; 9] = [
    "create table one(k integer primary key, v integer, region integer, big text)",
    "create table two(a text, b integer, v integer, hidden text, primary key(b, a))",
    "create table w(k text, v integer unique, n integer, primary key(k)) without rowid",
    "create table parent(id integer primary key, code integer unique)",
    "create table child(id integer primary key, parent integer references parent(id) on delete cascade on update cascade, n integer)",
    "create table looser(id text primary key, parent integer references parent(id) on delete set null on update cascade)",
    "create table note(id integer primary key, what integer)",
    "create table watched(id integer primary key, n integer)",
    "create trigger tr after update on watched begin insert into note(what) values(old.id); end",
];

pub const TABLES: [TableOf; 8] = [
    TableOf {
        name: "one",
        key: &["k"],
        columns: &[None, Some(&["k", "region", "big"])],
        filters: &[
            Some(r#"("region" < 3)"#),
            None,
            Some(r#"("v" IS NOT NULL)"#),
            Some(r#"("region" = 1 OR "v" > 50)"#),
            Some(r#"("k" > 10)"#),
        ],
    },
    TableOf {
        name: "two",
        key: &["b", "a"],
        columns: &[None, Some(&["a", "b", "v"]), Some(&["a", "b"])],
        filters: &[
            Some(r#"("v" IS NOT NULL)"#),
            None,
            Some(r#"("hidden" = 'x')"#),
            Some(r#"("a" <> 'y' AND "v" < 60)"#),
        ],
    },
    TableOf {
        name: "w",
        key: &["k"],
        columns: &[None],
        filters: &[None, Some(r#"("n" < 3)"#), Some(r#"("v" % 2 = 0)"#)],
    },
    TableOf {
        name: "parent",
        key: &["id"],
        columns: &[None, Some(&["id"])],
        filters: &[None, Some(r#"("code" > 40)"#)],
    },
    TableOf {
        name: "child",
        key: &["id"],
        columns: &[None],
        filters: &[Some(r#"("n" > 0 AND "parent" <> 3)"#), None, Some(r#"("parent" > 4)"#)],
    },
    TableOf { name: "looser", key: &["id"], columns: &[None], filters: &[Some(r#"("parent" IS NULL)"#), None] },
    TableOf { name: "watched", key: &["id"], columns: &[None], filters: &[Some(r#"("n" > 2)"#), None] },
    TableOf { name: "note", key: &["id"], columns: &[None], filters: &[None] },
];

/// A value that is NULL at times.
fn value(random: &mut Seeded, below: u64) -> String {
    if random.one_in(6) { "null".to_owned() } else { random.below(below).to_string() }
}

/// A text; at times one that an update does not carry when it stays.
fn text(random: &mut Seeded) -> String {
    let times = if random.one_in(3) { 700 } else { 1 + random.below(5) };
    format!("'{}'", ["xyz", "ü=", "''-"][random.below(3) as usize].repeat(times as usize))
}

pub fn statement(random: &mut Seeded) -> String {
    let (k, other) = (random.below(20), random.below(20));
    let (v, region) = (value(random, 100), value(random, 6));
    let word = ["x", "y", "Zz"][random.below(3) as usize];
    match random.below(26) {
        0 => format!("insert into one(k, v, region, big) values({k}, {v}, {region}, {})", text(random)),
        1 => format!("insert or replace into one(k, v, region, big) values({k}, {v}, {region}, {})", text(random)),
        2 => format!(
            "insert into one(k, v, region) values({k}, {v}, {region}), ({other}, {v}, 2) on conflict(k) do update set v = excluded.v, region = {region}"
        ),
        3 => format!("update one set region = {region} where k between {k} and {k} + 5"),
        4 => format!("update one set v = {v} where k % 3 = {other} % 3"),
        5 => format!("update one set k = k + 100, v = {v} where k = {k}"),
        6 => format!("delete from one where k in ({k}, {other}, {k} + 100)"),
        7 => format!("insert into two(a, b, v, hidden) values('{word}', {k}, {v}, '{word}') on conflict do nothing"),
        8 => format!("update two set v = {v} where b = {k}"),
        9 => format!("update or replace two set a = '{word}' where b between {k} and {k} + 2 and a <> '{word}'"),
        10 => format!("update two set b = b + 1, hidden = '{word}' where b = {k}"),
        11 => format!("delete from two where b > {k} and a = '{word}'"),
        12 => format!("insert or replace into w(k, v, n) values('{word}{other}', {v}, {region})"),
        13 => format!("update or replace w set v = {v} where n = {region}"),
        14 => format!("update or ignore w set k = '{word}{k}' where k like '%{other}'"),
        15 => format!("delete from w where v < {v}"),
        16 => format!("insert into parent(id, code) values({}, {v}) on conflict(id) do update set code = {v}", k % 8),
        17 => format!("insert or replace into parent(id, code) values({}, {v})", k % 8),
        18 => format!("update parent set id = id + {} where id = {}", 8 * (1 + other % 2), k % 8),
        19 => format!("delete from parent where id = {}", k % 24),
        20 | 21 => format!(
            "insert into child(id, parent, n) values({k}, {}, {region}) on conflict(id) do update set n = {region}, parent = excluded.parent",
            other % 8
        ),
        22 => format!("update child set n = {v} where id between {k} and {other}"),
        23 => format!("insert or replace into looser(id, parent) values('{word}{k}', {})", other % 8),
        24 => format!("update looser set parent = {} where id like '{word}%'", other % 8),
        _ => format!("delete from child where id = {k}"),
    }
}

/// A statement that a trigger follows. A transaction with it is the only writer: others wait for its end.
pub fn watched(random: &mut Seeded) -> String {
    let (id, n) = (random.below(6), value(random, 6));
    match random.below(3) {
        0 => format!("delete from watched where id = {id}"),
        1 => format!("update watched set n = {n} where id <> {id}"),
        _ => format!("insert into watched(id, n) values({id}, {n}) on conflict(id) do update set n = excluded.n"),
    }
}

/// A statement that changes many rows: its images go into the trail in several pieces.
pub fn large(random: &mut Seeded) -> String {
    let from = 1000 * (1 + random.below(4));
    let (region, big) = (value(random, 6), text(random));
    let many = format!("with recursive n(i) as (values({from}) union all select i + 1 from n where i < {from} + 40)");
    match random.below(3) {
        0 => format!(
            "{many} insert or replace into one(k, v, region, big) select i, i % 90, i % 7, {big} from n where true"
        ),
        1 => format!("update one set region = {region} where k >= {from}"),
        _ => format!("delete from one where k between {from} and {from} + {}", random.below(60)),
    }
}
