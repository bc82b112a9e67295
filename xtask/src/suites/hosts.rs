//! Clients with two hosts: libpq through psycopg, pgjdbc and pgx, each with every setting of the role it looks for.
//!
//! `a` is the master and `b` its standby; then `b` is promoted while `a` runs on. A deposed master refuses clients before
//! they are authenticated, so each of them ends at `b`, whose role it sees.

use std::process::Command;

use super::{Bench, programs};
use crate::findings::{self, Findings};
use crate::switchover::Cluster;
use crate::tally::Outcome;
use crate::{paths, tools};

/// Which host each setting leads to, counted from 1: before and after the promotion of the second.
const EXPECTED: &[(&str, &str, &str)] = &[
    ("any", "1", "2"),
    ("read-write", "1", "2"),
    ("primary", "1", "2"),
    ("read-only", "2", "!"),
    ("standby", "2", "!"),
    ("prefer-standby", "2", "2"),
    ("secondary", "2", "!"),
    ("preferSecondary", "2", "2"),
];

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    let binary = bench.binary()?;
    let cluster = Cluster::start(&binary, true)?;
    let ports = [cluster.port(0).to_string(), cluster.port(1).to_string()];
    let mut clients = clients(bench);
    for (_, program) in &mut clients {
        program.args(&ports);
    }
    judge(bench, "master and standby", &mut clients, |expected| expected.1)?;
    cluster.promote(1)?;
    judge(bench, "deposed master", &mut clients, |expected| expected.2)
}

/// Those whose tools are installed.
fn clients(bench: &mut Bench) -> Vec<(&'static str, Command)> {
    let mut clients = Vec::new();
    if let Some(python) = programs::prepared(bench, "hosts", tools::python_with_psycopg()) {
        let mut program = Command::new(python);
        program.arg(paths::client("psycopg").join("hosts.py"));
        clients.push(("libpq", program));
    }
    if let Some(class_path) = programs::prepared(bench, "hosts", tools::jdbc_class_path()) {
        let mut program = Command::new("java");
        program.args(["-cp", &class_path, "holdfast.Hosts"]);
        clients.push(("jdbc", program));
    }
    if let Some(path) = programs::prepared(bench, "hosts", tools::pgx_client()) {
        let mut program = Command::new(path);
        program.arg("hosts");
        clients.push(("pgx", program));
    }
    clients
}

fn judge(
    bench: &mut Bench,
    when: &str,
    clients: &mut [(&'static str, Command)],
    wanted: impl Fn(&(&'static str, &'static str, &'static str)) -> &'static str,
) -> anyhow::Result<()> {
    for (client, program) in clients {
        let output = program.output()?;
        let found: Findings = findings::parse(&String::from_utf8_lossy(&output.stdout));
        if found.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bench.tally.add("hosts", &format!("{client}, {when}"), Outcome::Failed(said));
        }
        for (setting, finding) in found {
            let case = format!("{client}, {when}: {setting}");
            let expected = EXPECTED.iter().find(|expected| expected.0 == setting).map(&wanted);
            let outcome = match expected {
                Some("!") if finding.starts_with('!') => Outcome::Passed,
                Some(host) if finding == host => Outcome::Passed,
                expected => Outcome::Failed(format!("{finding}, not {expected:?}")),
            };
            bench.tally.add("hosts", &case, outcome);
        }
    }
    Ok(())
}
