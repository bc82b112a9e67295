//! For each rule a story that ends well with it, and badly without it.

use super::Sabotage;
use super::raft::Payload;
use super::world::{Link, World};
use crate::grant::{NodeSet, Stage};

const A: usize = 0;
const B: usize = 1;
const W: usize = 2;
const SEEDS: std::ops::Range<u64> = 0..12;

type Story = fn(World) -> Result<(), String>;

/// The story ends well in every seed; without the rule it breaks in one of them, as told.
fn needs(rule: Sabotage, begin: fn(u64, Sabotage) -> World, story: Story, says: &str) {
    let run = |seed, sabotage| story(begin(seed, sabotage)).err();
    for seed in SEEDS {
        assert_eq!(run(seed, Sabotage::None), None, "seed {seed}");
    }
    let broken = SEEDS.filter_map(|seed| run(seed, rule)).collect::<Vec<String>>();
    println!("{rule:?}: breaks in {} of {} seeds: {:?}", broken.len(), SEEDS.count(), broken.first());
    assert!(broken.iter().any(|what| what.contains(says)), "{rule:?} was not noticed: {broken:?}");
}

/// A calm network, in which only what a story does happens.
fn calm(seed: u64, sabotage: Sabotage) -> World {
    let mut world = World::new(seed, sabotage);
    (world.calm, world.wakes_late) = (true, false);
    world
}

/// b leads and has not heard a for some time; a has its lease by its own vote and that of w.
fn only_w_hears_a(world: World) -> Result<World, String> {
    let mut world = world.with_master()?;
    world.lead(B)?;
    world.cut_both(A, B);
    world.run_ms(400)?;
    assert!(world.answers(A), "with the grants of w");
    Ok(world)
}

/// b has applied its own nomination.
fn b_is_named(world: &World) -> bool {
    let node = world.machines[B].node.as_ref();
    node.is_some_and(|node| node.record.is_some() && node.view().applied.stage == Stage::Deposed)
}

#[test]
fn c1_a_voter_grants_until_the_end_is_appended_only() {
    let story: Story = |world| {
        let mut world = only_w_hears_a(world)?;
        let len = world.log_len(W).0;
        world.depose(B);
        world.until("w has the entry", 100, |world| world.log_len(W).0 > len)?;
        // It is durable there soon, and w does not learn for 400 ms that it is committed.
        world.links[B][W].letters_lost = true;
        world.run_ms(400)?;
        world.heal();
        world.run_ms(1_500)
    };
    needs(Sabotage::GrantAfterAppend, calm, story, "though epoch 2 has begun");
}

#[test]
fn c1_an_empty_disk_grants_nothing() {
    let story: Story = |world| {
        let mut world = only_w_hears_a(world)?;
        world.depose(B);
        world.until("b is named", 100, b_is_named)?;
        world.lose_disk(W);
        world.start(W);
        world.run_ms(700)?;
        world.heal();
        world.run_ms(1_500)
    };
    needs(Sabotage::EmptyDiskGrants, calm, story, "though epoch 2 has begun");
}

#[test]
fn c2_a_restarted_voter_reports_its_uptime() {
    let story: Story = |world| {
        let mut world = only_w_hears_a(world)?;
        let len = world.log_len(W).1;
        world.depose(B);
        world.until("w has the entry on its disk", 100, |world| world.log_len(W).1 > len)?;
        world.kill(W);
        world.start(W);
        world.run_ms(1_500)
    };
    needs(Sabotage::AgeForgotten, calm, story, "though epoch 2 has begun");
}

#[test]
fn c2_only_watched_time_is_waited() {
    let story: Story = |world| {
        let mut world = only_w_hears_a(world)?;
        world.depose(B);
        world.until("b is named", 100, b_is_named)?;
        let now = world.now;
        world.machines[B].clocks.jump(now, 10_000_000_000);
        world.run_ms(1_500)
    };
    needs(Sabotage::JumpCounts, calm, story, "though epoch 2 has begun");
}

/// The first entry is cut off and granted over; a report about it says nothing about the second.
#[test]
fn c2_a_report_is_about_one_ending_entry() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        world.lead(W)?;
        let quiet = Link { pulses_lost: true, ..Link::default() };
        (world.links[A][B], world.links[A][W]) = (quiet, quiet);
        world.run_ms(300)?;
        (world.links[W][A].letters_lost, world.links[W][B].letters_lost) = (true, true);
        world.depose(B);
        world.run_ms(60)?;
        world.lead(B)?;
        let cut_off = world.log_len(B).0;
        world.links[W] = vec![Link::default(); 3];
        world.links[A][W] = Link::default();
        world.run_ms(100)?;
        assert!(world.answers(A) && world.log_len(W).0 == cut_off, "the entry is gone, and w grants again");
        world.depose(B);
        world.run_ms(1_500)
    };
    needs(Sabotage::StaleReport, calm, story, "though epoch 2 has begun");
}

/// w has the entry in memory, loses it, grants again, and gets it again.
#[test]
fn c2_a_report_follows_the_sync() {
    let story: Story = |world| {
        let mut world = only_w_hears_a(world)?;
        world.cut_both(A, W);
        world.run_ms(400)?;
        let len = world.log_len(W).0;
        world.machines[W].sync_max = 100_000_000_000;
        world.depose(B);
        world.until("w has the entry", 100, |world| world.log_len(W).0 > len)?;
        world.links[B][W].letters_lost = true;
        world.run_ms(30)?;
        world.power_cut(W);
        world.machines[W].sync_max = 1_000_000;
        world.start(W);
        (world.links[A][W], world.links[W][A]) = (Link::default(), Link::default());
        world.run_ms(200)?;
        assert!(world.left_ms(A) > 500, "a has new grants");
        world.links[B][W] = Link::default();
        world.run_ms(1_500)
    };
    needs(Sabotage::EarlyReport, calm, story, "though epoch 2 has begun");
}

/// The master sends, hears the others, and the answers do not arrive. When it is deposed, some are still on the way.
#[test]
fn c4_silence_is_no_proof_of_death() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        (world.links[B][A].answers_lost, world.links[W][A].answers_lost) = (true, true);
        world.run_ms(1_150)?;
        let late = Link { delay: 90_000_000, ..Link::default() };
        (world.links[B][A], world.links[W][A]) = (late, late);
        world.run_ms(2_000)
    };
    needs(Sabotage::SilenceIsDeath, calm, story, "though epoch 2 has begun");
}

#[test]
fn c4_a_page_is_closed_for_good_before_a_hand_over() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        let late = Link { delay: 30_000_000, ..Link::default() };
        (world.links[B][A], world.links[W][A]) = (late, late);
        world.run_ms(200)?;
        world.hand_over(A);
        world.until("b is master", 400, |world| world.answers(B))?;
        world.run_ms(1_000)
    };
    needs(Sabotage::LateGrantReopens, calm, story, "epoch");
}

fn is_not_deposed(world: &World) -> Result<(), String> {
    if world.deposes() > 0 { Err("a healthy master was deposed".to_owned()) } else { Ok(()) }
}

#[test]
fn c6_each_of_a_majority_counts_its_own_silence() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        world.lead(W)?;
        let quiet = Link { pulses_lost: true, ..Link::default() };
        (world.links[A][W], world.links[W][A]) = (quiet, quiet);
        world.run_ms(5_000)?;
        is_not_deposed(&world)
    };
    needs(Sabotage::OneSidedView, calm, story, "a healthy master was deposed");
}

/// Both voters are suspended, their clocks count, and what was sent to them is lost.
#[test]
fn c6_a_voters_own_freeze_is_no_silence() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        world.lead(W)?;
        [B, W].iter().for_each(|slot| world.pause(*slot));
        let quiet = Link { pulses_lost: true, ..Link::default() };
        (world.links[A][B], world.links[A][W]) = (quiet, quiet);
        world.run_ms(900)?;
        world.heal();
        [B, W].iter().for_each(|slot| world.resume(*slot));
        world.run_ms(3_000)?;
        is_not_deposed(&world)?;
        if world.answers(A) { Ok(()) } else { Err("a did not get its lease back".to_owned()) }
    };
    needs(Sabotage::BothVotersFrozen, calm, story, "a healthy master was deposed");
}

#[test]
fn c9_a_node_whose_clock_differs_from_both_others_is_neither_master_nor_successor() {
    let begin = |seed, sabotage| {
        let mut world = calm(seed, sabotage);
        let clocks = &mut world.machines[A].clocks;
        (clocks.boot_ppm, clocks.raw_ppm) = (-40_000, -40_000);
        world
    };
    let story: Story = |mut world| {
        world.until("there is a master", 10_000, |world| world.master().is_some())?;
        world.run_ms(4_000)?;
        let (master, _) = world.master().ok_or("no master")?;
        world.isolate(master);
        world.run_ms(3_000)?;
        if master == A || world.answers(A) { Err("a is master".to_owned()) } else { Ok(()) }
    };
    needs(Sabotage::SlowClock, begin, story, "though epoch 2 has begun");
}

#[test]
fn c9_a_master_whose_clock_becomes_wrong_hands_over() {
    for seed in SEEDS {
        let mut world = calm(seed, Sabotage::None).with_master().unwrap();
        let now = world.now;
        world.machines[A].clocks.change(now, |clocks| (clocks.boot_ppm, clocks.raw_ppm) = (-30_000, -30_000));
        let took_ms = world.until("b is master", 20_000, |world| world.answers(B)).unwrap();
        println!("seed {seed}: {took_ms} ms");
        world.run_ms(2_000).unwrap();
        assert!(world.answers(B) && world.deposes() == 0);
    }
}

#[test]
fn c9_the_safer_of_two_clocks_counts() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        let now = world.now;
        world.machines[A].clocks.change(now, |clocks| clocks.boot_ppm = -80_000);
        world.machines[B].clocks.change(now, |clocks| clocks.boot_ppm = 80_000);
        world.run_ms(1_000)?;
        world.isolate(A);
        world.run_ms(2_000)
    };
    needs(Sabotage::SlewedClock, calm, story, "though epoch 2 has begun");
}

/// Its clocks have stood still with it, so that they show a lease that is long over.
#[test]
fn c9_a_standstill_voids_the_grants() {
    let story: Story = |world| {
        let mut world = world.with_master()?;
        world.freeze(A);
        world.run_ms(1_500)?;
        assert!(world.answers(B), "b has taken over");
        world.thaw(A);
        world.run_ms(1_000)
    };
    needs(Sabotage::Thaw, calm, story, "though epoch 2 has begun");
}

/// A voter that granted is replaced by one that never did. Four nodes: three of them vote.
#[test]
fn c19_a_change_of_voters_counts_as_a_grant() {
    let begin = |seed, sabotage| {
        let mut world = World::of(&["a", "b", "w", "wx"], 3, seed, sabotage);
        (world.calm, world.wakes_late) = (true, false);
        world
    };
    let story: Story = |world| {
        let mut world = world.with_master()?;
        world.lead(W)?;
        world.cut_both(A, W);
        world.run_ms(900)?;
        assert!(world.answers(A), "with the grants of b");
        world.isolate(A);
        if let Some(node) = &mut world.machines[W].node {
            let (_, mut members) = node.raft.members().ok_or("no voters")?;
            members.sets[1] = NodeSet::of([A, W, 3]);
            node.raft.propose(Payload::Members(members), &node.log);
        }
        world.run_ms(2_000)
    };
    needs(Sabotage::ChangeHidesGrant, begin, story, "though epoch 2 has begun");
}

#[test]
fn a_successor_that_dies_is_replaced_by_the_old_master_without_a_wait() {
    for seed in SEEDS {
        let mut world = calm(seed, Sabotage::None).with_master().unwrap();
        world.lead(W).unwrap();
        world.power_cut(B);
        world.hand_over(A);
        let took_ms = world.until("a is master again", 5_000, |world| world.master().is_some_and(|(_, of)| of.0 > 1));
        println!("seed {seed}: {took_ms:?}");
        assert!(took_ms.is_ok() && world.answers(A), "{took_ms:?}");
        world.run_ms(1_000).unwrap();
    }
}

/// Another run of the supervisor takes the page over: no gap, no Depose.
#[test]
fn a_restarted_supervisor_renews_the_lease_that_the_page_shows() {
    for seed in SEEDS {
        let mut world = calm(seed, Sabotage::None).with_master().unwrap();
        for _ in 0..5 {
            world.kill(A);
            world.run_ms(150).unwrap();
            world.start(A);
            for _ in 0..500 {
                world.run_ms(1).unwrap();
                assert!(world.answers(A), "seed {seed}: a gap");
            }
        }
        assert_eq!((world.deposes(), world.raised.0), (0, 1));
    }
}
