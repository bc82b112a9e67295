//! The master is stopped in order, and something is in the way: its standby lags, or its closing checkpoint takes long.

use super::bed::{Bed, until_b_serves};
use crate::node::{LOCAL, asked, asked_with, run, until, until_followed};
use rustix::process::Signal;

/// All three run, and the master waits for its standby whatever happens to it.
async fn patient() -> Bed {
    let mut bed = Bed::stopped();
    bed.node_a.configure("standby_timeout_ms = 600000");
    bed.start_all().await;
    bed
}

/// It is in the sync set, and has nothing of some 4 MB that were committed at level local.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_lags_catches_up_before_it_takes_over_from_a_master_that_is_stopped() {
    let mut bed = patient().await;
    asked(&bed.node_a, "create table t(id int primary key, v text)").await;
    let client = bed.node_a.connect_with(LOCAL).await;
    // Nothing delays the stop: a link to a standby that is stopped ends after 5 s.
    until("the witness leads", async || bed.a.status()["leader"] == "w").await;
    let mut rows = 0;
    loop {
        let more: Vec<String> = (rows..rows + 256).map(|id| format!("({id}, '{id:0>16000}')")).collect();
        rows += 256;
        let insert = format!("insert into t values {}", more.join(", "));
        bed.b.signal_server(Signal::STOP);
        run(&client, &insert).await;
        if asked_with(&bed.node_a, LOCAL, "select count(*) from pg_stat_replication").await == "1" {
            break;
        }
        // The machine is too slow this time.
        bed.b.signal_server(Signal::CONT);
        until_followed(&bed.node_a, &bed.node_b).await;
        bed.until_agreed("a", &["a", "b"]).await;
    }
    bed.a.signal(Signal::TERM);
    until("a takes no more clients", async || super::bed::answer(&bed.node_a, "select 1").await.is_none()).await;
    bed.b.signal_server(Signal::CONT);
    assert!(bed.a.ended().success(), "{}", bed.a.log());
    until_b_serves(&bed).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, rows.to_string());
}

/// The server does nothing from when it begins to close its databases: its lease was given up before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_stopped_hands_over_before_its_closing_checkpoint() {
    let mut bed = patient().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    bed.a.set_points(&["stop a role closes its databases"]);
    bed.a.signal(Signal::TERM);
    bed.a.until_points_are_reached().await;
    until_b_serves(&bed).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "1");
    let events = bed.a.events();
    assert!(!events.iter().any(|event| event.starts_with("hung: ")), "it was waited for: {events:?}");
    bed.a.signal_server(Signal::CONT);
    assert!(bed.a.ended().success(), "{}", bed.a.log());
    // It returns.
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
}
