//! Counts what passed, failed and was skipped, and closes a run with a summary.

use std::fmt::Write as _;

/// How one case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// It differs from PostgreSQL exactly as the expectations file says; the text is the reason given there.
    Differs(String),
    Failed(String),
    Skipped(String),
}

/// The results of a run, in order.
#[derive(Debug, Default)]
pub struct Tally {
    cases: Vec<(String, String, Outcome)>,
    /// Tests counted by another runner (cargo) and reported as numbers only.
    counted: Vec<(String, Counts)>,
    /// The names of those among them that failed: suite and test.
    failed: Vec<(String, String)>,
}

/// Numbers of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Tally {
    /// Records one case and prints it if it did not simply pass.
    pub fn add(&mut self, suite: &str, case: &str, outcome: Outcome) {
        match &outcome {
            Outcome::Passed | Outcome::Differs(_) => {}
            Outcome::Failed(why) => println!("  FAILED {suite}/{case}: {why}"),
            Outcome::Skipped(why) => println!("  skipped {suite}/{case}: {why}"),
        }
        self.cases.push((suite.to_string(), case.to_string(), outcome));
    }

    /// Adds the numbers another runner printed.
    pub fn add_counts(&mut self, suite: &str, counts: Counts) {
        self.counted.push((suite.to_string(), counts));
    }

    /// Names one of the failed tests that another runner counts.
    pub fn name_failed(&mut self, suite: &str, test: String) {
        self.failed.push((suite.to_string(), test));
    }

    /// Takes over the results of a run next to this one.
    pub fn merge(&mut self, other: Tally) {
        self.cases.extend(other.cases);
        self.counted.extend(other.counted);
        self.failed.extend(other.failed);
    }

    /// A part that cannot run here: a named skip on a person's machine, a failure where CI=true, because there the
    /// set-up is the project's own and a missing part would go unnoticed.
    pub fn unavailable(&mut self, suite: &str, case: &str, why: &str) {
        let outcome =
            if in_ci() { Outcome::Failed(format!("cannot run: {why}")) } else { Outcome::Skipped(why.into()) };
        self.add(suite, case, outcome);
    }

    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for (_, counts) in &self.counted {
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.skipped += counts.skipped;
        }
        for (_, _, outcome) in &self.cases {
            match outcome {
                Outcome::Passed | Outcome::Differs(_) => sum.passed += 1,
                Outcome::Failed(_) => sum.failed += 1,
                Outcome::Skipped(_) => sum.skipped += 1,
            }
        }
        sum
    }

    /// The closing summary; its last line is `N passed, N failed, N skipped`.
    pub fn summary(&self) -> String {
        let mut text = String::from("\n==== summary\n");
        for suite in self.suites() {
            let counts = self.of_suite(&suite);
            let _ = writeln!(text, "{suite:12} {}", line(counts));
        }
        self.section(&mut text, "differs from PostgreSQL, as listed in tests/clients/expectations.toml", |outcome| {
            if let Outcome::Differs(why) = outcome { Some(why) } else { None }
        });
        self.section(&mut text, "skipped", |o| if let Outcome::Skipped(why) = o { Some(why) } else { None });
        self.section(&mut text, "failed", |o| if let Outcome::Failed(why) = o { Some(why) } else { None });
        if !self.failed.is_empty() {
            let _ = writeln!(text, "\nfailed tests:");
        }
        for (suite, test) in &self.failed {
            let _ = writeln!(text, "  {suite}/{test}");
        }
        let _ = writeln!(text, "\n{}", line(self.counts()));
        text
    }

    fn section(&self, text: &mut String, title: &str, pick: impl Fn(&Outcome) -> Option<&String>) {
        let mut found = self.cases.iter().filter_map(|(s, c, o)| pick(o).map(|why| (s, c, why))).peekable();
        if found.peek().is_some() {
            let _ = writeln!(text, "\n{title}:");
        }
        for (suite, case, why) in found {
            let _ = writeln!(text, "  {suite}/{case}: {why}");
        }
    }

    fn suites(&self) -> Vec<String> {
        let names = self.counted.iter().map(|(s, _)| s).chain(self.cases.iter().map(|(s, _, _)| s));
        let mut unique: Vec<String> = Vec::new();
        for name in names {
            if !unique.contains(name) {
                unique.push(name.clone());
            }
        }
        unique
    }

    fn of_suite(&self, suite: &str) -> Counts {
        let only = Tally {
            cases: self.cases.iter().filter(|(s, _, _)| s == suite).cloned().collect(),
            counted: self.counted.iter().filter(|(s, _)| s == suite).cloned().collect(),
            failed: Vec::new(),
        };
        only.counts()
    }
}

/// True where a missing tool is a failure.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

fn line(counts: Counts) -> String {
    format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_everything() {
        let mut tally = Tally::default();
        tally.add_counts("cargo", Counts { passed: 10, failed: 0, skipped: 1 });
        tally.add("psql", "a", Outcome::Passed);
        tally.add("psql", "b", Outcome::Differs("as documented".into()));
        tally.add("psql", "c", Outcome::Failed("wrong".into()));
        tally.add("pgx", "all", Outcome::Skipped("no Go".into()));
        tally.name_failed("crates", "tests/it/main.rs: a::b".into());
        let summary = tally.summary();
        assert!(summary.contains("failed tests:\n  crates/tests/it/main.rs: a::b\n"), "{summary}");
        assert!(summary.ends_with("\n12 passed, 1 failed, 2 skipped\n"), "{summary}");
        assert!(summary.contains("pgx/all: no Go") && summary.contains("psql/c: wrong"));
    }
}
