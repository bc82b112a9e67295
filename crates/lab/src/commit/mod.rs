//! The study of durable commits, `holdfast lab commit`: how many short transactions a second are acknowledged, each
//! after its sync, by number of clients, commit delay, the drive's write cache, the barrier and the sync method. The
//! paper's disk is the unsafe disk with 13 ms a sync; the real one is whatever `--data` lies on.
//!
//! | file | holds |
//! |---|---|
//! | [`plan`] | which settings are measured, on which disks |
//! | [`bed`] | data directories, and servers started on a disk with settings |
//! | [`load`] | the clients: each updates its own row, one prepared statement a transaction, in a closed loop |
//! | [`sync_rate`] | what the disk itself does by each method |
//! | [`findings`] | comparisons and goals |
//! | [`results`], [`summary`], [`report`], [`report_tables`] | what comes out |
//!
//! Failure: settings that cannot be measured are recorded and the rest continues; the run then ends with an error that
//! names them. A machine that cannot mount the unsafe disk measures the real one and says so. Servers, mounts and files
//! are gone at the end, also after Ctrl-C.

mod bed;
mod findings;
mod load;
mod plan;
mod report;
mod report_tables;
mod results;
#[cfg(test)]
mod sample;
mod summary;
pub mod sync_rate;

pub use plan::DiskChoice;

use crate::progress::Progress;
use crate::results::Fact;
use crate::study_results::{self, Head, StudyResults, groups};
use crate::{Study, interrupt, machine, study_files, text};
use bed::Bed;
use plan::{Condition, Plan, Step};
use results::{Rate, Results, SCHEMA, SyncMethodRate};
use std::path::Path;
use std::time::Duration;

/// Room for the servers' files, at most: short runs need less.
const BYTES_NEEDED_MAX: u64 = 3 << 30;
/// What starting and stopping a server takes, for the progress.
const START_SECONDS: f64 = 1.5;
/// How long each sync method is measured without a server.
const SYNC_RATE_SECONDS: f64 = 1.0;

/// Runs the study and writes its files.
pub fn run(study: &Study) -> anyhow::Result<()> {
    study_files::run(study, measure)
}

impl StudyResults for Results {
    fn machine_and_notes(&mut self) -> (&mut Vec<Fact>, &mut Vec<String>) {
        (&mut self.head.machine, &mut self.notes)
    }

    fn conclude(&mut self) {
        self.findings = findings::findings(self);
    }

    fn html(&self) -> String {
        report::html(self)
    }

    fn summary(&self) -> String {
        summary::text(self)
    }

    fn failures(&self) -> &[String] {
        &self.failures
    }
}

fn measure(study: &Study, scratch: &Path) -> anyhow::Result<Results> {
    let cannot_mount = holdfast_unsafe_disk::cannot_mount();
    let without = cannot_mount.as_deref().filter(|_| study.disks != DiskChoice::Real);
    let missing = without.map(|why| {
        format!(
            "the paper's disk is not measured: the unsafe disk needs root and /dev/fuse ({why}); --disk real does not"
        )
    });
    anyhow::ensure!(study.disks != DiskChoice::Paper || missing.is_none(), "{}", missing.unwrap_or_default());
    if let Some(missing) = &missing {
        eprintln!("{missing}");
    }
    let plan = Plan::of(study, missing.is_none());
    machine::require_free(scratch, machine::reserve_bytes(study.seconds, BYTES_NEEDED_MAX))?;
    let mut results = empty(study, &plan, scratch)?;
    results.notes.extend(missing);
    let progress = Progress::start(seconds_planned(study, &plan));
    let bed = Bed::make(study, &plan, scratch, &progress)?;
    measure_disks(&bed, &plan, &mut results)?;
    for step in &plan.steps {
        interrupt::check()?;
        progress.part(&step.to_string());
        if let Err(e) = bed.measure(step, &mut results) {
            results.failures.push(format!("{step}: {:#}", interrupt::unless(e)?));
        }
    }
    results.rates = middles(results.rates);
    Ok(results)
}

fn empty(study: &Study, plan: &Plan, scratch: &Path) -> anyhow::Result<Results> {
    Ok(Results {
        head: Head::of(SCHEMA, study, options(study, plan), scratch)?,
        rates: Vec::new(),
        sync_methods: Vec::new(),
        findings: Vec::new(),
        failures: Vec::new(),
        notes: notes(study),
    })
}

/// What each disk does by each sync method, without a server.
fn measure_disks(bed: &Bed<'_>, plan: &Plan, results: &mut Results) -> anyhow::Result<()> {
    for disk in &plan.disks {
        interrupt::check()?;
        bed.progress.part(&format!("sync methods on {}", disk.title()));
        let span = Duration::from_secs_f64(SYNC_RATE_SECONDS.min(bed.study.seconds));
        let found = bed.on_disk(Condition::safe(*disk), |dir| Ok(sync_rate::measure(dir, span)))?;
        for (method, rate) in found {
            match rate {
                Ok(syncs_rate) => results.sync_methods.push(SyncMethodRate {
                    disk: disk.name().into(),
                    method: method.name().into(),
                    syncs_rate,
                }),
                Err(e) => results.failures.push(format!("{} on {}: {e}", method.name(), disk.title())),
            }
        }
        bed.progress.advance(span.as_secs_f64() * 4.0);
    }
    Ok(())
}

fn seconds_planned(study: &Study, plan: &Plan) -> f64 {
    let step = |step: &Step| START_SECONDS + study.seconds * step.clients.len() as f64;
    plan.steps.iter().map(step).sum::<f64>() + 4.0 * SYNC_RATE_SECONDS * plan.disks.len() as f64
}

fn options(study: &Study, plan: &Plan) -> Vec<Fact> {
    let clients: Vec<String> = plan.clients.iter().map(usize::to_string).collect();
    let disks: Vec<&str> = plan.disks.iter().map(|disk| disk.title()).collect();
    vec![
        Fact::new("Seconds a point", text::number(study.seconds)),
        Fact::new("Runs of each point with cache and barrier", plan.rounds.to_string()),
        Fact::new("Clients", clients.join(", ")),
        Fact::new("Disks", disks.join(", ")),
        Fact::new("Peer", study.peer.map_or("none", |p| p.name())),
    ]
}

/// What a reader must know to judge the figures.
fn notes(study: &Study) -> Vec<String> {
    let notes = [
        "Each client updates its own row, one prepared statement a transaction, and sends the next when it has the \
         answer. Every answer waits for a sync, except where there is no barrier or the cache lies.",
        "The paper's disk is a FUSE disk whose sync takes 13 ms, one at a time, as its single client shows. Its write \
         cache off: every write takes as long as a sync. Its barrier off with the cache on: a sync returns at once and \
         a power cut loses what was acknowledged, unless the power is protected.",
        "The settings take turns, round by round, each round with a newly started server; the middle rate of the rounds \
         counts.",
        "The clients run on the same processors as the server and, on the paper's disk, as the disk itself.",
        "PostgreSQL's commit_delay is set with commit_siblings = 5, as Holdfast's fixed delays are. What is called auto \
         is Holdfast's default, which PostgreSQL does not have.",
    ];
    study_results::notes(study, &notes)
}

/// Of the runs of each point the one with the middle rate, which knows the rates of all.
fn middles(runs: Vec<Rate>) -> Vec<Rate> {
    let middle = |mut same: Vec<Rate>| {
        let rates = same.iter().map(|r| r.tps).collect();
        same.sort_by(|a, b| a.tps.total_cmp(&b.tps));
        let middle = same.swap_remove(same.len() / 2);
        Rate { runs: rates, ..middle }
    };
    groups(runs, Rate::is_same_point).into_iter().map(middle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_run_of_each_point_counts() {
        let one = sample::rate("holdfast", "auto", 1, 70.0);
        let other = sample::rate("holdfast", "auto", 80, 5000.0);
        let run = |tps| Rate { tps, runs: vec![tps], ..one.clone() };
        let middles = middles(vec![run(30.0), other.clone(), run(10.0), run(20.0)]);
        assert_eq!(middles, [Rate { runs: vec![30.0, 10.0, 20.0], ..run(20.0) }, other]);
    }
}
