//! `holdfast archive`: shows and verifies the archive.

use clap::Subcommand;
use holdfast_node::{ArchiveReport, TrailReport, archive_report};
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::process::ExitCode;

/// Look at the archive of the trail
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  echo 'archive = \"/mnt/archive\"' >> ./holdfast-data/holdfast.toml
  holdfast serve --data ./holdfast-data
  holdfast archive status --data ./holdfast-data
  holdfast archive verify --data ./holdfast-data")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what is archived, and what is missing
    Status(Look),
    /// Read every object and verify every byte; the exit code is 0 when all is well
    Verify(Look),
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast archive verify --data ./holdfast-data
  AWS_REGION=eu-central-1 holdfast archive status --archive s3://bucket/prefix --json

The server may be running; nothing is changed.")]
struct Look {
    /// Data directory: its holdfast.toml names the archive, its trail is the one looked up
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// The archive, instead of the one in holdfast.toml
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// A file with an identity, where the archive is encrypted [default: `archive_identity` in holdfast.toml]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (look, verifies) = match arguments.command {
        Command::Status(look) => (look, false),
        Command::Verify(look) => (look, true),
    };
    let bar = if verifies { ProgressBar::new_spinner().with_message("objects read") } else { ProgressBar::hidden() };
    let report = archive_report(&look.data, look.archive.as_deref(), look.identity.as_deref(), verifies, || bar.inc(1));
    bar.finish_and_clear();
    let report = report?;
    if look.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    let sound = report.trails.iter().all(TrailReport::is_sound);
    Ok(if sound || !verifies { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &ArchiveReport) {
    if report.trails.is_empty() {
        println!("{}: nothing is archived here", report.place);
    }
    for trail in &report.trails {
        println!("{}: trail {}: {} objects, {} bytes", report.place, trail.trail_id, trail.objects, trail.bytes);
        if let Some((first, last)) = trail.first.as_ref().zip(trail.last.as_ref()) {
            println!(
                "  segments {} to {}, LSN {} to {}, last {}",
                first.segment, last.segment, first.first_lsn, last.end_lsn, last.object
            );
        }
        if let Some(begins) = trail.trail_begins {
            println!("  the data directory's trail has segments from {begins} on");
        }
        trail.gaps.iter().for_each(|(first, last)| println!("problem: segments {first} to {last} are missing"));
        if let Some((first, last)) = trail.missing {
            println!("problem: segments {first} to {last} are neither in the archive nor in the trail");
        }
        if let Some(lost) = &trail.lost {
            println!(
                "problem: {lost} was archived and is missing: check that the archive is mounted, and is the right one"
            );
        }
        for (first, last) in ranges(&trail.forked) {
            println!(
                "note: each of the segments {first} to {last} has more than one object: the histories of two nodes diverge there"
            );
        }
        if let Some(verified) = &trail.verified {
            // Gaps and forks are printed before.
            let damaged = verified.problems.iter().filter(|problem| problem.object.ends_with(".hfa"));
            damaged.for_each(|problem| println!("problem: {}: {}", problem.object, problem.what));
            println!(
                "  read {} objects, {} bytes, {} boxcars: {}",
                verified.objects,
                verified.bytes,
                verified.boxcars,
                if trail.is_sound() { "sound" } else { "NOT SOUND" }
            );
        }
    }
}

/// The runs of consecutive numbers, each as its first and last.
fn ranges(numbers: &[u32]) -> Vec<(u32, u32)> {
    let runs = numbers.chunk_by(|before, number| before + 1 == *number);
    runs.filter_map(|run| Some((*run.first()?, *run.last()?))).collect()
}
