//! A private PostgreSQL: the oracle the client programs are compared with.
//!
//! It has its own data directory in a temporary directory, listens on a free loopback port and ends with this
//! process. PostgreSQL refuses to run as root, so root runs it as the user `postgres` (or `nobody`).

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::{Address, USER, probe};
use crate::tools;

const READY_WAIT_MAX: Duration = Duration::from_secs(60);

/// User and group to run as; `None`: those of this process.
pub type Account = Option<(u32, u32)>;

/// The running oracle. Dropping it stops it and removes its data.
pub struct Postgres {
    child: Child,
    pub address: Address,
    _directory: tempfile::TempDir,
}

impl Postgres {
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[], |_, _| Ok(()))
    }

    /// Starts it with more options; `prepare` may write into the data directory before, and gets the account to which its
    /// files must belong.
    pub fn start_with(
        options: &[&str],
        prepare: impl FnOnce(&Path, Account) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let initdb = tools::find("initdb").context("PostgreSQL's server is not installed (initdb not found)")?;
        let postgres = tools::find("postgres").context("PostgreSQL's server is not installed (postgres not found)")?;
        let directory = tempfile::Builder::new().prefix("holdfast-oracle-").tempdir()?;
        let account = account()?;
        if let Some((user, group)) = account {
            chown(directory.path(), Some(user), Some(group))?;
        }
        let data = directory.path().join("data");
        initialise(&initdb, &data, account, &[])?;
        prepare(&data, account)?;
        let address = Address::free()?;
        let child = as_account(&postgres, account, directory.path())
            .arg("-D")
            .arg(&data)
            .args(["-p", &address.port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=100"])
            // The oracle is asked what it answers, not whether it survives.
            .args(["-c", "fsync=off", "-c", "timezone=UTC", "-c", "max_prepared_transactions=10"])
            .arg("-c")
            .arg(format!("unix_socket_directories={}", directory.path().display()))
            .args(options.iter().flat_map(|option| ["-c", option]))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log"))?)
            .spawn()
            .context("starting PostgreSQL")?;
        let mut server = Self { child, address, _directory: directory };
        server.wait_until_ready()?;
        server.address.sql("postgres", &format!("CREATE DATABASE {USER}"))?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        while !probe::is_ready(self.address.port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("PostgreSQL ended before it was ready ({status})");
            }
            if started.elapsed() > READY_WAIT_MAX {
                bail!("PostgreSQL is not ready after {READY_WAIT_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT is PostgreSQL's immediate stop; it takes its own children along.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.child.wait();
    }
}

/// Makes a data directory, unsynced.
pub fn initialise(initdb: &Path, data: &Path, account: Account, options: &[&str]) -> anyhow::Result<()> {
    let output = as_account(initdb, account, data.parent().expect("the data directory lies in one of ours"))
        .arg("-D")
        .arg(data)
        .args(["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"])
        .args(options)
        .output()
        .context("starting initdb")?;
    if !output.status.success() {
        bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A program to be run as that user, in `directory`.
pub fn as_account(program: &Path, account: Account, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null());
    if let Some((user, group)) = account {
        command.uid(user).gid(group);
    }
    command
}

/// The user and group to run as; none unless this process is root.
pub fn account() -> anyhow::Result<Account> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
    for name in ["postgres", "nobody"] {
        let entry = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name);
        if let Some(fields) = entry.filter(|fields| fields.len() > 3) {
            return Ok(Some((fields[2].parse()?, fields[3].parse()?)));
        }
    }
    bail!("PostgreSQL does not run as root and there is neither a user postgres nor nobody")
}
