//! What the rounds came to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::failover::fault::{Fault, Setup};
use crate::failover::rounds::Found;
use crate::failover::{Level, Plan};

/// Sums over the rounds of one fault.
#[derive(Default)]
struct Sums {
    rounds: u32,
    /// Rounds with any damage.
    bad: u32,
    acknowledged: u64,
    lost: u64,
    half: u64,
    stale: u64,
    astray: u64,
    /// Rounds in which a server refused, named another one, and was right.
    refused: u32,
    /// Rounds in which a rolled-back server refused without naming the server to use.
    unnamed: u32,
}

/// Sums over all rounds of a run.
pub struct Totals {
    pub level: Level,
    pub setup: Setup,
    pub seed: u64,
    pub took: Duration,
    /// The round, what was wrong, and where the directories are, if they were kept.
    pub damage: Vec<(u32, String, Option<PathBuf>)>,
    faults: BTreeMap<Fault, Sums>,
    /// Acknowledged, not on the new master, and written down by rejoin, where the level allows it.
    written_down: u64,
    /// Written down and never acknowledged: commits that were under way.
    unanswered: u64,
    promotions: Vec<Duration>,
    copied: u32,
}

impl Totals {
    pub fn new(plan: &Plan) -> Totals {
        Totals {
            level: plan.level,
            setup: plan.setup,
            seed: plan.seed,
            took: Duration::ZERO,
            damage: Vec::new(),
            faults: BTreeMap::new(),
            written_down: 0,
            unanswered: 0,
            promotions: Vec::new(),
            copied: 0,
        }
    }

    pub fn add(&mut self, fault: Fault, acknowledged: u64, found: &Found) {
        let sums = self.faults.entry(fault).or_default();
        sums.rounds += 1;
        sums.bad += u32::from(!found.damage.is_empty());
        sums.acknowledged += acknowledged;
        sums.lost += found.lost as u64;
        sums.half += found.half as u64;
        sums.stale += found.stale as u64;
        sums.astray += found.astray as u64;
        sums.unnamed += u32::from(found.unnamed);
        sums.refused += u32::from(!found.refusals.is_empty());
        self.written_down += found.written_down as u64;
        self.unanswered += found.unanswered as u64;
        self.copied += u32::from(found.copied);
        self.promotions.extend(found.promotion);
    }

    /// Every round ended as it had to.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.sum(|sums| sums.lost + sums.half + sums.stale + sums.astray) == 0
    }

    fn sum(&self, of: impl Fn(&Sums) -> u64) -> u64 {
        self.faults.values().map(of).sum()
    }

    pub fn table(&self) -> String {
        let mut text = String::new();
        let took = self.took.as_secs_f64();
        // Writing to a String cannot fail.
        let (level, setup, seed) = (self.level, self.setup, self.seed);
        let _ = writeln!(text, "\n==== failovers at level {level}, set-up {setup}, seed {seed}, {took:.0} s");
        let _ = writeln!(
            text,
            "  {:36} {:>6} {:>6} {:>12} {:>7} {:>5} {:>6} {:>6} {:>7} {:>7}",
            "fault", "rounds", "bad", "acknowledged", "lost", "half", "stale", "astray", "refused", "unnamed"
        );
        for (fault, s) in &self.faults {
            let _ = writeln!(text, "  {}", row(&fault.to_string(), s));
        }
        let _ = writeln!(text, "  {}", row("all", &self.all()));
        let (longest, median) = (self.promotions.iter().max(), median(&self.promotions));
        let ms = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()));
        let _ = writeln!(text, "  promotions: median {}, longest {}", ms(median), ms(longest.copied()));
        let _ = writeln!(
            text,
            "  written down: {} acknowledged that only the old master had, {} never answered; {} rounds with a copy",
            self.written_down, self.unanswered, self.copied
        );
        for (round, what, kept) in &self.damage {
            // The rest, from the log, was printed with the round.
            let what = what.lines().next().unwrap_or_default();
            let kept = kept.as_ref().map(|kept| format!("\n    kept: {}", kept.display())).unwrap_or_default();
            let _ = writeln!(text, "  round {round}: {what}{kept}");
        }
        text
    }

    /// The same figures for programs.
    pub fn json(&self) -> String {
        let sums = |s: &Sums| {
            json!({
                "rounds": s.rounds, "bad": s.bad, "acknowledged": s.acknowledged, "lost": s.lost, "half": s.half,
                "stale": s.stale, "astray": s.astray, "refused": s.refused, "unnamed": s.unnamed,
            })
        };
        let faults: serde_json::Map<_, _> = self.faults.iter().map(|(fault, s)| (fault.to_string(), sums(s))).collect();
        let damage: Vec<_> = self
            .damage
            .iter()
            .map(|(round, what, kept)| json!({ "round": round, "what": what, "kept": kept }))
            .collect();
        let promotions: Vec<_> = self.promotions.iter().map(Duration::as_millis).collect();
        json!({
            "level": self.level.to_string(), "setup": self.setup.to_string(), "seed": self.seed,
            "seconds": self.took.as_secs_f64(), "all": sums(&self.all()), "faults": faults, "promotions_ms": promotions,
            "written_down": self.written_down, "unanswered": self.unanswered, "copied": self.copied, "damage": damage,
        })
        .to_string()
    }

    fn all(&self) -> Sums {
        let narrow = |of: fn(&Sums) -> u32| self.faults.values().map(of).sum();
        Sums {
            rounds: narrow(|s| s.rounds),
            bad: narrow(|s| s.bad),
            refused: narrow(|s| s.refused),
            unnamed: narrow(|s| s.unnamed),
            acknowledged: self.sum(|s| s.acknowledged),
            lost: self.sum(|s| s.lost),
            half: self.sum(|s| s.half),
            stale: self.sum(|s| s.stale),
            astray: self.sum(|s| s.astray),
        }
    }
}

fn row(name: &str, s: &Sums) -> String {
    format!(
        "{name:36} {:>6} {:>6} {:>12} {:>7} {:>5} {:>6} {:>6} {:>7} {:>7}",
        s.rounds, s.bad, s.acknowledged, s.lost, s.half, s.stale, s.astray, s.refused, s.unnamed
    )
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}
