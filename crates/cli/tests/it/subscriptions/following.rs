//! A database here subscribes to one elsewhere: what it has is compared with what is published, over stops and kills of either side.

use super::bed::{Bed, figure};
use crate::server::{one, run, state, until, until_settled};
use holdfast_seams::testing::Seeded;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::error::SqlState;

const PERSON: &str = "create table person(id int primary key, name text, region int, secret text)";
const PAIR: &str = "create table pair(a text, b int, v text, primary key (b, a))";

/// One column of each type.
pub const TYPES: &str = "create table types(id int primary key, i2 smallint, i8 bigint, f4 real, f8 double precision, b boolean, \
    t text, vc varchar(20), c char(5), by bytea, u uuid, nu numeric, ns numeric(10,3), d date, ti time, ts timestamp, \
    tz timestamptz, iv interval, j json, jb jsonb, ia int[], ta text[])";

pub const TYPED: [&str; 2] = [
    "insert into types values (1, -32768, 9223372036854775807, 1.5, 0.1, true, e'tab\\t, newline\\n, quote '', backslash \\\\', \
     'ä€😀', 'ab', '\\x00ff10', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 123456789012345678901234567890.123, -0.5, '2024-02-29', \
     '23:59:59.999999', '2000-01-01 00:00:00', '1999-12-31 23:59:59.5+02', '1 mon -2 days 03:04:05', \
     '{\"b\": 1, \"a\": [null]}', '{\"b\": 1, \"a\": [null]}', '{1,NULL,-3}', '{\"a b\",\"\",\"N\\\"ULL\"}')",
    "insert into types values (2, null, null, null, null, null, '', null, null, '', null, null, null, null, null, null, null, \
     null, null, null, '{}', null)",
];

#[tokio::test]
async fn rows_columns_and_types_are_copied_and_followed() {
    let bed = Bed::start();
    bed.publish(PERSON).await;
    run(
        &bed.subscriber.connect().await,
        "create table person(id int primary key, name text, region int, note text default 'here')",
    )
    .await;
    bed.both(PAIR).await;
    bed.both(TYPES).await;
    bed.publish(TYPED[0]).await;
    bed.publish("insert into person select g, 'name ' || g, g % 3, 'secret ' || g from generate_series(1, 3000) g")
        .await;
    bed.publish("create publication p for table person (id, name, region) where (region = 2), pair, types").await;
    bed.subscribe("").await;
    let (people, there) = (
        "select id, name, region from person order by id",
        "select id, name, region from person where region = 2 order by id",
    );
    bed.until_equal(there, people).await;
    let types = "select * from types order by id";
    bed.until_equal(types, types).await;
    assert_eq!(bed.figure("rows_copied").await, "1001");
    for sql in [
        "insert into person values (4000, 'new', 2, 'secret'), (4001, 'elsewhere', 1, 'secret')",
        "update person set name = 'changed' where id < 100",
        "update person set region = 2 where id between 100 and 120",
        "update person set region = 1 where id between 200 and 220",
        "update person set id = id + 10000 where id between 300 and 320",
        "delete from person where id between 400 and 420",
        "insert into pair values ('x', 1, 'one'), ('y', 2, null)",
        "update pair set a = 'z' where b = 1",
        "update pair set v = 'two' where b = 2",
        "begin; update pair set b = 3 where b = 1; update pair set b = 1 where b = 2; update pair set b = 2 where b = 3; commit",
        TYPED[1],
        "update types set t = 'other', by = null where id = 1",
    ] {
        bed.publish(sql).await;
    }
    bed.until_equal(there, people).await;
    bed.until_equal(types, types).await;
    bed.until_equal("select * from pair order by b", "select * from pair order by b").await;
    let client = bed.subscriber.connect().await;
    assert_eq!(one(&client, "select min(note) || max(note) from person").await, "herehere");
    assert_eq!(bed.figure("rows_missing").await, "0");
    // Columns that are not published did not arrive in any form.
    assert_eq!(one(&client, "select count(*) from person where name like '%secret%'").await, "0");
}

#[tokio::test]
async fn a_subscriber_and_a_publisher_that_are_killed_lose_nothing_and_repeat_nothing() {
    let mut bed = Bed::start();
    bed.both("create table log(id bigint primary key, v text); create table total(k int primary key, n bigint)").await;
    bed.publish("insert into total values (1, 0)").await;
    bed.publish("create publication p for all tables").await;
    bed.subscribe("").await;
    // Each table is copied by itself; from then on whole transactions arrive.
    let all = "select count(*), sum(id), (select n from total) from log";
    bed.until_equal(all, all).await;
    let mut seeded = Seeded::new(7);
    let mut id = 0;
    for round in 0..6 {
        let writer = bed.publisher.connect().await;
        for _ in 0..60 {
            id += 1;
            // One transaction changes both tables: their sums agree at every moment.
            let sql = format!(
                "begin; insert into log values ({id}, repeat('v', {})); update total set n = n + {id}; commit",
                seeded.below(50)
            );
            run(&writer, &sql).await;
        }
        let reader = bed.subscriber.connect().await;
        let sums =
            one(&reader, "select coalesce((select sum(id) from log), 0) = coalesce((select n from total), 0)").await;
        assert_eq!(sums, "t", "round {round}");
        match round % 3 {
            0 => {
                bed.subscriber.kill();
                bed.subscriber.start();
            }
            1 => {
                bed.publisher.kill();
                bed.publisher.start();
            }
            _ => {
                bed.subscriber.stop();
                bed.subscriber.start();
            }
        }
    }
    bed.until_equal(all, all).await;
    assert_eq!(bed.figure("rows_missing").await, "0");
}

#[tokio::test]
async fn a_large_transaction_arrives_as_one() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key, v text)").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    let seen = Arc::new(AtomicBool::new(false));
    let (stop, reader) = (seen.clone(), bed.subscriber.connect().await);
    let watching = tokio::spawn(async move {
        while !stop.load(Ordering::Relaxed) {
            let count = one(&reader, "select count(*) from t").await;
            assert!(["0", "20000"].contains(&count.as_str()), "a part of a transaction is visible: {count}");
        }
    });
    bed.publish("insert into t select g, repeat('x', 1000) from generate_series(1, 20000) g").await;
    let all = "select count(*), sum(id), sum(length(v)) from t";
    bed.until_equal(all, all).await;
    seen.store(true, Ordering::Relaxed);
    watching.await.unwrap();
    bed.publish("update t set v = 'y'").await;
    bed.publish("delete from t where id % 2 = 0").await;
    let all = "select count(*), sum(id), min(v), max(v) from t";
    bed.until_equal(all, all).await;
}

#[tokio::test]
async fn a_conflict_stops_the_feed_with_key_and_statement_and_can_be_skipped() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key, v text unique)").await;
    run(&bed.subscriber.connect().await, "insert into t values (7, 'here first')").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe(" with (copy_data = false)").await;
    // What is in front of the one that fails is kept, although it came together with it.
    bed.publish("insert into t values (1, 'a')").await;
    bed.publish("begin; insert into t values (2, 'b'); insert into t values (7, 'c'); commit").await;
    bed.publish("insert into t values (3, 'd')").await;
    let client = bed.subscriber.connect().await;
    until("the feed has stopped", async || !["", "0"].contains(&figure(&client, "errors").await.as_str())).await;
    let error = figure(&client, "last_error").await;
    for part in ["INSERT", "\"public.t\"", "key (id)=(7)", "finished at", "23505"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(one(&client, "select count(*) || ' ' || sum(id) from t").await, "2 8", "1 and 7");
    assert_eq!(one(&client, "select apply_error_count > 0 from pg_stat_subscription_stats").await, "t");
    let at = error.split("finished at ").nth(1).unwrap().split(':').next().unwrap().to_owned();
    run(&client, &format!("alter subscription s skip (lsn = '{at}')")).await;
    until_settled("what follows arrives", async || {
        let ids = one(&client, "select count(*) || ' ' || sum(id) from t").await;
        (ids != "3 11").then_some(ids)
    })
    .await;
}

#[tokio::test]
async fn a_subscription_is_disabled_enabled_refreshed_and_dropped() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key); create table later(id int primary key, v text)").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    bed.publish("insert into t values (1)").await;
    bed.until_equal("select * from t", "select * from t").await;
    let client = bed.subscriber.connect().await;
    run(&client, "alter subscription s disable").await;
    until("the slot is free", async || {
        let publisher = bed.publisher.connect().await;
        one(&publisher, "select active from pg_replication_slots").await == "f"
    })
    .await;
    bed.publish("insert into t values (2)").await;
    bed.publish("insert into later values (1, 'before')").await;
    bed.publish("alter publication p add table later").await;
    run(&client, "alter subscription s enable").await;
    bed.until_equal("select * from t order by id", "select * from t order by id").await;
    bed.publish("insert into later values (2, 'not yet subscribed')").await;
    run(&client, "alter subscription s refresh publication").await;
    bed.publish("insert into later values (3, 'after')").await;
    let all = "select * from later order by id";
    bed.until_equal(all, all).await;
    run(&client, "drop subscription s").await;
    let publisher = bed.publisher.connect().await;
    assert_eq!(one(&publisher, "select count(*) from pg_replication_slots").await, "0", "its slot goes with it");
    assert_eq!(state(&client, "insert into t values (99)").await, None, "the table is the database's own again");
}

#[tokio::test]
async fn an_error_disables_the_subscription_where_that_is_set() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key)").await;
    run(&bed.subscriber.connect().await, "insert into t values (1)").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe(" with (copy_data = false, disable_on_error = true)").await;
    bed.publish("insert into t values (1)").await;
    let client = bed.subscriber.connect().await;
    until("it is disabled", async || one(&client, "select subenabled from pg_subscription").await == "f").await;
}

#[tokio::test]
async fn an_idle_subscriber_writes_nothing_here_or_there() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key); create table other(id int primary key)").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    bed.publish("insert into t values (1)").await;
    bed.until_equal("select * from t", "select * from t").await;
    // Changes that the subscriber is not sent are confirmed all the same, and move nothing here.
    let client = bed.subscriber.connect().await;
    let before = one(&client, "select pg_current_wal_lsn()").await;
    for id in 0..50 {
        bed.publish(&format!("insert into other values ({id})")).await;
    }
    let publisher = bed.publisher.connect().await;
    let end = one(&publisher, "select pg_current_wal_lsn()").await;
    // A position names the end of a transaction, which is in front of the end of its boxcar.
    bed.publish("insert into other values (50)").await;
    until_settled("the slot moves with what is not published", async || {
        let at = one(&publisher, "select confirmed_flush_lsn from pg_replication_slots").await;
        let reached =
            one(&publisher, &format!("select confirmed_flush_lsn >= '{end}' from pg_replication_slots")).await;
        (reached != "t").then_some(at)
    })
    .await;
    // Checkpoints write to the trail as well, but not for each of them.
    let grown = format!("select pg_current_wal_lsn() - '{before}' < 25 * 4096");
    assert_eq!(one(&client, &grown).await, "t", "from {before}");
    assert_eq!(figure(&client, "transactions").await, "1");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_or_named() {
    let bed = Bed::start();
    bed.publish("create table t(id int primary key, v text, w text)").await;
    bed.publish("create publication p for table t").await;
    let client = bed.subscriber.connect().await;
    let create = |more: &str| format!("create subscription s connection '{}' publication p{more}", bed.connection());
    assert_eq!(state(&client, &create("")).await, Some(SqlState::UNDEFINED_TABLE), "the table is not here");
    run(&client, "create table t(id int primary key, v text)").await;
    assert_eq!(
        state(&client, &create("")).await,
        Some(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE),
        "a column is not here"
    );
    let publisher = bed.publisher.connect().await;
    assert_eq!(one(&publisher, "select count(*) from pg_replication_slots").await, "0", "no slot stays behind");
    let nowhere =
        "create subscription s connection 'host=127.0.0.1 port=1 user=holdfast dbname=holdfast' publication p";
    assert_eq!(state(&client, nowhere).await, Some(SqlState::CONNECTION_FAILURE));
    let password = "create subscription s connection 'host=127.0.0.1 user=a password=b' publication p";
    assert_eq!(state(&client, password).await, Some(SqlState::FEATURE_NOT_SUPPORTED));
    run(&client, "alter table t add column w text").await;
    bed.subscribe("").await;
    bed.publish("insert into t values (1, 'a', 'b')").await;
    bed.until_equal("select * from t", "select * from t").await;
    // A column that comes later stops the feed with its name, until it is here too.
    bed.publish("alter table t add column later int default 5").await;
    bed.publish("insert into t values (2, 'c', 'd', 6)").await;
    until("the feed has stopped", async || figure(&client, "last_error").await.contains("\"later\"")).await;
    run(&client, "alter table t add column later int default 5").await;
    bed.until_equal("select * from t order by id", "select * from t order by id").await;
}

#[tokio::test]
async fn a_key_that_was_added_later_is_a_key_at_both_ends() {
    let bed = Bed::start();
    bed.both("create table late(id int, w int, v text)").await;
    bed.publish("insert into late values (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')").await;
    bed.both("alter table late add primary key (w, id)").await;
    bed.publish("create publication p for table late").await;
    bed.subscribe("").await;
    let all = "select * from late order by id";
    bed.until_equal(all, all).await;
    bed.publish("update late set v = 'changed' where id = 1").await;
    bed.publish("update late set id = 20 where id = 2").await;
    bed.publish("delete from late where id = 3").await;
    bed.until_equal(all, all).await;
    assert_eq!(bed.figure("errors").await, "0");
    assert_eq!(bed.figure("rows_missing").await, "0");
}

#[tokio::test]
async fn a_table_that_has_another_name_here_stops_the_feed() {
    let bed = Bed::start();
    bed.both("create table t(id int primary key)").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    bed.publish("insert into t values (1)").await;
    bed.until_equal("select * from t", "select * from t").await;
    let client = bed.subscriber.connect().await;
    run(&client, "alter table t rename to u").await;
    bed.publish("insert into t values (2)").await;
    until("the feed has stopped", async || figure(&client, "last_error").await.contains("does not exist")).await;
    run(&client, "alter table u rename to t").await;
    bed.until_equal("select * from t order by id", "select * from t order by id").await;
    // Disabled, it is still shown, with the last error.
    run(&client, "alter subscription s disable").await;
    until("it is shown as disabled", async || figure(&client, "state").await == "disabled").await;
    assert!(figure(&client, "last_error").await.contains("does not exist"));
}

#[tokio::test]
async fn the_slot_of_a_copy_that_has_ended_does_not_stay_at_the_publisher() {
    let mut bed = Bed::start();
    bed.both("create table t(id int primary key, v text)").await;
    bed.publish("insert into t select g, repeat('x', 1000) from generate_series(1, 20000) g").await;
    bed.publish("create publication p for table t").await;
    bed.subscribe("").await;
    let publisher = bed.publisher.connect().await;
    let of_copies = "select slot_name from pg_replication_slots where slot_name <> 's'";
    let mut slot = String::new();
    until("the copy has a slot", async || {
        slot = one(&publisher, of_copies).await;
        !slot.is_empty()
    })
    .await;
    bed.until_equal("select count(*) from t", "select count(*) from t").await;
    until("the copy has ended", async || one(&publisher, of_copies).await.is_empty()).await;
    // As a crash between the commit of the copy and the end of its slot leaves it.
    bed.subscriber.kill();
    let port: u16 = bed.publisher.at().rsplit_once(':').unwrap().1.parse().unwrap();
    crate::feeds::subscriber::Subscriber::connect(port).create_slot(&slot);
    assert_eq!(one(&publisher, of_copies).await, slot);
    bed.subscriber.start();
    until("the slot is gone", async || one(&publisher, of_copies).await.is_empty()).await;
    // The same, and the subscription is dropped before its worker has looked for it.
    let here = bed.subscriber.connect().await;
    run(&here, "alter subscription s disable").await;
    let active = "select count(*) from pg_replication_slots where active";
    until("the worker has ended", async || one(&publisher, active).await == "0").await;
    crate::feeds::subscriber::Subscriber::connect(port).create_slot(&slot);
    run(&here, "drop subscription s").await;
    assert_eq!(one(&publisher, "select count(*) from pg_replication_slots").await, "0");
}
