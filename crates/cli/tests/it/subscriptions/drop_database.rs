//! DROP DATABASE of a database that takes part in logical replication: errors and effects are PostgreSQL's.

use super::side::{Side, connected};
use crate::feeds::subscriber::Subscriber;
use crate::server::{one, run, until};
use holdfast_testbed::oracle::Postgres;
use tempfile::TempDir;
use tokio_postgres::Client;

/// SQLSTATE, message and detail of what is refused.
async fn refused(client: &Client, sql: &str) -> String {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap();
    format!("{} {} {}", error.code().code(), error.message(), error.detail().unwrap_or("-"))
}

async fn in_database(side: &Side, database: &str) -> Client {
    connected(&format!("host=127.0.0.1 port={} user=holdfast dbname={database}", side.port())).await.unwrap()
}

async fn drop_databases(side: &Side) {
    let client = side.connect().await;
    run(&client, "create database hq").await;
    run(&client, "create database shop").await;
    let shop = in_database(side, "shop").await;
    let subscribed = "55006 database \"shop\" is being used by logical replication subscription There";
    for (name, detail) in [("s", "is 1 subscription."), ("u", "are 2 subscriptions.")] {
        run(&shop, &format!("create subscription {name} connection 'host=x' publication p with (connect = false)"))
            .await;
        run(&shop, &format!("alter subscription {name} set (slot_name = none)")).await;
        // The session in it is not what it is refused for.
        assert_eq!(refused(&client, "drop database shop").await, format!("{subscribed} {detail}"));
        assert_eq!(refused(&client, "drop database if exists shop").await, format!("{subscribed} {detail}"));
    }
    run(&shop, "drop subscription s; drop subscription u").await;
    drop(shop);
    until("it is dropped", async || client.batch_execute("drop database shop").await.is_ok()).await;

    let hq = in_database(side, "hq").await;
    run(&hq, "create table t(id int primary key); create publication p for table t").await;
    let mut reader = Subscriber::connect_to(side.port(), "hq");
    reader.create_slot("read");
    reader.create_slot("left");
    reader.start("read", 0, "p").unwrap();
    let active = "55006 database \"hq\" is used by an active logical replication slot There is 1 active slot.";
    assert_eq!(refused(&client, "drop database hq").await, active);
    assert_eq!(one(&client, "select active from pg_replication_slots where slot_name = 'read'").await, "t");
    drop((reader, hq));
    until("it is dropped", async || client.batch_execute("drop database hq").await.is_ok()).await;
    assert_eq!(one(&client, "select count(*) from pg_replication_slots").await, "0", "slots go with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_with_subscriptions_or_active_slots_is_not_dropped() {
    let scratch = TempDir::new().unwrap();
    drop_databases(&Side::holdfast(&scratch, "a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_does_not_drop_it_either() {
    let Some(postgres) = Postgres::start_publishing() else { return };
    drop_databases(&Side::Postgres(postgres)).await;
}
