//! `holdfast restore`: a new data directory from a dump and the archive.

use crate::dump::{Bar, Threads};
use anyhow::anyhow;
use holdfast_dump::restore::{RestoreOptions, Step, Target, restore};
use holdfast_dump::{Repository, parse_moment, show_moment};
use holdfast_node::data_dir::private_umask;
use indicatif::BinaryBytes;
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a data directory from a dump and the archive, as of any moment that they have
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast restore --from /mnt/dumps --data ./restored
  holdfast restore --from /mnt/dumps --data ./restored --to-time '2026-11-23 15:04:05'
  holdfast restore --from s3://bucket/dumps --data ./restored --before-transaction 4294967311
  holdfast serve --data ./restored --listen 127.0.0.1:5434

Without a target the restore ends where the archive ends. Times are in UTC unless they end in an offset such as +01:00. The
restored server begins a trail of its own: the archive, and standbys of the old one, are not touched by it.")]
pub struct Arguments {
    /// The directory or object store with the dumps
    #[arg(long, value_name = "URL")]
    from: String,
    /// Data directory to make
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The archive [default: the one in the dump's settings]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// End behind the last commit that is whole at this position
    #[arg(long, value_name = "LSN", group = "target")]
    to_lsn: Option<u64>,
    /// End in front of the first commit that is later than this
    #[arg(long, value_name = "TIME", group = "target")]
    to_time: Option<String>,
    /// End behind this transaction
    #[arg(long, value_name = "ID", group = "target")]
    to_transaction: Option<u64>,
    /// End in front of this transaction
    #[arg(long, value_name = "ID", group = "target")]
    before_transaction: Option<u64>,
    /// Begin with this dump, by its name in `holdfast dump list` [default: the newest one that the target allows]
    #[arg(long, value_name = "NAME")]
    dump: Option<String>,
    /// Only dumps of this trail, where the place has dumps of several
    #[arg(long, value_name = "ID")]
    trail: Option<String>,
    #[command(flatten)]
    threads: Threads,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    let repository = Repository::open(&arguments.from)?;
    let options = RestoreOptions {
        dir: &arguments.data,
        target: target(arguments)?,
        archive: arguments.archive.as_deref(),
        dump: arguments.dump.as_deref(),
        trail: arguments.trail.as_deref(),
        threads: arguments.threads.count(),
    };
    let (pages, trail) = (Bar::new("restoring")?, Bar::new("applying the trail")?);
    let restored = restore(&repository, &options, &|step| match step {
        Step::Pages { done_bytes, total_bytes } => pages.show(done_bytes, total_bytes, ""),
        Step::Trail { from, lsn, end, unix_ms } => {
            trail.show(lsn.saturating_sub(from), end - from, &format!("up to {}", show_moment(unix_ms)))
        }
    });
    pages.end();
    trail.end();
    let restored = restored?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&restored)?);
        return Ok(ExitCode::SUCCESS);
    }
    let rate = |bytes: u64, seconds: f64| BinaryBytes((bytes as f64 / seconds.max(0.001)) as u64);
    println!(
        "holdfast: {} is restored to LSN {}, last commit {}",
        restored.dir,
        restored.lsn,
        show_moment(restored.clock_unix_ms)
    );
    println!(
        "  {} databases, {} from {} in {:.1} s ({}/s)",
        restored.databases,
        BinaryBytes(restored.bytes),
        restored.dump,
        restored.dump_seconds,
        rate(restored.bytes, restored.dump_seconds)
    );
    if restored.trail_bytes > 0 {
        println!(
            "  {} of the archive's trail applied in {:.1} s ({}/s)",
            BinaryBytes(restored.trail_bytes),
            restored.trail_seconds,
            rate(restored.trail_bytes, restored.trail_seconds)
        );
    }
    println!("  its own trail is {}, from LSN {} on", restored.new_trail, restored.new_lsn);
    println!("holdfast: look at its holdfast.toml, then start it with: holdfast serve --data {}", restored.dir);
    Ok(ExitCode::SUCCESS)
}

fn target(arguments: &Arguments) -> anyhow::Result<Target> {
    let Arguments { to_lsn, to_time, to_transaction, before_transaction, .. } = arguments;
    Ok(match (to_lsn, to_time, to_transaction, before_transaction) {
        (Some(lsn), ..) => Target::Lsn(*lsn),
        (_, Some(text), ..) => Target::Time(parse_moment(text).map_err(|why| anyhow!("--to-time: {why}"))?),
        (_, _, Some(id), _) => Target::Transaction { id: *id, included: true },
        (.., Some(id)) => Target::Transaction { id: *id, included: false },
        _ => Target::End,
    })
}
