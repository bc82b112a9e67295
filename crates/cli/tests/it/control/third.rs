//! The third server after a promotion: it follows the master that the group has agreed on, without a command and without a
//! restart.

use super::quorum::{Three, until_quorum};
use crate::node::{Node, asked, assert_same, holdfast, succeeds, until, until_followed};

/// The address in its standby.toml.
fn from_of(standby: &Node) -> String {
    let file = std::fs::read_to_string(standby.dir.join("standby.toml")).unwrap();
    file.lines().find(|line| line.starts_with("from = ")).unwrap().to_owned()
}

async fn write(master: &Node) {
    let rows = "create table if not exists t(id int primary key); insert into t values (1) on conflict do nothing";
    asked(master, rows).await;
}

/// Promotes a standby of a master that is gone; the new master and the other one. The other one may have a boxcar more, an empty
/// proof of the last commit: then it is promoted.
fn promote_one<'a>(b: &'a mut Node, c: &'a mut Node) -> (&'a mut Node, &'a mut Node) {
    let said = holdfast(&["promote", "--at", &b.at()]);
    if said.status.success() {
        return (b, c);
    }
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(why.contains("c has more of the trail; promote c"), "{why}");
    succeeds(&["promote", "--at", &c.at()]);
    (c, b)
}

async fn assert_follows(master: &Node, standby: &Node) {
    until_followed(master, standby).await;
    assert_eq!(from_of(standby), format!("from = \"{}\"", master.at()));
    asked(master, "insert into t values (2) on conflict do nothing").await;
    assert_same(master, standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_loss_of_the_master_the_third_server_follows_the_new_one() {
    let mut three = Three::start().await;
    write(&three.a).await;
    three.a.kill();
    let (master, third) = promote_one(&mut three.b, &mut three.c);
    assert_follows(master, third).await;
    // Any one of the two is enough again, so it can be promoted in its turn.
    until_quorum(master).await;
    assert!(third.stop().success());
    third.start();
    assert_follows(master, third).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_leaves_a_deposed_master_that_still_runs() {
    let three = Three::start().await;
    write(&three.a).await;
    succeeds(&["promote", "--at", &three.b.at()]);
    assert_follows(&three.b, &three.c).await;
    let left = "select count(*) from pg_stat_replication where application_name = 'c'";
    until("the deposed master has lost its standby", async || asked(&three.b, left).await == "1").await;
}

/// Its master is gone, and standby.toml still names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_during_the_promotion_finds_the_new_master() {
    let mut three = Three::start().await;
    write(&three.a).await;
    three.c.kill();
    succeeds(&["promote", "--at", &three.b.at()]);
    three.a.kill();
    three.c.start();
    assert_follows(&three.b, &three.c).await;
}

/// An operator names the wrong server of the group; the group knows better.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_configured_to_follow_a_standby_follows_the_master() {
    let mut three = Three::start().await;
    write(&three.a).await;
    assert!(three.c.stop().success());
    succeeds(&["standby", "configure", "--data", three.c.data(), "--from", &three.b.at()]);
    three.c.start();
    assert_follows(&three.a, &three.c).await;
}
