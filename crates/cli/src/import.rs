//! `holdfast import`: brings a SQLite file in as a database.

use holdfast_engine::Options;
use holdfast_engine::import::{Import, Progress, import};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bring a SQLite file in as a new database. No server may run on the data directory; the file is only read.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The SQLite file; its -wal, when there is one, is read with it.
    file: PathBuf,
    /// The data directory; made when it does not exist.
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// The new database's name [default: the file's name without its extension].
    #[arg(long)]
    database: Option<String>,
    /// The file is a database of the data directory that another program has changed: its content becomes the start of
    /// a new history, and what the trail has beyond it is given up.
    #[arg(long)]
    adopt: bool,
}

/// Runs the import.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let what = Import { file: args.file, dir: args.data, database: args.database, adopt: args.adopt };
    let shown = std::io::stderr().is_terminal();
    let last = AtomicU64::new(u64::MAX);
    let progress = Arc::new(move |now| {
        let percent = percent(now);
        if shown && last.swap(percent, Ordering::Relaxed) != percent {
            show(now, percent);
        }
    });
    holdfast_node::mirror::leave_offline(&what.dir)?;
    let done = import(&what, Options::default(), progress);
    if shown {
        eprint!("\r\x1b[K");
    }
    let done = done?;
    println!("imported {} as database {} ({} bytes)", what.file.display(), done.database, done.bytes);
    Ok(ExitCode::SUCCESS)
}

/// Where an import stands, one number for each line worth showing.
fn percent(now: Progress) -> u64 {
    match now {
        Progress::Checking => 0,
        Progress::Copying { done, total } => 1 + done * 100 / total.max(1),
        Progress::Sealing => 102,
    }
}

fn show(now: Progress, percent: u64) {
    let text = match now {
        Progress::Checking => "checking the file".to_owned(),
        Progress::Copying { .. } => format!("copying {} %", percent - 1),
        Progress::Sealing => "sealing the copy".to_owned(),
    };
    eprint!("\r\x1b[K{text}");
    // A terminal that cannot be written to misses nothing but this.
    let _ = std::io::stderr().flush();
}
