//! Measures dumps, restores and roll-forward, with PostgreSQL and pgBackRest in the same run: the same rows, the same disk, the
//! same compression (zstd, level 1), as many workers.
//!
//! | case | what is measured |
//! |---|---|
//! | full dump | `pgbackrest backup --type=full`, `pg_basebackup` and `holdfast dump create` to an empty place, in turn |
//! | load meanwhile | authorizations a second with a dump under way, and without |
//! | second dump | what is stored after 1 % of the rows changed: rows in one range, then rows all over the table |
//! | restore | the last dump, and the archive with a number of authorizations since, up to the first answer |
//! | look | `holdfast restore --serve` up to the first answer |
//! | undo | `holdfast trail find` by key in that archive, and `holdfast trail undo` |
//!
//! Both servers run all the time, and only one of them has work at a time. Failure: a program that is missing or fails ends the
//! command with its message.

mod load;
mod ours;
mod roll_forward;
mod table;
mod theirs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};

use crate::{paths, server, tools};
use load::{Dumper, Load};
use ours::Ours;
use table::{Table, gigabytes, median};
use theirs::Theirs;

/// `cargo xtask dumps`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask dumps --megabytes 4096 --transactions 1000000

Needs pgbackrest, psql, pgbench, PostgreSQL's server, and about five times the size of the database as free space below the
target directory. Stop other work on the machine first. An hour of load at 1,000 authorizations a second is --transactions
3600000.")]
pub struct Arguments {
    /// The server's binary, instead of building it
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Size of the rows of the large table
    #[arg(long, default_value_t = 4096)]
    megabytes: u64,
    /// Authorizations to roll forward over
    #[arg(long, default_value_t = 1_000_000)]
    transactions: u64,
    /// Full dumps of each kind
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// pgbench clients of the load
    #[arg(long, default_value_t = 40)]
    clients: u64,
    /// Workers of a dump or restore
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Seconds of load without a dump, to compare with
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

/// Bytes of the text in a row of the large table: 14 sums of 32 digits.
const ROW_BYTES: u64 = 14 * 32;

/// Rows that one statement inserts.
const ROWS_AT_A_TIME: u64 = 200_000;

struct Bed<'a> {
    of: &'a Arguments,
    ours: Ours,
    theirs: Theirs,
    rows: u64,
    table: Table,
}

/// Measures every case and prints a table. Always true: the reader judges.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql", "pgbench", "pgbackrest", "pg_basebackup"])?;
    // The commands run in other directories.
    let binary = arguments.server.clone().map_or_else(server::build, Ok)?.canonicalize()?;
    let scratch = paths::scratch("dumps")?;
    let mut bed = Bed {
        ours: Ours::start(&binary, scratch.path(), arguments)?,
        theirs: Theirs::start(scratch.path(), arguments)?,
        rows: arguments.megabytes * 1_000_000 / ROW_BYTES,
        table: Table::default(),
        of: arguments,
    };
    bed.fill()?;
    bed.full_dumps()?;
    bed.load_meanwhile()?;
    bed.second_dumps()?;
    bed.roll_forward()?;
    println!("\n{}", bed.table);
    Ok(true)
}

impl Bed<'_> {
    /// The same rows for both: a large table, and those of the card authorization.
    fn fill(&mut self) -> anyhow::Result<()> {
        for (name, address) in [("PostgreSQL", self.theirs.address), ("Holdfast", self.ours.address())] {
            let began = Instant::now();
            crate::paired::load(address)?;
            address.sql(
                server::USER,
                "CREATE TABLE item (id bigint PRIMARY KEY, n bigint NOT NULL, body text NOT NULL)",
            )?;
            let body: Vec<String> = (0..14).map(|part| format!("md5('{part} ' || g)")).collect();
            for first in (1..=self.rows).step_by(ROWS_AT_A_TIME as usize) {
                let last = self.rows.min(first + ROWS_AT_A_TIME - 1);
                let insert = format!(
                    "INSERT INTO item SELECT g, 0, {} FROM generate_series({first}, {last}) g",
                    body.join(" || ")
                );
                address.sql(server::USER, &insert)?;
            }
            println!("{name}: {} rows in {:.0} s", self.rows, began.elapsed().as_secs_f64());
        }
        let (theirs, ours) = (self.theirs.database_bytes()?, self.ours.database_bytes()?);
        self.table.row("size of the database", &gigabytes(theirs), &gigabytes(ours), ours as f64 / theirs as f64, "");
        Ok(())
    }

    /// Each to an empty place, in turn; the last ones stay.
    fn full_dumps(&mut self) -> anyhow::Result<()> {
        let (mut theirs, mut basebackups, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=self.of.rounds {
            theirs.push(timed(|| self.theirs.full())?);
            basebackups.push(timed(|| self.theirs.basebackup())?);
            self.ours.forget_all()?;
            ours.push(timed(|| self.ours.dump().map(drop))?);
            let of = |times: &[f64]| times.last().copied().unwrap_or(f64::NAN);
            println!(
                "full dump {round}: pgBackRest {:.1} s, pg_basebackup {:.1} s, Holdfast {:.1} s",
                of(&theirs),
                of(&basebackups),
                of(&ours)
            );
        }
        let (bytes, theirs_bytes) = (self.ours.database_bytes()?, self.theirs.database_bytes()?);
        let (theirs, basebackup, ours) = (median(theirs), median(basebackups), median(ours));
        let rate = |bytes: u64, seconds: f64| format!("{seconds:.1} s, {:.0} MB/s", bytes as f64 / 1e6 / seconds);
        self.table.row(
            "full dump (pgBackRest)",
            &rate(theirs_bytes, theirs),
            &rate(bytes, ours),
            (bytes as f64 / ours) / (theirs_bytes as f64 / theirs),
            "rate, goal at least 1",
        );
        self.table.row(
            "full dump (pg_basebackup)",
            &rate(theirs_bytes, basebackup),
            &rate(bytes, ours),
            (bytes as f64 / ours) / (theirs_bytes as f64 / basebackup),
            "rate",
        );
        let (theirs, ours) = (self.theirs.stored_bytes()?, self.ours.stored_bytes()?);
        self.table.row("stored by it", &gigabytes(theirs), &gigabytes(ours), ours as f64 / theirs as f64, "");
        Ok(())
    }

    /// The rate of the load while a full dump runs, as a part of the rate before it.
    fn load_meanwhile(&mut self) -> anyhow::Result<()> {
        self.ours.forget_all()?;
        let load = |address| Load { address, clients: self.of.clients, seconds: self.of.seconds };
        let theirs = load(self.theirs.address).with(&self.theirs as &dyn Dumper)?;
        let ours = load(self.ours.address()).with(&self.ours as &dyn Dumper)?;
        let (kept_theirs, kept_ours) = (theirs.during / theirs.without, ours.during / ours.without);
        self.table.row(
            "load, no dump",
            &format!("{:.0} tx/s", theirs.without),
            &format!("{:.0} tx/s", ours.without),
            ours.without / theirs.without,
            "",
        );
        self.table.row(
            "load kept during a full dump",
            &format!("{:.0} % ({:.1} s)", 100.0 * kept_theirs, theirs.dump_seconds),
            &format!("{:.0} % ({:.1} s)", 100.0 * kept_ours, ours.dump_seconds),
            kept_ours / kept_theirs,
            "goal at least 1",
        );
        Ok(())
    }

    /// What the next dump stores after 1 % of the rows changed.
    fn second_dumps(&mut self) -> anyhow::Result<()> {
        let rows = self.rows / 100;
        let cases = [
            ("second dump, 1 % of rows in a range", format!("id BETWEEN {rows} AND {}", 2 * rows - 1)),
            ("second dump, each 100th row", "id % 100 = 7".to_owned()),
        ];
        // What the load changed is not counted.
        self.theirs.incremental()?;
        self.ours.dump()?;
        for (name, rows) in cases {
            let update = format!("UPDATE item SET n = n + 1 WHERE {rows}");
            self.theirs.address.sql(server::USER, &update)?;
            self.ours.address().sql(server::USER, &update)?;
            let before = self.theirs.stored_bytes()?;
            let theirs_seconds = timed(|| self.theirs.incremental())?;
            let theirs = self.theirs.stored_bytes()? - before;
            let ours = self.ours.dump()?;
            self.table.row(
                name,
                &format!("{}, {theirs_seconds:.1} s", gigabytes(theirs)),
                &format!("{}, {:.1} s", gigabytes(ours.stored_bytes), ours.seconds),
                ours.stored_bytes as f64 / theirs as f64,
                &format!("{:.1} % of the bytes", 100.0 * ours.stored_bytes as f64 / ours.bytes as f64),
            );
        }
        Ok(())
    }
}

/// Seconds that it takes.
fn timed(what: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let began = Instant::now();
    what()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Runs a program to its end and returns what it printed.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = Path::new(command.get_program()).display().to_string();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("{name} {} failed: {text}{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(text)
}

/// Bytes of the files below a directory. A file that goes meanwhile does not count.
fn bytes_below(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(about) = std::fs::symlink_metadata(entry.path()) else { continue };
        bytes += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
