//! Random histories by seed, and what a broken protocol does in them.

use std::time::Duration;

use holdfast_seams::testing::Seeded;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Sabotage;
use super::commits::{Accepted, Commits, Counts};
use super::quorum::QuorumCommits;
use super::world::{DATA_NODES, NEVER, TERMS, World, node, promote};
use crate::id::NodeId;
use crate::plane::ControlPlane;
use crate::record::Record;

/// How long faults happen, in virtual time.
const FAULTS_FOR: Duration = Duration::from_secs(60);

/// The master waits for the answer to a renewal for a third of its lease, and needs some of that time for the way there and for
/// the others to agree. An answer that is late by most of the rest is the one that a wrong lease would count from.
const LATE_MS: std::ops::Range<u64> = 200..TERMS.lease_ms as u64 / 3 - 50;

/// The events from this number on: answers are late.
const LATE: u64 = 21;

/// What happened in a history, so that a test can ask for it.
#[derive(Clone, Copy, Default, Debug)]
struct Happened {
    promotions: u64,
    refused: u64,
    steps_with_lease: u64,
    paused_past_lease: u64,
    crashes: u64,
    power_cuts_in_writes: u64,
    lost_disks: u64,
    cuts: u64,
    jumps: u64,
    failed_disks: u64,
    late_answers: u64,
    commits: Counts,
}

impl Happened {
    fn add(&mut self, other: &Happened) {
        self.promotions += other.promotions;
        self.refused += other.refused;
        self.steps_with_lease += other.steps_with_lease;
        self.paused_past_lease += other.paused_past_lease;
        self.crashes += other.crashes;
        self.power_cuts_in_writes += other.power_cuts_in_writes;
        self.lost_disks += other.lost_disks;
        self.cuts += other.cuts;
        self.jumps += other.jumps;
        self.failed_disks += other.failed_disks;
        self.late_answers += other.late_answers;
        self.commits.add(&other.commits);
    }
}

/// What the master's commits wait for.
enum Waits {
    /// Its standby; the third member is a witness.
    ForOne(Box<Commits>),
    /// Any one of two standbys.
    ForAny(Box<QuorumCommits>),
}

impl Waits {
    async fn step(&mut self, world: &World, random: &mut Seeded) -> Result<(), String> {
        match self {
            Waits::ForOne(commits) => commits.step(world, random).await,
            Waits::ForAny(commits) => commits.step(world, random),
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Waits::ForOne(commits) => commits.counts,
            Waits::ForAny(commits) => commits.counts,
        }
    }

    fn accepted(&self) -> Accepted {
        match self {
            Waits::ForOne(commits) => commits.accepted.clone(),
            Waits::ForAny(commits) => commits.accepted.clone(),
        }
    }

    fn data_nodes(&self) -> usize {
        match self {
            Waits::ForOne(_) => DATA_NODES,
            Waits::ForAny(_) => 3,
        }
    }
}

struct History {
    world: World,
    commits: Waits,
    /// Machines and disks are well, clocks differ from the start, and answers are late: leases are held for most of the time.
    is_calm: bool,
    random: Seeded,
    promotions: JoinSet<Result<holdfast_types::Epoch, crate::ControlError>>,
    looks: JoinSet<(u64, Result<Record, crate::ControlError>)>,
    /// When each node that is down or paused comes back.
    back_at: [Option<Instant>; 3],
    /// When a node asks to succeed the master whose answers are late.
    succeeds_at: Option<Instant>,
    happened: Happened,
}

impl History {
    async fn faults(&mut self) -> Result<(), String> {
        let until = Instant::now() + FAULTS_FOR;
        while Instant::now() < until {
            if self.random.one_in(30) {
                self.event().await;
            }
            self.step().await?;
        }
        Ok(())
    }

    /// Lets some milliseconds pass and checks everything.
    async fn step(&mut self) -> Result<(), String> {
        sleep(Duration::from_millis(5 + self.random.below(15))).await;
        for index in 0..3 {
            if self.world.nodes[index].disk.power_is_off() {
                self.happened.power_cuts_in_writes += 1;
                self.down(index).await;
            } else if self.world.has_ended(index) {
                self.happened.failed_disks += 1;
                self.down(index).await;
            }
            if self.back_at[index].is_some_and(|at| at <= Instant::now()) {
                self.back_at[index] = None;
                if self.world.nodes[index].handle.is_none() {
                    self.world.start(index);
                } else {
                    self.happened.paused_past_lease += u64::from(self.world.resume(index)?);
                }
            }
        }
        if self.succeeds_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.another_is_promoted();
        }
        self.world.see()?;
        self.commits.step(&self.world, &mut self.random).await?;
        self.happened.steps_with_lease += self.world.check()? as u64;
        while let Some(promoted) = self.promotions.try_join_next() {
            match promoted.map_err(|error| error.to_string())? {
                Ok(_) => self.happened.promotions += 1,
                Err(_) => self.happened.refused += 1,
            }
        }
        while let Some(looked) = self.looks.try_join_next() {
            let (known, record) = looked.map_err(|error| error.to_string())?;
            let Ok(record) = record else { continue };
            self.world.seen.record(None, &record)?;
            if record.revision < known {
                return Err(format!("revision {} was looked up when {known} was known", record.revision));
            }
        }
        Ok(())
    }

    async fn down(&mut self, index: usize) {
        self.world.crash(index).await;
        self.back_at[index] = Some(Instant::now() + Duration::from_millis(self.random.below(3_000)));
    }

    fn pause(&mut self, index: usize) {
        self.world.pause(index);
        self.back_at[index] = Some(Instant::now() + Duration::from_millis(50 + self.random.below(6_000)));
    }

    async fn event(&mut self) {
        let index = self.random.below(3) as usize;
        let name = self.world.nodes[index].name;
        let other = self.world.nodes[(index + 1 + self.random.below(2) as usize) % 3].name;
        let free = self.back_at[index].is_none();
        let handle = self.world.nodes[index].handle.clone();
        let what = match self.random.below(if self.is_calm { LATE + 3 } else { LATE }) {
            1 | 8 | 9 | 19 | 20 if self.is_calm => LATE,
            what => what,
        };
        match what {
            0 => {
                self.world.network.cut(name, other);
                self.happened.cuts += 1;
            }
            1 => {
                for peer in [0, 1, 2].map(|index: usize| self.world.nodes[index].name) {
                    self.world.network.cut(name, peer);
                    self.world.network.cut(peer, name);
                }
                self.happened.cuts += 1;
            }
            2..=5 => self.world.network.heal(),
            6 | 7 if free => self.pause(index),
            8 if free => {
                self.down(index).await;
                self.happened.crashes += 1;
                if self.happened.lost_disks == 0 && self.random.one_in(2) {
                    self.world.lose_disk(index);
                    self.happened.lost_disks += 1;
                }
            }
            9 if free => self.world.nodes[index].disk.cut_power_after(1 + self.random.below(20)),
            10 => self.world.nodes[index].clock.set_rate(90 + 10 * self.random.below(3)),
            11 => {
                self.world.nodes[index].clock.jump_ms(self.random.below(10_000));
                self.happened.jumps += 1;
            }
            12..=16 if index < self.commits.data_nodes() => {
                if let Some(handle) = handle {
                    let accept_loss = self.random.one_in(4);
                    self.promote(handle, name, accept_loss);
                }
            }
            17 | 18 => {
                if let Some(handle) = handle {
                    let known = self.world.seen.revision();
                    self.looks.spawn(async move { (known, handle.look().await) });
                }
            }
            19 if free => self.world.nodes[index].disk.fail_sync(1 + self.random.below(10)),
            20 => {
                if let Some(handle) = handle {
                    tokio::spawn(async move { handle.release(handle.lease().epoch()).await });
                }
            }
            LATE.. => {
                // A master's renewals are what an answer decides on.
                let Some(master) = self.world.holder() else { return };
                let late_ms = LATE_MS.start + self.random.below(LATE_MS.end - LATE_MS.start);
                self.world.network.answer_late(master, Duration::from_millis(late_ms));
                self.succeeds_at = Some(Instant::now() + Duration::from_millis(300 + self.random.below(1_000)));
                self.happened.late_answers += 1;
            }
            _ => {}
        }
    }

    /// A node asks that does not hold the lease, mostly whatever it lacks: it is the time of the promotion that matters. Half of the
    /// masters are stopped meanwhile, and find an old answer when they continue.
    fn another_is_promoted(&mut self) {
        let holder = self.world.holder();
        let holds = holder.map(|name| self.world.index_of(name)).filter(|index| self.back_at[*index].is_none());
        if let Some(index) = holds.filter(|_| self.random.one_in(2)) {
            self.pause(index);
        }
        let first = self.random.below(2) as usize;
        let data = &self.world.nodes[..self.commits.data_nodes()];
        let mut others = data.iter().cycle().skip(first).take(data.len()).filter(|node| Some(node.name) != holder);
        if let Some((handle, name)) = others.find_map(|node| Some((node.handle.clone()?, node.name))) {
            let accept_loss = !self.random.one_in(4);
            self.promote(handle, name, accept_loss);
        }
    }

    /// With a loss accepted or without; the commits are judged by what was asked for.
    fn promote(&mut self, handle: crate::ControlHandle, name: NodeId, accept_loss: bool) {
        let (accepted, any) = (self.commits.accepted(), self.world.sabotage == Sabotage::AnySuccessor);
        self.promotions.spawn(async move {
            if accept_loss {
                let epoch = handle.look().await?.epoch;
                accepted.lock().insert((name, epoch));
            }
            promote(handle, name, accept_loss || any).await
        });
    }

    /// Without faults the group works again: whoever lost its disk votes again, and a promotion succeeds.
    async fn recovers(&mut self) -> Result<(), String> {
        self.world.network.heal();
        for index in 0..3 {
            self.world.nodes[index].disk.do_not_cut();
            self.world.nodes[index].disk.fail_sync(NEVER);
            self.back_at[index] = self.back_at[index].map(|_| Instant::now());
        }
        let until = Instant::now() + Duration::from_secs(40);
        while Instant::now() < until {
            self.step().await?;
        }
        let handle = self.world.nodes[0].handle.clone().ok_or("node a is down")?;
        let work = timeout(Duration::from_secs(30), promote(handle.clone(), node("a"), true)).await;
        match work {
            Ok(Ok(epoch)) => {
                let mut held = handle.lease_held();
                let held = timeout(Duration::from_secs(5), held.wait_for(|held| *held)).await;
                held.map_err(|_| format!("epoch {epoch} got no lease"))?.map_err(|error| error.to_string())?;
            }
            other => return Err(format!("no promotion after all faults were over: {other:?}")),
        }
        for index in 0..3 {
            let handle = self.world.nodes[index].handle.clone().ok_or("a node is down")?;
            handle.look().await.map_err(|error| format!("{}: {error}", self.world.nodes[index].name))?;
        }
        self.world.until_all_vote().await?;
        self.world.check().map(drop)
    }
}

/// Runs the history of a seed; what broke, if something did.
type Run = fn(u64, Sabotage, bool) -> (Happened, Result<(), String>);

/// With one standby that commits wait for.
fn run(seed: u64, sabotage: Sabotage, recover: bool) -> (Happened, Result<(), String>) {
    tell(seed, recover, false, || (World::new(seed, sabotage), Waits::ForOne(Box::default())))
}

/// Runs a random history with three data nodes and a quorum.
fn run_quorum(seed: u64, sabotage: Sabotage, recover: bool) -> (Happened, Result<(), String>) {
    tell(seed, recover, false, || (World::of_data_nodes(seed, sabotage), Waits::ForAny(Box::default())))
}

/// As [`run`], with late answers in place of crashes and failing disks.
fn run_calm(seed: u64, sabotage: Sabotage, recover: bool) -> (Happened, Result<(), String>) {
    tell(seed, recover, true, || (World::new(seed, sabotage), Waits::ForOne(Box::default())))
}

fn tell(
    seed: u64,
    recover: bool,
    is_calm: bool,
    begin: impl FnOnce() -> (World, Waits),
) -> (Happened, Result<(), String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (world, commits) = begin();
        let mut history = History {
            world,
            commits,
            is_calm,
            random: Seeded::new(seed),
            promotions: JoinSet::new(),
            looks: JoinSet::new(),
            back_at: [None; 3],
            succeeds_at: None,
            happened: Happened::default(),
        };
        for node in history.world.nodes.iter().filter(|_| is_calm) {
            node.clock.set_rate(90 + 10 * history.random.below(3));
        }
        let mut outcome = history.faults().await;
        if recover && outcome.is_ok() {
            outcome = history.recovers().await;
        }
        history.happened.commits = history.commits.counts();
        (history.happened, outcome)
    })
}

/// `HOLDFAST_SEEDS=from..to` chooses other seeds than these.
pub fn seeds_or(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let asked = std::env::var("HOLDFAST_SEEDS").ok();
    let parsed = asked.as_deref().and_then(|text| text.split_once("..")).map(|(from, to)| (from.parse(), to.parse()));
    match parsed {
        Some((Ok(from), Ok(to))) => from..to,
        _ => usual,
    }
}

/// Histories of all seeds, in which nothing may break; what happened in them.
fn none_breaks(run: Run, usual: std::ops::Range<u64>) -> Happened {
    let mut all = Happened::default();
    let mut broken = Vec::new();
    for seed in seeds_or(usual) {
        let (happened, outcome) = run(seed, Sabotage::None, true);
        all.add(&happened);
        if let Err(what) = outcome {
            broken.push(format!("seed {seed}: {what}"));
        }
    }
    println!("{all:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    all
}

/// As [`none_breaks`], and enough must happen.
fn rules_hold(run: Run) {
    let all = none_breaks(run, 0..16);
    let counts = [all.promotions, all.refused, all.steps_with_lease, all.paused_past_lease, all.crashes];
    let faults = [all.power_cuts_in_writes, all.lost_disks, all.cuts, all.jumps, all.failed_disks];
    let commits = all.commits;
    assert!(commits.successors > 0, "nobody was succeeded: {all:?}");
    let commits = [commits.acknowledged, commits.shrinks, commits.grows, commits.masters_without_loss];
    assert!(counts.iter().chain(&faults).chain(&commits).all(|count| *count > 5), "too little happened: {all:?}");
}

#[test]
fn the_rules_hold_in_random_histories() {
    rules_hold(run);
}

#[test]
fn the_rules_hold_in_random_histories_of_a_quorum() {
    rules_hold(run_quorum);
}

/// Every sabotage must be found in some history, or the simulation proves nothing. From seeds that are known to find it.
fn is_found(sabotage: Sabotage, first: u64, says: &str) {
    is_found_in(run, sabotage, first, says);
}

fn is_found_in(run: Run, sabotage: Sabotage, first: u64, says: &str) {
    let found =
        seeds_or(first..first + 400).find_map(|seed| run(seed, sabotage, false).1.err().map(|what| (seed, what)));
    let (seed, what) = found.unwrap_or_else(|| panic!("{sabotage:?} was not noticed"));
    println!("{sabotage:?}: seed {seed}: {what}");
    assert!(what.to_lowercase().contains(says), "{sabotage:?}: {what}");
}

#[test]
fn a_broken_lease_is_found() {
    let table = [(Sabotage::NoWait, 0), (Sabotage::NoMargin, 100), (Sabotage::JumpCounts, 40)];
    table.iter().for_each(|(sabotage, first)| is_found(*sabotage, *first, "lease"));
}

/// Found as a second lease, or as commits that a master acknowledged under it after another one was promoted.
#[test]
fn a_lease_that_counts_from_the_answer_is_found() {
    is_found_in(run_calm, Sabotage::LeaseFromAnswer, 0, "lease");
    let broken = |seed| run_calm(seed, Sabotage::LeaseFromAnswer, false).1.err().map(|what| (seed, what));
    let acknowledges = |(_, what): &(u64, String)| what.contains("acknowledged commits under its lease");
    let (seed, what) = (100..500).filter_map(broken).find(acknowledges).expect("no commit was acknowledged too late");
    println!("seed {seed}: {what}");
}

#[test]
fn the_rules_hold_when_answers_are_late() {
    let all = none_breaks(run_calm, 0..4);
    let counts = [all.promotions, all.late_answers, all.paused_past_lease, all.commits.acknowledged];
    assert!(counts.iter().all(|count| *count > 20), "too little happened: {all:?}");
}

#[test]
fn a_broken_sync_set_is_found() {
    let table = [(Sabotage::AnySuccessor, 0), (Sabotage::AlonePremature, 100), (Sabotage::ReadsAtOnce, 530)];
    table.iter().for_each(|(sabotage, first)| is_found(*sabotage, *first, "without acknowledged commits"));
}

#[test]
fn a_broken_quorum_is_found() {
    let table = [
        (Sabotage::NoAsking, 0),
        (Sabotage::AsksTooEarly, 0),
        (Sabotage::FallenStays, 0),
        (Sabotage::NamesTooEarly, 170),
    ];
    for (sabotage, first) in table {
        is_found_in(run_quorum, sabotage, first, "without acknowledged commits");
    }
}
