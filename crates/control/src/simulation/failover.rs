//! Failovers without a command: that they happen, that a master that serves is left alone, and what happens without the rules
//! K1, K2 and K3 ([`crate::applied`], [`crate::failover`]).

use std::time::Duration;

use holdfast_types::Epoch;
use tokio::time::{Instant, sleep};

use super::Sabotage;
use super::directed::{A, B, W};
use super::world::{TERMS, World, node};
use crate::id::NodeId;
use crate::plane::{Basis, ControlPlane, Promotion};
use crate::record::{Command, Mastership, Record};
use crate::sight::SUCCESSOR_MS;

/// Virtual time for what makes and tells a world.
pub fn in_time<T, F: Future<Output = T>>(tell: impl FnOnce() -> F) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tell().await })
}

impl World {
    /// The newest record that a node which runs has applied or heard of.
    pub fn newest(&self) -> Option<Record> {
        let records = self.nodes.iter().filter_map(|node| node.handle.as_ref()?.record());
        records.max_by_key(|record| record.revision).map(|record| (*record).clone())
    }

    /// The witness leads, `a` is the master, `b` is in the sync set.
    pub async fn led_by_the_witness(mut self) -> World {
        self.until_leads(W).await;
        self.with_master().await
    }
}

/// Watches a story: nothing may break a rule, and no master is deposed while it holds its lease. Who was named.
#[derive(Default)]
pub struct Watched {
    deposed: Option<Epoch>,
    pub named: Vec<NodeId>,
    /// Whether the master of that epoch held its lease when it was looked at before.
    served: Option<(Epoch, bool)>,
}

impl Watched {
    pub fn look(&mut self, world: &mut World) -> Result<(), String> {
        world.check()?;
        let Some(record) = world.newest() else { return Ok(()) };
        if let Some(successor) = record.successor()
            && self.named.last() != Some(&successor)
        {
            self.named.push(successor);
        }
        let holds = |world: &World, epoch: Epoch| {
            let mut running = world.nodes.iter().filter(|node| node.paused_at_ns.is_none());
            running.any(|node| {
                let lease = node.handle.as_ref().map(|handle| handle.lease());
                lease.is_some_and(|lease| lease.epoch() == epoch && lease.valid_now())
            })
        };
        match record.mastership {
            Mastership::Serving { .. } => self.served = Some((record.epoch, holds(world, record.epoch))),
            Mastership::Deposed { .. } => {
                let is_new = self.deposed.replace(record.epoch) != Some(record.epoch);
                if is_new && self.served == Some((record.epoch, true)) && holds(world, record.epoch) {
                    return Err(format!("the master of epoch {} was deposed while it served", record.epoch));
                }
            }
            Mastership::Free { .. } => {}
        }
        Ok(())
    }

    pub async fn run(&mut self, world: &mut World, lasts: Duration) -> Result<(), String> {
        self.until(world, lasts, |_| false).await.map(drop)
    }

    /// Looks on until something is so; whether it was in this time.
    pub async fn until(
        &mut self,
        world: &mut World,
        within: Duration,
        is_so: impl Fn(&World) -> bool,
    ) -> Result<bool, String> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            self.look(world)?;
            if is_so(world) {
                return Ok(true);
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(false)
    }
}

pub fn serves(index: usize) -> impl Fn(&World) -> bool {
    move |world: &World| world.nodes[index].handle.as_ref().is_some_and(|handle| handle.lease().valid_now())
}

pub const SOON: Duration = Duration::from_secs(20);

#[test]
fn the_standby_of_a_master_that_dies_or_hangs_takes_over_by_itself() {
    for dies in [true, false] {
        for witness_leads in [true, false] {
            in_time(|| async {
                let world = World::automatic(7, Sabotage::None);
                let mut world =
                    if witness_leads { world.led_by_the_witness().await } else { world.with_master().await };
                let mut watched = Watched::default();
                watched.run(&mut world, Duration::from_secs(5)).await.unwrap();
                assert!(watched.named.is_empty() && serves(A)(&world), "nothing has happened yet");
                let begun = Instant::now();
                if dies {
                    world.crash(A).await
                } else {
                    world.pause(A)
                }
                assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap(), "b does not take over");
                let took = begun.elapsed();
                println!("dies: {dies}, the witness leads: {witness_leads}: {took:?}");
                assert_eq!(watched.named, [node("b")], "one successor, which has its time");
                if dies {
                    world.start(A)
                } else {
                    world.resume(A).unwrap();
                }
                watched.run(&mut world, Duration::from_secs(10)).await.unwrap();
                assert!(serves(B)(&world) && watched.named == [node("b")]);
            });
        }
    }
}

#[test]
fn the_witness_takes_the_lead_back_and_keeps_it_when_the_master_dies() {
    in_time(|| async {
        for seed in 7..12 {
            let mut world = World::automatic(seed, Sabotage::None);
            world.until_leads(A).await;
            let mut world = world.with_master().await;
            let witness_leads =
                |world: &World| leader(world, W) == Some(node("w")) && leader(world, B) == Some(node("w"));
            let mut watched = Watched::default();
            let within = Duration::from_secs(30);
            assert!(
                watched.until(&mut world, within, witness_leads).await.unwrap(),
                "seed {seed}: the witness does not lead"
            );
            // The change of the leader cost no lease.
            watched.run(&mut world, Duration::from_secs(5)).await.unwrap();
            assert!(watched.named.is_empty() && serves(A)(&world) && witness_leads(&world), "seed {seed}");
            world.crash(A).await;
            let lost = |world: &World| serves(B)(world) || !witness_leads(world);
            assert!(watched.until(&mut world, SOON, lost).await.unwrap(), "seed {seed}: b does not take over");
            assert!(serves(B)(&world) && witness_leads(&world), "seed {seed}: another leader was elected meanwhile");
        }
    });
}

/// A node that leads and is about to stop: the witness leads before that, so that the successor is named at once.
#[test]
fn a_member_that_stops_hands_the_lead_on_and_its_lease_survives_that() {
    in_time(|| async {
        for seed in 7..12 {
            let mut world = World::automatic(seed, Sabotage::None);
            world.until_leads(A).await;
            let mut world = world.with_master().await;
            let mut watched = Watched::default();
            watched.run(&mut world, Duration::from_secs(2)).await.unwrap();
            assert_eq!(leader(&world, A), Some(node("a")), "seed {seed}");
            let a = world.handle(A);
            tokio::time::timeout(Duration::from_secs(2), a.hand_on_lead())
                .await
                .expect("no other member leads")
                .unwrap();
            watched.run(&mut world, Duration::from_millis(1_300)).await.unwrap();
            assert_eq!(leader(&world, B), Some(node("w")), "seed {seed}");
            assert!(
                watched.named.is_empty() && serves(A)(&world),
                "seed {seed}: the change of the leader cost the lease"
            );
            a.release(a.lease().epoch()).await.unwrap();
            drop(a);
            world.crash(A).await;
            let stopped = Instant::now();
            assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap(), "seed {seed}: b does not take over");
            assert!(
                stopped.elapsed() < Duration::from_millis(600),
                "seed {seed}: {:?}: an election",
                stopped.elapsed()
            );
        }
    });
}

/// The leader that a member hears.
fn leader(world: &World, index: usize) -> Option<NodeId> {
    world.nodes[index].handle.as_ref().and_then(|handle| handle.leader())
}

#[test]
fn a_master_that_gives_up_its_lease_is_followed_at_once() {
    in_time(|| async {
        let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
        sleep(Duration::from_secs(5)).await;
        let (begun, a) = (Instant::now(), world.handle(A));
        a.release(a.lease().epoch()).await.unwrap();
        world.held_back.lock().insert(node("a"));
        let mut watched = Watched::default();
        assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap());
        assert!(begun.elapsed() < TERMS.lease(), "{:?}: nothing was waited out", begun.elapsed());
    });
}

#[test]
fn without_a_successor_the_master_keeps_its_epoch() {
    in_time(|| async {
        let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
        let (a, epoch) = (world.handle(A), world.newest().unwrap().epoch);
        a.shrink(epoch, node("b")).await.unwrap();
        drop(a);
        world.crash(A).await;
        let mut watched = Watched::default();
        watched.run(&mut world, SOON).await.unwrap();
        assert!(watched.named.is_empty() && world.newest().unwrap().is_served_by(node("a"), epoch));
        world.start(A);
        assert!(watched.until(&mut world, SOON, serves(A)).await.unwrap(), "it comes back");
    });
}

#[test]
fn a_successor_that_is_not_promoted_is_replaced_when_it_has_had_its_time() {
    in_time(|| async {
        let mut world = World::automatic_of_data_nodes(7, Sabotage::None).led_by_the_witness().await;
        let a = world.handle(A);
        a.grow(a.lease().epoch(), node("c")).await.unwrap();
        drop(a);
        world.held_back.lock().insert(node("b"));
        world.crash(A).await;
        let (begun, mut watched) = (Instant::now(), Watched::default());
        assert!(watched.until(&mut world, SOON, serves(W)).await.unwrap(), "c does not take over");
        assert_eq!(watched.named, [node("b"), node("c")]);
        let least = Duration::from_millis(TERMS.wait_out_ms() + SUCCESSOR_MS) - TERMS.renew_every();
        assert!(begun.elapsed() >= least, "{:?}: its time counts from the end of the wait", begun.elapsed());
    });
}

/// A person has named b, and it cannot be promoted: only a person names another one.
#[test]
fn a_successor_that_a_person_has_named_is_not_replaced() {
    in_time(|| async {
        let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
        let epoch = world.newest().unwrap().epoch;
        world.held_back.lock().insert(node("b"));
        world.handle(W).command(depose(epoch, "b")).await.unwrap();
        let mut watched = Watched::default();
        world.handle(A).lease().give_up();
        watched.run(&mut world, SOON).await.unwrap();
        assert_eq!(watched.named, [node("b")]);
        world.held_back.lock().clear();
        assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap());
    });
}

pub fn depose(epoch: Epoch, successor: &str) -> Command {
    Command::Depose { expected_epoch: epoch, successor: node(successor), accept_loss: false, seen: None }
}

/// b is cut off for longer than a connection lasts; then the renewals that it has missed and its own naming arrive together.
async fn renewals_arrive_with_depose(seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let mut world = World::new(seed, sabotage).led_by_the_witness().await;
    let epoch = world.newest().ok_or("no record")?.epoch;
    world.isolate(node("b"));
    sleep(Duration::from_millis(6_500)).await;
    let named = world.handle(W).command(depose(epoch, "b")).await;
    named.map_err(|error| error.to_string())?;
    world.network.heal();
    let b = world.handle(B);
    let mut records = b.watch();
    let is_named = |record: &Option<std::sync::Arc<Record>>| {
        record.as_ref().is_some_and(|record| record.successor() == Some(node("b")))
    };
    records.wait_for(is_named).await.map_err(|error| error.to_string())?;
    let promotion = Promotion {
        node: node("b"),
        expected_epoch: epoch,
        epoch_at_least: Epoch(0),
        accept_loss: false,
        trail_end: None,
        basis: Basis::Named,
    };
    let promoting = tokio::spawn(async move { b.promote(promotion).await });
    let so = Watched::default().until_two(&mut world).await;
    promoting.abort();
    so
}

impl Watched {
    /// As [`Watched::until`] b serves, with the rules of leases alone: a person has deposed the master here.
    async fn until_two(&mut self, world: &mut World) -> Result<(), String> {
        let until = Instant::now() + SOON;
        while Instant::now() < until {
            world.check()?;
            if serves(B)(world) {
                return Ok(());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Err("b is not promoted".to_owned())
    }
}

/// b hears from a only that it is named, and has not applied a renewal of the last seconds itself.
async fn depose_in_an_answer(seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let mut world = World::new(seed, sabotage).led_by_the_witness().await;
    world.network.cut(node("b"), node("w"));
    world.network.cut(node("w"), node("b"));
    sleep(Duration::from_secs(10)).await;
    let b = world.handle(B);
    let promoting = tokio::spawn(async move { super::world::promote(b, node("b"), false).await });
    let so = Watched::default().until_two(&mut world).await;
    promoting.abort();
    so
}

/// The leader decides, and is cut off at that moment; the master returns and renews under another leader.
async fn depose_comes_late(cut_after_ms: u64, sabotage: Sabotage) -> Result<(), String> {
    let mut world = World::automatic(7, sabotage).led_by_the_witness().await;
    let mut watched = Watched::default();
    watched.run(&mut world, Duration::from_secs(3)).await?;
    world.pause(A);
    watched.run(&mut world, Duration::from_millis(cut_after_ms)).await?;
    world.isolate(node("w"));
    watched.run(&mut world, Duration::from_millis(300)).await?;
    world.resume(A)?;
    watched.run(&mut world, Duration::from_secs(4)).await?;
    world.network.heal();
    watched.run(&mut world, Duration::from_secs(10)).await
}

/// All stop for ten seconds; the master is a second late when they continue.
async fn all_stop(seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let mut world = World::automatic(seed, sabotage).led_by_the_witness().await;
    let mut watched = Watched::default();
    watched.run(&mut world, Duration::from_secs(3)).await?;
    let epoch = world.newest().ok_or("no record")?.epoch;
    (0..3).for_each(|index| world.pause(index));
    sleep(Duration::from_secs(10)).await;
    for index in [W, B] {
        world.resume(index)?;
    }
    watched.run(&mut world, Duration::from_millis(1_300)).await?;
    world.resume(A)?;
    watched.run(&mut world, Duration::from_secs(5)).await?;
    match world.newest() {
        Some(record) if record.is_served_by(node("a"), epoch) => Ok(()),
        record => Err(format!("a master was deposed that had no time to renew its lease: {record:?}")),
    }
}

/// Holds with the rule in every case, and is broken without it in one at least.
fn holds_only_with_the_rule<F: Future<Output = Result<(), String>>>(
    sabotage: Sabotage,
    cases: impl Iterator<Item = u64> + Clone,
    tell: impl Fn(u64, Sabotage) -> F,
    says: &str,
) {
    for case in cases.clone() {
        in_time(|| tell(case, Sabotage::None)).unwrap_or_else(|what| panic!("case {case}: {what}"));
    }
    let broken = cases.clone().find_map(|case| in_time(|| tell(case, sabotage)).err().map(|what| (case, what)));
    let (case, what) = broken.unwrap_or_else(|| panic!("{sabotage:?} was not noticed"));
    println!("{sabotage:?}: case {case}: {what}");
    assert!(what.to_lowercase().contains(says), "{sabotage:?}: {what}");
}

#[test]
fn k1_the_wait_counts_from_renewals_applied_here() {
    let two = "lease";
    holds_only_with_the_rule(Sabotage::WaitFromPublished, 0..6, renewals_arrive_with_depose, two);
    holds_only_with_the_rule(Sabotage::WaitFromAnswer, 0..2, depose_in_an_answer, two);
}

#[test]
fn k2_a_depose_counts_for_the_record_it_was_decided_on() {
    let served = "was deposed while it served";
    holds_only_with_the_rule(Sabotage::DeposeWithoutSeen, (1_300..1_700).step_by(20), depose_comes_late, served);
}

#[test]
fn k3_what_was_not_watched_is_no_silence() {
    holds_only_with_the_rule(Sabotage::SilenceByTheClock, 0..12, all_stop, "had no time to renew");
}
