//! `holdfast trail undo`: the inverse of a transaction.

use crate::trail_place::TrailPlace;
use holdfast_flashback::{FlashbackError, Plan, Target, apply, plan};
use holdfast_types::Lsn;
use serde_json::json;
use std::process::ExitCode;

/// Rows changed by triggers that are printed.
const SHOWN_MAX: usize = 20;

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  holdfast trail undo --transaction 4294967311
  holdfast trail undo --transaction 4294967311 --lsn 67149824 --apply

Without --apply the statements are printed and nothing is changed. With it they run in one transaction, which is in the trail
and can be undone. If a later transaction changed one of the rows, the command lists the rows with those transactions and
changes nothing: undo the later ones first, the newest first.")]
pub struct UndoArgs {
    /// The transaction, by its number in `holdfast trail find`
    #[arg(long, value_name = "ID")]
    transaction: u64,
    /// Its LSN in `holdfast trail find`; the trail in front of it is not read then
    #[arg(long, value_name = "LSN")]
    lsn: Option<Lsn>,
    /// Run the statements
    #[arg(long)]
    apply: bool,
    /// Let the triggers of the tables run
    #[arg(long, requires = "apply")]
    run_triggers: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: TrailPlace,
}

pub fn run(arguments: &UndoArgs) -> anyhow::Result<ExitCode> {
    let (source, connect) = arguments.place.open()?;
    let target = Target { id: arguments.transaction, lsn: arguments.lsn.map(|lsn| lsn.0) };
    let plan = plan(&source, &connect, &arguments.place.database, target)?;
    if !plan.read.has_newest {
        eprintln!(
            "holdfast: changes that are not archived yet are not looked at; the statements still change only rows with the \
             values that the transaction left"
        );
    }
    if arguments.json {
        return print_json(arguments, &plan, || apply(&source, &connect, &plan, arguments.run_triggers));
    }
    if !plan.conflicts.is_empty() {
        let (id, conflicts) = (plan.transaction, plan.conflicts.clone());
        return Err(FlashbackError::Conflicts { id, conflicts }.into());
    }
    if !arguments.apply {
        print!("{}", plan.script());
        for table in &plan.triggers {
            eprintln!(
                "holdfast: {table} has triggers; what they changed is in these statements, and they would run again"
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let applied = apply(&source, &connect, &plan, arguments.run_triggers)?;
    for row in applied.by_triggers.iter().take(SHOWN_MAX) {
        eprintln!("holdfast: changed by a trigger: {row}");
    }
    if let Some(more) = applied.by_triggers.len().checked_sub(SHOWN_MAX + 1) {
        eprintln!("holdfast: and {} more rows by triggers (--json shows them)", more + 1);
    }
    let by = applied.transaction.zip(applied.lsn);
    let by = by.map(|(id, lsn)| format!("; the undo is transaction {id}, LSN {lsn}")).unwrap_or_default();
    println!("holdfast: transaction {} is undone, {} rows{by}", plan.transaction, applied.rows);
    Ok(ExitCode::SUCCESS)
}

/// The plan and, with --apply, its outcome; the exit code is 1 where the transaction is not undone because of its rows.
fn print_json(
    arguments: &UndoArgs,
    plan: &Plan,
    apply: impl FnOnce() -> Result<holdfast_flashback::Applied, FlashbackError>,
) -> anyhow::Result<ExitCode> {
    let mut shown = serde_json::to_value(plan)?;
    let is_refused = !plan.conflicts.is_empty();
    if arguments.apply && !is_refused {
        shown["applied"] = json!(apply()?);
    }
    println!("{}", serde_json::to_string_pretty(&shown)?);
    Ok(if is_refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
