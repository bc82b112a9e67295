//! A master that has taken over does not wait for the one that it replaced. The time after which a standby counts as away is an
//! hour here, so a commit that waits for it is not answered in any test.

use super::quorum::{Three, until_quorum};
use super::trio::Trio;
use crate::node::{Node, holdfast, run, succeeds, until};
use tokio::task::JoinHandle;

const GOES_ON: &str = "synchronous_standby_away = \"go_on\"\nstandby_timeout_ms = 3600000";
const ALONE: &str = "commits continue WITHOUT them";

/// A commit at the node's own level.
async fn commit(node: &Node) -> JoinHandle<()> {
    let client = node.connect().await;
    tokio::spawn(async move { run(&client, "create table t(x int); insert into t values (1)").await })
}

async fn until_answered(commit: JoinHandle<()>) {
    until("the commit is answered", async || commit.is_finished()).await;
    commit.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_takeover_no_commit_waits_for_the_master_that_is_gone() {
    let mut trio = Trio::start(&format!("level = \"hot\"\n{GOES_ON}")).await;
    trio.a.kill();
    trio.promote_b();
    until_answered(commit(&trio.b).await).await;
    assert!(trio.b.log().contains(ALONE), "{}", trio.b.log());
    trio.until_agreed("b", "{b}").await;
    // From when a standby has been there, one that goes away is waited for.
    trio.rejoin_a().await;
    let row = trio.b.connect().await;
    trio.a.kill();
    let waits = tokio::spawn(async move { run(&row, "insert into t values (2)").await });
    trio.b.until_commits_wait(1).await;
    trio.a.start();
    until_answered(waits).await;
    assert_eq!(trio.b.log().matches(ALONE).count(), 1, "{}", trio.b.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_restarts_waits_for_its_standby() {
    let mut trio = Trio::start(&format!("level = \"hot\"\n{GOES_ON}")).await;
    trio.b.kill();
    trio.a.kill();
    trio.a.start();
    let waits = commit(&trio.a).await;
    trio.a.until_commits_wait(1).await;
    trio.b.start();
    until_answered(waits).await;
    assert!(!trio.a.log().contains(ALONE), "{}", trio.a.log());
}

/// The third server follows within a second; nothing is acknowledged without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_takeover_a_third_server_that_answers_is_waited_for() {
    let mut three = Three::start().await;
    for node in [&mut three.b, &mut three.c] {
        node.configure(GOES_ON);
        assert!(node.stop().success());
        node.start();
    }
    until_quorum(&three.a).await;
    three.a.kill();
    let promoted = holdfast(&["promote", "--at", &three.b.at()]).status.success();
    let master = if promoted { &three.b } else { &three.c };
    if !promoted {
        // It has a boxcar more.
        succeeds(&["promote", "--at", &master.at()]);
    }
    until_answered(commit(master).await).await;
    assert!(!master.log().contains(ALONE), "{}", master.log());
}
