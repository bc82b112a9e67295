//! Changes of the schema that wait for their standby: readers work under the schema before them.

use crate::node::{Pair, one, rows, run, state, until};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// Runs what must not wait, and fails where it waits for longer than any machine needs.
pub async fn answered<T: Send + 'static>(what: &str, work: impl Future<Output = T> + Send + 'static) -> T {
    let work = tokio::spawn(work);
    until(what, async || work.is_finished()).await;
    work.await.unwrap()
}

/// Begins a statement at level hot in a session of its own.
async fn begin_hot(pair: &Pair, sql: &str) -> JoinHandle<Client> {
    let (client, sql) = (pair.a.connect().await, sql.to_owned());
    run(&client, "set holdfast.level = 'hot'").await;
    tokio::spawn(async move {
        run(&client, &sql).await;
        client
    })
}

/// Everything a reader does, before and after it: none of it depends on the change that waits.
async fn reads(reader: Client, prepared: tokio_postgres::Statement) -> Client {
    assert_eq!(one(&reader, "select 1").await, "1");
    assert_eq!(one(&reader, "select count(*) from t").await, "1");
    assert_eq!(rows(&reader, "select * from t").await, ["Some(\"1\"), Some(\"one\")"], "no new column");
    assert_eq!(reader.query_one(&prepared, &[]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(reader.query_one("select count(*) from gone", &[]).await.unwrap().get::<_, i64>(0), 0);
    assert_eq!(state(&reader, "select * from u").await, Some(SqlState::UNDEFINED_TABLE));
    assert_eq!(state(&reader, "insert into u values (1)").await, Some(SqlState::UNDEFINED_TABLE));
    assert_eq!(one(&reader, "select count(*) from pg_class where relname = 'u'").await, "0");
    assert_eq!(one(&reader, "select count(*) from pg_class where relname = 'gone'").await, "1");
    let snapshot = "begin isolation level repeatable read; select count(*) from t; commit";
    run(&reader, snapshot).await;
    run(&reader, "begin; declare c cursor for select * from t; fetch all from c; commit").await;
    run(&reader, "explain select * from t; show holdfast.level; set application_name = 'reader'").await;
    run(&reader, "create temp table mine(x int); insert into mine select x from t").await;
    assert_eq!(one(&reader, "select count(*) from mine, t").await, "1");
    run(&reader, "drop table mine").await;
    reader
}

/// A change of the schema waits for a standby that was killed. Readers, in new sessions and in old ones, are answered under
/// the schema before; writers wait.
async fn stops_no_reader(change: &str) {
    let mut pair = Pair::start("").await;
    let old = pair.a.connect().await;
    run(&old, "create table t(x int, v text); insert into t values (1, 'one')").await;
    run(&old, "create table gone(x int)").await;
    let prepared = old.prepare("select count(*) from t").await.unwrap();
    pair.until_equal().await;

    pair.b.kill();
    let waiting = begin_hot(&pair, change).await;
    pair.a.until_commits_wait(1).await;
    let old = answered("an old session reads", reads(old, prepared)).await;
    let new = pair.a.connect().await;
    let prepares = async move {
        let statement = new.prepare("select count(*) from t").await.unwrap();
        (new, statement)
    };
    let (new, prepared) = answered("a new session prepares", prepares).await;
    let new = answered("a new session reads", reads(new, prepared)).await;
    let writer = tokio::spawn(async move {
        run(&old, "insert into t(x, v) values (2, 'two')").await;
        old
    });
    let new = answered("a new session reads again", async move {
        assert_eq!(one(&new, "select count(*) from t").await, "1");
        new
    })
    .await;
    assert!(!waiting.is_finished() && !writer.is_finished(), "{change}");

    pair.b.start();
    waiting.await.unwrap();
    let old = writer.await.unwrap();
    assert_eq!(one(&new, "select count(*) from t").await, "2");
    for client in [&old, &new] {
        assert_eq!(rows(client, "select * from t where x = 1").await.len(), 1);
        let there = [
            one(client, "select count(*) from pg_class where relname = 'u'").await,
            one(client, "select count(*) from information_schema.columns where column_name = 'late'").await,
            one(client, "select count(*) from pg_class where relname = 'gone'").await,
        ];
        let expected = match change.split(' ').next() {
            Some("create") => ["1", "0", "1"],
            Some("alter") => ["0", "1", "1"],
            _ => ["0", "0", "0"],
        };
        assert_eq!(there, expected, "{change}");
    }
    pair.until_equal().await;
    assert_eq!(one(&pair.b.connect().await, "select count(*) from t").await, "2");
}

#[tokio::test]
async fn create_table_that_waits_for_its_standby_stops_no_reader() {
    stops_no_reader("create table u(x int)").await;
}

#[tokio::test]
async fn alter_table_that_waits_for_its_standby_stops_no_reader() {
    stops_no_reader("alter table t add column late int").await;
}

#[tokio::test]
async fn drop_table_that_waits_for_its_standby_stops_no_reader() {
    stops_no_reader("drop table gone").await;
}
