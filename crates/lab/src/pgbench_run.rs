//! One run of pgbench, PostgreSQL's own benchmark program: the command, its end, what it printed.
//!
//! Failure: no pgbench on this machine, a client that pgbench gave up, a run that overstays; each with pgbench's own
//! words where it has some. A run that is dropped is stopped.

use crate::interrupt;
use crate::pg_client::{DATABASE, USER};
use crate::results::PgbenchResult;
use crate::server::Peer;
use anyhow::Context;
use holdfast_testbed::Programs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run may overstay its time by this before it is stopped.
const GRACE: Duration = Duration::from_secs(30);
/// How long filling the tables at a large scale may take.
const FILL_MAX: Duration = Duration::from_secs(1800);
/// Threads of pgbench.
const THREADS: usize = 2;

/// pgbench on this machine.
fn find() -> anyhow::Result<PathBuf> {
    let of_the_server = Programs::find().ok().map(|programs| programs.file("pgbench")).filter(|file| file.is_file());
    of_the_server
        .or_else(|| holdfast_testbed::find("pgbench"))
        .context("cannot find pgbench on the PATH or in /usr/lib/postgresql; install PostgreSQL's client programs")
}

/// pgbench counts whole seconds.
pub fn whole_seconds(seconds: f64) -> u64 {
    (seconds.ceil() as u64).max(1)
}

/// What each transaction is.
pub enum Script {
    /// A file of this text.
    Text(String),
    /// One that pgbench brings along, by name.
    Builtin(&'static str),
}

/// A run to be made.
pub struct Run<'a> {
    pub addr: SocketAddr,
    /// pgbench's -M.
    pub mode: &'static str,
    pub clients: usize,
    pub seconds: u64,
    pub script: Script,
    /// Where the script's file goes.
    pub dir: &'a Path,
}

/// A pgbench at work.
pub struct Running {
    /// None once it has ended and its output is read.
    child: Option<Child>,
    limit: Instant,
}

/// What pgbench printed, read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Printed {
    pub tps: f64,
    pub latency_mean_ms: f64,
    pub transactions: u64,
    pub failed: u64,
}

impl Run<'_> {
    /// Runs it at `peer`, whose address it has, to its end with the server's counters read before and after, and puts the figures into `result`.
    pub fn measure(&self, peer: &Peer, result: &mut PgbenchResult) -> anyhow::Result<Printed> {
        let before = peer.usage()?;
        let printed = self.start()?.finish()?;
        let (syncs, cpu_us) = peer.usage()?.since(&before, printed.transactions);
        result.tps = printed.tps;
        result.latency_mean_ms = printed.latency_mean_ms;
        result.failed = printed.failed;
        result.syncs_per_transaction = syncs;
        result.server_cpu_us = cpu_us;
        Ok(printed)
    }

    /// Starts it.
    pub fn start(&self) -> anyhow::Result<Running> {
        let threads = THREADS.min(self.clients).to_string();
        let mut command = command(self.addr)?;
        command.args(["-n", "-M", self.mode, "-c", &self.clients.to_string(), "-j", &threads]);
        command.args(["-T", &self.seconds.to_string(), "-D", "seq=0"]);
        match &self.script {
            Script::Builtin(name) => command.args(["-b", name]),
            Script::Text(text) => {
                let path = self.dir.join("script.sql");
                std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                command.arg("-f").arg(path)
            }
        };
        Running::spawn(command, Duration::from_secs(self.seconds) + GRACE)
    }
}

/// Makes and fills pgbench's tables.
pub fn fill(peer: &Peer, scale: u32) -> anyhow::Result<()> {
    let mut command = command(peer.addr)?;
    // Drop, tables, rows, primary keys; statistics are the server's own matter.
    command.args(["-i", "-q", "-I", "dtgp", "-s", &scale.to_string()]);
    Running::spawn(command, FILL_MAX)?.output().map(|_| ())
}

fn command(addr: SocketAddr) -> anyhow::Result<Command> {
    let mut command = Command::new(find()?);
    command.args(["-h", "127.0.0.1", "-p", &addr.port().to_string(), "-U", USER]).env("PGDATABASE", DATABASE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

impl Running {
    fn spawn(mut command: Command, longest: Duration) -> anyhow::Result<Running> {
        let child = command.spawn().context("cannot start pgbench")?;
        Ok(Running { child: Some(child), limit: Instant::now() + longest })
    }

    /// Waits for its end and reads its figures.
    pub fn finish(self) -> anyhow::Result<Printed> {
        let output = self.output()?;
        read(&output).with_context(|| format!("pgbench printed:\n{output}"))
    }

    /// Fails when it has ended already.
    pub fn still_at_work(&mut self) -> anyhow::Result<()> {
        let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
        anyhow::ensure!(ended.is_none(), "pgbench ended too early: {ended:?}");
        Ok(())
    }

    /// What it prints until its end; stops it when asked to or when it overstays.
    fn output(mut self) -> anyhow::Result<String> {
        while let Some(child) = &mut self.child
            && child.try_wait()?.is_none()
        {
            interrupt::check()?;
            anyhow::ensure!(Instant::now() < self.limit, "pgbench did not end in time");
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = self.child.take().context("pgbench is gone")?.wait_with_output()?;
        // Ctrl-C on a terminal reaches pgbench as well; then that is the reason.
        interrupt::check()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "pgbench failed: {}",
            errors.lines().find(|l| l.contains("error")).unwrap_or(&errors)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // It may have ended meanwhile; then there is nothing to kill.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn read(output: &str) -> anyhow::Result<Printed> {
    let after = |label: &str| {
        let rest = output.lines().find_map(|l| l.strip_prefix(label))?;
        let number: String = rest.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        number.parse::<f64>().ok()
    };
    let need = |label: &'static str| after(label).with_context(|| format!("no line starts with {label:?}"));
    Ok(Printed {
        tps: need("tps = ")?,
        latency_mean_ms: need("latency average = ")?,
        transactions: need("number of transactions actually processed: ")? as u64,
        // Older versions have no such line.
        failed: after("number of failed transactions: ").unwrap_or(0.0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let output = "transaction type: script.sql\nnumber of transactions actually processed: 62345\n\
                      number of failed transactions: 3 (0.005%)\nlatency average = 3.208 ms\n\
                      initial connection time = 40.1 ms\ntps = 12468.204671 (without initial connection time)\n";
        let expected = Printed { tps: 12468.204671, latency_mean_ms: 3.208, transactions: 62345, failed: 3 };
        assert_eq!(read(output).unwrap(), expected);
        assert!(read("pgbench: error: no").is_err());
    }

    #[test]
    fn a_dropped_run_is_gone() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let mut running = Running::spawn(command, Duration::from_secs(60)).unwrap();
        running.still_at_work().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", running.child.as_ref().unwrap().id()));
        assert!(proc.exists());
        drop(running);
        assert!(!proc.exists());
    }
}
