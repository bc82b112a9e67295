//! Transactions over several databases and at other isolation levels, as a client meets them where they go wrong.

use crate::server::{Running, one, run, state};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;

/// The only writer of a database that pauses for too long is backed out, which is when another one may write.
async fn until_backed_out(server: &Running, databases: &[&str]) {
    for database in databases {
        run(&server.connect_to(database).await, "insert into free values(1)").await;
    }
}

#[tokio::test]
async fn what_was_backed_out_is_not_taken_up_again_at_a_savepoint() {
    let server = Running::start();
    let (one_database, two) = (server.connect().await, server.connect().await);
    run(&one_database, "create table a(id int); create table free(id int)").await;
    run(&two, "create table b(id int); use postgres; create table b(id int); create table free(id int); use holdfast")
        .await;
    run(&one_database, "begin isolation level serializable; insert into a values(1); savepoint s").await;
    until_backed_out(&server, &["holdfast"]).await;
    assert!(state(&one_database, "rollback to s").await.is_some());
    assert_eq!(state(&one_database, "rollback to s").await, Some(SqlState::IN_FAILED_SQL_TRANSACTION));
    assert_eq!(state(&one_database, "insert into a values(2)").await, Some(SqlState::IN_FAILED_SQL_TRANSACTION));
    run(&one_database, "commit").await;
    assert_eq!(one(&one_database, "select count(*) from a").await, "0");

    run(&two, "begin isolation level serializable; insert into b values(1); savepoint s").await;
    run(&two, "use postgres; insert into b values(1)").await;
    until_backed_out(&server, &["postgres", "holdfast"]).await;
    assert!(state(&two, "rollback to s").await.is_some());
    assert!(state(&two, "rollback to s").await.is_some());
    run(&two, "commit").await;
    assert_eq!(one(&two, "use postgres; select count(*) from b").await, "0");
    assert_eq!(one(&two, "use holdfast; select count(*) from b").await, "0");
}

#[tokio::test]
async fn repeatable_read_keeps_its_snapshot_through_a_savepoint() {
    let server = Running::start();
    let (a, other) = (server.connect().await, server.connect().await);
    run(&a, "create table t(v int); insert into t values(1)").await;
    run(&a, "begin isolation level repeatable read").await;
    assert_eq!(one(&a, "select v from t").await, "1");
    run(&a, "savepoint s").await;
    assert!(state(&a, "select 1/0").await.is_some());
    run(&other, "update t set v = 2").await;
    run(&a, "rollback to s").await;
    assert_eq!(one(&a, "select v from t").await, "1");
    run(&a, "commit").await;
    assert_eq!(one(&a, "select v from t").await, "2");
}

/// At least one doctor stays on call, whoever asks first and in however few messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_has_the_isolation_it_asks_for() {
    let server = Running::start();
    let setup = server.connect().await;
    run(&setup, "create table doc(id int primary key, oncall int)").await;
    let leave = |id: i32| {
        format!("update doc set oncall = 0 where id = {id} and (select count(*) from doc where oncall = 1) >= 2")
    };
    let ways = [
        ("default_transaction_isolation=serializable", "", ""),
        ("default_transaction_read_only=off", "begin isolation level serializable;", "; commit"),
    ];
    for (default, before, after) in ways {
        let options = format!("user=holdfast dbname=holdfast options='-c {default}'");
        let clients = [server.connect_with(&options).await, server.connect_with(&options).await];
        for _ in 0..15 {
            run(&setup, "delete from doc; insert into doc values(1, 1), (2, 1)").await;
            let (first, second) = (format!("{before}{}{after}", leave(1)), format!("{before}{}{after}", leave(2)));
            drop(tokio::join!(clients[0].batch_execute(&first), clients[1].batch_execute(&second)));
            assert_ne!(one(&setup, "select sum(oncall) from doc").await, "0", "{default} {before}");
            drop(clients[0].batch_execute("rollback").await);
            drop(clients[1].batch_execute("rollback").await);
        }
    }
}

/// Each client's, however slow the machine is.
const TURNS_MIN: usize = 5;

/// A row of one database guards a counter in another: no count may be lost, however the guard is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_in_one_database_guards_what_is_in_another() {
    let server = Running::start();
    let setup = server.connect().await;
    run(&setup, "create table guard(id int primary key, v int); insert into guard values(1, 0)").await;
    run(&setup, "use postgres; create table counter(id int primary key, v int); insert into counter values(1, 0)")
        .await;
    for guard in ["select * from guard where id = 1 for update", "update guard set v = v + 1 where id = 1"] {
        run(&setup, "update counter set v = 0").await;
        let (done, until) = (Arc::new(AtomicI64::new(0)), Instant::now() + Duration::from_millis(1500));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (client, done) = (server.connect().await, done.clone());
            clients.spawn(async move {
                for turn in 0.. {
                    if turn >= TURNS_MIN && Instant::now() >= until {
                        break;
                    }
                    run(&client, "begin").await;
                    run(&client, guard).await;
                    run(&client, "use postgres").await;
                    let v: i64 = one(&client, "select v from counter where id = 1").await.parse().unwrap();
                    run(&client, &format!("update counter set v = {} where id = 1", v + 1)).await;
                    run(&client, "commit").await;
                    run(&client, "use holdfast").await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        assert_eq!(one(&setup, "select v from counter").await, done.load(Ordering::Relaxed).to_string(), "{guard}");
    }
}

#[tokio::test]
async fn what_might_fail_later_is_not_prepared() {
    let server = Running::start();
    let a = server.connect().await;
    run(&a, "create table p(id int primary key, x int, y int); create unique index pi on p(x) where y = 1").await;
    run(&a, "begin; insert into p values(1, 7, 1)").await;
    assert_eq!(state(&a, "prepare transaction 'g'").await, Some(SqlState::FEATURE_NOT_SUPPORTED));
    run(&a, "insert into p values(2, 7, 1)").await;
    // A block that began elsewhere and failed to be prepared leads back there.
    run(&a, "begin; insert into p values(3, 8, 0); use postgres; create table q(x int)").await;
    assert_eq!(state(&a, "prepare transaction 'g'").await, Some(SqlState::FEATURE_NOT_SUPPORTED));
    assert_eq!(one(&a, "show database").await, "holdfast");
    assert_eq!(one(&a, "select count(*) from p").await, "1");
    // Nor what foreign keys may do to rows with such a key.
    run(&a, "create table q(id int primary key, z int)").await;
    run(&a, "create table c(id int primary key, q int references q on delete set null, x int)").await;
    run(&a, "create unique index ci on c(x) where q is null; insert into q values(1, 1), (2, 2)").await;
    run(&a, "begin; insert into q values(3, 3)").await;
    run(&a, "prepare transaction 'g'").await;
    run(&a, "commit prepared 'g'").await;
    run(&a, "begin; delete from q where id = 3").await;
    assert_eq!(state(&a, "prepare transaction 'g'").await, Some(SqlState::FEATURE_NOT_SUPPORTED));
}

/// Reading needs no lock at any level, be it one statement, several in a message, or a pipeline.
#[tokio::test]
async fn who_only_reads_waits_for_nobody_at_serializable() {
    let server = Running::start();
    let (writer, reader) = (server.connect().await, server.connect().await);
    run(&writer, "create table t(id int primary key, v int); insert into t values (1, 1)").await;
    run(&reader, "set default_transaction_isolation = 'serializable'; set lock_timeout = '2s'").await;
    run(&writer, "begin; update t set v = 2 where id = 1").await;
    assert_eq!(one(&reader, "select v from t").await, "1");
    assert_eq!(one(&reader, "select 1; select v from t where id = 1").await, "1");
    assert_eq!(one(&reader, "begin; select v from t where id = 1; commit").await, "1");
    assert_eq!(reader.query_one("select v from t", &[]).await.unwrap().get::<_, i32>(0), 1);
    let waits = state(&reader, "update t set v = 3 where id = 1").await;
    assert_eq!(waits, Some(SqlState::LOCK_NOT_AVAILABLE), "who writes at that level is alone");
    run(&writer, "commit").await;
    assert_eq!(one(&reader, "select v from t").await, "2");
}
