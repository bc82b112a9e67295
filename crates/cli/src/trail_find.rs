//! `holdfast trail find`: which transactions changed a row.

use crate::trail_place::TrailPlace;
use anyhow::anyhow;
use holdfast_dump::{parse_moment, show_moment};
use holdfast_flashback::{FindOptions, FoundChanges, RowChange, find};
use indicatif::BinaryBytes;
use std::io::{BufWriter, ErrorKind, Write};
use std::process::ExitCode;
use std::time::Instant;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  holdfast trail find --table orders --where \"id = 7\" --since '2026-11-23 15:00'
  holdfast trail find --table orders --since '2026-11-23 15:00' --json
  holdfast trail find --at db.example.com:5433 --archive s3://bucket/archive --table orders --where \"id = 7\"

The server must run: names of columns come from it, and it evaluates the condition on the row before and after each change. A
transaction is listed if either is selected. Schema changes of the table are listed too, also of a table that was dropped:
`holdfast restore --before-transaction ID` brings that back. Times are in UTC unless they end in an offset such as +01:00.")]
pub struct FindArgs {
    /// The table
    #[arg(long, value_name = "NAME")]
    table: String,
    /// Only rows for which this SQL condition is true; one on the key, as \"id = 7\", is the fastest
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Only commits from this time on
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only commits up to this time
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: TrailPlace,
}

pub fn run(arguments: &FindArgs) -> anyhow::Result<ExitCode> {
    let moment = |option: &str, text: &Option<String>| {
        text.as_deref().map(parse_moment).transpose().map_err(|why| anyhow!("{option}: {why}"))
    };
    let options = FindOptions {
        database: arguments.place.database.clone(),
        table: arguments.table.clone(),
        condition: arguments.condition.clone(),
        since_unix_ms: moment("--since", &arguments.since)?,
        until_unix_ms: moment("--until", &arguments.until)?,
    };
    let began = Instant::now();
    let (source, connect) = arguments.place.open()?;
    let found = find(&source, &connect, &options)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let printed = match arguments.json {
        true => print_json(&mut out, &found),
        false => found.changes.iter().try_for_each(|change| print(&mut out, change)).and_then(|()| out.flush()),
    };
    match printed {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        other => other?,
    }
    notes(&found, &options, began.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn print_json(out: &mut impl Write, found: &FoundChanges) -> std::io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, found)?;
    writeln!(out)?;
    out.flush()
}

fn print(out: &mut impl Write, change: &RowChange) -> std::io::Result<()> {
    let RowChange { transaction, site, lsn, unix_ms, by, operation, key, before, after, sql } = change;
    write!(out, "{transaction}  {}  LSN {lsn}  site {site}", show_moment(*unix_ms))?;
    if by.session_user.is_some() {
        write!(out, "  {by}")?;
    }
    write!(out, "  {operation}")?;
    key.iter().try_for_each(|key| write!(out, "  {key}"))?;
    writeln!(out)?;
    sql.iter().try_for_each(|sql| writeln!(out, "    {}", sql.replace('\n', " ")))?;
    before.iter().try_for_each(|before| writeln!(out, "    before  {before}"))?;
    after.iter().try_for_each(|after| writeln!(out, "    after   {after}"))
}

/// What the reader should know about the list, on standard error.
fn notes(found: &FoundChanges, options: &FindOptions, seconds: f64) {
    let FoundChanges { changes, exists, reshaped_lsn, not_compared, read } = found;
    eprintln!(
        "holdfast: {} changes; read {} of the trail, {} objects of the archive, in {seconds:.1} s",
        changes.len(),
        BinaryBytes(read.bytes),
        read.objects
    );
    if !exists {
        eprintln!("holdfast: there is no table {} now; only schema changes that name it are listed", options.table);
    }
    if !read.is_complete {
        eprintln!(
            "holdfast: the trail begins at LSN {}, {}: earlier changes are not within reach",
            read.first_lsn,
            show_moment(read.first_unix_ms)
        );
    }
    if !read.has_newest {
        eprintln!(
            "holdfast: changes that are not archived yet are not seen; --data DIR on the server's machine shows them"
        );
    }
    if !read.partial.is_empty() {
        let ids = read.partial.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        eprintln!("holdfast: large transactions that began in front of the trail within reach are left out: {ids}");
    }
    if let (Some(lsn), 1..) = (reshaped_lsn, *not_compared) {
        eprintln!(
            "holdfast: columns were removed at LSN {lsn}: {not_compared} changes of rows in front of it were not compared \
             with --where and are not listed; without --where, or with a condition on the key only, they are"
        );
    } else if let Some(lsn) = reshaped_lsn {
        eprintln!("holdfast: columns were removed at LSN {lsn}: rows in front of it are shown with numbers of columns");
    }
}
