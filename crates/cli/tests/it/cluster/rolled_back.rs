//! A node whose directory was put back from a copy, under supervisors.

use super::bed::Bed;
use crate::control::rolled_back::{copy_of, insert, known_of_a, put_back};
use crate::node::{LOCAL, asked, asked_with, run, succeeds, until, until_followed};
use rustix::process::Signal;

/// The copy was made while the node ran, and its member led Raft.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_master_that_was_copied_while_it_ran_is_not_started() {
    let mut bed = Bed::start().await;
    bed.until_a_leads().await;
    until_followed(&bed.node_a, &bed.node_b).await;
    bed.until_agreed("a", &["a", "b"]).await;
    asked(&bed.node_a, "create table if not exists t(id int primary key)").await;
    insert(&bed.node_a, 0..10).await;
    let copy = copy_of(&bed.node_a);
    insert(&bed.node_a, 10..50).await;
    let end: u64 = bed.node_a.status_word("durable_lsn").parse().unwrap();
    // Without b only the witness makes a majority: it hears of what a has.
    bed.b.kill();
    bed.b.signal_server(Signal::KILL);
    run(&bed.node_a.connect_with(LOCAL).await, "insert into t values (1000)").await;
    until("the witness knows what a has", async || known_of_a(&bed.node_a) > end).await;
    let epoch = bed.w.status()["record"]["epoch"].clone();
    bed.a.kill();
    bed.a.signal_server(Signal::KILL);
    until("the server is gone", async || bed.a.server().is_none()).await;
    put_back(&bed.node_a, &copy);
    for _ in 0..2 {
        assert_eq!(bed.a.starts_and_ends().code(), Some(1), "{}", bed.a.log());
        assert!(bed.a.log().contains("It was put back from a copy"), "{}", bed.a.log());
    }
    assert_eq!(bed.w.status()["record"]["epoch"], epoch, "it was not promoted");
    bed.b.start();
    bed.b.until_running().await;
    succeeds(&["promote", "--at", &bed.node_b.at()]);
    assert_eq!(asked_with(&bed.node_b, LOCAL, "select count(*) from t").await, "50");
}
