//! A client that knows several servers: psql, and with it libpq, leaves the one that may not answer for the next.

use super::trio::Trio;
use crate::node::{LOCAL, Node, Pair, run, until};
use std::process::{Command, Output, Stdio};

/// psql with these hosts, in this order.
fn psql(nodes: &[&Node], attributes: &str) -> Output {
    let hosts = vec!["127.0.0.1"; nodes.len()].join(",");
    let ports: Vec<String> = nodes.iter().map(|node| node.port.to_string()).collect();
    let to = format!(
        "host={hosts} port={} user=holdfast dbname=holdfast target_session_attrs={attributes}",
        ports.join(",")
    );
    let mut psql = Command::new("psql");
    psql.args([
        "-X",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-v",
        "VERBOSITY=verbose",
        &to,
        "-c",
        "select 1",
        "-c",
        "\\echo :PORT",
    ]);
    psql.env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap()
}

/// The port that psql ends at, which must answer a query there.
fn ends_at(nodes: &[&Node], attributes: &str) -> String {
    let output = psql(nodes, attributes);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{attributes}: {said}");
    String::from_utf8(output.stdout).unwrap().strip_prefix("1\n").unwrap().trim().to_owned()
}

/// What psql says that finds no server.
fn is_refused(nodes: &[&Node], attributes: &str) -> String {
    let output = psql(nodes, attributes);
    assert_eq!(output.status.code(), Some(2), "{attributes}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The old master runs, and knows or does not know that it was deposed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_leaves_a_deposed_master_for_the_next_host() {
    let trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    let (a, b) = (&trio.a, &trio.b);
    let (at_a, at_b) = (a.port.to_string(), b.port.to_string());
    for (attributes, expected) in
        [("any", &at_a), ("read-write", &at_a), ("primary", &at_a), ("read-only", &at_b), ("standby", &at_b)]
    {
        assert_eq!(ends_at(&[a, b], attributes), *expected, "{attributes}");
    }
    assert_eq!(ends_at(&[b, a], "prefer-standby"), at_b);
    assert_eq!(ends_at(&[b, a], "read-write"), at_a);

    a.hang();
    trio.promote_b();
    a.resume();
    for attributes in ["any", "read-write", "primary", "prefer-standby"] {
        assert_eq!(ends_at(&[a, b], attributes), at_b, "{attributes}");
    }
    // As long as it does not know, its lease has run out.
    let said = is_refused(&[a], "any");
    let refusals = ["this server was deposed", "this server cannot renew its lease as master"];
    assert!(refusals.iter().any(|refusal| said.contains(refusal)), "{said}");
}

/// A node whose group has no majority answers at once, and the other host is tried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_is_refused_at_once_by_a_server_that_waits_for_its_group() {
    let mut trio = Trio::stopped("");
    trio.a.port = holdfast_seams::testing::port();
    trio.a.launch();
    let waits = "a majority of the control plane agrees";
    until("it listens and says what it waits for", async || {
        let output = psql(&[&trio.a], "any");
        String::from_utf8_lossy(&output.stderr).contains(waits)
    })
    .await;
    let other = Pair::master("");
    assert_eq!(ends_at(&[&trio.a, &other.a], "any"), other.a.port.to_string());
    assert_eq!(ends_at(&[&trio.a, &other.a], "read-write"), other.a.port.to_string());
    trio.w.start();
    trio.b.start();
    trio.a.until_ready();
    assert_eq!(ends_at(&[&trio.a, &other.a], "primary"), trio.a.port.to_string());
}

/// A server that loses its majority refuses new sessions until it has one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_leaves_a_master_without_a_majority() {
    let mut trio = Trio::start("").await;
    run(&trio.a.connect_with(LOCAL).await, "create table t(x int)").await;
    let other = Pair::master("");
    trio.w.kill();
    trio.b.hang();
    until("the lease has run out", async || ends_at(&[&trio.a, &other.a], "any") == other.a.port.to_string()).await;
    let said = is_refused(&[&trio.a], "read-write");
    assert!(said.contains("cannot renew its lease as master"), "{said}");
    trio.b.resume();
    until("it is the master again", async || ends_at(&[&trio.a, &other.a], "any") == trio.a.port.to_string()).await;
}

/// A master that stops waits for a standby that does not answer; clients do not wait with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn psql_leaves_a_master_that_stops() {
    let mut pair = Pair::start("").await;
    let other = Pair::master("");
    pair.b.hang();
    pair.a.ask_to_stop();
    let mut said = String::new();
    until("it stops", async || {
        said = String::from_utf8_lossy(&psql(&[&pair.a], "any").stderr).into_owned();
        !said.is_empty()
    })
    .await;
    assert!(said.contains("the database system is shutting down"), "{said}");
    assert_eq!(ends_at(&[&pair.a, &other.a], "any"), other.a.port.to_string());
    pair.b.resume();
    assert!(pair.a.ended().success());
}
