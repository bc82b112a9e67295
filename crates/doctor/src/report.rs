//! What the doctor says: findings with verdicts, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::look::Device;
use crate::probe::Measured;

/// From best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Good,
    CannotKnow,
    Warn,
    Bad,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::CannotKnow => "cannot know",
            Verdict::Warn => "warn",
            Verdict::Bad => "BAD",
        }
    }
}

/// One check: what was found, why that is good or bad, and what to do about it.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub verdict: Verdict,
    pub found: String,
    pub why: String,
    /// Nothing where there is nothing to do.
    #[serde(rename = "do")]
    pub advice: Option<String>,
}

impl Finding {
    pub fn new(check: &'static str, verdict: Verdict, found: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding { check, verdict, found: found.into(), why: why.into(), advice: None }
    }

    pub fn with_advice(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

/// Everything about one data directory.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub data: String,
    pub worst: Verdict,
    pub findings: Vec<Finding>,
    /// The file system's device, with those below it.
    pub device: Option<Device>,
    pub measured: Option<Measured>,
}

const WIDTH: usize = 100;
const INDENT: &str = "             ";

impl Report {
    pub fn has_bad(&self) -> bool {
        self.worst == Verdict::Bad
    }

    /// For a person: each check with its verdict, why, and what to do.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.data);
        for finding in &self.findings {
            let head = format!("{:11}  {}: {}", finding.verdict.name(), finding.check, finding.found);
            text += &wrapped(&head, INDENT);
            text += &wrapped(&format!("{INDENT}{}", finding.why), INDENT);
            if let Some(advice) = &finding.advice {
                text += &wrapped(&format!("{INDENT}-> {advice}"), &format!("{INDENT}   "));
            }
        }
        let count = |verdict| self.findings.iter().filter(|f| f.verdict == verdict).count();
        let _ = writeln!(
            text,
            "\n{} good, {} cannot know, {} warn, {} bad",
            count(Verdict::Good),
            count(Verdict::CannotKnow),
            count(Verdict::Warn),
            count(Verdict::Bad)
        );
        text
    }
}

/// Breaks a line between words; the lines after the first begin with `indent`.
fn wrapped(line: &str, indent: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    let mut start = "";
    while start.len() + rest.len() > WIDTH {
        let skip = if start.is_empty() { indent.len().min(rest.len()) } else { 0 };
        let end = WIDTH - start.len();
        let Some(space) = rest.get(..end).and_then(|head| head.rfind(' ')).filter(|at| *at > skip) else { break };
        let _ = writeln!(text, "{start}{}", rest[..space].trim_end());
        rest = rest[space..].trim_start();
        start = indent;
    }
    let _ = writeln!(text, "{start}{rest}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words_and_long_words_stay_whole() {
        let text = wrapped(&"word ".repeat(50), "    ");
        assert!(text.lines().all(|line| line.len() <= WIDTH) && text.lines().count() == 3, "{text}");
        let long = "x".repeat(300);
        assert_eq!(wrapped(&long, "    "), format!("{long}\n"));
    }
}
