//! The study of interactive transactions, `holdfast lab interactive`: transactions of several messages as fast as
//! they go and with think time, next to a client that sleeps in one, a thousand of them open at once, and one of ten
//! thousand statements. With a peer, both servers are measured in the same run and the report compares the
//! figures with each other and with the product's goals.
//!
//! | file | holds |
//! |---|---|
//! | [`case`] | the cases and their sizes |
//! | [`bed`] | the servers, started and filled |
//! | [`rates`] | authorization, TPC-B, think time |
//! | [`sleeper`], [`memory`], [`long_transaction`] | the other cases |
//! | [`findings`] | comparisons and goals |
//! | [`results`], [`summary`], [`report`] | what comes out |
//!
//! Failure: a case that fails at a server, or a check that does not hold afterwards, is recorded and the rest continues;
//! the run then ends with an error that names it. Servers and files are gone at the end, also after Ctrl-C.

mod bed;
mod case;
mod findings;
mod long_transaction;
mod memory;
mod rates;
pub mod report;
pub mod results;
#[cfg(test)]
mod sample;
mod sleeper;
mod summary;

pub use bed::{Stand, kinds};
pub use case::Case;

use crate::pgbench_run::whole_seconds;
use crate::progress::Progress;
use crate::results::Fact;
use crate::study_results::{self, Check, Checked, Head, StudyResults};
use crate::{Study, machine, prefill, study_files, text};
use bed::Bed;
use case::Sizes;
use results::{Results, SCHEMA};
use std::path::Path;

/// Bytes of database a unit of TPC-B's scale takes, with its share of log or trail.
const SCALE_BYTES: u64 = 64 << 20;
/// Room for growth while measuring.
const GROWTH_BYTES: u64 = 6 << 30;

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
    let servers = bed::kinds(study).len() as u64;
    let rows = 4 * sizes.log_rows * prefill::LOG_ROW_FILE_BYTES + u64::from(sizes.scales[1]) * SCALE_BYTES;
    machine::require_free(scratch, servers * (rows + if study.quick { 0 } else { GROWTH_BYTES }))?;
    let mut results = Results {
        head: Head::of(SCHEMA, study, options(study, &sizes), scratch)?,
        servers: Vec::new(),
        rates: Vec::new(),
        sleepers: Vec::new(),
        memory: Vec::new(),
        long_transactions: Vec::new(),
        checks: Vec::new(),
        findings: Vec::new(),
        failures: Vec::new(),
        notes: notes(study),
    };
    let progress = Progress::start(seconds_planned(study, &sizes) * servers as f64);
    let bed = Bed::make(study, &sizes, scratch, &progress, &mut results)?;
    for case in Case::ALL.into_iter().filter(|case| study.wants_case(*case)) {
        let measure = match case {
            Case::Authorization => rates::authorization,
            Case::Tpcb => rates::tpcb,
            Case::ThinkTime => rates::think_time,
            Case::Sleeper => sleeper::measure,
            Case::Memory => memory::measure,
            Case::LongTransaction => long_transaction::measure,
        };
        measure(&bed, &mut results)?;
    }
    Ok(results)
}

/// Seconds of pgbench at each server.
fn seconds_planned(study: &Study, sizes: &Sizes) -> f64 {
    let point = whole_seconds(study.seconds) as f64;
    let of = |case| match case {
        Case::Authorization => point * (sizes.rounds * sizes.clients.len()) as f64,
        Case::Tpcb => point * (sizes.rounds * sizes.clients.len() * sizes.scales.len()) as f64,
        Case::ThinkTime => point * (sizes.rounds * sizes.clients_thinking.len()) as f64,
        Case::Sleeper => sizes.sleep_seconds as f64 * 2.0 * sizes.sleep_rounds as f64,
        Case::Memory => memory::SECONDS_ABOUT,
        Case::LongTransaction => long_transaction::SECONDS_ABOUT,
    };
    Case::ALL.into_iter().filter(|case| study.wants_case(*case)).map(of).sum()
}

fn options(study: &Study, sizes: &Sizes) -> Vec<Fact> {
    let number = |n: u64| text::number(n as f64);
    let list = |counts: &[usize]| counts.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    vec![
        Fact::new("Seconds a point", text::number(study.seconds)),
        Fact::new("Runs of each rate", number(sizes.rounds as u64)),
        Fact::new("Clients", list(&sizes.clients)),
        Fact::new("Clients with think time", list(&sizes.clients_thinking)),
        Fact::new("Log rows before", number(sizes.log_rows)),
        Fact::new("Scales of TPC-B", sizes.scales.map(|s| s.to_string()).join(", ")),
        Fact::new("Sleeper", format!("{} s, {} rounds each", sizes.sleep_seconds, sizes.sleep_rounds)),
        Fact::new("Connections measured for memory", number(sizes.connections as u64)),
        Fact::new("Statements of the long transaction", number(sizes.statements as u64)),
        Fact::new("Peer", study.peer.map_or("none", |p| p.name())),
    ]
}

/// What a reader must know to judge the figures.
fn notes(study: &Study) -> Vec<String> {
    let notes = [
        "pgbench and the lab's own clients run on the same processors as the servers and take a part of every rate: \
         the more messages a transaction has, the larger that part, the same at both servers.",
        "Both servers run from the beginning and take turns, run by run; the run with the middle rate counts. The \
         server that waits does nothing, but it holds its memory.",
        "Think time is pgbench's \\sleep before each of the five statements. pgbench sleeps in whole milliseconds of \
         its own clock and wakes late under load: at 200 clients it is itself a part of what is measured.",
        "The sleeper has changed a row that no other client uses and sends nothing more until the others are measured. \
         The change it causes is the mean rate with it against the mean rate without it.",
        "Memory is the sum over all processes of a server, what they share divided among them (Pss). Idle connections \
         have run one statement each: a PostgreSQL backend that has done nothing holds less. What each takes is the \
         growth from the first tenth of them to all.",
        "The long transaction is sent by one client, statement by statement, each waiting for its answer, while eight \
         others run authorizations.",
        "TPC-B's rates hold no VACUUM; PostgreSQL's tables are vacuumed and analysed once, after they are filled.",
    ];
    study_results::notes(study, &notes)
}
