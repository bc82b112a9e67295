//! Our server, built for a test.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::paths;

/// Builds the server and returns the binary. Cargo's own messages go to the terminal.
pub fn build() -> anyhow::Result<PathBuf> {
    println!("==== building the server (release)");
    run_cargo(&["build", "--release", "--package", "holdfast"])?;
    Ok(paths::target().join("release/holdfast"))
}

/// Builds the server that breaks its promises on demand, in a target directory of its own, so that it is never
/// taken for the real one.
pub fn build_sabotaged() -> anyhow::Result<PathBuf> {
    println!("==== building the server with the feature `sabotage` (release)");
    let target = paths::target().join("sabotage");
    let options = ["build", "--release", "--package", "holdfast", "--features", "sabotage", "--target-dir"];
    run_cargo(&[&options[..], &[&target.display().to_string()]].concat())?;
    Ok(target.join("release/holdfast"))
}

fn run_cargo(arguments: &[&str]) -> anyhow::Result<()> {
    let status =
        Command::new(env!("CARGO")).args(arguments).current_dir(paths::root()).status().context("starting cargo")?;
    if !status.success() {
        bail!("the server does not build: cargo {}", arguments.join(" "));
    }
    Ok(())
}
