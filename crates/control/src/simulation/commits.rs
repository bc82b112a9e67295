//! What the control plane is there for: commits of the master that its standby copies, acknowledged by the rules that the
//! module [`crate::record`] gives for the sync set.
//!
//! A data node's trail is a list of numbers that survives everything. A master with a lease adds to it; its standby takes
//! the master's trail over while the network and both let it, unless it has seen a higher epoch. The master acknowledges
//! what is in its trail while its standby has it, or when the group has agreed that it goes on without. Readers see all
//! that was acknowledged, and what stood in the trail of a master that starts. Whoever is promoted without accepting a
//! loss must have all of it, and from then on the master before it acknowledges nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_seams::testing::Seeded;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Sabotage;
use super::world::{DATA_NODES, World};
use crate::error::ControlError;
use crate::id::NodeId;
use crate::plane::ControlPlane;

/// Promotions that were asked for with a loss accepted: by whom, and on which epoch.
pub type Accepted = Arc<Mutex<BTreeSet<(NodeId, Epoch)>>>;

/// What a data node has on its disk.
#[derive(Default)]
struct Trail {
    commits: Vec<u64>,
    epoch: Epoch,
}

/// A master at work.
struct Master {
    epoch: Epoch,
    run: u64,
    /// The standby is known to have all that stood here at the start, or is out of the set.
    settled: bool,
    /// Commits wait for the standby.
    waits: bool,
    /// How many of the trail's commits the standby has.
    copied: usize,
    asked: Option<Asked>,
}

/// A change of the sync set under way.
struct Asked {
    shrinks: bool,
    task: JoinHandle<Result<(), ControlError>>,
}

/// What has come about.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub acknowledged: u64,
    pub shrinks: u64,
    pub grows: u64,
    pub masters_without_loss: u64,
    /// Masters after another one, that did not accept a loss.
    pub successors: u64,
    pub losses_accepted: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.acknowledged += other.acknowledged;
        self.shrinks += other.shrinks;
        self.grows += other.grows;
        self.masters_without_loss += other.masters_without_loss;
        self.successors += other.successors;
        self.losses_accepted += other.losses_accepted;
    }
}

#[derive(Default)]
pub struct Commits {
    trails: [Trail; DATA_NODES],
    masters: [Option<Master>; DATA_NODES],
    next: u64,
    acknowledged: BTreeSet<u64>,
    newest: Epoch,
    last: Option<NodeId>,
    pub accepted: Accepted,
    pub counts: Counts,
}

impl Commits {
    /// Judges new masters, then lets each node do something.
    pub async fn step(&mut self, world: &World, random: &mut Seeded) -> Result<(), String> {
        self.judge(world)?;
        for index in 0..DATA_NODES {
            self.work(world, index, random).await?;
        }
        Ok(())
    }

    fn judge(&mut self, world: &World) -> Result<(), String> {
        for (epoch, master) in world.seen.masters_since(self.newest) {
            let trail = &self.trails[world.index_of(master)].commits;
            let lost: Vec<u64> = self.acknowledged.iter().filter(|commit| !trail.contains(commit)).copied().collect();
            let accepted =
                self.accepted.lock().iter().any(|(node, on)| *node == master && (self.newest..epoch).contains(on));
            if !lost.is_empty() && !accepted {
                return Err(format!("{master} became master of epoch {epoch} without acknowledged commits: {lost:?}"));
            }
            let succeeds = self.last.replace(master).is_some_and(|last| last != master);
            self.counts.successors += u64::from(succeeds && !accepted);
            self.counts.masters_without_loss += u64::from(lost.is_empty());
            self.counts.losses_accepted += u64::from(!lost.is_empty());
            self.acknowledged.retain(|commit| !lost.contains(commit));
            self.newest = epoch;
        }
        Ok(())
    }

    async fn work(&mut self, world: &World, index: usize, random: &mut Seeded) -> Result<(), String> {
        let (node, other) = (&world.nodes[index], 1 - index);
        let Some(handle) = node.handle.as_ref().filter(|_| node.paused_at_ns.is_none()) else {
            // A process that is gone has forgotten everything but its trail.
            if node.handle.is_none() {
                self.masters[index] = None;
            }
            return Ok(());
        };
        let lease = handle.lease();
        let is_known = |master: &Master| master.epoch == lease.epoch() && master.run == node.run;
        if !self.masters[index].as_ref().is_some_and(is_known) {
            self.masters[index] = None;
            if !lease.valid_now() {
                return Ok(());
            }
            self.begin(index, lease.epoch(), node.run, world.sabotage);
        }
        let Some(master) = &mut self.masters[index] else { return Ok(()) };
        if let Some(asked) = master.asked.take_if(|asked| asked.task.is_finished()) {
            let agreed = asked.task.await.is_ok_and(|agreed| agreed.is_ok());
            if agreed && asked.shrinks {
                (master.waits, master.settled) = (false, true);
            }
        }
        let reached = world.is_reached(index, other);
        if reached && random.one_in(2) && self.trails[other].epoch <= master.epoch {
            let copy = Trail { commits: self.trails[index].commits.clone(), epoch: master.epoch };
            master.copied = copy.commits.len();
            // In the set it was already, or it is out of it: either way it has all.
            master.settled = true;
            self.trails[other] = copy;
        }
        let trail = &mut self.trails[index].commits;
        if random.one_in(3) {
            self.next += 1;
            trail.push(self.next);
        }
        let too_early = world.sabotage == Sabotage::AlonePremature && master.asked.as_ref().is_some_and(|a| a.shrinks);
        let end = if master.waits && !too_early { master.copied } else { trail.len() };
        if master.settled && lease.valid_now() {
            let before = self.acknowledged.len();
            self.acknowledged.extend(&trail[..end]);
            let fresh = self.acknowledged.len() - before;
            self.counts.acknowledged += fresh as u64;
            not_after(fresh, node.name, master.epoch, self.newest)?;
        }
        if master.asked.is_none() {
            let has_all = master.copied == trail.len();
            master.ask(handle, world.nodes[other].name, reached, has_all, random, &mut self.counts);
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, epoch: Epoch, run: u64, sabotage: Sabotage) {
        let trail = &mut self.trails[index];
        if trail.epoch > epoch {
            return;
        }
        trail.epoch = epoch;
        if sabotage == Sabotage::ReadsAtOnce {
            self.acknowledged.extend(&trail.commits);
        }
        self.masters[index] = Some(Master { epoch, run, settled: false, waits: true, copied: 0, asked: None });
    }
}

/// A master acknowledges nothing when a later epoch has its master: that one's readers do not see it.
pub fn not_after(fresh: usize, master: NodeId, epoch: Epoch, newest: Epoch) -> Result<(), String> {
    match fresh > 0 && newest > epoch {
        true => {
            Err(format!("{master} acknowledged commits under its lease of epoch {epoch} when {newest} had its master"))
        }
        false => Ok(()),
    }
}

impl Master {
    /// Out of the set before commits go on without it; waited for before it is in the set.
    fn ask(
        &mut self,
        handle: &crate::ControlHandle,
        standby: NodeId,
        reached: bool,
        has_all: bool,
        random: &mut Seeded,
        counts: &mut Counts,
    ) {
        let shrinks = self.waits && (!reached && random.one_in(20) || random.one_in(200));
        let grows = !self.waits && reached && has_all && random.one_in(5);
        if !shrinks && !grows {
            return;
        }
        counts.shrinks += u64::from(shrinks);
        counts.grows += u64::from(grows);
        self.waits = true;
        let (handle, epoch) = (handle.clone(), self.epoch);
        let task = tokio::spawn(async move {
            if shrinks { handle.shrink(epoch, standby).await } else { handle.grow(epoch, standby).await }
        });
        self.asked = Some(Asked { shrinks, task });
    }
}
