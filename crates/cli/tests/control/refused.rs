//! Who may not be master is refused, with the way out.

use crate::node::{one, run, succeeds};
use crate::trio::{LOCAL, Trio};

/// The operator starts the old master instead of bringing it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_beside_another_master_refuses() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    trio.a.kill();
    trio.promote_b();
    let said = trio.a.refuses_to_start();
    assert!(said.contains("b is the master of epoch") && said.contains("holdfast rejoin"), "{said}");
    run(&trio.b.connect_with(LOCAL).await, "insert into t values (1)").await;
    trio.rejoin_a().await;
}

/// Commits that were acknowledged without the standby may be missing there, so it was taken out of the set first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_commits_did_not_wait_for_is_refused() {
    let lines = "level = \"hot\"\nsynchronous_standby_away = \"go_on\"\nstandby_timeout_ms = 500";
    let mut trio = Trio::start(lines).await;
    let client = trio.a.connect().await;
    run(&client, "create table t(x int); insert into t values (1)").await;
    trio.b.kill();
    run(&client, "insert into t values (2)").await;
    // It was agreed on before the commit was acknowledged.
    trio.a.kill();
    trio.b.start();
    let said = trio.promote_b_refused();
    assert!(said.contains("b may lack acknowledged commits") && said.contains("--accept-divergence"), "{said}");
    succeeds(&["promote", "--at", &trio.b.at(), "--accept-divergence"]);
    assert_eq!(one(&trio.b.connect_with(LOCAL).await, "select count(*) from t").await, "1", "the loss was accepted");
}

/// One that never had everything was never taken in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_outside_the_sync_set_is_refused() {
    let mut trio = Trio::stopped("");
    // It follows nobody: nothing listens there.
    std::fs::write(trio.b.dir.join("standby.toml"), "from = \"127.0.0.1:1\"\nname = \"b\"\n").unwrap();
    trio.w.start();
    trio.b.start();
    trio.a.start();
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    trio.until_agreed("a", "{a}").await;
    let said = trio.promote_b_refused();
    assert!(said.contains("b may lack acknowledged commits") && said.contains("--accept-divergence"), "{said}");
    run(&trio.a.connect_with(LOCAL).await, "insert into t values (1)").await;
    trio.a.kill();
    trio.promote_b_refused();
}
