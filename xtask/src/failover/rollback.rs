//! A directory is replaced by an older copy of itself, as when a virtual machine is restored from a snapshot.
//!
//! | server | right | wrong |
//! |---|---|---|
//! | rolled-back master with a control plane | refuses to serve, and names a server that has everything | serves without what it acknowledged: `stale`, and `lost` if no other server can be promoted |
//! | rolled-back master without one | as soon as a standby that has more connects: stops answering, and names it | answers go on: `stale` |
//! | rolled-back standby of a dead master | its promotion is refused, and a server that has everything is named | is promoted without what was acknowledged: `lost` |
//!
//! A server that refuses is started a second time, as a service manager does, and has to refuse again. The test does what the
//! refusal says and then looks whether everything is there.

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;

use crate::failover::advice::{Advice, find};
use crate::failover::bed::{Bed, ended};
use crate::failover::group::Settled;
use crate::failover::node::{Start, Until};
use crate::failover::rounds::Found;
use crate::kill_test::{ACKNOWLEDGED_MIN, Random};

/// What a refusal says that recognizes the older copy.
const ROLLED_BACK: &str = "put back from";

/// What a refusal says when the control directory is older, too.
const NEW_MEMBER: &str = "control away";

impl Bed {
    pub fn roll_back_master(
        &mut self,
        standby: usize,
        random: &mut Random,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<Settled> {
        let master = self.group.master;
        let mut running = self.load(random, runtime)?;
        self.group.nodes[master].stop()?;
        ended(&mut running, runtime)?;
        self.group.nodes[master].copy_aside()?;
        self.group.spawn_master(master)?;
        self.group.wait_until_equal()?;
        let mut running = self.load(random, runtime)?;
        self.group.nodes[master].kill()?;
        ended(&mut running, runtime)?;
        self.group.nodes[master].put_back()?;
        let said = match self.group.start_warily(master, Until::Answers)? {
            Start::Refuses(said) => Some(said),
            // Only without a control plane may it find out later.
            Start::Serves if self.plan.setup.has_control() => None,
            Start::Serves => self.group.until_silent(master, runtime)?,
        };
        match said {
            Some(said) => self.do_what_it_says(master, said, found),
            None => {
                let missing = self.missing_at(master, runtime)?;
                found.stale += missing;
                if missing > 0 {
                    let name = self.group.nodes[master].name;
                    found.damage.push(format!("{name} was rolled back and shows reads without {missing} transactions"));
                }
                Ok(self.rescue(master, standby))
            }
        }
    }

    pub fn roll_back_standby(
        &mut self,
        standby: usize,
        random: &mut Random,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<Settled> {
        let master = self.group.master;
        let mut running = self.load(random, runtime)?;
        self.group.nodes[standby].stop()?;
        self.group.nodes[standby].copy_aside()?;
        self.group.spawn(standby)?;
        self.group.wait_until_equal()?;
        let goal = self.recorder.acknowledged() + ACKNOWLEDGED_MIN;
        self.wait_for_acknowledged(goal, &mut running, runtime)?;
        self.group.nodes[standby].kill()?;
        self.group.nodes[master].kill()?;
        ended(&mut running, runtime)?;
        self.group.nodes[standby].put_back()?;
        match self.group.start_warily(standby, Until::Listens)? {
            Start::Serves => self.group.promote_as_told(standby, Some(standby)),
            Start::Refuses(said) => self.do_what_it_says(standby, said, found),
        }
    }

    /// How many acknowledged transactions the server does not show.
    fn missing_at(&self, node: usize, runtime: &Runtime) -> anyhow::Result<usize> {
        Ok(runtime.block_on(self.recorder.check(self.group.address(node)))?.missing.len())
    }

    /// The rolled-back server refuses to serve; the operator stops it and uses the server that it names.
    fn do_what_it_says(&mut self, rolled_back: usize, said: String, found: &mut Found) -> anyhow::Result<Settled> {
        self.new_member = said.contains(NEW_MEMBER).then_some(rolled_back);
        let group = &mut self.group;
        let name = group.nodes[rolled_back].name;
        if group.nodes[rolled_back].is_running() {
            group.nodes[rolled_back].kill()?;
        }
        let named = find(&said, &group.named(), &[rolled_back]).into_iter().find_map(|advice| group.possible(advice));
        let advice = match named {
            Some(advice) => advice,
            None if said.contains(ROLLED_BACK) => {
                found.unnamed = true;
                self.any_other(rolled_back).with_context(|| format!("no server but {name} is left"))?
            }
            None => bail!("{name} does not serve and does not report that it was rolled back:\n{said}"),
        };
        let mut settled = match advice {
            Advice::Promote(node) => self.group.promote_as_told(node, Some(rolled_back))?,
            Advice::Start(node) if node != self.group.master => {
                self.group.spawn(node)?;
                self.group.promote_as_told(node, Some(rolled_back))?
            }
            Advice::Start(node) => {
                self.group.spawn_master(node)?;
                Settled { master: node, promotion: None, refusals: Vec::new() }
            }
        };
        settled.refusals.insert(0, said);
        Ok(settled)
    }

    /// What is left to an operator who knows only that one server is of no use: the old master, which is stopped and has all
    /// that it acknowledged, or a standby that runs.
    fn any_other(&mut self, rolled_back: usize) -> Option<Advice> {
        let group = &mut self.group;
        let (master, standbys) = (group.master, group.standbys());
        if master != rolled_back {
            return Some(Advice::Start(master));
        }
        standbys.into_iter().find(|node| group.nodes[*node].is_running()).map(Advice::Promote)
    }

    /// A rolled-back master serves: the operator notices, and tries to promote the standby. Where that is refused the master
    /// stays.
    fn rescue(&mut self, master: usize, standby: usize) -> Settled {
        let stays = Settled { master, promotion: None, refusals: Vec::new() };
        if self.plan.setup.has_control() {
            return self.group.promote_as_told(standby, Some(master)).unwrap_or(stays);
        }
        let killed = self.group.nodes[master].kill();
        match killed.and_then(|()| self.group.promote_as_told(standby, Some(master))) {
            Ok(settled) => settled,
            // The check of the master reports what is missing, or that it does not start.
            Err(_) => {
                let _ = self.group.spawn_master(master);
                stays
            }
        }
    }
}
