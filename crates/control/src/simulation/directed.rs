//! Single stories, told step by step in virtual time.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Sabotage;
use super::world::{TERMS, World, node, promote};
use crate::error::ControlError;
use crate::id::NodeId;
use crate::plane::ControlPlane;
use crate::record::Mastership;

pub const A: usize = 0;
pub const B: usize = 1;
pub const W: usize = 2;

pub fn story<F: Future<Output = ()>>(tell: impl FnOnce(World) -> F, sabotage: Sabotage) {
    story_of(World::new, tell, sabotage);
}

/// As [`story`], in the world that `world` makes.
pub fn story_of<F: Future<Output = ()>>(
    world: impl FnOnce(u64, Sabotage) -> World,
    tell: impl FnOnce(World) -> F,
    sabotage: Sabotage,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { tell(world(7, sabotage)).await });
}

impl World {
    pub fn handle(&self, index: usize) -> crate::ControlHandle {
        self.nodes[index].handle.clone().unwrap()
    }

    pub fn isolate(&self, name: NodeId) {
        for peer in self.nodes.iter().map(|peer| peer.name).filter(|peer| *peer != name) {
            self.network.cut(name, peer);
            self.network.cut(peer, name);
        }
    }

    /// A founded group with master a, which holds its lease, and b in the sync set.
    pub async fn with_master(self) -> World {
        let epoch = loop {
            match promote(self.handle(A), node("a"), false).await {
                Ok(epoch) => break epoch,
                Err(ControlError::NoQuorum | ControlError::Refused(_)) => sleep(Duration::from_millis(500)).await,
                Err(error) => panic!("{error}"),
            }
        };
        self.handle(A).grow(epoch, node("b")).await.unwrap();
        self.handle(A).lease_held().wait_for(|held| *held).await.unwrap();
        self
    }
}

impl World {
    /// Lets `index` lead Raft: a node that leads instead is cut off until another one leads. A member draws the time after which
    /// it elects at its start, so `index` starts again before each attempt.
    pub async fn until_leads(&mut self, index: usize) {
        let wanted = self.nodes[index].name;
        for _ in 0..1000 {
            let known = self.handle(index).leader();
            let known_elsewhere = self.handle((index + 1) % 3).leader();
            match known.filter(|_| known == known_elsewhere) {
                Some(leader) if leader == wanted => return,
                Some(leader) => {
                    self.crash(index).await;
                    self.start(index);
                    sleep(Duration::from_secs(1)).await;
                    self.isolate(leader);
                    sleep(Duration::from_secs(3)).await;
                    self.network.heal();
                }
                None => {}
            }
            sleep(Duration::from_secs(1)).await;
        }
        panic!("{wanted} does not lead");
    }
}

#[test]
fn a_stopped_master_finds_its_lease_gone_when_it_goes_on() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let old = world.handle(A).lease();
        sleep(Duration::from_secs(10)).await;
        assert!(old.valid_now(), "renewed all the time");
        world.pause(A);
        let epoch = promote(world.handle(B), node("b"), false).await.unwrap();
        world.handle(B).lease_held().wait_for(|held| *held).await.unwrap();
        assert!(!old.valid_now() && world.handle(B).lease().valid_now());
        assert!(world.resume(A).unwrap(), "it was stopped for longer than its lease");
        for _ in 0..200 {
            sleep(Duration::from_millis(50)).await;
            assert!(!old.valid_now() && !world.handle(A).lease().valid_now());
            assert_eq!(world.check().unwrap(), 1);
        }
        let refused = world.handle(A).shrink(old.epoch(), node("b")).await.unwrap_err();
        assert!(matches!(refused, ControlError::Refused(_)), "{refused}");
        assert_eq!(world.handle(A).record().unwrap().epoch, epoch);
    };
    story(tell, Sabotage::None);
}

#[test]
fn a_master_that_gives_up_its_lease_is_followed_at_once_and_one_that_does_not_is_waited_out() {
    let tell = |world: World| async {
        let world = world.with_master().await;
        let begun = Instant::now();
        let epoch = promote(world.handle(B), node("b"), false).await.unwrap();
        let waited = begun.elapsed();
        assert!(waited >= TERMS.lease(), "{waited:?}: a was well and is waited out all the same");
        // Hand back, this time asked for and given.
        let (a, b) = (world.handle(A), world.handle(B));
        b.lease_held().wait_for(|held| *held).await.unwrap();
        b.grow(epoch, node("a")).await.unwrap();
        let mut news = b.watch();
        let gives_up = async {
            let deposed = |record: &Option<_>| matches!(record, Some(record) if matches!(record_state(record), Mastership::Deposed { .. }));
            news.wait_for(deposed).await.unwrap();
            b.release(epoch).await.unwrap();
            assert!(!b.lease().valid_now());
        };
        let begun = Instant::now();
        let (promoted, ()) = tokio::join!(promote(a, node("a"), false), gives_up);
        promoted.unwrap();
        assert!(begun.elapsed() < TERMS.lease() / 2, "{:?}", begun.elapsed());
    };
    story(tell, Sabotage::None);
}

fn record_state(record: &std::sync::Arc<crate::Record>) -> &Mastership {
    &record.mastership
}

#[test]
fn without_a_majority_the_lease_runs_out_and_comes_back_with_it() {
    let tell = |world: World| async {
        let world = world.with_master().await;
        let a = world.handle(A);
        for peer in ["b", "w"] {
            // One way is enough: nothing is answered any more.
            world.network.cut(node(peer), node("a"));
        }
        let mut held = a.lease_held();
        held.wait_for(|held| !*held).await.unwrap();
        assert!(!a.lease().valid_now());
        assert!(matches!(a.look().await, Err(ControlError::NoQuorum)));
        world.network.heal();
        held.wait_for(|held| *held).await.unwrap();
        assert!(a.lease().valid_now(), "nobody was promoted meanwhile, so the epoch goes on");
    };
    story(tell, Sabotage::None);
}

/// What a and b have agreed on without w must not be forgotten when b has lost its disk and a is away: w and the empty
/// b are no majority.
async fn lost_disk(world: World) -> Result<World, String> {
    let mut world = world.with_master().await;
    let (a, w) = (world.handle(A), world.handle(W));
    world.isolate(node("w"));
    sleep(Duration::from_secs(10)).await;
    a.shrink(a.lease().epoch(), node("b")).await.unwrap();
    let agreed = a.record().unwrap().revision;
    world.network.heal();
    world.isolate(node("a"));
    world.crash(B).await;
    world.lose_disk(B);
    world.start(B);
    sleep(Duration::from_secs(20)).await;
    match w.look().await {
        Err(ControlError::NoQuorum) => Ok(world),
        Ok(record) if record.revision < agreed => Err(format!("forgotten: {agreed} became {}", record.revision)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_empty_disk_is_not_counted_until_it_has_been_taken_in() {
    let tell = |world: World| async {
        let mut world = lost_disk(world).await.unwrap();
        world.network.heal();
        sleep(Duration::from_secs(20)).await;
        let record = world.handle(W).look().await.unwrap();
        assert!(!record.sync_set.contains(node("b")), "{record:?}");
        // Now b votes again: a and b are a majority without w.
        world.crash(W).await;
        sleep(Duration::from_secs(5)).await;
        timeout(Duration::from_secs(20), promote(world.handle(B), node("b"), true)).await.unwrap().unwrap();
    };
    story(tell, Sabotage::None);
    let broken = |world: World| async {
        let error = lost_disk(world).await.err().expect("the sabotage was not noticed");
        assert!(error.contains("forgotten"), "{error}");
    };
    story(broken, Sabotage::AnyDisk);
}

/// A leader fails between the two steps in which b's new disk becomes a voter.
#[test]
fn a_change_of_voters_that_was_left_half_done_is_finished() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        world.crash(B).await;
        world.lose_disk(B);
        world.start(B);
        // Not only the leader has written the first step.
        let half_done = async {
            loop {
                let mut know = Vec::new();
                for index in [A, W] {
                    let voters = world.handle(index).voters().await.unwrap().sets;
                    know.push(voters.len() > 1 && voters.last().unwrap().contains(&node("b")));
                }
                if know == [true, true] {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), half_done).await.expect("b is not taken in");
        for index in [A, B, W] {
            world.crash(index).await;
        }
        (0..3).for_each(|index| world.start(index));
        world.until_all_vote().await.unwrap();
        // One more than two of the three is not needed.
        world.crash(A).await;
        sleep(Duration::from_secs(5)).await;
        timeout(Duration::from_secs(20), promote(world.handle(B), node("b"), true)).await.unwrap().unwrap();
    };
    story(tell, Sabotage::None);
}

#[test]
fn who_may_lack_commits_is_not_promoted_unless_that_is_accepted() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let a = world.handle(A);
        a.shrink(a.lease().epoch(), node("b")).await.unwrap();
        world.crash(A).await;
        drop(a);
        let refused = promote(world.handle(B), node("b"), false).await.unwrap_err();
        assert!(refused.to_string().contains("sync set"), "{refused}");
        promote(world.handle(B), node("b"), true).await.unwrap();
    };
    story(tell, Sabotage::None);
}

/// The witness leads, and b reaches only a: b is promoted through a, holds its lease, and knows what was agreed.
#[test]
fn a_node_that_is_cut_off_from_the_leader_alone_is_promoted_through_the_third() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        world.until_leads(W).await;
        let a = world.handle(A);
        a.lease_held().wait_for(|held| *held).await.unwrap();
        world.network.cut(node("b"), node("w"));
        world.network.cut(node("w"), node("b"));
        // Until b has noticed that it hears no leader.
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.handle(W).leader(), Some(node("w")));
        let b = world.handle(B);
        let epoch = promote(b.clone(), node("b"), false).await.unwrap();
        let mut held = b.lease_held();
        held.wait_for(|held| *held).await.unwrap();
        b.grow(epoch, node("a")).await.unwrap();
        for _ in 0..400 {
            sleep(Duration::from_millis(50)).await;
            assert!(b.lease().valid_now() && world.check().unwrap() == 1);
        }
        let (known, agreed) = (b.record().unwrap(), a.look().await.unwrap());
        assert_eq!((known.epoch, known.master, &known.sync_set), (epoch, Some(node("b")), &agreed.sync_set));
    };
    story(tell, Sabotage::None);
}

/// The leader of Raft is cut off from the master alone, while the master serves: its lease continues.
#[test]
fn a_master_that_is_cut_off_from_the_leader_alone_keeps_its_lease() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        world.until_leads(W).await;
        let a = world.handle(A);
        a.lease_held().wait_for(|held| *held).await.unwrap();
        world.network.cut(node("a"), node("w"));
        world.network.cut(node("w"), node("a"));
        for _ in 0..400 {
            sleep(Duration::from_millis(50)).await;
            assert!(a.lease().valid_now() && world.check().unwrap() == 1);
        }
    };
    story(tell, Sabotage::None);
}
