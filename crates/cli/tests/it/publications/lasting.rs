//! Publications survive: a kill, a base copy, a standby's replay, a promotion. Two sessions that change them at once do not
//! lose a change. In SQLite's dialect they are refused, and no statement of a client reaches the internal table.

use crate::node::{Pair, succeeds};
use crate::server::{Running, one, run, state};
use tokio_postgres::Client;

const MADE: &str = "create table t(id int primary key, a int, s text); create table u(id int primary key); \
    create publication p for table t (id, a) where (a > 1 and s = 'x'), u with (publish = 'insert, delete'); \
    create publication q for all tables";

const CHANGED: &str = "alter publication p drop table u; alter table t rename column a to b; \
    alter publication q rename to everything; create publication later for table t; drop publication if exists none";

/// What the catalogue shows of all publications.
async fn seen(client: &Client) -> String {
    let mut all = String::new();
    for sql in [
        "select string_agg(oid || pubname || pubowner || puballtables || pubinsert || pubupdate || pubdelete || \
         pubtruncate, ' ' order by oid) from pg_publication",
        "select string_agg(pubname || tablename || attnames::text || coalesce(rowfilter, '-'), ' ' \
         order by pubname, tablename) from pg_publication_tables",
    ] {
        all.push_str(&one(client, sql).await);
        all.push('\n');
    }
    all
}

#[tokio::test]
async fn publications_outlive_a_kill() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    run(&client, CHANGED).await;
    let before = seen(&client).await;
    assert!(before.contains("pt{id,b}((b > 1) AND (s = 'x'::text))") && before.contains("later"), "{before}");
    let dir = server.kill();
    let server = Running::start_in(dir);
    assert_eq!(seen(&server.connect().await).await, before);
}

#[tokio::test]
async fn a_promoted_standby_has_the_publications_of_its_master() {
    let mut pair = Pair::master("");
    let master = pair.a.connect().await;
    run(&master, MADE).await;
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    run(&master, "set holdfast.level = hot").await;
    run(&master, CHANGED).await;
    pair.until_equal().await;
    let before = seen(&master).await;
    let standby = pair.b.connect().await;
    assert_eq!(seen(&standby).await, before);
    assert_eq!(state(&standby, "create publication x").await.unwrap().code(), "25006");
    drop((master, standby));
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    let client = pair.b.connect().await;
    assert_eq!(seen(&client).await, before);
    run(&client, "create publication newest for table u").await;
}

#[tokio::test]
async fn sessions_that_change_publications_at_once_lose_nothing() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    run(&a, "create table t(id int primary key); create table u(id int primary key); create publication p").await;
    let add = async |client: &Client, table: &str| {
        for _ in 0..10 {
            run(client, &format!("alter publication p add table {table}")).await;
            run(client, &format!("alter publication p drop table {table}")).await;
        }
        run(client, &format!("alter publication p add table {table}")).await;
    };
    tokio::join!(add(&a, "t"), add(&b, "u"));
    let tables = "select string_agg(tablename, ' ' order by tablename) from pg_publication_tables";
    assert_eq!(one(&a, tables).await, "t u");
}

#[tokio::test]
async fn the_internal_table_is_out_of_reach_and_sqlites_dialect_refuses() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, MADE).await;
    for sql in [
        "select * from holdfast_publications",
        "delete from holdfast_publications",
        "drop table holdfast_publications",
        "create publication x for table holdfast_publications",
        "create index i on holdfast_publications (name)",
    ] {
        assert!(state(&client, sql).await.is_some(), "{sql}");
    }
    run(&client, "create database lite dialect = sqlite").await;
    let lite = server.connect_to("lite").await;
    run(&lite, "create table t(a)").await;
    assert_eq!(state(&lite, "create publication p for table t").await.unwrap().code(), "0A000");
    assert_eq!(one(&lite, "select count(*) from pg_publication").await, "0");
}
