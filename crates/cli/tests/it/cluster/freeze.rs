//! A frozen cluster: no node takes over by itself, until it is thawed.

use super::bed::{Bed, until_b_serves, until_in_recovery};
use crate::node::{LOCAL, asked, asked_with, until};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_frozen_no_standby_takes_over_and_after_the_thaw_it_does() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    assert!(bed.w.run("freeze", &[]).status.success());
    for node in [&bed.a, &bed.b, &bed.w] {
        until("the node knows", async || node.status()["record"]["frozen"] == true).await;
        assert!(node.status_text().contains("frozen: no node takes over by itself"), "{}", node.status_text());
    }
    let frozen = "the cluster is frozen by command: a is the master, and no node takes its place by itself";
    bed.b.until_explained(&[frozen, "holdfast cluster thaw"]).await;
    // Its server dies: it starts again in place.
    let epoch = bed.w.status()["record"]["epoch"].as_u64().unwrap();
    bed.a.signal_server(Signal::KILL);
    until("a is the master again", async || {
        let record = &bed.w.status()["record"];
        record["epoch"].as_u64() > Some(epoch) && record["serving"] == true && record["master"] == "a"
    })
    .await;
    until_in_recovery(&bed.node_a, false).await;
    bed.until_agreed("a", &["a", "b"]).await;
    // The node dies: without the freeze b would be named after 3 s and the master after 4 s.
    bed.a.kill_both().await;
    let end = Instant::now() + Duration::from_secs(8);
    while Instant::now() < end {
        let record = &bed.w.status()["record"];
        assert_eq!((&record["master"], &record["successor"]), (&"a".into(), &serde_json::Value::Null), "{record}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bed.w.until_explained(&[frozen, "b: may be promoted"]).await;
    assert!(bed.b.run("thaw", &[]).status.success());
    until_b_serves(&bed).await;
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "1");
    let events = bed.b.events();
    let position = |kind: &str| {
        events.iter().position(|event| event.starts_with(kind)).unwrap_or_else(|| panic!("{kind}: {events:?}"))
    };
    assert!(position("frozen: ") < position("thawed: ") && position("thawed: ") < position("master: "), "{events:?}");
}

/// Each fault in turn, and each time a serves again, on its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_frozen_a_master_that_hangs_is_frozen_or_stopped_takes_its_place_again() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    assert!(bed.w.run("freeze", &[]).status.success());
    until("b knows", async || bed.b.status()["record"]["frozen"] == true).await;
    let epoch = || bed.w.status()["record"]["epoch"].as_u64().unwrap();
    // Its server hangs: it is ended, and another one is started in place.
    let before = epoch();
    bed.a.signal_server(Signal::STOP);
    bed.a.until_event("hung: the server, pid").await;
    until("a is the master again", async || epoch() > before && bed.w.status()["record"]["serving"] == true).await;
    bed.until_agreed("a", &["a", "b"]).await;
    // Server and supervisor are frozen for longer than a lease and a takeover.
    let before = epoch();
    bed.a.signal_both(Signal::STOP);
    tokio::time::sleep(Duration::from_secs(6)).await;
    bed.a.signal_both(Signal::CONT);
    until_in_recovery(&bed.node_a, false).await;
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(epoch(), before, "it has renewed its lease");
    // It is stopped in order.
    assert!(bed.a.stop().success());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let released =
        "the cluster is frozen by command: the mastership was given up, and a takes it again when its server runs";
    bed.w.until_explained(&[released, "b: may be promoted"]).await;
    bed.a.start();
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "1");
    let events = bed.b.events();
    assert!(!events.iter().any(|event| event.contains("b is named as the successor")), "{events:?}");
}
