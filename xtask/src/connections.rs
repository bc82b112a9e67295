//! Measures what a new connection, TLS and thousands of idle sessions cost, with PostgreSQL in the same run.
//!
//! | case | what pgbench does |
//! |---|---|
//! | new connection | one client, `-C`: connect, `SELECT 1`, disconnect; PostgreSQL and Holdfast in turn, round by round |
//! | TLS under load | the card authorization by pipeline, over TLS and in plain text in turn |
//! | idle sessions | the card authorization before and while the given number of sessions is open and silent |
//!
//! The client is the same libpq for both servers, with the same certificate, the same `pg_hba.conf` and the same cipher.
//! What counts are the medians of the rounds. Failure: a program that is missing or fails ends the command with the cause.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::paired::{load, rate_printed};
use crate::server::with_tls::{Certificates, holdfast_with_tls, postgres_with_tls};
use crate::server::{self, Address, Holdfast, Postgres};
use crate::{paths, tools};

/// `cargo xtask connections`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask connections --seconds 5 --rounds 7

Ratios below 1 mean that Holdfast is faster. Stop other work on the machine first.")]
pub struct Arguments {
    /// The server's binary, instead of building it
    #[arg(long, value_name = "FILE")]
    server: Option<std::path::PathBuf>,
    /// Seconds each measurement lasts
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Measurements of each server for each case
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// pgbench clients of the load
    #[arg(long, default_value_t = 40)]
    clients: u32,
    /// Sessions that are open and silent; 0 leaves this case out
    #[arg(long, default_value_t = 5000)]
    idle: usize,
}

/// Descriptors for everything but the idle sessions, each of which has a socket here and one in the server.
const DESCRIPTORS_SPARE: u64 = 500;

const SET_UP: &str = "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'open sesame'";

/// How a client connects: the name, its role, libpq's options in the environment.
struct Way {
    name: &'static str,
    user: &'static str,
    tls: bool,
}

const PLAIN: Way = Way { name: "trust, plain", user: "holdfast", tls: false };
const TLS: Way = Way { name: "SCRAM over TLS", user: "app", tls: true };

struct Servers {
    postgres: Postgres,
    holdfast: Holdfast,
    certificates: Certificates,
    scratch: tempfile::TempDir,
}

/// Measures every case and prints the tables. Always true: the reader judges.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql", "pgbench"])?;
    raise_descriptors(arguments.idle as u64 * 2 + DESCRIPTORS_SPARE)?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let mut servers = Servers::start(&binary, arguments)?;
    std::fs::write(servers.scratch.path().join("one.sql"), "SELECT 1;\n")?;
    new_connections(&servers, arguments)?;
    tls_under_load(&servers, arguments)?;
    if arguments.idle > 0 {
        idle_sessions(&mut servers, arguments)?;
    }
    Ok(true)
}

impl Servers {
    fn start(binary: &Path, arguments: &Arguments) -> anyhow::Result<Servers> {
        let (certificates, scratch) = (Certificates::make()?, paths::scratch("connections")?);
        let postgres = postgres_with_tls(&certificates, &["fsync=on", "max_connections=200"], SET_UP)?;
        let settings = format!("\nconnections_max = {}\n", arguments.idle + 200);
        let data = scratch.path().join("data");
        let holdfast = holdfast_with_tls(binary, &data, &certificates, &settings, SET_UP)?;
        load(postgres.address)?;
        load(holdfast.address)?;
        Ok(Servers { postgres, holdfast, certificates, scratch })
    }

    fn pgbench(&self, address: Address, way: &Way, arguments: &[&str]) -> anyhow::Result<f64> {
        let mut command = Command::new("pgbench");
        command.arg("-n").args(arguments).current_dir(paths::client("pgbench")).envs(address.environment("holdfast"));
        command.env("PGHOST", "localhost").env("PGUSER", way.user).env("PGPASSWORD", "open sesame");
        command.env("PGSSLMODE", if way.tls { "verify-full" } else { "disable" });
        command.env("PGSSLROOTCERT", self.certificates.file("ca.crt"));
        let output = command.output().context("starting pgbench")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("pgbench failed, {}: {}", way.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        rate_printed(&text).with_context(|| format!("pgbench printed no rate: {text}"))
    }

    /// Authorizations a second.
    fn authorizations(&self, address: Address, way: &Way, of: &Arguments) -> anyhow::Result<f64> {
        let (clients, seconds) = (of.clients.to_string(), of.seconds.to_string());
        let script = ["-M", "prepared", "-c", &clients, "-j", "2", "-T", &seconds, "-f", "authorization/pipeline.sql"];
        self.pgbench(address, way, &script)
    }
}

/// The time from connecting to the first answer, and the end of the connection.
fn new_connections(servers: &Servers, of: &Arguments) -> anyhow::Result<()> {
    println!("\n{:20} {:>12} {:>12} {:>8}", "new connection", "PostgreSQL", "Holdfast", "ratio");
    let (script, seconds) = (servers.scratch.path().join("one.sql").display().to_string(), of.seconds.to_string());
    for way in [PLAIN, TLS] {
        let milliseconds = |address| {
            let rate = servers.pgbench(address, &way, &["-C", "-c", "1", "-T", &seconds, "-f", &script])?;
            anyhow::Ok(1000.0 / rate)
        };
        let pairs =
            in_turn(of.rounds, || milliseconds(servers.postgres.address), || milliseconds(servers.holdfast.address))?;
        let (theirs, ours) = medians(&pairs);
        println!("{:20} {theirs:9.3} ms {ours:9.3} ms {:8.2}", way.name, ours / theirs);
    }
    Ok(())
}

/// What TLS costs each server under load.
fn tls_under_load(servers: &Servers, of: &Arguments) -> anyhow::Result<()> {
    println!("\n{:20} {:>12} {:>12} {:>8}", "TLS under load", "plain tx/s", "TLS tx/s", "loss");
    for (name, address) in [("PostgreSQL", servers.postgres.address), ("Holdfast", servers.holdfast.address)] {
        let rate = |way| move || servers.authorizations(address, way, of);
        let pairs = in_turn(of.rounds, rate(&PLAIN), rate(&TLS))?;
        let (plain, tls) = medians(&pairs);
        println!("{name:20} {plain:12.0} {tls:12.0} {:7.1}%", 100.0 * (1.0 - tls / plain));
    }
    Ok(())
}

/// Memory and throughput with silent sessions.
fn idle_sessions(servers: &mut Servers, of: &Arguments) -> anyhow::Result<()> {
    let (address, pid) = (servers.holdfast.address, servers.holdfast.pid());
    let (resident_before, mut before, mut during) = (resident_bytes(pid)?, Vec::new(), Vec::new());
    for _ in 0..of.rounds {
        before.push(servers.authorizations(address, &PLAIN, of)?);
    }
    let sessions: Vec<TcpStream> = (0..of.idle).map(|_| open_session(address)).collect::<anyhow::Result<_>>()?;
    for _ in 0..of.rounds {
        during.push(servers.authorizations(address, &PLAIN, of)?);
    }
    let resident = resident_bytes(pid)?;
    drop(sessions);
    let (before, during) = (median(before), median(during));
    println!(
        "\n{} idle sessions: the server has {} MB resident, {} MB at its start; {before:.0} tx/s before, {during:.0} tx/s \
         with them, {:.1} % less",
        of.idle,
        resident >> 20,
        resident_before >> 20,
        100.0 * (1.0 - during / before)
    );
    Ok(())
}

/// A session that has been let in and has asked one question.
fn open_session(address: Address) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", address.port))?;
    let mut message = vec![0, 0, 0, 0, 0, 3, 0, 0];
    message.extend_from_slice(b"user\0holdfast\0database\0holdfast\0\0");
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_be_bytes());
    message.extend_from_slice(b"Q\0\0\0\x0dSELECT 1\0");
    stream.write_all(&message)?;
    let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
    // ReadyForQuery comes twice: after the start-up and after the answer.
    while input.windows(6).filter(|bytes| *bytes == b"Z\0\0\0\x05I").count() < 2 {
        let n = stream.read(&mut buffer)?;
        ensure!(n > 0, "the server closed an idle session: {}", String::from_utf8_lossy(&input));
        input.extend_from_slice(&buffer[..n]);
    }
    Ok(stream)
}

/// Two measurements in turn, each first in every second round. One uncounted run each warms caches.
fn in_turn(
    rounds: u32,
    one: impl Fn() -> anyhow::Result<f64>,
    other: impl Fn() -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<(f64, f64)>> {
    one()?;
    other()?;
    (0..rounds)
        .map(|round| {
            if round % 2 == 0 {
                return Ok((one()?, other()?));
            }
            let second = other()?;
            Ok((one()?, second))
        })
        .collect()
}

fn medians(pairs: &[(f64, f64)]) -> (f64, f64) {
    (median(pairs.iter().map(|p| p.0).collect()), median(pairs.iter().map(|p| p.1).collect()))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Memory of a process that is not shared with its files: `VmRSS` in /proc/PID/status.
fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).context("/proc has no VmRSS")
}

/// Lets this process open `wanted` descriptors; the server, its child, inherits the limit.
fn raise_descriptors(wanted: u64) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        ensure!(
            limit.maximum.is_none_or(|maximum| maximum >= wanted),
            "{wanted} descriptors are needed and the hard limit is lower (ulimit -Hn): use a smaller --idle"
        );
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}
