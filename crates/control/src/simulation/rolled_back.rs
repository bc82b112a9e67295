//! Directories that were put back from an older copy: control directories that forgot their votes, and trails that lack what
//! was acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_seams::Disk;
use holdfast_seams::testing::FaultDisk;
use holdfast_types::Epoch;
use tokio::time::sleep;

use super::Sabotage;
use super::directed::{A, B, W, story, story_of};
use super::world::{World, node, promote_from};
use crate::error::ControlError;
use crate::files;
use crate::id::NodeId;
use crate::plane::{Basis, ControlPlane, Promotion, Quorum};
use crate::record::{Command, Position};
use crate::trail_tip::{Compared, ComparedTrail, TrailTip};

/// A copy of a control directory, while its node is stopped.
fn copy_of(disk: &FaultDisk) -> FaultDisk {
    let (dir, copy) = (Path::new("/control"), FaultDisk::new(99));
    copy.create_dir(dir).unwrap();
    for name in ["journal", "snapshot", "starts"] {
        if disk.metadata(&dir.join(name)).unwrap().is_some() {
            files::replace(&copy, dir, name, &files::read(disk, &dir.join(name)).unwrap()).unwrap();
        }
    }
    copy
}

/// What a and b have agreed on without w must not be forgotten when b is put back from a copy of before and a is away.
async fn put_back(world: World) -> Result<(World, u64), String> {
    let mut world = world.with_master().await;
    world.crash(B).await;
    let old = copy_of(&world.nodes[B].disk);
    world.start(B);
    sleep(Duration::from_secs(10)).await;
    let (a, w) = (world.handle(A), world.handle(W));
    world.isolate(node("w"));
    sleep(Duration::from_secs(10)).await;
    a.shrink(a.lease().epoch(), node("b")).await.unwrap();
    let agreed = a.record().unwrap().revision;
    world.network.heal();
    world.isolate(node("a"));
    world.crash(B).await;
    world.nodes[B].disk = old;
    world.start(B);
    sleep(Duration::from_secs(20)).await;
    match w.look().await {
        Err(ControlError::NoQuorum) => Ok((world, agreed)),
        Ok(record) if record.revision < agreed => Err(format!("forgotten: {agreed} became {}", record.revision)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_control_directory_that_was_put_back_is_refused_and_its_member_ends() {
    let tell = |world: World| async {
        let (mut world, agreed) = put_back(world).await.unwrap();
        assert!(world.has_ended(B), "it gets the refusal, and stops");
        world.network.heal();
        sleep(Duration::from_secs(10)).await;
        assert!(world.handle(W).look().await.unwrap().revision >= agreed, "a and w have everything");
        // As a new member it is admitted again.
        world.crash(B).await;
        world.lose_disk(B);
        world.start(B);
        world.until_all_vote().await.unwrap();
    };
    story(tell, Sabotage::None);
    let broken = |world: World| async {
        let error = put_back(world).await.err().expect("the sabotage was not noticed");
        assert!(error.contains("forgotten"), "{error}");
    };
    story(broken, Sabotage::AnyStart);
}

/// A trail of which only the positions count.
struct Fixed {
    tip: TrailTip,
    positions: BTreeMap<NodeId, u64>,
}

impl ComparedTrail for Fixed {
    fn tip(&self) -> BoxFuture<'static, Result<TrailTip, String>> {
        let tip = self.tip.clone();
        async move { Ok(tip) }.boxed()
    }

    fn compare(&self, _: TrailTip) -> BoxFuture<'static, Result<Compared, String>> {
        async { Ok(Compared::HasAll) }.boxed()
    }

    fn end(&self) -> Position {
        Position { epoch: self.tip.epoch, lsn: self.tip.lsn }
    }

    fn positions(&self, _: Epoch) -> BTreeMap<NodeId, u64> {
        self.positions.clone()
    }
}

fn trail(epoch: Epoch, lsn: u64, settled: u64, positions: &[(&str, u64)]) -> Arc<Fixed> {
    let positions = positions.iter().map(|(name, lsn)| (node(name), *lsn)).collect();
    let tip = TrailTip {
        trail: String::new(),
        epoch,
        lsn,
        checksum: 1,
        leads: None,
        settled: Some(settled),
        ..TrailTip::default()
    };
    Arc::new(Fixed { tip, positions })
}

/// Master a has everything up to 100 and b up to 90, and the group knows. Returns the epoch.
async fn with_positions(world: &World) -> Epoch {
    let epoch = world.handle(A).lease().epoch();
    world.handle(A).set_trail(Some(trail(epoch, 100, 100, &[("a", 100), ("b", 90)])));
    world.handle(A).tell_positions(epoch).await.unwrap();
    epoch
}

async fn promoted(world: &World, index: usize, epoch: Epoch, lsn: u64) -> Result<Epoch, ControlError> {
    let me = world.nodes[index].name;
    promote_from(world.handle(index), me, false, Some(Position { epoch, lsn })).await
}

#[test]
fn a_trail_that_lacks_what_the_group_has_seen_of_it_is_not_promoted() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let epoch = with_positions(&world).await;
        world.crash(A).await;
        let refused = promoted(&world, B, epoch, 89).await.unwrap_err();
        assert!(matches!(refused, ControlError::RolledBackTrail { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.contains("LSN 89") && said.contains("LSN 90") && said.contains("Promote a"), "{said}");
        let older = promoted(&world, B, Epoch(epoch.0 - 1), 90).await.unwrap_err();
        assert!(matches!(older, ControlError::RolledBackTrail { .. }), "{older}");
        // The master itself, whose standby is away.
        world.crash(B).await;
        world.start(A);
        sleep(Duration::from_secs(5)).await;
        let refused = promoted(&world, A, epoch, 99).await.unwrap_err();
        assert!(refused.to_string().contains("Promote b"), "{refused}");
        promoted(&world, A, epoch, 100).await.unwrap();
    };
    story(tell, Sabotage::None);
    let broken = |world: World| async {
        let mut world = world.with_master().await;
        let epoch = with_positions(&world).await;
        world.crash(A).await;
        promoted(&world, B, epoch, 89).await.expect("the sabotage lets it through");
    };
    story(broken, Sabotage::AnyPosition);
}

#[test]
fn a_loss_that_is_accepted_is_not_held_against_a_node_again() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let epoch = with_positions(&world).await;
        world.crash(A).await;
        let end = Some(Position { epoch, lsn: 50 });
        let epoch = promote_from(world.handle(B), node("b"), true, end).await.unwrap();
        world.crash(B).await;
        world.start(B);
        sleep(Duration::from_secs(5)).await;
        promoted(&world, B, epoch, 50).await.unwrap();
    };
    story(tell, Sabotage::None);
}

#[test]
fn a_master_that_lacks_what_its_standby_took_over_from_it_is_not_promoted() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let epoch = world.handle(A).lease().epoch();
        world.crash(A).await;
        world.start(A);
        sleep(Duration::from_secs(5)).await;
        world.handle(B).set_trail(Some(trail(epoch, 130, 120, &[])));
        let refused = promoted(&world, A, epoch, 119).await.unwrap_err();
        assert!(matches!(refused, ControlError::RolledBackMaster { .. }), "{refused}");
        assert!(refused.to_string().contains("b has what was durable here up to LSN 120"), "{refused}");
        // Only a tail that it never made durable is missing.
        promoted(&world, A, epoch, 120).await.unwrap();
    };
    story(tell, Sabotage::None);
}

/// Master a leads Raft, and its directory is copied while it runs. Then the group hears that it has everything up to 100, a and
/// b are killed, and a is put back. `None`: a has ended.
async fn leading_master_put_back(world: World) -> Option<Result<Epoch, ControlError>> {
    let mut world = world;
    world.until_all_vote().await.unwrap();
    world.until_leads(A).await;
    let mut world = world.with_master().await;
    assert_eq!(world.handle(A).leader(), Some(node("a")));
    let epoch = world.handle(A).lease().epoch();
    world.handle(A).set_trail(Some(trail(epoch, 50, 50, &[("a", 50), ("b", 50)])));
    world.handle(A).tell_positions(epoch).await.unwrap();
    let old = copy_of(&world.nodes[A].disk);
    world.crash(B).await;
    world.handle(A).set_trail(Some(trail(epoch, 100, 100, &[("a", 100)])));
    world.handle(A).tell_positions(epoch).await.unwrap();
    world.crash(A).await;
    world.nodes[A].disk = old;
    world.start(A);
    sleep(Duration::from_secs(10)).await;
    if world.has_ended(A) {
        return None;
    }
    Some(promoted(&world, A, epoch, 50).await)
}

#[test]
fn a_leading_master_that_was_copied_while_it_ran_is_not_promoted() {
    let tell = |world: World| async {
        assert!(leading_master_put_back(world).await.is_none(), "the witness refuses its log");
    };
    story(tell, Sabotage::None);
    // Where the log is not looked at, the positions decide.
    let tell = |world: World| async {
        let refused = leading_master_put_back(world).await.unwrap().unwrap_err();
        assert!(matches!(refused, ControlError::RolledBackTrail { .. }), "{refused}");
        assert!(refused.to_string().contains("LSN 100"), "{refused}");
    };
    story(tell, Sabotage::AnyLog);
    let broken = |world: World| async {
        leading_master_put_back(world).await.unwrap().expect("the sabotage lets it through");
    };
    story(broken, Sabotage::ResumesLeading);
}

/// The witness leads, and a is put back from a copy that was made while it ran. Returns whether a and w have ended.
async fn follower_put_back(world: World) -> (bool, bool) {
    let mut world = world;
    world.until_all_vote().await.unwrap();
    world.until_leads(W).await;
    let mut world = world.with_master().await;
    assert_eq!(world.handle(W).leader(), Some(node("w")));
    let old = copy_of(&world.nodes[A].disk);
    sleep(Duration::from_secs(10)).await;
    world.crash(A).await;
    world.nodes[A].disk = old;
    world.start(A);
    sleep(Duration::from_secs(10)).await;
    (world.has_ended(A), world.has_ended(W))
}

#[test]
fn a_follower_that_was_copied_while_it_ran_ends_and_not_its_leader() {
    let tell = |world: World| async {
        assert_eq!(follower_put_back(world).await, (true, false));
    };
    story(tell, Sabotage::None);
    // openraft ends where an entry that was confirmed is missing.
    let broken = |world: World| async {
        assert_eq!(follower_put_back(world).await, (false, true));
    };
    story(broken, Sabotage::AnyLog);
}

/// Master a, and commits that wait for b or c. b had everything up to 100, and its trail was put back to 50; c has 80. a is lost.
async fn promoted_beside_one_that_was_put_back(world: World) -> Result<Epoch, ControlError> {
    const C: usize = 2;
    let mut world = world.with_master().await;
    let (a, epoch) = (world.handle(A), world.handle(A).lease().epoch());
    let quorum = Quorum { standbys: [node("b"), node("c")].into(), needed: 1 };
    a.name_quorum(epoch, quorum, a.next_change()).await.unwrap();
    a.set_trail(Some(trail(epoch, 100, 100, &[("a", 100), ("b", 100), ("c", 80)])));
    a.tell_positions(epoch).await.unwrap();
    drop(a);
    world.crash(A).await;
    world.handle(B).set_trail(Some(trail(epoch, 50, 50, &[])));
    world.handle(C).set_trail(Some(trail(epoch, 80, 80, &[])));
    promoted(&world, C, epoch, 80).await
}

#[test]
fn a_member_that_was_put_back_vouches_for_none() {
    let tell = |world: World| async {
        let refused = promoted_beside_one_that_was_put_back(world).await.unwrap_err();
        assert!(refused.to_string().contains("its directory was put back"), "{refused}");
    };
    story_of(World::of_data_nodes, tell, Sabotage::None);
    let broken = |world: World| async {
        promoted_beside_one_that_was_put_back(world).await.expect("the sabotage lets it through");
    };
    story_of(World::of_data_nodes, broken, Sabotage::AnyPosition);
}

/// Commits wait for b or c; a is lost, and the group itself names b. c was restarted, and what it has may be an older copy.
async fn named_with_a_restarted_member(world: World, has_followed: bool) -> Result<Epoch, ControlError> {
    const C: usize = 2;
    let mut world = world.with_master().await;
    let (a, epoch) = (world.handle(A), world.handle(A).lease().epoch());
    let quorum = Quorum { standbys: [node("b"), node("c")].into(), needed: 1 };
    a.name_quorum(epoch, quorum, a.next_change()).await.unwrap();
    drop(a);
    world.crash(A).await;
    world.handle(B).set_trail(Some(trail(epoch, 90, 90, &[])));
    let c = trail(epoch, 80, 80, &[]);
    let tip = TrailTip { has_followed, ..c.tip.clone() };
    world.handle(C).set_trail(Some(Arc::new(Fixed { tip, positions: BTreeMap::new() })));
    let seen = Some(world.handle(C).look().await?.revision);
    let named = Command::Depose { expected_epoch: epoch, successor: node("b"), accept_loss: false, seen };
    world.handle(C).command(named).await?;
    let trail_end = Some(Position { epoch, lsn: 90 });
    let epoch_at_least = Epoch(0);
    let promotion = Promotion {
        node: node("b"),
        expected_epoch: epoch,
        epoch_at_least,
        accept_loss: false,
        trail_end,
        basis: Basis::Named,
    };
    world.handle(B).promote(promotion).await
}

#[test]
fn a_member_that_has_not_followed_since_it_started_vouches_for_none_without_a_person() {
    let tell = |world: World| async {
        let refused = named_with_a_restarted_member(world, false).await.unwrap_err();
        assert!(refused.to_string().contains("it has not followed this master"), "{refused}");
    };
    story_of(World::of_data_nodes, tell, Sabotage::None);
    let followed = |world: World| async {
        named_with_a_restarted_member(world, true).await.unwrap();
    };
    story_of(World::of_data_nodes, followed, Sabotage::None);
    let broken = |world: World| async {
        named_with_a_restarted_member(world, false).await.expect("the sabotage lets it through");
    };
    story_of(World::of_data_nodes, broken, Sabotage::AnyFollower);
}

/// The group agreed on a, which did not open its trail in the new epoch. What others have of an older epoch shows no loss.
#[test]
fn a_promotion_that_was_cut_short_is_repeated() {
    let tell = |world: World| async {
        let mut world = world.with_master().await;
        let epoch = world.handle(A).lease().epoch();
        let promoted_b = promoted(&world, B, epoch, 90).await.unwrap();
        world.crash(B).await;
        // The old master, deposed, with an end that no other node has and that was never acknowledged.
        world.handle(A).set_trail(Some(trail(epoch, 100, 100, &[])));
        world.start(B);
        sleep(Duration::from_secs(5)).await;
        assert!(promoted(&world, B, epoch, 90).await.unwrap() > promoted_b);
    };
    story(tell, Sabotage::None);
}

/// A standby receives more while its promotion is under way, and the group hears of it.
#[test]
fn what_arrives_while_a_promotion_is_under_way_is_not_missing() {
    let tell = |world: World| async {
        let world = world.with_master().await;
        let epoch = with_positions(&world).await;
        // When the promotion was requested it had less.
        world.handle(B).set_trail(Some(trail(epoch, 90, 90, &[])));
        promoted(&world, B, epoch, 70).await.unwrap();
    };
    story(tell, Sabotage::None);
}
