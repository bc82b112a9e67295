//! The rounds, and what each has to end with.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::failover::pair::{Pair, Rejoined};
use crate::failover::{Fault, Level, Totals, lost};
use crate::kill_test::{ACKNOWLEDGED_MIN, LOAD_WAIT_MAX, MOMENT_MS_MAX, Random};
use crate::recorder::{Load, Recorder, Verdict, told};

/// How long the standby is away, or the master goes on without it, at most.
const AWAY_MS_MAX: u64 = 600;

/// How long a master that hung goes on after the promotion.
const RESUMED: Duration = Duration::from_millis(300);

/// Longer than any client takes to notice that its server is gone.
const END_MAX: Duration = Duration::from_secs(60);

pub struct Plan {
    pub rounds: u32,
    pub level: Level,
    pub clients: u32,
    pub seed: u64,
    pub power_cut: bool,
}

/// A pair, and what its clients were told.
struct Bed {
    pair: Pair,
    recorder: Recorder,
}

/// What a round has found, with everything that was judged.
struct Found {
    promotion: Duration,
    rejoined: Rejoined,
    /// Acknowledged, written down and not on the new master.
    written_down: usize,
    unanswered: usize,
    damage: Vec<String>,
    lost: usize,
}

/// Runs all rounds. An error is a fault of the test's surroundings; damage is in the totals.
pub fn run(binary: &Path, plan: &Plan) -> anyhow::Result<Totals> {
    let how = if plan.power_cut { ", power is cut" } else { "" };
    println!("  {} rounds at level {}, {} clients, seed {}{how}", plan.rounds, plan.level, plan.clients, plan.seed);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut random = Random(plan.seed);
    let mut totals = Totals::new(plan.level, plan.seed);
    let (started, mut bed, mut bag, mut schema) = (Instant::now(), None, Vec::new(), false);
    for round in 1..=plan.rounds {
        if bag.is_empty() {
            bag.extend(FAULTS);
            (bed, schema) = (None, !schema);
        }
        let mut this = match bed.take() {
            Some(bed) => bed,
            None => Bed::start(binary, plan, schema, &runtime)?,
        };
        let fault: Fault = bag.swap_remove(random.below(bag.len() as u64) as usize);
        let before = this.recorder.acknowledged();
        let found = this.round(fault, plan, &mut random, &runtime);
        let acknowledged = this.recorder.acknowledged() - before;
        totals.rounds += 1;
        *totals.faults.entry(fault).or_default() += 1;
        totals.acknowledged += acknowledged;
        let damage = match found {
            Ok(found) => totals.add(plan.level, fault, found, round, acknowledged),
            Err(error) => vec![format!("{error:#}")],
        };
        if damage.is_empty() {
            bed = Some(this);
        } else {
            let kept = this.pair.keep();
            println!("  round {round} ({fault}): DAMAGE: {}\n    kept: {}", damage.join("; "), kept.display());
            totals.damage.push((round, damage.join("; "), kept));
        }
    }
    totals.took = started.elapsed();
    Ok(totals)
}

/// As often as each fault comes in as many rounds as there are here. Then a new pair begins: with clients that change the
/// schema, or without, by turns.
const FAULTS: [Fault; 8] = [
    Fault::Killed,
    Fault::Killed,
    Fault::Killed,
    Fault::Hung,
    Fault::Resumed,
    Fault::BothKilled,
    Fault::BothKilled,
    Fault::StandbyBack,
];

impl Totals {
    /// Adds a round and prints its line; returns the damage it found.
    fn add(&mut self, level: Level, fault: Fault, found: Found, round: u32, acknowledged: u64) -> Vec<String> {
        self.promotions.push(found.promotion);
        if found.rejoined.copied {
            self.rejoined_by_copy += 1;
        } else {
            self.rejoined_in_place += 1;
        }
        self.written_down += found.written_down as u64;
        if level == Level::Warm {
            self.both_failed += found.written_down as u64;
        }
        self.unanswered += found.unanswered as u64;
        self.lost += found.lost as u64;
        println!(
            "  round {round}: {fault}, {acknowledged} acknowledged, {} of them written down, {} never answered, \
             promoted in {} ms, rejoined {}",
            found.written_down,
            found.unanswered,
            found.promotion.as_millis(),
            if found.rejoined.copied { "by a copy" } else { "with what it had" }
        );
        found.damage
    }
}

impl Bed {
    fn start(binary: &Path, plan: &Plan, schema: bool, runtime: &Runtime) -> anyhow::Result<Bed> {
        let pair = Pair::start(binary, plan.level, plan.power_cut)?;
        let recorder = Recorder::of(Load { schema, ..Load::default() });
        runtime.block_on(recorder.create_tables(pair.master()))?;
        Ok(Bed { pair, recorder })
    }

    fn round(&mut self, fault: Fault, plan: &Plan, random: &mut Random, runtime: &Runtime) -> anyhow::Result<Found> {
        let promotion = self.lose_master(fault, plan.clients, random, runtime)?;
        let verdict = runtime.block_on(self.recorder.check(self.pair.standby())).context("on the new master")?;
        let rejoined = self.pair.rejoin()?;
        let written_down = lost::ids(rejoined.lost.iter().map(|path| path.as_path()))?;
        let missing: HashSet<i64> = verdict.missing.iter().copied().collect();
        let both = fault == Fault::BothKilled;
        let allowed = plan.level == Level::Local || (plan.level == Level::Warm && both);
        let mut damage = halves(&verdict, "new master");
        let lost = if allowed { missing.difference(&written_down).count() } else { missing.len() };
        if lost > 0 {
            damage.push(format!("{lost} acknowledged transactions are lost, first {:?}", first(&missing)));
        }
        let found = runtime.block_on(self.recorder.found(self.pair.standby(), &written_down))?;
        if !found.is_empty() {
            damage.push(format!("written down as lost and on the new master: {:?}", first(&found)));
        }
        self.recorder.strike(&missing);
        self.pair.start_old_master()?;
        self.pair.swap();
        self.pair.wait_until_equal()?;
        let shown = runtime.block_on(self.recorder.check(self.pair.standby())).context("on the rejoined standby")?;
        damage.extend(halves(&shown, "rejoined standby"));
        if !shown.missing.is_empty() || shown.found != verdict.found {
            let (has, should) = (shown.found, verdict.found);
            damage.push(format!("the rejoined standby has {has} rows, {should} are right"));
        }
        damage.extend(self.pair.panics());
        let unanswered = written_down.difference(&missing).count();
        Ok(Found { promotion, rejoined, written_down: missing.len() - lost, unanswered, damage, lost })
    }

    /// Brings the load up, makes the master fail at a random moment, and promotes the standby. Afterwards the old
    /// master is stopped for good and all clients have noticed.
    fn lose_master(
        &mut self,
        fault: Fault,
        clients: u32,
        random: &mut Random,
        runtime: &Runtime,
    ) -> anyhow::Result<Duration> {
        let pair = &mut self.pair;
        let goal = self.recorder.acknowledged() + ACKNOWLEDGED_MIN;
        let mut running = runtime.block_on(self.recorder.start(pair.master(), clients))?;
        let started = Instant::now();
        while self.recorder.acknowledged() < goal {
            still_running(&mut running, runtime)?;
            if started.elapsed() > LOAD_WAIT_MAX {
                bail!("only {} acknowledgements in {LOAD_WAIT_MAX:?}", self.recorder.acknowledged());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut pause = |limit| std::thread::sleep(Duration::from_millis(random.below(limit)));
        pause(MOMENT_MS_MAX);
        still_running(&mut running, runtime)?;
        let promotion = match fault {
            Fault::Killed => {
                pair.kill_master()?;
                pair.promote(false)?
            }
            Fault::Hung | Fault::Resumed => {
                pair.hang_master()?;
                if pair.promote(false).is_ok() {
                    bail!("promoted without proof that the old master, which hangs, is stopped");
                }
                let promotion = pair.promote(true)?;
                if fault == Fault::Resumed {
                    pair.resume_master()?;
                    std::thread::sleep(RESUMED);
                }
                pair.kill_master()?;
                promotion
            }
            Fault::BothKilled => {
                pair.kill_standby()?;
                pause(AWAY_MS_MAX);
                pair.kill_master()?;
                pair.start_standby()?;
                pair.promote(false)?
            }
            Fault::StandbyBack => {
                pair.kill_standby()?;
                pause(AWAY_MS_MAX);
                pair.start_standby()?;
                pause(AWAY_MS_MAX);
                pair.kill_master()?;
                pair.promote(false)?
            }
        };
        runtime.block_on(async {
            let all = async { while running.join_next().await.is_some() {} };
            tokio::time::timeout(END_MAX, all).await.context("clients wait on although their server is gone")
        })?;
        Ok(promotion)
    }
}

fn still_running(running: &mut JoinSet<tokio_postgres::Error>, runtime: &Runtime) -> anyhow::Result<()> {
    match runtime.block_on(async { running.try_join_next() }) {
        None => Ok(()),
        Some(Ok(error)) => bail!("a client's transaction failed before the fault: {}", told(&error)),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Transactions that are there in part.
fn halves(verdict: &Verdict, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !verdict.broken.is_empty() {
        let broken: HashSet<i64> = verdict.broken.iter().copied().collect();
        found.push(format!("{} transactions are half on the {place}, first {:?}", broken.len(), first(&broken)));
    }
    if verdict.accounts != 0 {
        found.push(format!("a transfer is half on the {place}: both databases together hold {}", verdict.accounts));
    }
    found
}

/// Some of them, for a message.
fn first(ids: &HashSet<i64>) -> Vec<i64> {
    let mut sorted: Vec<i64> = ids.iter().copied().collect();
    sorted.sort_unstable();
    sorted.truncate(5);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_is_damage() {
        let good = || Verdict { acknowledged: 1, found: 1, ..Verdict::default() };
        assert!(halves(&good(), "standby").is_empty());
        assert_eq!(halves(&Verdict { broken: vec![4], ..good() }, "standby").len(), 1);
        assert_eq!(halves(&Verdict { accounts: 4, ..good() }, "standby").len(), 1);
    }
}
