//! The table of switchovers, as docs/standby.md has it.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::judge;
use super::load::Answers;

/// What the rounds of one way to switch have shown.
pub struct Totals {
    way: &'static str,
    gaps: Vec<Duration>,
    acknowledged: usize,
    in_doubt: u64,
    errors: BTreeMap<String, u64>,
    connects: BTreeMap<String, u64>,
    lost: usize,
    undone: usize,
}

impl Totals {
    pub fn new(way: &'static str) -> Totals {
        let (errors, connects) = Default::default();
        Totals { way, gaps: Vec::new(), acknowledged: 0, in_doubt: 0, errors, connects, lost: 0, undone: 0 }
    }

    /// Counts a round; `rows` are on the new master. Returns the round in words.
    pub fn add(&mut self, old: usize, answers: Answers, rows: &HashSet<i64>) -> anyhow::Result<String> {
        let judged = judge(old, &answers, rows)?;
        self.gaps.push(judged.gap);
        self.acknowledged += answers.acknowledged.len();
        self.in_doubt += answers.in_doubt;
        self.lost += judged.lost;
        self.undone += judged.undone;
        let said = format!(
            "gap {}, errors {}, in doubt {}, at connect {}",
            shown(judged.gap),
            counted(&answers.errors),
            answers.in_doubt,
            counted(&answers.connects)
        );
        add(&mut self.errors, answers.errors);
        add(&mut self.connects, answers.connects);
        Ok(said)
    }

    /// Whether every answer was kept.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.undone == 0
    }
}

fn add(to: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>) {
    for (state, count) in more {
        *to.entry(state).or_default() += count;
    }
}

fn counted(errors: &BTreeMap<String, u64>) -> String {
    let list: Vec<String> = errors.iter().map(|(state, count)| format!("{count} × {state}")).collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

fn shown(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// A row for each way to switch.
pub fn table(all: &[Totals]) -> String {
    let mut text =
        "\n| switchover | rounds | gap: median, longest | errors of transactions | in doubt | refused connections \
                    | acknowledged | lost | refused, yet there |\n|---|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for of in all {
        let mut gaps = of.gaps.clone();
        gaps.sort_unstable();
        let median = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
        let longest = gaps.last().copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "| {} | {} | {}, {} | {} | {} | {} | {} | {} | {} |",
            of.way,
            gaps.len(),
            shown(median),
            shown(longest),
            counted(&of.errors),
            of.in_doubt,
            counted(&of.connects),
            of.acknowledged,
            of.lost,
            of.undone
        );
    }
    text
}
