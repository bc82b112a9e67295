//! Programs that test what only Holdfast has (its data directory, its commands) or need it killed (recorded histories).
//! They start servers of their own and say for each case `ok`, `skip: why`, or what went wrong.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::{Bench, programs};
use crate::tally::Outcome;
use crate::{findings, paths, tools};

pub fn directory(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, "directory", Command::new("python3").arg(paths::root().join("tests/badinput/directory.py")), &[])
}

pub fn shell(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, "shell", Command::new("python3").arg(paths::root().join("tests/shell/main.py")), &[])
}

pub fn outside(bench: &mut Bench) -> anyhow::Result<()> {
    run(bench, "outside", Command::new("python3").arg(paths::root().join("tests/outside/main.py")), &[])
}

/// The histories stay in the target directory, to be looked at and judged again.
pub fn histories(bench: &mut Bench) -> anyhow::Result<()> {
    let Some(program) = programs::prepared(bench, "histories", tools::histories_judge()) else { return Ok(()) };
    run(bench, "histories", &mut Command::new(program), &[&paths::target().join("histories")])
}

/// Runs a program with the server's binary, a directory for its data, and more arguments.
fn run(bench: &mut Bench, suite: &str, program: &mut Command, more: &[&Path]) -> anyhow::Result<()> {
    let binary = bench.binary()?;
    let scratch = paths::scratch(suite)?;
    let output = Command::new("timeout")
        .arg("1200")
        .arg(program.get_program())
        .args(program.get_args())
        .arg(&binary)
        .arg(scratch.path())
        .args(more)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {:?}", program.get_program()))?;
    let found = findings::parse(&String::from_utf8_lossy(&output.stdout));
    for (case, finding) in &found {
        match finding.strip_prefix("skip: ") {
            Some(why) => bench.tally.add(suite, case, Outcome::Skipped(why.to_string())),
            None if finding == "ok" => bench.tally.add(suite, case, Outcome::Passed),
            None => bench.tally.add(suite, case, Outcome::Failed(finding.clone())),
        }
    }
    if !output.status.success() || found.is_empty() {
        bail!("{program:?} ended with {} after {} cases", output.status, found.len());
    }
    Ok(())
}
