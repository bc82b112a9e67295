//! `holdfast cluster check`: what is wrong with a cluster.toml, and with this machine as one of its nodes.

use crate::exit::Exit;
use holdfast_cluster::file::{self, Cluster, Flaw};
use holdfast_cluster::{Finding, Severity, findings};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Check a cluster.toml, and whether this machine can keep what the cluster promises
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast cluster check /etc/holdfast/cluster.toml
  holdfast cluster check /etc/holdfast/cluster.toml --node a --json

Takes a second, in which it measures how late this machine wakes a thread. Exit codes: 0 no flaw in the file and nothing bad on
this machine, 1 otherwise.")]
pub struct Arguments {
    /// The cluster's file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Which of its nodes this machine is: its links and its runtime directory are looked at, too
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let (flaws, found) = match Cluster::parse(&file::read(&arguments.file)?) {
        Ok(cluster) => {
            let node = arguments.node.as_ref().map(|node| cluster.node(&arguments.file, node)).transpose()?;
            (Vec::new(), findings(&cluster, node.map(|(node, _)| node)))
        }
        Err(flaws) => (flaws, Vec::new()),
    };
    let is_bad = |finding: &Finding| finding.severity == Severity::Bad;
    let is_good = flaws.is_empty() && !found.iter().any(is_bad);
    match arguments.json {
        true => println!("{}", as_json(arguments, &flaws, &found, is_good)),
        false => show(arguments, &flaws, &found),
    }
    Ok(Exit::of_check(is_good).into())
}

fn name(severity: Severity) -> &'static str {
    match severity {
        Severity::Bad => "bad",
        Severity::Note => "note",
    }
}

fn as_json(arguments: &Arguments, flaws: &[Flaw], found: &[Finding], is_good: bool) -> Value {
    let flaw = |flaw: &Flaw| json!({ "line": flaw.line, "what": flaw.what, "next": flaw.next });
    let finding = |f: &Finding| json!({ "severity": name(f.severity), "what": f.what, "next": f.next });
    json!({
        "file": arguments.file.display().to_string(),
        "good": is_good,
        "flaws": flaws.iter().map(flaw).collect::<Vec<_>>(),
        "findings": found.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn show(arguments: &Arguments, flaws: &[Flaw], found: &[Finding]) {
    let file = arguments.file.display();
    for Flaw { line, what, next } in flaws {
        let place = line.map_or_else(|| file.to_string(), |line| format!("{file}:{line}"));
        println!("{place}: {what}\n    {next}");
    }
    for Finding { severity, what, next } in found {
        println!("{}: {what}\n    {next}", name(*severity));
    }
    if flaws.is_empty() {
        let bad = found.iter().filter(|finding| finding.severity == Severity::Bad).count();
        println!("{file}: no flaws; on this machine {bad} bad findings, {} notes", found.len() - bad);
    }
}
