//! `holdfast cluster switchover`: another node takes over from a master that serves, and no commit is lost or in doubt.

use super::bed::{Bed, Supervised, until_in_recovery};
use crate::node::{LOCAL, Node, answer_of, asked, asked_with, insert_until_it_is_gone, until};
use std::time::{Duration, Instant};

/// Why a switchover is refused.
fn refused(node: &Supervised, to: &[&str]) -> String {
    let output = node.run("switchover", to);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{to:?}: {said}");
    said
}

/// Clients write to `from` while `to` takes over; each row that was acknowledged is there, and no other.
async fn hands_over(asked_at: &Supervised, from: &Node, to: &Node, first: i64) {
    let mut writers = Vec::new();
    for number in 0..3_i64 {
        writers.push(tokio::spawn(insert_until_it_is_gone(from.port, first + 10_000 * number)));
    }
    let there = format!("select count(*) > 50 from t where id >= {first}");
    until("there is load", async || asked(from, &there).await == "t").await;
    let began = Instant::now();
    let next = tokio::spawn(first_commit(to.port, first - 1));
    let output = asked_at.run("switchover", &["--to", to.name, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let done: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(done["node"], to.name, "{done}");
    let at = next.await.unwrap();
    for (number, writer) in (0_i64..).zip(writers) {
        let acknowledged: i64 = writer.await.unwrap();
        let low = first + 10_000 * number;
        let rows = format!("select count(*) from t where id >= {low} and id < {low} + 10000");
        assert_eq!(asked_with(to, LOCAL, &rows).await, acknowledged.to_string(), "writer {number}: lost, or in doubt");
    }
    println!(
        "switchover to {}: {} ms to the mastership, {} ms to the first commit",
        to.name,
        done["ms"],
        (at - began).as_millis()
    );
}

/// When a commit was acknowledged there for the first time.
async fn first_commit(port: u16, id: i64) -> Instant {
    loop {
        if answer_of(port, &format!("insert into t values ({id}) on conflict do nothing")).await.is_some() {
            return Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switchover_under_load_loses_nothing_and_back_again() {
    let bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key)").await;
    hands_over(&bed.w, &bed.node_a, &bed.node_b, 1_000_000).await;
    // The old master becomes a standby by itself.
    until_in_recovery(&bed.node_a, true).await;
    bed.until_agreed("b", &["a", "b"]).await;
    hands_over(&bed.b, &bed.node_b, &bed.node_a, 2_000_000).await;
    until_in_recovery(&bed.node_b, true).await;
    bed.until_agreed("a", &["a", "b"]).await;
    let events = bed.w.events();
    assert!(
        events.iter().any(|event| event.starts_with("switchover: a switchover from a to b was asked for")),
        "{events:?}"
    );
    let rows = "select count(*) from t";
    until("both have the same rows", async || {
        asked(&bed.node_a, rows).await == asked_with(&bed.node_b, LOCAL, rows).await
    })
    .await;
}

/// Supervisors keep their connections to each other. One to a node that was started again counts as no answer of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_started_again_takes_over_at_the_first_attempt() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key)").await;
    for first in [1_000_000, 3_000_000] {
        for node in [&bed.a, &bed.w] {
            let said = refused(node, &["--to", "x"]);
            assert!(said.contains("x is not a node"), "it has asked all of them: {said}");
        }
        bed.b.kill_both().await;
        asked(&bed.node_a, &format!("insert into t values ({})", first - 2)).await;
        bed.until_agreed("a", &["a"]).await;
        bed.b.start();
        bed.until_agreed("a", &["a", "b"]).await;
        let asked_at = if first == 1_000_000 { &bed.a } else { &bed.w };
        hands_over(asked_at, &bed.node_a, &bed.node_b, first).await;
        until_in_recovery(&bed.node_a, true).await;
        bed.until_agreed("b", &["a", "b"]).await;
        hands_over(asked_at, &bed.node_b, &bed.node_a, first + 1_000_000).await;
        until_in_recovery(&bed.node_b, true).await;
        bed.until_agreed("a", &["a", "b"]).await;
    }
    let events = bed.w.events();
    for back in ["a is named as the successor of a", "b is named as the successor of b"] {
        assert!(!events.iter().any(|event| event.contains(back)), "{events:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switchover_that_would_lose_or_change_nothing_is_refused() {
    let bed = Bed::start().await;
    let said = refused(&bed.a, &["--to", "x"]);
    assert!(said.contains("x is not a node of the cluster; its nodes with data are a, b"), "{said}");
    let said = refused(&bed.a, &["--to", "a"]);
    assert!(said.contains("a is the master already"), "{said}");
    let said = refused(&bed.a, &["--to", "w"]);
    assert!(said.contains("w is the witness: it has no data"), "{said}");
    bed.b.signal_both(rustix::process::Signal::STOP);
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.until_agreed("a", &["a"]).await;
    let said = refused(&bed.w, &[]);
    assert!(said.contains("b cannot take over: it is not in the sync set"), "{said}");
    bed.b.signal_both(rustix::process::Signal::CONT);
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(bed.w.status()["record"]["successor"], serde_json::Value::Null);
    asked(&bed.node_a, "insert into t values (2)").await;
}
