//! One round, whatever the servers are.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::Setup;
use super::plain::Plain;
use super::supervised::Supervised;
use crate::failover::{Start, ended};
use crate::kill_test::{ACKNOWLEDGED_MIN, LOAD_WAIT_MAX, Random};
use crate::recorder::Recorder;
use crate::server::Address;

/// How long the clients write after the copy, and how much longer at most.
const WRITE_MS: u64 = 4000;
const WRITE_MORE_MS: u64 = 1000;

/// How often the master is started where nothing that is left shows what it lacks.
const STARTS_ALONE: u32 = 3;

/// The servers of a round, by what is done to them.
pub trait Servers {
    fn master(&self) -> Address;

    fn standby(&self) -> Address;

    /// Lets the master's member of the control plane lead Raft.
    fn until_master_leads(&mut self) -> anyhow::Result<()>;

    /// SIGSTOP or SIGCONT of all that runs on the master's node.
    fn freeze(&mut self, is_frozen: bool) -> anyhow::Result<()>;

    /// Copies the master's directory aside.
    fn copy_aside(&self) -> anyhow::Result<()>;

    /// kill -9 of all that runs on both nodes with data.
    fn kill_both(&mut self) -> anyhow::Result<()>;

    /// Puts the copy in the place of the master's directory.
    fn put_back(&self) -> anyhow::Result<()>;

    /// Starts the master, and returns when it serves or refuses.
    fn start_master(&mut self) -> anyhow::Result<Start>;

    fn kill_master(&mut self) -> anyhow::Result<()>;

    /// Starts the standby next to the master, which serves: what the master's log says if it stops answering.
    fn until_met(&mut self, runtime: &Runtime) -> anyhow::Result<Option<String>>;

    /// The operator uses the standby: starts it and promotes it, unless that has happened.
    fn use_standby(&mut self) -> anyhow::Result<()>;

    /// Panics, and processes that have ended.
    fn trouble(&mut self) -> Vec<String>;

    /// Keeps all directories and logs.
    fn keep(self: Box<Self>) -> PathBuf;
}

/// What a master did whose directory was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Served,
    Refused,
}

/// What a round has shown.
#[derive(Clone, Debug, Default)]
pub struct Round {
    pub acknowledged: u64,
    /// How many of them were acknowledged after the copy.
    pub after_copy: u64,
    pub how_copied: &'static str,
    pub ended: Option<Ended>,
    /// How often it served before a standby was there, where nothing that is left shows what it lacks.
    pub alone: u32,
    /// The last line of a refusal.
    pub said: String,
    pub lost: usize,
    pub trouble: Vec<String>,
    pub kept: Option<PathBuf>,
}

impl Round {
    /// What is printed of it.
    pub fn line(&self) -> String {
        let ended = match self.ended {
            Some(Ended::Served) => "served".to_owned(),
            Some(Ended::Refused) => format!("refused ({})", self.said),
            None => "not judged".to_owned(),
        };
        let alone = if self.alone > 0 { format!(", {} starts without its standby", self.alone) } else { String::new() };
        let trouble: String = self.trouble.iter().map(|what| format!("\n    TROUBLE: {what}")).collect();
        let kept = self.kept.as_ref().map(|kept| format!("\n    kept: {}", kept.display())).unwrap_or_default();
        format!(
            "copied {}, {} acknowledged, {} of them after the copy{alone}, {ended}, lost {}{trouble}{kept}",
            self.how_copied, self.acknowledged, self.after_copy, self.lost
        )
    }
}

/// Runs a round with servers of its own.
pub fn run(binary: &Path, setup: Setup, number: u32, clients: u32, random: &mut Random) -> anyhow::Result<Round> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let servers: Box<dyn Servers> = match setup {
        Setup::Witness | Setup::None => Box::new(Plain::start(binary, setup)?),
        Setup::Supervisors => Box::new(Supervised::start(binary)?),
    };
    let recorder = Recorder::default();
    runtime.block_on(recorder.create_tables(servers.master()))?;
    let mut bed = Bed { servers, recorder, runtime, clients };
    let mut round = Round::default();
    bed.write_and_copy(number.is_multiple_of(2), random, &mut round)?;
    if let Err(error) = bed.judge(setup, &mut round) {
        round.trouble.push(format!("{error:#}"));
    }
    round.trouble.extend(bed.servers.trouble());
    if round.lost > 0 || !round.trouble.is_empty() {
        round.kept = Some(bed.servers.keep());
    }
    Ok(round)
}

struct Bed {
    servers: Box<dyn Servers>,
    recorder: Recorder,
    runtime: Runtime,
    clients: u32,
}

type Running = JoinSet<tokio_postgres::Error>;

impl Bed {
    /// Up to the moment when the copy is in the place of the directory. `frozen`: see the module.
    fn write_and_copy(&mut self, frozen: bool, random: &mut Random, round: &mut Round) -> anyhow::Result<()> {
        if frozen {
            self.servers.until_master_leads()?;
        }
        let mut running = self.load()?;
        if frozen {
            self.servers.freeze(true)?;
            let copied = self.servers.copy_aside();
            self.servers.freeze(false)?;
            copied?;
        } else {
            running.abort_all();
            self.runtime.block_on(async { while running.join_next().await.is_some() {} });
            self.servers.copy_aside()?;
            running = self.load()?;
        }
        round.how_copied = if frozen { "frozen under load" } else { "while it ran" };
        let copied = self.recorder.acknowledged();
        std::thread::sleep(Duration::from_millis(WRITE_MS + random.below(WRITE_MORE_MS)));
        if running.try_join_next().is_some() {
            bail!("a client failed before the servers were killed");
        }
        self.servers.kill_both()?;
        ended(&mut running, &self.runtime)?;
        round.acknowledged = self.recorder.acknowledged();
        round.after_copy = round.acknowledged - copied;
        self.servers.put_back()
    }

    /// Starts the clients, and returns when their commits are acknowledged.
    fn load(&self) -> anyhow::Result<Running> {
        let goal = self.recorder.acknowledged() + ACKNOWLEDGED_MIN;
        let mut running = self.runtime.block_on(self.recorder.start(self.servers.master(), self.clients))?;
        let started = Instant::now();
        while self.recorder.acknowledged() < goal {
            if running.try_join_next().is_some() || started.elapsed() > LOAD_WAIT_MAX {
                bail!("a client failed, or the master acknowledges nothing");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(running)
    }

    /// Starts the master on the copy, and looks where the rows are.
    fn judge(&mut self, setup: Setup, round: &mut Round) -> anyhow::Result<()> {
        let refused = match setup {
            Setup::None => self.among_two(round)?,
            _ => self.in_a_group()?,
        };
        let Some(said) = refused else {
            round.ended = Some(Ended::Served);
            return self.count_lost(self.servers.master(), round);
        };
        (round.ended, round.said) = (Some(Ended::Refused), last_line(&said));
        self.servers.kill_master()?;
        self.servers.use_standby().context("the standby has to take its place")?;
        self.count_lost(self.servers.standby(), round)
    }

    /// With a control plane: the first start refuses, and the next one as well. `None`: it serves.
    fn in_a_group(&mut self) -> anyhow::Result<Option<String>> {
        let Start::Refuses(_) = self.servers.start_master()? else { return Ok(None) };
        self.servers.kill_master()?;
        match self.servers.start_master()? {
            Start::Refuses(said) => Ok(Some(said)),
            Start::Serves => Ok(None),
        }
    }

    /// Without one: it may serve until it meets its standby.
    fn among_two(&mut self, round: &mut Round) -> anyhow::Result<Option<String>> {
        for _ in 0..STARTS_ALONE {
            if let Start::Refuses(said) = self.servers.start_master()? {
                return Ok(Some(said));
            }
            round.alone += 1;
            self.servers.kill_master()?;
        }
        if let Start::Refuses(said) = self.servers.start_master()? {
            return Ok(Some(said));
        }
        self.servers.until_met(&self.runtime)
    }

    fn count_lost(&self, server: Address, round: &mut Round) -> anyhow::Result<()> {
        let verdict = self.runtime.block_on(self.recorder.check(server)).context("reading the rows back")?;
        round.lost = verdict.missing.len();
        if !verdict.broken.is_empty() || verdict.accounts != 0 {
            round.trouble.push(format!("{} transactions are half there", verdict.broken.len()));
        }
        Ok(())
    }
}

/// The end of a refusal, short enough for a line.
fn last_line(said: &str) -> String {
    const LETTERS_MAX: usize = 160;
    let reason = |line: &&str| ["put back", "lacks", "older"].iter().any(|word| line.contains(word));
    let line = said.lines().rfind(reason).or_else(|| said.lines().last()).unwrap_or_default();
    line.trim().chars().take(LETTERS_MAX).collect()
}
