//! The lab: runs the studies the product is measured by and writes reports of them.
//!
//! It looks at servers from outside, over the wire, and at the library as an application would use it. Each study is
//! one module; [`run`] is the whole interface.
//!
//! Failure: a study either writes its report or returns an error that says what could not be measured and what to
//! do. It leaves no process and no temporary file behind in either case.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod audited;
mod authorization;
mod bars;
mod bench;
mod chart;
mod commit;
mod configuration;
mod cores;
mod drive;
mod ffi;
#[cfg(test)]
mod golden;
mod histogram;
mod in_process;
mod interactive;
mod interrupt;
mod machine;
mod machine_load;
mod over_wire;
mod own;
mod paper;
mod peer_holdfast;
mod peer_postgres;
mod pg_client;
mod pg_message;
mod pgbench;
mod pgbench_run;
mod prefill;
mod process_cpu;
mod process_memory;
mod progress;
mod ratios;
mod report;
mod report_tables;
mod results;
#[cfg(test)]
mod sample;
mod scale;
mod schedule;
mod server;
mod speed;
mod standby;
mod stock;
mod study;
mod study_files;
mod study_results;
mod summary;
mod text;
mod time_chart;
mod verdict;
mod wire_connection;
mod wire_drive;
mod wire_transaction;
mod workload;

pub use commit::DiskChoice;
pub use configuration::Configuration;
pub use interactive::Case;
pub use own::{OwnPoint, OwnResults, OwnWorkload, run_own};
pub use speed::Row as SpeedRow;
pub use standby::Part as StandbyPart;
pub use study::{Peer, Study, StudyName};

/// Runs a study: measures, prints a summary, writes `report.html` and `results.json`.
pub fn run(study: &Study) -> anyhow::Result<()> {
    match study.name {
        StudyName::Authorization => authorization::run(study),
        StudyName::Interactive => interactive::run(study),
        StudyName::Commit => commit::run(study),
        StudyName::Standby => standby::run(study),
        StudyName::Speed => speed::run(study),
    }
}
