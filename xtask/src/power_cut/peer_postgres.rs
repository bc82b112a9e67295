//! PostgreSQL under a power-cut test: everything durability rests on at its safe value, checkpoints often.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::peer::{Peer, Start, started};
use super::wire::Clients;
use crate::recorder::{DATABASE, Databases, Verdict};
use crate::server::{Address, Process, Programs};

/// Longer than processes that were killed take to be gone.
const END_WAIT_MAX: Duration = Duration::from_secs(20);

const SETTINGS: [&str; 8] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "shared_buffers=16MB",
    "min_wal_size=2MB",
    "max_wal_size=4MB",
    "checkpoint_timeout=30s",
    "max_connections=60",
];

pub struct Postgres {
    programs: Programs,
    home: PathBuf,
    outside: PathBuf,
    server: Option<Process>,
    address: Option<Address>,
    clients: Clients,
}

impl Postgres {
    pub fn new() -> anyhow::Result<Postgres> {
        let clients = Clients::new(Databases::One)?;
        let (home, outside) = (PathBuf::new(), PathBuf::new());
        Ok(Postgres { programs: Programs::find()?, home, outside, server: None, address: None, clients })
    }

    fn address(&self) -> anyhow::Result<Address> {
        self.address.context("the server is not running")
    }

    fn log(&self) -> PathBuf {
        self.outside.join("postgres.log")
    }
}

impl Peer for Postgres {
    fn file_patterns(&self) -> &'static [&'static str] {
        &["/postgres/data/pg_wal/*", "/postgres/data/base/*", "/postgres/data/global/*", "*"]
    }

    fn fresh(&mut self, mount: &Path, _number: u32) -> anyhow::Result<()> {
        self.home = mount.join("postgres");
        self.outside = mount.parent().context("the mount lies in a directory")?.to_owned();
        fs::create_dir(&self.home)?;
        let sockets = self.outside.join("sockets");
        fs::create_dir_all(&sockets)?;
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o777))?;
        fs::write(self.log(), "")?;
        self.programs.account.own(&self.home)?;
        self.programs.initdb(&self.home.join("data"), &["--locale=C.UTF-8", "--wal-segsize=1"])?;
        self.clients.forget();
        Ok(())
    }

    fn start(&mut self, power_off: &dyn Fn() -> bool) -> anyhow::Result<Start> {
        let address = Address::free();
        let sockets = self.outside.join("sockets");
        let mut command = self.programs.server(&self.home.join("data"), address, Some(&sockets), SETTINGS);
        // The mount goes while the server still ends.
        command.current_dir("/");
        // SIGINT is PostgreSQL's fast shutdown.
        let server = Process::start("PostgreSQL", command, &self.log(), Signal::INT, Signal::KILL)?;
        self.address = Some(address);
        Ok(started(self.server.insert(server), address, power_off))
    }

    fn create_tables(&mut self) -> anyhow::Result<()> {
        let address = self.address()?;
        address.sql("postgres", &format!("CREATE DATABASE {DATABASE}"))?;
        self.clients.create_tables(address)
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

    /// The server and every process it has started: the machine is without power.
    fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut server) = self.server.take() {
            let children = children_of(server.pid());
            // Each may have ended by itself, as its disk failed.
            server.kill()?;
            for pid in &children {
                let _ = kill_process(*pid, Signal::KILL);
            }
            let started = Instant::now();
            while children.iter().any(|pid| rustix::process::test_kill_process(*pid).is_ok()) {
                if started.elapsed() > END_WAIT_MAX {
                    bail!("processes of PostgreSQL are still there {END_WAIT_MAX:?} after kill -9");
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.clients.join()
    }

    fn check(&mut self) -> anyhow::Result<Option<String>> {
        Ok(None)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let status = server.stop()?;
        if status.success() { Ok(()) } else { bail!("SIGINT ended PostgreSQL with {status}:\n{}", server.log_end()) }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("power-cut: {error:#}");
        }
    }
}

/// The processes whose parent is `parent`, from /proc.
fn children_of(parent: u32) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the state and the parent follow it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    };
    pids.filter(is_child).filter_map(Pid::from_raw).collect()
}
