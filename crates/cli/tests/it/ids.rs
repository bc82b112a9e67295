//! Row ids of statements that the server runs more than once: the client sees no gap and no id twice.

use crate::server::{Running, one, run, until};
use futures::SinkExt;
use std::pin::pin;
use tokio_postgres::Client;

/// More images than a statement may have beside others: the server stops it, and the writer runs it again.
const MANY: i64 = 81_000;

async fn range(client: &Client, table: &str) -> String {
    one(client, &format!("select min(id) || ' ' || max(id) || ' ' || count(distinct id) from {table}")).await
}

#[tokio::test]
async fn a_statement_that_is_run_again_leaves_no_gap() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table s(id serial primary key, a int)").await;
    run(&client, &format!("insert into s(a) select g from generate_series(1, {MANY}) g")).await;
    assert_eq!(range(&client, "s").await, "1 81000 81000");
    let sql = format!("insert into s(a) select g from generate_series(1, {MANY}) g returning id");
    let returned: Vec<i32> = client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(returned.iter().copied().eq(81_001..=162_000), "{:?} {:?}", returned.first(), returned.last());
    assert_eq!(range(&client, "s").await, "1 162000 162000");
    // The rowid of a table without such a column is chosen in the same way.
    run(&client, "create table h(a int)").await;
    run(&client, &format!("insert into h select g from generate_series(1, {MANY}) g")).await;
    assert_eq!(one(&client, "select min(rowid) || ' ' || max(rowid) from h").await, "1 81000");
}

#[tokio::test]
async fn sessions_that_are_run_again_side_by_side_share_all_ids() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table s(id serial primary key, a int)").await;
    let writers = [server.connect().await, server.connect().await, server.connect().await].map(|writer| {
        tokio::spawn(async move {
            run(&writer, &format!("insert into s(a) select g from generate_series(1, {MANY}) g")).await;
            for _ in 0..50 {
                run(&writer, "insert into s(a) values (0)").await;
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    let rows = 3 * (MANY + 50);
    assert_eq!(range(&client, "s").await, format!("1 {rows} {rows}"));
}

#[tokio::test]
async fn a_wait_for_a_lock_takes_no_second_id() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    run(&a, "create table u(id serial primary key, k int unique)").await;
    let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    for (first, begin, end) in [(1, "", ""), (3, "begin; ", "; commit")] {
        run(&a, "begin; insert into u(k) values (7)").await;
        let (other, sql) = (server.connect().await, format!("{begin}insert into u(k) values (7){end}"));
        let waiting = tokio::spawn(async move { run(&other, &sql).await });
        until("it waits for the key", async || one(&b, waits).await == "1").await;
        run(&a, "rollback").await;
        waiting.await.unwrap();
        // The one before is of the statement that was rolled back.
        assert_eq!(one(&b, "select id from u").await, (first + 1).to_string());
        run(&a, "delete from u").await;
    }
}

#[tokio::test]
async fn a_table_that_only_the_writer_may_change_begins_with_the_first_id() {
    let server = Running::start();
    run(&server.connect().await, "create database lite dialect sqlite").await;
    let client = server.connect_to("lite").await;
    for table in ["c", "i", "m"] {
        let sql = format!(
            "create table {table}(id integer primary key, x); create table {table}_log(was); \
             create trigger {table}_tr after insert on {table} begin insert into {table}_log values (new.id); end"
        );
        run(&client, &sql).await;
    }
    let mut sink = pin!(client.copy_in("copy c(x) from stdin").await.unwrap());
    sink.send(&b"a\nb\nc\n"[..]).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 3);
    run(&client, "begin; insert into i(x) values ('a'), ('b'); insert into i(x) values ('c'); commit").await;
    run(&client, "insert into m(x) values ('a'), ('b'), ('c')").await;
    for table in ["c", "i", "m"] {
        assert_eq!(range(&client, table).await, "1 3 3", "{table}");
    }
}
