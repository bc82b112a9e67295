//! The machine's clock is set back and forward while a server works: `--to-time` names one place in the trail all the same.

use super::Backed;
use crate::dump::bed::wal_lsn;
use crate::node::{Node, asked, one, refuses, run, succeeds, until};
use holdfast_seams::testing::skipped;
use std::path::Path;
use std::process::Command;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_in_the_trail_do_not_go_back_whatever_the_clock_does() {
    let mut bed = Backed::new("dump.every = \"1 h\"\ndump.node = \"none\"\narchive_timeout_ms = 200");
    let path = |name: &str| bed.scratch.path().join(name);
    let (library, clock) = (path("clock.so"), path("clock"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/backups/clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("cc is not installed");
    }
    let set = |hours: i64| std::fs::write(&clock, (hours * 3600).to_string()).unwrap();
    set(0);
    let text = |path: &Path| path.display().to_string();
    bed.node.env = vec![("LD_PRELOAD".to_owned(), text(&library)), ("HOLDFAST_TEST_CLOCK".to_owned(), text(&clock))];
    bed.node.start();
    let client = bed.node.connect().await;
    run(&client, "create table t(k int primary key)").await;
    succeeds(&["dump", "create", "--at", &bed.node.at(), "--to", bed.place()]);
    let now = async || one(&client, "select (extract(epoch from clock_timestamp()) * 1000)::bigint").await;
    run(&client, "insert into t values (1)").await;
    let start: i64 = now().await.parse().unwrap();
    // An hour back; two hours forward; right again.
    for (k, hours) in [(2, -1), (3, 2), (4, 0)] {
        set(hours);
        let seen: i64 = now().await.parse().unwrap();
        assert!((seen - start - hours * HOUR_MS).abs() < HOUR_MS / 2, "the server's clock is set: {seen}, {start}");
        run(&client, &format!("insert into t values ({k})")).await;
    }
    let lsn = wal_lsn(&client).await;
    until("it is archived", async || {
        let archived = one(&client, "select archived_lsn from holdfast_stat_archive").await;
        archived.parse::<u64>().unwrap_or(0) >= lsn
    })
    .await;
    // What was committed after the clock was set back has the time before; what came after a wrong, later time has that.
    let restore = |name: &str, more: &[&str]| {
        let dir = path(name).display().to_string();
        let begin = ["restore", "--from", bed.place(), "--data", &dir];
        begin.iter().chain(more).map(|argument| (*argument).to_owned()).collect::<Vec<String>>()
    };
    let time = |after_ms: i64| holdfast_dump::show_moment((start + after_ms) as u64);
    let (soon, later) = (time(10_000), time(HOUR_MS));
    let targets: [(&str, &[&str], &str); 3] = [
        ("soon", &["--to-time", &soon], "1, 2"),
        ("later", &["--to-time", &later], "1, 2"),
        ("end", &[], "1, 2, 3, 4"),
    ];
    for (name, target, expected) in targets {
        let arguments = restore(name, target);
        succeeds(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let mut node = Node::new_in(path(name));
        node.start();
        assert_eq!(asked(&node, "select string_agg(k::text, ', ' order by k) from t").await, expected, "{name}");
    }
    // Nothing shows that all of that time is there: a later commit may not be archived yet.
    let beyond = time(2 * HOUR_MS + 600_000);
    let arguments = restore("beyond", &["--to-time", &beyond]);
    let error = refuses(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(error.contains("which ends at LSN"), "{error}");
}
