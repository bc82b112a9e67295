//! Measures how long a cluster accepts no commits when its master is lost, and how long Patroni does: `tests/peers/takeovers.py`,
//! which describes how.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{paths, server, tools};

/// `cargo xtask takeovers`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask takeovers
  cargo xtask takeovers --only server --rounds 5 --peer holdfast

The last lines are the table of docs/cluster.md. The exit code is 1 when an acknowledged row is missing. Needs Python 3; for
Patroni also patroni, etcd and PostgreSQL's server. Takes about an hour; stop other work on the machine first.")]
pub struct Arguments {
    /// Only this cluster: holdfast or patroni; may be given several times
    #[arg(long, value_name = "NAME")]
    peer: Vec<String>,
    /// Only this fault: server, node, frozen, switchover or stop; may be given several times
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// How often each fault happens
    #[arg(long, value_name = "N", default_value_t = 30)]
    rounds: u32,
    /// How often it happens to Patroni [default: as often]
    #[arg(long, value_name = "N")]
    peer_rounds: Option<u32>,
    /// Patroni's ttl in seconds; 20 is its lowest
    #[arg(long, value_name = "S", default_value_t = 30)]
    ttl: u32,
    /// Write every round here, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when nothing acknowledged was missing.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["python3"])?;
    if arguments.peer.is_empty() || arguments.peer.iter().any(|peer| peer == "patroni") {
        tools::require(&["patroni", "etcd", "postgres"])?;
    }
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut program = Command::new("python3");
    program.arg("-B").arg(paths::root().join("tests/peers/takeovers.py")).arg("--holdfast").arg(binary);
    arguments.peer.iter().for_each(|peer| _ = program.args(["--peer", peer]));
    arguments.only.iter().for_each(|fault| _ = program.args(["--only", fault]));
    program.args(["--rounds", &arguments.rounds.to_string(), "--ttl", &arguments.ttl.to_string()]);
    arguments.peer_rounds.iter().for_each(|rounds| _ = program.args(["--peer-rounds", &rounds.to_string()]));
    arguments.json.iter().for_each(|file| _ = program.arg("--json").arg(file));
    Ok(program.status().context("starting python3")?.success())
}
