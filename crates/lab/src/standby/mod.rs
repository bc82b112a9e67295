//! The study of hot standby, `holdfast lab standby`: what a standby costs its master at each level, how fast one that was
//! away catches up, a transaction of 174 MiB in mid-load, a load beyond what the standby takes in, queries on the standby,
//! a standby at a distance, each node on a core of its own, and three masters to one node. With a peer the same runs on PostgreSQL's streaming replication, whose levels are taken for the same:
//! `local` for local, `remote_write` for warm, `on` for hot, `remote_apply` for commit.
//!
//! | file | holds |
//! |---|---|
//! | [`part`] | the parts and their sizes |
//! | [`pair`] | a master and its standby; [`link`] between them, which counts, limits and delays ([`delay_line`]) |
//! | [`timeline`] | a load, watched together with the nodes' positions |
//! | [`levels`], [`distance`], [`own_cores`], [`catch_up`], [`large`], [`reporting`], [`three_masters`], [`governor`] | the parts |
//! | [`bed`] | what they share, and what must hold afterwards |
//! | [`findings`], [`findings_nodes`], [`findings_standing`] | comparisons and goals |
//! | [`results`], [`summary`], [`summary_nodes`], [`report`], [`report_parts`], [`report_nodes`] | what comes out |
//!
//! Failure: a part that fails at a pair is recorded and the rest continues; the run then ends with an error that names it.
//! Servers and files are gone at the end, also after Ctrl-C.

mod bed;
mod catch_up;
mod delay_line;
mod distance;
mod findings;
mod findings_nodes;
mod findings_standing;
mod governor;
mod large;
mod levels;
mod link;
mod own_cores;
mod pair;
mod part;
mod report;
mod report_nodes;
mod report_parts;
mod reporting;
mod results;
#[cfg(test)]
mod sample;
mod summary;
mod summary_nodes;
mod three_masters;
mod timeline;

pub use part::Part;

use crate::progress::Progress;
use crate::results::Fact;
use crate::server::Kind;
use crate::study_results::{self, Check, Checked, Head, ServerSettings, StudyResults};
use crate::{Study, interrupt, machine, study_files, text};
use bed::Bed;
use pair::Pair;
use part::Sizes;
use results::{Results, SCHEMA};
use std::path::Path;

/// Room for one pair: rows, trails, what the loads add.
const PAIR_BYTES: u64 = 4 << 30;
const QUICK_BYTES: u64 = 1 << 30;

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

impl Checked for Results {
    fn checks_and_failures(&mut self) -> (&mut Vec<Check>, &mut Vec<String>) {
        (&mut self.checks, &mut self.failures)
    }
}

fn measure(study: &Study, scratch: &Path) -> anyhow::Result<Results> {
    let sizes = Sizes::of(study);
    machine::require_free(scratch, if study.quick { QUICK_BYTES } else { PAIR_BYTES })?;
    let kinds = if study.peer.is_some() { vec![Kind::Holdfast, Kind::Postgres] } else { vec![Kind::Holdfast] };
    let mut results = empty(study, &sizes, scratch)?;
    let wanted = || Part::ALL.into_iter().filter(|part| study.wants_part(*part));
    let seconds: f64 = wanted().map(|part| sizes.seconds(part)).sum();
    let progress = Progress::start(seconds * kinds.len() as f64);
    let bed = Bed { study, sizes: &sizes, scratch, progress: &progress };
    for kind in kinds {
        // One pair at a time: its files are gone before the next one's are made.
        if let Err(e) = measure_pair(&bed, kind, &mut results) {
            results.failures.push(format!("{}: {:#}", kind.name(), interrupt::unless(e)?));
        }
    }
    Ok(results)
}

fn measure_pair(bed: &Bed<'_>, kind: Kind, results: &mut Results) -> anyhow::Result<()> {
    let (rows, progress) = (bed.sizes.log_rows, bed.progress);
    progress.part(&format!("starting and filling {}", kind.name()));
    let mut pair = Pair::start(kind, &bed.study.program, bed.scratch, rows, &|done| {
        progress.now(format!("filling {}: {done} of {rows} log rows", kind.name()));
    })?;
    results.servers.push(ServerSettings { server: kind.name().to_string(), settings: pair.master()?.settings.clone() });
    for part in Part::ALL.into_iter().filter(|part| bed.study.wants_part(*part)) {
        interrupt::check()?;
        progress.part(&format!("{} at {}", part.name(), kind.name()));
        let measure = match part {
            Part::Levels => levels::measure,
            Part::CatchUp => catch_up::measure,
            Part::Large => large::measure,
            Part::Report => reporting::measure,
            Part::Governor => governor::measure,
            Part::Distance => distance::measure,
            Part::OwnCores => own_cores::measure,
            Part::ThreeMasters => three_masters::measure,
        };
        if let Err(e) = measure(bed, &mut pair, results) {
            let e = interrupt::unless(e)?;
            results.failures.push(format!("{} at {}: {e:#}", part.name(), kind.name()));
        }
    }
    progress.part(&format!("comparing the nodes of {}", kind.name()));
    bed.compare(&mut pair, "", results)
}

fn empty(study: &Study, sizes: &Sizes, scratch: &Path) -> anyhow::Result<Results> {
    Ok(Results {
        head: Head::of(SCHEMA, study, options(study, sizes), scratch)?,
        servers: Vec::new(),
        levels: Vec::new(),
        distances: Vec::new(),
        own_cores: Vec::new(),
        catch_ups: Vec::new(),
        large: Vec::new(),
        reporting: Vec::new(),
        shared_node: Vec::new(),
        governed: Vec::new(),
        laws: Vec::new(),
        checks: Vec::new(),
        findings: Vec::new(),
        failures: Vec::new(),
        notes: notes(study),
    })
}

fn options(study: &Study, sizes: &Sizes) -> Vec<Fact> {
    let clients: Vec<String> = sizes.clients.iter().map(usize::to_string).collect();
    vec![
        Fact::new("Seconds a point", text::number(sizes.point_seconds)),
        Fact::new("Runs of each level", sizes.rounds.to_string()),
        Fact::new("Clients", clients.join(", ")),
        Fact::new("Log rows before", text::number(sizes.log_rows as f64)),
        Fact::new("Peer", study.peer.map_or("none", |p| p.name())),
    ]
}

/// What a reader must know to judge the figures.
fn notes(study: &Study) -> Vec<String> {
    let notes = [
        "Master, standby and the clients share this machine's processors. What a standby takes of them its master and \
         the clients do not have: rates with a standby say little about two machines, processor time and syncs a \
         transaction say more.",
        "The transaction is the authorization as one message: a terminal is read and locked, updated, a log record of \
         998 bytes with four alternate keys is inserted.",
        "No standby means that the standby is stopped; the first of these runs is before it was made. Levels take \
         turns, every second round in the other order; each figure is the median of the rounds.",
        "The standby's processor time counts until it has shown everything to its readers, divided by the \
         transactions.",
        "Processor time and syncs with and without a standby are compared at an equal rate that both reach: at full \
         speed more transactions share a sync and a wake-up, so that a slower server looks dearer than it is.",
        "Catch-up: the standby is stopped while a load runs, then started again by way of a link of the lab that counts \
         bytes. Its rate counts from the first byte over the link until its readers see everything, without any load.",
        "The standby past its capacity: the link has a limit in bytes a second. The load without a limit is 1.3 times that, and \
         again twice that, which is too much in every second even on a machine with other work. A processor shared with the master would make a capacity that changes from run to run. \
         W is 3.4 seconds of that capacity. The report says in how many of the seconds the load was too much: those at whose \
         end the standby was behind by a quarter of a second of its capacity.",
        "A standby at a distance: a link of the lab delivers everything half a round trip later, each way, many pieces at \
         once. What a level adds is the median of one client's commits less that at local by way of the same link. Goals \
         count with the round trip as it was measured through such a link, as processes have to wake up at its ends.",
        "One sync is the median of 4 KiB written and made durable before each round, when nothing of this run wrote; one boxcar's apply \
         is what commit adds to hot where the link delays nothing.",
        "Each node on its own core: with two cores the load generator is on the standby's, so that the master's core is the \
         master's alone except for other processes of this machine, which the report states.",
        "Three masters to one node: two more masters with a standby each are started; all six run on this machine. The load \
         is small enough for all, and the same for one master alone; one master with three times that is measured for comparison.",
        "Memory is what all processes of a node hold, what they share divided among them (Pss).",
        "PostgreSQL has the levels that come nearest: local, remote_write, on and remote_apply, all with \
         synchronous_standby_names = '*'.",
    ];
    study_results::notes(study, &notes)
}
