//! A `holdfast serve` as a child process.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::Signal;

use crate::{Address, Process, is_ready};

/// Longer than any start here takes; only a server that hangs meets it.
const READY_MAX: Duration = Duration::from_secs(120);

/// A running `holdfast serve`. Dropping it kills it.
#[derive(Debug)]
pub struct Holdfast {
    process: Process,
    pub address: Address,
}

impl Holdfast {
    /// Starts the server on a data directory and waits until it takes connections.
    pub fn start(binary: &Path, data: &Path, address: Address) -> anyhow::Result<Holdfast> {
        let mut server = Holdfast::spawn(binary, data, address)?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Starts the process only. The log is appended to; it is next to the data directory.
    pub fn spawn(binary: &Path, data: &Path, address: Address) -> anyhow::Result<Holdfast> {
        Holdfast::spawn_with(binary, data, address, data.with_extension("log"), &[])
    }

    /// Starts the process with its log in another file and variables in its environment.
    pub fn spawn_with(
        binary: &Path,
        data: &Path,
        address: Address,
        log: PathBuf,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Holdfast> {
        let mut command = Holdfast::command(binary, data, address);
        command.envs(environment.iter().copied());
        let process = Process::start("the server", command, &log, Signal::TERM, Signal::KILL)?;
        Ok(Holdfast { process, address })
    }

    /// `holdfast serve` on a data directory.
    pub fn command(binary: &Path, data: &Path, address: Address) -> Command {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", &address.at(), "--data"]).arg(data);
        command
    }

    /// Waits until the server takes connections and returns how long that took.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<Duration> {
        let (began, port) = (Instant::now(), self.address.port);
        self.process.wait_until(READY_MAX, || {
            ensure!(is_ready(port), "it takes no connections");
            Ok(())
        })?;
        Ok(began.elapsed())
    }
}

/// It is a process, with all that can be done with one.
impl Deref for Holdfast {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Holdfast {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
