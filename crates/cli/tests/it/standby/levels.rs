//! What the answer to a commit waits for.

use crate::node::{Pair, one, rows, run, until};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// Runs a statement beside everything else, on a session of its own.
async fn beside(pair: &Pair, before: &str, sql: &'static str) -> JoinHandle<Client> {
    let client = pair.a.connect().await;
    run(&client, before).await;
    tokio::spawn(async move {
        run(&client, sql).await;
        client
    })
}

async fn count(client: &Client, table: &str) -> String {
    one(client, &format!("select count(*) from {table}")).await
}

#[tokio::test]
async fn a_hot_commit_waits_for_its_standby() {
    let mut pair = Pair::start("").await;
    let (local, reader) = (pair.a.connect().await, pair.a.connect().await);
    run(&local, "create table t(x int)").await;
    run(&local, "set holdfast.level = 'hot'; insert into t values (0); reset holdfast.level").await;
    assert_eq!(one(&local, "show holdfast.level").await, "local");

    pair.b.hang();
    run(&local, "insert into t values (1)").await;
    assert_eq!(count(&reader, "t").await, "2", "one at local waits for nobody");
    let hot = beside(&pair, "set holdfast.level = 'hot'", "insert into t values (2)").await;
    pair.a.until_commits_wait(1).await;
    let behind = beside(&pair, "", "insert into t values (3)").await;
    pair.a.until_commits_wait(2).await;
    assert!(!hot.is_finished() && !behind.is_finished());
    assert_eq!(count(&reader, "t").await, "2", "nobody sees what may still be lost");
    pair.b.resume();
    let hot = hot.await.unwrap();
    behind.await.unwrap();
    assert_eq!(count(&reader, "t").await, "4");
    assert_eq!(pair.a.status_word("commits_waiting"), "0");

    pair.b.kill();
    let again = tokio::spawn(async move {
        run(&hot, "insert into t values (4)").await;
        hot
    });
    pair.a.until_commits_wait(1).await;
    assert_eq!(count(&reader, "t").await, "4");
    assert!(!again.is_finished());
    pair.b.start();
    again.await.unwrap();
    assert_eq!(count(&reader, "t").await, "5");
    pair.until_equal().await;
    assert_eq!(count(&pair.b.connect().await, "t").await, "5");
}

#[tokio::test]
async fn the_level_is_set_per_transaction_database_and_role() {
    let pair = Pair::start("").await;
    let local = pair.a.connect().await;
    run(&local, "create table t(x int)").await;
    run(&local, "create database quick").await;
    run(&pair.a.connect_to("quick").await, "create table t(x int)").await;
    run(&local, "alter database quick set holdfast.level = 'hot'").await;
    assert_eq!(one(&pair.a.connect_to("quick").await, "show holdfast.level").await, "hot");
    let options = "user=holdfast dbname=holdfast options='-c holdfast.level=commit'";
    assert_eq!(one(&pair.a.connect_with(options).await, "show holdfast.level").await, "commit");
    pair.until_equal().await;

    pair.b.hang();
    let in_block = "begin; set local holdfast.level = 'hot'; insert into t values (1); commit";
    let block = beside(&pair, "", in_block).await;
    pair.a.until_commits_wait(1).await;
    assert!(!block.is_finished());
    pair.b.resume();
    let client = block.await.unwrap();
    assert_eq!(one(&client, "show holdfast.level").await, "local", "it was the transaction's");

    pair.b.hang();
    run(&client, "insert into t values (2)").await;
    let quick = pair.a.connect_to("quick").await;
    let hot = tokio::spawn(async move { run(&quick, "insert into t values (1)").await });
    pair.a.until_commits_wait(1).await;
    assert!(!hot.is_finished());
    pair.b.resume();
    hot.await.unwrap();
}

/// With names in the list PostgreSQL's setting means what it means there.
#[tokio::test]
async fn synchronous_commit_counts_where_names_are_listed() {
    let pair = Pair::start("synchronous_standby_names = \"FIRST 1 (b, c)\"").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int)").await;
    pair.b.hang();
    run(&client, "set synchronous_commit = local; insert into t values (1)").await;
    run(&client, "set synchronous_commit = off; insert into t values (2)").await;
    for how in ["on", "remote_write", "remote_apply"] {
        let before = format!("set synchronous_commit = {how}");
        let waits = beside(&pair, &before, "insert into t values (3)").await;
        pair.a.until_commits_wait(1).await;
        assert!(!waits.is_finished(), "{how}");
        pair.b.resume();
        waits.await.unwrap();
        pair.b.hang();
    }
    // The stronger of both.
    let before = "set synchronous_commit = off; set holdfast.level = 'hot'";
    let waits = beside(&pair, before, "insert into t values (4)").await;
    pair.a.until_commits_wait(1).await;
    pair.b.resume();
    waits.await.unwrap();
    assert_eq!(one(&client, "select sync_state || ' ' || sync_priority from pg_stat_replication").await, "sync 1");
}

#[tokio::test]
async fn a_standby_that_is_not_listed_does_not_count() {
    let mut pair = Pair::start("synchronous_standby_names = \"c\"").await;
    let local = pair.a.connect_with("user=holdfast dbname=holdfast options='-c synchronous_commit=local'").await;
    run(&local, "create table t(x int)").await;
    assert_eq!(one(&local, "select sync_state from pg_stat_replication").await, "async");
    let waits = beside(&pair, "", "insert into t values (1)").await;
    pair.a.until_commits_wait(1).await;
    pair.until_followed().await;
    assert!(!waits.is_finished());
    assert_eq!(count(&local, "t").await, "0");
    waits.abort();
    // It is in the trail, and a server that starts shows it: nobody was told that it is not.
    pair.a.kill();
    pair.a.start();
    let local = pair.a.connect_with("user=holdfast dbname=holdfast options='-c synchronous_commit=local'").await;
    assert_eq!(count(&local, "t").await, "1");
}

/// At level commit a reader of the standby needs not wait: what was answered is there.
#[tokio::test]
async fn what_was_answered_at_level_commit_is_shown_by_the_standby() {
    let pair = Pair::start("level = \"commit\"").await;
    let (client, reader) = (pair.a.connect().await, pair.b.connect().await);
    assert_eq!(one(&client, "show holdfast.level").await, "commit");
    run(&client, "create table t(x int)").await;
    for i in 1..=100 {
        run(&client, &format!("insert into t values ({i})")).await;
        assert_eq!(one(&reader, "select max(x) from t").await, i.to_string());
    }
    run(&client, "create table u(x int)").await;
    assert_eq!(rows(&reader, "select * from u").await.len(), 0, "and so is a schema change");
}

#[tokio::test]
async fn commits_go_on_without_their_standby_only_where_that_is_set_and_loudly() {
    let told = tempfile::NamedTempFile::new().unwrap();
    let notify = format!("printf '%s\\\\n' >> {}", told.path().display());
    let lines = "synchronous_standby_away = \"go_on\"\nstandby_timeout_ms = 2000\nlevel = \"hot\"";
    let mut pair = Pair::start(&format!("{lines}\nnotify_command = \"{notify}\"")).await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int); insert into t values (1)").await;
    // A busy machine may part the two for a moment: told once more, so that only the last word counts.
    let (alone, together) = ("commits continue WITHOUT them", "commits wait for their acknowledgements");
    let last_is = |log: &str, text: &str| {
        let other = if text == alone { together } else { alone };
        log.rfind(text).is_some_and(|at| log.rfind(other).is_none_or(|before| before < at))
    };
    pair.b.kill();
    run(&client, "insert into t values (2)").await;
    assert!(last_is(&pair.a.log(), alone), "not before it was told: {}", pair.a.log());
    run(&client, "insert into t values (3)").await;
    pair.b.start();
    until("they wait again", async || last_is(&pair.a.log(), together)).await;
    pair.until_equal().await;
    assert_eq!(count(&pair.b.connect().await, "t").await, "3");
    pair.b.hang();
    let waits = beside(&pair, "", "insert into t values (4)").await;
    until("told again", async || last_is(&pair.a.log(), alone)).await;
    waits.await.unwrap();
    for text in [alone, together] {
        let logged = pair.a.log().matches(text).count();
        let all = async || std::fs::read_to_string(told.path()).unwrap().matches(text).count() == logged;
        until("notify_command was told everything", all).await;
    }
    pair.b.resume();
}
