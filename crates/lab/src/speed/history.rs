//! Earlier runs of the study: kept as `results-….json` in the report's directory, read from there, and compared with this
//! run.
//!
//! Only runs with the same options on the same processor are compared. A figure is set against the median of the last
//! [`COMPARED_RUNS`] runs that have it: one run that was disturbed neither hides a change nor makes one.
//!
//! Failure: a file that cannot be read is left out and named in the report; nothing is removed.

use super::arithmetic::median;
use super::results::{Change, Earlier, EarlierLine, Line, SCHEMA};
use super::row::Unit;
use crate::results::Fact;
use crate::study_results::Head;
use anyhow::Context;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The file that a run writes.
const NEWEST: &str = "results.json";
/// How the names of kept files begin.
const KEPT: &str = "results-";
/// Earlier runs that a figure is compared with, at most.
const COMPARED_RUNS: usize = 5;
/// A figure that is worse by more than this share is flagged.
const WORSE_SHARE: f64 = 0.05;

/// What this version reads of a results.json; any row's name is one.
#[derive(Deserialize)]
struct Kept {
    schema: String,
    started_at: String,
    product_version: String,
    options: Vec<Fact>,
    machine: Vec<Fact>,
    lines: Vec<KeptLine>,
}

#[derive(Deserialize)]
struct KeptLine {
    row: String,
    holdfast: Option<KeptValue>,
    ratio: Option<KeptMedian>,
    cpu_ratio: Option<KeptMedian>,
}

#[derive(Deserialize)]
struct KeptValue {
    value: f64,
}

#[derive(Deserialize)]
struct KeptMedian {
    median: f64,
}

/// Copies the newest results to a name of their own, which this run does not write.
pub fn keep(out: &Path) -> anyhow::Result<()> {
    let newest = out.join(NEWEST);
    let Ok(text) = std::fs::read(&newest) else { return Ok(()) };
    // Another study's results are not this one's to keep.
    let Ok(kept) = parse(&text) else { return Ok(()) };
    let stamp = kept.started_at.replace(' ', "-").replace(|c: char| c != '-' && !c.is_ascii_digit(), "");
    let name =
        |n: usize| out.join(if n == 1 { format!("{KEPT}{stamp}.json") } else { format!("{KEPT}{stamp}-{n}.json") });
    let is_kept = |path: &PathBuf| std::fs::read(path).is_ok_and(|found| found == text);
    let free = (1..).map(name).find(|path| is_kept(path) || !path.exists()).context("no name is free")?;
    std::fs::write(&free, &text).with_context(|| format!("cannot write {}", free.display()))
}

/// The earlier runs that can be compared with a run of this head, in the order of time, and what could not be read.
pub fn read(out: &Path, head: &Head) -> anyhow::Result<(Vec<Earlier>, Vec<String>)> {
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(out).with_context(|| format!("cannot read {}", out.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(KEPT) || !name.ends_with(".json") {
            continue;
        }
        match std::fs::read(&path).map_err(anyhow::Error::from).and_then(|text| parse(&text)) {
            Ok(kept) if comparable(&kept, head) => runs.push(earlier(kept)),
            Ok(_) => (),
            Err(e) => unreadable.push(format!("{} cannot be read and is left out: {e:#}", path.display())),
        }
    }
    runs.sort_by(|a, b| a.started_at.cmp(&b.started_at));
    Ok((runs, unreadable))
}

fn parse(text: &[u8]) -> anyhow::Result<Kept> {
    let kept: Kept = serde_json::from_slice(text)?;
    anyhow::ensure!(kept.schema == SCHEMA, "its schema is {}, not {SCHEMA}", kept.schema);
    Ok(kept)
}

/// Same options, same processor, same kind of build.
fn comparable(kept: &Kept, head: &Head) -> bool {
    let fact = |facts: &[Fact], name: &str| facts.iter().find(|fact| fact.name == name).cloned();
    let same = |name: &str| fact(&kept.machine, name) == fact(&head.machine, name);
    kept.options == head.options && same("Processor") && same("Build")
}

fn earlier(kept: Kept) -> Earlier {
    let line = |line: KeptLine| EarlierLine {
        row: line.row,
        value: line.holdfast.map(|figures| figures.value),
        ratio: line.ratio.map(|ratio| ratio.median),
        cpu_ratio: line.cpu_ratio.map(|ratio| ratio.median),
    };
    Earlier {
        started_at: kept.started_at,
        product_version: kept.product_version,
        lines: kept.lines.into_iter().map(line).collect(),
    }
}

/// How a row differs from the earlier runs. A ratio is compared where there is one, since it does not follow the
/// machine's speed; Holdfast's own figure where the run has no peer.
pub fn changes(line: &Line, runs: &[Earlier]) -> Vec<Change> {
    let of = |value: fn(&EarlierLine) -> Option<f64>| {
        let mine = |run: &Earlier| run.lines.iter().find(|l| l.row == line.row.name()).and_then(value);
        median(runs.iter().rev().filter_map(mine).take(COMPARED_RUNS).collect())
    };
    let (what, now, before, higher_is_better) = match (line.row.unit(), line.ratio) {
        (Unit::Seconds, _) => ("pause", line.holdfast.map(|f| f.value), of(|l| l.value), false),
        (Unit::PerSecond, Some(ratio)) => ("ratio", Some(ratio.median), of(|l| l.ratio), true),
        (Unit::PerSecond, None) => ("rate", line.holdfast.map(|f| f.value), of(|l| l.value), true),
    };
    let cpu = ("CPU ratio", line.cpu_ratio.map(|ratio| ratio.median), of(|l| l.cpu_ratio), false);
    [(what, now, before, higher_is_better), cpu]
        .into_iter()
        .filter_map(|(what, now, before, higher)| change(what, now?, before?, higher))
        .collect()
}

fn change(what: &str, now: f64, before: f64, higher_is_better: bool) -> Option<Change> {
    let growth = crate::ratios::quotient(now, before)? - 1.0;
    let worse_share = if higher_is_better { -growth } else { growth };
    Some(Change { what: what.to_string(), before, now, growth, worse: worse_share > WORSE_SHARE })
}

#[cfg(test)]
mod tests {
    use super::super::results::{Figures, Spread};
    use super::super::row::Row;
    use super::super::sample;
    use super::*;

    fn run(started_at: &str, ratio: f64, cpu_ratio: f64) -> Earlier {
        let line = EarlierLine {
            row: Row::OneMessage.name().into(),
            value: Some(ratio * 1000.0),
            ratio: Some(ratio),
            cpu_ratio: Some(cpu_ratio),
        };
        Earlier { started_at: started_at.into(), product_version: "0.1.0".into(), lines: vec![line] }
    }

    fn line(ratio: f64, cpu_ratio: f64) -> Line {
        let spread = |median| Some(Spread { median, lowest: median, highest: median });
        let line = Line::empty(Row::OneMessage, String::new());
        Line { ratio: spread(ratio), cpu_ratio: spread(cpu_ratio), ..line }
    }

    fn flags(line: &Line, runs: &[Earlier]) -> Vec<bool> {
        changes(line, runs).iter().map(|change| change.worse).collect()
    }

    #[test]
    fn a_row_that_became_worse_than_five_per_cent_is_flagged() {
        let runs = [run("1", 2.0, 0.5)];
        assert_eq!(flags(&line(1.91, 0.5), &runs), [false, false]);
        assert_eq!(flags(&line(1.89, 0.5), &runs), [true, false]);
        assert_eq!(flags(&line(2.0, 0.52), &runs), [false, false]);
        assert_eq!(flags(&line(2.0, 0.53), &runs), [false, true]);
        // Better is not worse.
        assert_eq!(flags(&line(4.0, 0.1), &runs), [false, false]);
        assert!(changes(&line(1.0, 1.0), &[]).is_empty());
    }

    #[test]
    fn the_median_of_the_last_five_runs_is_what_a_row_is_compared_with() {
        let disturbed = [run("1", 2.0, 0.5), run("2", 2.0, 0.5), run("3", 0.5, 0.5)];
        assert_eq!(changes(&line(1.5, 0.5), &disturbed)[0].before, 2.0);
        let long_ago: Vec<Earlier> = (0..11).map(|n| run("", if n < 6 { 9.0 } else { 2.0 }, 0.5)).collect();
        assert_eq!(changes(&line(2.0, 0.5), &long_ago)[0].before, 2.0);
    }

    #[test]
    fn a_shorter_pause_is_better_and_a_run_without_a_peer_compares_its_rates() {
        let past = |row: Row, value| {
            let line = EarlierLine { row: row.name().into(), value: Some(value), ratio: None, cpu_ratio: None };
            [Earlier { started_at: String::new(), product_version: String::new(), lines: vec![line] }]
        };
        let now = |row, value| Line {
            holdfast: Some(Figures { value, ..Figures::default() }),
            ..Line::empty(row, String::new())
        };
        assert_eq!(flags(&now(Row::Pause, 0.2), &past(Row::Pause, 0.1)), [true]);
        assert_eq!(flags(&now(Row::Pause, 0.1), &past(Row::Pause, 0.2)), [false]);
        assert_eq!(flags(&now(Row::InsertOne, 900.0), &past(Row::InsertOne, 1000.0)), [true]);
    }

    #[test]
    fn results_are_kept_and_read_again_where_they_are_comparable() {
        let dir = tempfile::tempdir().unwrap();
        let results = sample::results();
        let write = |results: &super::super::results::Results| {
            std::fs::write(dir.path().join(NEWEST), serde_json::to_vec(results).unwrap()).unwrap();
            keep(dir.path()).unwrap();
        };
        write(&results);
        // Keeping the same file again makes no second one.
        write(&results);
        let mut other = results.clone();
        other.head.options[0].value = "another size".into();
        other.head.started_at = "2026-01-02 03:05".into();
        write(&other);
        std::fs::write(dir.path().join("results-broken.json"), "{").unwrap();
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        let kept = ["results-2026-01-02-0304.json", "results-2026-01-02-0305.json", "results-broken.json"];
        assert_eq!(names, [&kept[..], &["results.json"]].concat());
        let (runs, unreadable) = read(dir.path(), &results.head).unwrap();
        assert_eq!(runs.iter().map(|run| run.started_at.as_str()).collect::<Vec<_>>(), ["2026-01-02 03:04"]);
        assert_eq!(runs[0].lines[0].ratio, Some(2.5));
        assert!(unreadable.len() == 1 && unreadable[0].contains("results-broken.json cannot be read"));
    }

    #[test]
    fn the_results_of_another_study_are_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(NEWEST), "{\"schema\": \"holdfast-lab-commit/1\"}").unwrap();
        keep(dir.path()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
