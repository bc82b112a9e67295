//! A deposed master under a supervisor comes back as a standby without an operator, where nothing that counts is lost by that.

use super::bed::Bed;
use crate::node::{LOCAL, asked, asked_with, assert_same, lost_files, run, succeeds, until};
use rustix::process::Signal;

/// `a` has committed a row at level local that `b` does not have, and both its processes are gone; `b` is promoted.
async fn with_a_tail(promote: &[&str]) -> Bed {
    with_a_tail_of("insert into t values (2)", promote).await
}

async fn with_a_tail_of(tail: &str, promote: &[&str]) -> Bed {
    let mut bed = Bed::stopped();
    // The standby stays in the sync set while its server is away, but not while its node is.
    bed.node_a.configure("standby_timeout_ms = 600000");
    bed.start_all().await;
    asked(&bed.node_a, "create table if not exists t(id int primary key); insert into t values (1)").await;
    bed.b.signal_server(Signal::STOP);
    run(&bed.node_a.connect_with(LOCAL).await, tail).await;
    bed.a.kill_both().await;
    bed.b.kill_both().await;
    bed.b.start();
    bed.b.until_running().await;
    let at = bed.node_b.at();
    succeeds(&[&["promote", "--at", &at], promote].concat());
    bed
}

async fn until_a_is_refused(bed: &Bed, why: &str) {
    bed.a.until_event("not_returned: ").await;
    let events = bed.a.events();
    assert!(events.iter().any(|event| event.starts_with("not_returned: ") && event.contains(why)), "{events:?}");
    assert!(
        lost_files(&bed.node_a.dir).is_empty() && !bed.node_a.dir.join("standby.toml").exists(),
        "nothing was changed"
    );
}

/// What the message names.
async fn rejoin_by_hand(bed: &mut Bed) {
    assert!(bed.a.stop().success());
    succeeds(&["rejoin", "--from", &bed.node_b.at(), "--data", bed.node_a.data(), "--name", "a"]);
    assert_eq!(lost_files(&bed.node_a.dir).len(), 1);
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_comes_back_by_itself_and_keeps_what_only_it_had() {
    let mut bed = with_a_tail(&[]).await;
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
    bed.a.until_event("returned: ").await;
    let lost = lost_files(&bed.node_a.dir);
    assert_eq!(lost.len(), 1, "{lost:?}");
    let events = bed.a.events();
    let told = |event: &String| event.starts_with("returned: ") && event.contains(lost[0].to_str().unwrap());
    assert!(events.iter().any(told) && !events.iter().any(|event| event.starts_with("server_ended: ")), "{events:?}");
    assert_same(&bed.node_b, &bed.node_a).await;
    // It is a standby like any other: it may be master again.
    assert!(succeeds(&["promote", "--at", &bed.node_a.at()]).contains("promoted: epoch "));
    assert_eq!(asked_with(&bed.node_a, LOCAL, "select count(*) from t").await, "1");
    bed.until_agreed("a", &["a", "b"]).await;
}

/// A master that is deposed while it runs, as by a switchover: its process stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_master_that_is_deposed_comes_back_by_itself() {
    let bed = Bed::start().await;
    let server = bed.a.until_running().await;
    asked(&bed.node_a, "create table if not exists t(id int primary key); insert into t values (1)").await;
    succeeds(&["promote", "--at", &bed.node_b.at()]);
    bed.until_agreed("b", &["a", "b"]).await;
    bed.a.until_event("returned: ").await;
    assert_eq!(bed.a.until_running().await, server, "it has not been started again");
    assert!(lost_files(&bed.node_a.dir).is_empty());
    assert_same(&bed.node_b, &bed.node_a).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_acknowledged_is_never_cut_by_itself() {
    let mut bed = with_a_tail(&[]).await;
    std::fs::write(bed.node_a.dir.join("acknowledged"), "2 999999999999\n").unwrap();
    bed.a.start();
    until_a_is_refused(&bed, "may have been acknowledged").await;
    rejoin_by_hand(&mut bed).await;
    assert!(!bed.node_a.dir.join("acknowledged").exists());
}

/// Also one that no standby follows: it acknowledges at level local.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_marks_its_epoch_before_it_serves() {
    let mut bed = Bed::start().await;
    bed.b.kill();
    bed.b.signal_server(Signal::KILL);
    until("b is gone", async || bed.b.server().is_none()).await;
    let mark = bed.node_a.dir.join("acknowledged");
    let marked = || std::fs::read_to_string(&mark).ok()?.split_once(' ')?.0.parse::<u64>().ok();
    let before = marked().expect("a is a master");
    bed.a.signal_server(Signal::KILL);
    until("a is the master again", async || bed.a.status()["record"]["epoch"].as_u64() > Some(before)).await;
    run(&bed.node_a.connect_with(LOCAL).await, "create table t(id int primary key)").await;
    assert_eq!(marked(), bed.a.status()["record"]["epoch"].as_u64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_mark_of_its_last_epoch_nothing_is_cut_by_itself() {
    let mut bed = with_a_tail(&[]).await;
    let (mark, epoch) = (bed.node_a.dir.join("acknowledged"), bed.w.status()["record"]["epoch"].as_u64().unwrap());
    let text = std::fs::read_to_string(&mark).unwrap();
    let marked: u64 = text.split_once(' ').unwrap().0.parse().unwrap();
    assert!(marked > 0 && marked < epoch, "{text}: that of a, which b has taken over from");
    std::fs::remove_file(&mark).unwrap();
    bed.a.start();
    until_a_is_refused(&bed, "has no mark of that epoch").await;
    rejoin_by_hand(&mut bed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_accepted_divergence_an_operator_decides() {
    let mut bed = with_a_tail(&["--accept-divergence"]).await;
    bed.a.start();
    until_a_is_refused(&bed, "the loss of commits accepted").await;
    rejoin_by_hand(&mut bed).await;
}

/// `kill -9` after the directory was marked as a standby's, and before its end was cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_that_was_cut_short_continues() {
    let mut bed = with_a_tail(&[]).await;
    let from = bed.node_b.at();
    std::fs::write(bed.node_a.dir.join("rejoin_under_way"), &from).unwrap();
    std::fs::write(bed.node_a.dir.join("standby.toml"), format!("from = \"{from}\"\nname = \"a\"\n")).unwrap();
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
    assert_eq!(lost_files(&bed.node_a.dir).len(), 1);
    assert!(!bed.node_a.dir.join("rejoin_under_way").exists());
    assert_same(&bed.node_b, &bed.node_a).await;
}

/// `kill -9` at every step of a return, one after the other: each start continues where the one before it ended.
async fn killed_at_each_step(mut bed: Bed, steps: &[&str]) {
    bed.a.set_points(
        &steps
            .iter()
            .map(|step| format!("kill {step}"))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    );
    bed.a.start();
    bed.until_agreed("b", &["a", "b"]).await;
    bed.a.until_points_are_reached().await;
    let ends = bed.a.events().iter().filter(|event| event.starts_with("server_ended: ")).count();
    assert_eq!(ends, steps.len(), "{:?}", bed.a.events());
    let lost = lost_files(&bed.node_a.dir);
    assert!(
        !lost.is_empty() && lost.iter().all(|file| std::fs::read_to_string(file).unwrap().contains("2")),
        "{lost:?}"
    );
    assert!(!bed.node_a.dir.join("rejoin_under_way").exists() && !bed.node_a.dir.join("acknowledged").exists());
    assert_same(&bed.node_b, &bed.node_a).await;
    assert!(succeeds(&["promote", "--at", &bed.node_a.at()]).contains("promoted: epoch "));
    bed.until_agreed("a", &["a", "b"]).await;
    assert_eq!(asked_with(&bed.node_a, LOCAL, "select count(*) from t").await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_that_cuts_its_end_survives_a_kill_at_each_step() {
    let steps = [
        "a return is recorded",
        "a return has saved the end",
        "a return has a standby's file",
        "a return has cut the trail",
        "a return is complete",
        "a return has no mark",
    ];
    killed_at_each_step(with_a_tail(&[]).await, &steps).await;
}

/// What only a had created a table: its databases are copied again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_that_copies_the_databases_survives_a_kill_at_each_step() {
    let steps = [
        "a return is recorded",
        "a return has saved the end",
        "a return has a standby's file",
        "a return has made way for a copy",
        "a return is complete",
        "a return has no mark",
    ];
    killed_at_each_step(with_a_tail_of("create table u(id int); insert into t values (2)", &[]).await, &steps).await;
}
