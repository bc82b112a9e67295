//! `holdfast restore`: a new data directory from a dump and the archive, or a part of one in a running server.

mod into;
mod scratch;
mod serve;

use crate::dump::{Bar, Identities, Threads};
use anyhow::anyhow;
use holdfast_dump::restore::{RestoreOptions, Step, Target, restore};
use holdfast_dump::{parse_moment, show_moment};
use holdfast_node::config::Listen;
use holdfast_node::data_dir::private_umask;
use holdfast_types::Lsn;
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

  holdfast restore --from /mnt/dumps --database shop --table orders --before-drop --into 127.0.0.1:5433 --as orders
  holdfast restore --from /mnt/dumps --database shop --to-time '2026-11-23 15:04:05' --into 127.0.0.1:5433 --as shop_then
  holdfast restore --from /mnt/dumps --to-time '2026-11-23 15:04:05' --serve 127.0.0.1:5434

Without a target the restore ends where the archive ends. Times are in UTC unless they end in an offset such as +01:00. The
restored server begins a trail of its own: the archive, and standbys of the old one, are not touched by it.

With --serve, queries are answered at that moment before the pages have been fetched, from a scratch directory that is removed at
the end. Nothing can be changed there.

With --into, one database or table goes into a running server, under another name or, where it is gone, its own: restored in a
scratch directory, then copied with the privileges of the role that connects. The role is that of --user or PGUSER [default:
holdfast], the password that of PGPASSWORD. A server on another machine needs --ca.")]
pub struct Arguments {
    /// The directory or object store with the dumps
    #[arg(long, value_name = "URL")]
    from: String,
    /// Data directory to make
    #[arg(long, value_name = "DIR", required_unless_present_any = ["into", "serve"], conflicts_with = "into")]
    data: Option<PathBuf>,
    /// Answer read-only queries here at once; pages are fetched when they are read
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["data", "into"])]
    serve: Option<Listen>,
    #[command(flatten)]
    into: into::Arguments,
    /// The archive [default: the one in the dump's settings]
    #[arg(long, value_name = "URL")]
    archive: Option<String>,
    /// End behind the last commit that is whole at this position: 0/34001000, or the plain number
    #[arg(long, value_name = "LSN", group = "target")]
    to_lsn: Option<Lsn>,
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
    identity: Identities,
    #[command(flatten)]
    threads: Threads,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    let repository = arguments.identity.open(&arguments.from)?;
    if let Some(listen) = &arguments.serve {
        return serve::run(arguments, listen, repository);
    }
    let Some(data) = &arguments.data else { return into::run(arguments, &repository) };
    let options = RestoreOptions {
        dir: data,
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
    if let Some(why) = &restored.unreadable_dump {
        eprintln!("holdfast: a newer dump cannot be read, and was not used: {why}");
    }
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
    if matches!(options.target, Target::End) {
        println!("  what was committed later was not archived, and is not in it");
    }
    println!("  its own trail is {}, from LSN {} on", restored.new_trail, restored.new_lsn);
    println!("holdfast: look at its holdfast.toml, then start it with: holdfast serve --data {}", restored.dir);
    Ok(ExitCode::SUCCESS)
}

fn target(arguments: &Arguments) -> anyhow::Result<Target> {
    let Arguments { to_lsn, to_time, to_transaction, before_transaction, .. } = arguments;
    Ok(match (to_lsn, to_time, to_transaction, before_transaction) {
        (Some(lsn), ..) => Target::Lsn(lsn.0),
        (_, Some(text), ..) => Target::Time(parse_moment(text).map_err(|why| anyhow!("--to-time: {why}"))?),
        (_, _, Some(id), _) => Target::Transaction { id: *id, included: true },
        (.., Some(id)) => Target::Transaction { id: *id, included: false },
        _ => Target::End,
    })
}
