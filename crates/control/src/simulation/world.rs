//! The three nodes and what can be done to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_seams::testing::FaultDisk;
use holdfast_types::Epoch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::Sabotage;
use super::clock::SimClock;
use super::invariants::Witnessed;
use super::network::Network;
use super::runtime::Gate;
use crate::clock::LeaseClock;
use crate::error::ControlError;
use crate::handle::ControlHandle;
use crate::id::NodeId;
use crate::lease::LeaseTerms;
use crate::node::{Config, Machinery, Member};
use crate::plane::{Basis, ControlPlane, Promotion};
use crate::record::{Mastership, Position, Role};
use crate::sight::{Decision, Heard, Planner, SUCCESSOR_MS, Sight};

/// Nodes with data where there is a witness, which is the last.
pub const DATA_NODES: usize = 2;

/// A sync that is so far away does not fail.
pub const NEVER: u64 = u64::MAX;

pub const TERMS: LeaseTerms = LeaseTerms { lease_ms: 1_500, drift_percent: 10 };

pub struct SimNode {
    pub name: NodeId,
    pub disk: FaultDisk,
    pub clock: Arc<SimClock>,
    gate: Arc<Gate>,
    task: Option<JoinHandle<Result<(), ControlError>>>,
    /// None while it is down.
    pub handle: Option<ControlHandle>,
    /// Counts its starts.
    pub run: u64,
    /// On its own clock, when it was paused.
    pub paused_at_ns: Option<u64>,
}

pub struct World {
    pub nodes: Vec<SimNode>,
    pub network: Arc<Network>,
    pub seen: Witnessed,
    pub sabotage: Sabotage,
    /// The leader names successors, and who is named promotes itself.
    automatic: bool,
    /// Does not promote itself, though it is named.
    pub held_back: Arc<parking_lot::Mutex<BTreeSet<NodeId>>>,
    members: BTreeMap<NodeId, Role>,
    drawn: Arc<AtomicU64>,
    disks: u64,
    seed: u64,
}

pub fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn members(third: Role) -> BTreeMap<NodeId, Role> {
    let name = if third == Role::Data { "c" } else { "w" };
    BTreeMap::from([(node("a"), Role::Data), (node("b"), Role::Data), (node(name), third)])
}

impl World {
    /// Two nodes with data and a witness.
    pub fn new(seed: u64, sabotage: Sabotage) -> World {
        World::of(members(Role::Witness), seed, sabotage, false)
    }

    /// Three nodes with data.
    pub fn of_data_nodes(seed: u64, sabotage: Sabotage) -> World {
        World::of(members(Role::Data), seed, sabotage, false)
    }

    /// Two nodes with data and a witness, which fail over by themselves.
    pub fn automatic(seed: u64, sabotage: Sabotage) -> World {
        World::of(members(Role::Witness), seed, sabotage, true)
    }

    /// Three nodes with data, which fail over by themselves.
    pub fn automatic_of_data_nodes(seed: u64, sabotage: Sabotage) -> World {
        World::of(members(Role::Data), seed, sabotage, true)
    }

    fn of(members: BTreeMap<NodeId, Role>, seed: u64, sabotage: Sabotage, automatic: bool) -> World {
        let nodes = members.keys().enumerate().map(|(index, name)| SimNode {
            name: *name,
            disk: FaultDisk::new(seed * 8 + index as u64),
            clock: Arc::new(SimClock::new((index as u64 + 1) * 1_000_000_000)),
            gate: Gate::new(0),
            task: None,
            handle: None,
            run: 0,
            paused_at_ns: None,
        });
        let mut world = World {
            nodes: nodes.collect(),
            network: Network::new(seed),
            seen: Witnessed::default(),
            sabotage,
            automatic,
            held_back: Arc::default(),
            members: members.clone(),
            drawn: Arc::new(AtomicU64::new(seed << 32)),
            disks: 3,
            seed,
        };
        (0..3).for_each(|index| world.start(index));
        world
    }

    pub fn start(&mut self, index: usize) {
        self.nodes[index].disk.fail_sync(NEVER);
        let (drawn, sabotage, seed) = (self.drawn.clone(), self.sabotage, self.seed);
        let members = self.members.clone();
        let node = &mut self.nodes[index];
        node.run += 1;
        node.gate = Gate::new(seed.wrapping_mul(1_000_003) + node.run * 10_007 + index as u64 * 101);
        let config =
            Config { node: node.name, dir: "/control".into(), members, lease: TERMS, by_pulses: false, link: None };
        let machinery = Machinery {
            disk: Arc::new(node.disk.clone()),
            transport: self.network.join(node.name),
            clock: node.clock.clone(),
            random: Arc::new(move || drawn.fetch_add(1, Ordering::Relaxed) + 1),
            planner: self.automatic.then(|| {
                let decide = |sight: &Sight| Decision { successor: first_that_answers(sight), ..Decision::default() };
                Arc::new(decide) as Planner
            }),
            on_failure: Arc::new(|_| {}),
        };
        let opened = Member::open(config, machinery);
        let (mut member, handle) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        member.sabotage = sabotage;
        node.task = Some(node.gate.spawn(member.run()));
        if self.automatic && self.members[&node.name] == Role::Data {
            let held_back = self.held_back.clone();
            node.gate.spawn(promotes_itself(handle.clone(), node.name, held_back));
        }
        node.handle = Some(handle);
    }

    /// SIGKILL and a power cut.
    pub async fn crash(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.gate.kill();
        node.handle = None;
        node.paused_at_ns = None;
        node.disk.cut_power();
        // The tasks are dropped when the runtime comes to them.
        sleep(Duration::from_millis(1)).await;
        self.nodes[index].disk.restore_power();
    }

    /// It runs no more, of its own accord: its disk failed.
    pub fn has_ended(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        node.handle.is_some() && node.task.as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub fn index_of(&self, name: NodeId) -> usize {
        self.nodes.iter().position(|node| node.name == name).unwrap_or_default()
    }

    /// Whether what one sends arrives at the other, and the answer back.
    pub fn is_reached(&self, from: usize, to: usize) -> bool {
        let (near, far) = (&self.nodes[from], &self.nodes[to]);
        let runs = far.handle.is_some() && far.paused_at_ns.is_none();
        runs && !self.network.is_cut(near.name, far.name) && !self.network.is_cut(far.name, near.name)
    }

    pub fn lose_disk(&mut self, index: usize) {
        self.disks += 1;
        self.nodes[index].disk = FaultDisk::new(self.seed * 8 + self.disks);
    }

    pub fn pause(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.gate.pause();
        node.paused_at_ns = Some(node.clock.now_ns());
    }

    /// True when it was paused past its lease.
    pub fn resume(&mut self, index: usize) -> Result<bool, String> {
        let node = &mut self.nodes[index];
        let Some(paused_at_ns) = node.paused_at_ns.take() else { return Ok(false) };
        let paused_ms = (node.clock.now_ns() - paused_at_ns) / 1_000_000;
        let past = paused_ms > u64::from(TERMS.lease_ms);
        let valid = node.handle.as_ref().is_some_and(|handle| handle.lease().valid_now());
        node.gate.resume();
        if past && valid {
            return Err(format!("{} was paused for {paused_ms} ms and still holds its lease", node.name));
        }
        Ok(past)
    }

    /// The node that holds a lease.
    pub fn holder(&self) -> Option<NodeId> {
        let holds = |node: &&SimNode| node.handle.as_ref().is_some_and(|handle| handle.lease().valid_now());
        self.nodes.iter().find(holds).map(|node| node.name)
    }

    /// Takes note of what all nodes show; an error when that breaks a rule.
    pub fn see(&mut self) -> Result<(), String> {
        for node in &self.nodes {
            if let Some(record) = node.handle.as_ref().and_then(|handle| handle.record()) {
                self.seen.record(Some((node.name, node.run)), &record)?;
            }
        }
        Ok(())
    }

    /// How many nodes hold a lease; an error when that, or what they show, breaks a rule.
    pub fn check(&mut self) -> Result<usize, String> {
        self.see()?;
        let holds = |node: &SimNode| node.handle.as_ref().map(|handle| (node.name, handle.lease()));
        let leases: Vec<_> = self.nodes.iter().filter_map(holds).collect();
        self.seen.leases(&leases)
    }
}

impl World {
    /// Whether every node knows all three as voters, each on the disk that it has, and no change is half done.
    async fn all_vote(&self) -> Result<bool, ControlError> {
        let all: BTreeSet<NodeId> = self.members.keys().copied().collect();
        let (mut disks, mut known) = (BTreeMap::new(), Vec::new());
        for node in &self.nodes {
            let Some(handle) = &node.handle else { return Ok(false) };
            let voters = handle.voters().await?;
            disks.insert(node.name, voters.own_disk);
            known.push(voters);
        }
        Ok(known.iter().all(|voters| voters.sets == [all.clone()] && voters.disks == disks))
    }

    pub async fn until_all_vote(&self) -> Result<(), String> {
        let all = async {
            while !self.all_vote().await.map_err(|error| error.to_string())? {
                sleep(Duration::from_millis(200)).await;
            }
            Ok(())
        };
        let waited = timeout(Duration::from_secs(40), all).await;
        waited.unwrap_or_else(|_| Err("not all vote though all faults are over".to_owned()))
    }
}

/// The simplest choice: a node of the sync set that answers, by name.
fn first_that_answers(sight: &Sight) -> Option<NodeId> {
    let (record, named) = (&sight.record, sight.record.successor());
    let is_up = |node| sight.heard.get(&node).is_some_and(|heard| !matches!(heard, Heard::Silent { .. }));
    if record.frozen || sight.restarts_first.is_some() && record.master.is_some_and(is_up) {
        return None;
    }
    let is_lost = named
        .and_then(|named| sight.heard.get(&named))
        .is_some_and(|heard| matches!(heard, Heard::Silent { ms } if *ms >= u64::from(record.lease.lease_ms)));
    if named.is_some() && !is_lost && sight.late_ms < SUCCESSOR_MS {
        return None;
    }
    let is_fit = |(node, heard): &(&NodeId, &Heard)| {
        let serves = matches!(record.mastership, Mastership::Serving { .. }) && record.master == Some(**node);
        let answers = !matches!(heard, Heard::Silent { .. });
        answers && !serves && record.sync_set.contains(**node) && Some(**node) != named
    };
    let fit: Vec<NodeId> = sight.heard.iter().filter(is_fit).map(|(node, _)| *node).collect();
    fit.iter().find(|node| Some(**node) != record.master).or(fit.first()).copied()
}

/// What a server does under a supervisor: it is promoted when it is named, and when it starts as the last master.
async fn promotes_itself(handle: ControlHandle, me: NodeId, held_back: Arc<parking_lot::Mutex<BTreeSet<NodeId>>>) {
    let mut records = handle.watch();
    loop {
        let record = records.borrow_and_update().clone();
        let basis = record.as_ref().and_then(|record| match record.successor() {
            Some(named) => (named == me).then_some(Basis::Named),
            None => (record.master == Some(me) && handle.lease().epoch() < record.epoch).then_some(Basis::Starts),
        });
        match (record, basis.filter(|_| !held_back.lock().contains(&me))) {
            (Some(record), Some(basis)) => {
                let (expected_epoch, epoch_at_least) = (record.epoch, Epoch(0));
                let promotion =
                    Promotion { node: me, expected_epoch, epoch_at_least, accept_loss: false, trail_end: None, basis };
                // A refusal: the record has moved.
                let _ = handle.promote(promotion).await;
                sleep(Duration::from_millis(100)).await;
            }
            _ => {
                let _ = timeout(Duration::from_millis(500), records.changed()).await;
            }
        }
    }
}

/// Looks, then promotes `me` by its own handle.
pub async fn promote(handle: ControlHandle, me: NodeId, accept_loss: bool) -> Result<Epoch, ControlError> {
    promote_from(handle, me, accept_loss, None).await
}

/// As [`promote`], with a trail that ends there.
pub async fn promote_from(
    handle: ControlHandle,
    me: NodeId,
    accept_loss: bool,
    trail_end: Option<Position>,
) -> Result<Epoch, ControlError> {
    let expected_epoch = handle.look().await?.epoch;
    let promotion =
        Promotion { node: me, expected_epoch, epoch_at_least: Epoch(0), accept_loss, trail_end, basis: Basis::Asked };
    handle.promote(promotion).await
}
