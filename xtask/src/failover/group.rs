//! The servers of a set-up, one of them the master, and what an operator does with them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;

use crate::failover::advice::{Advice, Named, find};
use crate::failover::fault::Setup;
use crate::failover::node::{Node, Start, Until, Witness};
use crate::failover::{Level, settings};
use crate::paths;
use crate::power_cut::remove_left_behind;
use crate::recorder::{DATABASE, connect};
use crate::server::Address;

/// Longer than a standby takes to connect and to catch up here; only one that never does meets it.
const FOLLOWS_WAIT_MAX: Duration = Duration::from_secs(120);

/// How often the servers are asked for their state. Each question starts a process.
const LOOK: Duration = Duration::from_millis(25);

/// What a standby logs that has applied transactions which its master lacks: it never follows.
const PARTED: &str = "but it agrees with the master only up to";

/// How often a promotion that names another server is followed before the test gives up.
const ADVICE_MAX: usize = 4;

/// How long a rolled-back master without a control plane has to meet its standby. A standby tries every 5 s.
const MEETS_MAX: Duration = Duration::from_secs(20);

/// Longer than a server takes to answer a read.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Longer than a server that stops answering takes to log why.
const REASON_MAX: Duration = Duration::from_secs(1);

/// How often a rolled-back master is asked whether it answers.
const ASK: Duration = Duration::from_millis(100);

/// Longer than a group takes to elect a leader of Raft in the place of one that is frozen.
pub const ELECTION: Duration = Duration::from_secs(2);

/// Where the unsafe disks are mounted, in the scratch directory.
const MOUNTS: [&str; 3] = ["n1-mount", "n2-mount", "n3-mount"];

/// See the module. Field order: disks are unmounted before the directory goes.
pub struct Group {
    pub binary: PathBuf,
    pub nodes: Vec<Node>,
    pub master: usize,
    pub setup: Setup,
    settings: Vec<String>,
    witness: Option<Witness>,
    scratch: tempfile::TempDir,
}

/// Where a fault has led.
pub struct Settled {
    /// The server that is the master now.
    pub master: usize,
    /// The time until it served, if it was promoted.
    pub promotion: Option<Duration>,
    /// Refusals that named the server to use, and were followed.
    pub refusals: Vec<String>,
}

/// How a server came back.
pub struct Rejoined {
    /// The databases were copied.
    pub copied: bool,
    /// What was written down of transactions that only it had.
    pub lost: Vec<PathBuf>,
}

impl Group {
    /// A master with standbys that follow it, all empty. `power_cut`: each on an unsafe disk of its own, and a server that is
    /// killed loses what was not synced there.
    pub fn start(binary: &Path, setup: Setup, level: Level, power_cut: bool) -> anyhow::Result<Group> {
        let scratch = paths::scratch("failover")?;
        remove_left_behind(scratch.path(), &MOUNTS)?;
        let names = setup.names().iter();
        let nodes: Vec<Node> =
            names.map(|name| Node::new(scratch.path(), name, power_cut)).collect::<anyhow::Result<_>>()?;
        let plain = nodes.iter().map(|node| settings::plain(node.name, level)).collect();
        let binary = binary.to_owned();
        let mut group = Group { binary, nodes, master: 0, setup, settings: plain, witness: None, scratch };
        group.configure(0)?;
        group.spawn_master(0)?;
        for standby in 1..group.nodes.len() {
            group.base_copy(standby)?;
        }
        if setup.has_control() {
            group.nodes[0].stop()?;
            group.add_control()?;
        }
        for standby in group.standbys() {
            group.spawn(standby)?;
        }
        if setup.has_control() {
            group.spawn_master(0)?;
        }
        group.wait_until_equal()?;
        Ok(group)
    }

    /// Gives all servers, which are stopped, a control plane, and starts the witness.
    fn add_control(&mut self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name).collect();
        let control = settings::Control::new(&names, self.setup)?;
        for (settings, name) in self.settings.iter_mut().zip(&names) {
            settings.push_str(&control.lines(name, &names));
        }
        if let Some((listen, members)) = control.witness() {
            self.witness = Some(Witness::spawn(&self.binary, self.scratch.path(), &listen, &members)?);
        }
        (0..self.nodes.len()).try_for_each(|node| self.configure(node))
    }

    pub fn address(&self, node: usize) -> Address {
        self.nodes[node].address
    }

    pub fn standbys(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| *node != self.master).collect()
    }

    /// All servers, for a client that has to find the master; `first` is tried first.
    pub fn hosts(&self, first: usize) -> String {
        let count = self.nodes.len();
        let ports: Vec<String> = (0..count).map(|n| self.nodes[(first + n) % count].address.port.to_string()).collect();
        let hosts = vec!["127.0.0.1"; count].join(",");
        format!("host={hosts} port={} target_session_attrs=read-write", ports.join(","))
    }

    pub fn spawn(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].spawn(&self.binary)
    }

    /// Starts a server that is the master, and waits until it lets sessions in.
    pub fn spawn_master(&mut self, node: usize) -> anyhow::Result<()> {
        self.spawn(node)?;
        self.nodes[node].running_mut()?.wait_until_ready()?;
        Ok(())
    }

    /// Starts a server that may refuse to serve.
    pub fn start_warily(&mut self, node: usize, until: Until) -> anyhow::Result<Start> {
        let named = self.named();
        let refused = |said: &str| !find(said, &named, &[node]).is_empty();
        let mut start = self.nodes[node].start(&self.binary, until, refused)?;
        if matches!(start, Start::Refuses(_)) && !self.nodes[node].is_running() {
            // A service manager starts it again: that must not change the answer.
            start = self.nodes[node].start(&self.binary, until, refused)?;
        }
        Ok(start)
    }

    pub fn named(&self) -> Vec<Named> {
        self.nodes.iter().map(|node| Named { name: node.name, address: node.at() }).collect()
    }

    /// Promotes a standby. The time until it serves.
    pub fn promote(&mut self, standby: usize, accept_divergence: bool) -> anyhow::Result<Duration> {
        let at = self.nodes[standby].at();
        let accept: &[&str] = if accept_divergence { &["--accept-divergence"] } else { &[] };
        let started = Instant::now();
        self.command(&[&["promote", "--at", &at], accept].concat())?;
        self.nodes[standby].running_mut()?.wait_until_ready()?;
        Ok(started.elapsed())
    }

    /// Promotes a standby, and if that is refused does what the refusal says: promotes the server that it names, or starts
    /// it. `rolled_back`: a server that is of no use.
    pub fn promote_as_told(&mut self, standby: usize, rolled_back: Option<usize>) -> anyhow::Result<Settled> {
        let (mut asked, mut refusals) = (standby, Vec::new());
        loop {
            let error = match self.promote(asked, false) {
                Ok(took) => return Ok(Settled { master: asked, promotion: Some(took), refusals }),
                Err(error) => error,
            };
            let said = format!("{error:#}");
            let except: Vec<usize> = rolled_back.into_iter().chain([asked]).collect();
            let advice = find(&said, &self.named(), &except).into_iter().find_map(|advice| self.possible(advice));
            let Some(advice) = advice.filter(|_| refusals.len() < ADVICE_MAX) else { return Err(error) };
            refusals.push(said);
            match advice {
                Advice::Promote(other) => asked = other,
                Advice::Start(master) if master == self.master => {
                    self.spawn_master(master)?;
                    return Ok(Settled { master, promotion: None, refusals });
                }
                Advice::Start(other) => self.spawn(other)?,
            }
        }
    }

    /// What can be done of an advice: a server that runs is promoted, another one is started.
    pub fn possible(&mut self, advice: Advice) -> Option<Advice> {
        let (Advice::Promote(node) | Advice::Start(node)) = advice;
        match (advice, self.nodes[node].is_running()) {
            (Advice::Promote(_), true) => Some(advice),
            (_, false) => Some(Advice::Start(node)),
            (Advice::Start(_), true) => None,
        }
    }

    /// Brings a stopped server's directory back as a standby of the new master, without starting it.
    pub fn rejoin(&mut self, node: usize) -> anyhow::Result<Rejoined> {
        let (old, from) = (&self.nodes[node], self.nodes[self.master].at());
        let before = old.lost_files()?;
        let data = old.data.display().to_string();
        let said = self.command(&["rejoin", "--from", &from, "--data", &data, "--name", old.name])?;
        let lost = old.lost_files()?.difference(&before).cloned().collect();
        Ok(Rejoined { copied: said.contains("copied again"), lost })
    }

    /// Makes a stopped server's directory again as a copy of the master's.
    pub fn base_copy(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].end();
        self.nodes[node].remove_data()?;
        let (from, data) = (self.nodes[self.master].at(), self.nodes[node].data.display().to_string());
        self.command(&["standby", "create", "--from", &from, "--data", &data, "--name", self.nodes[node].name])?;
        self.configure(node)
    }

    /// Lets a standby that is stopped follow the new master.
    pub fn follow(&mut self, node: usize) -> anyhow::Result<()> {
        let (from, data) = (self.nodes[self.master].at(), self.nodes[node].data.display().to_string());
        self.command(&["standby", "configure", "--data", &data, "--from", &from])?;
        Ok(())
    }

    /// Whether the master ships to the standby.
    pub fn is_followed(&self, standby: usize) -> anyhow::Result<bool> {
        let name = self.nodes[standby].name;
        let sql = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND application_name = '{name}'"
        );
        Ok(self.address(self.master).sql(DATABASE, &sql)? == "1")
    }

    pub fn wait_until_followed(&mut self, standby: usize, limit: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        while !self.is_followed(standby)? {
            let parted = self.nodes[standby].log_since_start().contains(PARTED);
            if parted || started.elapsed() > limit {
                let (name, log) = (self.nodes[standby].name, self.nodes[standby].running()?.log_end());
                bail!("{name} does not follow {}:\n{log}", self.nodes[self.master].name);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until all standbys show what the master has, and with a control plane until each may be promoted.
    pub fn wait_until_equal(&mut self) -> anyhow::Result<()> {
        for standby in self.standbys() {
            self.wait_until_followed(standby, FOLLOWS_WAIT_MAX)?;
            let lsn = self.address(self.master).sql(DATABASE, "SELECT pg_current_wal_lsn()")?;
            let wait = format!("SELECT holdfast_wait_for_lsn('{lsn}', {})", FOLLOWS_WAIT_MAX.as_millis());
            self.nodes[standby].running_mut()?.wait_until_ready()?;
            if self.address(standby).sql(DATABASE, &wait)? != "t" {
                let (name, log) = (self.nodes[standby].name, self.nodes[standby].running()?.log_end());
                bail!("{name} does not reach {lsn}:\n{log}");
            }
        }
        if self.setup.has_control() { self.wait_until_in_sync_set() } else { Ok(()) }
    }

    /// Without a control plane a rolled-back master learns of its state when a standby connects. What its log says then, if it
    /// stops answering; `None` if it continues to answer.
    pub fn until_silent(&mut self, master: usize, runtime: &Runtime) -> anyhow::Result<Option<String>> {
        let started = Instant::now();
        while started.elapsed() < MEETS_MAX {
            let node = &mut self.nodes[master];
            let address = node.address;
            let read = async {
                let client = connect(&address.hosts(), DATABASE).await?;
                client.simple_query("SELECT count(*) FROM ack").await.context("reading")
            };
            let answers = runtime.block_on(async { matches!(tokio::time::timeout(ANSWER_MAX, read).await, Ok(Ok(_))) });
            if !answers || !node.is_running() {
                // The reason follows in the log.
                std::thread::sleep(REASON_MAX);
                return Ok(Some(node.log_since_start()));
            }
            std::thread::sleep(ASK);
        }
        Ok(None)
    }

    /// Lets the master's member lead Raft: another one that leads is frozen until the group has elected again.
    pub fn until_master_leads(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        while started.elapsed() < FOLLOWS_WAIT_MAX {
            let leader = self.status()?["control"]["leader"].as_str().map(str::to_owned);
            let other = self.nodes.iter().position(|node| Some(node.name) == leader.as_deref());
            match (leader, other) {
                (Some(_), Some(node)) if node == self.master => return self.wait_until_equal(),
                (Some(_), Some(node)) => {
                    self.nodes[node].running()?.hang()?;
                    std::thread::sleep(ELECTION);
                    self.nodes[node].running()?.resume()?;
                }
                (Some(_), None) => self.witness.as_ref().context("there is no witness")?.freeze_for(ELECTION)?,
                (None, _) => std::thread::sleep(LOOK),
            }
        }
        bail!("the master does not lead Raft")
    }

    fn status(&self) -> anyhow::Result<serde_json::Value> {
        let status = self.command(&["standby", "status", "--at", &self.nodes[self.master].at(), "--json"])?;
        serde_json::from_str(&status).context("the status")
    }

    /// How often a member was admitted again, so that all three vote, as far as the logs say.
    pub fn admissions(&self) -> usize {
        let logs = self.nodes.iter().map(Node::log_text).chain(self.witness.iter().map(Witness::log_text));
        let all_vote = |line: &&str| line.contains("voters have been changed") && line.matches(',').count() == 2;
        logs.map(|log| log.lines().filter(all_vote).count()).sum()
    }

    /// Waits until a new member votes: before that the group cannot do without either of the other two.
    pub fn wait_until_admitted(&self, admissions_before: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.admissions() <= admissions_before {
            if started.elapsed() > FOLLOWS_WAIT_MAX {
                bail!("the new member of the control plane does not vote again");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn wait_until_in_sync_set(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let status = self.status()?;
            let set = status["control"]["sync_set"].as_array().map_or(0, Vec::len);
            if set == self.nodes.len() && (self.setup == Setup::Witness || status["control"]["quorum"] == 1) {
                return Ok(());
            }
            if started.elapsed() > FOLLOWS_WAIT_MAX {
                bail!("the standbys are not in the sync set: {status}");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Panics, and a witness that ended.
    pub fn trouble(&mut self) -> Vec<String> {
        let panics = self.nodes.iter().flat_map(Node::panics);
        panics.chain(self.witness.iter_mut().flat_map(Witness::trouble)).collect()
    }

    /// Keeps all directories and logs for the search of the cause.
    pub fn keep(mut self) -> PathBuf {
        self.nodes.iter_mut().for_each(Node::end);
        self.scratch.keep()
    }

    fn configure(&self, node: usize) -> anyhow::Result<()> {
        self.nodes[node].configure(&self.settings[node])
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
