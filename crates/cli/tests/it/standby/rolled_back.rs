//! Without a control plane: directories that are put back from an older copy. Only the other node of the pair can show what
//! they lack.

use crate::control::rolled_back::{copy_of, insert, put_back};
use crate::node::{Pair, asked, asked_with, assert_same, refuses, succeeds, until, until_followed};
use tokio_postgres::error::SqlState;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_put_back_is_stopped_by_the_standby_that_has_more() {
    let mut pair = Pair::start("level = \"hot\"").await;
    asked(&pair.a, "create table if not exists t(id int primary key)").await;
    insert(&pair.a, 0..10).await;
    assert!(pair.a.stop().success());
    let copy = copy_of(&pair.a);
    pair.a.start();
    pair.until_followed().await;
    insert(&pair.a, 10..50).await;
    pair.until_equal().await;
    pair.a.kill();
    put_back(&pair.a, &copy);
    pair.a.start();
    until("the master hears it", async || pair.a.log().contains("has acknowledged commits that this server lacks"))
        .await;
    // Neither reads nor commits are answered, at any level.
    until("it answers nothing", async || {
        let answer = match crate::control::connect(&pair.a).await {
            Ok(client) => client.batch_execute("select count(*) from t").await,
            Err(error) => Err(error),
        };
        answer.is_err_and(|error| error.code() == Some(&SqlState::CANNOT_CONNECT_NOW))
    })
    .await;
    until("the standby says what to do", async || {
        let log = pair.b.log();
        log.contains("promote this standby") && log.contains("Do not rejoin this standby")
    })
    .await;
    assert!(pair.a.stop().success());
    assert!(succeeds(&["promote", "--at", &pair.b.at()]).contains("promoted: epoch "));
    let there = asked_with(&pair.b, crate::node::LOCAL, "select count(*) from t").await;
    assert_eq!(there, "50");
    succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    pair.a.start();
    until_followed(&pair.b, &pair.a).await;
    assert_same(&pair.b, &pair.a).await;
}

/// Each start of a master begins a new epoch, so an old directory that is started often enough has a newer one than its standby.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_put_back_is_recognized_however_often_it_is_started() {
    let mut pair = Pair::start("level = \"hot\"").await;
    asked(&pair.a, "create table if not exists t(id int primary key)").await;
    insert(&pair.a, 0..10).await;
    // While it runs: the copy knows the mastership that runs.
    let copy = copy_of(&pair.a);
    insert(&pair.a, 10..50).await;
    pair.until_equal().await;
    pair.a.kill();
    pair.b.kill();
    put_back(&pair.a, &copy);
    for _ in 0..3 {
        pair.a.start();
        pair.a.kill();
    }
    pair.a.start();
    pair.b.start();
    until("the master hears it", async || pair.a.log().contains("has acknowledged commits that this server lacks"))
        .await;
    until("the standby says what to do", async || {
        let log = pair.b.log();
        log.contains("promote this standby") && log.contains("Do not rejoin this standby")
    })
    .await;
    assert!(pair.a.stop().success());
    succeeds(&["promote", "--at", &pair.b.at(), "--accept-divergence"]);
    assert_eq!(asked_with(&pair.b, crate::node::LOCAL, "select count(*) from t").await, "50");
    // It has met the new master's history when it has rejoined, and may be master again.
    succeeds(&["rejoin", "--from", &pair.b.at(), "--data", pair.a.data(), "--name", "a"]);
    pair.a.start();
    until_followed(&pair.b, &pair.a).await;
    assert_same(&pair.b, &pair.a).await;
    assert!(pair.b.stop().success());
    succeeds(&["promote", "--at", &pair.a.at()]);
    assert_eq!(asked_with(&pair.a, crate::node::LOCAL, "select count(*) from t").await, "50");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_has_not_followed_since_it_started_is_not_promoted_without_a_word() {
    let mut pair = Pair::start("level = \"hot\"").await;
    asked(&pair.a, "create table if not exists t(id int primary key)").await;
    insert(&pair.a, 0..10).await;
    assert!(pair.b.stop().success());
    let copy = copy_of(&pair.b);
    pair.b.start();
    insert(&pair.a, 10..50).await;
    pair.a.kill();
    pair.b.kill();
    put_back(&pair.b, &copy);
    pair.b.start();
    let said = refuses(&["promote", "--at", &pair.b.at()]);
    assert!(said.contains("b has not followed") && said.contains("older copy"), "{said}");
    assert!(said.contains("--accept-divergence"), "{said}");
    // Once it has followed again, it is promoted.
    pair.a.start();
    pair.until_equal().await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    assert_eq!(asked_with(&pair.b, crate::node::LOCAL, "select count(*) from t").await, "50");
}
