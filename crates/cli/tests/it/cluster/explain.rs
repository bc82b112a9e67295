//! `holdfast cluster explain` says why the master is the master, and why no other node takes its place.

use super::bed::Bed;
use crate::node::{asked, succeeds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_why_a_stopped_standby_does_not_take_over() {
    let mut bed = Bed::start().await;
    // Each node asks the leader.
    for node in [&bed.a, &bed.b, &bed.w] {
        node.until_explained(&["a is the master of epoch", "If a is lost, b takes over", "\n  b: may be promoted"])
            .await;
    }
    succeeds(&["standby", "stop", "--at", &bed.node_b.at()]);
    let stopped = "an operator has stopped it (holdfast standby stop)";
    bed.w.until_explained(&["If a is lost, no node takes over", "\n  b: ", stopped]).await;
    bed.a.kill_both().await;
    for node in [&bed.b, &bed.w] {
        node.until_explained(&[
            "a is silent, and no other node can take its place\n  a: it is the master\n  b: ",
            stopped,
        ])
        .await;
    }
    let record = &bed.w.status()["record"];
    assert_eq!(
        (&record["master"], &record["successor"]),
        (&"a".into(), &serde_json::Value::Null),
        "no node takes over"
    );
    assert_eq!(asked(&bed.node_b, "select pg_is_in_recovery()").await, "t");
    // Two of three are gone.
    bed.w.kill();
    bed.b.until_explained(&["majority"]).await;
}
