//! The master is lost, stopped, or hangs: its standby takes its place, and no acknowledged commit is missing.

use super::trio::{LOCAL, Trio, beside, until_said};
use crate::node::{asked, assert_same, insert_until_it_is_gone, one, rows, run, succeeds, until};
use tokio_postgres::error::SqlState;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_at_hot_survives_its_master() {
    let mut trio = Trio::start("level = \"hot\"").await;
    asked(&trio.a, "create table if not exists t(id int primary key)").await;
    let mut writers = Vec::new();
    for number in 0..4_i64 {
        writers.push(tokio::spawn(insert_until_it_is_gone(trio.a.port, 100_000 * number)));
    }
    until("there is load", async || asked(&trio.a, "select count(*) > 100 from t").await == "t").await;
    trio.a.kill();
    assert!(trio.promote_b().contains("promoted: epoch "));
    trio.until_agreed("b", "{b}").await;
    let client = trio.b.connect_with(LOCAL).await;
    for (number, writer) in (0_i64..).zip(writers) {
        let acknowledged: i64 = writer.await.unwrap();
        let first = 100_000 * number;
        let there = format!("select count(*) from t where id >= {first} and id < {first} + {acknowledged}");
        assert_eq!(one(&client, &there).await, acknowledged.to_string(), "writer {number}");
    }
    // The old master is the new one's standby, and commits wait for it again.
    trio.rejoin_a().await;
    run(&trio.b.connect().await, "insert into t values (-1)").await;
    assert_same(&trio.b, &trio.a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_stopped_and_goes_on_answers_nothing() {
    let mut trio = Trio::start("").await;
    let (writer, reader) = (trio.a.connect_with(LOCAL).await, trio.a.connect_with(LOCAL).await);
    run(&writer, "create table t(x int); insert into t values (1)").await;
    assert_eq!(one(&reader, "select count(*) from t").await, "1");

    trio.a.hang();
    let write = beside(writer, "insert into t values (2)");
    let read = beside(reader, "select count(*) from t");
    trio.promote_b();
    run(&trio.b.connect_with(LOCAL).await, "insert into t values (3)").await;
    trio.a.resume();
    let answer = read.await.unwrap().unwrap_err();
    assert_eq!(answer.code(), Some(&SqlState::CANNOT_CONNECT_NOW), "{answer:?}");
    until_said(|| trio.a.log(), "a was deposed in epoch").await;
    let command = format!("holdfast rejoin --from {} --data {} --name a", trio.b.at(), trio.a.data());
    assert!(trio.a.log().contains(&command), "{}", trio.a.log());
    let status: serde_json::Value = serde_json::from_str(&trio.a.status()).unwrap();
    assert_eq!((&status["role"], &status["deposed"]), (&"deposed".into(), &true.into()), "{status}");
    assert!(succeeds(&["standby", "status", "--at", &trio.a.at()]).contains("a is a deposed master"));
    // Its client is not left waiting, and is not told that it was committed; the server stops in order.
    assert!(write.await.unwrap().is_err());
    assert!(trio.a.stop().success());

    let said = trio.rejoin_a().await;
    let never_written = said.contains("has everything that this server had");
    assert!(never_written || said.contains("1 transactions"), "what only the old master had: {said}");
    assert_same(&trio.b, &trio.a).await;
    assert_eq!(rows(&trio.a.connect().await, "select x from t").await, ["Some(\"1\")", "Some(\"3\")"]);
}

/// It was promoted each time, and acknowledged nothing: its standby lacks nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_cannot_start_again_takes_nothing_from_its_standby() {
    let mut trio = Trio::start("level = \"hot\"").await;
    run(&trio.a.connect().await, "create table t(x int); insert into t values (1)").await;
    trio.a.kill();
    let (volumes, away) = (trio.a.dir.join("volumes"), trio.a.dir.join("away"));
    std::fs::rename(&volumes, &away).unwrap();
    // Each start is promoted first. On a busy machine the witness may learn of it only together with what came later, and
    // logs the last; then it takes another start.
    trio.a.refuses_to_start();
    until("it was promoted", async || {
        trio.a.refuses_to_start();
        trio.w.log().matches("master=a mastership=Serving { renewals: 0 }").count() >= 3
    })
    .await;
    trio.promote_b();
    assert_eq!(one(&trio.b.connect_with(LOCAL).await, "select count(*) from t").await, "1");
}

/// Nobody has to wait for the lease of a master that said that it stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stops_gives_its_lease_up() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int); insert into t values (1)").await;
    assert!(trio.a.stop().success());
    until("the lease is given up", async || trio.agreed().contains("mastership=Free")).await;
    trio.promote_b();
    trio.until_agreed("b", "{b}").await;
    assert!(!trio.w.log().contains("mastership=Deposed"), "nothing was waited out");
    // A clean stop waits until the standby has everything, at any level.
    assert_eq!(one(&trio.b.connect_with(LOCAL).await, "select count(*) from t").await, "1");
    assert!(trio.rejoin_a().await.contains("has everything that this server had"));
}
