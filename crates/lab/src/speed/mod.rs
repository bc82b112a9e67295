//! The study of speed, `holdfast lab speed`: each row of the product's table of goals, Holdfast and PostgreSQL by turns in
//! one run, with the rate and the processor time of the whole server a transaction as ratios.
//!
//! | file | holds |
//! |---|---|
//! | [`row`] | the rows, their goals and sizes |
//! | [`bed`] | the servers, started and filled, and their turns |
//! | [`pause`] | the longest pause of others at a large commit |
//! | [`arithmetic`] | medians and ratios of the turns |
//! | [`floor`], [`echo`], [`echo_session`] | the physical floor of a row |
//! | [`history`] | earlier runs, and what became worse |
//! | [`findings`] | the ratios against their goals |
//! | [`results`], [`summary`], [`report`] | what comes out |
//!
//! Failure: a row that cannot be measured at a server says so with the reason and the rest continues; the run then ends
//! with an error. Servers and files are gone at the end, also after Ctrl-C.

mod arithmetic;
mod bed;
mod echo;
mod echo_session;
mod findings;
mod floor;
mod history;
mod pause;
mod report;
mod report_floor;
mod report_history;
mod results;
mod row;
#[cfg(test)]
mod sample;
mod summary;

pub use row::Row;

use crate::progress::Progress;
use crate::results::Fact;
use crate::study_results::{self, Head, StudyResults};
use crate::{Study, interactive, machine, prefill, study_files, text};
use bed::Bed;
use results::{Results, SCHEMA};
use row::Sizes;
use std::path::Path;

/// Bytes of database a unit of TPC-B's scale takes, with its share of log or trail.
const SCALE_BYTES: u64 = 64 << 20;
/// Room for growth while measuring.
const GROWTH_BYTES: u64 = 8 << 30;

/// Runs the study and writes its files.
pub fn run(study: &Study) -> anyhow::Result<()> {
    study_files::run(study, measure)
}

impl StudyResults for Results {
    fn machine_and_notes(&mut self) -> (&mut Vec<Fact>, &mut Vec<String>) {
        (&mut self.head.machine, &mut self.notes)
    }

    fn conclude(&mut self) {
        for line in &mut self.lines {
            line.changes = history::changes(line, &self.history);
        }
        self.findings = findings::findings(&self.lines);
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
    let sizes = Sizes::of(study);
    require_room(study, &sizes, scratch)?;
    history::keep(&study.out)?;
    let mut results = Results {
        head: Head::of(SCHEMA, study, options(study, &sizes), scratch)?,
        servers: Vec::new(),
        lines: Vec::new(),
        history: Vec::new(),
        findings: Vec::new(),
        failures: Vec::new(),
        notes: notes(study),
    };
    let (history, unreadable) = history::read(&study.out, &results.head)?;
    results.history = history;
    results.notes.extend(unreadable);
    let progress = Progress::start(bed::seconds_planned(study, &sizes));
    let bed = Bed::make(study, &sizes, scratch, &progress, &mut results)?;
    for row in Row::MEASURED.into_iter().filter(|row| study.wants_row(*row)) {
        let line = bed.row(row)?;
        let missing = line.missing.iter().filter(|why| !results.failures.contains(why));
        let failures: Vec<String> = missing.map(|why| format!("{}: {why}", line.what)).collect();
        results.failures.extend(failures);
        results.lines.push(line);
    }
    let place = |row: Row| Row::ALL.iter().position(|of| *of == row);
    results.lines.sort_by_key(|line| place(line.row));
    Ok(results)
}

fn require_room(study: &Study, sizes: &Sizes, scratch: &Path) -> anyhow::Result<()> {
    let servers = interactive::kinds(study).len() as u64;
    let scale = Row::ALL.into_iter().filter(|row| study.wants_row(*row)).filter_map(|row| row.scale(sizes)).max();
    let rows = 4 * sizes.log_rows * prefill::LOG_ROW_FILE_BYTES + u64::from(scale.unwrap_or(0)) * SCALE_BYTES;
    machine::require_free(scratch, servers * (rows + if study.quick { 0 } else { GROWTH_BYTES }))
}

fn options(study: &Study, sizes: &Sizes) -> Vec<Fact> {
    vec![
        Fact::new("Seconds a turn", text::number(study.seconds)),
        Fact::new("Turns of each server in a row", text::number(sizes.rounds as f64)),
        Fact::new("Log rows before", text::number(sizes.log_rows as f64)),
        Fact::new("Bytes of the large transaction", text::bytes(sizes.large_bytes)),
        Fact::new("Larger scale of TPC-B", sizes.scale.to_string()),
        Fact::new("Seconds of load before the row that follows a load", sizes.load_seconds.to_string()),
        Fact::new("Peer", study.peer.map_or("none", |p| p.name())),
    ]
}

/// What a reader must know to judge the figures.
fn notes(study: &Study) -> Vec<String> {
    let notes = [
        "Both servers run from the beginning and take turns; every second round in the other order. A ratio is the median \
         of the rounds' ratios, a rate the median of a server's turns. The server that waits does nothing, but it holds \
         its memory.",
        "pgbench runs on the same processors as the servers and takes a part of every rate: the more messages a \
         transaction has, the larger that part, the same at both servers.",
        "Processor time is user and system time of all processes of a server during a turn, background work included, \
         divided by the turn's transactions.",
        "Both servers acknowledge a commit when it is durable on this machine's disk. PostgreSQL: fsync, synchronous_commit \
         and full_page_writes are on. Holdfast: the defaults.",
        "The log grows with each row; a faster server has the longer log. Group by comes first, when both have the same rows.",
        "The floor of a rate is the lower of two: pgbench with the same script at a server that answers without doing \
         anything, and one write and sync after the other, each of the bytes that Holdfast's trail takes for a transaction \
         of every client. A share above 1 is noise: the machine or its disk changed between the two measurements.",
        "A pause is a time in which none of the forty other clients has an answer, from the beginning of the large \
         transaction until two seconds after its commit.",
        "A row is flagged where it is worse by more than 5 % than the median of the last five earlier runs in the same \
         directory, with the same options on the same processor.",
        "PostgreSQL's tables are vacuumed and analysed once, after they are filled. The rates hold no VACUUM but autovacuum.",
    ];
    study_results::notes(study, &notes)
}
