//! Disturbs a loaded cluster for hours by what must not cost its master its place: `tests/peers/cluster_soak.py`, which describes how.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{paths, server, tools};

/// `cargo xtask cluster-soak`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cluster-soak --hours 0.1
  cargo xtask cluster-soak --hours 4 --seed 7

Processes are stopped for up to 400 ms, syncs take up to 500 ms, and loops keep the cores busy. The exit code is 1 when the master was
replaced, or an acknowledged row is missing. The last lines have the least that was left of the lease. Needs Python 3 and FUSE.")]
pub struct Arguments {
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    hours: f64,
    /// Repeats the disturbances of an earlier run
    #[arg(long)]
    seed: Option<u32>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when the master has stayed, and nothing acknowledged was missing.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["python3"])?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut program = Command::new("python3");
    program.arg("-B").arg(paths::root().join("tests/peers/cluster_soak.py")).arg("--holdfast").arg(binary);
    program.args(["--hours", &arguments.hours.to_string()]);
    arguments.seed.iter().for_each(|seed| _ = program.args(["--seed", &seed.to_string()]));
    Ok(program.status().context("starting python3")?.success())
}
