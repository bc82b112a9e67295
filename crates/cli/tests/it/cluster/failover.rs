//! The master is lost and its standby takes over without a command: nothing acknowledged is missing, and the old master serves no
//! longer.

use super::bed::{Bed, until_b_serves, until_in_recovery};
use crate::control::trio::LOCAL;
use crate::node::{asked, asked_with, insert_until_it_is_gone, one, succeeds, until};
use rustix::process::Signal;

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Server,
    Node,
    Frozen,
    /// SIGSTOP of the server alone: its supervisor lives, and could extend its lease indefinitely.
    Hung,
}

/// Clients write, the fault happens, and every acknowledged row is on b.
async fn takes_over(fault: Fault) -> Bed {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key)").await;
    let mut writers = Vec::new();
    for number in 0..3_i64 {
        writers.push(tokio::spawn(insert_until_it_is_gone(bed.node_a.port, 100_000 * number)));
    }
    until("there is load", async || asked(&bed.node_a, "select count(*) > 100 from t").await == "t").await;
    match fault {
        Fault::Server => bed.a.signal_server(Signal::KILL),
        Fault::Node => bed.a.kill_both().await,
        Fault::Frozen => bed.a.signal_both(Signal::STOP),
        Fault::Hung => bed.a.signal_server(Signal::STOP),
    }
    until_b_serves(&bed).await;
    if fault == Fault::Frozen {
        bed.a.signal_both(Signal::CONT);
    }
    let client = bed.node_b.connect_with(LOCAL).await;
    for (number, writer) in (0_i64..).zip(writers) {
        let acknowledged: i64 = writer.await.unwrap();
        let first = 100_000 * number;
        let there = format!("select count(*) from t where id >= {first} and id < {first} + {acknowledged}");
        assert_eq!(one(&client, &there).await, acknowledged.to_string(), "writer {number}");
    }
    // At level hot: no standby is there, and none is waited for.
    asked(&bed.node_b, "insert into t values (-1)").await;
    let named = "successor: b is named as the successor of a in epoch";
    let events = bed.b.events();
    assert!(events.iter().any(|event| event.starts_with(named) && event.ends_with("by the group")), "{events:?}");
    bed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_server_that_is_killed_takes_over() {
    let bed = takes_over(Fault::Server).await;
    // Its supervisor started it again, too late.
    until("a does not serve", async || bed.a.log().contains("b is the master of epoch")).await;
    assert_eq!(bed.w.status()["record"]["master"], "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_node_that_is_killed_takes_over() {
    let mut bed = takes_over(Fault::Node).await;
    // The old master comes back, and then both change their roles once more.
    let old = (bed.node_b.at(), bed.node_a.data().to_owned());
    succeeds(&["rejoin", "--from", &old.0, "--data", &old.1, "--name", "a"]);
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
    bed.b.kill_both().await;
    until("a is the master", async || {
        let record = &bed.w.status()["record"];
        record["master"] == "a" && record["serving"] == true
    })
    .await;
    until_in_recovery(&bed.node_a, false).await;
    assert_eq!(asked_with(&bed.node_a, LOCAL, "select count(*) from t where id = -1").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_node_that_is_frozen_takes_over() {
    let bed = takes_over(Fault::Frozen).await;
    until("a learns that it was deposed", async || bed.a.log().contains("a was deposed in epoch")).await;
    // It serves no longer as the master, and returns by itself.
    until_in_recovery(&bed.node_a, true).await;
    bed.until_agreed("b", &["a", "b"]).await;
    let committed_since = "select count(*) from t where id = -1";
    until("a has what b has committed since", async || asked(&bed.node_a, committed_since).await == "1").await;
}

/// The server gets no SIGCONT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_server_that_is_stopped_takes_over_and_the_server_is_replaced() {
    let bed = takes_over(Fault::Hung).await;
    bed.a.until_event("hung: the server, pid").await;
    bed.a.until_event("server_ended: ").await;
    // The new one returns as the standby.
    bed.until_agreed("b", &["a", "b"]).await;
    until_in_recovery(&bed.node_a, true).await;
    let committed_since = "select count(*) from t where id = -1";
    until("a has what b has committed since", async || asked(&bed.node_a, committed_since).await == "1").await;
}

/// Its disk may lack what was acknowledged without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_outside_the_sync_set_does_not_take_over() {
    let mut bed = Bed::start().await;
    bed.b.signal_both(Signal::STOP);
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.until_agreed("a", &["a"]).await;
    bed.a.kill_both().await;
    bed.b.signal_both(Signal::CONT);
    bed.a.start();
    // It was not replaced, though it was away.
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "1");
    let events = bed.b.events();
    assert!(!events.iter().any(|event| event.contains("b is named as the successor")), "{events:?}");
}

/// The witness leads the control plane soon, whichever node led first: the loss of the master needs no election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_witness_leads_and_still_does_when_the_master_is_lost() {
    let mut bed = Bed::start().await;
    bed.until_a_leads().await;
    let led_by_w = |status: serde_json::Value| status["leader"] == "w";
    until("the witness leads", async || led_by_w(bed.w.status()) && led_by_w(bed.b.status())).await;
    bed.a.kill_both().await;
    let mut leaders = std::collections::BTreeSet::new();
    until("b is the master", async || {
        let status = bed.w.status();
        leaders.insert(status["leader"].to_string());
        status["record"]["master"] == "b" && status["record"]["serving"] == true
    })
    .await;
    assert_eq!(leaders, ["\"w\"".to_owned()].into());
}

/// A planned stop: the standby has everything, and takes over at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_stopped_hands_over() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    assert!(bed.a.stop().success());
    until_b_serves(&bed).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "1");
}

/// The node that is stopped leads the control plane: the witness leads before its server ends, so that b is named without an election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_stopped_while_its_node_leads_hands_the_lead_on_first() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.until_a_leads().await;
    assert!(bed.a.stop().success());
    assert_eq!(bed.w.status()["leader"], "w", "a has taken the lead with it");
    until_b_serves(&bed).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "1");
}

/// It is in the sync set, and its base copy is not complete: it may lack what it once confirmed under its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_with_half_a_base_copy_does_not_take_over() {
    let mut bed = Bed::stopped();
    // It stays in the set while its server is away.
    bed.node_a.configure("standby_timeout_ms = 600000");
    bed.start_all().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.b.signal_server(Signal::STOP);
    bed.a.kill_both().await;
    bed.b.kill_both().await;
    // As when a copy ends early: the files belong to a later place of the trail than the standby has.
    let file = bed.node_b.dir.join("standby.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let kept = text.lines().filter(|line| !line.starts_with("anchor_")).collect::<Vec<_>>().join("\n");
    std::fs::write(&file, format!("{kept}\nanchor_lsn = 99999999\nanchor_checksum = 1\n")).unwrap();
    bed.b.start();
    bed.b
        .until_explained(&["a is silent, and no other node can take its place", "b: its base copy is not complete"])
        .await;
    assert_eq!(bed.w.status()["record"]["sync_set"], serde_json::json!(["a", "b"]));
    let events = bed.b.events();
    assert!(!events.iter().any(|event| event.contains("b is named as the successor")), "{events:?}");
}
