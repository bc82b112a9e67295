//! Injects random faults into a cluster while clients record histories, and has these checked: `tests/peers/cluster_test.py`, which
//! describes how.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{paths, server, tools};

/// `cargo xtask cluster-test`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask cluster-test --rounds 20
  cargo xtask cluster-test --rounds 100 --seed 7

About 10 s a round. The exit code is 1 when an answer is wrong: a lost commit, a stale read, a commit by a deposed master. The
histories that are not explained stay in target/cluster-test. Needs Python 3 and Go.")]
pub struct Arguments {
    /// How many faults
    #[arg(long, value_name = "N", default_value_t = 100)]
    rounds: u32,
    /// 2: two servers and a witness; 3: three servers, whose commits wait for any one of the other two
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=3))]
    servers: u32,
    /// Repeats the faults and moments of an earlier run
    #[arg(long)]
    seed: Option<u32>,
    /// Only this fault; may be given several times
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when every history has an order that explains it.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["python3"])?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut program = Command::new("python3");
    program.arg("-B").arg(paths::root().join("tests/peers/cluster_test.py")).arg("--holdfast").arg(binary);
    program.arg("--judge").arg(tools::histories_judge()?).arg("--keep").arg(paths::target().join("cluster-test"));
    program.args(["--rounds", &arguments.rounds.to_string(), "--servers", &arguments.servers.to_string()]);
    arguments.seed.iter().for_each(|seed| _ = program.args(["--seed", &seed.to_string()]));
    arguments.only.iter().for_each(|fault| _ = program.args(["--only", fault]));
    Ok(program.status().context("starting python3")?.success())
}
