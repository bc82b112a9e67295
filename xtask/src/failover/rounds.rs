//! The rounds of a run, and what each has to end with.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use tokio::runtime::Runtime;

use crate::failover::bed::Bed;
use crate::failover::fault::Fault;
use crate::failover::group::{Rejoined, Settled};
use crate::failover::{Level, Plan, Totals, lost};
use crate::kill_test::Random;
use crate::recorder::Verdict;

/// What a round has found, with everything that was judged.
#[derive(Default)]
pub struct Found {
    pub promotion: Option<std::time::Duration>,
    /// Refusals that named the server to use, and were followed.
    pub refusals: Vec<String>,
    /// A rolled-back server refused without naming the server to use.
    pub unnamed: bool,
    pub copied: bool,
    /// Acknowledged, written down and not on the new master.
    pub written_down: usize,
    /// Written down and never acknowledged.
    pub unanswered: usize,
    pub lost: usize,
    pub half: usize,
    pub stale: usize,
    pub astray: usize,
    pub damage: Vec<String>,
}

/// Runs all rounds. An error is a fault of the test's surroundings; damage is in the totals.
pub fn run(binary: &Path, plan: &Plan) -> anyhow::Result<Totals> {
    let how = if plan.power_cut { ", power is cut" } else { "" };
    plan.say(&format!(
        "  {} rounds at level {}, set-up {}, {} clients, seed {}{how}",
        plan.rounds, plan.level, plan.setup, plan.clients, plan.seed
    ));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut random = Random(plan.seed);
    let mut totals = Totals::new(plan);
    let (started, mut bed, mut bag, mut schema) = (Instant::now(), None, Vec::new(), false);
    for round in 1..=plan.rounds {
        if bag.is_empty() {
            bag.extend(&plan.faults);
            (bed, schema) = (None, !schema);
        }
        let mut this = match bed.take() {
            Some(bed) => bed,
            None => Bed::start(binary, plan, schema, &runtime)?,
        };
        let fault: Fault = bag.swap_remove(random.below(bag.len() as u64) as usize);
        let (before, began) = (this.recorder.acknowledged(), Instant::now());
        let mut found = Found::default();
        if let Err(error) = this.round(round, fault, &mut random, &runtime, &mut found) {
            found.damage.push(format!("{error:#}"));
        }
        let acknowledged = this.recorder.acknowledged() - before;
        plan.say(&line(round, fault, acknowledged, &found, began.elapsed()));
        totals.add(fault, acknowledged, &found);
        if found.damage.is_empty() {
            bed = Some(this);
        } else {
            let kept = (totals.damage.len() < plan.keep).then(|| this.group.keep());
            let shown = kept.as_ref().map_or("not kept".to_owned(), |kept| format!("kept: {}", kept.display()));
            plan.say(&format!("    DAMAGE: {}\n    {shown}", found.damage.join("; ")));
            totals.damage.push((round, found.damage.join("; "), kept));
        }
    }
    totals.took = started.elapsed();
    Ok(totals)
}

/// What is printed of a round.
fn line(round: u32, fault: Fault, acknowledged: u64, found: &Found, took: std::time::Duration) -> String {
    let promoted = found.promotion.map_or("not promoted".to_owned(), |t| format!("promoted in {} ms", t.as_millis()));
    let refused = match found.refusals.len() {
        0 => String::new(),
        n => format!(", {n} refusals followed"),
    };
    format!(
        "  round {round}: {fault}, {acknowledged} acknowledged, lost {}, half {}, stale {}, astray {}, written down {}, \
         never answered {}{refused}, {promoted}, rejoined {}, {:.1} s",
        found.lost,
        found.half,
        found.stale,
        found.astray,
        found.written_down,
        found.unanswered,
        if found.copied { "by a copy" } else { "with what it had" },
        took.as_secs_f64()
    )
}

impl Bed {
    /// One round: the fault, the judgement, and all servers together again, unless there was damage before.
    fn round(
        &mut self,
        round: u32,
        fault: Fault,
        random: &mut Random,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<()> {
        let settled = self.lose_server(round, fault, random, runtime, found)?;
        (found.promotion, found.refusals) = (settled.promotion, settled.refusals.clone());
        let master = self.group.address(settled.master);
        let verdict = runtime.block_on(self.recorder.check(master)).context("on the new master")?;
        found.note_halves(&verdict, "new master");
        let missing: HashSet<i64> = verdict.missing.iter().copied().collect();
        let level = self.plan.level;
        let allowed = level == Level::Local || (level == Level::Warm && fault == Fault::BothKilled);
        if !allowed && !missing.is_empty() {
            found.note_lost(&missing, self.group.nodes[settled.master].name);
        }
        if found.damage.is_empty() {
            let rejoined = self.bring_back(fault, &settled)?;
            self.judge_rejoined(&rejoined, &missing, runtime, found)?;
            self.recorder.strike(&missing);
            self.compare_all(&verdict, runtime, found)?;
        }
        found.damage.extend(self.group.trouble());
        Ok(())
    }

    /// What the new master lacks stands in the files of rejoin, and nothing else does that it has.
    fn judge_rejoined(
        &self,
        rejoined: &Rejoined,
        missing: &HashSet<i64>,
        runtime: &Runtime,
        found: &mut Found,
    ) -> anyhow::Result<()> {
        let written_down = lost::ids(rejoined.lost.iter().map(|path| path.as_path()))?;
        let lost: HashSet<i64> = missing.difference(&written_down).copied().collect();
        let master = &self.group.nodes[self.group.master];
        if !lost.is_empty() {
            found.note_lost(&lost, master.name);
        }
        let shown = runtime.block_on(self.recorder.shown(master.address))?;
        let both: HashSet<i64> = written_down.intersection(&shown).copied().collect();
        if !both.is_empty() {
            found.damage.push(format!("written down as lost and on the new master: {:?}", first(&both)));
        }
        found.copied = rejoined.copied;
        found.written_down = missing.len() - lost.len();
        found.unanswered = written_down.difference(missing).count();
        Ok(())
    }

    /// All other servers follow the new master again.
    fn bring_back(&mut self, fault: Fault, settled: &Settled) -> anyhow::Result<Rejoined> {
        let old = std::mem::replace(&mut self.group.master, settled.master);
        let mut rejoined = Rejoined { copied: false, lost: Vec::new() };
        let admissions = self.group.admissions();
        let new_member = self.new_member.take();
        if let Some(node) = new_member {
            self.group.nodes[node].end();
            self.group.nodes[node].remove_control()?;
        }
        for node in self.group.standbys() {
            let back = match node == old {
                true => self.rejoin(node),
                false => self.follow(node, old != settled.master),
            };
            match back {
                Ok(back) => {
                    rejoined.copied |= back.copied;
                    rejoined.lost.extend(back.lost);
                }
                // What an older copy lacks is not lost with it; a new base copy is always right.
                Err(_) if fault.is_rollback() => {
                    self.group.base_copy(node)?;
                    self.group.spawn(node)?;
                    rejoined.copied = true;
                }
                Err(error) => return Err(error),
            }
        }
        if new_member.is_some() {
            self.group.wait_until_admitted(admissions)?;
        }
        Ok(rejoined)
    }

    /// The standbys show the rows of the master, and no half transaction.
    fn compare_all(&mut self, verdict: &Verdict, runtime: &Runtime, found: &mut Found) -> anyhow::Result<()> {
        self.group.wait_until_equal()?;
        for standby in self.group.standbys() {
            let (name, address) = (self.group.nodes[standby].name, self.group.address(standby));
            let shown = runtime.block_on(self.recorder.check(address)).with_context(|| format!("on {name}"))?;
            found.note_halves(&shown, name);
            if !shown.missing.is_empty() || shown.found != verdict.found {
                found.damage.push(format!("{name} has {} rows, {} are right", shown.found, verdict.found));
            }
        }
        Ok(())
    }
}

impl Found {
    fn note_lost(&mut self, lost: &HashSet<i64>, master: &str) {
        self.lost += lost.len();
        let (count, some) = (lost.len(), first(lost));
        self.damage.push(format!("{count} acknowledged transactions are not on {master}, first {some:?}"));
    }

    /// Notes transactions that are there in part.
    fn note_halves(&mut self, verdict: &Verdict, place: &str) {
        let broken: HashSet<i64> = verdict.broken.iter().copied().collect();
        self.half += broken.len() + usize::from(verdict.accounts != 0);
        if !broken.is_empty() {
            self.damage.push(format!(
                "{} transactions are half on the {place}, first {:?}",
                broken.len(),
                first(&broken)
            ));
        }
        if verdict.accounts != 0 {
            let sum = verdict.accounts;
            self.damage.push(format!("a transfer is half on the {place}: both databases together hold {sum}"));
        }
    }
}

/// Some of them, for a message.
pub fn first(ids: &HashSet<i64>) -> Vec<i64> {
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
        let halves = |verdict: Verdict| {
            let mut found = Found::default();
            found.note_halves(&verdict, "standby");
            (found.half, found.damage.len())
        };
        assert_eq!(halves(good()), (0, 0));
        assert_eq!(halves(Verdict { broken: vec![4], ..good() }), (1, 1));
        assert_eq!(halves(Verdict { accounts: 4, ..good() }), (1, 1));
    }
}
