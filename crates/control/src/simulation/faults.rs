//! Failovers without a command under one more fault: the group is frozen, the answer to the promotion is lost, or the witness hangs.

use std::time::Duration;

use holdfast_seams::testing::Seeded;
use holdfast_types::Epoch;
use tokio::time::{Instant, sleep};

use super::Sabotage;
use super::commits::Commits;
use super::directed::{A, B, W};
use super::failover::{SOON, Watched, depose, in_time, serves};
use super::world::{TERMS, World, node};
use crate::plane::{Basis, ControlPlane, Promotion};
use crate::record::Mastership;

/// What happens to the node of the master.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Its server dies, and the lease is given up.
    Server,
    /// Server and member die.
    Node,
    /// Both are stopped, and continue.
    Stopped,
}

impl World {
    async fn suffers(&mut self, fault: Fault) {
        match fault {
            Fault::Server => {
                let a = self.handle(A);
                a.release(a.lease().epoch()).await.unwrap();
                drop(a);
                // A server that is started again is another process.
                self.crash(A).await;
            }
            Fault::Node => self.crash(A).await,
            Fault::Stopped => self.pause(A),
        }
    }

    fn recovers(&mut self, fault: Fault) {
        match fault {
            Fault::Stopped => drop(self.resume(A).unwrap()),
            Fault::Server | Fault::Node => self.start(A),
        }
    }
}

/// No node is named while the group is frozen, the last master takes its place again, and after the thaw its silence counts from the
/// thaw on.
#[test]
fn while_frozen_no_fault_names_a_successor_and_the_thaw_begins_silence_anew() {
    for fault in [Fault::Server, Fault::Node, Fault::Stopped] {
        in_time(|| async {
            let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
            let mut watched = Watched::default();
            world.handle(W).freeze(true).await.unwrap();
            world.suffers(fault).await;
            watched.run(&mut world, SOON).await.unwrap();
            assert!(watched.named.is_empty(), "{fault:?}: {:?}", watched.named);
            world.recovers(fault);
            assert!(watched.until(&mut world, SOON, serves(A)).await.unwrap(), "{fault:?}: a does not serve again");
            assert!(watched.named.iter().all(|named| *named == node("a")), "{fault:?}: {:?}", watched.named);
            // Again, and this time the group is thawed.
            world.suffers(fault).await;
            watched.run(&mut world, SOON).await.unwrap();
            watched.named.clear();
            world.handle(W).freeze(false).await.unwrap();
            let thawed = Instant::now();
            let is_named = |world: &World| world.newest().is_some_and(|record| record.successor() == Some(node("b")));
            assert!(watched.until(&mut world, SOON, is_named).await.unwrap(), "{fault:?}: b is not named");
            // What was given up needs no silence.
            assert!(fault == Fault::Server || thawed.elapsed() >= TERMS.lease(), "{fault:?}: {:?}", thawed.elapsed());
            assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap(), "{fault:?}: b does not take over");
        });
    }
}

/// The master was away for longer than its lease when the group is thawed, and is back soon: it is the master still.
#[test]
fn after_a_thaw_the_master_has_the_time_of_a_lease_to_come_back() {
    for fault in [Fault::Node, Fault::Stopped] {
        in_time(|| async {
            let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
            let mut watched = Watched::default();
            world.handle(W).freeze(true).await.unwrap();
            world.suffers(fault).await;
            watched.run(&mut world, SOON).await.unwrap();
            world.handle(W).freeze(false).await.unwrap();
            watched.run(&mut world, TERMS.lease() / 2).await.unwrap();
            world.recovers(fault);
            assert!(watched.until(&mut world, SOON, serves(A)).await.unwrap(), "{fault:?}: a does not serve again");
            watched.run(&mut world, SOON).await.unwrap();
            assert!(serves(A)(&world) && !watched.named.contains(&node("b")), "{fault:?}: {:?}", watched.named);
        });
    }
}

/// b is promoted, and no answer tells it so for a while: it asks again, and is promoted once, or once more when it had given up.
#[test]
fn a_promotion_whose_answer_is_lost_makes_one_master_that_has_everything() {
    for (lost_for, epochs) in [(Duration::from_secs(6), 1..=1), (Duration::from_secs(14), 1..=3)] {
        for seed in 7..12 {
            in_time(|| async {
                let mut world = World::automatic(seed, Sabotage::None).led_by_the_witness().await;
                let (mut watched, mut commits, mut random) =
                    (Watched::default(), Commits::default(), Seeded::new(seed));
                let epoch = world.newest().unwrap().epoch;
                let has_b = |world: &World| world.newest().unwrap().sync_set.contains(node("b"));
                // Nothing is under way that takes b out of the set.
                while commits.counts.acknowledged < 100 || !has_b(&world) {
                    for _ in 0..200 {
                        watched.look(&mut world).unwrap();
                        commits.step(&world, &mut random).await.unwrap();
                        sleep(Duration::from_millis(5)).await;
                    }
                    watched.run(&mut world, Duration::from_secs(1)).await.unwrap();
                }
                world.crash(A).await;
                world.handle(W).command(depose(epoch, "b")).await.unwrap();
                // It waits for the end of a's lease, and has asked for all else.
                watched.run(&mut world, TERMS.lease() / 2).await.unwrap();
                world.network.answer_late(node("b"), lost_for);
                let is_promoted = |world: &World| {
                    let record = world.newest().unwrap();
                    record.epoch > epoch && matches!(record.mastership, Mastership::Serving { .. })
                };
                assert!(watched.until(&mut world, SOON, is_promoted).await.unwrap(), "b is not promoted");
                world.start(A);
                let until = Instant::now() + lost_for;
                while Instant::now() < until {
                    watched.look(&mut world).unwrap();
                    commits.step(&world, &mut random).await.unwrap();
                    sleep(Duration::from_millis(5)).await;
                }
                assert!(!serves(B)(&world), "it has had no answer");
                world.network.heal();
                assert!(watched.until(&mut world, SOON, serves(B)).await.unwrap(), "b does not take over");
                commits.step(&world, &mut random).await.unwrap();
                let since = world.newest().unwrap().epoch.0 - epoch.0;
                assert!(epochs.contains(&since), "seed {seed}: lost for {lost_for:?}: {since} epochs");
                assert!(watched.named.iter().all(|named| *named == node("b")), "{:?}", watched.named);
            });
        }
    }
}

/// A statement ends every server that runs it: after three takeovers the last master starts again in place, and where it does not, the
/// other one takes over later.
#[test]
fn crashes_that_follow_the_load_are_restarted_in_place_after_three_takeovers() {
    in_time(|| async {
        let mut world = World::automatic(7, Sabotage::None).led_by_the_witness().await;
        let mut watched = Watched::default();
        watched.run(&mut world, Duration::from_secs(6)).await.unwrap();
        let mut roles = [A, B];
        for round in 0..5 {
            let [master, standby] = roles;
            let names = [world.nodes[master].name, world.nodes[standby].name];
            let old = world.handle(master);
            world.held_back.lock().insert(names[0]);
            watched.named.clear();
            old.release(old.lease().epoch()).await.unwrap();
            let ended = Instant::now();
            if round == 3 {
                // Its server is started again.
                watched.run(&mut world, Duration::from_secs(4)).await.unwrap();
                assert!(watched.named.is_empty(), "{:?}", watched.named);
                let (expected_epoch, basis) = (world.newest().unwrap().epoch, Basis::Starts);
                let (epoch_at_least, accept_loss, trail_end) = (Epoch(0), false, None);
                let again = Promotion { node: names[0], expected_epoch, epoch_at_least, accept_loss, trail_end, basis };
                old.promote(again).await.unwrap();
                assert!(watched.until(&mut world, SOON, serves(master)).await.unwrap());
                watched.run(&mut world, SOON).await.unwrap();
                assert!(serves(master)(&world) && !watched.named.contains(&names[1]), "{:?}", watched.named);
            } else {
                assert!(watched.until(&mut world, SOON, serves(standby)).await.unwrap(), "round {round}: no takeover");
                let pause = if round < 3 { Duration::ZERO } else { Duration::from_secs(5) };
                let within = pause..pause + TERMS.lease();
                assert!(within.contains(&ended.elapsed()), "round {round}: {:?}", ended.elapsed());
                let new = world.handle(standby);
                new.grow(new.lease().epoch(), names[0]).await.unwrap();
                roles = [standby, master];
            }
            world.held_back.lock().clear();
        }
        // Ten minutes later a crash is one like any other.
        watched.run(&mut world, Duration::from_secs(600)).await.unwrap();
        let [master, standby] = roles;
        let old = world.handle(master);
        world.held_back.lock().insert(world.nodes[master].name);
        old.release(old.lease().epoch()).await.unwrap();
        let ended = Instant::now();
        assert!(watched.until(&mut world, SOON, serves(standby)).await.unwrap());
        assert!(ended.elapsed() < TERMS.lease(), "{:?}", ended.elapsed());
    });
}

/// A sync of the witness that does not return stops all of its member, also where it leads.
#[test]
fn a_witness_whose_sync_hangs_for_four_seconds_costs_no_mastership() {
    for leads in [W, B, A] {
        for seed in 7..12 {
            in_time(|| async {
                let mut world = World::automatic(seed, Sabotage::None);
                world.until_leads(leads).await;
                let mut world = world.with_master().await;
                let mut watched = Watched::default();
                watched.run(&mut world, Duration::from_secs(3)).await.unwrap();
                let epoch = world.newest().unwrap().epoch;
                world.pause(W);
                watched.run(&mut world, Duration::from_secs(4)).await.unwrap();
                world.resume(W).unwrap();
                watched.run(&mut world, SOON).await.unwrap();
                assert!(watched.named.is_empty() && serves(A)(&world), "seed {seed}: {:?}", watched.named);
                assert_eq!(world.newest().unwrap().epoch, epoch, "seed {seed}");
            });
        }
    }
}
