//! What ends following or a server's waiting, and how it goes on.

use crate::node::{Node, Pair, assert_same, refuses, rows, run, succeeds, until};
use holdfast_seams::testing::skipped;
use holdfast_unsafe_disk::{Options, UnsafeDisk, cannot_mount};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Nobody may ever confirm the commit: the stop does not wait for that, and the client is not told that it succeeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_stops_though_a_commit_waits_for_its_standby() {
    let mut pair = Pair::start("level = \"hot\"").await;
    let client = pair.a.connect().await;
    run(&client, "create table t(x int)").await;
    pair.b.kill();
    let waiting = tokio::spawn(async move { client.batch_execute("insert into t values (1)").await });
    pair.a.until_commits_wait(1).await;
    assert!(pair.a.stop().success(), "{}", pair.a.log());
    assert!(pair.a.log().contains("commits in 1 batches wait for standbys"), "{}", pair.a.log());
    assert!(waiting.await.unwrap().is_err(), "it was not acknowledged");
    pair.a.start();
    pair.b.start();
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
    assert_eq!(rows(&pair.b.connect().await, "select x from t").await, ["Some(\"1\")"], "it was written all the same");
}

/// A master of another history answers at its master's address for a while.
#[tokio::test]
async fn a_standby_that_was_refused_is_started_again() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int)").await;
    pair.until_equal().await;
    let mut other = pair.third("other");
    other.port = pair.a.port;
    pair.a.kill();
    other.start();
    until("it is refused", async || pair.b.status().contains("they are not copies of each other")).await;
    let said = succeeds(&["standby", "status", "--at", &pair.b.at()]);
    assert!(said.contains("how far it is behind is not known"), "{said}");
    other.kill();
    pair.a.start();
    run(&pair.a.connect().await, "insert into t values (1)").await;
    // What does not pass by itself is not tried by itself.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(pair.b.status().contains("they are not copies of each other"), "{}", pair.b.status());
    succeeds(&["standby", "start", "--at", &pair.b.at()]);
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
}

#[tokio::test]
async fn a_standby_without_room_says_so_and_goes_on_when_there_is_some() {
    if let Some(why) = cannot_mount() {
        return skipped(&why);
    }
    let pair = Pair::master("segment_bytes = 1048576");
    let client = pair.a.connect().await;
    run(&client, "create table t(x int, v text)").await;
    let (mount, backing) = (pair.beside("disk"), pair.beside("backing"));
    std::fs::create_dir(&mount).unwrap();
    std::fs::create_dir(&backing).unwrap();
    let disk = UnsafeDisk::mount(&mount, Options::new(backing)).unwrap();
    let mut b = Node::new_in(mount.join("b"));
    b.name = "b";
    succeeds(&["standby", "create", "--from", &pair.a.at(), "--data", b.data(), "--name", "b"]);
    b.log_beside(pair.beside("b.log"));
    b.start();
    crate::node::until_followed(&pair.a, &b).await;
    disk.disk().command_text("capacity 4194304").unwrap();
    let many = "insert into t with recursive r(i) as (select 1 union all select i + 1 from r where i < 500) \
                select i, repeat('x', 1000) from r";
    for _ in 0..16 {
        run(&client, many).await;
    }
    until("it says so", async || b.status().contains("no room for the next trail segment")).await;
    run(&client, "insert into t values (-1, 'the master goes on')").await;
    rows(&b.connect().await, "select count(*) from t").await;
    disk.disk().command_text("capacity none").unwrap();
    assert_same(&pair.a, &b).await;
    assert!(b.stop().success());
}

/// The disk of its trail is away; what it holds is the only copy of what was acknowledged since its promotion.
#[tokio::test]
async fn a_masters_directory_without_its_trail_is_not_copied_over() {
    let mut pair = Pair::start("").await;
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.until_equal().await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    run(&pair.b.connect().await, "insert into t values (2)").await;
    assert!(pair.b.stop().success());
    let away = pair.beside("away");
    std::fs::rename(pair.b.dir.join("trail"), &away).unwrap();
    pair.a.start();
    let certificates = pair.b.dir.join("certificates");
    let said = refuses(&["standby", "create", "--from", &pair.a.at(), "--data", pair.b.data(), "--name", "b"]);
    assert!(said.contains("data directory already"), "{said}");
    assert!(!certificates.exists(), "nothing is left there");
    std::fs::rename(&away, pair.b.dir.join("trail")).unwrap();
    pair.b.start();
    assert_eq!(rows(&pair.b.connect().await, "select x from t").await.len(), 2);
}

/// A copy shows one moment of a master only.
#[tokio::test]
async fn a_copy_is_not_taken_from_a_standby() {
    let pair = Pair::start("").await;
    let third = pair.third("c");
    let said = refuses(&["standby", "create", "--from", &pair.b.at(), "--data", third.data(), "--name", "c"]);
    assert!(said.contains("b is a standby itself") && said.contains(&pair.a.at()), "{said}");
}

/// A copy that was interrupted is not an empty directory, in which a new master would be founded.
#[tokio::test]
async fn an_interrupted_copy_is_not_served_and_goes_on() {
    let mut pair = Pair::master("");
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    pair.a.hang();
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["standby", "create", "--from", &pair.a.at(), "--data", pair.b.data(), "--name", "b"]);
    let mut copying = command.stderr(Stdio::null()).spawn().unwrap();
    until("the copy has begun", async || pair.b.dir.join("standby.toml").exists()).await;
    copying.kill().unwrap();
    copying.wait().unwrap();
    let said = pair.b.refuses_to_start();
    assert!(said.contains("no base copy was completed") && said.contains("standby create"), "{said}");
    pair.a.resume();
    pair.create_standby();
    pair.b.start();
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
}

/// A promoted server is called what the standby was.
#[tokio::test]
async fn a_promoted_standby_keeps_its_name() {
    let mut pair = Pair::start("").await;
    // Before that its base copy may be incomplete.
    pair.until_equal().await;
    pair.a.kill();
    succeeds(&["promote", "--at", &pair.b.at()]);
    assert_eq!(pair.b.status_word("name"), "b");
    assert!(pair.b.stop().success());
    pair.b.start();
    assert_eq!(pair.b.status_word("name"), "b");
}

/// What is kept for a standby that does not come back ends when the operator says so, and not for one that is there.
#[tokio::test]
async fn a_standby_that_does_not_come_back_is_forgotten() {
    let mut pair = Pair::start("").await;
    let (at, forget) = (pair.a.at(), ["standby", "forget", "--name", "b", "--at"]);
    let with = |at| [&forget[..], &[at]].concat();
    let said = refuses(&with(&at));
    assert!(said.contains("b follows this server") && said.contains("Stop its server"), "{said}");
    assert!(pair.b.stop().success());
    until("it is away", async || pair.a.status().contains("\"away\"")).await;
    assert!(succeeds(&with(&at)).contains("no trail is kept for b any longer"));
    assert!(!pair.a.status().contains("\"away\""), "{}", pair.a.status());
    assert!(refuses(&with(&at)).contains("no trail is kept for a standby named b"));
    // It may come back all the same while the trail it needs is there.
    pair.b.start();
    pair.until_followed().await;

    // A directory that cannot be made leaves nothing behind at the master.
    let said = refuses(&["standby", "create", "--from", &at, "--data", "/proc/no/such", "--name", "c"]);
    assert!(said.contains("cannot create the data directory /proc/no/such"), "{said}");
    assert!(!pair.a.status().contains("\"c\""), "{}", pair.a.status());
}
