//! The servers `a` and `b`, one of them the master and the other its standby, with or without a control plane.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::failover::Witness;
use crate::paths;
use crate::server::{Address, Holdfast};

/// The database of the clients.
pub const DATABASE: &str = "holdfast";

/// Longer than a standby takes to connect and to catch up here; only one that never does meets it.
const FOLLOWS_WAIT_MAX: Duration = Duration::from_secs(120);

/// The pause between two looks at a server.
const LOOK: Duration = Duration::from_millis(10);

struct Node {
    name: &'static str,
    data: PathBuf,
    address: Address,
    server: Option<Holdfast>,
}

/// See the module. Field order: the processes end before their directories go.
pub struct Cluster {
    binary: PathBuf,
    nodes: [Node; 2],
    witness: Option<Witness>,
    scratch: tempfile::TempDir,
}

impl Cluster {
    /// `a` is the master and `b` follows it; their commits wait at level hot. `witness`: a control plane of both and a
    /// witness.
    pub fn start(binary: &Path, witness: bool) -> anyhow::Result<Cluster> {
        let scratch = paths::scratch("switchover")?;
        let node = |name: &'static str| {
            anyhow::Ok(Node { name, data: scratch.path().join(name), address: Address::free(), server: None })
        };
        let nodes = [node("a")?, node("b")?];
        let mut cluster = Cluster { binary: binary.to_owned(), nodes, witness: None, scratch };
        std::fs::create_dir_all(&cluster.nodes[0].data)?;
        cluster.configure(0, "node_name = \"a\"\n")?;
        cluster.spawn(0)?;
        cluster.wait_until_ready(0)?;
        let (from, data) = (cluster.at(0), cluster.nodes[1].data.display().to_string());
        cluster.command(&["standby", "create", "--from", &from, "--data", &data, "--name", "b"])?;
        cluster.stop(0)?;
        let mut lines = "level = \"hot\"\n".to_owned();
        if witness {
            let members = cluster.start_witness()?;
            lines.push_str(&format!("control_members = \"{members}\"\ncontrol_witness = \"w\"\n"));
        }
        cluster.configure(0, &format!("node_name = \"a\"\n{lines}"))?;
        cluster.configure(1, &format!("node_name = \"b\"\n{lines}"))?;
        cluster.spawn(1)?;
        cluster.spawn(0)?;
        cluster.wait_until_ready(0)?;
        cluster.wait_until_followed(0)?;
        Ok(cluster)
    }

    /// Starts the witness; the value of `control_members`.
    fn start_witness(&mut self) -> anyhow::Result<String> {
        let [a, b, w] = [Address::free(), Address::free(), Address::free()];
        let members = format!("a=127.0.0.1:{},b=127.0.0.1:{},w=127.0.0.1:{}", a.port, b.port, w.port);
        self.witness = Some(Witness::spawn(&self.binary, self.scratch.path(), &w.at(), &members)?);
        Ok(members)
    }

    pub fn port(&self, which: usize) -> u16 {
        self.nodes[which].address.port
    }

    fn at(&self, which: usize) -> String {
        self.nodes[which].address.at()
    }

    fn configure(&self, which: usize, text: &str) -> anyhow::Result<()> {
        std::fs::write(self.nodes[which].data.join("holdfast.toml"), text).context("writing holdfast.toml")
    }

    /// Starts the process and waits for nothing.
    pub fn spawn(&mut self, which: usize) -> anyhow::Result<()> {
        let node = &mut self.nodes[which];
        node.server = Some(Holdfast::spawn(&self.binary, &node.data, node.address)?);
        Ok(())
    }

    pub fn wait_until_ready(&mut self, which: usize) -> anyhow::Result<()> {
        self.running(which)?.wait_until_ready().map(drop)
    }

    /// Asks for a clean stop (SIGTERM) and waits for the end.
    pub fn stop(&mut self, which: usize) -> anyhow::Result<()> {
        let status = self.running(which)?.stop()?;
        self.nodes[which].server = None;
        anyhow::ensure!(status.success(), "{} stopped with {status}", self.nodes[which].name);
        Ok(())
    }

    /// Makes the standby the master.
    pub fn promote(&self, which: usize) -> anyhow::Result<()> {
        self.command(&["promote", "--at", &self.at(which)]).map(drop)
    }

    /// Brings the stopped server back as the standby of the other one.
    pub fn rejoin(&mut self, which: usize) -> anyhow::Result<()> {
        let node = &self.nodes[which];
        let (data, name, from) = (node.data.display().to_string(), node.name, self.at(1 - which));
        self.command(&["rejoin", "--from", &from, "--data", &data, "--name", name])?;
        self.spawn(which)?;
        self.wait_until_ready(which)?;
        self.wait_until_followed(1 - which)
    }

    /// Waits until the standby has what the master waits for, and with a control plane until it may be promoted.
    fn wait_until_followed(&mut self, master: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        let other = self.nodes[1 - master].name;
        let in_set = "\"sync_set\":[\"a\",\"b\"]";
        loop {
            let status = self.command(&["standby", "status", "--at", &self.at(master), "--json"]).unwrap_or_default();
            let follows = status.contains(&format!("\"name\":\"{other}\"")) && status.contains("\"streaming\"");
            let agreed = self.witness.is_none() || status.replace(' ', "").contains(in_set);
            if follows && agreed {
                return Ok(());
            }
            if started.elapsed() > FOLLOWS_WAIT_MAX {
                bail!("{other} does not follow: {status}\n{}", self.running(1 - master)?.log_end());
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn sql(&self, which: usize, sql: &str) -> anyhow::Result<String> {
        self.nodes[which].address.sql(DATABASE, sql)
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

    fn running(&mut self, which: usize) -> anyhow::Result<&mut Holdfast> {
        let node = &mut self.nodes[which];
        node.server.as_mut().with_context(|| format!("{} does not run", node.name))
    }
}
