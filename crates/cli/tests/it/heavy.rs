//! Statements that any role may send and that cost the server much: each has a bound, and a cancel ends the rest.

use crate::server::{Running, one, run, until};
use tokio_postgres::Client;

/// The SQLSTATE of a statement's error.
async fn state(client: &Client, sql: &str) -> String {
    crate::server::state(client, sql).await.map_or_else(String::new, |state| state.code().to_owned())
}

/// The most memory that the server's process has had, in MB.
fn peak_mb(server: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn wide_results_long_numbers_and_large_texts_are_bounded() {
    let server = Running::start();
    let client = server.connect().await;
    // As many columns as PostgreSQL allows, with one name: 30 s when the names were compared with each other.
    let columns = |n: usize| vec!["1"; n].join(",");
    let row = client.query_one(&format!("select {}", columns(1664)), &[]).await.unwrap();
    assert_eq!(row.len(), 1664);
    assert_eq!(state(&client, &format!("select {}", columns(1665))).await, "54011");
    // Minutes by the schoolbook method.
    let number = "repeat('9', 60000)::numeric";
    assert_eq!(one(&client, &format!("select length(({number} * {number})::text)")).await, "120000");
    assert_eq!(state(&client, "select repeat('9',130000)::numeric * repeat('9',130000)::numeric").await, "22003");
    assert_eq!(one(&client, &format!("select (({number} * {number}) / {number} = {number})::text")).await, "true");
    // 10 GB were taken before the limit was looked at.
    let before = peak_mb(&server);
    let large = "select length(replace(repeat('a', 10000000), 'a', repeat('b', 1000)))";
    assert_eq!(state(&client, large).await, "54000");
    assert!(peak_mb(&server) < before + 500, "{} MB, before {before} MB", peak_mb(&server));
    let verifier = |iterations: u64| {
        let (salt, key) = ("QUFBQUFBQUFBQUFBQUFBQQ==", "A".repeat(43) + "=");
        format!("create role r{iterations} password 'SCRAM-SHA-256${iterations}:{salt}${key}:{key}'")
    };
    run(&client, &verifier(1_000_000)).await;
    assert_eq!(state(&client, &verifier(1_000_001)).await, "22023");
    assert_eq!(state(&client, &verifier(2_147_483_647)).await, "22023");
    let error = client.batch_execute("create role r password hunter2").await.unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

/// SQLite looks for a cancel between rows; this is one row.
#[tokio::test]
async fn a_row_that_calls_many_functions_is_cancelled() {
    let server = Running::start();
    let (client, watcher) = (server.connect().await, server.connect().await);
    let pid = one(&client, "select pg_backend_pid()").await;
    let number = "(repeat('9', 60000)::numeric * repeat('8', 60000)::numeric)";
    let long = format!("select {}", vec![format!("{number} = {number}"); 400].join(" and "));
    let running = tokio::spawn(async move { state(&client, &long).await });
    let waiting = format!("select count(*) from pg_stat_activity where pid = {pid} and state = 'active'");
    until("it runs", async || one(&watcher, &waiting).await == "1").await;
    assert_eq!(one(&watcher, &format!("select pg_cancel_backend({pid})")).await, "t");
    assert_eq!(running.await.unwrap(), "57014");
}
