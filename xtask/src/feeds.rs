//! Measures logical replication, between Holdfasts, between PostgreSQLs and mixed: `tests/peers/feeds.py`, which describes how.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{paths, server, tools};

/// `cargo xtask feeds`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask feeds
  cargo xtask feeds --pair hh --pair pp --seconds 20
  cargo xtask feeds --pair hh --pair hp --pair ph --soak 300

The last lines are a table in Markdown. The exit code is 1 when a publisher and its subscriber are not equal at the end. Needs Python 3
and PostgreSQL 15 with pgbench. Takes about ten minutes; stop other work on the machine first.")]
pub struct Arguments {
    /// Only this pair, publisher first: hh, pp, hp or ph; may be given several times
    #[arg(long, value_name = "PAIR")]
    pair: Vec<String>,
    /// How long each load runs
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u32,
    /// How often the load runs without and with a subscriber
    #[arg(long, value_name = "N", default_value_t = 3)]
    turns: u32,
    /// The size of the table that is copied
    #[arg(long, value_name = "MB", default_value_t = 300)]
    copy_mb: u32,
    /// Instead: so many seconds of load while the link is cut and servers are killed; every row is compared at the end
    #[arg(long, value_name = "S", default_value_t = 0)]
    soak: u32,
    /// Measure this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when all pairs were equal.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["python3", "postgres", "pgbench"])?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut program = Command::new("python3");
    program.arg("-B").arg(paths::root().join("tests/peers/feeds.py")).arg("--holdfast").arg(binary);
    arguments.pair.iter().for_each(|pair| _ = program.args(["--pair", pair]));
    program.args(["--seconds", &arguments.seconds.to_string(), "--turns", &arguments.turns.to_string()]);
    program.args(["--copy-mb", &arguments.copy_mb.to_string()]);
    program.args(["--soak", &arguments.soak.to_string()]);
    Ok(program.status().context("starting python3")?.success())
}
