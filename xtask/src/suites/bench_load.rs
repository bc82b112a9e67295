//! pgbench as a client: initialisation, its own transactions in every protocol mode, one-message and pipelined
//! scripts; no transaction may fail, and the balances have to agree at the end.

use std::process::Command;

use anyhow::Context as _;

use super::Bench;
use crate::findings::Findings;
use crate::paths;
use crate::server::Address;

/// Case name and pgbench's options. The first run lets pgbench VACUUM and empty its history table first.
const RUNS: &[(&str, &[&str])] = &[
    ("tpcb_simple", &["-M", "simple"]),
    ("tpcb_extended", &["-n", "-M", "extended"]),
    ("tpcb_prepared", &["-n", "-M", "prepared"]),
    ("simple_update", &["-n", "-N", "-M", "prepared"]),
    ("select_only_simple", &["-n", "-S", "-M", "simple"]),
    ("select_only_prepared", &["-n", "-S", "-M", "prepared"]),
    ("one_message", &["-n", "-M", "simple", "-f", "one_message.sql"]),
    ("pipeline_extended", &["-n", "-M", "extended", "-f", "pipeline.sql"]),
    ("pipeline_prepared", &["-n", "-M", "prepared", "-f", "pipeline.sql"]),
];

/// One row: every sum pgbench's transactions keep equal, except simple_update's, which leaves two tables alone.
pub const BALANCES: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM \
    pgbench_history) AS accounts, (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM \
    pgbench_branches) AS tellers";

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    bench.compare("pgbench", cases)
}

fn cases(address: Address, database: &str) -> anyhow::Result<Findings> {
    let mut findings = vec![("initialise".to_string(), initialise(address, database)?)];
    for (name, options) in RUNS {
        findings.push(((*name).to_string(), transactions(address, database, options)?));
    }
    let asked = |sql: &str| address.sql(database, sql).unwrap_or_else(|error| format!("! {error:#}"));
    findings.push(("balances".into(), asked(BALANCES)));
    findings.push(("history_rows".into(), asked("SELECT count(*) FROM pgbench_history")));
    Ok(findings)
}

fn initialise(address: Address, database: &str) -> anyhow::Result<String> {
    let output = pgbench(address, database, &["-i", "-s", "1", "-q"])?;
    if !output.status.success() {
        return Ok(first_error(&output));
    }
    let counts = "SELECT (SELECT count(*) FROM pgbench_accounts), (SELECT count(*) FROM pgbench_tellers), \
        (SELECT count(*) FROM pgbench_branches)";
    Ok(address.sql(database, counts).unwrap_or_else(|error| format!("! {error:#}")))
}

/// Eight clients, a fixed number of transactions each; the finding is how many were done and how many failed.
fn transactions(address: Address, database: &str, options: &[&str]) -> anyhow::Result<String> {
    let output = pgbench(address, database, &[&["-c", "8", "-j", "2", "-t", "50"], options].concat())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let wanted = ["number of transactions actually processed", "number of failed transactions"];
    let lines: Vec<&str> = text.lines().filter(|line| wanted.iter().any(|start| line.starts_with(start))).collect();
    if !output.status.success() {
        return Ok(first_error(&output));
    }
    Ok(lines.join("; "))
}

/// pgbench repeats an error for each client; the first tells what is wrong.
fn first_error(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let start = text.find("error:").unwrap_or(0);
    format!("! {}", text[start..].lines().take(3).collect::<Vec<_>>().join(" "))
}

fn pgbench(address: Address, database: &str, options: &[&str]) -> anyhow::Result<std::process::Output> {
    Command::new("timeout")
        .args(["300", "pgbench"])
        .args(options)
        .current_dir(paths::client("pgbench"))
        .envs(address.environment(database))
        .output()
        .context("starting pgbench")
}
