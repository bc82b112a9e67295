//! PostgreSQL with pgBackRest.
//!
//! Both run as the user that PostgreSQL's server runs as, with all files in one directory. pgBackRest archives the WAL, with
//! the compression of its backups, and works asynchronously both ways.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use rustix::process::Signal;

use super::load::Dumper;
use super::{Arguments, bytes_below, run};
use crate::server::{self, Address, Process, Programs, is_ready};

/// What both PostgreSQL servers run with; the rest are PostgreSQL's defaults.
const SETTINGS: [&str; 4] = ["fsync=on", "shared_buffers=1GB", "max_wal_size=4GB", "max_connections=100"];

const READY_WAIT_MAX: Duration = Duration::from_secs(120);

pub struct Theirs {
    pub address: Address,
    dir: PathBuf,
    programs: Programs,
    workers: String,
    _server: Process,
}

impl Theirs {
    pub fn start(scratch: &Path, of: &Arguments) -> anyhow::Result<Theirs> {
        let (dir, programs, address) = (scratch.join("postgres"), Programs::find()?, Address::free());
        let account = programs.account;
        account.pass_through(scratch)?;
        for name in ["", "repo", "log", "lock", "spool", "base"] {
            account.make_dir(&dir.join(name))?;
        }
        programs.initdb(&dir.join("data"), &["--locale=C.UTF-8"])?;
        std::fs::write(dir.join("pgbackrest.conf"), configuration(&dir, address, of.workers))?;
        let archive =
            format!("pgbackrest --config={} --stanza=x archive-push %p", dir.join("pgbackrest.conf").display());
        let settings = ["archive_mode=on".to_owned(), format!("archive_command={archive}")];
        let mut server = serve(&programs, &dir, &dir.join("data"), address, &settings)?;
        server.wait_until(READY_WAIT_MAX, || {
            ensure!(is_ready(address.port), "it takes no connections");
            Ok(())
        })?;
        let theirs = Theirs { address, dir, programs, workers: of.workers.to_string(), _server: server };
        address.sql("postgres", &format!("CREATE DATABASE {}", server::USER))?;
        theirs.pgbackrest(&["stanza-create"])?;
        Ok(theirs)
    }

    fn pgbackrest(&self, words: &[&str]) -> anyhow::Result<()> {
        let config = format!("--config={}", self.dir.join("pgbackrest.conf").display());
        let mut command = self.programs.account.command(Path::new("pgbackrest"), &self.dir);
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
        let mut command = self.programs.command("pg_basebackup", &self.dir);
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
        let (data, address) = (self.dir.join("restored"), Address::free());
        let pg1_path = format!("--pg1-path={}", data.display());
        self.programs.account.make_dir(&data)?;
        rustix::fs::chmod(&data, rustix::fs::Mode::RWXU)?;
        let began = Instant::now();
        self.pgbackrest(&[&pg1_path, "--archive-mode=off", &format!("--process-max={}", self.workers), "restore"])?;
        let pages_seconds = began.elapsed().as_secs_f64();
        let server = serve(&self.programs, &self.dir, &data, address, &[])?;
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
    _server: Process,
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
fn serve(programs: &Programs, dir: &Path, data: &Path, address: Address, more: &[String]) -> anyhow::Result<Process> {
    let settings = SETTINGS.into_iter().chain(more.iter().map(String::as_str));
    let mut command = programs.server(data, address, Some(dir), settings);
    command.current_dir(dir);
    let log = dir.join(format!("log/postgres-{}", address.port));
    // SIGQUIT is PostgreSQL's immediate stop; it takes its own children along.
    Process::start("PostgreSQL", command, &log, Signal::INT, Signal::QUIT)
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
