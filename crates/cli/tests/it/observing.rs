//! What an operator sees and does: sessions with their addresses, cancelling and ending them.

use crate::server::{Running, one, run, state, until};
use std::net::IpAddr;
use tempfile::TempDir;
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn a_session_is_shown_with_its_address() {
    let server = Running::start();
    let client = server.connect().await;
    let own = "from pg_stat_activity where pid = pg_backend_pid()";
    // In binary, as the driver asks for it.
    let address: IpAddr = client.query_one(&format!("select client_addr {own}"), &[]).await.unwrap().get(0);
    assert_eq!(address.to_string(), "127.0.0.1");
    assert_eq!(
        one(&client, &format!("select client_addr || ' ' || host(client_addr) {own}")).await,
        "127.0.0.1/32 127.0.0.1"
    );
    assert_eq!(one(&client, &format!("select count(*) {own} and client_addr = '127.0.0.1'")).await, "1");
    assert_eq!(
        one(&client, &format!("select client_addr = inet_client_addr() and client_port = inet_client_port() {own}"))
            .await,
        "t"
    );
    assert_eq!(one(&client, "select inet_server_addr()").await, "127.0.0.1");
    assert_eq!(one(&client, "select inet_server_port()").await, server.port.to_string());
    assert_eq!(one(&client, "select ssl from pg_stat_ssl where pid = pg_backend_pid()").await, "f");
    let begun =
        "select pg_postmaster_start_time() <= backend_start and pg_conf_load_time() >= pg_postmaster_start_time()";
    assert_eq!(one(&client, &format!("{begun} {own}")).await, "t");
    let start = one(&client, "select pg_postmaster_start_time()").await;
    assert_eq!(one(&client, "select pg_postmaster_start_time()").await, start);
    let parameter: IpAddr = "10.1.2.3".parse().unwrap();
    let row = client.query_one("select host($1::inet)", &[&parameter]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "10.1.2.3");
}

#[tokio::test]
async fn an_ended_session_keeps_what_its_automatic_transaction_has() {
    let server = Running::start();
    let (watcher, target) = (server.connect().await, server.connect().await);
    run(&watcher, "create table t(x int)").await;
    run(&target, "set auto_transaction = on; set auto_transaction_idle_ms = 3600000").await;
    run(&target, "set auto_transaction_time_max_ms = 3600000").await;
    run(&target, "insert into t values (1)").await;
    assert_eq!(one(&watcher, "select count(*) from t").await, "0");
    let pid = one(&target, "select pg_backend_pid()").await;
    assert_eq!(one(&watcher, &format!("select pg_cancel_backend({pid})")).await, "t");
    run(&target, "insert into t values (2)").await;
    assert_eq!(one(&watcher, &format!("select pg_terminate_backend({pid}, 20000)")).await, "t");
    assert!(target.batch_execute("select 1").await.is_err());
    assert_eq!(one(&watcher, "select count(*) from t").await, "2");
}

/// A commit that waits for its standbys cannot be taken back: a cancel leaves it waiting, and the end of the session says
/// that it may take effect.
#[tokio::test]
async fn a_commit_that_waits_for_a_standby_is_ended_and_not_cancelled() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "synchronous_standby_names = \"absent\"\n").unwrap();
    let server = Running::start_in(dir);
    let watcher = server.connect().await;
    run(&watcher, "set synchronous_commit = local").await;
    run(&watcher, "create table t(x int)").await;
    for (number, in_block) in [(1, false), (2, true)] {
        let target = server.connect().await;
        run(&target, "set holdfast.level = hot").await;
        let pid = one(&target, "select pg_backend_pid()").await;
        let commit = tokio::spawn(async move {
            match in_block {
                false => target.batch_execute(&format!("insert into t values ({number})")).await,
                true => {
                    target.batch_execute(&format!("begin; insert into t values ({number})")).await.unwrap();
                    target.batch_execute("commit").await
                }
            }
        });
        let waits = format!("select wait_event from pg_stat_activity where pid = {pid}");
        until("it waits for the standby", async || one(&watcher, &waits).await == "SyncRep").await;
        assert_eq!(one(&watcher, &format!("select pg_cancel_backend({pid})")).await, "t");
        assert_eq!(one(&watcher, &waits).await, "SyncRep", "it still waits");
        assert_eq!(one(&watcher, &format!("select pg_terminate_backend({pid}, 20000)")).await, "t");
        let error = commit.await.unwrap().unwrap_err();
        assert_eq!(error.code(), Some(&SqlState::ADMIN_SHUTDOWN));
        assert!(error.as_db_error().unwrap().detail().unwrap().contains("may have taken effect"));
    }
    assert_eq!(state(&watcher, "select pg_terminate_backend(1, -5)").await, Some(SqlState::NUMERIC_VALUE_OUT_OF_RANGE));
}
