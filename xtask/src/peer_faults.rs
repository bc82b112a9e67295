//! What Holdfast, SQLite and PostgreSQL do about each fault of the disk: `tests/peers/faults.py`, which says how it works.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::{paths, server, tools};

/// `cargo xtask peer-faults`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask peer-faults
  cargo xtask peer-faults --peer sqlite --only \"kill -9\" --only \"full disk\"

The last lines are rows for docs/faults.md. The exit code is 1 when a fault did not fire, or when Holdfast lost something
without a word. Needs /dev/fuse, Python 3, psql, sqlite3 and PostgreSQL's server.")]
pub struct Arguments {
    /// Only this database: holdfast, sqlite or postgres; may be given several times
    #[arg(long, value_name = "NAME")]
    peer: Vec<String>,
    /// Only this fault; may be given several times
    #[arg(long, value_name = "FAULT")]
    only: Vec<String>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when everything was measured and Holdfast kept its promise.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["python3", "psql", "sqlite3", "postgres"])?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut program = Command::new("python3");
    program.arg("-B").arg(paths::root().join("tests/peers/faults.py")).arg("--holdfast").arg(binary);
    arguments.peer.iter().for_each(|peer| _ = program.args(["--peer", peer]));
    arguments.only.iter().for_each(|fault| _ = program.args(["--only", fault]));
    Ok(program.status().context("starting python3")?.success())
}
