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

/// `calls`, `rows` and texts of what a client of another application name runs.
#[tokio::test]
async fn statements_are_counted_by_their_text_without_constants() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create extension if not exists pg_stat_statements").await;
    run(&client, "create table t(id int primary key, v text)").await;
    run(&client, "select pg_stat_statements_reset()").await;
    for id in 1..=3 {
        run(&client, &format!("insert into t values ({id}, 'a'), ({}, null)", id + 10)).await;
    }
    run(&client, "INSERT  INTO t /* other blanks */ VALUES (-4, 'b'), (-14, 'c')").await;
    run(&client, "select v from t where id < 3; select v from t where id < 2").await;
    run(&client, "begin; update t set v = 'x' where id = 1; commit").await;
    for sql in ["begin", "update t set v = 'y' where id = 2", "select 1/0", "rollback"] {
        let _ = client.batch_execute(sql).await;
    }
    for id in [1, 2] {
        client.query("select v from t where id = $1 and v <> 'z'", &[&id]).await.unwrap();
    }
    let of = async |text: &str| {
        let sql = "select calls || ' ' || rows from pg_stat_statements where query = ";
        one(&client, &format!("{sql}'{text}'")).await
    };
    assert_eq!(of("insert into t values ($1, $2), ($3, $4)").await, "4 8");
    assert_eq!(of("select v from t where id < $1").await, "2 7");
    assert_eq!(of("update t set v = $1 where id = $2").await, "2 2");
    assert_eq!(of("select v from t where id = $1 and v <> $2").await, "2 2");
    assert_eq!(of("begin").await, "2 0");
    assert_eq!(of("select $1/$2").await, "", "what fails is not counted");
    let sane = "select count(*) from pg_stat_statements where total_exec_time < 0 or min_exec_time > max_exec_time
                or mean_exec_time > max_exec_time or queryid is null or dbid = 0 or userid <> 10";
    assert_eq!(one(&client, sane).await, "0");
    run(&client, "set idle_session_timeout = 0").await;
    let secret = "select count(*) from pg_stat_statements where query like '%hush%'";
    let _ = client.batch_execute("alter role holdfast password 'hush'").await;
    assert_eq!(one(&client, secret).await, "0");
    assert_eq!(one(&client, "select dealloc from pg_stat_statements_info").await, "0");
    run(&client, "select pg_stat_statements_reset()").await;
    assert_eq!(of("insert into t values ($1, $2), ($3, $4)").await, "");
}

#[tokio::test]
async fn transactions_and_rows_are_counted_by_database() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t(id int)").await;
    let counters =
        "select xact_commit || ' ' || xact_rollback || ' ' || tup_inserted || ' ' || tup_updated || ' ' || tup_deleted
                    from pg_stat_database where datname = 'holdfast'";
    let numbers =
        async || -> Vec<u64> { one(&client, counters).await.split(' ').map(|n| n.parse().unwrap()).collect() };
    let before = numbers().await;
    run(&client, "insert into t values (1), (2), (3)").await;
    run(&client, "begin; update t set id = 9 where id < 3; delete from t where id = 3").await;
    run(&client, "commit").await;
    run(&client, "begin; insert into t values (4)").await;
    run(&client, "rollback").await;
    for fails in ["select 1/0", "select v from nowhere", "selects"] {
        client.batch_execute(fails).await.unwrap_err();
    }
    let after = numbers().await;
    let more: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
    // The look before is a commit, too; rows of what was rolled back count, as in PostgreSQL.
    assert_eq!(more, [3, 4, 4, 2, 1]);
    let shape =
        "select numbackends = 1 and sessions >= 1 and session_time > 0 and active_time > 0 and stats_reset is not null
                 from pg_stat_database where datname = 'holdfast'";
    assert_eq!(one(&client, shape).await, "t");
}

#[tokio::test]
async fn sessions_and_slow_statements_are_logged_without_passwords() {
    let dir = TempDir::new().unwrap();
    let settings = "log_connections = true\nlog_disconnections = true\nlog_min_duration_statement = \"0\"\n\
                    log_min_error_statement = \"error\"\nlog_statement = \"ddl\"\n";
    std::fs::write(dir.path().join("holdfast.toml"), settings).unwrap();
    let server = Running::start_in(dir);
    let client = server.connect_with("user=holdfast dbname=holdfast application_name=till").await;
    run(&client, "create table t(id int)").await;
    let _ = client.batch_execute("select 1/0").await;
    let _ = client.batch_execute("alter role holdfast password 'hush'").await;
    drop(client);
    until("it is logged", async || server.log().contains("disconnection: user=holdfast")).await;
    let log = server.log();
    for part in [
        "connection authorized: user=holdfast database=holdfast",
        "duration: ",
        "create table t(id int)",
        "division by zero",
        "22012",
        "application_name=\"till\"",
        "remote_host=\"127.0.0.1\"",
        "password <hidden>",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("hush"), "{log}");
}

/// Sizes are those of the b-trees in the file, with overflow pages: all of them, free pages and the schema make the file.
#[tokio::test]
async fn sizes_are_true_to_the_page() {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table small(id int primary key, v text); create table large(id int primary key, v text)")
        .await;
    run(&client, "create index large_v on large(v)").await;
    run(&client, "insert into small values (1, 'x')").await;
    let number = async |sql: &str| one(&client, sql).await.parse::<u64>().unwrap();
    assert_eq!(number("select pg_relation_size('small')").await, 4096);
    // 100 rows of 100,000 bytes: 25 overflow pages each, in the table and in the index.
    run(&client, "insert into large select i, repeat(chr(65 + i % 20), 100000) || i from generate_series(1, 100) g(i)")
        .await;
    let (table, indexes) =
        (number("select pg_table_size('large')").await, number("select pg_indexes_size('large')").await);
    assert!((100 * 100_000..100 * 100_000 * 11 / 10).contains(&table), "{table}");
    assert!((100 * 100_000..100 * 100_000 * 11 / 10).contains(&indexes), "{indexes}");
    assert_eq!(number("select pg_total_relation_size('large')").await, table + indexes);
    assert_eq!(
        number("select pg_relation_size('large_v')").await,
        indexes - number("select pg_relation_size('large_pkey')").await
    );
    let database = number("select pg_database_size(current_database())").await;
    assert_eq!(
        number("select pg_database_size(oid) from pg_database where datname = current_database()").await,
        database
    );
    let all =
        number("select sum(pg_total_relation_size(oid)) from pg_class where relkind = 'r' and relnamespace = 2200")
            .await;
    // The schema and the server's own tables take the rest.
    assert!(database > all && database - all < 64 * 4096, "{database} {all}");
    assert_eq!(state(&client, "select pg_database_size('none')").await, Some(SqlState::INVALID_CATALOG_NAME));
    let before = table;
    run(&client, "delete from large where id > 50").await;
    until("the smaller size", async || number("select pg_table_size('large')").await < before * 6 / 10).await;
}
