//! `cargo test` of the workspace, its output passed through, its result lines added up and its failed tests named.
//!
//! It also builds the server that the other suites use: one build of the workspace, with the features that releases turn
//! on, serves the whole run. It is the development profile's, with debug assertions and overflow checks; before a release
//! the suites run on the release binary (`--server`).

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::Bench;
use crate::paths;
use crate::tally::{Counts, Outcome};

/// The features of a release.
pub const FEATURES: &[&str] = &["--features", "holdfast/object-stores"];

/// Tests of one binary at a time, for each processor: most of them wait for syncs and sockets.
const THREADS_PER_PROCESSOR: usize = 2;

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let arguments = [&["test", "--workspace"][..], FEATURES, &["--no-fail-fast", "--color", "never"]].concat();
    let ended = cargo_test(bench, &arguments)?;
    if !ended {
        let why = "cargo test failed before it ran every test; its messages are above";
        bench.tally.add("crates", "build", Outcome::Failed(why.to_owned()));
    }
    let server = paths::target().join("debug/holdfast");
    if ended && bench.binary.is_none() && server.exists() {
        bench.binary = Some(server);
    }
    Ok(())
}

/// The tests inside the crates only, for `cargo xtask check`: no server is started.
pub fn unit_tests(bench: &mut Bench) -> anyhow::Result<()> {
    let arguments =
        [&["test", "--workspace", "--lib", "--bins"][..], FEATURES, &["--no-fail-fast", "--color", "never"]].concat();
    if !cargo_test(bench, &arguments)? {
        bench.tally.add("unit", "build", Outcome::Failed("the tests do not build".to_owned()));
    }
    Ok(())
}

/// Runs cargo. False when it failed without a failed test.
fn cargo_test(bench: &mut Bench, arguments: &[&str]) -> anyhow::Result<bool> {
    // One pipe for both streams: the names of the binaries come on stderr, the results on stdout.
    let mut cargo = Command::new("sh");
    cargo.args(["-c", "exec \"$@\" 2>&1", "sh", env!("CARGO")]).args(arguments).current_dir(paths::root());
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        cargo.env("RUST_TEST_THREADS", (processors * THREADS_PER_PROCESSOR).to_string());
    }
    let skipped = paths::target().join("tests-skipped");
    match std::fs::remove_file(&skipped) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).context("removing an old list of tests");
        }
        _ => cargo.env("HOLDFAST_TEST_SKIPPED", &skipped),
    };
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let (mut counts, mut binary) = (Counts::default(), String::new());
    for line in BufReader::new(child.stdout.take().context("cargo's output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(name) = running_line(&line) {
            binary = name.to_owned();
        } else if let Some(test) = failed_line(&line) {
            bench.tally.name_failed("crates", format!("{binary}: {test}"));
        } else if let Some(more) = result_line(&line) {
            counts.passed += more.passed;
            counts.failed += more.failed;
            counts.skipped += more.skipped;
        }
    }
    let status = child.wait()?;
    // They have ended as tests that pass do: cargo knows no other end of a test that finds out while it runs.
    for (test, why) in skipped_lines(&std::fs::read_to_string(&skipped).unwrap_or_default()) {
        counts.passed = counts.passed.saturating_sub(1);
        bench.tally.add("crates", test, Outcome::Skipped(why.to_owned()));
    }
    bench.tally.add_counts("crates", counts);
    Ok(status.success() || counts.failed > 0)
}

/// The tests that did not run, and why: a line for each, with a tab in between.
fn skipped_lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once('\t'))
}

/// The server for suites that run without the crates' tests.
pub fn build_server() -> anyhow::Result<PathBuf> {
    println!("==== building the server (development profile)");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--package", "holdfast"])
        .args(FEATURES)
        .current_dir(paths::root())
        .status()
        .context("starting cargo")?;
    anyhow::ensure!(status.success(), "the server does not build");
    Ok(paths::target().join("debug/holdfast"))
}

/// `     Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)`, `   Doc-tests holdfast_trail`
fn running_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("Running ")
        .or(line.strip_prefix("Doc-tests "))
        .map(|rest| rest.split(" (").next().unwrap_or(rest))
}

/// `test control::quorum::nobody_parts ... FAILED`
fn failed_line(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix("FAILED")?.split(" ... ").next()
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; ...`
fn result_line(line: &str) -> Option<Counts> {
    let numbers = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let number_before =
        |word: &str| numbers.split("; ").find_map(|part| part.strip_suffix(word)?.trim().parse::<u64>().ok());
    Some(Counts {
        passed: number_before("passed")?,
        failed: number_before("failed")?,
        skipped: number_before("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_result_line() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(result_line(line), Some(Counts { passed: 5, failed: 2, skipped: 1 }));
        assert_eq!(result_line("running 5 tests"), None);
    }

    #[test]
    fn names_what_failed_and_where() {
        assert_eq!(failed_line("test control::quorum::nobody_parts ... FAILED"), Some("control::quorum::nobody_parts"));
        assert_eq!(failed_line("test control::quorum::nobody_parts ... ok"), None);
        assert_eq!(failed_line("test result: FAILED. 5 passed; 2 failed; 1 ignored"), None);
        let line = "     Running tests/it/main.rs (target/debug/deps/it-0123456789abcdef)";
        assert_eq!(running_line(line), Some("tests/it/main.rs"));
    }

    #[test]
    fn tests_that_did_not_run_are_read() {
        let text = "stores::s3\tmoto_server is not installed\nhalf a line\nstores::azure\tno npm\n";
        let read: Vec<_> = skipped_lines(text).collect();
        assert_eq!(read, [("stores::s3", "moto_server is not installed"), ("stores::azure", "no npm")]);
    }
}
