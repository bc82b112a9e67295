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
