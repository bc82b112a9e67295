//! `cargo xtask fuzz`: the fuzz targets in `fuzz/`, driven with seeded mutations of their corpora.

use std::process::Command;

use anyhow::Context as _;

use crate::paths;

/// `cargo xtask fuzz`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask fuzz --minutes 60
  cargo xtask fuzz --minutes 10 --target wire --seed 7

An input that panics, aborts or hangs is kept in the root of the repository as fuzz-TARGET-SEED-NUMBER, or -running when
it ended the run; the exit code is 1 then.")]
pub struct Arguments {
    /// Minutes in all, shared by the targets
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Repeats an earlier run's inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the targets. True when no input failed.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--release", "-p", "holdfast-fuzz", "--"]).current_dir(paths::root());
    cargo.args(["--minutes", &arguments.minutes.to_string(), "--seed", &arguments.seed.to_string()]);
    cargo.args(arguments.target.iter().flat_map(|target| ["--target", target]));
    Ok(cargo.status().context("starting cargo")?.success())
}
