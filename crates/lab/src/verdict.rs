//! Whether a goal was met, as every report shows it: a mark, a word and a colour, so that neither colour alone nor a word in
//! a crowded table carries it.

use serde::{Deserialize, Serialize};

/// What a run says about a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    /// The run did not measure the figure.
    NotMeasured,
}

impl Verdict {
    pub fn of(met: bool) -> Verdict {
        if met { Verdict::Met } else { Verdict::Missed }
    }

    /// The mark and the word.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Met => "✓ met",
            Verdict::Missed => "✗ missed",
            Verdict::NotMeasured => "– not measured",
        }
    }

    /// The style sheet's class.
    pub fn class(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NotMeasured => "not-measured",
        }
    }

    /// As part of a page.
    pub fn html(self) -> String {
        format!("<span class=\"verdict {}\">{}</span>", self.class(), self.text())
    }

    /// The terminal's colour, as SGR codes.
    fn colour(self) -> &'static str {
        match self {
            Verdict::Met => "32",
            Verdict::Missed => "1;31",
            Verdict::NotMeasured => "33",
        }
    }
}

/// Verdicts in their order.
const ALL: [Verdict; 3] = [Verdict::Met, Verdict::Missed, Verdict::NotMeasured];

/// How many goals got which verdict: `Goals: 3 met, 1 missed, 2 not measured`. Empty without goals.
pub fn count(verdicts: impl Iterator<Item = Verdict>) -> String {
    let verdicts: Vec<Verdict> = verdicts.collect();
    let of = |verdict: Verdict| verdicts.iter().filter(|v| **v == verdict).count();
    let word = |verdict: Verdict| verdict.text().split_once(' ').map_or("", |(_, word)| word);
    let parts: Vec<String> = ALL.iter().map(|v| format!("{} {}", of(*v), word(*v))).collect();
    if verdicts.is_empty() { String::new() } else { format!("Goals: {}", parts.join(", ")) }
}

/// Colours the verdicts of a summary for a terminal.
pub fn coloured(summary: &str) -> String {
    ALL.iter().fold(summary.to_string(), |text, verdict| {
        let word = verdict.text();
        text.replace(word, &format!("\x1b[{}m{word}\x1b[0m", verdict.colour()))
    })
}

/// A goal that a study has in every run: words that its finding contains, and how it is listed when it was not measured.
pub struct StandingGoal {
    pub found_by: &'static [&'static str],
    pub what: &'static str,
    pub goal: &'static str,
}

/// A figure with its goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub what: String,
    /// Nothing where it was not measured.
    pub value: Option<f64>,
    /// The value as it is shown, with its unit.
    pub shown: String,
    pub goal: Option<String>,
    /// Nothing where there is no goal or no figure.
    pub met: Option<bool>,
    /// Nothing where there is no goal.
    pub verdict: Option<Verdict>,
    /// Shown large at the head of the report.
    pub headline: bool,
}

/// The standing goals that `findings` has no figure for.
pub fn not_measured(goals: &[StandingGoal], findings: &[Finding]) -> Vec<Finding> {
    let is_judged = |goal: &StandingGoal| {
        let is_it = |f: &Finding| f.verdict.is_some() && goal.found_by.iter().all(|words| f.what.contains(words));
        findings.iter().any(is_it)
    };
    let finding = |goal: &StandingGoal| Finding {
        what: goal.what.to_string(),
        value: None,
        shown: "–".to_string(),
        goal: Some(goal.goal.to_string()),
        met: None,
        verdict: Some(Verdict::NotMeasured),
        headline: false,
    };
    goals.iter().filter(|goal| !is_judged(goal)).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_has_a_mark_a_word_and_a_colour() {
        let marks: Vec<&str> = ALL.iter().map(|v| v.text()).collect();
        assert_eq!(marks, ["✓ met", "✗ missed", "– not measured"]);
        let json: Vec<_> = ALL.iter().map(|v| serde_json::to_value(v).unwrap()).collect();
        assert_eq!(json, ["met", "missed", "not_measured"]);
        let style = include_str!("report.css");
        for verdict in ALL {
            let class = verdict.class();
            assert!(verdict.html().contains(class) && style.contains(&format!(".{class}")), "{class}");
        }
        assert_eq!(coloured("✗ missed  0.6×"), "\x1b[1;31m✗ missed\x1b[0m  0.6×");
    }

    #[test]
    fn verdicts_are_counted() {
        let list = [Verdict::Met, Verdict::Missed, Verdict::Met].into_iter();
        assert_eq!(count(list), "Goals: 2 met, 1 missed, 0 not measured");
        assert_eq!(count([].into_iter()), "");
    }
}
