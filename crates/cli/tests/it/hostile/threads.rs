//! Sessions whose statements sleep, or whose clients do not read, take no thread that others need.

use super::bed::ends;
use super::raw::RawClient;
use crate::server::{Running, one, run, until};
use tempfile::TempDir;

/// More than any number of threads that sessions could share.
const SLEEPERS: usize = 100;

fn start() -> Running {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "workers = 1\n").unwrap();
    Running::start_in(dir)
}

/// Scans and changes run although that many sessions hold a thread each.
async fn others_continue(server: &Running, sleeps: &str) {
    let mut sleepers = Vec::new();
    for _ in 0..SLEEPERS {
        let mut client = RawClient::connect(server.port);
        client.send(b'Q', &[sleeps.as_bytes(), b"\0"].concat());
        sleepers.push(client);
    }
    ends(server, "select count(*) from generate_series(1, 10000)").await;
    ends(server, "insert into t select g from generate_series(1, 100) g").await;
    let client = server.connect().await;
    let asleep = "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()";
    until("all of them are at it", async || one(&client, asleep).await == SLEEPERS.to_string()).await;
}

#[tokio::test]
async fn scans_that_wait_for_their_clients_stop_no_others() {
    let server = start();
    run(&server.connect().await, "create table t(id int)").await;
    others_continue(&server, "select repeat('x', 1000000) from generate_series(1, 1000000)").await;
}

#[tokio::test]
async fn scans_that_sleep_stop_no_others() {
    let server = start();
    run(&server.connect().await, "create table t(id int)").await;
    others_continue(&server, "select pg_sleep(86400) from generate_series(1, 3)").await;
}

#[tokio::test]
async fn changes_that_sleep_stop_no_others() {
    let server = start();
    run(&server.connect().await, "create table t(id int); create table s(v text)").await;
    others_continue(&server, "insert into s select pg_sleep(86400) from generate_series(1, 3)").await;
}
