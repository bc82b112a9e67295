//! What the rounds came to.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::failover::{Fault, Level};

/// Sums over all rounds of a run.
pub struct Totals {
    pub level: Level,
    pub seed: u64,
    pub rounds: u32,
    pub faults: BTreeMap<Fault, u32>,
    pub acknowledged: u64,
    /// Acknowledged, not on the new master, and written down by rejoin, where the level allows it.
    pub written_down: u64,
    /// Of those: at warm, in rounds where both servers had failed.
    pub both_failed: u64,
    /// Acknowledged and gone against the level's promise, or without having been written down.
    pub lost: u64,
    /// Written down and never acknowledged: commits that were under way.
    pub unanswered: u64,
    pub promotions: Vec<Duration>,
    pub rejoined_in_place: u32,
    pub rejoined_by_copy: u32,
    pub damage: Vec<(u32, String, PathBuf)>,
    pub took: Duration,
}

impl Totals {
    pub fn new(level: Level, seed: u64) -> Totals {
        Totals {
            level,
            seed,
            rounds: 0,
            faults: BTreeMap::new(),
            acknowledged: 0,
            written_down: 0,
            both_failed: 0,
            lost: 0,
            unanswered: 0,
            promotions: Vec::new(),
            rejoined_in_place: 0,
            rejoined_by_copy: 0,
            damage: Vec::new(),
            took: Duration::ZERO,
        }
    }

    /// Every round ended as it had to.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.damage.is_empty()
    }

    pub fn table(&self) -> String {
        let mut text = String::new();
        let took = self.took.as_secs_f64();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n==== failovers at level {}, seed {}, {took:.0} s", self.level, self.seed);
        let faults: Vec<String> = self.faults.iter().map(|(fault, times)| format!("{times} {fault}")).collect();
        let mut promotions = self.promotions.clone();
        promotions.sort_unstable();
        let ms = |time: Option<&Duration>| time.map_or("-".to_owned(), |time| format!("{} ms", time.as_millis()));
        let (copied, in_place) = (self.rejoined_by_copy, self.rejoined_in_place);
        let rows: [(&str, String); 7] = [
            ("rounds", format!("{} ({})", self.rounds, faults.join(", "))),
            ("acknowledged", self.acknowledged.to_string()),
            ("lost", self.lost.to_string()),
            ("written down", self.written_down()),
            ("promotions", format!("median {}, longest {}", ms(middle(&promotions)), ms(promotions.last()))),
            ("rejoined", format!("{in_place} with what they had, {copied} by a copy")),
            ("damage", self.damage.len().to_string()),
        ];
        for (name, value) in rows {
            let _ = writeln!(text, "  {name:12} {value}");
        }
        for (round, what, kept) in &self.damage {
            let _ = writeln!(text, "  round {round}: {what}\n    kept: {}", kept.display());
        }
        text
    }

    fn written_down(&self) -> String {
        let both = match self.both_failed {
            0 => String::new(),
            n => format!(" ({n} of them at warm, where both had failed)"),
        };
        let (answered, under_way) = (self.written_down, self.unanswered);
        format!("{answered} acknowledged that only the old master had{both}, {under_way} never answered")
    }
}

fn middle(sorted: &[Duration]) -> Option<&Duration> {
    sorted.get(sorted.len() / 2)
}
