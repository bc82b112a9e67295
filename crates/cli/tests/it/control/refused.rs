//! Who may not be master is refused, with the way out.

use super::trio::{LOCAL, Trio};
use crate::node::{Node, one, refuses, run, succeeds, until, until_equal, until_followed};

/// The operator starts the old master instead of bringing it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_beside_another_master_refuses() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    until_equal(&trio.a, &trio.b).await;
    trio.a.kill();
    trio.promote_b();
    let said = trio.a.refuses_to_start();
    assert!(said.contains("b is the master of epoch") && said.contains("holdfast rejoin"), "{said}");
    let command = format!("holdfast rejoin --from {} --data {} --name a", trio.b.at(), trio.a.data());
    assert!(said.contains(&command), "{said}");
    run(&trio.b.connect_with(LOCAL).await, "insert into t values (1)").await;
    trio.rejoin_a().await;
}

/// Commits that were acknowledged without the standby may be missing there, so it was taken out of the set first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_commits_did_not_wait_for_is_refused() {
    let lines = "level = \"hot\"\nsynchronous_standby_away = \"go_on\"\nstandby_timeout_ms = 3000";
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
    // It follows no server: nothing listens there, and it may not look for the group's master.
    std::fs::write(trio.b.dir.join("standby.toml"), "from = \"127.0.0.1:1\"\nname = \"b\"\n").unwrap();
    trio.w.start();
    trio.b.start();
    succeeds(&["standby", "stop", "--at", &trio.b.at()]);
    trio.a.start();
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    trio.until_agreed("a", "{a}").await;
    let said = trio.promote_b_refused();
    assert!(said.contains("b may lack acknowledged commits") && said.contains("--accept-divergence"), "{said}");
    run(&trio.a.connect_with(LOCAL).await, "insert into t values (1)").await;
    trio.a.kill();
    trio.promote_b_refused();
}

/// The group counts on what a member has: another directory under its name has something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_members_name_is_not_followed_under_by_anybody_else() {
    let trio = Trio::start("").await;
    let mut c = trio.another("c");
    succeeds(&["standby", "create", "--from", &trio.a.at(), "--data", c.data(), "--name", "b"]);
    c.start();
    until("it is refused", async || c.status().contains("b is a member of the control plane")).await;
    trio.until_agreed("a", "{a, b}").await;
}

/// The group's master may go on without it knowing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_groups_standby_is_not_promoted_without_the_group() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int); insert into t values (1)").await;
    let mut c = trio.another("c");
    succeeds(&["standby", "create", "--from", &trio.a.at(), "--data", c.data(), "--name", "c"]);
    c.start();
    until_followed(&trio.a, &c).await;
    until_equal(&trio.a, &c).await;
    trio.a.kill();
    let said = refuses(&["promote", "--at", &c.at()]);
    assert!(said.contains("does not belong to it itself") && said.contains("--accept-divergence"), "{said}");
    assert_eq!(one(&c.connect().await, "select pg_is_in_recovery()").await, "t");
}

/// A group is founded by servers that have nothing yet; one that has lost everything does not begin anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_directory_founds_a_group_and_does_not_take_one_over() {
    let mut trio = Trio::stopped("");
    std::fs::rename(trio.a.dir.join("holdfast.toml"), trio.a.dir.with_extension("toml")).unwrap();
    let fresh = |a: &Node| {
        std::fs::remove_dir_all(&a.dir).unwrap();
        std::fs::create_dir(&a.dir).unwrap();
        std::fs::copy(a.dir.with_extension("toml"), a.dir.join("holdfast.toml")).unwrap();
    };
    fresh(&trio.a);
    trio.w.start();
    trio.b.launch();
    trio.a.start();
    let local = trio.a.connect_with(LOCAL).await;
    run(&local, "create table t(x int); insert into t values (1)").await;
    trio.a.kill();
    // Its control plane's files are on another disk, say.
    let control = trio.a.dir.with_extension("control");
    std::fs::rename(trio.a.dir.join("control"), &control).unwrap();
    fresh(&trio.a);
    std::fs::rename(&control, trio.a.dir.join("control")).unwrap();
    let said = trio.a.refuses_to_start();
    assert!(said.contains("this directory is empty") && said.contains("standby create"), "{said}");
}
