//! Two servers, one the master and the other its standby, and what an operator does with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use holdfast_unsafe_disk::{Options, UnsafeDisk};

use crate::failover::Level;
use crate::paths;
use crate::power_cut::remove_left_behind;
use crate::recorder::DATABASE;
use crate::server::{Address, Holdfast};

/// Longer than a standby takes to connect and to catch up here; only one that never does meets it.
const FOLLOWS_WAIT_MAX: Duration = Duration::from_secs(120);

/// Small, so that a round goes over the ends of several.
const SEGMENT_BYTES: u64 = 4 << 20;

/// The least there may be, so that checkpoints come often: a server whose files hold more than what its successor has
/// needs a copy.
const REDO_BYTES: u64 = 1 << 20;

/// Where the unsafe disks are mounted, in the scratch directory.
const MOUNTS: [&str; 2] = ["a-mount", "b-mount"];

/// One of the two, with its directory; `server` while its process is ours to end. Field order: it ends before its disk.
struct Node {
    name: &'static str,
    data: PathBuf,
    log: PathBuf,
    address: Address,
    server: Option<Holdfast>,
    /// Where power is cut: the disk that the directory is on.
    disk: Option<UnsafeDisk>,
}

/// See the module. Field order: disks are unmounted before the directory goes.
pub struct Pair {
    binary: PathBuf,
    nodes: [Node; 2],
    scratch: tempfile::TempDir,
    master: usize,
}

/// How a server came back.
pub struct Rejoined {
    /// The databases were copied.
    pub copied: bool,
    /// What was written down of transactions that only it had.
    pub lost: Vec<PathBuf>,
}

impl Pair {
    /// A master with a standby that follows it, both empty. `power_cut`: each on an unsafe disk of its own, and whoever is
    /// killed loses what was not synced there.
    pub fn start(binary: &Path, level: Level, power_cut: bool) -> anyhow::Result<Pair> {
        let scratch = paths::scratch("failover")?;
        remove_left_behind(scratch.path(), &MOUNTS)?;
        let nodes = [Node::new(scratch.path(), "a", power_cut)?, Node::new(scratch.path(), "b", power_cut)?];
        let mut pair = Pair { binary: binary.to_owned(), nodes, master: 0, scratch };
        pair.configure(0, level)?;
        pair.spawn(0)?;
        let [a, b] = &pair.nodes;
        let (from, data) = (at(a.address), b.data.display().to_string());
        pair.command(&["standby", "create", "--from", &from, "--data", &data, "--name", b.name])?;
        pair.configure(1, level)?;
        pair.spawn(1)?;
        pair.wait_until_equal()?;
        Ok(pair)
    }

    pub fn master(&self) -> Address {
        self.nodes[self.master].address
    }

    pub fn standby(&self) -> Address {
        self.nodes[1 - self.master].address
    }

    pub fn kill_master(&mut self) -> anyhow::Result<()> {
        self.kill(self.master)
    }

    pub fn kill_standby(&mut self) -> anyhow::Result<()> {
        self.kill(1 - self.master)
    }

    pub fn start_standby(&mut self) -> anyhow::Result<()> {
        self.spawn(1 - self.master)
    }

    /// Starts the directory of what was the master, before [`Pair::swap`].
    pub fn start_old_master(&mut self) -> anyhow::Result<()> {
        self.spawn(self.master)
    }

    /// The master holds its port and says nothing any more.
    pub fn hang_master(&self) -> anyhow::Result<()> {
        self.nodes[self.master].running()?.hang()
    }

    pub fn resume_master(&self) -> anyhow::Result<()> {
        self.nodes[self.master].running()?.resume()
    }

    /// Promotes the standby; the master keeps its place here until [`Pair::swap`]. The time until it serves.
    pub fn promote(&mut self, accept_divergence: bool) -> anyhow::Result<Duration> {
        let at = at(self.standby());
        let accept: &[&str] = if accept_divergence { &["--accept-divergence"] } else { &[] };
        let started = Instant::now();
        self.command(&[&["promote", "--at", &at], accept].concat())?;
        self.nodes[1 - self.master].running_mut()?.wait_until_ready()?;
        Ok(started.elapsed())
    }

    /// Brings the stopped master's directory back as a standby of what was its standby, without starting it.
    pub fn rejoin(&mut self) -> anyhow::Result<Rejoined> {
        let old = &self.nodes[self.master];
        let before = lost_files(&old.data)?;
        let (from, data) = (at(self.standby()), old.data.display().to_string());
        let said = self.command(&["rejoin", "--from", &from, "--data", &data, "--name", old.name])?;
        let lost = lost_files(&old.data)?.difference(&before).cloned().collect();
        Ok(Rejoined { copied: said.contains("copied anew"), lost })
    }

    /// The two have changed their roles.
    pub fn swap(&mut self) {
        self.master = 1 - self.master;
    }

    /// Waits until the standby shows all that the master has.
    pub fn wait_until_equal(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let follows = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        while self.master().sql(DATABASE, follows)? != "1" {
            if started.elapsed() > FOLLOWS_WAIT_MAX {
                bail!("the standby does not follow:\n{}", self.nodes[1 - self.master].running()?.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let lsn = self.master().sql(DATABASE, "SELECT pg_current_wal_lsn()")?;
        let wait = format!("SELECT holdfast_wait_for_lsn('{lsn}', {})", FOLLOWS_WAIT_MAX.as_millis());
        if self.standby().sql(DATABASE, &wait)? != "t" {
            bail!("the standby does not reach {lsn}:\n{}", self.nodes[1 - self.master].running()?.log_tail());
        }
        Ok(())
    }

    pub fn panics(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.server.as_ref()).flat_map(Holdfast::panics).collect()
    }

    /// Keeps both directories and logs for whoever wants to know what went wrong.
    pub fn keep(mut self) -> PathBuf {
        self.nodes.iter_mut().for_each(|node| node.server = None);
        self.scratch.keep()
    }

    fn spawn(&mut self, which: usize) -> anyhow::Result<()> {
        let node = &mut self.nodes[which];
        let mut server = Holdfast::spawn_with(&self.binary, &node.data, node.address, node.log.clone(), &[])?;
        server.wait_until_ready()?;
        node.server = Some(server);
        Ok(())
    }

    fn kill(&mut self, which: usize) -> anyhow::Result<()> {
        let node = &mut self.nodes[which];
        if let Some(disk) = &node.disk {
            disk.disk().command(holdfast_unsafe_disk::Command::Cut).map_err(anyhow::Error::msg)?;
        }
        node.running_mut()?.kill()?;
        node.disk.iter().try_for_each(|disk| disk.disk().restore()).context("power is back")
    }

    fn configure(&self, which: usize, level: Level) -> anyhow::Result<()> {
        let Node { data, name, .. } = &self.nodes[which];
        std::fs::create_dir_all(data)?;
        let text = format!(
            "level = \"{level}\"\nnode_name = \"{name}\"\nsegment_bytes = {SEGMENT_BYTES}\nredo_bytes_max = {REDO_BYTES}\n"
        );
        std::fs::write(data.join("holdfast.toml"), text).context("writing holdfast.toml")?;
        // An operator's editor syncs what it writes.
        self.nodes[which].disk.iter().try_for_each(|disk| disk.disk().sync_all()).context("syncing holdfast.toml")
    }

    /// What `holdfast ...` prints; its error when it fails.
    fn command(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(&self.binary).args(arguments).output().context("starting holdfast")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("holdfast {}: {}: {}", arguments.join(" "), output.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Node {
    fn new(scratch: &Path, name: &'static str, power_cut: bool) -> anyhow::Result<Node> {
        let (mut data, log) = (scratch.join(name), scratch.join(format!("{name}.log")));
        let mut disk = None;
        if power_cut {
            let (mount, backing) = (scratch.join(format!("{name}-mount")), scratch.join(format!("{name}-backing")));
            std::fs::create_dir(&mount)?;
            std::fs::create_dir(&backing)?;
            disk = Some(UnsafeDisk::mount(&mount, Options::new(backing))?);
            data = mount.join("data");
        }
        Ok(Node { name, data, log, address: Address::free()?, server: None, disk })
    }

    fn running(&self) -> anyhow::Result<&Holdfast> {
        self.server.as_ref().with_context(|| format!("{} was never started", self.name))
    }

    fn running_mut(&mut self) -> anyhow::Result<&mut Holdfast> {
        let name = self.name;
        self.server.as_mut().with_context(|| format!("{name} was never started"))
    }
}

fn at(address: Address) -> String {
    format!("127.0.0.1:{}", address.port)
}

fn lost_files(data: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("lost-") && name.ends_with(".sql") {
            found.insert(path);
        }
    }
    Ok(found)
}
