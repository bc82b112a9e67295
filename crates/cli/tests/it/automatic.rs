//! Automatic transactions as a client meets them: what it sees, what others see and when, what a crash costs.

use crate::server::{Running, one, run};
use futures::SinkExt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const LONG: &str = "-c auto_transaction_time_max_ms=600000";
const NEVER_IDLE: &str = "-c auto_transaction_idle_ms=600000";

/// A session with automatic transactions and other bounds than the defaults.
async fn automatic(server: &Running, bounds: &str) -> Client {
    let options = format!("user=holdfast dbname=holdfast options='-c auto_transaction=on {bounds}'");
    server.connect_with(&options).await
}

/// One that nothing but COMMIT and the like ends.
async fn unbounded(server: &Running) -> Client {
    automatic(server, &format!("{LONG} {NEVER_IDLE}")).await
}

async fn fails(client: &Client, sql: &str, with: &SqlState) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    assert_eq!(error.code(), Some(with), "{sql}: {error:?}");
}

/// Waits until the query gives that value, at most so long.
async fn becomes(client: &Client, sql: &str, value: &str, within: Duration) {
    let begun = Instant::now();
    loop {
        let now = one(client, sql).await;
        if now == value {
            return;
        }
        assert!(begun.elapsed() < within, "{sql} is {now} and not {value}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn table(server: &Running) -> Client {
    let other = server.connect().await;
    run(&other, "create table t(id int primary key, v int)").await;
    other
}

const COUNT: &str = "select count(*) from t";
/// Longer than anything here takes that ends at all.
const SOON: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_session_sees_its_own_changes_and_others_see_them_after_the_commit() {
    let server = Running::start();
    let other = table(&server).await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (1, 10)").await;
    a.execute("insert into t values ($1, $2)", &[&2, &20]).await.unwrap();
    assert_eq!(one(&a, COUNT).await, "2");
    assert_eq!(a.query_one("select v from t where id = $1", &[&2]).await.unwrap().get::<_, i32>(0), 20);
    assert_eq!(one(&other, COUNT).await, "0");
    run(&a, "commit").await;
    assert_eq!(one(&other, COUNT).await, "2");
    run(&a, "insert into t values (3, 30); update t set v = 31 where id = 3").await;
    assert_eq!(one(&a, "select v from t where id = 3").await, "31");
    assert_eq!(one(&other, COUNT).await, "2", "a message of several statements joins as well");
    run(&a, "set auto_transaction = off").await;
    assert_eq!(one(&other, COUNT).await, "3", "turning it off commits");
}

#[tokio::test]
async fn the_bounds_commit() {
    let server = Running::start();
    let other = table(&server).await;
    let rows = automatic(&server, &format!("-c auto_transaction_rows_max=5 {LONG} {NEVER_IDLE}")).await;
    run(&rows, "insert into t values (1, 1), (2, 2)").await;
    run(&rows, "update t set v = 0 where id <= 2").await;
    assert_eq!(one(&other, COUNT).await, "0", "four rows changed");
    run(&rows, "delete from t where id = 2").await;
    becomes(&other, COUNT, "1", SOON).await;

    let idle = automatic(&server, &format!("-c auto_transaction_idle_ms=30 {LONG}")).await;
    run(&idle, "insert into t values (3, 3)").await;
    becomes(&other, COUNT, "2", SOON).await;

    // Never silent for long enough to be idle.
    let time = automatic(&server, &format!("-c auto_transaction_time_max_ms=200 {NEVER_IDLE}")).await;
    let begun = Instant::now();
    let mut seen = 0;
    for id in 100.. {
        run(&time, &format!("insert into t values ({id}, 0)")).await;
        seen = one(&other, COUNT).await.parse::<i32>().unwrap();
        if seen > 2 || begun.elapsed() > SOON {
            break;
        }
    }
    assert!(seen > 2, "the time bound holds in a busy session");
    run(&time, "insert into t values (50, 0)").await;
    becomes(&other, "select count(*) from t where id = 50", "1", SOON).await;
    let ended = "select count(*) from holdfast_stat_automatic where name like 'ended_by%' and value > 0";
    assert_eq!(one(&other, ended).await, "3", "by rows, by time and by idleness");
}

/// Says hello and sends the queries, and never reads an answer.
async fn deaf_client(server: &Running, bounds: &str, queries: &[&str]) -> tokio::net::TcpStream {
    let options = format!("-c auto_transaction=on {bounds}");
    let mut hello = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", "holdfast", "database", "holdfast", "options", &options, ""] {
        hello.extend(word.as_bytes());
        hello.push(0);
    }
    let mut sent = (hello.len() as u32 + 4).to_be_bytes().to_vec();
    sent.append(&mut hello);
    for query in queries {
        sent.push(b'Q');
        sent.extend((query.len() as u32 + 5).to_be_bytes());
        sent.extend(query.as_bytes());
        sent.push(0);
    }
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &sent).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answers_holds_nothing_beyond_the_bounds() {
    let server = Running::start();
    let other = table(&server).await;
    let large = "select repeat('x', 1000000) from generate_series(1, 30)";
    let bounds = format!("-c auto_transaction_idle_ms=300 {LONG}");
    let _deaf = deaf_client(&server, &bounds, &["insert into t values (1, 1)", large]).await;
    becomes(&other, COUNT, "1", SOON).await;
}

#[tokio::test]
async fn a_statement_that_fails_is_undone_alone() {
    let server = Running::start();
    let other = table(&server).await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (1, 1)").await;
    fails(&a, "insert into t values (2, 2), (1, 1)", &SqlState::UNIQUE_VIOLATION).await;
    assert!(a.execute("insert into t values ($1, 0)", &[&1]).await.is_err());
    fails(&a, "insert into t values (3, 3); insert into t values (1, 1)", &SqlState::UNIQUE_VIOLATION).await;
    fails(&a, "insert into nowhere values (1)", &SqlState::UNDEFINED_TABLE).await;
    assert_eq!(one(&a, COUNT).await, "1");
    run(&a, "insert into t values (4, 4)").await;
    assert_eq!(one(&other, COUNT).await, "0", "the transaction goes on");
    run(&a, "rollback").await;
    assert_eq!(one(&a, COUNT).await, "2", "nothing is backed out");
    run(&a, "commit").await;
    assert_eq!(one(&other, "select sum(id) from t").await, "5");
}

#[tokio::test]
async fn what_cannot_be_a_part_of_it_commits_it_first() {
    let server = Running::start();
    let other = table(&server).await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (1, 1)").await;
    run(&a, "begin").await;
    assert_eq!(one(&other, COUNT).await, "1");
    run(&a, "insert into t values (2, 2)").await;
    run(&a, "rollback").await;
    run(&a, "insert into t values (3, 3)").await;
    run(&a, "begin; insert into t values (4, 4); commit").await;
    assert_eq!(one(&other, COUNT).await, "3");
    run(&a, "insert into t values (5, 5)").await;
    run(&a, "create table u(x int)").await;
    assert_eq!(one(&other, COUNT).await, "4");
    run(&a, "insert into t values (6, 6)").await;
    let mut sink = pin!(a.copy_in("copy t from stdin").await.unwrap());
    sink.send(&b"7\t7\n"[..]).await.unwrap();
    sink.as_mut().finish().await.unwrap();
    assert_eq!(one(&other, COUNT).await, "6");
    run(&a, "insert into t values (8, 8)").await;
    run(&a, "vacuum").await;
    assert_eq!(one(&other, COUNT).await, "7");
    run(&a, "insert into t values (9, 9)").await;
    run(&a, "set x.y = 'z'; select 1").await;
    assert_eq!(one(&other, COUNT).await, "8");
}

#[tokio::test]
async fn a_kill_costs_at_most_the_open_one_and_that_whole() {
    let server = Running::start();
    table(&server).await;
    let (a, b) = (unbounded(&server).await, unbounded(&server).await);
    run(&a, "insert into t values (1, 1)").await;
    run(&a, "insert into t values (2, 2)").await;
    run(&a, "commit").await;
    run(&a, "insert into t values (3, 3)").await;
    run(&a, "update t set v = 0 where id = 1").await;
    run(&b, "insert into t values (4, 4)").await;
    run(&b, "commit").await;
    let server = Running::start_in(server.kill());
    let other = server.connect().await;
    assert_eq!(one(&other, "select sum(id) from t").await, "7");
    assert_eq!(one(&other, "select v from t where id = 1").await, "1", "nothing of the open one");
}

/// Rows of one automatic transaction in the test below.
const ROWS: i32 = 20;

/// Inserts one row after the other until the server is gone, and counts what was answered.
async fn insert_until_killed(client: Client, first: i32, answered: Arc<AtomicI32>) {
    for id in first + 1.. {
        if client.execute("insert into t values ($1, 0)", &[&id]).await.is_err() {
            break;
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_kill_under_load_leaves_whole_transactions_only() {
    let server = Running::start();
    table(&server).await;
    let mut sessions = Vec::new();
    for n in 0..4 {
        let client = automatic(&server, &format!("-c auto_transaction_rows_max={ROWS} {LONG} {NEVER_IDLE}")).await;
        let (first, answered) = (n * 1_000_000, Arc::new(AtomicI32::new(0)));
        sessions.push((first, tokio::spawn(insert_until_killed(client, first, answered.clone())), answered));
    }
    // Several transactions each, and then in the middle of one, most likely.
    let begun = Instant::now();
    while sessions.iter().any(|(_, _, answered)| answered.load(Ordering::Relaxed) < 3 * ROWS + ROWS / 2) {
        assert!(begun.elapsed() < SOON, "the sessions do not get on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let server = Running::start_in(server.kill());
    let other = server.connect().await;
    for (first, session, answered) in sessions {
        session.await.unwrap();
        let answered = answered.load(Ordering::Relaxed);
        let of_session = format!("from t where id > {first} and id < {first} + 1000000");
        let kept: i32 = one(&other, &format!("select count(*) {of_session}")).await.parse().unwrap();
        let last = one(&other, &format!("select coalesce(max(id), {first}) - {first} {of_session}")).await;
        assert_eq!(last, kept.to_string(), "no gaps");
        assert_eq!(kept % ROWS, 0, "no half transaction");
        assert!(answered > ROWS && answered - kept <= ROWS, "{answered} answered, {kept} kept: more than one is lost");
    }
}

#[tokio::test]
async fn the_end_of_a_session_and_of_the_server_commit() {
    let server = Running::start();
    let other = table(&server).await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (1, 1)").await;
    drop(a);
    becomes(&other, COUNT, "1", SOON).await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (2, 2)").await;
    let (status, dir) = server.stop();
    assert!(status.success());
    let server = Running::start_in(dir);
    assert_eq!(one(&server.connect().await, COUNT).await, "2");
}

#[tokio::test]
async fn one_that_cannot_be_committed_is_told_to_the_next_statement() {
    let server = Running::start();
    let other = table(&server).await;
    run(&other, "create table child(id int primary key, t int references t deferrable initially deferred)").await;
    let a = automatic(&server, &format!("-c auto_transaction_idle_ms=20 {LONG}")).await;
    let failures = "select value from holdfast_stat_automatic where name = 'not_committed'";
    run(&a, "insert into child values (1, 99)").await;
    becomes(&other, failures, "1", SOON).await;
    fails(&a, "select 1 from t", &SqlState::FOREIGN_KEY_VIOLATION).await;
    assert_eq!(one(&a, "select count(*) from child").await, "0", "told once");
    run(&a, "set auto_transaction_idle_ms = 600000").await;
    run(&a, "insert into child values (1, 99)").await;
    fails(&a, "commit", &SqlState::FOREIGN_KEY_VIOLATION).await;
    run(&a, "commit").await;
    assert_eq!(one(&a, "select count(*) from child").await, "0");
}

#[tokio::test]
async fn who_waits_for_an_automatic_transaction_waits_for_its_time_bound() {
    let server = Running::start();
    let other = table(&server).await;
    run(&other, "insert into t values (1, 0), (2, 0), (3, 0)").await;
    let bounds = format!("-c auto_transaction_time_max_ms=300 {NEVER_IDLE}");
    let (a, b) = (automatic(&server, &bounds).await, automatic(&server, &bounds).await);
    run(&a, "update t set v = v + 1 where id = 1").await;
    let waited = tokio::time::timeout(SOON, run(&other, "update t set v = v + 1 where id = 1"));
    waited.await.expect("the bound lets it go on");

    // Each has a row that the other wants next: no program without transactions would expect a deadlock.
    run(&a, "update t set v = v + 1 where id = 1").await;
    run(&b, "update t set v = v + 1 where id = 2").await;
    let (x, y) = ("update t set v = v + 1 where id = 2", "update t set v = v + 1 where id = 1");
    tokio::time::timeout(SOON, async { tokio::join!(run(&a, x), run(&b, y)) }).await.expect("both go on");
    becomes(&other, "select sum(v) from t", "6", SOON).await;

    // It waits itself, for longer than its bound: what it did before does not wait with it.
    let holder = server.connect().await;
    run(&holder, "begin; update t set v = 100 where id = 3").await;
    run(&a, "update t set v = 0 where id = 1").await;
    let waiting = run(&a, "update t set v = v + 1 where id = 3");
    let meanwhile = async {
        becomes(&other, "select v from t where id = 1", "0", SOON).await;
        run(&other, "update t set v = 50 where id = 1").await;
        run(&holder, "commit").await;
    };
    tokio::time::timeout(SOON, async { tokio::join!(waiting, meanwhile) }).await.expect("all go on");
    becomes(&other, "select v from t where id = 3", "101", SOON).await;
}

#[tokio::test]
async fn a_database_can_refuse_changes_outside_transactions() {
    let server = Running::start();
    let before = table(&server).await;
    run(&before, "insert into t values (1, 1)").await;
    run(&before, "alter database holdfast set require_transaction = on").await;
    fails(&before, "insert into t values (2, 2)", &SqlState::NO_ACTIVE_SQL_TRANSACTION).await;
    assert_eq!(one(&before, "show require_transaction").await, "on", "for every session, at once");
    let server = Running::start_in(server.kill());
    let a = server.connect().await;
    let refused = &SqlState::NO_ACTIVE_SQL_TRANSACTION;
    for sql in [
        "insert into t values (2, 2)",
        "insert into t values (2, 2); insert into t values (3, 3)",
        "update t set v = 0",
        "delete from t",
        "truncate t",
        "create table u(x int)",
        "copy t from stdin",
        "prepare p as delete from t; execute p",
    ] {
        fails(&a, sql, refused).await;
    }
    assert_eq!(a.execute("delete from t where id = $1", &[&1]).await.unwrap_err().code(), Some(refused));
    fails(&a, "set require_transaction = off", &SqlState::CANT_CHANGE_RUNTIME_PARAM).await;
    assert_eq!(one(&a, COUNT).await, "1", "reads are free");
    run(&a, "begin; insert into t values (2, 2); commit").await;
    run(&a, "begin").await;
    run(&a, "insert into t values (3, 3)").await;
    run(&a, "commit").await;
    run(&a, "set auto_transaction = on").await;
    run(&a, "insert into t values (4, 4)").await;
    run(&a, "create table u(x int)").await;
    assert_eq!(one(&a, COUNT).await, "4");
    run(&a, "alter database holdfast reset require_transaction").await;
    run(&a, "set auto_transaction = off").await;
    run(&a, "insert into t values (5, 5)").await;
}

#[tokio::test]
async fn going_to_another_database_commits_and_obeys_that_one() {
    let server = Running::start();
    let other = table(&server).await;
    run(&other, "create database strict").await;
    run(&other, "alter database strict set require_transaction = on").await;
    let a = unbounded(&server).await;
    run(&a, "insert into t values (1, 1)").await;
    run(&a, "use strict").await;
    assert_eq!(one(&other, COUNT).await, "1");
    run(&a, "create table u(x int)").await;
    run(&a, "insert into u values (1)").await;
    run(&a, "reset all").await;
    assert_eq!(one(&a, "select current_database()").await, "holdfast");
    run(&a, "set auto_transaction = off").await;
    fails(&a, "use strict; insert into u values (2)", &SqlState::NO_ACTIVE_SQL_TRANSACTION).await;
    assert_eq!(one(&server.connect_to("strict").await, "select count(*) from u").await, "1");
}

#[tokio::test]
async fn databases_and_roles_have_parameters_of_their_own() {
    let server = Running::start();
    let a = server.connect().await;
    assert_eq!(one(&a, "show auto_transaction").await, "off");
    assert_eq!(one(&a, "select setting from pg_settings where name = 'auto_transaction_rows_max'").await, "1000");
    run(&a, "alter database holdfast set auto_transaction to on").await;
    run(&a, "alter database holdfast set auto_transaction_rows_max = 7").await;
    fails(&a, "alter role clerk set auto_transaction_rows_max = 8", &SqlState::UNDEFINED_OBJECT).await;
    run(&a, "create role clerk login password 'counting'").await;
    run(&a, "alter role clerk set auto_transaction_rows_max = 8").await;
    fails(&a, "alter database nowhere set auto_transaction = on", &SqlState::INVALID_CATALOG_NAME).await;
    fails(&a, "alter database holdfast set nothing = on", &SqlState::UNDEFINED_OBJECT).await;
    fails(&a, "alter database holdfast set auto_transaction = 7", &SqlState::INVALID_PARAMETER_VALUE).await;
    fails(&a, "alter role clerk set require_transaction = on", &SqlState::CANT_CHANGE_RUNTIME_PARAM).await;
    assert_eq!(one(&a, "show auto_transaction").await, "off", "for later sessions only");
    let (status, dir) = server.stop();
    assert!(status.success());
    let server = Running::start_in(dir);
    let plain = server.connect().await;
    assert_eq!(one(&plain, "show auto_transaction").await, "on");
    assert_eq!(one(&plain, "show auto_transaction_rows_max").await, "7");
    let clerk = server.connect_with("user=clerk password=counting dbname=holdfast").await;
    assert_eq!(one(&clerk, "show auto_transaction_rows_max").await, "8");
    let options = "user=clerk password=counting dbname=holdfast options='-c auto_transaction_rows_max=9'";
    assert_eq!(one(&server.connect_with(options).await, "show auto_transaction_rows_max").await, "9");
    run(&plain, "alter role clerk reset all").await;
    let clerk = server.connect_with("user=clerk password=counting dbname=holdfast").await;
    assert_eq!(one(&clerk, "show auto_transaction_rows_max").await, "7");
}
