//! What else happens to nodes: a majority that is gone, a supervisor that is stopped, all nodes stopped, a leader that moves, a clone.

use super::bed::{Bed, Supervised, until_b_serves, until_in_recovery};
use crate::control::rolled_back::copy_of;
use crate::node::{LOCAL, Node, asked, asked_with, insert_until_it_is_gone, until, until_settled};
use rustix::process::Signal;
use tokio::task::JoinHandle;

/// Clients write to a; each returns how many of its rows were acknowledged when a serves no longer.
async fn load(bed: &Bed) -> Vec<JoinHandle<i64>> {
    asked(&bed.node_a, "create table t(id int primary key)").await;
    let writers =
        (0..3).map(|number| tokio::spawn(insert_until_it_is_gone(bed.node_a.port, 100_000 * number))).collect();
    until("there is load", async || asked(&bed.node_a, "select count(*) > 100 from t").await == "t").await;
    writers
}

/// Every acknowledged row is on b.
async fn nothing_is_lost(bed: &Bed, writers: Vec<JoinHandle<i64>>) {
    nothing_is_lost_on(&bed.node_b, writers).await;
}

async fn nothing_is_lost_on(node: &Node, writers: Vec<JoinHandle<i64>>) {
    for (number, writer) in (0_i64..).zip(writers) {
        let acknowledged: i64 = writer.await.unwrap();
        let first = 100_000 * number;
        let there = format!("select count(*) from t where id >= {first} and id < {first} + {acknowledged}");
        assert_eq!(asked_with(node, LOCAL, &there).await, acknowledged.to_string(), "writer {number}");
    }
}

fn named(node: &Supervised) -> bool {
    node.events().iter().any(|event| event.contains("b is named as the successor of a"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_no_node_takes_over_and_with_it_one_does() {
    let mut bed = Bed::start().await;
    let writers = load(&bed).await;
    bed.w.kill();
    bed.a.kill_both().await;
    bed.b.until_explained(&["majority"]).await;
    assert_eq!(asked(&bed.node_b, "select pg_is_in_recovery()").await, "t");
    assert!(!named(&bed.b));
    bed.w.start();
    until_b_serves(&bed).await;
    nothing_is_lost(&bed, writers).await;
}

/// The lease runs out, as its supervisor extends it no longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_node_whose_supervisor_is_stopped_takes_over() {
    let bed = Bed::start().await;
    let writers = load(&bed).await;
    bed.a.signal(Signal::STOP);
    until_b_serves(&bed).await;
    // Its server lives, and refuses clients for as long as it can be the master again.
    bed.a.signal(Signal::CONT);
    nothing_is_lost(&bed, writers).await;
    bed.until_agreed("b", &["a", "b"]).await;
    until_in_recovery(&bed.node_a, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_stopped_at_once_and_one_is_the_master_afterwards() {
    let mut bed = Bed::start().await;
    asked(&bed.node_a, "create table t(id int primary key); insert into t values (1)").await;
    let epoch = bed.w.status()["record"]["epoch"].as_u64();
    [&bed.a, &bed.b, &bed.w].iter().for_each(|node| node.signal(Signal::TERM));
    for node in [&mut bed.a, &mut bed.b, &mut bed.w] {
        let status = node.ended();
        assert!(status.success(), "{}: {status}\n{}", node.name, node.log());
    }
    [&mut bed.w, &mut bed.b, &mut bed.a].into_iter().for_each(Supervised::start);
    let mut master = String::new();
    until("one is the master, and the other one follows it", async || {
        let record = &bed.w.status()["record"];
        master = record["master"].as_str().unwrap_or_default().to_owned();
        record["epoch"].as_u64() > epoch
            && record["serving"] == true
            && record["sync_set"] == serde_json::json!(["a", "b"])
    })
    .await;
    let (master, standby) = if master == "a" { (&bed.node_a, &bed.node_b) } else { (&bed.node_b, &bed.node_a) };
    until_in_recovery(master, false).await;
    assert_eq!(asked_with(master, LOCAL, "select count(*) from t").await, "1");
    until_in_recovery(standby, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_moves_is_no_silence_of_the_master() {
    let mut bed = Bed::start().await;
    let writers = load(&bed).await;
    let epoch = bed.w.status()["record"]["epoch"].clone();
    for _ in 0..2 {
        bed.until_a_leads().await;
        until("the witness leads", async || bed.w.status()["leader"] == "w").await;
    }
    let count = asked(&bed.node_a, "select count(*) from t").await;
    until("a commits", async || asked(&bed.node_a, &format!("select count(*) > {count} from t")).await == "t").await;
    let record = &bed.w.status()["record"];
    assert_eq!((&record["master"], &record["epoch"]), (&"a".into(), &epoch));
    assert!(!named(&bed.w) && !named(&bed.b) && !named(&bed.a));
    bed.a.kill_both().await;
    until_b_serves(&bed).await;
    nothing_is_lost(&bed, writers).await;
}

/// A virtual machine was copied while it ran, and both run. The group counts the starts of each directory, and remembers how much it
/// had: the original is refused, because its directory was started later elsewhere, and the clone where it has less than the original had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_node_and_its_clone_at_most_one_continues_and_nothing_is_lost() {
    let mut bed = Bed::start().await;
    let writers = load(&bed).await;
    let epoch = bed.w.status()["record"]["epoch"].clone();
    let copy = copy_of(&bed.node_b);
    let mut clone = bed.clone_of_b(&copy);
    clone.start();
    // Which one depends on whether the group has agreed on something since the copy was made.
    let is_refused = |node: &Supervised| node.log().contains("the directory of this node is older than it was");
    until_settled("one of them is refused", async || {
        (!is_refused(&bed.b) && !is_refused(&clone)).then(|| bed.b.log() + &clone.log())
    })
    .await;
    let (refused, other) = if is_refused(&bed.b) { (&mut bed.b, &mut clone) } else { (&mut clone, &mut bed.b) };
    assert!(!refused.ended().success());
    let count = asked(&bed.node_a, "select count(*) from t").await;
    until("a commits", async || asked(&bed.node_a, &format!("select count(*) > {count} from t")).await == "t").await;
    let record = bed.w.status()["record"].clone();
    assert_eq!((&record["master"], &record["epoch"]), (&"a".into(), &epoch), "{record}");
    other.kill_both().await;
    // Its place in the set is still that of the original, or empty.
    bed.a.kill_both().await;
    bed.a.start();
    until_in_recovery(&bed.node_a, false).await;
    nothing_is_lost_on(&bed.node_a, writers).await;
}
