//! A standby whose node is lost holds commits up for the time of a lease, and no longer: `standby_timeout_ms` is not waited for.

use super::bed::Bed;
use crate::node::asked;
use rustix::process::Signal;
use std::time::Duration;

/// Much less than `standby_timeout_ms` here, and more than a lease on any machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// All three run; a waits for ten minutes, where nothing else makes it continue.
async fn patient() -> Bed {
    let mut bed = Bed::stopped();
    bed.node_a.configure("standby_timeout_ms = 600000");
    bed.start_all().await;
    bed
}

async fn commits(bed: &Bed, sql: &str) {
    tokio::time::timeout(PATIENCE, asked(&bed.node_a, sql)).await.expect("it waits for a standby that is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_continue_without_a_standby_whose_node_is_frozen_or_killed() {
    let mut bed = patient().await;
    commits(&bed, "create table t(id int primary key)").await;
    // Its link stays open.
    bed.b.signal_both(Signal::STOP);
    commits(&bed, "insert into t values (1)").await;
    bed.a.until_event("node_lost: b counts as lost: no pulse came for").await;
    bed.until_agreed("a", &["a"]).await;
    bed.b.signal_both(Signal::CONT);
    bed.until_agreed("a", &["a", "b"]).await;
    bed.a.until_event("node_back: b").await;
    bed.b.kill_both().await;
    commits(&bed, "insert into t values (2)").await;
    bed.until_agreed("a", &["a"]).await;
    bed.b.start();
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(asked(&bed.node_a, "select count(*) from t").await, "2");
}
