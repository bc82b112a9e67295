//! `holdfast unsafe-disk`: mounts a disk that loses, tears, lies and fails, to test any database on.

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use holdfast_unsafe_disk::{
    CONTROL, Command, Names, Options, Random, Rule, Status, UnsafeDisk, cut_after, lying_drive,
};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Mount a disk with a volatile write cache that power cuts, lies and faults can be tried on
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Example: does a database survive a power cut?
  mkdir mnt backing
  holdfast unsafe-disk mnt --backing backing --sync-us 100 &
  ... start the database with its data in mnt, put load on it, write down what it acknowledged ...
  holdfast unsafe-disk ctl mnt cut          # or: echo cut > mnt/.unsafe-disk
  ... kill -9 the database ...
  holdfast unsafe-disk ctl mnt restore
  ... start it again and compare ...

Writes are visible at once, and durable after a sync. At a power cut every unsynced sector of 512 bytes is kept,
dropped or garbage, in any order, and unsynced names and lengths are kept or lost. BACKING holds what is durable.

Commands for ctl, for mnt/.unsafe-disk (reading it gives the status as JSON), and rules for --fault:
  cut | restore | sync | clear | seed N | capacity BYTES|none
  fail sync|write|read|name [PATTERN] [after=N] [times=N|always] [error=eio|enospc]
  slow sync|write|read [PATTERN] us=N        lie|flip|misdirect [PATTERN] [after=N] [times=N]
  cut [PATTERN] after=N
PATTERN is a file name with * and ?, or a path from the mount point. Each rule counts how often it fired.
Ctrl-C or SIGTERM unmounts, with everything made durable. Needs /dev/fuse, and root or fusermount3.")]
pub struct Arguments {
    #[command(subcommand)]
    ctl: Option<Sub>,
    /// An empty directory
    #[arg(required = true)]
    mountpoint: Option<PathBuf>,
    /// Directory that holds what is durable; made when it does not exist
    #[arg(long, value_name = "DIR", required = true)]
    backing: Option<PathBuf>,
    /// How long a barrier takes, in microseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    sync_us: u64,
    /// off: a sync does not flush the drive's cache, as with a file system mounted without barriers
    #[arg(long, value_enum, default_value = "on")]
    barrier: Switch,
    /// off: the drive has no volatile cache; every write is durable when it returns and takes as long as a barrier
    #[arg(long, value_enum, default_value = "on")]
    cache: Switch,
    /// Size of the drive's cache; what does not fit is written before a sync asks for it
    #[arg(long, value_name = "N", default_value_t = 256)]
    cache_mib: u64,
    /// The drive lies: it acknowledges syncs and writes nothing
    #[arg(long)]
    lie: bool,
    /// What makes a new name durable apart from a sync of its directory: a sync of the file (as on ext4), or nothing
    #[arg(long, value_enum, default_value = "file")]
    names: NamesArg,
    /// Percentage of a torn file's lost unsynced sectors that become garbage
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    garbage: u32,
    /// Cut the power in the middle of the Nth write, sync or change of a name
    #[arg(long, value_name = "N", conflicts_with = "cut_random")]
    cut_at_op: Option<u64>,
    /// Cut the power in the middle of a random write, sync or change of a name between the LOth and the HIth
    #[arg(long, value_name = "LO..HI", value_parser = range)]
    cut_random: Option<RangeInclusive<u64>>,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What all files together may hold, in bytes; beyond it writes fail with ENOSPC
    #[arg(long, value_name = "BYTES")]
    capacity: Option<u64>,
    /// A fault to begin with, for example \"fail sync *.wal after=10\"; may be given several times
    #[arg(long, value_name = "RULE", value_parser = rule)]
    fault: Vec<Rule>,
    /// Let other users use it (a database that does not run as root)
    #[arg(long)]
    allow_other: bool,
    /// Print the status at the end as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Sub {
    /// Send a command to a mounted disk, or show its status
    #[command(after_help = "\
Examples:
  holdfast unsafe-disk ctl mnt cut
  holdfast unsafe-disk ctl mnt --json")]
    Ctl {
        /// Where it is mounted
        mountpoint: PathBuf,
        /// A command [default: status]
        command: Vec<String>,
        /// Print the status as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum NamesArg {
    File,
    Directory,
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let bounds = text.split_once("..").and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    match bounds {
        Some((low, high)) if low <= high => Ok(low..=high),
        _ => Err("wants two whole numbers as in 100..5000, the smaller one first".to_owned()),
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    match text.parse::<Command>() {
        Ok(Command::Rule(rule)) => Ok(rule),
        Ok(_) => Err(format!("{text} is a command for `ctl`, not a fault")),
        Err(error) => Err(error.to_string()),
    }
}

pub fn run(args: Arguments) -> anyhow::Result<ExitCode> {
    match args.ctl {
        Some(Sub::Ctl { mountpoint, command, json }) => control(&mountpoint, &command.join(" "), json),
        None => serve(args),
    }
}

fn options(args: &Arguments, backing: &Path) -> Options {
    let mut options = Options::new(backing);
    options.sync_us = args.sync_us;
    options.barrier = args.barrier == Switch::On;
    options.cache = args.cache == Switch::On;
    options.cache_bytes = args.cache_mib << 20;
    options.names = match args.names {
        NamesArg::File => Names::File,
        NamesArg::Directory => Names::Directory,
    };
    options.garbage_percent = args.garbage;
    options.seed = args.seed;
    options.capacity_bytes = args.capacity;
    options.allow_other = args.allow_other;
    options.faults = args.fault.clone();
    options.faults.extend(args.lie.then(lying_drive));
    let drawn = args.cut_random.as_ref().map(|range| {
        let width = (range.end() - range.start()).saturating_add(1);
        range.start() + Random::new(args.seed).below(width)
    });
    // The Nth is the one after N - 1 others.
    options.faults.extend(args.cut_at_op.or(drawn).map(|operation| cut_after(operation.saturating_sub(1))));
    options
}

fn serve(args: Arguments) -> anyhow::Result<ExitCode> {
    let (Some(mountpoint), Some(backing)) = (&args.mountpoint, &args.backing) else {
        bail!("MOUNTPOINT and --backing are needed");
    };
    std::fs::create_dir_all(backing).with_context(|| format!("making {}", backing.display()))?;
    let disk = UnsafeDisk::mount(mountpoint, options(&args, backing))?;
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    ctrlc::set_handler(move || asked.store(true, Ordering::Relaxed)).context("catching signals")?;
    println!("holdfast: unsafe disk ready at {}", disk.mountpoint().display());
    while !stop.load(Ordering::Relaxed) && disk.is_served() {
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = disk.status();
    drop(disk);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&status)?)
    } else {
        print!("{status}")
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the command into the control file, or shows what the disk says of itself.
fn control(mountpoint: &Path, command: &str, json: bool) -> anyhow::Result<ExitCode> {
    let path = mountpoint.join(CONTROL);
    let read = || -> anyhow::Result<Status> {
        let text = std::fs::read_to_string(&path);
        Ok(serde_json::from_str(&text.with_context(|| format!("no unsafe disk at {}", mountpoint.display()))?)?)
    };
    let status = read()?;
    if !matches!(command, "" | "status") {
        if let Err(error) = std::fs::write(&path, command) {
            bail!("{command}: {}", read()?.last_error.unwrap_or_else(|| error.to_string()));
        }
    } else if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{status}");
    }
    Ok(ExitCode::SUCCESS)
}
