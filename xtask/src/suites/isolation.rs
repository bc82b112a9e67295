//! Isolation and locking: `tests/clients/isolation` on both servers, and the table of the published anomalies.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use super::Bench;
use super::programs;
use crate::findings::Findings;
use crate::{paths, tools};

/// Every part.
pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    parts(bench, &[])
}

/// The anomalies alone, for `cargo xtask isolation`.
pub fn anomalies(bench: &mut Bench) -> anyhow::Result<()> {
    parts(bench, &["anomalies"])
}

fn parts(bench: &mut Bench, parts: &[&str]) -> anyhow::Result<()> {
    let Some(python) = programs::prepared(bench, "isolation", tools::python_with_psycopg()) else { return Ok(()) };
    let script = paths::client("isolation").join("main.py");
    let found = bench.both("isolation", |address, database| {
        programs::run(Command::new(&python).arg(&script).args(parts), address, database)
    })?;
    if let Some((wanted, found)) = found {
        bench.judge("isolation", &wanted, &found);
        print!("{}", table(&wanted, &found));
    }
    Ok(())
}

/// A line for each anomaly and level: what PostgreSQL and Holdfast let happen. A case is `anomalies.NAME.LEVEL`, its
/// finding the outcome, ` | ` and the record of every step.
fn table(wanted: &Findings, found: &Findings) -> String {
    let found: BTreeMap<&str, &str> = found.iter().map(|(case, finding)| (case.as_str(), finding.as_str())).collect();
    let mut text = format!("\n{:38} {:16} {:26} Holdfast\n", "anomaly", "level", "PostgreSQL");
    let mut last = "";
    for (case, finding) in wanted {
        let Some((name, level)) = case.strip_prefix("anomalies.").and_then(|rest| rest.rsplit_once('.')) else {
            continue;
        };
        let shown = if name == last { "" } else { name };
        let ours = found.get(case.as_str()).map_or("(not reached)", |finding| outcome(finding));
        let _ = writeln!(text, "{shown:38} {level:16} {:26} {ours}", outcome(finding));
        last = name;
    }
    text
}

fn outcome(finding: &str) -> &str {
    finding.split(" | ").next().unwrap_or(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_both_outcomes_and_names_an_anomaly_once() {
        let both = |findings: [(&str, &str); 3]| findings.map(|(c, f)| (c.to_string(), f.to_string())).to_vec();
        let wanted = both([
            ("anomalies.G0 dirty write.read committed", "prevented, waits | 1: UPDATE 1"),
            ("anomalies.G0 dirty write.serializable", "OCCURS | 1: UPDATE 1"),
            ("waits.insert", "1: waits"),
        ]);
        let found = both([
            ("anomalies.G0 dirty write.read committed", "prevented | 1: UPDATE 1"),
            ("waits.insert", "1: waits"),
            ("waits.other", ""),
        ]);
        let text = table(&wanted, &found);
        let lines: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split("  ").map(str::trim).collect()).collect();
        let cells = |line: &[&str]| line.iter().copied().filter(|c| !c.is_empty()).collect::<Vec<_>>().join("; ");
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(cells(&lines[0]), "G0 dirty write; read committed; prevented, waits; prevented");
        assert_eq!(cells(&lines[1]), "serializable; OCCURS; (not reached)");
    }
}
