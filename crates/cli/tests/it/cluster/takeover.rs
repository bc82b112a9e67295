//! The server that the record names becomes the master without a command, and a server that starts does not go before it.

use super::bed::{Bed, answer};
use crate::node::{asked, until};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Freezes a, and asks for the promotion of b; returns when the group has named b. It is promoted when a's lease is over.
async fn name_b(bed: &Bed) -> Child {
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.a.signal_both(Signal::STOP);
    let mut promote = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let asking = promote.args(["promote", "--at", &bed.node_b.at()]).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    until("b is named", async || bed.w.status()["record"]["successor"] == "b").await;
    asking.unwrap()
}

/// The record may show b as serving for the server that was killed while its promotion was under way: b itself is asked.
async fn until_it_serves_the_row(bed: &Bed) {
    let as_master = "select count(*) from t where not pg_is_in_recovery()";
    until("b serves a's row as the master", async || answer(&bed.node_b, as_master).await.as_deref() == Some("1"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_server_that_dies_promotes_itself_when_it_is_back() {
    let bed = Bed::start().await;
    let mut asking = name_b(&bed).await;
    bed.b.signal_server(Signal::KILL);
    assert!(!asking.wait().unwrap().success(), "nothing more is asked for");
    until("b is the master", async || {
        let record = &bed.w.status()["record"];
        record["master"] == "b" && record["serving"] == true
    })
    .await;
    until_it_serves_the_row(&bed).await;
    bed.a.signal_both(Signal::CONT);
    until("a learns that it was deposed", async || bed.a.log().contains("a was deposed in epoch")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_master_waits_when_it_starts_while_another_one_is_named() {
    let mut bed = Bed::start().await;
    let mut asking = name_b(&bed).await;
    bed.b.signal_both(Signal::STOP);
    bed.a.kill_both().await;
    bed.a.start();
    let waits = "this server was the last master and waits: b is named as its successor";
    until("a waits", async || bed.a.log().contains(waits)).await;
    assert_eq!(bed.w.status()["record"]["successor"], "b");
    bed.b.signal_both(Signal::CONT);
    asking.wait().unwrap();
    until("b is the master", async || {
        let record = &bed.w.status()["record"];
        record["master"] == "b" && record["serving"] == true
    })
    .await;
    until_it_serves_the_row(&bed).await;
    until("a does not serve", async || bed.a.log().contains("b is the master of epoch")).await;
    let events = bed.a.events();
    assert!(!events.iter().any(|event| event.starts_with("master: ")), "{events:?}");
}

/// As when its runtime directory is full: the group has promoted b, and no server can answer in that epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_whose_lease_page_cannot_be_made_becomes_the_master_when_it_can() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    let page = |epoch: u32| bed.b.runtime.join(format!("lease-{epoch}"));
    let in_the_way: Vec<PathBuf> = (2..500).map(page).filter(|page| !page.exists()).collect();
    in_the_way.iter().for_each(|page| std::fs::create_dir(page).unwrap());
    bed.a.kill_both().await;
    until("b cannot make its page", async || bed.b.log().contains("cannot rename")).await;
    in_the_way.iter().for_each(|page| std::fs::remove_dir(page).unwrap());
    until_it_serves_the_row(&bed).await;
    // The old master returns as ever.
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
}

/// The group has promoted b, and b opens as the master with the second attempt only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_dies_when_it_opens_as_the_master_becomes_the_master_when_it_is_back() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    let epoch = bed.w.status()["record"]["epoch"].as_u64().unwrap();
    bed.b.set_points(&["kill a promoted server opens"]);
    bed.a.kill_both().await;
    until_it_serves_the_row(&bed).await;
    bed.b.until_points_are_reached().await;
    assert!(bed.w.status()["record"]["epoch"].as_u64().unwrap() >= epoch + 2, "it was promoted again");
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
}
