//! A private `holdfast serve`: the server program as a child, with its own data directory and port.

use crate::interrupt;
use crate::pg_client::Client;
use crate::results::Fact;
use crate::server::{self, Kind, Peer};
use anyhow::Context;
use holdfast_testbed::{Address, Holdfast};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(60);

/// Starts `program serve` with its data in `dir` and the default settings.
pub fn start(program: &Path, dir: &Path) -> anyhow::Result<Peer> {
    start_with(program, dir, "")
}

/// Starts `program serve` with its data in `dir` and `settings` in its holdfast.toml; with none it writes the defaults.
pub fn start_with(program: &Path, dir: &Path, settings: &str) -> anyhow::Result<Peer> {
    start_logging(program, dir, settings, dir)
}

/// Starts `program serve` as `start_with` does, with its log in the directory `log`.
pub fn start_logging(program: &Path, dir: &Path, settings: &str, log: &Path) -> anyhow::Result<Peer> {
    anyhow::ensure!(
        program.is_file(),
        "the server program {} does not exist; build it with `cargo build --release`, or name one with --server FILE",
        program.display()
    );
    let data = dir.join("holdfast");
    if !settings.is_empty() {
        std::fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
        std::fs::write(data.join("holdfast.toml"), settings).context("cannot write holdfast.toml")?;
    }
    let address = Address::free();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port));
    let command = Holdfast::command(program, &data, address);
    let mut process = server::process("holdfast serve", command, &log.join("holdfast.log"), Signal::TERM)?;
    process.wait_while(START_MAX, interrupt::unless_interrupted, || Client::connect(addr).map(|_| ()))?;
    let settings = vec![
        Fact::new("Version", env!("CARGO_PKG_VERSION")),
        Fact::new("Settings", "defaults: every answer durable on this node"),
    ];
    Ok(Peer { kind: Kind::Holdfast, addr, settings, process })
}
