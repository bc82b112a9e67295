//! One server of the test: its directory, its process, and the copy of the directory that a fault puts back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use holdfast_unsafe_disk::{Options, UnsafeDisk};
use rustix::process::Signal;

use crate::server::{Address, Holdfast, Process, is_ready};

/// Longer than a start takes here; only a server that neither serves nor refuses meets it.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// What a server prints when it takes connections.
const LISTENS: &str = "holdfast: ready on ";

/// How often a starting server is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A server, with its directory; `server` while its process is ours to end. Field order: it ends before its disk.
pub struct Node {
    pub name: &'static str,
    pub data: PathBuf,
    pub address: Address,
    log: PathBuf,
    /// Where the log of the running process begins.
    log_start: usize,
    server: Option<Holdfast>,
    /// Where power is cut: the disk that the directory is on.
    disk: Option<UnsafeDisk>,
}

/// What a start is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// It takes connections; it may still refuse sessions.
    Listens,
    /// It lets sessions in.
    Answers,
}

/// What a start came to.
pub enum Start {
    Serves,
    /// It does not serve; what its log says since the start.
    Refuses(String),
}

impl Node {
    pub fn new(scratch: &Path, name: &'static str, power_cut: bool) -> anyhow::Result<Node> {
        let (mut data, log) = (scratch.join(name), scratch.join(format!("{name}.log")));
        let mut disk = None;
        if power_cut {
            let (mount, backing) = (scratch.join(format!("{name}-mount")), scratch.join(format!("{name}-backing")));
            std::fs::create_dir(&mount)?;
            std::fs::create_dir(&backing)?;
            disk = Some(UnsafeDisk::mount(&mount, Options::new(backing))?);
            data = mount.join("data");
        }
        Ok(Node { name, data, log, address: Address::free(), log_start: 0, server: None, disk })
    }

    /// HOST:PORT
    pub fn at(&self) -> String {
        self.address.at()
    }

    /// Writes holdfast.toml.
    pub fn configure(&self, text: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.data)?;
        std::fs::write(self.data.join("holdfast.toml"), text).context("writing holdfast.toml")?;
        // An operator's editor syncs what it writes.
        self.disk.iter().try_for_each(|disk| disk.disk().sync_all()).context("syncing holdfast.toml")
    }

    /// Starts the process and waits for nothing.
    fn launch(&mut self, binary: &Path) -> anyhow::Result<()> {
        self.log_start = std::fs::metadata(&self.log).map_or(0, |log| log.len() as usize);
        let server = Holdfast::spawn_with(binary, &self.data, self.address, self.log.clone(), &[])?;
        self.server = Some(server);
        Ok(())
    }

    /// Starts the process and waits until it listens. A standby that has not met its master yet lets no session in.
    pub fn spawn(&mut self, binary: &Path) -> anyhow::Result<()> {
        match self.start(binary, Until::Listens, |_| false)? {
            Start::Serves => Ok(()),
            Start::Refuses(said) => bail!("{} does not start:\n{said}", self.name),
        }
    }

    /// Starts the process and waits until it serves, ends, or `refused` is true for what its log says.
    pub fn start(&mut self, binary: &Path, until: Until, refused: impl Fn(&str) -> bool) -> anyhow::Result<Start> {
        self.launch(binary)?;
        let started = Instant::now();
        loop {
            let said = self.log_since_start();
            if said.contains(LISTENS) && (until == Until::Listens || is_ready(self.address.port)) {
                return Ok(Start::Serves);
            }
            if !self.is_running() || refused(&said) || started.elapsed() > START_WAIT_MAX {
                return Ok(Start::Refuses(said));
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn running(&self) -> anyhow::Result<&Holdfast> {
        self.server.as_ref().with_context(|| format!("{} was never started", self.name))
    }

    pub fn running_mut(&mut self) -> anyhow::Result<&mut Holdfast> {
        let name = self.name;
        self.server.as_mut().with_context(|| format!("{name} was never started"))
    }

    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| server.is_running())
    }

    /// kill -9; where power is cut, the disk loses what was not synced.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(disk) = &self.disk {
            disk.disk().command(holdfast_unsafe_disk::Command::Cut).map_err(anyhow::Error::msg)?;
        }
        self.running_mut()?.kill()?;
        self.disk.iter().try_for_each(|disk| disk.disk().restore()).context("power is back")
    }

    /// SIGTERM; a server that has ended already is fine.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        if self.is_running() {
            let status = self.running_mut()?.stop()?;
            if !status.success() {
                bail!("{} does not stop cleanly: {status}\n{}", self.name, self.running()?.log_end());
            }
        }
        Ok(())
    }

    /// Ends the process for good, so that its directory can be kept.
    pub fn end(&mut self) {
        self.server = None;
    }

    pub fn panics(&self) -> Vec<String> {
        self.server.as_ref().map(|server| server.panics()).unwrap_or_default()
    }

    /// Copies the directory of the stopped server aside.
    pub fn copy_aside(&self) -> anyhow::Result<()> {
        let to = self.older();
        remove(&to)?;
        let status = Command::new("cp").arg("-a").arg(&self.data).arg(&to).status().context("starting cp")?;
        if !status.success() {
            bail!("cp -a {} {}: {status}", self.data.display(), to.display());
        }
        Ok(())
    }

    /// Puts the older copy in the place of the directory, which is kept next to it until the next time.
    pub fn put_back(&self) -> anyhow::Result<()> {
        let newest = self.data.with_extension("newest");
        remove(&newest)?;
        std::fs::rename(&self.data, &newest)?;
        std::fs::rename(self.older(), &self.data).context("putting the older copy back")
    }

    /// Takes the control plane's files away, as the refusal of an older copy says: the node becomes a new member.
    pub fn remove_control(&self) -> anyhow::Result<()> {
        remove(&self.data.join("control"))
    }

    /// Empties the directory, for a new base copy.
    pub fn remove_data(&self) -> anyhow::Result<()> {
        remove(&self.data)
    }

    fn older(&self) -> PathBuf {
        self.data.with_extension("older")
    }

    /// The lost-*.sql files in the directory.
    pub fn lost_files(&self) -> anyhow::Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(&self.data)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("lost-") && name.ends_with(".sql") {
                found.insert(path);
            }
        }
        Ok(found)
    }

    /// What the log says of all its processes.
    pub fn log_text(&self) -> String {
        std::fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// What the log says of the process that runs, or ran last.
    pub fn log_since_start(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.log_start..).unwrap_or_default()).into_owned()
    }
}

fn remove(dir: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// A running `holdfast witness`. Dropping it kills it.
pub struct Witness(Process);

impl Witness {
    /// `members`: NAME=HOST:PORT, separated by commas.
    pub fn spawn(binary: &Path, scratch: &Path, listen: &str, members: &str) -> anyhow::Result<Witness> {
        let mut command = Command::new(binary);
        command.args(["witness", "--listen", listen, "--members", members, "--data"]).arg(scratch.join("w"));
        Process::start("the witness", command, &scratch.join("w.log"), Signal::TERM, Signal::KILL).map(Witness)
    }

    pub fn log_text(&self) -> String {
        self.0.log()
    }

    pub fn freeze_for(&self, time: Duration) -> anyhow::Result<()> {
        self.0.hang()?;
        std::thread::sleep(time);
        self.0.resume()
    }

    /// What shows that it has failed: panics in its log, or its end.
    pub fn trouble(&mut self) -> Vec<String> {
        let ended = !self.0.is_running();
        self.0.panics().into_iter().chain(ended.then(|| "the witness has ended".to_owned())).collect()
    }
}
