//! The server as its clients and its operator meet it.

use crate::server::{Running, fails_to_start, one, until};
use futures::{SinkExt, StreamExt};
use std::pin::pin;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

fn state(error: &Error) -> &SqlState {
    error.code().expect("an error of the server")
}

async fn fails(client: &Client, sql: &str, with: &SqlState) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    assert_eq!(state(&error), with, "{sql}: {error:?}");
}

#[tokio::test]
async fn what_was_committed_survives_a_kill_and_a_clean_stop() {
    let server = Running::start();
    let client = server.connect().await;
    client.batch_execute("create table t(id int primary key, v text)").await.unwrap();
    for i in 0..20 {
        client.execute("insert into t values ($1, $2)", &[&i, &format!("v{i}")]).await.unwrap();
    }
    client.batch_execute("begin; insert into t values (100, 'open')").await.unwrap();
    let server = Running::start_in(server.kill());
    let client = server.connect().await;
    assert_eq!(one(&client, "select count(*) from t").await, "20");
    assert_ne!(one(&client, "select value from holdfast_stat_trail where name = 'syncs'").await, "");
    let (status, dir) = server.stop();
    assert!(status.success());
    let server = Running::start_in(dir);
    assert_eq!(one(&server.connect().await, "select v from t where id = 19").await, "v19");
}

/// SQLite reads pages beyond the end of a database's file that were never written: in the transaction itself, and in redo, which makes
/// one of several.
#[tokio::test]
async fn rows_that_came_and_went_before_the_first_checkpoint_survive_a_kill() {
    let server = Running::start();
    let client = server.connect().await;
    let come = "insert into t select g, repeat('b', 1000) from generate_series(1, 20000) g";
    let go = "delete from t where id <> 5000; update t set id = 0";
    let several = format!("begin; {come}; {go}; {come}; delete from t; {come}; {go}; commit");
    client.batch_execute("create table t(id int primary key, v text)").await.unwrap();
    client.batch_execute(&several).await.unwrap();
    for sql in ["delete from t", come, "delete from t where id <> 5000", "delete from t", come, go] {
        client.batch_execute(sql).await.unwrap();
    }
    let server = Running::start_in(server.kill());
    let client = server.connect().await;
    assert_eq!(one(&client, "select count(*) || ' ' || sum(length(v)) from t").await, "1 1000");
}

#[tokio::test]
async fn the_catalogue_shows_what_the_open_transaction_has_made() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let seen = "select (select count(*) from pg_class where relname = 'own') || ' ' || \
                (select count(*) from information_schema.columns where table_name = 'own')";
    for begin in ["begin", "begin isolation level serializable"] {
        a.batch_execute(&format!("{begin}; create table own(a int, b int)")).await.unwrap();
        assert_eq!(one(&a, seen).await, "1 2", "{begin}");
        assert_eq!(one(&b, seen).await, "0 0", "{begin}: another session");
        a.batch_execute("savepoint s; alter table own add c int").await.unwrap();
        assert_eq!(one(&a, seen).await, "1 3", "{begin}");
        a.batch_execute("rollback to s").await.unwrap();
        assert_eq!(one(&a, seen).await, "1 2", "{begin}");
        a.batch_execute("drop table own").await.unwrap();
        assert_eq!(one(&a, seen).await, "0 0", "{begin}");
        a.batch_execute("rollback").await.unwrap();
    }
}

#[tokio::test]
async fn parameters_are_set_and_read_by_functions() {
    let server = Running::start();
    let client = server.connect().await;
    // What was in force before, what is now, and what the session has from then on.
    assert_eq!(one(&client, "select current_setting('jit') || ' ' || set_config('jit', 'on', false)").await, "off on");
    assert_eq!(one(&client, "show jit").await, "on");
    assert_eq!(one(&client, "select set_config('my.app', 'x', true) || current_setting('my.app')").await, "xx");
    assert_eq!(one(&client, "select coalesce(current_setting('my.app', true), 'none')").await, "none", "it was local");
    client.batch_execute("begin; select set_config('my.app', 'y', false); rollback").await.unwrap();
    fails(&client, "select current_setting('my.app')", &SqlState::UNDEFINED_OBJECT).await;
    client.batch_execute("begin; select set_config('my.app', 'z', false); commit").await.unwrap();
    assert_eq!(one(&client, "show my.app").await, "z");
    fails(&client, "select set_config('jit', 'off', false), 1 / (length('a') - 1)", &SqlState::DIVISION_BY_ZERO).await;
    assert_eq!(one(&client, "show jit").await, "on", "a statement that fails sets nothing");
    assert_eq!(
        one(&client, "select setting || unit || vartype from pg_settings where name = 'work_mem'").await,
        "4096kBinteger"
    );
    client.batch_execute("set work_mem = '1MB'").await.unwrap();
    assert_eq!(one(&client, "select setting from pg_settings where name = 'work_mem'").await, "1024");
    // The schemas of search_path.
    assert_eq!(
        one(&client, "select current_schema() || ' ' || current_schemas(true)::text").await,
        "public {pg_catalog,public}"
    );
    client.batch_execute("set search_path to nosuch, pg_catalog, \"A b\", public").await.unwrap();
    assert_eq!(one(&client, "show search_path").await, "nosuch, pg_catalog, \"A b\", public");
    assert_eq!(
        one(&client, "select current_schema() || ' ' || current_schemas(false)::text").await,
        "pg_catalog {pg_catalog,public}"
    );
    client.batch_execute("set search_path to ''").await.unwrap();
    assert_eq!(one(&client, "select coalesce(current_schema(), 'none')").await, "none");
    // A zone that cannot be honoured is refused.
    fails(&client, "set time zone interval '-08:00' hour to minute", &SqlState::INVALID_PARAMETER_VALUE).await;
    client.batch_execute("set time zone 0").await.unwrap();
    assert_eq!(one(&client, "show timezone").await, "<+00>-00");
    client.batch_execute("set transaction_isolation = 'read committed'").await.unwrap();
}

#[tokio::test]
async fn transactions_and_savepoints() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    a.batch_execute("create table t(id int primary key, v int); insert into t values (1, 10)").await.unwrap();

    a.batch_execute("begin; update t set v = 11 where id = 1; savepoint s; insert into t values (2, 20)")
        .await
        .unwrap();
    assert_eq!(one(&b, "select v from t where id = 1").await, "10", "not committed yet");
    fails(&a, "insert into t values (1, 0)", &SqlState::UNIQUE_VIOLATION).await;
    fails(&a, "select 1", &SqlState::IN_FAILED_SQL_TRANSACTION).await;
    a.batch_execute("rollback to s; commit").await.unwrap();
    assert_eq!(one(&b, "select v from t where id = 1").await, "11");
    assert_eq!(one(&b, "select count(*) from t").await, "1");

    fails(&a, "insert into t values (3, 3); insert into t values (3, 3)", &SqlState::UNIQUE_VIOLATION).await;
    fails(&a, "begin; insert into t values (4, 4); insert into t values (4, 4); commit", &SqlState::UNIQUE_VIOLATION)
        .await;
    fails(&a, "select 1", &SqlState::IN_FAILED_SQL_TRANSACTION).await;
    a.batch_execute("commit").await.unwrap();
    assert_eq!(one(&a, "select count(*) from t").await, "1", "nothing of either");

    fails(&a, "begin read only; insert into t values (5, 5)", &SqlState::READ_ONLY_SQL_TRANSACTION).await;
    a.batch_execute("rollback").await.unwrap();
    fails(&a, "savepoint s", &SqlState::NO_ACTIVE_SQL_TRANSACTION).await;
    a.batch_execute("begin; create table u(x int); insert into u values (1)").await.unwrap();
    assert_eq!(one(&a, "select x from u").await, "1");
    a.batch_execute("rollback").await.unwrap();
    fails(&a, "select x from u", &SqlState::UNDEFINED_TABLE).await;
}

#[tokio::test]
async fn isolation_levels_see_what_they_should() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    a.batch_execute("create table t(id int primary key, v int); insert into t values (1, 0)").await.unwrap();
    let v = "select v from t where id = 1";

    a.batch_execute("begin").await.unwrap();
    assert_eq!(one(&a, v).await, "0");
    b.batch_execute("update t set v = 1 where id = 1").await.unwrap();
    assert_eq!(one(&a, v).await, "1", "READ COMMITTED: a new snapshot for each statement");
    a.batch_execute("commit").await.unwrap();

    a.batch_execute("begin isolation level repeatable read").await.unwrap();
    assert_eq!(one(&a, v).await, "1");
    b.batch_execute("update t set v = 2 where id = 1").await.unwrap();
    assert_eq!(one(&a, v).await, "1");
    assert_eq!(one(&a, "select sum(v) from t").await, "1", "scans, too");
    fails(&a, "update t set v = 9 where id = 1", &SqlState::T_R_SERIALIZATION_FAILURE).await;
    a.batch_execute("rollback").await.unwrap();

    a.batch_execute("begin isolation level serializable").await.unwrap();
    assert_eq!(one(&a, v).await, "2");
    b.batch_execute("update t set v = 3 where id = 1").await.unwrap();
    assert_eq!(one(&a, v).await, "2", "it has read, so it has a snapshot, and blocks nothing");
    fails(&a, "update t set v = v + 10 where id = 1", &SqlState::T_R_SERIALIZATION_FAILURE).await;
    a.batch_execute("rollback; begin isolation level serializable").await.unwrap();
    assert_eq!(one(&a, v).await, "3");
    let blocked = tokio::time::timeout(Duration::from_millis(200), b.batch_execute("update t set v = 4 where id = 1"));
    assert!(blocked.await.is_err(), "when it is run again, other writers wait");
    a.batch_execute("update t set v = v + 10 where id = 1; commit").await.unwrap();
    assert_eq!(one(&a, "show transaction_isolation").await, "read committed");
}

#[tokio::test]
async fn pipelines_and_prepared_statements() {
    let server = Running::start();
    let client = server.connect().await;
    client.batch_execute("create table t(id int primary key, v text)").await.unwrap();
    let insert = client.prepare("insert into t values ($1, $2)").await.unwrap();
    let select = client.prepare("select id, v from t where id = $1").await.unwrap();
    let values: Vec<(i32, String)> = (0..50).map(|i| (i, format!("v{i}"))).collect();
    let inserts = values.iter().map(|(i, v)| {
        let (client, insert) = (&client, &insert);
        async move { client.execute(insert, &[i, v]).await }
    });
    futures::future::try_join_all(inserts).await.unwrap();
    let row = client.query_one(&select, &[&7]).await.unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (7, "v7"));

    // The schema changes under a prepared statement: other columns are refused, the same ones go on.
    client.batch_execute("alter table t add column w int").await.unwrap();
    assert_eq!(client.query_one(&select, &[&8]).await.unwrap().get::<_, &str>(1), "v8");
    let all = client.prepare("select * from t where id = $1").await.unwrap();
    client.batch_execute("alter table t add column x int").await.unwrap();
    let error = client.query_one(&all, &[&8]).await.unwrap_err();
    assert_eq!(state(&error), &SqlState::FEATURE_NOT_SUPPORTED);

    let error = client.query("select $1::int4 / $2::int4", &[&1i32, &0i32]).await.unwrap_err();
    assert_eq!(state(&error), &SqlState::DIVISION_BY_ZERO);
    let portal_rows = {
        let mut client = server.connect().await;
        let transaction = client.transaction().await.unwrap();
        let portal = transaction.bind("select id from t order by id", &[]).await.unwrap();
        let mut sizes = Vec::new();
        loop {
            let rows = transaction.query_portal(&portal, 20).await.unwrap();
            if rows.is_empty() {
                break sizes;
            }
            sizes.push(rows.len());
        }
    };
    assert_eq!(portal_rows, [20, 20, 10]);
}

#[tokio::test]
async fn copy_in_and_out() {
    let server = Running::start();
    let client = server.connect().await;
    client.batch_execute("create table t(id int primary key, v text)").await.unwrap();
    let mut sink = pin!(client.copy_in("copy t from stdin").await.unwrap());
    for chunk in 0..5 {
        let lines: String = (0..1000).map(|i| format!("{}\tvalue {i}\n", chunk * 1000 + i)).collect();
        sink.send(std::io::Cursor::new(lines.into_bytes())).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 5000);
    let out = client.copy_out("copy (select id from t where id < 3 order by id) to stdout with csv").await.unwrap();
    let chunks: Vec<_> = out.map(|chunk| chunk.unwrap()).collect().await;
    assert_eq!(chunks.concat(), b"0\n1\n2\n");

    // A bad line undoes the whole COPY; a client that leaves in the middle does, too.
    let mut sink = pin!(client.copy_in("copy t from stdin").await.unwrap());
    sink.send(&b"10000\tok\nbad\tx\n"[..]).await.unwrap();
    let error = sink.finish().await.unwrap_err();
    assert_eq!(state(&error), &SqlState::INVALID_TEXT_REPRESENTATION);
    {
        let leaving = server.connect().await;
        let mut sink = Box::pin(leaving.copy_in::<_, std::io::Cursor<Vec<u8>>>("copy t from stdin").await.unwrap());
        sink.send(std::io::Cursor::new(b"10001\tx\n".to_vec())).await.unwrap();
        std::mem::forget(sink);
    }
    assert_eq!(one(&client, "select count(*) from t").await, "5000");
}

#[tokio::test]
async fn cancel_and_timeouts() {
    let server = Running::start();
    let (a, b) = (server.connect().await, server.connect().await);
    let endless = "with recursive r(i) as (select 1 union all select i + 1 from r) select count(*) from r";
    let token = a.cancel_token();
    // A request that comes before the statement runs does nothing, so it is repeated.
    let cancel = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            token.cancel_query(tokio_postgres::NoTls).await.unwrap();
        }
    };
    let outcome = tokio::select! {
        outcome = a.batch_execute(endless) => outcome,
        never = cancel => never,
    };
    assert_eq!(state(&outcome.unwrap_err()), &SqlState::QUERY_CANCELED);
    let hasty = server.connect().await;
    hasty.batch_execute("set statement_timeout = '50ms'").await.unwrap();
    fails(&hasty, endless, &SqlState::QUERY_CANCELED).await;

    a.batch_execute("create table t(x int primary key)").await.unwrap();
    a.batch_execute("begin; insert into t values (1)").await.unwrap();
    b.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    fails(&b, "begin; insert into t values (1)", &SqlState::LOCK_NOT_AVAILABLE).await;
    b.batch_execute("rollback").await.unwrap();
    a.batch_execute("commit; set idle_in_transaction_session_timeout = '100ms'; begin; insert into t values (3)")
        .await
        .unwrap();
    until("the connection is closed", async || a.is_closed()).await;
    assert!(a.batch_execute("commit").await.is_err());
    assert_eq!(one(&b, "select count(*) from t").await, "1");
}

#[tokio::test]
async fn databases_come_and_go() {
    let server = Running::start();
    let client = server.connect().await;
    client.batch_execute("create database shop").await.unwrap();
    fails(&client, "create database shop", &SqlState::DUPLICATE_DATABASE).await;
    fails(&client, "begin; create database other", &SqlState::ACTIVE_SQL_TRANSACTION).await;
    client.batch_execute("rollback").await.unwrap();
    {
        let shop = server.connect_to("shop").await;
        shop.batch_execute("create table only_here(x int)").await.unwrap();
        fails(&client, "drop database shop", &SqlState::OBJECT_IN_USE).await;
    }
    fails(&client, "select * from only_here", &SqlState::UNDEFINED_TABLE).await;
    // The session above ends a moment after its client has gone.
    until("the session is gone", async || client.batch_execute("drop database shop").await.is_ok()).await;
    fails(&client, "drop database shop", &SqlState::INVALID_CATALOG_NAME).await;
}

#[tokio::test]
async fn a_stopping_server_tells_its_clients() {
    let server = Running::start();
    let client = server.connect().await;
    client.batch_execute("create table t(x int)").await.unwrap();
    client.batch_execute("begin; insert into t values (1)").await.unwrap();
    let running = server.connect().await;
    let endless = tokio::spawn(async move {
        let sql = "with recursive r(i) as (select 1 union all select i + 1 from r) select count(*) from r";
        running.batch_execute(sql).await
    });
    let other = server.connect().await;
    let active = "select count(*) from pg_stat_activity where state = 'active' and query like 'with recursive%'";
    until("it has come", async || one(&other, active).await == "1").await;
    // It is translated before it runs, and only what runs is ended; that it does run is not told.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (status, dir) = tokio::task::spawn_blocking(|| server.stop()).await.unwrap();
    assert!(status.success());
    assert!(endless.await.unwrap().is_err());
    assert!(client.batch_execute("commit").await.is_err());
    let server = Running::start_in(dir);
    assert_eq!(one(&server.connect().await, "select count(*) from t").await, "0");
}

#[test]
fn what_keeps_a_server_from_starting_is_said() {
    let server = Running::start();
    let dir = tempfile::TempDir::new().unwrap();
    let (status, message) = fails_to_start(dir.path(), &format!("127.0.0.1:{}", server.port));
    assert_eq!(status.code(), Some(1));
    assert!(message.contains("cannot listen") && message.contains("--listen"), "{message}");
    let (_, message) = fails_to_start(dir.path(), "0.0.0.0:0");
    assert!(message.contains("without TLS") && message.contains("holdfast cert server"), "{message}");
    assert!(message.contains("'\\password app'"), "{message}");
    let (_, message) = fails_to_start(server.dir.path(), "127.0.0.1:0");
    assert!(message.contains("in use") || message.contains("another"), "{message}");
    std::fs::write(dir.path().join("holdfast.toml"), "\nconnection_max = 3\n").unwrap();
    let (_, message) = fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(message.contains("line 2") && message.contains("connection_max"), "{message}");
}

#[tokio::test]
async fn what_transactions_do_to_each_other_is_counted() {
    let server = Running::start();
    let (a, b, c) = (server.connect().await, server.connect().await, server.connect().await);
    let stat = async |column: &str| one(&c, &format!("select {column} from holdfast_stat_transactions")).await;
    a.batch_execute("create table t(id int primary key, v int); insert into t values (1, 0), (2, 0)").await.unwrap();
    assert_eq!(stat("oldest_snapshot").await, "", "nobody holds one");

    a.batch_execute("begin isolation level repeatable read; select v from t").await.unwrap();
    assert_eq!(stat("oldest_snapshot_pid").await, one(&a, "select pg_backend_pid()").await);
    assert_eq!(stat("oldest_snapshot_database").await, "holdfast");
    assert!(stat("oldest_snapshot_client").await.starts_with("127.0.0.1:"));
    let (number, age_ms) = (stat("oldest_snapshot").await, stat("oldest_snapshot_age_ms").await);
    assert!(number.parse::<u64>().unwrap() > 0 && age_ms.parse::<u64>().unwrap() < 60_000, "{number}, {age_ms}");
    b.batch_execute("update t set v = 1 where id = 1").await.unwrap();
    fails(&a, "update t set v = 2 where id = 1", &SqlState::T_R_SERIALIZATION_FAILURE).await;
    a.batch_execute("rollback").await.unwrap();
    assert_eq!(stat("serialization_conflicts").await, "1");
    assert_eq!(stat("oldest_snapshot_pid").await, "");

    a.batch_execute("begin; update t set v = 3 where id = 1").await.unwrap();
    b.batch_execute("set lock_timeout = '20ms'").await.unwrap();
    fails(&b, "update t set v = 4 where id = 1", &SqlState::LOCK_NOT_AVAILABLE).await;
    assert_eq!(stat("lock_timeouts").await, "1");
    b.batch_execute("set lock_timeout = 0; begin; update t set v = 5 where id = 2").await.unwrap();
    let waits = stat("lock_waits").await.parse::<u64>().unwrap();
    let blocked = tokio::spawn(async move { b.batch_execute("update t set v = 6 where id = 1").await });
    until("it waits", async || stat("lock_waits").await.parse::<u64>().unwrap() > waits).await;
    fails(&a, "update t set v = 7 where id = 2", &SqlState::T_R_DEADLOCK_DETECTED).await;
    a.batch_execute("rollback").await.unwrap();
    blocked.await.unwrap().unwrap();
    assert_eq!(stat("deadlocks").await, "1");
}
