//! SERIALIZABLE transactions block other sessions only while they write, and not indefinitely.

use super::bed::{Committer, ends, pid};
use crate::server::{Running, one, run, state, until};
use tokio_postgres::error::SqlState;

const CONFLICT: Option<SqlState> = Some(SqlState::T_R_SERIALIZATION_FAILURE);

#[tokio::test]
async fn a_session_that_only_reads_blocks_no_writer() {
    let server = Running::start();
    let reader = server.connect().await;
    run(&reader, "create table t (id int primary key, v int); insert into t values (1, 1)").await;
    run(&reader, "set idle_in_transaction_session_timeout = '1h'").await;
    run(&reader, "begin isolation level serializable; select 1; select v from t").await;
    ends(&server, "update t set v = 2").await;
    ends(&server, "create table u (id int)").await;
    assert_eq!(one(&reader, "select v from t").await, "1", "it keeps its snapshot");
    run(&reader, "commit").await;
}

/// A session cannot be the only writer for longer than the server permits.
#[tokio::test]
async fn an_idle_only_writer_is_rolled_back() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "only_writer_idle_timeout_ms = 200\n").unwrap();
    let server = Running::start_in(dir);
    let writer = server.connect().await;
    run(&writer, "create table t (id int primary key); set idle_in_transaction_session_timeout = '1h'").await;
    run(&writer, "begin isolation level serializable; insert into t values (1)").await;
    ends(&server, "insert into t values (2)").await;
    let error = state(&writer, "insert into t values (3)").await;
    assert_eq!(error, Some(SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT));
    // As in PostgreSQL the session has ended.
    assert_eq!(one(&server.connect().await, "select string_agg(id::text, ',') from t").await, "2");
}

#[tokio::test]
async fn there_is_no_write_skew() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    run(&a, "create table t (id int primary key, v int); insert into t values (1, 1), (2, 1)").await;
    for client in [&a, &b] {
        run(client, "begin isolation level serializable").await;
        assert_eq!(one(client, "select sum(v) from t").await, "2");
    }
    run(&a, "update t set v = 0 where id = 1; commit").await;
    assert_eq!(state(&b, "update t set v = 0 where id = 2").await, CONFLICT);
    run(&b, "rollback; begin isolation level serializable").await;
    assert_eq!(one(&b, "select sum(v) from t").await, "1");
    run(&b, "commit").await;
}

/// Nor over two databases, where each transaction reads one and writes the other.
#[tokio::test]
async fn there_is_no_write_skew_over_two_databases() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    run(&a, "create database other").await;
    run(&a, "create table t (v int); insert into t values (1)").await;
    run(&a, "use other; create table t (v int); insert into t values (1)").await;
    run(&a, "use holdfast; begin isolation level serializable").await;
    run(&b, "use other; begin isolation level serializable").await;
    assert_eq!((one(&a, "select v from t").await, one(&b, "select v from t").await), ("1".into(), "1".into()));
    run(&a, "use other").await;
    // One of them must fail, or wait for the other.
    let writes = tokio::spawn(async move { state(&a, "update t set v = 0; commit").await });
    let other = state(&b, "use holdfast; update t set v = 0; commit").await;
    let outcomes = [writes.await.unwrap(), other];
    assert!(outcomes.iter().any(Option::is_some), "both have committed: {outcomes:?}");
}

/// While others commit without a pause, the second try succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_database_does_not_starve_them() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t (id int primary key, v int); insert into t values (1, 0)").await;
    let commits = Committer::start(&server).await;
    let mut conflicts = 0;
    for _ in 0..10 {
        for attempt in 0..2 {
            run(&client, "begin isolation level serializable; select v from t").await;
            let before = commits.count();
            if attempt == 0 {
                // The first of them may have been published before the snapshot was taken.
                until("the other client commits", async || commits.count() > before + 1).await;
            }
            match state(&client, "update t set v = v + 1; commit").await {
                None => break,
                error => {
                    assert_eq!((error, attempt), (CONFLICT, 0));
                    conflicts += 1;
                    run(&client, "rollback").await;
                }
            }
        }
    }
    assert_eq!((one(&client, "select v from t").await.as_str(), conflicts), ("10", 10));
}

/// Those that wait for the only writer wait as for any lock.
#[tokio::test]
async fn victims_obey_timeouts_and_cancels_and_show_whom_they_wait_for() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "only_writer_idle_timeout_ms = 600000\n").unwrap();
    let server = Running::start_in(dir);
    let (writer, watcher) = (server.connect().await, server.connect().await);
    run(&writer, "create table t (id int primary key)").await;
    run(&writer, "begin isolation level serializable; insert into t values (1)").await;
    let victim = server.connect().await;
    run(&victim, "set lock_timeout = '50ms'").await;
    assert_eq!(state(&victim, "insert into t values (2)").await, Some(SqlState::LOCK_NOT_AVAILABLE));
    run(&victim, "set lock_timeout = 0; set statement_timeout = '50ms'").await;
    assert_eq!(state(&victim, "insert into t values (3)").await, Some(SqlState::QUERY_CANCELED));
    run(&victim, "set statement_timeout = 0").await;
    let (blocker, pid) = (pid(&writer).await, pid(&victim).await);
    for ends in [Some(SqlState::QUERY_CANCELED), None] {
        let waits = victim.simple_query("insert into t values (4)");
        let others = async {
            let blocked = format!(
                "select wait_event_type || ' ' || array_to_string(pg_blocking_pids(pid), ',') from pg_stat_activity where pid = {pid}"
            );
            let waits_for = format!("Lock {blocker}");
            until("the victim waits", async || one(&watcher, &blocked).await == waits_for).await;
            match &ends {
                Some(_) => run(&watcher, &format!("select pg_cancel_backend({pid})")).await,
                None => run(&writer, "commit").await,
            }
        };
        let (waited, ()) = tokio::join!(waits, others);
        assert_eq!(waited.err().and_then(|e| e.code().cloned()), ends);
    }
    assert_eq!(one(&watcher, "select string_agg(id::text, ',' order by id) from t").await, "1,4");
}
