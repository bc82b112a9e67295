//! `holdfast serve`: runs a server on a data directory.

use crate::logs;
use anyhow::Context;
use holdfast_node::Config;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serve the databases of a data directory to PostgreSQL clients
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data ./holdfast-data --listen 127.0.0.1:5433
  psql -h 127.0.0.1 -p 5433 -U holdfast

The directory is made when it does not exist, with the databases holdfast and postgres and a commented holdfast.toml.
When clients can connect, `holdfast: ready on HOST:PORT` is printed; logs go to stderr, or where
log_directory says; SIGHUP opens their files again. SIGTERM stops cleanly.")]
pub struct Arguments {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Address and port for clients; port 0 takes any [default: from holdfast.toml, 127.0.0.1:5433]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<SocketAddr>,
    /// A second data directory on another disk, kept equal: no commit is acknowledged before both have it [default: from
    /// holdfast.toml, none]
    #[arg(long, value_name = "DIR")]
    mirror: Option<PathBuf>,
    /// Write logs as JSON, one object a line
    #[arg(long)]
    log_json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut config = Config::load(&arguments.data)?;
    logs::start(arguments.log_json, config.log_files(&arguments.data))?;
    if let Some(listen) = arguments.listen {
        config.listen = listen;
    }
    if let Some(mirror) = arguments.mirror {
        config.set_mirror(mirror)?;
    }
    let ready = |address| println!("holdfast: ready on {address}");
    holdfast_node::serve(&arguments.data, config, &ready)
        .with_context(|| format!("cannot serve {}", arguments.data.display()))
}
