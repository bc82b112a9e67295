//! `holdfast serve`: runs a server on a data directory.

use crate::logs;
use anyhow::Context;
use holdfast_node::Config;
use holdfast_node::config::{FILE_NAME, Listen};
use holdfast_node::data_dir::{FirstStart, private_umask};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Serve the databases of a data directory to PostgreSQL clients
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data ./holdfast-data --listen localhost:5433
  psql -h localhost -p 5433 -U holdfast

The directory is made when it does not exist, with the databases holdfast and postgres and a commented holdfast.toml; only
its owner can read it. When clients can connect, `holdfast: ready on HOST:PORT` is printed. Logs go to stderr, or into
log_directory; `log` in holdfast.toml sets what is logged. SIGHUP reads it and the files of TLS again. SIGTERM stops cleanly.
Addresses that other machines reach need TLS: see `holdfast cert server --help`.")]
pub struct Arguments {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Hosts and ports for clients, separated by commas; *:PORT is every address, port 0 any free one [default: from
    /// holdfast.toml, else 127.0.0.1:5433]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<Listen>,
    /// A second data directory on another disk, kept equal: no commit is acknowledged before both have it [default: from
    /// holdfast.toml, else none]
    #[arg(long, value_name = "DIR")]
    mirror: Option<PathBuf>,
    /// Serve as the master although the control plane knows that this directory lacks acknowledged commits: they are lost
    #[arg(long)]
    accept_divergence: bool,
    /// Write logs as JSON, one object per line
    #[arg(long)]
    log_json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    private_umask();
    let made: Vec<FirstStart> = [Some(&arguments.data), arguments.mirror.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|dir| FirstStart::of(dir))
        .collect();
    let is_ready = Cell::new(false);
    let served = serve(arguments, &is_ready);
    if served.is_err() && !is_ready.get() {
        // No client was served: what a first start has made holds nothing.
        made.into_iter().for_each(FirstStart::undo);
    }
    served
}

fn serve(arguments: Arguments, is_ready: &Cell<bool>) -> anyhow::Result<()> {
    let data: &Path = &arguments.data;
    let is_new = !data.join(FILE_NAME).exists() && !data.join("trail").exists();
    let mut config = Config::load(data)?;
    logs::start(arguments.log_json, Some((data, &config)))?;
    if is_new {
        let dir = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        tracing::info!("made a new, empty data directory: {} (--data names another)", dir.display());
    }
    if let Some(listen) = arguments.listen {
        config.listen = listen;
    }
    if let Some(mirror) = arguments.mirror {
        config.set_mirror(mirror)?;
    }
    config.accept_divergence = arguments.accept_divergence;
    let ready = |address| {
        is_ready.set(true);
        println!("holdfast: ready on {address}");
    };
    holdfast_node::serve(data, config, &ready).with_context(|| format!("cannot serve {}", data.display()))
}
