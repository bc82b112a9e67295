//! Limits, time-outs, and the statistics of tables and of the server's background work, as an operator sets and sees them.

use crate::server::{Running, one, run, state, until};
use futures::TryStreamExt;
use tempfile::TempDir;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

#[tokio::test]
async fn a_result_that_passes_a_limit_ends_with_an_error() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t(id int primary key, v text)").await;
    run(&client, "insert into t select i, repeat('x', 100) from generate_series(1, 1000) g(i)").await;
    let limit = Some(SqlState::PROGRAM_LIMIT_EXCEEDED);
    run(&client, "set result_rows_max = 100").await;
    run(&client, "select * from t limit 100").await;
    let error = client.batch_execute("select * from t limit 101").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(
        (error.code(), error.message()),
        (&SqlState::PROGRAM_LIMIT_EXCEEDED, "the result has more than 100 rows")
    );
    assert_eq!(error.detail(), Some("result_rows_max is 100 in this session."));
    assert!(error.hint().unwrap().contains("SET result_rows_max"));
    assert_eq!(state(&client, "select * from t").await, limit, "a scan on a thread of its own");
    assert_eq!(client.query("select * from t where id > $1", &[&0]).await.unwrap_err().code(), limit.as_ref());
    let copied: Result<Vec<_>, _> = client.copy_out("copy t to stdout").await.unwrap().try_collect().await;
    assert_eq!(copied.unwrap_err().code(), limit.as_ref());
    // A statement that returns what it has changed has changed nothing then.
    assert_eq!(state(&client, "update t set v = 'y' returning id").await, limit);
    assert_eq!(one(&client, "select count(*) from t where v = 'y'").await, "0");
    assert_eq!(state(&client, "begin; select * from t").await, limit);
    run(&client, "rollback").await;
    // In parts, each is a result of its own.
    run(&client, "begin; declare c cursor for select * from t; fetch 100 from c; fetch 100 from c").await;
    assert_eq!(state(&client, "fetch 101 from c").await, limit);
    run(&client, "rollback").await;
    run(&client, "select * from t limit 60; select * from t limit 60").await;
    run(&client, "set result_rows_max = 0; set result_bytes_max = '10kB'").await;
    let bytes = client.batch_execute("select * from t").await.unwrap_err();
    assert_eq!(bytes.as_db_error().unwrap().message(), "the result has more than 10240 bytes");
    run(&client, "select * from t limit 50").await;
    run(&client, "reset result_bytes_max; select * from t").await;
    assert_eq!(state(&client, "set result_rows_max = -1").await, Some(SqlState::INVALID_PARAMETER_VALUE));
}

#[tokio::test]
async fn limits_of_results_belong_to_servers_databases_and_roles() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "result_rows_max = 50\nresult_bytes_max = \"1MB\"\n").unwrap();
    let server = Running::start_in(dir);
    let client = server.connect().await;
    assert_eq!(one(&client, "show result_rows_max").await, "50");
    run(&client, "set result_rows_max = 0; create table t(id int)").await;
    run(&client, "insert into t select i from generate_series(1, 60) g(i)").await;
    run(&client, "alter database holdfast set result_rows_max = 55").await;
    run(&client, "alter role holdfast set result_rows_max = 20").await;
    let limited = server.connect().await;
    assert_eq!(one(&limited, "show result_rows_max").await, "20");
    assert_eq!(state(&limited, "select * from t limit 21").await, Some(SqlState::PROGRAM_LIMIT_EXCEEDED));
    run(&client, "alter role holdfast reset result_rows_max").await;
    assert_eq!(one(&server.connect().await, "show result_rows_max").await, "55");
}

/// The SQLSTATE and text with which the server ends a session while its client sends nothing.
async fn ended_with(server: &Running, set_up: &str) -> (String, String) {
    let config = format!("host=127.0.0.1 port={} user=holdfast dbname=holdfast", server.port);
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    run(&client, set_up).await;
    let error = connection.await.unwrap().unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.severity(), "FATAL");
    (error.code().code().to_owned(), error.message().to_owned())
}

#[tokio::test]
async fn idle_sessions_end_with_postgresqls_errors() {
    let server = Running::start();
    let watcher = server.connect().await;
    run(&watcher, "create table t(x int)").await;
    let idle = ended_with(&server, "set idle_session_timeout = '50ms'").await;
    assert_eq!(idle, ("57P05".to_owned(), "terminating connection due to idle-session timeout".to_owned()));
    let set_up = "set idle_in_transaction_session_timeout = '50ms'; begin; insert into t values (1)";
    // In one message SET and BEGIN are a transaction block already.
    let in_transaction = ended_with(&server, set_up).await;
    let text = "terminating connection due to idle-in-transaction timeout".to_owned();
    assert_eq!(in_transaction, ("25P03".to_owned(), text));
    assert_eq!(one(&watcher, "select count(*) from t").await, "0");
    // A session that is idle in a transaction is not idle for the other time-out, nor the other way round.
    let other = server.connect().await;
    run(&other, "set idle_session_timeout = '50ms'; begin").await;
    run(&watcher, "select pg_sleep(0.3)").await;
    run(&other, "rollback; set idle_session_timeout = 0").await;
    run(&other, "set idle_in_transaction_session_timeout = '50ms'").await;
    run(&watcher, "select pg_sleep(0.3)").await;
    run(&other, "select 1").await;
}

#[tokio::test]
async fn statements_end_with_their_time() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "set statement_timeout = '50ms'").await;
    let error = client.batch_execute("select pg_sleep(60)").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code(), &SqlState::QUERY_CANCELED);
    assert_eq!(error.message(), "canceling statement due to statement timeout");
    run(&client, "set statement_timeout = 0; select pg_sleep(0.1)").await;
}

#[tokio::test]
async fn a_long_wait_for_a_lock_is_logged() {
    let server = Running::start_in(TempDir::new().unwrap());
    let (holder, waiter) = (server.connect().await, server.connect().await);
    run(&holder, "create table t(id int primary key, v int); insert into t values (1, 1)").await;
    run(&waiter, "set deadlock_timeout = '20ms'; set log_lock_waits = on").await;
    let pid = one(&waiter, "select pg_backend_pid()").await;
    let by = one(&holder, "select pg_backend_pid()").await;
    run(&holder, "begin; update t set v = 2 where id = 1").await;
    let waiting = tokio::spawn(async move {
        run(&waiter, "update t set v = 3 where id = 1").await;
        waiter
    });
    until("the wait is logged", async || server.log().contains(&format!("process {pid} still waiting for "))).await;
    let detail = format!("Process holding the lock: {by}. Wait queue: {pid}.");
    assert!(server.log().contains(&detail), "{}", server.log());
    assert!(!server.log().contains(&format!("process {pid} acquired ")));
    run(&holder, "commit").await;
    let waiter = waiting.await.unwrap();
    until("its end is logged", async || server.log().contains(&format!("process {pid} acquired "))).await;
    assert_eq!(server.log().matches("still waiting for").count(), 1, "{}", server.log());
    run(&waiter, "set log_lock_waits = off").await;
    run(&holder, "begin; update t set v = 4 where id = 1").await;
    let waiting = tokio::spawn(async move { run(&waiter, "update t set v = 5 where id = 1").await });
    let blocked = format!("select cardinality(pg_blocking_pids({pid})) > 0");
    until("it waits", async || one(&holder, &blocked).await == "t").await;
    run(&holder, "select pg_sleep(0.2); commit").await;
    waiting.await.unwrap();
    assert_eq!(server.log().matches("still waiting for").count(), 1, "{}", server.log());
}

#[tokio::test]
async fn changes_are_counted_by_table() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t(id int primary key, v int); create table u(id int); create view w as select * from t")
        .await;
    run(&client, "insert into t select i, i from generate_series(1, 10) g(i)").await;
    run(&client, "update t set v = 0 where id <= 4; delete from t where id = 1").await;
    run(&client, "insert into t values (2, 2) on conflict (id) do nothing").await;
    run(&client, "begin; insert into u values (1), (2); rollback").await;
    client.execute("insert into u values ($1)", &[&7]).await.unwrap();
    let _ = client.batch_execute("insert into t values (3, 3)").await;
    let counts = async |view: &str, table: &str| {
        let sql = "select n_tup_ins || ' ' || n_tup_upd || ' ' || n_tup_del || ' ' || n_dead_tup from";
        one(&client, &format!("{sql} {view} where relname = '{table}'")).await
    };
    assert_eq!(counts("pg_stat_user_tables", "t").await, "10 4 1 0");
    assert_eq!(counts("pg_stat_all_tables", "u").await, "3 0 0 0");
    assert_eq!(one(&client, "select count(*) from pg_stat_user_tables").await, "2", "no view");
    assert_eq!(one(&client, "select indexrelname from pg_stat_user_indexes").await, "t_pkey");
    let unknown = "select seq_scan is null and n_live_tup is null from pg_stat_user_tables where relname = 't'";
    assert_eq!(one(&client, unknown).await, "t");
    run(&client, "create database other").await;
    let other = server.connect_to("other").await;
    run(&other, "create table t(id int)").await;
    assert_eq!(one(&other, "select n_tup_ins from pg_stat_user_tables").await, "0");
    let wal =
        "select wal_bytes > 0 and wal_write > 0 and wal_records is null and stats_reset <= now() from pg_stat_wal";
    assert_eq!(one(&client, wal).await, "t");
    run(&client, "checkpoint").await;
    let checkpoints = "select checkpoints_timed >= 0 and stats_reset is not null from pg_stat_bgwriter";
    assert_eq!(one(&client, checkpoints).await, "t");
}

#[tokio::test]
async fn background_work_is_listed_as_postgresql_names_it() {
    let server = Running::start();
    let client = server.connect().await;
    let kinds = "select string_agg(backend_type, ' ' order by backend_type) from pg_stat_activity";
    assert_eq!(one(&client, kinds).await, "checkpointer client backend walwriter");
    let row = "select datid is null and usename is null and state is null and query = '' and backend_start is not null
               from pg_stat_activity where backend_type = 'checkpointer'";
    assert_eq!(one(&client, row).await, "t");
    assert_eq!(one(&client, "select count(distinct pid) = count(*) from pg_stat_activity").await, "t");
    let no_session = "select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'checkpointer'";
    assert_eq!(one(&client, no_session).await, "f");
    run(&client, "create role plain; set role plain").await;
    assert_eq!(one(&client, kinds).await, "");
    run(&client, "reset role; grant pg_monitor to plain; set role plain").await;
    assert_eq!(one(&client, kinds).await, "checkpointer client backend walwriter");
}

/// In a transaction of one message, in a block, with an error in between, and as the only writer.
#[tokio::test]
async fn statements_count_what_they_put_into_the_trail() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t(id int primary key, v text)").await;
    run(&client, "select pg_stat_statements_reset()").await;
    let recorded = async |query: &str| {
        let sql = "select wal_records || ' ' || (wal_bytes > 0) from pg_stat_statements where query = ";
        one(&client, &format!("{sql}'{query}'")).await
    };
    run(&client, "insert into t values (1, 'a'), (2, 'b')").await;
    assert_eq!(recorded("insert into t values ($1, $2), ($3, $4)").await, "2 true");
    run(&client, "begin; update t set v = 'c' where id = 1").await;
    run(&client, "update t set v = 'd' where id = 2; commit").await;
    assert_eq!(recorded("update t set v = $1 where id = $2").await, "2 true");
    run(&client, "begin isolation level serializable; delete from t where id = 1").await;
    run(&client, "commit").await;
    assert_eq!(recorded("delete from t where id = $1").await, "1 true");
    run(&client, "select count(*) from t").await;
    assert_eq!(recorded("select count(*) from t").await, "0 false");
    client.execute("insert into t values ($1, $2)", &[&9, &"x".repeat(1000)]).await.unwrap();
    let large =
        "select wal_bytes between 1000 and 1200 from pg_stat_statements where query = 'insert into t values ($1, $2)'";
    assert_eq!(one(&client, large).await, "t");
}
