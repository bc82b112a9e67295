//! `holdfast restore --into`: one table or database of a dump in a running server.
//!
//! | step | a kill after it leaves |
//! |---|---|
//! | the server is asked whether the name is free | nothing |
//! | the server archives what it has committed so far | nothing |
//! | the database is restored in a scratch directory | the directory, which the next restore on this machine removes |
//! | definitions and rows are copied | the same; of a table nothing in the server, of a database what is there so far |
//!
//! Failure: every error ends the command; the scratch directory is removed.

use super::scratch::Scratch;
use super::target;
use crate::dump::Bar;
use anyhow::bail;
use holdfast_client::{Given, Server};
use holdfast_dump::restore::{DroppedBy, Part, RestoreOptions, Step, Target, find_drop, restore_part};
use holdfast_dump::{Repository, show_moment};
use holdfast_parts::{Copied, PartProgress, Wanted};
use indicatif::BinaryBytes;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
#[group(id = "into_arguments")]
pub struct Arguments {
    /// Bring a database or table back into this running server, also as
    /// postgresql://USER@HOST:PORT/?sslmode=verify-full&sslrootcert=FILE
    #[arg(long, value_name = "HOST:PORT|URL", requires_all = ["database", "name"])]
    into: Option<String>,
    /// The database to bring back, or that of the table
    #[arg(long, value_name = "NAME", requires = "into")]
    database: Option<String>,
    /// The table to bring back, into the server's database of the same name
    #[arg(long, value_name = "NAME", requires = "into")]
    table: Option<String>,
    /// The name that the table or database gets
    #[arg(long = "as", value_name = "NAME", requires = "into")]
    name: Option<String>,
    /// End in front of the last transaction that dropped the table
    #[arg(long, requires = "table", group = "target")]
    before_drop: bool,
    /// Leave foreign keys out
    #[arg(long, requires = "into")]
    without_foreign_keys: bool,
    /// Connect as this role
    #[arg(long, value_name = "ROLE", requires = "into")]
    user: Option<String>,
    /// The authority of the server's certificate, where the server is on another machine [default: PGSSLROOTCERT]
    #[arg(long, value_name = "FILE", requires = "into")]
    ca: Option<PathBuf>,
    /// Where to make the scratch directory, which needs room for the database [default: the system's]
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    pub scratch: Option<PathBuf>,
}

/// What is asked for, and where it goes.
fn wanted(into: &Arguments) -> anyhow::Result<(Server, Wanted)> {
    let (Some(at), Some(database), Some(name)) = (&into.into, &into.database, &into.name) else {
        bail!("--into needs --database and --as");
    };
    let given = Given { user: into.user.clone(), ca: into.ca.clone() };
    let server = Server::parse(at, &given, &|name| std::env::var(name).ok())?;
    let wanted = Wanted {
        database: database.clone(),
        table: into.table.clone(),
        name: name.clone(),
        foreign_keys: !into.without_foreign_keys,
    };
    Ok((server, wanted))
}

pub fn run(arguments: &super::Arguments, repository: &Repository) -> anyhow::Result<ExitCode> {
    let into = &arguments.into;
    let (server, wanted) = wanted(into)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(holdfast_parts::check(&server, &wanted))?;
    if let Err(why) = runtime.block_on(holdfast_parts::archive_now(&server, &wanted)) {
        if into.before_drop {
            bail!("--before-drop needs the server's last commits in its archive, and it has not archived them: {why}");
        }
        eprintln!("holdfast: the server's last commits may not be in its archive: {why}");
    }
    let scratch = Scratch::make(into.scratch.as_deref(), true)?;
    let mut options = RestoreOptions {
        dir: &scratch.dir,
        target: target(arguments)?,
        archive: arguments.archive.as_deref(),
        dump: arguments.dump.as_deref(),
        trail: arguments.trail.as_deref(),
        threads: arguments.threads.count(),
    };
    let mut dropped = None;
    if let (true, Some(table)) = (into.before_drop, &wanted.table) {
        let found = find_drop(repository, &options, &wanted.database, table)?;
        options.target = Target::Transaction { id: found.transaction, included: false };
        dropped = Some(found);
    }
    let (pages, trail) = (Bar::new("restoring")?, Bar::new("applying the trail")?);
    let part = restore_part(repository, &options, &wanted.database, &|step| match step {
        Step::Pages { done_bytes, total_bytes } => pages.show(done_bytes, total_bytes, ""),
        Step::Trail { from, lsn, end, unix_ms } => {
            trail.show(lsn.saturating_sub(from), end - from, &format!("up to {}", show_moment(unix_ms)))
        }
    });
    pages.end();
    trail.end();
    let part = part?;
    let bar = Bar::of_rows("copying")?;
    let show = |p: PartProgress| bar.show_rows(p.rows, p.total_rows);
    let copied = runtime.block_on(holdfast_parts::copy(&server, &wanted, &part, &show));
    bar.end();
    report(arguments.json, &server, &wanted, &part, dropped, copied?)
}

fn report(
    json: bool,
    server: &Server,
    wanted: &Wanted,
    part: &Part,
    dropped: Option<DroppedBy>,
    copied: Copied,
) -> anyhow::Result<ExitCode> {
    if json {
        let report = json!({
            "into": server.at, "database": wanted.database, "table": wanted.table, "as": wanted.name,
            "dump": part.dump, "lsn": part.lsn, "clock_unix_ms": part.clock_unix_ms, "bytes": part.bytes,
            "trail_bytes": part.trail_bytes, "restore_seconds": part.seconds, "dropped_by": dropped,
            "tables": copied.tables, "rows": copied.rows, "copy_seconds": copied.seconds,
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    let what = match &wanted.table {
        Some(table) => format!("table {table} of database {} is back as {}", wanted.database, wanted.name),
        None => format!("database {} is back as {}", wanted.database, wanted.name),
    };
    println!(
        "holdfast: {what} in {}, as of LSN {}, last commit {}",
        server.at,
        part.lsn,
        show_moment(part.clock_unix_ms)
    );
    if let Some(DroppedBy { transaction, unix_ms, .. }) = dropped {
        println!("  just before transaction {transaction} dropped it at {}", show_moment(unix_ms));
    }
    println!("  restored from {} and {} of trail in {:.1} s", part.dump, BinaryBytes(part.trail_bytes), part.seconds);
    let tables = if wanted.table.is_some() { String::new() } else { format!(" of {} tables", copied.tables) };
    println!("  {} rows{tables} copied in {:.1} s", copied.rows, copied.seconds);
    Ok(ExitCode::SUCCESS)
}
