//! `holdfast dump drill`: tries whether a dump can be restored.

use super::{Bar, Identities, Threads};
use anyhow::Context;
use holdfast_dump::restore::Step;
use holdfast_dump::{DrillOptions, drill, show_moment};
use holdfast_replication::Certificates;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast dump drill --from /mnt/dumps --at 127.0.0.1:5433 --scratch /mnt/scratch/drill

With --at the server's databases are copied to scratch and summed row by row, and the dump is rolled forward to the same LSN:
both must have the same rows. Without it the restore goes to the archive's end and is only checked. Scratch needs the space
of the databases and must be empty; it is emptied at the end.")]
pub struct Arguments {
    /// The directory or object store with the dumps
    #[arg(long, value_name = "URL")]
    from: String,
    /// Compare with this server, a master or a standby
    #[arg(long, value_name = "HOST:PORT")]
    at: Option<String>,
    /// The files of an operator or a node made by `holdfast cert`, where the server is on another machine
    #[arg(long, value_name = "CERTS", requires = "at")]
    certificates: Option<PathBuf>,
    /// The archive [default: the one in the dump's settings]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// Only dumps of this trail, where the place has dumps of several and no server is named
    #[arg(long, value_name = "ID")]
    trail: Option<String>,
    /// The directory to restore to
    #[arg(long, value_name = "DIR")]
    scratch: PathBuf,
    /// Take at most this many megabytes of pages a second from the server
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate_mb: Option<u64>,
    /// How long the archive may take to reach the LSN of the server
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    wait_s: u64,
    #[command(flatten)]
    identity: Identities,
    #[command(flatten)]
    threads: Threads,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let repository = arguments.identity.open(&arguments.from)?;
    let certificates = arguments.certificates.as_deref().map(Certificates::read).transpose()?;
    let options = DrillOptions {
        at: arguments.at.as_deref(),
        certificates,
        archive: arguments.archive.as_deref(),
        trail: arguments.trail.as_deref(),
        scratch: &arguments.scratch,
        threads: arguments.threads.count(),
        rate_bytes: arguments.rate_mb.map(|mb| mb * 1_000_000),
        wait_max: Duration::from_secs(arguments.wait_s),
    };
    let (pages, trail) = (Bar::new("restoring")?, Bar::new("applying the trail")?);
    let drilled = drill(&repository, &options, &|step| match step {
        Step::Pages { done_bytes, total_bytes } => pages.show(done_bytes, total_bytes, ""),
        Step::Trail { from, lsn, end, unix_ms } => {
            trail.show(lsn.saturating_sub(from), end.saturating_sub(from), &format!("up to {}", show_moment(unix_ms)));
        }
    });
    pages.end();
    trail.end();
    let drilled = drilled.context("the drill could not be done")?;
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&drilled)?),
        false => println!("holdfast: {}", drilled.text),
    }
    Ok(if drilled.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
