//! Our server as a child process: start, stop, kill, and what its log says.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::Signal;

use super::{Address, probe};
use crate::paths;

/// Longer than any start here takes; only a server that hangs meets it.
const READY_WAIT_MAX: Duration = Duration::from_secs(120);

/// Longer than a last checkpoint takes here; only a server that hangs meets it.
const STOP_WAIT_MAX: Duration = Duration::from_secs(120);

/// Builds the server and returns the binary. Cargo's own messages go to the terminal.
pub fn build() -> anyhow::Result<PathBuf> {
    println!("==== building the server (release)");
    run_cargo(&["build", "--release", "--package", "holdfast"])?;
    Ok(paths::target().join("release/holdfast"))
}

/// Builds the server that can be told to break its promises, in a target directory of its own, so that it is never
/// taken for the real one.
pub fn build_sabotaged() -> anyhow::Result<PathBuf> {
    println!("==== building the server with the feature `sabotage` (release)");
    let target = paths::target().join("sabotage");
    let options = ["build", "--release", "--package", "holdfast", "--features", "sabotage", "--target-dir"];
    run_cargo(&[&options[..], &[&target.display().to_string()]].concat())?;
    Ok(target.join("release/holdfast"))
}

fn run_cargo(arguments: &[&str]) -> anyhow::Result<()> {
    let status =
        Command::new(env!("CARGO")).args(arguments).current_dir(paths::root()).status().context("starting cargo")?;
    if !status.success() {
        bail!("the server does not build: cargo {}", arguments.join(" "));
    }
    Ok(())
}

/// A running `holdfast serve`. Dropping it kills it.
pub struct Holdfast {
    child: Child,
    pub address: Address,
    log: PathBuf,
}

impl Holdfast {
    /// Starts the server on a data directory and waits until it takes connections.
    pub fn start(binary: &Path, data: &Path, address: Address) -> anyhow::Result<Self> {
        let mut server = Self::spawn(binary, data, address)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the process only. The log is appended to, beside the data directory.
    pub fn spawn(binary: &Path, data: &Path, address: Address) -> anyhow::Result<Self> {
        Self::spawn_with(binary, data, address, data.with_extension("log"), &[])
    }

    /// Starts the process with its log in another file and variables in its environment.
    pub fn spawn_with(
        binary: &Path,
        data: &Path,
        address: Address,
        log: PathBuf,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        let child = Command::new(binary)
            .args(["serve", "--data"])
            .arg(data)
            .args(["--listen", &format!("127.0.0.1:{}", address.port)])
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(File::try_clone(&file)?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        Ok(Self { child, address, log })
    }

    /// Waits until the server takes connections and returns how long that took.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        loop {
            if probe::is_ready(self.address.port) {
                return Ok(started.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended before it was ready ({status}):\n{}", self.log_tail());
            }
            if started.elapsed() > READY_WAIT_MAX {
                bail!("the server is not ready after {READY_WAIT_MAX:?}:\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// kill -9, and waits for the end of the process.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("killing the server")?;
        self.child.wait().context("waiting for the killed server")?;
        Ok(())
    }

    /// Stops the process where it is (SIGSTOP): it holds its port and says nothing.
    pub fn hang(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a process go on that hangs.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).with_context(|| format!("sending {signal:?} to the server"))
    }

    /// Asks for a clean stop (SIGTERM) and waits for the end.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        while asked.elapsed() < STOP_WAIT_MAX {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server still runs {STOP_WAIT_MAX:?} after SIGTERM:\n{}", self.log_tail());
    }

    /// The panics in the log; there must never be one.
    pub fn panics(&self) -> Vec<String> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains("panicked at")).map(str::to_string).collect()
    }

    /// The end of the log, for an error message.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Holdfast {
    fn drop(&mut self) {
        // A server that has ended already is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
