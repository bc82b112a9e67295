//! Programs that test what only Holdfast has: its data directory and its commands. They start servers of their own
//! and say for each case `ok`, `skip: why`, or what went wrong.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::Bench;
use crate::findings;
use crate::paths;
use crate::tally::Outcome;

pub fn directory(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, "directory", &paths::root().join("tests/badinput/directory.py"))
}

pub fn shell(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, "shell", &paths::root().join("tests/shell/main.py"))
}

fn run(bench: &mut Bench, suite: &str, script: &Path) -> anyhow::Result<()> {
    let binary = bench.binary()?;
    let scratch = paths::scratch(suite)?;
    let output = Command::new("timeout")
        .arg("1200")
        .arg("python3")
        .arg(script)
        .arg(&binary)
        .arg(scratch.path())
        .stderr(Stdio::inherit())
        .output()
        .context("starting python3")?;
    let found = findings::parse(&String::from_utf8_lossy(&output.stdout));
    for (case, finding) in &found {
        match finding.strip_prefix("skip: ") {
            Some(why) => bench.tally.add(suite, case, Outcome::Skipped(why.to_string())),
            None if finding == "ok" => bench.tally.add(suite, case, Outcome::Passed),
            None => bench.tally.add(suite, case, Outcome::Failed(finding.clone())),
        }
    }
    if !output.status.success() || found.is_empty() {
        bail!("{} ended with {} after {} cases", script.display(), output.status, found.len());
    }
    Ok(())
}
