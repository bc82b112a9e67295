//! `holdfast trail`: `dump` prints the content of the trail; `find` and `undo` have files of their own.

use crate::{trail_find, trail_undo};
use holdfast_engine::Options;
use holdfast_engine::trail_dump::{Filter, Item, dump};
use holdfast_types::{Lsn, VolumeId};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Look into the trail
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  holdfast trail dump --data ./holdfast-data --from 67112960
  holdfast trail find --table orders --where \"id = 7\" --since '2026-11-23 15:00'
  holdfast trail undo --transaction 4294967311")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Print every boxcar and record with the rows it changed; nothing is changed
    Dump(DumpArgs),
    /// List the transactions that changed rows of a table, with the values before and after
    Find(trail_find::FindArgs),
    /// Print the inverse of a committed transaction, or run it with --apply
    Undo(trail_undo::UndoArgs),
}

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  holdfast trail dump --data ./holdfast-data
  holdfast trail dump --data ./holdfast-data --from 67112960 --json | head

While the server runs, tables are shown by number; stop it to see their names.")]
struct DumpArgs {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Leave out everything before this position
    #[arg(long, value_name = "LSN")]
    from: Option<Lsn>,
    /// Only records of the database with this number (see databases.toml)
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// Prints to standard output; a reader that closes it early ends the command without an error.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let args = match args.what {
        What::Dump(args) => args,
        What::Find(args) => return trail_find::run(&args),
        What::Undo(args) => return trail_undo::run(&args),
    };
    let filter = Filter { from: args.from, volume: args.volume.map(VolumeId) };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut result = Ok(());
    dump(&args.data, &Options::default(), filter, |item| {
        result = print(&mut out, item, args.json);
        result.is_ok()
    })?;
    match result.and_then(|()| Ok(out.flush()?)) {
        Err(e) if e.downcast_ref().is_some_and(|e: &std::io::Error| e.kind() == ErrorKind::BrokenPipe) => {}
        other => other?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, item: &Item, json: bool) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(item)?)?;
    } else {
        writeln!(out, "{item}")?;
    }
    Ok(())
}
