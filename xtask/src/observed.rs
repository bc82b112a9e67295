//! Measures what it costs to be observed and to check privileges: figures of one server against itself.
//!
//! | case | compared |
//! |---|---|
//! | statement statistics | throughput of a server with `statements_kept = 0` and of one with the default, in turn |
//! | privileges | throughput as the superuser, and as a role with just the grants it needs, in turn |
//! | metrics, console | processor time of the server's HTTP thread while `/metrics`, and then the console's state, is fetched each second under load |
//!
//! The load is the card authorization by pipeline. What counts is the median of the rounds' ratios. Failure: a program that is
//! missing or fails ends the command with the cause.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::paired::{load, rate_printed};
use crate::server::{self, Address, Holdfast};
use crate::{paths, tools};

/// `cargo xtask observed`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask observed --seconds 5 --rounds 9

Stop other work on the machine first.")]
pub struct Arguments {
    /// The server's binary, instead of building it
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Seconds each measurement lasts
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Measurements of each side
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    /// pgbench clients
    #[arg(long, default_value_t = 40)]
    clients: u32,
}

const SET_UP: &str = "CREATE ROLE app LOGIN PASSWORD 'open sesame'; CREATE ROLE watch LOGIN PASSWORD 'open sesame';
    GRANT pg_monitor TO watch; GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO app;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO app";

/// The name of the thread that serves HTTP.
const HTTP_THREAD: &str = "web";

/// The kernel counts processor time in hundredths of a second (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures every case and prints the results. Always true: the reader judges.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql", "pgbench"])?;
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?;
    let scratch = paths::scratch("observed")?;
    let http = Address::free();
    let start = |name: &str, settings: &str| start(&binary, &scratch.path().join(name), settings);
    let plain = start("plain", "statements_kept = 0\n")?;
    let counting = start("counting", &format!("http_listen = \"127.0.0.1:{}\"\n", http.port))?;
    let rate = |server: &Holdfast, user: &str| rate(server.address, user, arguments);
    let less = |a: f64, b: f64| 100.0 * (1.0 - b / a);
    let (without, with) = in_turn(arguments, || rate(&plain, "holdfast"), || rate(&counting, "holdfast"))?;
    println!("statement statistics: {without:.0} tx/s without, {with:.0} tx/s with, {:.1} % less", less(without, with));
    let (owner, granted) = in_turn(arguments, || rate(&counting, "holdfast"), || rate(&counting, "app"))?;
    println!(
        "privileges: {owner:.0} tx/s as superuser, {granted:.0} tx/s by grants, {:.1} % less",
        less(owner, granted)
    );
    http_cost(&counting, http.port, arguments)?;
    Ok(true)
}

fn start(binary: &Path, data: &Path, settings: &str) -> anyhow::Result<Holdfast> {
    let mut first = Holdfast::start(binary, data, Address::free())?;
    load(first.address)?;
    first.address.sql("holdfast", SET_UP)?;
    first.stop()?;
    let file = data.join("holdfast.toml");
    std::fs::write(&file, std::fs::read_to_string(&file)? + settings)?;
    Holdfast::start(binary, data, Address::free())
}

fn pgbench(address: Address, user: &str, of: &Arguments, seconds: u32) -> Command {
    let (clients, seconds) = (of.clients.to_string(), seconds.to_string());
    let mut command = Command::new("pgbench");
    command.args([
        "-n",
        "-M",
        "prepared",
        "-c",
        &clients,
        "-j",
        "2",
        "-T",
        &seconds,
        "-f",
        "authorization/pipeline.sql",
    ]);
    command.current_dir(paths::client("pgbench")).envs(address.environment("holdfast"));
    command.env("PGUSER", user).env("PGPASSWORD", "open sesame");
    command
}

/// Transactions a second.
fn rate(address: Address, user: &str, of: &Arguments) -> anyhow::Result<f64> {
    let output = pgbench(address, user, of, of.seconds).output().context("starting pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("pgbench failed as {user}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    rate_printed(&text).with_context(|| format!("pgbench printed no rate: {text}"))
}

/// Both sides in turn, after an uncounted run each: the first side's median, and the second's by the median ratio.
fn in_turn(
    of: &Arguments,
    one: impl Fn() -> anyhow::Result<f64>,
    other: impl Fn() -> anyhow::Result<f64>,
) -> anyhow::Result<(f64, f64)> {
    one()?;
    other()?;
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for round in 0..of.rounds {
        let (a, b) = if round % 2 == 0 {
            (one()?, other()?)
        } else {
            let b = other()?;
            (one()?, b)
        };
        rates.push(a);
        ratios.push(b / a);
    }
    let a = median(rates);
    Ok((a, a * median(ratios)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the HTTP thread takes while nothing, `/metrics`, and the console's state is fetched each second.
fn http_cost(server: &Holdfast, port: u16, of: &Arguments) -> anyhow::Result<()> {
    let seconds = of.seconds * 3;
    let cookie = log_in(port)?;
    let cases = [
        ("nothing", String::new()),
        ("/metrics", request("GET", "/metrics", "", "")),
        ("the console", request("GET", "/api/state", &format!("Cookie: {cookie}\r\n"), "")),
    ];
    for (name, request) in cases {
        let mut bench = pgbench(server.address, "holdfast", of, seconds + 2).stdout(Stdio::null()).spawn()?;
        sleep(Duration::from_secs(1));
        let (before, begun, mut bytes) = (http_ticks(server.pid())?, Instant::now(), 0);
        for second in 1..=seconds {
            if !request.is_empty() {
                bytes = ask(port, &request)?.len();
            }
            sleep(Duration::from_secs(second.into()).saturating_sub(begun.elapsed()));
        }
        let (ticks, elapsed) = (http_ticks(server.pid())? - before, begun.elapsed().as_secs_f64());
        let share = 100.0 * ticks / TICKS_PER_SECOND / elapsed;
        println!("{name} each second: {share:.2} % of a core, {bytes} bytes an answer");
        wait(&mut bench)?;
    }
    Ok(())
}

fn wait(bench: &mut Child) -> anyhow::Result<()> {
    let status = bench.wait()?;
    ensure!(status.success(), "pgbench failed: {status}");
    Ok(())
}

/// The cookie of a console session.
fn log_in(port: u16) -> anyhow::Result<String> {
    let body = r#"{"role":"watch","password":"open sesame"}"#;
    let answer = ask(port, &request("POST", "/api/login", "Content-Type: application/json\r\n", body))?;
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
    let cookie = cookie.with_context(|| format!("the console does not log in: {answer}"))?;
    Ok(cookie.to_owned())
}

fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

/// The whole answer, which must be one of success.
fn ask(port: u16, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 2"), "the server answers {answer}");
    Ok(answer)
}

/// User and system time of the HTTP thread, in ticks (fields 14 and 15 of /proc/PID/task/TID/stat).
fn http_ticks(pid: u32) -> anyhow::Result<f64> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() != HTTP_THREAD {
            continue;
        }
        let stat = std::fs::read_to_string(path.join("stat"))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let field = |i: usize| fields.get(i).and_then(|text| text.parse::<f64>().ok());
        return field(11).zip(field(12)).map(|(user, system)| user + system).context("/proc has no times");
    }
    bail!("the server has no thread named {HTTP_THREAD}")
}
