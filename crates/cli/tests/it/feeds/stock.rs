//! A stock PostgreSQL 15 subscribes: it copies the tables at its slot's snapshot, and follows. What it then has is compared with
//! what is published here.

use crate::node::rows;
use crate::server::{Running, one, run, state, until, until_settled};
use holdfast_seams::testing::Seeded;
use holdfast_testbed::oracle::Postgres;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// One column of each type.
const TYPES: &str = "create table types(id int primary key, i2 smallint, i8 bigint, f4 real, f8 double precision, b boolean, t text, \
    vc varchar(20), c char(5), by bytea, u uuid, nu numeric, ns numeric(10,3), d date, ti time, ts timestamp, tz timestamptz, \
    iv interval, j json, jb jsonb, ia int[], ta text[])";

const TYPED: &str = "(1, -32768, 9223372036854775807, 1.5, 0.1, true, e'tab\\t, newline\\n, quote '', backslash \\\\', 'ä€😀', 'ab', \
    '\\x00ff10', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 123456789012345678901234567890.123, -0.5, '2024-02-29', '23:59:59.999999', \
    '2000-01-01 00:00:00', '1999-12-31 23:59:59.5+02', '1 mon -2 days 03:04:05', '{\"b\": 1, \"a\": [null]}', '{\"b\": 1, \"a\": [null]}', \
    '{1,NULL,-3}', '{\"a b\",\"\",\"N\\\"ULL\"}')";

const ALSO_TYPED: &str = "(2, null, null, null, null, null, '', null, null, '', null, null, null, null, null, null, null, null, null, null, \
    '{}', null)";

/// A subscriber that is PostgreSQL.
pub struct Stock {
    postgres: Postgres,
    pub client: Client,
    publisher: u16,
}

impl Stock {
    /// `None`: there is no PostgreSQL on this machine.
    pub async fn start(server: &Running) -> Option<Stock> {
        Stock::start_for(server.port).await
    }

    /// For the publisher at a port.
    pub async fn start_for(publisher: u16) -> Option<Stock> {
        let postgres = Postgres::start_listening()?;
        let there = format!("host=127.0.0.1 port={} user=holdfast dbname=postgres", postgres.port);
        let (client, connection) = tokio_postgres::connect(&there, NoTls).await.unwrap();
        tokio::spawn(connection);
        Some(Stock { postgres, client, publisher })
    }

    pub async fn run(&self, sql: &str) {
        run(&self.client, sql).await;
    }

    async fn subscribe(&self) {
        self.subscribe_as("holdfast", "p").await;
    }

    /// Subscribes with a role whose password is `secret`.
    pub async fn subscribe_as(&self, role: &str, publications: &str) {
        let at = format!("host=127.0.0.1 port={} dbname=holdfast user={role} password=secret", self.publisher);
        self.run(&format!("create subscription s connection '{at}' publication {publications}")).await;
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.postgres.socket().join("log")).unwrap_or_default()
    }

    /// Waits until it has what the publisher's query returns.
    pub async fn until_equal(&self, client: &Client, there: &str, here: &str) {
        until_settled("the subscriber has everything", async || {
            let (here, there) = (rows(client, here).await, rows(&self.client, there).await);
            (here != there).then(|| format!("{here:?}\n{there:?}\n{}", self.log()))
        })
        .await;
    }
}

/// Lets a stock subscriber in with a password.
pub async fn publisher(sql: &[&str]) -> Running {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "alter role holdfast password 'secret'").await;
    for sql in sql {
        run(&client, sql).await;
    }
    server
}

#[tokio::test]
async fn a_stock_subscription_copies_and_follows_rows_columns_and_types() {
    let person = "create table person(id int primary key, name text, region int, secret text)";
    let key = "create table pair(a text, b int, v text, primary key (b, a))";
    let server = publisher(&[
        person,
        key,
        TYPES,
        &format!("insert into types values {TYPED}"),
        "insert into person select g, 'name ' || g, g % 3, 'secret ' || g from generate_series(1, 3000) g",
        "create publication p for table person (id, name, region) where (region = 2), pair, types",
    ])
    .await;
    let client = server.connect().await;
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run("create table person(id int primary key, name text, region int)").await;
    stock.run(key).await;
    stock.run(TYPES).await;
    stock.subscribe().await;
    let published = "select id, name, region from person where region = 2 order by id";
    stock.until_equal(&client, "select * from person order by id", published).await;
    for sql in [
        "update person set region = 2 where id % 7 = 0",
        "update person set region = 1 where id % 11 = 0",
        "update person set id = -id where id < 30",
        "update person set secret = 'other'",
        "delete from person where id % 5 = 0",
        "insert into pair values ('x', 1, 'one'), ('y', 1, null)",
        "insert into pair values ('large', 2, repeat('x', 5000)); update pair set a = 'larger' where a = 'large'",
        "begin; update pair set a = 'z' where a = 'x'; update pair set a = 'x' where a = 'y'; commit",
    ] {
        run(&client, sql).await;
    }
    run(&client, &format!("insert into types values {ALSO_TYPED}")).await;
    run(&client, &TYPED.replacen("(1,", "insert into types values (3,", 1)).await;
    stock.until_equal(&client, "select * from person order by id", published).await;
    let all = "select * from pair order by a, b";
    stock.until_equal(&client, all, all).await;
    let all = "select * from types order by id";
    stock.until_equal(&client, all, all).await;
    // Nothing outside the condition and the columns got there.
    assert_eq!(one(&stock.client, "select count(*) from person where region <> 2").await, "0");
    run(&client, "truncate pair").await;
    stock.until_equal(&client, "select count(*) from pair", "select 0").await;
}

/// Disabled, enabled, refreshed with another table, stopped by a column that it does not have, dropped.
#[tokio::test]
async fn a_stock_subscription_is_altered_and_dropped() {
    let server = publisher(&["create table n(id int primary key, v text)", "create publication p for table n"]).await;
    let client = server.connect().await;
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run("create table n(id int primary key, v text)").await;
    stock.run("create table m(id int primary key)").await;
    run(&client, "insert into n values (1, 'copied')").await;
    stock.subscribe().await;
    let all = "select * from n order by id";
    stock.until_equal(&client, all, all).await;
    stock.run("alter subscription s disable").await;
    until("the slot is free", async || one(&client, "select active from pg_replication_slots").await == "f").await;
    run(&client, "insert into n values (2, 'meanwhile')").await;
    stock.run("alter subscription s enable").await;
    stock.until_equal(&client, all, all).await;
    run(&client, "create table m(id int primary key)").await;
    run(&client, "insert into m values (1), (2)").await;
    run(&client, "alter publication p add table m").await;
    stock.run("alter subscription s refresh publication").await;
    let added = "select * from m order by id";
    stock.until_equal(&client, added, added).await;
    run(&client, "alter table n add column more int").await;
    run(&client, "insert into n values (3, 'three', 3)").await;
    until("it stops by name", async || stock.log().contains("missing replicated column: \"more\"")).await;
    stock.run("alter table n add column more int").await;
    stock.until_equal(&client, all, all).await;
    stock.run("drop subscription s").await;
    assert_eq!(one(&client, "select count(*) from pg_replication_slots").await, "0");
}

/// F3, F7, F9: what foreign keys and triggers change arrives once, a prepared transaction when it is committed, the changes of one row
/// in their order.
#[tokio::test]
async fn a_stock_subscriber_gets_cascades_prepared_transactions_and_swapped_keys() {
    let parent = "create table parent(id int primary key, code int unique)";
    let child =
        "create table child(id int primary key, parent int references parent on delete cascade on update cascade)";
    let server = publisher(&[
        parent,
        child,
        "create table counted(id int primary key, n int)",
        "insert into counted values (1, 0)",
        "create publication p for table parent, child, counted",
        "create database shop",
    ])
    .await;
    let client = server.connect().await;
    let Some(stock) = Stock::start(&server).await else { return };
    for sql in [parent, child, "create table counted(id int primary key, n int)"] {
        stock.run(sql).await;
    }
    stock.subscribe().await;
    let all = ["select * from parent", "select * from child", "select * from counted"];
    stock.until_equal(&client, all[2], all[2]).await;
    for sql in [
        "insert into parent select g, g from generate_series(1, 20) g",
        "insert into child select g, 1 + g % 20 from generate_series(1, 60) g",
        "delete from parent where id in (1, 2)",
        "update parent set id = id + 100 where id > 15",
        // A swap of unique values, as a net effect, would fail at its first row.
        "begin; update parent set code = -1 where id = 3; update parent set code = 3 where id = 4; \
         update parent set code = 4 where id = 3; commit",
        "begin; update parent set code = code + 1000; update parent set code = code - 999; commit",
        "begin; insert into child values (1000, 5); update child set parent = 6 where id = 1000; delete from child where id = 1000; \
         insert into child values (1000, 7); commit",
        "begin; update counted set n = 1; savepoint s; update counted set n = 2; rollback to s; update counted set n = n + 10; commit",
        "begin; insert into parent values (500, 500); prepare transaction 'kept'",
        "begin; insert into parent values (501, 501); prepare transaction 'gone'",
        "insert into parent values (502, 502)",
        "rollback prepared 'gone'",
        "commit prepared 'kept'",
        "begin; insert into parent values (503, 503); use shop; create table other(id int primary key); commit; use holdfast",
        "update counted set n = n + 100",
    ] {
        run(&client, sql).await;
    }
    for all in all {
        stock.until_equal(&client, all, all).await;
    }
    assert_eq!(one(&stock.client, "select count(*) from parent where id in (500, 501, 502, 503)").await, "3");
}

/// A row that was changed while it was not published is made whole by its next change.
#[tokio::test]
async fn a_row_that_was_not_published_for_a_time_is_sent_whole() {
    let columns = "(id int primary key, f int, g int, v text)";
    let server = publisher(&[
        &format!("create table n{columns}"),
        "insert into n values (1, 1, 10, 'old'), (2, 1, 10, 'old')",
        "create publication p for table n where (f = 1)",
    ])
    .await;
    let client = server.connect().await;
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run(&format!("create table n{columns}")).await;
    stock.subscribe().await;
    let all = "select * from n order by id";
    stock.until_equal(&client, all, all).await;
    for sql in [
        "alter publication p set table n where (f = 2)",
        "update n set g = 20 where id = 1",
        "alter publication p set table n where (f = 1)",
        "update n set v = 'new' where id = 1",
        "alter publication p drop table n",
        "update n set g = 30 where id = 2",
        "alter publication p add table n",
        "update n set v = 'new' where id = 2",
    ] {
        run(&client, sql).await;
    }
    stock.until_equal(&client, all, all).await;
}

/// Every row is written while tables are copied, so that a snapshot that does not go with its slot's place would show: a row twice
/// stops the subscription, and a row too few is missing at the end.
#[tokio::test]
async fn tables_are_copied_while_they_are_written() {
    let names: Vec<String> = (0..4).map(|n| format!("t{n}")).collect();
    let server = publisher(&[]).await;
    let client = server.connect().await;
    let Some(stock) = Stock::start(&server).await else { return };
    for name in &names {
        let create = format!("create table {name}(id int primary key, v int)");
        run(&client, &create).await;
        stock.run(&create).await;
    }
    run(&client, &format!("create publication p for table {}", names.join(", "))).await;
    let mut writers = Vec::new();
    let is_over = Arc::<AtomicBool>::default();
    for seed in 0..4 {
        let (client, names, is_over) = (server.connect().await, names.clone(), is_over.clone());
        writers.push(tokio::spawn(async move {
            let mut random = Seeded::new(seed);
            while !is_over.load(Ordering::Relaxed) {
                let (name, id) = (&names[random.below(4) as usize], random.below(200));
                // Two may put a row in the same place.
                let failed = state(&client, &change(&mut random, name, id)).await;
                assert!(failed.is_none_or(|failed| failed == SqlState::UNIQUE_VIOLATION));
            }
        }));
    }
    for round in 0..3 {
        if round > 0 {
            stock.run("drop subscription s").await;
            stock.run(&format!("truncate {}", names.join(", "))).await;
        }
        stock.subscribe().await;
        until("the tables are copied", async || {
            one(&stock.client, "select count(*) from pg_subscription_rel where srsubstate = 'r'").await == "4"
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    for name in &names {
        let all = format!("select * from {name} order by id");
        stock.until_equal(&client, &all, &all).await;
    }
    assert!(!stock.log().contains("duplicate key"), "{}", stock.log());
    assert!(!stock.log().contains("deadlock"), "{}", stock.log());
}

/// A change of one row, or of a few.
fn change(random: &mut Seeded, table: &str, id: u64) -> String {
    match random.below(5) {
        0 => format!("delete from {table} where id = {id}"),
        1 => format!(
            "update {table} set id = id + 1000 where id = {id} and not exists (select from {table} where id = {id} + 1000)"
        ),
        2 => format!(
            "begin; insert into {table} values ({id}, 1) on conflict do nothing; delete from {table} where id = {id} + 1; commit"
        ),
        _ => format!("insert into {table} values ({id}, 0) on conflict (id) do update set v = {table}.v + 1"),
    }
}

/// The publisher is killed again and again, and the subscriber is disabled, while rows change.
#[tokio::test]
async fn a_stock_subscriber_outlives_kills_of_its_publisher() {
    let mut server =
        publisher(&["create table n(id int primary key, v int)", "create publication p for table n where (v < 4)"])
            .await;
    let Some(stock) = Stock::start(&server).await else { return };
    stock.run("alter system set wal_retrieve_retry_interval = '100ms'").await;
    stock.run("select pg_reload_conf()").await;
    stock.run("create table n(id int primary key, v int)").await;
    stock.subscribe().await;
    let mut random = Seeded::new(7);
    let port = server.port;
    for round in 0..6 {
        let client = server.connect().await;
        let mut changes = 0;
        while changes < 150 {
            let id = random.below(40);
            run(&client, &change(&mut random, "n", id)).await;
            changes += 1;
        }
        if round % 2 == 1 {
            stock.run("alter subscription s disable").await;
            stock.run("alter subscription s enable").await;
        }
        server = Running::start_listening(server.kill(), &format!("127.0.0.1:{port}"));
    }
    let client = server.connect().await;
    stock.until_equal(&client, "select * from n order by id", "select * from n where v < 4 order by id").await;
    assert!(!stock.log().contains("duplicate key"), "{}", stock.log());
}
