//! The scripts in tests/clients/psql through psql. `## name` lines in a script's output start a case; what psql
//! prints up to the next one is the finding.

use std::process::Command;

use anyhow::Context as _;

use super::Bench;
use crate::findings::Findings;
use crate::paths;
use crate::server::Address;

pub fn run(bench: &mut Bench) -> anyhow::Result<()> {
    bench.compare("psql", scripts)
}

fn scripts(address: Address, database: &str) -> anyhow::Result<Findings> {
    let mut findings = Findings::new();
    for script in ["statements", "cursors", "copy", "catalogue", "databases", "operators"] {
        let output = Command::new("timeout")
            .args(["300", "psql", "-X", "-v", "VERBOSITY=sqlstate", "-f"])
            .arg(paths::client("psql").join(format!("{script}.sql")))
            .envs(address.environment(database))
            .output()
            .context("starting psql")?;
        findings.extend(cases(script, &String::from_utf8_lossy(&output.stdout)));
    }
    Ok(findings)
}

/// Splits a script's output at its `## name` lines. What comes before the first is the script's own set-up.
fn cases(script: &str, output: &str) -> Findings {
    let mut findings = vec![(format!("{script}.set_up"), String::new())];
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            findings.push((format!("{script}.{name}"), String::new()));
        } else if let Some((_, finding)) = findings.last_mut() {
            finding.push_str(line);
            finding.push('\n');
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_split_at_case_names() {
        let found = cases("s", "CREATE TABLE\n## one\na\nb\n## two\n");
        let expected = [("s.set_up", "CREATE TABLE\n"), ("s.one", "a\nb\n"), ("s.two", "")];
        assert_eq!(found, expected.map(|(c, f)| (c.to_string(), f.to_string())));
    }
}
