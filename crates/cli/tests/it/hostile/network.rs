//! What a text or a query without a table costs is not paid by a network thread, where logins and other sessions wait.

use super::bed::{pid, until_active};
use crate::server::{Running, one, run, state};
use tokio_postgres::error::SqlState;

/// More sessions than network threads on any machine that runs this.
fn sessions() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from) + 2
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_and_queries_pass_queries_that_compute() {
    let server = Running::start();
    let watcher = server.connect().await;
    let md5 = vec!["length(md5(repeat('x', 2000000)))"; 400].join(" + ");
    let list = |n: usize| (0..n).map(|i| format!("({i})")).collect::<Vec<_>>().join(", ");
    let joined =
        format!("select count(*) from (values {0}) a, (values {0}) b, (values {0}) c, (values {0}) d", list(300));
    for sql in [format!("select {md5}"), joined, format!("values ({md5})")] {
        let mut running = Vec::new();
        for _ in 0..sessions() {
            let client = server.connect().await;
            let pid = pid(&client).await;
            let sql = sql.clone();
            let task = tokio::spawn(async move { client.batch_execute(&sql).await });
            until_active(&watcher, &pid).await;
            running.push((pid, task));
        }
        let client = server.connect().await;
        assert_eq!(one(&client, "select 1").await, "1");
        for (pid, task) in running {
            assert!(!task.is_finished(), "it ended before another session could log in: {}", &sql[..60]);
            assert_eq!(one(&client, &format!("select pg_cancel_backend({pid})")).await, "t");
            let ended = task.await.unwrap().expect_err(&sql[..60]);
            assert_eq!(ended.code(), Some(&SqlState::QUERY_CANCELED), "{ended:?}");
        }
    }
}

/// They were translated in quadratic time, or refused with an error that named no limit.
#[tokio::test]
async fn long_texts_are_translated_or_refused_with_their_limit() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t (id serial primary key, n bigint, v text)").await;
    let rows = |n: usize| (0..n).map(|i| format!("({i}, 'v{i}', now())")).collect::<Vec<_>>().join(", ");
    run(&client, "alter table t add column w timestamptz").await;
    run(&client, &format!("insert into t(n, v, w) values {}", rows(40_000))).await;
    let sums = "select count(*) || ' ' || sum(n) || ' ' || count(distinct v) || ' ' || count(w) from t";
    assert_eq!(one(&client, sums).await, "40000 799980000 40000 40000");
    let numbers = (0..50_000).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(one(&client, &format!("select count(*) from t where n in ({numbers})")).await, "40000");
    let wide = format!("select 1 where 5 in ({numbers})");
    assert_eq!(one(&client, &wide).await, "1");
    for (operator, limit) in [(" + ", 1_500), (" - ", 15_000), (" * ", 25_000)] {
        let chain = vec!["1"; limit].join(operator);
        let error = client.batch_execute(&format!("select {chain}")).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "54001", "{error:?}");
        assert!(error.message().contains("the limit is "), "{error:?}");
    }
    assert_eq!(one(&client, &format!("select {}", vec!["1"; 300].join(" + "))).await, "300");
    run(&client, "create database lite dialect 'sqlite'").await;
    let client = server.connect_to("lite").await;
    run(&client, "create table t (id integer primary key, n, v)").await;
    let rows = (0..40_000).map(|i| format!("({i}, 'v{i}')")).collect::<Vec<_>>().join(", ");
    run(&client, &format!("insert into t(n, v) values {rows}")).await;
    assert_eq!(one(&client, "select count(distinct v) from t").await, "40000");
    assert_eq!(state(&client, &format!("select {}", vec!["1"; 1_500].join(" + "))).await.unwrap().code(), "54001");
}
