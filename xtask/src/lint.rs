//! What looks at the sources without running them: `cargo xtask lint`, the first half of `cargo xtask check`.
//!
//! Format, Clippy, the server as a user builds it, the documentation's links, and, where cargo-deny is installed, licences and sources of dependencies.
//! Every step runs even when an earlier one has failed, so that one run shows everything.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::suites::FEATURES;
use crate::{paths, tools};

/// True when nothing was found.
pub fn run() -> anyhow::Result<bool> {
    let mut clean = step("format", cargo(&["fmt", "--all", "--check"]))?;
    let clippy = [&["clippy", "--workspace", "--all-targets", "--locked"][..], FEATURES, &["--", "-D", "warnings"]];
    clean &= step("clippy", cargo(&clippy.concat()))?;
    // What a user builds, without what the tests bring: a feature of a crate that only tests ask for is missing there.
    clean &= step("the server alone", cargo(&["check", "--locked", "--package", "holdfast"]))?;
    let mut doc = cargo(&[&["doc", "--workspace", "--no-deps", "--locked"][..], FEATURES].concat());
    // Links to private items are for those who read the sources, who are the readers of these pages.
    doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links");
    clean &= step("documentation", doc)?;
    match installed_deny() {
        // The advisories need the network; `cargo xtask deny` looks at them, too.
        Some(program) => clean &= step("dependencies", deny_command(program, &["bans", "licenses", "sources"]))?,
        None => println!("==== dependencies: skipped, cargo-deny is not installed; `cargo xtask deny` installs it"),
    }
    Ok(clean)
}

/// Checks licences, sources, duplicates and advisories with cargo-deny. Installs it below the target directory when it
/// is missing, which compiles for several minutes.
pub fn deny() -> anyhow::Result<bool> {
    let program = match installed_deny() {
        Some(program) => program,
        None => {
            let root = paths::tools().join("cargo");
            let install = cargo(&["install", "--locked", "cargo-deny", "--root", &root.display().to_string()]);
            if !step("installing cargo-deny", install)? {
                return Ok(false);
            }
            root.join("bin/cargo-deny")
        }
    };
    step("dependencies", deny_command(program, &[]))
}

fn installed_deny() -> Option<PathBuf> {
    tools::find("cargo-deny").or_else(|| Some(paths::tools().join("cargo/bin/cargo-deny")).filter(|file| file.exists()))
}

fn deny_command(program: PathBuf, what: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--workspace", "check"]).args(what).current_dir(paths::root());
    command
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).current_dir(paths::root());
    command
}

/// Runs one step; its output goes to the terminal.
fn step(name: &str, mut command: Command) -> anyhow::Result<bool> {
    let started = Instant::now();
    println!("==== {name}");
    let status = command.status().with_context(|| format!("starting {:?}", command.get_program()))?;
    let outcome = if status.success() { "passed" } else { "FAILED" };
    println!("  {name} {outcome} in {:.1} s", started.elapsed().as_secs_f64());
    Ok(status.success())
}
