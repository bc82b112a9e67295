//! `holdfast import`: brings a SQLite file in as a database.
//!
//! Progress goes to standard error: a bar on a terminal, else a line for each phase and for each tenth of the copy.

use crate::exit::Exit;
use crate::time_left;
use holdfast_engine::Options;
use holdfast_engine::import::{Import, ImportProgress, Imported, OnProgress, import};
use holdfast_node::data_dir::{self, FirstStart, private_umask};
use indicatif::{BinaryBytes, ProgressBar};
use parking_lot::Mutex;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Bring a SQLite file in as a new database; the file is only read
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  holdfast import shop.db --data ./holdfast-data
  holdfast import shop.db --data ./holdfast-data --database shop2
  holdfast import holdfast-data/volumes/000003-shop.db --data ./holdfast-data --adopt

The server of the data directory must be stopped. The file is checked, copied and sealed; progress goes to standard error.")]
pub struct Args {
    /// The SQLite file; its -wal, when there is one, is read with it
    file: PathBuf,
    /// Data directory; made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// The new database's name [default: the file's name without its extension]
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// The file is a database of this data directory that another program has changed: its content becomes the start of
    /// a new history, and changes that only the trail has are given up
    #[arg(long)]
    adopt: bool,
    /// Print the result as JSON, and no progress
    #[arg(long)]
    json: bool,
}

/// Runs the import.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    private_umask();
    let Args { file, data, database, adopt, json } = args;
    data_dir::refuse_foreign(&data)?;
    data_dir::refuse_lost(&data)?;
    let made = FirstStart::of(&data);
    let what = Import { file, dir: data, database, adopt };
    let done = bring_in(&what, json);
    if done.is_err() {
        made.into_iter().for_each(FirstStart::undo);
    }
    let done = done?;
    if json {
        let Imported { database, path, bytes } = done;
        println!("{}", serde_json::json!({ "database": database, "file": path, "bytes": bytes }));
    } else {
        println!("imported {} as database {} ({} bytes)", what.file.display(), done.database, done.bytes);
    }
    Ok(Exit::Done.into())
}

fn bring_in(what: &Import, quiet: bool) -> anyhow::Result<Imported> {
    holdfast_mirror::leave_offline(&what.dir)?;
    data_dir::protect(&what.dir)?;
    holdfast_node::dump_soon(&what.dir);
    let bar = ProgressBar::new(0);
    bar.set_style(time_left::style("{msg} [{bar:40}] {binary_bytes} of {binary_total_bytes}{left}")?);
    let progress: OnProgress = match (quiet, std::io::stderr().is_terminal()) {
        (true, _) => Arc::new(|_| {}),
        (false, true) => {
            let bar = bar.clone();
            Arc::new(move |now| draw(&bar, now))
        }
        (false, false) => {
            let last = Mutex::new(None);
            Arc::new(move |now| tell(&last, now))
        }
    };
    let done = import(what, Options::default(), progress);
    bar.finish_and_clear();
    Ok(done?)
}

fn draw(bar: &ProgressBar, now: ImportProgress) {
    match now {
        ImportProgress::Checking => bar.set_message("checking the file"),
        ImportProgress::Copying { done, total } => {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message("copying");
        }
        ImportProgress::Sealing => bar.set_message("sealing the copy"),
    }
    bar.tick();
}

/// Prints a line where it says something new.
fn tell(last: &Mutex<Option<String>>, now: ImportProgress) {
    let (key, line) = match now {
        ImportProgress::Checking => ("checking".to_owned(), "checking the file".to_owned()),
        ImportProgress::Copying { done, total } => {
            let percent = done * 100 / total.max(1) / 10 * 10;
            let line = format!("copying: {percent} % ({} of {})", BinaryBytes(done), BinaryBytes(total));
            (format!("{percent}"), line)
        }
        ImportProgress::Sealing => ("sealing".to_owned(), "sealing the copy".to_owned()),
    };
    let mut last = last.lock();
    if last.as_ref() != Some(&key) {
        eprintln!("holdfast: {line}");
        *last = Some(key);
    }
}
