//! Holdfast with an archive and a place for dumps.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Deserialize;

use super::load::Dumper;
use super::{Arguments, bytes_below, run};
use crate::server::{self, Address, Holdfast, Process};

/// The server, its archive and its dumps, in one directory.
pub struct Ours {
    binary: PathBuf,
    dir: PathBuf,
    workers: String,
    server: Holdfast,
}

/// What `holdfast dump create --json` prints.
#[derive(Deserialize)]
pub struct Dump {
    pub name: String,
    pub bytes: u64,
    pub stored_bytes: u64,
    pub seconds: f64,
}

/// What `holdfast restore --json` prints.
#[derive(Deserialize)]
pub struct Restored {
    pub bytes: u64,
    pub trail_bytes: u64,
    pub dump_seconds: f64,
    pub trail_seconds: f64,
}

impl Ours {
    pub fn start(binary: &Path, scratch: &Path, of: &Arguments) -> anyhow::Result<Ours> {
        let dir = scratch.join("holdfast");
        for name in ["archive", "dumps", "looks"] {
            std::fs::create_dir_all(dir.join(name))?;
        }
        let (data, address) = (dir.join("data"), Address::free());
        Holdfast::start(binary, &data, address)?.stop()?;
        let file = data.join("holdfast.toml");
        let archive = format!("\narchive = \"{}\"\n", dir.join("archive").display());
        std::fs::write(&file, std::fs::read_to_string(&file)? + &archive)?;
        let server = Holdfast::start(binary, &data, address)?;
        Ok(Ours { binary: binary.to_owned(), dir, workers: of.workers.to_string(), server })
    }

    pub fn address(&self) -> Address {
        self.server.address
    }

    pub fn database_bytes(&self) -> anyhow::Result<u64> {
        Ok(self.address().sql(server::USER, "SELECT pg_database_size('holdfast')")?.parse()?)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// A dump; a full one if the place is empty.
    pub fn dump(&self) -> anyhow::Result<Dump> {
        let at = self.address().at();
        let words = ["dump", "create", "--at", &at, "--to", "dumps", "--threads", &self.workers, "--json"];
        Ok(serde_json::from_str(&run(&mut self.command(&words))?)?)
    }

    /// Empties the place of dumps.
    pub fn forget_all(&self) -> anyhow::Result<()> {
        let dumps = self.dir.join("dumps");
        std::fs::remove_dir_all(&dumps)?;
        Ok(std::fs::create_dir(&dumps)?)
    }

    pub fn stored_bytes(&self) -> anyhow::Result<u64> {
        bytes_below(&self.dir.join("dumps"))
    }

    /// The name of the oldest dump.
    pub fn first_dump(&self) -> anyhow::Result<String> {
        let names = std::fs::read_dir(self.dir.join("dumps/dumps"))?.map(|entry| Ok(entry?.file_name()));
        let first = names.collect::<anyhow::Result<Vec<_>>>()?.into_iter().min().context("there is no dump")?;
        Ok(format!("dumps/{}", first.to_string_lossy()))
    }

    /// Waits until everything committed so far is in the archive.
    pub fn archive_all(&self) -> anyhow::Result<()> {
        self.address().sql(server::USER, "SELECT pg_switch_wal()")?;
        loop {
            let waiting = "SELECT waiting_bytes FROM holdfast_stat_archive";
            let before = self.address().sql(server::USER, waiting)?;
            if before.trim() == "0" {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Restores the newest dump and the archive; how long that took up to the first answer.
    pub fn restore(&self) -> anyhow::Result<(Restored, Restarted)> {
        let began = Instant::now();
        let words = ["restore", "--from", "dumps", "--data", "restored", "--threads", &self.workers, "--json"];
        let restored = serde_json::from_str(&run(&mut self.command(&words))?)?;
        let data = self.dir.join("restored");
        let file = data.join("holdfast.toml");
        let settings = std::fs::read_to_string(&file)?;
        // The restored server must not archive beside the one that still runs.
        let own = settings.lines().filter(|line| !line.starts_with("archive =")).collect::<Vec<_>>().join("\n");
        std::fs::write(&file, own)?;
        let server = Holdfast::start(&self.binary, &data, Address::free())?;
        let seconds = began.elapsed().as_secs_f64();
        Ok((restored, Restarted { server, data, seconds }))
    }

    /// Seconds from the start of `restore --serve` to the first answer about that table.
    pub fn look(&self, dump: &str, question: &str) -> anyhow::Result<f64> {
        let address = Address::free();
        let listen = address.at();
        let words = ["restore", "--from", "dumps", "--dump", dump, "--serve", &listen, "--scratch", "looks"];
        let began = Instant::now();
        let mut look = Process::announcing("restore --serve", self.command(&words), &self.dir.join("look.log"))?;
        look.announced_port()?;
        address.sql(server::USER, question)?;
        let seconds = began.elapsed().as_secs_f64();
        // It removes what it has fetched.
        look.stop()?;
        Ok(seconds)
    }

    /// Seconds of `trail find` for one row, and of `trail undo` of the newest change of it.
    pub fn find_and_undo(&self, table: &str, condition: &str) -> anyhow::Result<(f64, f64)> {
        #[derive(Deserialize)]
        struct Found {
            changes: Vec<Change>,
        }
        #[derive(Deserialize)]
        struct Change {
            transaction: u64,
        }
        let began = Instant::now();
        let words = ["trail", "find", "--data", "data", "--table", table, "--where", condition, "--json"];
        let found: Found = serde_json::from_str(&run(&mut self.command(&words))?)?;
        let find_seconds = began.elapsed().as_secs_f64();
        let newest = found.changes.last().context("trail find found nothing")?.transaction.to_string();
        let began = Instant::now();
        run(&mut self.command(&["trail", "undo", "--data", "data", "--transaction", &newest]))?;
        Ok((find_seconds, began.elapsed().as_secs_f64()))
    }
}

impl Dumper for Ours {
    fn full_dump(&self) -> anyhow::Result<()> {
        self.dump().map(drop)
    }
}

/// A server on a restored directory, which goes with it.
pub struct Restarted {
    server: Holdfast,
    data: PathBuf,
    /// From the start of the restore to the first answer.
    pub seconds: f64,
}

impl Restarted {
    pub fn address(&self) -> Address {
        self.server.address
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        // The scratch directory goes at the end in any case.
        let _ = self.server.kill();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}
