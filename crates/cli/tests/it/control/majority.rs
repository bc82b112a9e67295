//! Without a majority nobody is answered; with it everything goes on.

use super::trio::{LOCAL, Trio, answers_reads, beside, until_reads_are, until_said};
use crate::node::{one, run, succeeds, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_a_majority_answers_nothing_and_goes_on_when_it_is_back() {
    let mut trio = Trio::start("level = \"hot\"").await;
    let (local, hot) = (trio.a.connect_with(LOCAL).await, trio.a.connect().await);
    run(&local, "create table t(x int); insert into t values (1)").await;

    trio.w.kill();
    run(&hot, "insert into t values (2)").await;
    trio.b.kill();
    until_reads_are(&trio.a, false).await;
    let local = beside(local, "insert into t values (3)");
    trio.a.until_commits_wait(1).await;
    let hot = beside(hot, "insert into t values (4)");
    trio.a.until_commits_wait(2).await;
    let said = succeeds(&["standby", "status", "--at", &trio.a.at()]);
    assert!(said.contains("NO LEASE") && said.contains("2 groups of commits"), "{said}");
    assert!(!answers_reads(&trio.a).await);
    assert!(!local.is_finished() && !hot.is_finished(), "nothing is acknowledged at any level");

    // The witness is enough for a majority. It has no data, so what asks for hot waits on.
    trio.w.start();
    local.await.unwrap().unwrap();
    until_reads_are(&trio.a, true).await;
    assert_eq!(one(&trio.a.connect_with(LOCAL).await, "select count(*) from t").await, "3");
    assert!(!hot.is_finished());
    trio.b.start();
    hot.await.unwrap().unwrap();
    assert_eq!(one(&trio.a.connect().await, "select count(*) from t").await, "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_starts_without_a_majority_waits_for_it() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int); insert into t values (1)").await;
    let epoch = trio.a.status_word("epoch");
    trio.w.kill();
    trio.b.kill();
    trio.a.kill();
    trio.a.launch();
    until_said(|| trio.a.log(), "waits for a majority").await;
    trio.w.start();
    trio.a.until_ready();
    assert_ne!(trio.a.status_word("epoch"), epoch, "each start as master has an epoch of its own");
    assert_eq!(one(&trio.a.connect().await, "select count(*) from t").await, "1");
}

/// A vote that was lost with its directory is not counted before its place has been taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_that_lost_its_directory_is_taken_in_again() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int); insert into t values (1)").await;
    trio.w.kill();
    std::fs::remove_dir_all(&trio.w.dir).unwrap();
    trio.w.start();
    // Whoever leads the group says so.
    let logs = || trio.a.log() + &trio.b.log();
    until_said(logs, "voters have been changed voters={a, b}").await;
    until_said(logs, "voters have been changed voters={a, b, w}").await;
    // The master and the new witness are a majority.
    trio.b.kill();
    trio.a.kill();
    trio.a.start();
    assert_eq!(one(&trio.a.connect_with(LOCAL).await, "select count(*) from t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_stops_in_order() {
    let mut trio = Trio::start("").await;
    assert!(trio.w.stop().success());
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
}

#[tokio::test]
async fn the_absence_of_a_member_is_logged_once_and_its_return() {
    let mut trio = Trio::start("").await;
    trio.b.kill();
    // One of the other two leads, and calls it.
    let both = |trio: &Trio| format!("{}{}", trio.a.log(), trio.w.log());
    let said =
        |log: &str, words: &str| log.lines().filter(|line| line.contains(words) && line.contains("member=b")).count();
    until("its absence is logged", async || said(&both(&trio), "does not answer") > 0).await;
    // Raft calls it five times a second.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    for log in [trio.a.log(), trio.w.log()] {
        assert!(said(&log, "does not answer") <= 1, "{log}");
        assert!(!log.contains("openraft::replication"), "{log}");
    }
    trio.b.start();
    until("its return is logged", async || said(&both(&trio), "answers again") > 0).await;
}
