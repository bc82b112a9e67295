//! `holdfast site compare`: does a subscriber have what its publisher publishes?

use super::At;
use crate::exit::Exit;
use holdfast_compare::{Report, TableReport, compare, subscriptions};
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast site compare --at 127.0.0.1:5434
  holdfast site compare --at 127.0.0.1:5434 --database shop --subscription people --json

Asks the subscriber, and its publisher as the subscription does; the subscriber may be a PostgreSQL. Both may be written meanwhile: a
row that is being changed is looked at again. Every published row is read on both sides. Exit codes: 0 no difference, 1 otherwise.")]
pub struct Arguments {
    #[command(flatten)]
    at: At,
    /// The subscriber's database
    #[arg(long, value_name = "NAME", default_value = "holdfast")]
    database: String,
    /// Only this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let server = arguments.at.server()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reports = runtime.block_on(async {
        let client = server.connect(&arguments.database, "holdfast site compare").await?;
        let mut reports = Vec::new();
        for subscription in subscriptions(&client, arguments.subscription.as_deref()).await? {
            let report = compare(&client, &subscription, |table| {
                if !arguments.json {
                    eprintln!("compares {table}");
                }
            });
            reports.push(report.await?);
        }
        anyhow::Ok(reports)
    })?;
    if reports.is_empty() {
        anyhow::bail!("database {} has no subscription", arguments.database);
    }
    if let Some(report) = reports.iter().find(|report| report.tables.is_empty()) {
        anyhow::bail!("subscription {}: its publications publish no table", report.subscription);
    }
    let differences: usize = reports.iter().map(|report| report.differences).sum();
    let busy: usize = reports.iter().flat_map(|report| &report.tables).map(|table| table.busy).sum();
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&reports)?),
        false => print(&reports, differences, busy),
    }
    Ok(Exit::of_check(differences == 0 && busy == 0).into())
}

fn print(reports: &[Report], differences: usize, busy: usize) {
    for report in reports {
        for TableReport { table, rows, differences, first, busy } in &report.tables {
            println!("{} {table}: {rows} rows, {differences} differences", report.subscription);
            for difference in first {
                println!("  {} {}", difference.what, difference.key.join(", "));
            }
            if *busy > 0 {
                println!("  {busy} rows were changed at each look");
            }
        }
    }
    match (differences, busy) {
        (0, 0) => println!("equal"),
        (0, busy) => println!("not known of {busy} rows: they are changed all the time"),
        (differences, _) => println!("{differences} differences"),
    }
}
