//! A private PostgreSQL, with its own data directory in a temporary directory. It is asked what it answers, not whether
//! it survives: it syncs nothing.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::{Address, Process, Programs};

const READY_MAX: Duration = Duration::from_secs(60);

/// The running server. Dropping it stops it and removes its data. Field order: it ends before its directory goes.
#[derive(Debug)]
pub struct Postgres {
    process: Mutex<Process>,
    pub address: Address,
    programs: Programs,
    settings: Vec<String>,
    directory: TempDir,
}

impl Postgres {
    /// Starts one with options of initdb and settings; `prepare` may change the data directory before, and sees to it that its
    /// files belong to the account.
    pub fn start(
        programs: Programs,
        address: Address,
        initdb: &[&str],
        settings: &[&str],
        prepare: impl FnOnce(&Path, &Programs) -> anyhow::Result<()>,
    ) -> anyhow::Result<Postgres> {
        // The path of a socket has at most 107 bytes, and the account must reach it.
        let directory = tempfile::Builder::new().prefix("holdfast-postgres-").tempdir_in("/tmp")?;
        programs.account.own(directory.path())?;
        let data = directory.path().join("data");
        programs.initdb(&data, initdb)?;
        prepare(&data, &programs)?;
        let settings: Vec<String> =
            ["fsync=off", "timezone=UTC"].iter().chain(settings).map(|setting| (*setting).to_owned()).collect();
        let process = Mutex::new(serve(&programs, directory.path(), address, &settings)?);
        Ok(Postgres { process, address, programs, settings, directory })
    }

    /// Ends it as a power cut would, and starts it again.
    pub fn crash(&self) -> anyhow::Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.signal(Signal::QUIT)?;
        process.ended()?;
        *process = serve(&self.programs, self.directory.path(), self.address, &self.settings)?;
        Ok(())
    }

    /// It reads its configuration again.
    pub fn reload(&self) -> anyhow::Result<()> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).signal(Signal::HUP)
    }

    /// The directory of its socket, with its log.
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// Its data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }
}

/// Starts the server, and returns when it takes connections.
fn serve(programs: &Programs, directory: &Path, address: Address, settings: &[String]) -> anyhow::Result<Process> {
    let data = directory.join("data");
    let command = programs.server(&data, address, Some(directory), settings);
    // SIGQUIT is PostgreSQL's immediate stop; it takes its own children along.
    let mut process = Process::start("PostgreSQL", command, &directory.join("log"), Signal::INT, Signal::QUIT)?;
    let pid = process.pid().to_string();
    process.wait_until(READY_MAX, || is_up(&data.join("postmaster.pid"), &pid))?;
    Ok(process)
}

/// Succeeds when the server's file says that this process takes connections. It may listen on no port.
fn is_up(file: &Path, pid: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let mut lines = text.lines();
    ensure!(lines.next() == Some(pid), "the file is of another process");
    let state = lines.nth(6).context("it says nothing of its state yet")?;
    ensure!(state.trim() == "ready", "it is {state}");
    Ok(())
}
