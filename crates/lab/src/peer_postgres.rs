//! A private PostgreSQL: its own data directory, its own port, settings a person would choose for this load with
//! full durability. Nothing on the machine is changed.

use crate::interrupt;
use crate::machine;
use crate::pg_client::{Client, DATABASE, USER};
use crate::results::Fact;
use crate::server::{self, Kind, Peer};
use anyhow::Context;
use holdfast_testbed::{Address, Programs, run};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(60);

/// Starts a PostgreSQL whose files lie in `dir`.
pub fn start(dir: &Path) -> anyhow::Result<Peer> {
    start_with(dir, &[])
}

/// Starts a server with settings in addition to the usual ones.
pub fn start_with(dir: &Path, settings_more: &[(&'static str, String)]) -> anyhow::Result<Peer> {
    let programs = Programs::find()?;
    let data = home(&programs, dir)?.join("data");
    programs.initdb(&data, &["--no-locale"])?;
    let mut peer = serve(dir, dir, settings_more)?;
    let mut create = programs.command("createdb", dir);
    create.args(["-h", "127.0.0.1", "-p", &peer.addr.port().to_string(), "-U", USER, DATABASE]);
    run(create).context("cannot create the database")?;
    let version = peer.process.wait_while(START_MAX, interrupt::unless_interrupted, || version(peer.addr))?;
    peer.settings.insert(0, Fact::new("Version", version));
    Ok(peer)
}

/// Makes the directory that its files go into, below `dir`.
fn home(programs: &Programs, dir: &Path) -> anyhow::Result<PathBuf> {
    let home = dir.join("postgres");
    programs.account.make_dir(&home)?;
    programs.account.pass_through(dir)?;
    Ok(home)
}

/// Copies the running PostgreSQL at `from` to `dir`, as its standby with a replication slot of this name.
pub fn base_backup(dir: &Path, from: SocketAddr, slot: &str) -> anyhow::Result<()> {
    let programs = Programs::find()?;
    let home = home(&programs, dir)?;
    let mut copy = programs.command("pg_basebackup", &home);
    copy.arg("-D").arg(home.join("data")).args(["-h", "127.0.0.1", "-p", &from.port().to_string(), "-U", USER]);
    copy.args(["-R", "-X", "stream", "-c", "fast", "-C", "-S", slot]);
    run(copy).context("cannot copy PostgreSQL").map(|_| ())
}

/// Starts the PostgreSQL whose files [`start`] or [`base_backup`] has made in `dir`, with its log in the directory `log`
/// and settings in addition to the usual ones or in place of them.
pub fn serve(dir: &Path, log: &Path, settings_more: &[(&'static str, String)]) -> anyhow::Result<Peer> {
    let programs = Programs::find()?;
    let address = Address::free();
    let mut settings = settings();
    settings.retain(|(name, _)| settings_more.iter().all(|(other, _)| other != name));
    settings.extend_from_slice(settings_more);
    let words = settings.iter().map(|(name, value)| format!("{name}={value}"));
    // No socket in a directory: not every file system has them.
    let command = programs.server(&dir.join("postgres/data"), address, None, words);
    // SIGINT is PostgreSQL's fast shutdown.
    let mut process = server::process("PostgreSQL", command, &log.join("postgres.log"), Signal::INT)?;
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port));
    process.wait_while(START_MAX, interrupt::unless_interrupted, || ready(&programs, addr))?;
    let settings = settings.into_iter().map(|(name, value)| Fact::new(name, value)).collect();
    Ok(Peer { kind: Kind::Postgres, addr, settings, process })
}

fn ready(programs: &Programs, addr: SocketAddr) -> anyhow::Result<()> {
    TcpStream::connect(addr)?;
    let mut command = programs.command("pg_isready", Path::new("/"));
    command.args(["-q", "-h", "127.0.0.1", "-p", &addr.port().to_string()]);
    run(command).map(|_| ())
}

fn version(addr: SocketAddr) -> anyhow::Result<String> {
    let rows = Client::connect(addr)?.rows("show server_version")?;
    rows.into_iter().flatten().next().flatten().context("PostgreSQL returned no version")
}

/// Settings for this machine. Everything durability rests on is at its safe value and named here.
fn settings() -> Vec<(&'static str, String)> {
    let memory_mib = machine::meminfo_kib("MemTotal").unwrap_or(4 << 20) / 1024;
    let shared_mib = (memory_mib / 4).clamp(128, 8192);
    vec![
        ("fsync", "on".into()),
        ("synchronous_commit", "on".into()),
        ("full_page_writes", "on".into()),
        ("shared_buffers", format!("{shared_mib}MB")),
        ("effective_cache_size", format!("{}MB", memory_mib * 3 / 4)),
        ("wal_level", "minimal".into()),
        ("max_wal_senders", "0".into()),
        ("wal_buffers", "64MB".into()),
        ("min_wal_size", "2GB".into()),
        ("max_wal_size", "16GB".into()),
        ("checkpoint_timeout", "15min".into()),
        ("checkpoint_completion_target", "0.9".into()),
        ("random_page_cost", "1.1".into()),
        ("max_connections", "1100".into()),
        ("jit", "off".into()),
    ]
}
