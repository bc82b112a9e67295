//! `holdfast check`: verifies a data directory whose server is stopped.

use crate::exit::Exit;
use holdfast_engine::Options;
use holdfast_engine::check::{CheckReport, DatabaseFound, check};
use std::path::PathBuf;
use std::process::ExitCode;

/// Verify a data directory whose server is stopped, and change nothing in it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  holdfast check --data ./holdfast-data

Every checksum of the trail and of the databases is verified, and redo is done in memory. A problem is what keeps a start
from succeeding, or acknowledged changes that are missing; a note is what the next start repairs. Exit code 0: no problem;
1: a problem, or an error.")]
pub struct Args {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Print the whole report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the check.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report = check(&args.data, &Options::default())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(Exit::of_check(report.is_sound()).into())
}

fn print(report: &CheckReport) {
    if let Some(t) = &report.trail {
        println!(
            "trail {}: epoch {}, {} segments, LSN {} to {}, {} boxcars, {} bytes of records",
            t.trail_id, t.epoch, t.segments, t.first_lsn, t.end_lsn, t.boxcars, t.bytes
        );
    }
    let width = report.databases.iter().map(|d| d.name.chars().count()).max().unwrap_or(0).max("database".len());
    println!(
        "{:width$}  {:>10}  {:>8}  {:>12}  {:>12}  verdict",
        "database", "pages", "tables", "change", "after redo"
    );
    for d in &report.databases {
        let number = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
        println!(
            "{:width$}  {:>10}  {:>8}  {:>12}  {:>12}  {}",
            d.name,
            d.pages,
            d.tables,
            number(d.number),
            number(d.number_redone),
            verdict(d)
        );
    }
    report.problems.iter().for_each(|p| println!("problem: {p}"));
    for d in &report.databases {
        d.problems.iter().for_each(|p| println!("problem: database {}: {p}", d.name));
    }
    report.notes.iter().for_each(|n| println!("note: {n}"));
    for d in &report.databases {
        d.notes.iter().for_each(|n| println!("note: database {}: {n}", d.name));
    }
    println!("{}: {}", report.dir, if report.is_sound() { "sound" } else { "NOT SOUND" });
}

fn verdict(d: &DatabaseFound) -> &'static str {
    if d.problems.is_empty() { "sound" } else { "NOT SOUND" }
}
