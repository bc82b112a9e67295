//! Random histories: everything that can be done to the machines, in any order; the rules hold at every event, and when the
//! faults are over the group has a master again.

use super::Sabotage;
use super::world::{Link, MS, World};

const FAULTS_FOR: u64 = 30_000;

#[derive(Default, Debug)]
struct Happened {
    masters: u64,
    deposes: u64,
    held: u64,
    lost_disks: u64,
    power_cuts: u64,
    freezes: u64,
    jumps: u64,
    hand_overs: u64,
    in_the_hole: u64,
}

struct History {
    world: World,
    /// When each machine is put right again, and until when its clock and process are left alone after a standstill.
    back_at: [u64; 3],
    alone_until: [u64; 3],
    happened: Happened,
}

impl History {
    fn new(seed: u64, sabotage: Sabotage) -> History {
        let mut world = World::new(seed, sabotage);
        for slot in 0..3 {
            // Two of them differ by less than 0.5 %.
            let ppm = world.random.below(4_000) as i64 - 2_000;
            let slewed = if world.random.one_in(3) { world.random.below(160_000) as i64 - 80_000 } else { 0 };
            let clocks = &mut world.machines[slot].clocks;
            (clocks.raw_ppm, clocks.boot_ppm) = (ppm, ppm + slewed);
        }
        History { world, back_at: [0; 3], alone_until: [0; 3], happened: Happened::default() }
    }

    fn run(&mut self) -> Result<(), String> {
        let until = self.world.now + FAULTS_FOR * MS;
        while self.world.now < until {
            let ms = 1 + self.world.random.below(160);
            self.world.run_ms(ms)?;
            self.put_right(false);
            self.fault();
        }
        self.put_right(true);
        self.world.heal();
        self.world.until("a master after all faults were over", 30_000, |world| world.master().is_some())?;
        self.happened.masters = u64::from(self.world.raised.0);
        (self.happened.deposes, self.happened.held) = (self.world.deposes(), self.world.held);
        self.happened.in_the_hole = self.world.hole;
        Ok(())
    }

    fn put_right(&mut self, all: bool) {
        for slot in 0..3 {
            if all || self.world.now >= self.back_at[slot] {
                self.back_at[slot] = u64::MAX;
                self.world.machines[slot].sync_max = 3 * MS;
                if self.world.machines[slot].frozen.is_some() {
                    self.world.thaw(slot);
                    self.alone_until[slot] = self.world.now + 1_500 * MS;
                }
                if self.world.machines[slot].paused {
                    self.world.resume(slot);
                }
                if self.world.machines[slot].node.is_none() {
                    self.world.start(slot);
                    // It has nothing to compare its clock with yet: a known hole.
                    self.alone_until[slot] = self.world.now + 1_500 * MS;
                }
            }
        }
    }

    /// All three vote on the disks that they have, and nothing is half done: one of them can lose its disk.
    fn is_whole(&self) -> bool {
        let nodes = self.world.machines.iter().map(|machine| machine.node.as_ref());
        let whole = |node: &super::node::Node| {
            let members = node.members.filter(|now| now.sets[0].len() == 3 && now.sets[1].is_empty());
            let disks = members.is_some_and(|now| (0..3).all(|slot| now.disks[slot] == self.world.machines[slot].disk));
            disks && node.applied == node.raft.memory.log.len() as u64
        };
        nodes.into_iter().all(|node| node.is_some_and(whole))
    }

    fn fault(&mut self) {
        let is_whole = self.is_whole();
        let world = &mut self.world;
        let (slot, other) = (world.random.below(3) as usize, world.random.below(3) as usize);
        let (kind, now) = (world.random.below(24), world.now);
        let is_up = world.machines[slot].node.is_some() && world.machines[slot].frozen.is_none();
        // A machine notices its standstill by a node that ran through it: known hole, see docs/grants.md.
        let stands = (0..3).any(|slot| world.machines[slot].frozen.is_some() || world.is_thawing(slot));
        let is_down = world.machines.iter().any(|machine| machine.node.is_none());
        let others_left_alone = self.alone_until.iter().any(|until| now < *until);
        let is_alone =
            now < self.alone_until[slot] || stands && kind < 3 || kind == 5 && (stands || is_down || others_left_alone);
        if !is_up {
            return;
        }
        let back = now + world.random.below(1_500) * MS;
        match kind {
            0 if !is_alone => {
                world.kill(slot);
                self.back_at[slot] = now + world.random.below(300) * MS;
            }
            1 if !is_alone => {
                world.power_cut(slot);
                self.happened.power_cuts += 1;
                self.back_at[slot] = back;
            }
            2 if !is_alone && is_whole => {
                self.world.lose_disk(slot);
                self.happened.lost_disks += 1;
                self.back_at[slot] = now + self.world.random.below(300) * MS;
            }
            3 | 4 if !is_alone => {
                world.pause(slot);
                self.back_at[slot] = back;
            }
            5 if !is_alone => {
                world.freeze(slot);
                self.happened.freezes += 1;
                self.back_at[slot] = now + 150 * MS + world.random.below(1_500) * MS;
            }
            6 if !is_alone => {
                // A jump that is shorter than a turn may be taken for one: a known hole.
                let ns = (60 + world.random.below(5_000)) * MS;
                world.machines[slot].clocks.jump(now, ns);
                self.happened.jumps += 1;
            }
            7 => {
                world.machines[slot].sync_max = world.random.below(800) * MS + MS;
                self.back_at[slot] = self.back_at[slot].min(back);
            }
            8 | 9 => world.links[slot][other].cut = true,
            10 => world.isolate(slot),
            11 => world.links[slot][other].answers_lost = true,
            12 => world.links[slot][other].pulses_lost = true,
            13 => world.links[slot][other].letters_lost = true,
            14 => world.links[slot][other] = Link { delay: world.random.below(400) * MS, ..Link::default() },
            15 | 16 => world.depose(slot % 2),
            17 => {
                world.hand_over(slot);
                self.happened.hand_overs += 1;
            }
            18 => {
                let ppm = world.random.below(160_000) as i64 - 80_000;
                world.machines[slot].clocks.change(now, |clocks| clocks.boot_ppm = ppm);
            }
            _ => world.heal(),
        }
    }
}

fn run(seed: u64, sabotage: Sabotage) -> (Happened, Result<(), String>) {
    let mut history = History::new(seed, sabotage);
    let outcome = history.run();
    (history.happened, outcome)
}

fn seeds_or(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    super::super::histories::seeds_or(usual)
}

#[test]
fn the_rules_of_grants_hold_in_random_histories() {
    let mut all = Happened::default();
    let mut broken = Vec::new();
    for seed in seeds_or(0..150) {
        let (happened, outcome) = run(seed, Sabotage::None);
        all.masters += happened.masters;
        all.deposes += happened.deposes;
        all.held += happened.held;
        all.lost_disks += happened.lost_disks;
        all.power_cuts += happened.power_cuts;
        all.freezes += happened.freezes;
        all.jumps += happened.jumps;
        all.hand_overs += happened.hand_overs;
        all.in_the_hole += happened.in_the_hole;
        broken.extend(outcome.err().map(|what| format!("seed {seed}: {what}")));
    }
    println!("{all:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let counts =
        [all.masters, all.deposes, all.held, all.lost_disks, all.power_cuts, all.freezes, all.jumps, all.hand_overs];
    assert!(counts.iter().all(|count| *count > 50), "too little happened: {all:?}");
}

/// Random histories find what the stories show, where it does not take a rare order of events.
#[test]
fn random_histories_find_broken_leases() {
    let table = [
        Sabotage::GrantAfterAppend,
        Sabotage::AgeForgotten,
        Sabotage::JumpCounts,
        Sabotage::SilenceIsDeath,
        Sabotage::LateGrantReopens,
        Sabotage::SlewedClock,
        Sabotage::Thaw,
    ];
    for sabotage in table {
        let broken = |seed| run(seed, sabotage).1.err().filter(|what| what.contains("epoch"));
        let found = seeds_or(0..400).find_map(|seed| broken(seed).map(|what| (seed, what)));
        println!("{sabotage:?}: {found:?}");
        assert!(found.is_some(), "{sabotage:?} was not noticed");
    }
}
