//! Random transactions against a model: what a subscriber has after applying every message is what is published. The model is
//! stricter than a stock subscriber, which passes over an update or a delete of a row that it lacks.
//!
//! `HOLDFAST_FEED_TRANSACTIONS` is the number of transactions of each writer.

use super::subscriber::Subscriber;
use crate::node::rows;
use crate::server::{Running, run};
use holdfast_seams::testing::Seeded;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Client;

const WRITERS: u64 = 3;

const TABLES: [&str; 4] = [
    "create table one(k int primary key, v int, region int)",
    "create table two(a text, b int, v int, hidden text, primary key (b, a))",
    "create table parent(id int primary key, code int)",
    "create table child(id int primary key, parent int references parent on delete cascade on update cascade, n int)",
];

const PUBLICATION: &str = "create publication p for table one where (region < 3), two (a, b, v) where (v is not null), parent, \
    child where (n > 0 and parent <> 3)";

/// Each table with how many of its published columns, the first ones, are its key, and what of it is published.
const PUBLISHED: [(&str, usize, &str); 4] = [
    ("one", 1, "select k, v, region from one where region < 3"),
    ("two", 2, "select a, b, v from two where v is not null"),
    ("parent", 1, "select id, code from parent"),
    ("child", 1, "select id, parent, n from child where n > 0 and parent <> 3"),
];

#[derive(Default)]
struct Model {
    /// A row by its key, both as texts, for each table.
    tables: BTreeMap<String, BTreeMap<Vec<String>, Vec<String>>>,
    /// Which kinds of change each table has had.
    kinds: BTreeSet<(String, String)>,
}

impl Model {
    fn apply(&mut self, change: &str) {
        let mut words = change.split(' ').map(str::to_owned);
        let (verb, table) = (words.next().unwrap(), words.next().unwrap());
        let keys = PUBLISHED.iter().find(|(name, ..)| *name == table).unwrap().1;
        let words: Vec<String> = words.collect();
        self.kinds.insert((table.clone(), verb.clone()));
        let rows = self.tables.entry(table).or_default();
        match verb.as_str() {
            "insert" => {
                assert!(!words.contains(&"u".to_owned()), "an insert has every column: {change}");
                assert_eq!(rows.insert(words[..keys].to_vec(), words), None, "{change}: it is there");
            }
            "delete" => assert!(rows.remove(&words).is_some(), "{change}: it is not there"),
            _ => {
                let (before, after) = match words[0].strip_prefix('(') {
                    None => (words[..keys].to_vec(), &words[..]),
                    Some(_) => {
                        let before = words[..keys].iter().map(|word| word.trim_matches(['(', ')']).to_owned());
                        (before.collect(), &words[keys..])
                    }
                };
                let Some(old) = rows.remove(&before) else { panic!("{change}: it is not there") };
                let row: Vec<String> =
                    old.into_iter().zip(after).map(|(old, new)| if new == "u" { old } else { new.clone() }).collect();
                assert_eq!(rows.insert(row[..keys].to_vec(), row), None, "{change}: its new key is there");
            }
        }
    }

    /// The rows of a table as [`rows`] has them.
    fn lines(&self, table: &str) -> Vec<String> {
        let cell = |cell: &String| if cell == "-" { "None".to_owned() } else { format!("Some({cell:?})") };
        let rows = self.tables.get(table).into_iter().flat_map(BTreeMap::values);
        let mut lines: Vec<String> = rows.map(|row| row.iter().map(cell).collect::<Vec<_>>().join(", ")).collect();
        lines.sort_unstable();
        lines
    }
}

/// A value that is NULL at times.
fn value(random: &mut Seeded, below: u64) -> String {
    if random.one_in(6) { "null".to_owned() } else { random.below(below).to_string() }
}

fn statement(random: &mut Seeded) -> String {
    let (k, other) = (random.below(30), random.below(30));
    let (v, region) = (value(random, 100), value(random, 6));
    let text = ["x", "y", "Zz"][random.below(3) as usize];
    match random.below(16) {
        0 => format!("insert into one values ({k}, {v}, {region})"),
        1 => format!(
            "insert into one values ({k}, {v}, {region}) on conflict (k) do update set v = excluded.v, region = {region}"
        ),
        2 => format!("update one set region = {region} where k between {k} and {k} + 5"),
        3 => format!("update one set v = {v} where k % 3 = {other} % 3"),
        4 => format!("update one set k = k + 100, v = {v} where k = {k}"),
        5 => format!("delete from one where k in ({k}, {other}, {k} + 100)"),
        6 => format!("insert into two(a, b, v) values ('{text}', {k}, {v}) on conflict do nothing"),
        7 => format!("update two set v = {v} where b = {k}"),
        8 => format!("update two set a = '{text}' where b between {k} and {k} + 2 and a <> '{text}'"),
        9 => format!("delete from two where b > {k} and a = '{text}'"),
        10 => format!("insert into parent values ({}, {v}) on conflict (id) do update set code = {v}", k % 8),
        11 => format!("update parent set id = id + {} where id = {}", 8 * (1 + other % 2), k % 8),
        12 => format!("delete from parent where id = {}", k % 24),
        13 => format!(
            "insert into child values ({k}, {}, {region}) on conflict (id) do update set n = {region}, parent = excluded.parent",
            other % 8
        ),
        14 => format!("update child set n = {v} where id between {k} and {other}"),
        _ => format!("delete from child where id = {k}"),
    }
}

/// Runs transactions. One whose statement fails, for a key or a lock, is rolled back.
async fn write(client: Client, seed: u64, transactions: u64) {
    let mut random = Seeded::new(seed);
    for number in 0..transactions {
        let mut script = vec!["begin".to_owned()];
        for _ in 0..1 + random.below(5) {
            if random.one_in(5) {
                let undone = statement(&mut random);
                script.extend(["savepoint s".to_owned(), undone, "rollback to s".to_owned()]);
            }
            script.push(statement(&mut random));
        }
        let name = format!("w{seed}t{number}");
        match random.below(12) {
            0 => script.push("rollback".to_owned()),
            1 => script.extend([format!("prepare transaction '{name}'"), format!("commit prepared '{name}'")]),
            2 => script.extend([format!("prepare transaction '{name}'"), format!("rollback prepared '{name}'")]),
            3 => script = vec![statement(&mut random)],
            _ => script.push("commit".to_owned()),
        }
        for sql in script {
            if let Err(error) = client.batch_execute(&sql).await {
                let state = error.code().map_or("", |state| state.code()).to_owned();
                assert!(["23505", "23503", "40001", "40P01"].contains(&&*state), "{sql}: {error:?}");
                run(&client, "rollback").await;
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_subscriber_has_what_is_published_after_random_transactions() {
    let transactions = std::env::var("HOLDFAST_FEED_TRANSACTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let server = Running::start();
    let client = server.connect().await;
    for sql in TABLES {
        run(&client, sql).await;
    }
    run(&client, PUBLICATION).await;
    // The first one makes an internal table, which a change of the schema at the same time would meet as 40001.
    run(&client, "begin; prepare transaction 'first'").await;
    run(&client, "rollback prepared 'first'").await;
    let mut site = Subscriber::connect(server.port);
    site.create_slot("s");
    let mut writers = Vec::new();
    for seed in 0..WRITERS {
        writers.push(tokio::spawn(write(server.connect().await, seed, transactions)));
    }
    for sql in [
        "create index on one (v)",
        "alter table two add column more int default 5",
        "alter table two drop column hidden",
    ] {
        // It waits for its turn among the writers.
        run(&client, sql).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    run(&client, "delete from one where k = 9999; insert into one values (9999, 0, 0)").await;
    site.start("s", 0, "p").unwrap();
    let mut model = Model::default();
    loop {
        let transaction = site.transaction();
        transaction.changes.iter().for_each(|change| model.apply(change));
        if transaction.changes.iter().any(|change| change == "insert one 9999 0 0") {
            break;
        }
    }
    for (table, _, published) in PUBLISHED {
        assert_eq!(model.lines(table), rows(&client, published).await, "{table}");
    }
    assert_eq!(model.kinds.len(), 3 * PUBLISHED.len(), "{:?}", model.kinds);
}
