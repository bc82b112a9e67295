//! The servers of a run with their clients, and how a round loses one of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::failover::fault::Fault;
use crate::failover::group::{Group, Rejoined, Settled};
use crate::failover::rounds::Found;
use crate::failover::{Plan, arrival};
use crate::kill_test::{ACKNOWLEDGED_MIN, LOAD_WAIT_MAX, MOMENT_MS_MAX, Random};
use crate::recorder::{Load, Recorder, error_text};

/// How long a standby is away, or the master continues without it, at most.
const AWAY_MS_MAX: u64 = 600;

/// Longer than any client takes to notice that its server is gone.
const END_MAX: Duration = Duration::from_secs(60);

/// How long a standby has to follow the new master by itself, before the operator helps.
const BY_ITSELF: Duration = Duration::from_secs(3);

/// How long a standby that was pointed at the new master has to follow it. One that has diverged never does.
const FOLLOWS_MAX: Duration = Duration::from_secs(30);

/// The servers, and the answers that their clients got.
pub struct Bed {
    pub group: Group,
    pub recorder: Recorder,
    pub plan: Plan,
    /// A server whose refusal says that its control directory has to be moved away.
    pub new_member: Option<usize>,
}

pub type Running = JoinSet<tokio_postgres::Error>;

impl Bed {
    /// `schema`: some clients change the schema.
    pub fn start(binary: &Path, plan: &Plan, schema: bool, runtime: &Runtime) -> anyhow::Result<Bed> {
        let group = Group::start(binary, plan.setup, plan.level, plan.power_cut)?;
        let recorder = Recorder::of(Load { schema, ..Load::default() });
        let master = group.address(group.master);
        runtime.block_on(recorder.create_tables(master))?;
        runtime.block_on(arrival::create_table(master))?;
        Ok(Bed { group, recorder, plan: plan.clone(), new_member: None })
    }

    /// Makes the fault happen under load and does what an operator does then. Afterwards the old master is stopped for good,
    /// and clients with a list of hosts have found the new one.
    pub fn lose_server(
        &mut self,
        round: u32,
        fault: Fault,
        random: &mut Random,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<Settled> {
        let old = self.group.master;
        let standbys = self.group.standbys();
        let standby = standbys[random.below(standbys.len() as u64) as usize];
        let mut arrived = false;
        let settled = match fault {
            Fault::RolledBackMaster => self.roll_back_master(standby, random, runtime, found)?,
            Fault::RolledBackStandby => self.roll_back_standby(standby, random, runtime, found)?,
            Fault::Hung | Fault::Resumed | Fault::Clients | Fault::ThirdServer if self.hangs(fault) => {
                arrived = fault == Fault::Clients;
                self.hang_master(round, fault, standby, random, runtime, found)?
            }
            _ => {
                let mut running = self.load(random, runtime)?;
                let settled = self.kill_master(fault, standby, random)?;
                ended(&mut running, runtime)?;
                settled
            }
        };
        if !arrived {
            runtime.block_on(arrival::leave_mark(self.group.address(settled.master), round))?;
            self.arrive(old, settled.master, round, runtime, found)?;
        }
        Ok(settled)
    }

    /// Without a control plane a master that hangs does not learn that it was deposed: clients cannot tell the two apart, and
    /// the operator has to kill it first.
    fn hangs(&self, fault: Fault) -> bool {
        fault != Fault::Clients || self.plan.setup.has_control()
    }

    /// Clients with a list of hosts, the old master first, look for the new master.
    pub fn arrive(
        &self,
        old: usize,
        new: usize,
        mark: u32,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<()> {
        let hosts = self.group.hosts(old);
        let mut astray = runtime.block_on(arrival::through_driver(&hosts, mark));
        astray.extend(arrival::through_libpq(&hosts, self.group.address(new), mark)?);
        found.astray += astray.len();
        found.damage.extend(astray);
        Ok(())
    }

    /// Brings the load up and returns at a random moment after it works.
    pub fn load(&mut self, random: &mut Random, runtime: &Runtime) -> anyhow::Result<Running> {
        let goal = self.recorder.acknowledged() + ACKNOWLEDGED_MIN;
        // The next server first: the clients have to leave the standby.
        let hosts = self.group.hosts((self.group.master + 1) % self.group.nodes.len());
        let mut running = runtime.block_on(self.recorder.start_at(&hosts, self.plan.clients))?;
        self.wait_for_acknowledged(goal, &mut running, runtime)?;
        std::thread::sleep(Duration::from_millis(random.below(MOMENT_MS_MAX)));
        still_running(&mut running, runtime)?;
        Ok(running)
    }

    pub fn wait_for_acknowledged(&self, goal: u64, running: &mut Running, runtime: &Runtime) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.recorder.acknowledged() < goal {
            still_running(running, runtime)?;
            if started.elapsed() > LOAD_WAIT_MAX {
                bail!("only {} acknowledgements in {LOAD_WAIT_MAX:?}", self.recorder.acknowledged());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The master is killed under load, alone or together with the standby.
    fn kill_master(&mut self, fault: Fault, standby: usize, random: &mut Random) -> anyhow::Result<Settled> {
        let group = &mut self.group;
        let mut pause = || std::thread::sleep(Duration::from_millis(random.below(AWAY_MS_MAX)));
        match fault {
            Fault::BothKilled => {
                group.nodes[standby].kill()?;
                pause();
                group.nodes[group.master].kill()?;
                group.spawn(standby)?;
            }
            Fault::StandbyBack => {
                group.nodes[standby].kill()?;
                pause();
                group.spawn(standby)?;
                pause();
                group.nodes[group.master].kill()?;
            }
            _ => group.nodes[group.master].kill()?,
        }
        group.promote_as_told(standby, None)
    }

    /// The old master comes back as a standby.
    pub fn rejoin(&mut self, node: usize) -> anyhow::Result<Rejoined> {
        let rejoined = self.group.rejoin(node)?;
        self.group.spawn(node)?;
        self.group.wait_until_followed(node, FOLLOWS_MAX)?;
        Ok(rejoined)
    }

    /// Another standby follows the master, by itself or, where the master is a new one, as the operator tells it.
    pub fn follow(&mut self, node: usize, is_new: bool) -> anyhow::Result<Rejoined> {
        let group = &mut self.group;
        let by_itself = group.nodes[node].is_running() && group.wait_until_followed(node, BY_ITSELF).is_ok();
        if !by_itself {
            if is_new {
                group.nodes[node].stop()?;
                group.follow(node)?;
            }
            if !group.nodes[node].is_running() {
                group.spawn(node)?;
            }
            group.wait_until_followed(node, FOLLOWS_MAX).context("a standby parted from the new master")?;
        }
        Ok(Rejoined { copied: false, lost: Vec::new() })
    }
}

/// Waits until all clients have noticed that their server is gone.
pub fn ended(running: &mut Running, runtime: &Runtime) -> anyhow::Result<()> {
    runtime.block_on(async {
        let all = async { while running.join_next().await.is_some() {} };
        tokio::time::timeout(END_MAX, all).await.context("clients wait on although their server is gone")
    })
}

fn still_running(running: &mut Running, runtime: &Runtime) -> anyhow::Result<()> {
    match runtime.block_on(async { running.try_join_next() }) {
        None => Ok(()),
        Some(Ok(error)) => bail!("a client's transaction failed before the fault: {}", error_text(&error)),
        Some(Err(error)) => Err(error.into()),
    }
}
