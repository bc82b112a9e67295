//! `holdfast trail dump`: prints what stands in the trail.

use holdfast_engine::Options;
use holdfast_engine::trail_dump::{Filter, Item, dump};
use holdfast_types::{Lsn, VolumeId};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Look into the trail.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Print every boxcar and record with the rows it changed. Nothing is changed; stop the server first to see tables
    /// by name.
    Dump(DumpArgs),
}

#[derive(clap::Args, Debug)]
struct DumpArgs {
    /// The data directory.
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Leave out what stands before this position.
    #[arg(long, value_name = "LSN")]
    from: Option<u64>,
    /// Only records of the database with this number (see databases.toml).
    #[arg(long, value_name = "ID")]
    volume: Option<u32>,
}

/// Prints to standard output; a reader that has seen enough ends it without an error.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Dump(args) = args.what;
    let filter = Filter { from: args.from.map(Lsn), volume: args.volume.map(VolumeId) };
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
