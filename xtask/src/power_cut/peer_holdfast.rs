//! Holdfast under a power-cut test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::breaks::{Break, VARIABLE};
use super::peer::{Peer, Start, started};
use super::wire::Clients;
use crate::recorder::{Databases, Verdict};
use crate::server::{self, Address};

/// Small segments and frequent checkpoints: more of what can go wrong between two cuts.
const SETTINGS: &str = "segment_bytes = 4194304\nredo_bytes_max = 1048576\nredo_time_max_ms = 20\n";

/// Each directory makes its trail durable in another way.
const SYNC_METHODS: [&str; 4] = ["open_direct_dsync", "fdatasync", "open_sync", "fsync"];

pub struct Holdfast {
    binary: PathBuf,
    broken: Option<Break>,
    data: PathBuf,
    log: PathBuf,
    server: Option<server::Holdfast>,
    clients: Clients,
    has_tables: bool,
}

impl Holdfast {
    pub fn new(binary: PathBuf, broken: Option<Break>) -> anyhow::Result<Holdfast> {
        let clients = Clients::new(Databases::Two)?;
        let (data, log) = (PathBuf::new(), PathBuf::new());
        Ok(Holdfast { binary, broken, data, log, server: None, clients, has_tables: false })
    }

    /// The flag matters to every second method only.
    fn method_step(&self) -> u32 {
        if self.broken == Some(Break::FcntlFlag) { 2 } else { 1 }
    }

    fn address(&self) -> anyhow::Result<Address> {
        Ok(self.server.as_ref().context("the server is not running")?.address)
    }
}

impl Peer for Holdfast {
    fn file_patterns(&self) -> &'static [&'static str] {
        &["*.segment", "*.db", "*.db-wal", "*"]
    }

    fn fresh(&mut self, mount: &Path, number: u32) -> anyhow::Result<()> {
        self.data = mount.join("data");
        self.log = mount.parent().context("the mount lies in a directory")?.join("holdfast.log");
        fs::write(&self.log, "")?;
        self.clients.forget();
        self.has_tables = false;
        // Each third directory has the defaults, its settings file written by the server itself.
        if number % 3 != 2 {
            fs::create_dir(&self.data)?;
            let method = SYNC_METHODS[(number * self.method_step()) as usize % SYNC_METHODS.len()];
            fs::write(self.data.join("holdfast.toml"), format!("{SETTINGS}sync_method = \"{method}\"\n"))?;
        }
        Ok(())
    }

    fn start(&mut self, power_off: &dyn Fn() -> bool) -> anyhow::Result<Start> {
        let address = Address::free();
        let environment: Vec<(&str, &str)> = self.broken.iter().map(|how| (VARIABLE, how.name())).collect();
        let log = self.log.clone();
        fs::write(&log, "")?;
        let server = server::Holdfast::spawn_with(&self.binary, &self.data, address, log, &environment)?;
        let start = started(self.server.insert(server), address, power_off);
        if matches!(start, Start::Ready)
            && self.broken.is_some()
            && !fs::read_to_string(&self.log)?.contains("SABOTAGED")
        {
            bail!("{} was not built with the feature `sabotage`", self.binary.display());
        }
        Ok(start)
    }

    fn create_tables(&mut self) -> anyhow::Result<()> {
        self.clients.create_tables(self.address()?)?;
        self.has_tables = true;
        Ok(())
    }

    fn verify(&mut self) -> anyhow::Result<Verdict> {
        self.clients.verify(self.address()?)
    }

    fn begin_load(&mut self, clients: u32) -> anyhow::Result<()> {
        self.clients.begin(self.address()?, clients)
    }

    fn acknowledged(&self) -> u64 {
        self.clients.acknowledged()
    }

    fn client_ended(&mut self) -> Option<String> {
        self.clients.ended()
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        let mut panics = Vec::new();
        if let Some(mut server) = self.server.take() {
            // One that noticed the failed disk has ended by itself.
            if server.is_running() {
                server.kill()?;
            }
            panics = server.panics();
        }
        self.clients.join()?;
        if panics.is_empty() { Ok(()) } else { bail!("the server panicked: {}", panics.join("\n")) }
    }

    fn check(&mut self) -> anyhow::Result<Option<String>> {
        if !self.has_tables {
            return Ok(None);
        }
        let mut command = Command::new(&self.binary);
        command.arg("check").arg("--data").arg(&self.data).stdin(Stdio::null());
        let output = command.output().context("starting holdfast check")?;
        if output.status.success() {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned()))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let status = server.stop()?;
        if status.success() { Ok(()) } else { bail!("SIGTERM ended the server with {status}:\n{}", server.log_end()) }
    }
}
