//! Crashes that follow the load from node to node, as those by a poisonous statement do.

use super::bed::{Bed, until_in_recovery};
use crate::node::{LOCAL, asked, asked_with, until};
use rustix::process::Signal;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_three_takeovers_a_server_that_dies_starts_again_in_place() {
    let bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    let record = || bed.w.status()["record"].clone();
    let mut takeovers = 0;
    loop {
        let before = record();
        if before["master"] == "a" { &bed.a } else { &bed.b }.signal_server(Signal::KILL);
        until("there is a master again", async || {
            let now = record();
            now["epoch"].as_u64() > before["epoch"].as_u64() && now["serving"] == true
        })
        .await;
        let now = record()["master"].as_str().unwrap().to_owned();
        bed.until_agreed(&now, &["a", "b"]).await;
        if before["master"] == now.as_str() {
            break;
        }
        takeovers += 1;
        // Those in the first seconds of the leader's process do not count: they could be old ones.
        assert!(takeovers < 12, "each crash is followed by a takeover");
    }
    assert!(takeovers >= 3, "{takeovers}");
    let (master, node, other) =
        if record()["master"] == "a" { (&bed.a, &bed.node_a, &bed.b) } else { (&bed.b, &bed.node_b, &bed.a) };
    until_in_recovery(node, false).await;
    assert_eq!(asked_with(node, LOCAL, "select count(*) from t").await, "1");
    master.until_event("crashes: 3 takeovers from servers that had ended in 10 minutes").await;
    assert!(!other.events().iter().any(|event| event.starts_with("crashes: ")), "{:?}", other.events());
    // A freeze clears the count.
    assert!(bed.w.run("freeze", &[]).status.success() && bed.w.run("thaw", &[]).status.success());
    master.signal_server(Signal::KILL);
    bed.until_agreed(other.name, &["a", "b"]).await;
}
