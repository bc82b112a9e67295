//! PostgreSQL with pgBackRest.
//!
//! Both run as the user that PostgreSQL's server runs as, with all files in one directory. pgBackRest archives the WAL, with
//! the compression of its backups, and works asynchronously both ways.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::load::Dumper;
use super::{Arguments, bytes_below, run};
use crate::server::{self, Account, Address, as_account, initialise, is_ready};
use crate::tools;

/// What both PostgreSQL servers run with; the rest are PostgreSQL's defaults.
const SETTINGS: [&str; 5] =
    ["fsync=on", "shared_buffers=1GB", "max_wal_size=4GB", "listen_addresses=127.0.0.1", "max_connections=100"];

const READY_WAIT_MAX: Duration = Duration::from_secs(120);

pub struct Theirs {
    pub address: Address,
    dir: PathBuf,
    account: Account,
    workers: String,
    _server: Server,
}

impl Theirs {
    pub fn start(scratch: &Path, of: &Arguments) -> anyhow::Result<Theirs> {
        let (dir, account, address) = (scratch.join("postgres"), server::account()?, Address::free()?);
        open_to(scratch)?;
        for name in ["", "repo", "log", "lock", "spool", "base"] {
            std::fs::create_dir_all(dir.join(name))?;
            if let Some((user, group)) = account {
                chown(dir.join(name), Some(user), Some(group))?;
            }
        }
        let initdb = tools::find("initdb").context("initdb is not installed")?;
        initialise(&initdb, &dir.join("data"), account, &[])?;
        std::fs::write(dir.join("pgbackrest.conf"), configuration(&dir, address, of.workers))?;
        let archive =
            format!("pgbackrest --config={} --stanza=x archive-push %p", dir.join("pgbackrest.conf").display());
        let settings = ["archive_mode=on".to_owned(), format!("archive_command={archive}")];
        let server = Server::start(&dir, &dir.join("data"), address, account, &settings)?;
        let theirs = Theirs { address, dir, account, workers: of.workers.to_string(), _server: server };
        theirs.wait_until(|| Ok(is_ready(address.port)))?;
        address.sql("postgres", &format!("CREATE DATABASE {}", server::USER))?;
        theirs.pgbackrest(&["stanza-create"])?;
        Ok(theirs)
    }

    fn wait_until(&self, done: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let began = Instant::now();
        while !done()? {
            ensure!(
                began.elapsed() < READY_WAIT_MAX,
                "PostgreSQL is not ready, see {}",
                self.dir.join("log").display()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn pgbackrest(&self, words: &[&str]) -> anyhow::Result<()> {
        let config = format!("--config={}", self.dir.join("pgbackrest.conf").display());
        let mut command = as_account(Path::new("pgbackrest"), self.account, &self.dir);
        run(command.args([&config, "--stanza=x"]).args(words)).map(drop)
    }

    pub fn database_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.address.sql(server::USER, "SELECT pg_database_size('holdfast')")?.parse()?)
    }

    /// A full backup; the one before it goes.
    pub fn full(&self) -> anyhow::Result<()> {
        self.pgbackrest(&["--type=full", "backup"])
    }

    pub fn incremental(&self) -> anyhow::Result<()> {
        self.pgbackrest(&["--type=incr", "backup"])
    }

    /// The other way to back PostgreSQL up, with one worker: it has no more.
    pub fn basebackup(&self) -> anyhow::Result<()> {
        let to = self.dir.join("base/backup");
        if to.exists() {
            std::fs::remove_dir_all(&to)?;
        }
        let mut command = as_account(Path::new("pg_basebackup"), self.account, &self.dir);
        command.envs(self.address.environment(server::USER)).args(["--checkpoint=fast", "--format=tar"]);
        run(command.args(["--compress=client-zstd:level=1", "-D"]).arg(&to))?;
        Ok(std::fs::remove_dir_all(&to)?)
    }

    /// Bytes of the backups, without the WAL.
    pub fn stored_bytes(&self) -> anyhow::Result<u64> {
        bytes_below(&self.dir.join("repo/backup"))
    }

    /// Waits until everything committed so far is in the archive.
    pub fn archive_all(&self) -> anyhow::Result<()> {
        let segment = self.address.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())")?;
        loop {
            let last = self.address.sql("postgres", "SELECT last_archived_wal FROM pg_stat_archiver")?;
            if last.as_str() >= segment.as_str() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Restores the newest backup and rolls it forward to the archive's end; up to the first answer of a server that may write.
    pub fn restore(&self) -> anyhow::Result<Restarted> {
        let (data, address) = (self.dir.join("restored"), Address::free()?);
        let pg1_path = format!("--pg1-path={}", data.display());
        std::fs::create_dir(&data)?;
        if let Some((user, group)) = self.account {
            chown(&data, Some(user), Some(group))?;
        }
        rustix::fs::chmod(&data, rustix::fs::Mode::RWXU)?;
        let began = Instant::now();
        self.pgbackrest(&[&pg1_path, "--archive-mode=off", &format!("--process-max={}", self.workers), "restore"])?;
        let pages_seconds = began.elapsed().as_secs_f64();
        let server = Server::start(&self.dir, &data, address, self.account, &[])?;
        // It answers readers before it has applied everything.
        while address.sql("postgres", "SELECT pg_is_in_recovery()").as_deref().unwrap_or("t") != "f" {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Restarted { address, _server: server, data, pages_seconds, seconds: began.elapsed().as_secs_f64() })
    }
}

impl Dumper for Theirs {
    fn full_dump(&self) -> anyhow::Result<()> {
        self.full()
    }
}

/// A restored server, which goes with its directory.
pub struct Restarted {
    pub address: Address,
    _server: Server,
    data: PathBuf,
    /// Of the backup's files.
    pub pages_seconds: f64,
    /// Altogether.
    pub seconds: f64,
}

impl Drop for Restarted {
    fn drop(&mut self) {
        // The scratch directory goes at the end in any case; the server ends when it misses its files.
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// A `postgres` that is stopped at once when it is dropped.
struct Server(Child);

impl Server {
    fn start(dir: &Path, data: &Path, address: Address, account: Account, more: &[String]) -> anyhow::Result<Server> {
        let postgres = tools::find("postgres").context("PostgreSQL's server is not installed")?;
        let mut command = as_account(&postgres, account, dir);
        command.arg("-D").arg(data).args(["-p", &address.port.to_string()]);
        command.args(["-c", &format!("unix_socket_directories={}", dir.display())]);
        for setting in SETTINGS.into_iter().chain(more.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        let log = File::create(dir.join(format!("log/postgres-{}", address.port)))?;
        Ok(Server(command.stdout(Stdio::null()).stderr(log).spawn().context("starting PostgreSQL")?))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGQUIT is PostgreSQL's immediate stop; it takes its own children along.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        let _ = self.0.wait();
    }
}

fn configuration(dir: &Path, address: Address, workers: u32) -> String {
    let dir = dir.display();
    format!(
        "[global]\nrepo1-path={dir}/repo\nlog-path={dir}/log\nlock-path={dir}/lock\nspool-path={dir}/spool\n\
         compress-type=zst\ncompress-level=1\nprocess-max={workers}\nstart-fast=y\narchive-async=y\n\
         repo1-retention-full=1\nlog-level-console=warn\n\n\
         [x]\npg1-path={dir}/data\npg1-port={port}\npg1-socket-path={dir}\npg1-user={user}\n",
        port = address.port,
        user = server::USER
    )
}

/// Lets PostgreSQL's user reach its directory below this one.
fn open_to(scratch: &Path) -> anyhow::Result<()> {
    use rustix::fs::Mode;
    Ok(rustix::fs::chmod(scratch, Mode::RWXU | Mode::XGRP | Mode::XOTH)?)
}
