//! `cargo test` of the workspace, its output passed through and its result lines added up.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::Bench;
use crate::paths;
use crate::tally::{Counts, Outcome};

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let mut child = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--no-fail-fast", "--color", "never"])
        .current_dir(paths::root())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo")?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().context("cargo's output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(more) = result_line(&line) {
            counts.passed += more.passed;
            counts.failed += more.failed;
            counts.skipped += more.skipped;
        }
    }
    let status = child.wait()?;
    bench.tally.add_counts("crates", counts);
    if !status.success() && counts.failed == 0 {
        bench.tally.add("crates", "build", Outcome::Failed(format!("cargo test ended with {status}")));
    }
    Ok(())
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
}
