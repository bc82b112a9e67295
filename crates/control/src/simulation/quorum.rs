//! Commits that wait for any one of two standbys: three data nodes, whose trails are asked for at a promotion.
//!
//! A data node's trail is a list of boxcars, each with the epoch it was written in, that survives everything. A master adds
//! to it while it holds a lease; its standbys take it over, each at its own pace, whether it holds a lease or not, unless
//! they have seen a higher epoch. The master acknowledges what one of them has; or, when the group has agreed, what nobody
//! else has. Readers see what was acknowledged, and what stood in the trail of a master that starts, once the group has
//! agreed that nobody else may have that. Now and then a standby loses an end that it had confirmed, after the group has
//! agreed that it counts no more. Whoever is promoted without accepting a loss must have all that was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_seams::testing::Seeded;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Sabotage;
use super::commits::{Accepted, Counts, not_after};
use super::world::World;
use crate::error::ControlError;
use crate::handle::ControlHandle;
use crate::id::NodeId;
use crate::plane::{ControlPlane, Quorum};
use crate::record::Position;
use crate::trail_tip::{Compared, ComparedTrail, TrailTip, judge};

const NODES: usize = 3;

/// A boxcar: its number, and the epoch it was written in.
type Boxcar = (u64, Epoch);

/// What a node has on its disk.
#[derive(Clone, Default)]
struct Trail {
    boxcars: Vec<Boxcar>,
    /// The highest epoch it has met.
    epoch: Epoch,
    leads: Option<u32>,
}

impl Trail {
    fn tip(&self) -> TrailTip {
        let (number, epoch) = self.boxcars.last().copied().unwrap_or_default();
        TrailTip {
            trail: String::new(),
            epoch,
            lsn: self.boxcars.len() as u64,
            checksum: number as u32,
            leads: self.leads,
            settled: None,
            ..TrailTip::default()
        }
    }

    /// Takes up to `count` boxcars over, after what the master does not have was cut off.
    fn follow(&mut self, master: &[Boxcar], count: usize) {
        let common = self.boxcars.iter().zip(master).take_while(|(own, its)| own == its).count();
        self.boxcars.truncate(common);
        self.boxcars.extend(master[common..].iter().take(count));
    }
}

#[derive(Clone, Default)]
struct SimTrail(Arc<Mutex<Trail>>);

impl ComparedTrail for SimTrail {
    fn tip(&self) -> BoxFuture<'static, Result<TrailTip, String>> {
        let tip = self.0.lock().tip();
        async move { Ok(tip) }.boxed()
    }

    fn compare(&self, other: TrailTip) -> BoxFuture<'static, Result<Compared, String>> {
        let own = self.0.lock();
        let last = other.lsn.checked_sub(1).map(|last| own.boxcars.get(last as usize));
        let has_it = last.is_none_or(|boxcar| boxcar.is_some_and(|(number, _)| *number as u32 == other.checksum));
        let compared = judge(&own.tip(), &other, Some(has_it));
        async move { Ok(compared) }.boxed()
    }

    fn end(&self) -> Position {
        let own = self.0.lock();
        Position { epoch: own.epoch, lsn: own.boxcars.len() as u64 }
    }

    fn positions(&self, _: Epoch) -> BTreeMap<NodeId, u64> {
        BTreeMap::new()
    }
}

/// What was asked of the group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// That nobody else may be promoted: of a master that starts, or that is to go on alone.
    Alone,
    Quorum,
    /// That this standby counts no more: it is about to lose something.
    Without(usize),
}

/// A master at work.
struct Master {
    epoch: Epoch,
    run: u64,
    /// Nobody else may be promoted, as far as it knows, or a quorum was named since.
    settled: bool,
    /// Commits wait for no standby.
    alone: bool,
    named: bool,
    /// What each standby has confirmed to this master, and the most that one has.
    confirmed: [usize; NODES],
    reached: usize,
    waiting_from: Option<usize>,
    asked: Option<(Wanted, JoinHandle<Result<(), ControlError>>)>,
}

#[derive(Default)]
pub struct QuorumCommits {
    trails: [SimTrail; NODES],
    /// The run of each node that its trail was given to.
    given: [u64; NODES],
    masters: [Option<Master>; NODES],
    next: u64,
    acknowledged: BTreeSet<u64>,
    newest: Epoch,
    last: Option<NodeId>,
    pub accepted: Accepted,
    pub counts: Counts,
}

impl QuorumCommits {
    /// Judges new masters, then lets each node do something.
    pub fn step(&mut self, world: &World, random: &mut Seeded) -> Result<(), String> {
        self.judge(world)?;
        (0..NODES).try_for_each(|index| self.work(world, index, random))
    }

    fn judge(&mut self, world: &World) -> Result<(), String> {
        for (epoch, master) in world.seen.masters_since(self.newest) {
            let trail = &self.trails[world.index_of(master)];
            let has: BTreeSet<u64> = trail.0.lock().boxcars.iter().map(|(number, _)| *number).collect();
            let lost: Vec<u64> = self.acknowledged.difference(&has).copied().collect();
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

    fn work(&mut self, world: &World, index: usize, random: &mut Seeded) -> Result<(), String> {
        let node = &world.nodes[index];
        let Some(handle) = node.handle.as_ref().filter(|_| node.paused_at_ns.is_none()) else {
            if node.handle.is_none() {
                self.masters[index] = None;
                self.trails[index].0.lock().leads = None;
            }
            return Ok(());
        };
        if std::mem::replace(&mut self.given[index], node.run) != node.run {
            handle.set_trail(Some(Arc::new(self.trails[index].clone())));
        }
        let lease = handle.lease();
        let is_known = |master: &Master| master.epoch == lease.epoch() && master.run == node.run;
        if !self.masters[index].as_ref().is_some_and(is_known) {
            self.masters[index] = None;
            let trail = &mut self.trails[index].0.lock();
            trail.leads = None;
            if !lease.valid_now() || trail.epoch > lease.epoch() {
                return Ok(());
            }
            (trail.epoch, trail.leads) = (lease.epoch(), Some(lease.epoch().0));
            self.masters[index] = Some(Master::begin(lease.epoch(), node.run));
        }
        let Some(mut master) = self.masters[index].take() else { return Ok(()) };
        self.hear(&mut master, index);
        self.ship(&mut master, world, index, random);
        let mut trail = self.trails[index].0.lock();
        if lease.valid_now() && random.one_in(3) {
            self.next += 1;
            trail.boxcars.push((self.next, master.epoch));
        }
        let end = if master.alone { trail.boxcars.len() } else { master.reached.min(trail.boxcars.len()) };
        if master.settled && lease.valid_now() {
            let before = self.acknowledged.len();
            self.acknowledged.extend(trail.boxcars[..end].iter().map(|(number, _)| *number));
            let fresh = self.acknowledged.len() - before;
            self.counts.acknowledged += fresh as u64;
            not_after(fresh, node.name, master.epoch, self.newest)?;
        }
        drop(trail);
        if master.asked.is_none() {
            self.ask(&mut master, handle, world, index, random);
        }
        self.masters[index] = Some(master);
        Ok(())
    }

    /// What the group has said to what was asked.
    fn hear(&mut self, master: &mut Master, index: usize) {
        let Some((wanted, task)) = master.asked.take_if(|(_, task)| task.is_finished()) else { return };
        if !task.now_or_never().is_some_and(|agreed| agreed.is_ok_and(|agreed| agreed.is_ok())) {
            return;
        }
        match wanted {
            Wanted::Quorum => master.named = true,
            Wanted::Without(standby) => self.fall(master, standby),
            Wanted::Alone if !master.settled => {
                master.settled = true;
                // Its readers see what stood there, whoever else has it.
                let trail = self.trails[index].0.lock();
                let stood = trail.boxcars.iter().filter(|(_, epoch)| *epoch < master.epoch);
                self.acknowledged.extend(stood.map(|(number, _)| *number));
            }
            Wanted::Alone => (master.alone, master.named) = (true, false),
        }
    }

    /// A standby has lost an end of its trail; what it had confirmed is confirmed no more.
    fn fall(&mut self, master: &mut Master, standby: usize) {
        let mut trail = self.trails[standby].0.lock();
        let left = trail.boxcars.len() * 2 / 3;
        trail.boxcars.truncate(left);
        master.confirmed[standby] = left;
        (master.named, master.waiting_from) = (false, None);
    }

    fn ship(&self, master: &mut Master, world: &World, index: usize, random: &mut Seeded) {
        let own = self.trails[index].0.lock().boxcars.clone();
        for other in (0..NODES).filter(|other| *other != index) {
            let mut trail = self.trails[other].0.lock();
            if !world.is_reached(index, other) || trail.epoch > master.epoch || !random.one_in(3) {
                continue;
            }
            trail.epoch = master.epoch;
            trail.follow(&own, random.below(6) as usize);
            master.confirmed[other] = trail.boxcars.len();
            master.reached = master.reached.max(trail.boxcars.len());
        }
    }

    fn ask(&mut self, master: &mut Master, handle: &ControlHandle, world: &World, index: usize, random: &mut Seeded) {
        let standbys: Vec<usize> = (0..NODES).filter(|other| *other != index).collect();
        let names: Vec<NodeId> = standbys.iter().map(|other| world.nodes[*other].name).collect();
        let (handle, epoch) = (handle.clone(), master.epoch);
        let reached = standbys.iter().any(|other| world.is_reached(index, *other));
        let starts_or_goes_on = !master.settled || !master.alone && !reached && random.one_in(20);
        if starts_or_goes_on {
            self.counts.shrinks += 1;
            let alone = async move {
                for name in names {
                    handle.shrink(epoch, name).await?;
                }
                Ok(())
            };
            master.asked = Some((Wanted::Alone, tokio::spawn(alone)));
        } else if master.alone {
            master.alone = !(reached && random.one_in(5));
            master.waiting_from = None;
        } else if master.named {
            if random.one_in(100) {
                let which = random.below(2) as usize;
                self.lose(master, handle, standbys[which], names[which], world.sabotage);
            }
        } else if let Some(needed) = master.needed_for_quorum(&self.trails[index].0.lock(), world.sabotage) {
            let change = handle.next_change();
            if standbys.iter().any(|standby| master.confirmed[*standby] >= needed) {
                self.counts.grows += 1;
                let quorum = Quorum { standbys: names.into_iter().collect(), needed: 1 };
                let named = async move { handle.name_quorum(epoch, quorum, change).await };
                master.asked = Some((Wanted::Quorum, tokio::spawn(named)));
            }
        }
    }

    fn lose(&mut self, master: &mut Master, handle: ControlHandle, standby: usize, name: NodeId, sabotage: Sabotage) {
        if sabotage == Sabotage::FallenStays {
            self.fall(master, standby);
            master.named = true;
            return;
        }
        let epoch = master.epoch;
        let without = async move { handle.shrink(epoch, name).await };
        master.asked = Some((Wanted::Without(standby), tokio::spawn(without)));
    }
}

impl Master {
    fn begin(epoch: Epoch, run: u64) -> Master {
        Master {
            epoch,
            run,
            settled: false,
            alone: false,
            named: false,
            confirmed: [0; NODES],
            reached: 0,
            waiting_from: None,
            asked: None,
        }
    }

    /// What a standby must have before the quorum is named; `None`: nothing was written in this epoch yet.
    fn needed_for_quorum(&mut self, trail: &Trail, sabotage: Sabotage) -> Option<usize> {
        let is_own = trail.boxcars.last().is_some_and(|(_, epoch)| *epoch == self.epoch);
        (is_own || sabotage == Sabotage::NamesTooEarly)
            .then(|| self.reached.max(*self.waiting_from.get_or_insert(trail.boxcars.len())))
    }
}
