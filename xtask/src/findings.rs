//! What a client program found, and how findings of two servers are compared.
//!
//! A client program prints one line a case, `case<TAB>finding`. The same program runs against PostgreSQL and against
//! Holdfast. Equal findings pass. A difference fails, unless `tests/clients/expectations.toml` lists exactly this
//! finding for the case with a reason. A finding that starts with `! ` is an error the program did not expect and
//! fails unless listed; one that PostgreSQL gives shows that the program itself is wrong.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::tally::{Outcome, Tally};

/// The findings of one run, in the order they were printed.
pub type Findings = Vec<(String, String)>;

/// Reads a program's output. Lines without a tab (a library's chatter) are no findings.
pub fn parse(output: &str) -> Findings {
    output.lines().filter_map(|line| line.split_once('\t')).map(|(c, f)| (c.to_string(), f.to_string())).collect()
}

/// The differences that are known and documented: suite -> case -> what Holdfast does and why.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Expectations(BTreeMap<String, BTreeMap<String, Expected>>);

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The finding, or how it begins where the rest varies (a message with a port in it).
    pub finding: String,
    /// Why Holdfast differs; a person reads it in the summary.
    pub reason: String,
}

impl Expectations {
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("in {}", file.display()))
    }

    fn of(&self, suite: &str, case: &str) -> Option<&Expected> {
        self.0.get(suite)?.get(case)
    }
}

/// Compares two runs case by case.
pub fn compare(suite: &str, oracle: &Findings, found: &Findings, expectations: &Expectations, tally: &mut Tally) {
    let found_by_case: BTreeMap<&str, &str> = found.iter().map(|(c, f)| (c.as_str(), f.as_str())).collect();
    for (case, wanted) in oracle {
        let finding = found_by_case.get(case.as_str()).copied();
        tally.add(suite, case, judge(wanted, finding, expectations.of(suite, case)));
    }
    for (case, _) in found.iter().filter(|(case, _)| !oracle.iter().any(|(c, _)| c == case)) {
        tally.add(suite, case, Outcome::Failed("PostgreSQL's run has no such case".into()));
    }
    if oracle.is_empty() {
        tally.add(suite, "all", Outcome::Failed("the program reported no case at all".into()));
    }
}

fn judge(wanted: &str, found: Option<&str>, expected: Option<&Expected>) -> Outcome {
    if wanted.starts_with("! ") {
        return Outcome::Failed(format!("the test itself fails on PostgreSQL: {wanted}"));
    }
    let Some(found) = found else {
        return Outcome::Failed("the program ended before it reached this case".into());
    };
    match expected {
        None if found == wanted => Outcome::Passed,
        None => Outcome::Failed(difference(wanted, found)),
        Some(_) if found == wanted => {
            Outcome::Failed("agrees with PostgreSQL now: remove it from tests/clients/expectations.toml".into())
        }
        Some(known) if found.starts_with(&known.finding) => Outcome::Differs(known.reason.clone()),
        Some(known) => Outcome::Failed(format!("{}\n    listed as: {}", difference(wanted, found), known.finding)),
    }
}

/// Both findings, on lines of their own and not longer than a person reads.
fn difference(wanted: &str, found: &str) -> String {
    format!("\n    PostgreSQL: {}\n    Holdfast:   {}", shortened(wanted), shortened(found))
}

fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 1500;
    if text.chars().count() <= CHARS_MAX {
        return text.to_string();
    }
    text.chars().take(CHARS_MAX).collect::<String>() + "..."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(finding: &str) -> Expected {
        Expected { finding: finding.into(), reason: "documented".into() }
    }

    #[test]
    fn equal_findings_pass_and_others_fail() {
        assert_eq!(judge("1", Some("1"), None), Outcome::Passed);
        assert!(matches!(judge("1", Some("2"), None), Outcome::Failed(_)));
        assert!(matches!(judge("1", None, None), Outcome::Failed(_)));
    }

    #[test]
    fn a_listed_difference_must_be_exactly_that_one() {
        assert_eq!(judge("1", Some("2"), Some(&known("2"))), Outcome::Differs("documented".into()));
        assert!(matches!(judge("1", Some("3"), Some(&known("2"))), Outcome::Failed(_)));
        assert!(matches!(judge("1", Some("1"), Some(&known("2"))), Outcome::Failed(_)), "a stale entry must go");
    }

    #[test]
    fn an_error_on_the_oracle_is_a_broken_test() {
        assert!(matches!(judge("! boom", Some("! boom"), None), Outcome::Failed(_)));
    }

    #[test]
    fn lines_without_a_tab_are_chatter() {
        assert_eq!(parse("hello\na\t1\nb\tx\ty\n"), vec![("a".into(), "1".into()), ("b".into(), "x\ty".into())]);
    }

    #[test]
    fn the_expectations_file_is_valid() {
        Expectations::read(&crate::paths::root().join("tests/clients/expectations.toml")).unwrap();
    }
}
