//! The first study, `holdfast lab authorization`: the card authorization under rising load, in every configuration
//! that can be measured here, written up as `report.html` and `results.json`.
//!
//! Everything it makes lies in one temporary directory and is removed at its end, on errors and on Ctrl-C, too.

use crate::bench::Plan;
use crate::configuration::Configuration;
use crate::in_process::InProcessRuns;
use crate::over_wire::WireRuns;
use crate::progress::Progress;
use crate::results::{Fact, Options, Results, SCHEMA};
use crate::server::Kind;
use crate::study_results::StudyResults;
use crate::{Study, interrupt, machine, pgbench, ratios, report, study_files, summary, text};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Log rows at the start where `--log-rows` says nothing: the in-process matrix copies its database often.
const LOG_ROWS_IN_PROCESS: u64 = 30_000;
/// The comparison with a peer starts on a log that no cache is too small for, as the goals are defined.
const LOG_ROWS_WIRE: u64 = 300_000;
/// Clients where `--clients` says nothing, as the goals are defined.
const CLIENTS: [usize; 1] = [40];
/// On a slow disk forty clients are not enough to saturate a group commit: the study added processes until the
/// system was.
const CLIENTS_SLOW_DISK: [usize; 2] = [40, 400];

/// Runs the study and writes its files.
pub fn run(study: &Study) -> anyhow::Result<()> {
    study_files::run(study, measure)
}

impl StudyResults for Results {
    fn machine_and_notes(&mut self) -> (&mut Vec<Fact>, &mut Vec<String>) {
        (&mut self.machine, &mut self.notes)
    }

    fn conclude(&mut self) {
        self.ratios = ratios::ratios(self);
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
    let options = options(study);
    let mut results = Results {
        schema: SCHEMA.into(),
        paper: study.name.paper().into(),
        product_version: env!("CARGO_PKG_VERSION").into(),
        started_at: text::utc(SystemTime::now()),
        command: study.command.clone(),
        machine: machine::facts(scratch)?,
        configurations: Vec::new(),
        pgbench: Vec::new(),
        ratios: Vec::new(),
        failures: Vec::new(),
        notes: notes(study),
        options: options.clone(),
    };
    let plan = Plan { seconds: study.seconds, clients: options.clients.clone() };
    let plan_wire = Plan { seconds: study.seconds, clients: clients(study, false) };
    let wanted: Vec<Configuration> = Configuration::ALL.into_iter().filter(|c| study.wants(*c)).collect();
    let progress = Progress::start(seconds_planned(&wanted, &plan, &plan_wire));
    in_process(&wanted, &mut results, scratch, &plan, &progress)?;
    let log_rows = options.log_rows_wire;
    let runs = WireRuns { dir: scratch, program: &study.program, log_rows, plan: &plan_wire, progress: &progress };
    over_wire(&wanted, &mut results, &runs)?;
    Ok(results)
}

fn in_process(
    wanted: &[Configuration],
    results: &mut Results,
    scratch: &Path,
    plan: &Plan,
    progress: &Progress,
) -> anyhow::Result<()> {
    let wanted: Vec<Configuration> = wanted.iter().copied().filter(|c| c.in_process()).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let delay = Duration::from_millis(results.options.disk_sync_ms);
    let log_rows = results.options.log_rows_in_process;
    let runs = InProcessRuns::prepare(scratch, log_rows, delay, plan, progress)?;
    for configuration in wanted {
        match runs.run(configuration) {
            Ok(measured) => results.configurations.push(measured),
            Err(e) => results.failed(&[configuration], interrupt::unless(e)?),
        }
    }
    Ok(())
}

const OURS: &[Configuration] =
    &[Configuration::Autotmf, Configuration::AuditedWireSimple, Configuration::AuditedWirePipeline];
const THEIRS: &[Configuration] = &[Configuration::PostgresSimple, Configuration::PostgresPipeline];

/// Seconds of load, each server's runs of pgbench included.
fn seconds_planned(wanted: &[Configuration], plan: &Plan, plan_wire: &Plan) -> f64 {
    let of = |c: &Configuration| if c.in_process() { plan.seconds_planned() } else { plan_wire.seconds_planned() };
    let servers = [OURS, THEIRS].into_iter().filter(|of| of.iter().any(|c| wanted.contains(c))).count();
    wanted.iter().map(of).sum::<f64>() + servers as f64 * pgbench::seconds_planned(plan_wire.seconds)
}

fn over_wire(wanted: &[Configuration], results: &mut Results, runs: &WireRuns<'_>) -> anyhow::Result<()> {
    for (kind, of) in [(Kind::Holdfast, OURS), (Kind::Postgres, THEIRS)] {
        let of: Vec<Configuration> = of.iter().copied().filter(|c| wanted.contains(c)).collect();
        if of.is_empty() {
            continue;
        }
        match runs.run(kind, &of) {
            Ok(measured) => {
                results.configurations.extend(measured.configurations);
                results.pgbench.extend(measured.pgbench);
            }
            Err(e) => results.failed(&of, interrupt::unless(e)?),
        }
    }
    results.pgbench.sort_by_key(|r| (pgbench::order(&r.case), r.clients));
    Ok(())
}

/// The client counts; only configurations in process feel the slow disk.
fn clients(study: &Study, slow_disk: bool) -> Vec<usize> {
    match (study.clients.as_slice(), slow_disk) {
        ([], true) => CLIENTS_SLOW_DISK.to_vec(),
        ([], false) => CLIENTS.to_vec(),
        (counts, _) => counts.to_vec(),
    }
}

fn options(study: &Study) -> Options {
    Options {
        seconds_per_point: study.seconds,
        clients: clients(study, study.disk_sync_ms > 0),
        disk_sync_ms: study.disk_sync_ms,
        log_rows_in_process: study.log_rows.unwrap_or(LOG_ROWS_IN_PROCESS),
        log_rows_wire: study.log_rows.unwrap_or(LOG_ROWS_WIRE),
        peer: study.peer.map(|p| p.name().to_string()),
    }
}

/// What a reader must know to judge the figures.
fn notes(study: &Study) -> Vec<String> {
    let mut notes: Vec<String> = [
        "The load generator runs on the same processors as what it measures: it takes a part of every rate, the same \
         part in each configuration that is compared.",
        "The study's step 3, the message to an authorization server, does no database work and takes no time here.",
        "Stock SQLite has one writer. Its clients share one connection behind a mutex, which is held for one \
         authorization: kinder than a connection each, which would poll for the write lock. The mutex is also the \
         terminal's record lock in the configurations without transactions. It is not fair: that helps the rate and \
         the median, and shows in the slowest answers.",
        "Response times are counted from the scheduled arrival, so a stall is charged to every request that arrived \
         during it. Past saturation the queue, and with it the mean, grows for as long as the run lasts.",
        "NAInsert has no exact counterpart on SQLite. An append buffer written in batches is the nearest: the insert \
         costs no journal of its own, the four indexes are still maintained, and a crash loses what was answered.",
        "Each configuration keeps its database from point to point; the log grows as it is measured.",
        "Syncs are counted by each side itself. SQLite's and Holdfast's counts hold the syncs of checkpoints, too; \
         PostgreSQL's holds those of its log only.",
        "AutoTMF sends the three statements of an authorization together, each with a Sync of its own. A program that \
         waits for each answer adds two round trips. Its sessions hold record locks from one authorization to the next, \
         until their automatic transaction ends: many clients wait for each other more than with explicit ones.",
        "Fillers in the records are random printable text, so that nothing is won by compressing them.",
    ]
    .map(String::from)
    .to_vec();
    if study.disk_sync_ms > 0 {
        notes.push(
            "The sync delay is added to each sync inside the disk interface: for stock SQLite in a VFS shim over its \
             own, for Holdfast in its disk layer. Where SQLite syncs a new journal and its directory in one call, \
             one delay is charged. Servers reached over the wire are not delayed."
                .to_string(),
        );
    }
    notes
}
