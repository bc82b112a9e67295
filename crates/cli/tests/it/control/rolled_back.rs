//! Directories that are put back from an older copy, as a restored virtual machine is: what they lack was acknowledged, so
//! they refuse to serve, and the server that has it is promoted.

use super::quorum::{Three, follow, until_quorum};
use super::trio::{LOCAL, Trio};
use crate::node::{Node, asked, asked_with, assert_same, lost_files, run, succeeds, until, until_followed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies a stopped server's directory.
pub fn copy_of(node: &Node) -> PathBuf {
    let copy = node.dir.with_extension("copy");
    copy_all(&node.dir, &copy);
    copy
}

fn copy_all(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// Puts the copy in the place of the directory, whose server is gone.
pub fn put_back(node: &Node, copy: &Path) {
    std::fs::remove_dir_all(&node.dir).unwrap();
    copy_all(copy, &node.dir);
}

/// As [`put_back`], and the control directory stays as it is: the copy was of the trail and the databases only.
fn put_back_trail(node: &Node, copy: &Path) {
    let kept = node.dir.with_extension("control");
    std::fs::rename(node.dir.join("control"), &kept).unwrap();
    put_back(node, copy);
    std::fs::remove_dir_all(node.dir.join("control")).unwrap();
    std::fs::rename(kept, node.dir.join("control")).unwrap();
}

/// Commits rows with these ids, one by one, at level hot.
pub async fn insert(node: &Node, ids: std::ops::Range<i32>) {
    let client = node.connect().await;
    for id in ids {
        run(&client, &format!("insert into t values ({id}) on conflict do nothing")).await;
    }
}

async fn rows_of(node: &Node) -> String {
    asked_with(node, LOCAL, "select count(*) from t").await
}

/// Master `a` with 10 rows, and a copy of its directory; since then it has acknowledged 40 more, and was killed.
async fn with_old_copy(trio: &mut Trio) -> PathBuf {
    asked(&trio.a, "create table if not exists t(id int primary key)").await;
    insert(&trio.a, 0..10).await;
    assert!(trio.a.stop().success());
    let copy = copy_of(&trio.a);
    trio.a.start();
    until_followed(&trio.a, &trio.b).await;
    trio.until_agreed("a", "{a, b}").await;
    insert(&trio.a, 10..50).await;
    trio.a.kill();
    copy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_directory_was_put_back_refuses_and_its_standby_has_everything() {
    let mut trio = Trio::start("level = \"hot\"").await;
    let copy = with_old_copy(&mut trio).await;
    put_back(&trio.a, &copy);
    // However often it is started.
    for _ in 0..3 {
        let said = trio.a.refuses_to_start();
        assert!(said.contains("was put back from a copy") && said.contains("holdfast promote --at"), "{said}");
        assert!(said.contains("to be promoted in its place: b"), "{said}");
    }
    assert!(trio.promote_b().contains("promoted: epoch "));
    trio.until_agreed("b", "{b}").await;
    assert_eq!(rows_of(&trio.b).await, "50");
    // The way back that the message names.
    std::fs::remove_dir_all(trio.a.dir.join("control")).unwrap();
    trio.rejoin_a().await;
    insert(&trio.b, 50..51).await;
    assert_same(&trio.b, &trio.a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_whose_trail_was_put_back_refuses_and_its_standby_has_everything() {
    let mut trio = Trio::start("level = \"hot\"").await;
    let copy = with_old_copy(&mut trio).await;
    put_back_trail(&trio.a, &copy);
    let said = trio.a.refuses_to_start();
    assert!(said.contains("a lacks acknowledged commits") && said.contains("Promote b"), "{said}");
    // Without its standby it is no different: the group remembers.
    trio.b.kill();
    let said = trio.a.refuses_to_start();
    assert!(said.contains("a lacks acknowledged commits") && said.contains("Promote b"), "{said}");
    trio.b.start();
    assert!(trio.promote_b().contains("promoted: epoch "));
    trio.until_agreed("b", "{b}").await;
    assert_eq!(rows_of(&trio.b).await, "50");
    trio.rejoin_a().await;
    assert_same(&trio.b, &trio.a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_whose_trail_was_put_back_is_not_promoted() {
    let mut trio = Trio::start("level = \"hot\"").await;
    asked(&trio.a, "create table if not exists t(id int primary key)").await;
    insert(&trio.a, 0..10).await;
    assert!(trio.b.stop().success());
    let copy = copy_of(&trio.b);
    trio.b.start();
    insert(&trio.a, 10..50).await;
    // The group hears of what the standby has with a renewal of the lease, twice a second.
    let end: u64 = trio.b.status_word("durable_lsn").parse().unwrap();
    let known = |status: serde_json::Value| status["control"]["positions"]["b"].as_u64().unwrap_or_default();
    let status = || serde_json::from_str(&trio.a.status()).unwrap();
    until("the group knows what b has", async || known(status()) >= end).await;
    trio.a.kill();
    trio.b.kill();
    put_back_trail(&trio.b, &copy);
    trio.b.start();
    let said = trio.promote_b_refused();
    assert!(said.contains("b lacks acknowledged commits") && said.contains("Promote a"), "{said}");
    // The master has everything, and its standby catches up.
    trio.a.start();
    assert_eq!(rows_of(&trio.a).await, "50");
    until_followed(&trio.a, &trio.b).await;
    assert_same(&trio.a, &trio.b).await;
    // The whole directory: it takes part in nothing.
    trio.b.kill();
    put_back(&trio.b, &copy);
    trio.b.launch();
    assert_eq!(trio.b.ended().code(), Some(1), "{}", trio.b.log());
    assert!(trio.b.log().contains("was put back from a copy"), "{}", trio.b.log());
}

/// The position of `a` that the group knows.
pub fn known_of_a(a: &Node) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&a.status()).unwrap();
    status["control"]["positions"]["a"].as_u64().unwrap_or_default()
}

/// The copy has the start that runs, so no start tells that it is older. Its log ends where this member led Raft.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leading_master_that_was_copied_while_it_ran_refuses() {
    let mut trio = Trio::start("level = \"hot\"").await;
    trio.until_a_leads().await;
    until_followed(&trio.a, &trio.b).await;
    trio.until_agreed("a", "{a, b}").await;
    asked(&trio.a, "create table if not exists t(id int primary key)").await;
    insert(&trio.a, 0..10).await;
    let copy = copy_of(&trio.a);
    insert(&trio.a, 10..50).await;
    let end: u64 = trio.a.status_word("durable_lsn").parse().unwrap();
    // Without b only the witness makes a majority: it hears of what a has.
    trio.b.kill();
    run(&trio.a.connect_with(LOCAL).await, "insert into t values (1000)").await;
    until("the witness knows what a has", async || known_of_a(&trio.a) > end).await;
    trio.a.kill();
    put_back(&trio.a, &copy);
    for _ in 0..2 {
        let said = trio.a.refuses_to_start();
        assert!(said.contains("was put back from a"), "{said}");
    }
    trio.b.start();
    assert!(trio.promote_b().contains("promoted: epoch "));
    assert_eq!(rows_of(&trio.b).await, "50");
}

/// What is lost is lost only when the operator says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_put_back_serves_what_it_has_when_the_loss_is_accepted() {
    let mut trio = Trio::start("level = \"hot\"").await;
    let copy = with_old_copy(&mut trio).await;
    trio.b.kill();
    put_back_trail(&trio.a, &copy);
    assert!(trio.a.refuses_to_start().contains("--accept-divergence"));
    trio.a.accept_divergence = true;
    trio.a.start();
    assert_eq!(rows_of(&trio.a).await, "10");
    assert!(trio.a.stop().success());
    // From then on it is the master like any other.
    trio.a.accept_divergence = false;
    trio.a.start();
    assert_eq!(rows_of(&trio.a).await, "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_servers_a_master_that_was_put_back_refuses() {
    let mut three = Three::start().await;
    asked(&three.a, "create table if not exists t(id int primary key)").await;
    insert(&three.a, 0..10).await;
    assert!(three.a.stop().success());
    let copy = copy_of(&three.a);
    three.a.start();
    until_followed(&three.a, &three.b).await;
    until_followed(&three.a, &three.c).await;
    until_quorum(&three.a).await;
    insert(&three.a, 10..50).await;
    three.a.kill();
    put_back(&three.a, &copy);
    let said = three.a.refuses_to_start();
    assert!(said.contains("was put back from a copy"), "{said}");
    let promoted = match refused_or_done(&three.b) {
        Ok(_) => &three.b,
        Err(_) => {
            succeeds(&["promote", "--at", &three.c.at()]);
            &three.c
        }
    };
    assert_eq!(rows_of(promoted).await, "50");
}

/// Promotes a node that may have less than the other.
fn refused_or_done(node: &Node) -> Result<String, String> {
    let output = crate::node::holdfast(&["promote", "--at", &node.at()]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A deposed master that wakes up ships nothing, and the third server takes nothing of it: it follows the new master as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_third_server_takes_nothing_of_a_deposed_master_that_wakes_up() {
    let mut three = Three::start().await;
    asked(&three.a, "create table if not exists t(id int primary key)").await;
    insert(&three.a, 0..10).await;
    let mut writers = Vec::new();
    for number in 1..5 {
        let client = three.a.connect_with(LOCAL).await;
        writers.push(tokio::spawn(async move {
            for id in 0.. {
                if client.batch_execute(&format!("insert into t values ({})", number * 100_000 + id)).await.is_err() {
                    return;
                }
            }
        }));
    }
    until("there is load", async || asked(&three.a, "select count(*) > 200 from t").await == "t").await;
    three.a.hang();
    let (promoted, third) = match refused_or_done(&three.b) {
        Ok(_) => (&three.b, &mut three.c),
        Err(_) => {
            succeeds(&["promote", "--at", &three.c.at()]);
            (&three.c, &mut three.b)
        }
    };
    let epoch = promoted.status_word("epoch");
    until("the third server knows the new epoch", async || third.status().contains(&format!("\"epoch\":{epoch}")))
        .await;
    three.a.resume();
    for writer in writers {
        writer.await.unwrap();
    }
    // Everything that the woken master could send has arrived, or was refused.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    three.a.kill();
    insert_alone(promoted).await;
    follow(third, promoted).await;
    assert_same(promoted, third).await;
    assert!(lost_files(&third.dir).is_empty(), "nothing had to be taken out of it");
    assert!(!third.log().contains("rejoin --"), "{}", third.log());
}

async fn insert_alone(master: &Node) {
    run(&master.connect_with(LOCAL).await, "insert into t values (-1)").await;
}
