//! What the server keeps for a client is bounded: unsent results, suspended portals, parameters, prepared statements.

use super::raw::{RawClient, count, state};
use crate::server::Running;

/// The most memory that the server's process has had, in MB.
fn peak_mb(server: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

fn check_peak(server: &Running, before: u64, more_mb: u64) {
    let peak = peak_mb(server);
    assert!(peak < before + more_mb, "the server's process had {peak} MB, before {before} MB");
}

const STATEMENTS: usize = 100;

/// 1 GB of answers to one simple message, to one pipeline, and to a message in a transaction.
#[test]
fn the_answers_of_one_message_leave_while_it_runs() {
    let server = Running::start();
    let mut client = RawClient::connect(server.port);
    let before = peak_mb(&server);
    let select = "select repeat('x', 10000000)";
    let message = vec![select; STATEMENTS].join(";");
    for sql in [message.clone(), format!("begin; {message}; commit"), format!("create temp table s(a int); {message}")]
    {
        let answer = client.query(&sql);
        assert_eq!((state(&answer), count(&answer, b'D')), (None, STATEMENTS));
    }
    client.parse("s", select);
    for _ in 0..STATEMENTS {
        client.bind("", "s");
        client.execute("", 0);
    }
    let answer = client.sync();
    assert_eq!((state(&answer), count(&answer, b'D')), (None, STATEMENTS));
    check_peak(&server, before, 400);
}

#[test]
fn suspended_portals_and_prepared_statements_are_bounded() {
    let server = Running::start();
    let mut client = RawClient::connect(server.port);
    let before = peak_mb(&server);
    client.query("begin");
    client.parse("large", "select repeat('x', 1000000) from generate_series(1, 200)");
    client.bind("a", "large");
    client.execute("a", 1);
    assert_eq!(state(&client.sync()), None);
    client.bind("b", "large");
    client.execute("b", 1);
    assert_eq!(state(&client.sync()).as_deref(), Some("53200"));
    client.query("rollback");
    // The portals are closed: there is room again. All of it is fetched, more than would fit a second time.
    client.query("begin");
    client.bind("c", "large");
    client.execute("c", 1);
    client.execute("c", 0);
    let answer = client.sync();
    assert_eq!((state(&answer), count(&answer, b'D')), (None, 200));
    client.query("rollback");

    let literal = format!("select '{}'", "x".repeat(20_000_000));
    let refused = (0..8).filter(|i| {
        client.parse(&format!("s{i}"), &literal);
        state(&client.sync()).as_deref() == Some("53200")
    });
    assert!(refused.count() > 3, "8 statements of 20 MB, in several copies each, are more than 256 MiB");
    let refused =
        (0..3).filter(|i| state(&client.query(&format!("prepare q{i} as {literal}"))).as_deref() == Some("53200"));
    assert_eq!(refused.count(), 3, "PREPARE counts for the same session");
    client.query("deallocate all");
    client.parse("again", &literal);
    assert_eq!(state(&client.sync()), None);
    check_peak(&server, before, 1_000);
}

/// A RETURNING of the writer cannot be sent before its commit, so it is bounded.
#[test]
fn results_that_cannot_leave_yet_are_bounded() {
    let server = Running::start();
    let mut client = RawClient::connect(server.port);
    client.query("create table t (id int, v text)");
    client.query(&format!("insert into t values (1, '{}')", "x".repeat(10_000_000)));
    let before = peak_mb(&server);
    let one = "update t set id = id + 1 returning v";
    let answer = client.query(&vec![one; STATEMENTS].join(";"));
    assert!(state(&answer).is_none_or(|state| state == "53200"), "{:?}", state(&answer));
    check_peak(&server, before, 700);
    assert_eq!(count(&client.query("select id from t"), b'D'), 1);
}

/// A statement keeps what each of its calls has returned: the bound is the server's, not the statement's.
#[test]
fn large_values_of_all_statements_together_are_bounded() {
    let dir = tempfile::TempDir::new().unwrap();
    // A new directory and one that exists use SQLite for the first time in different places.
    drop(Running::start_on(dir.path()));
    std::fs::write(dir.path().join("holdfast.toml"), "statements_memory_bytes_max = \"256MB\"\n").unwrap();
    let server = Running::start_in(dir);
    let (mut client, mut other) = (RawClient::connect(server.port), RawClient::connect(server.port));
    assert_eq!(state(&client.query("create table kept(v text)")), None);
    let before = peak_mb(&server);
    let calls = |count: usize| {
        let calls: Vec<String> = (0..count).map(|n| format!("md5(repeat('x', {}))", 20_000_000 + n)).collect();
        calls.join(", ")
    };
    let rows = |count: usize| calls(count).replace(", md5", "), (md5");
    for sql in [
        format!("select {}", calls(100)),
        format!("insert into kept values ({})", rows(100)),
        format!("begin; insert into kept values ({}); commit", rows(100)),
        format!("select v from (select concat({}) v) s", calls(100)),
        "select string_agg(repeat('x', 1000000), '') from generate_series(1, 1000)".to_owned(),
    ] {
        assert_eq!(state(&client.query(&sql)).as_deref(), Some("53200"), "{}", &sql[..60]);
        client.query("rollback");
        assert_eq!(state(&other.query("insert into kept values ('x')")), None);
        assert_eq!(state(&client.query(&format!("select {}", calls(5)))), None, "there is room for few");
    }
    check_peak(&server, before, 600);
}
