//! PostgreSQL under a power-cut test: everything durability rests on at its safe value, checkpoints often.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::peer::{Peer, Start};
use super::wire::Clients;
use crate::recorder::{DATABASE, Databases, Verdict};
use crate::server::{self, Address, is_ready};
use crate::tools;

const READY_WAIT_MAX: Duration = Duration::from_secs(120);
const END_WAIT_MAX: Duration = Duration::from_secs(20);

const SETTINGS: [&str; 9] = [
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
    "listen_addresses=127.0.0.1",
    "shared_buffers=16MB",
    "min_wal_size=2MB",
    "max_wal_size=4MB",
    "checkpoint_timeout=30s",
    "max_connections=60",
];

pub struct Postgres {
    account: Option<(u32, u32)>,
    home: PathBuf,
    outside: PathBuf,
    child: Option<Child>,
    address: Option<Address>,
    clients: Clients,
}

impl Postgres {
    pub fn new() -> anyhow::Result<Postgres> {
        let clients = Clients::new(Databases::One)?;
        let (home, outside) = (PathBuf::new(), PathBuf::new());
        Ok(Postgres { account: server::account()?, home, outside, child: None, address: None, clients })
    }

    fn address(&self) -> anyhow::Result<Address> {
        self.address.context("the server is not running")
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.outside.join("postgres.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn spawn(&mut self, address: Address) -> anyhow::Result<()> {
        let program = tools::find("postgres").context("PostgreSQL's server is not installed")?;
        let log = OpenOptions::new().create(true).append(true).open(self.outside.join("postgres.log"))?;
        let mut command = server::as_account(&program, self.account, Path::new("/"));
        command.arg("-D").arg(self.home.join("data")).args(["-p", &address.port.to_string()]);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let sockets = format!("unix_socket_directories={}", self.outside.join("sockets").display());
        command.args(["-c", &sockets]).stdout(File::try_clone(&log)?).stderr(log);
        self.child = Some(command.spawn().context("starting PostgreSQL")?);
        self.address = Some(address);
        Ok(())
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
        fs::write(self.outside.join("postgres.log"), "")?;
        if let Some((user, group)) = self.account {
            chown(&self.home, Some(user), Some(group))?;
        }
        let initdb = tools::find("initdb").context("PostgreSQL's server is not installed")?;
        server::initialise(&initdb, &self.home.join("data"), self.account, &["--wal-segsize=1"])?;
        self.clients.forget();
        Ok(())
    }

    fn start(&mut self, power_off: &dyn Fn() -> bool) -> anyhow::Result<Start> {
        let address = Address::free()?;
        self.spawn(address)?;
        let started = Instant::now();
        loop {
            if is_ready(address.port) {
                return Ok(Start::Ready);
            }
            if power_off() {
                return Ok(Start::PowerFailed);
            }
            let ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || started.elapsed() > READY_WAIT_MAX {
                return Ok(if power_off() { Start::PowerFailed } else { Start::Ended(self.log_tail()) });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
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
        if let Some(mut child) = self.child.take() {
            let children = children_of(child.id());
            // Each may have ended by itself, as its disk failed.
            let _ = child.kill();
            child.wait()?;
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
        let Some(mut child) = self.child.take() else { return Ok(()) };
        // SIGINT is PostgreSQL's fast shutdown.
        kill_process(Pid::from_child(&child), Signal::INT).context("stopping PostgreSQL")?;
        let status = child.wait()?;
        if status.success() { Ok(()) } else { bail!("SIGINT ended PostgreSQL with {status}:\n{}", self.log_tail()) }
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
