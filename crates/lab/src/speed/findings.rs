//! The ratios of a run against the product's goals.

use super::results::{Line, Spread};
use super::row::Unit;
use crate::ratios::Goal;
use crate::study_results::Finding;
use crate::text;
use crate::verdict::Verdict;

/// Every ratio of the table with its goal, those without a figure as not measured.
pub fn findings(lines: &[Line]) -> Vec<Finding> {
    lines.iter().flat_map(of).collect()
}

fn of(line: &Line) -> Vec<Finding> {
    let goals = line.row.goals();
    let name = format!("{}, {}", line.what, text::clients(line.clients));
    let times = |value: f64| format!("{}×", text::times(value));
    let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
    let compared = if line.row.unit() == Unit::Seconds { "against PostgreSQL" } else { "rate against PostgreSQL" };
    let judged = |what: &str, value: Option<f64>, goal: Option<Goal>| {
        judged(format!("{name}: {what}"), value, goal.map(|goal| (goal, format!("{}×", goal.words()))), times)
    };
    let mut found = vec![
        judged(compared, median(line.ratio), goals.rate),
        judged("server CPU a transaction against PostgreSQL", median(line.cpu_ratio), goals.cpu),
    ];
    if let Some(first) = found[0].as_mut() {
        first.headline = first.value.is_some() && first.goal.is_some();
    }
    if let Some(goal) = goals.seconds {
        let seconds = line.holdfast.map(|figures| figures.value);
        let goal = Some((goal, format!("{} s", goal.words())));
        found.push(self::judged(format!("{name}: at Holdfast"), seconds, goal, |s| line.row.show(s)));
    }
    found.into_iter().flatten().collect()
}

/// Nothing where there is neither a figure nor a goal.
fn judged(
    what: String,
    value: Option<f64>,
    goal: Option<(Goal, String)>,
    show: impl Fn(f64) -> String,
) -> Option<Finding> {
    if value.is_none() && goal.is_none() {
        return None;
    }
    let met = value.zip(goal.as_ref()).map(|(value, (goal, _))| goal.met(value));
    Some(Finding {
        what,
        value,
        shown: value.map_or_else(|| "–".to_string(), show),
        verdict: goal.as_ref().map(|_| met.map_or(Verdict::NotMeasured, Verdict::of)),
        goal: goal.map(|(_, words)| words),
        met,
        headline: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::Figures;
    use super::super::row::Row;
    use super::*;

    fn spread(median: f64) -> Option<Spread> {
        Some(Spread { median, lowest: median, highest: median })
    }

    #[test]
    fn a_rate_has_to_be_high_and_a_processor_time_low() {
        let line = |ratio, cpu_ratio| Line { ratio, cpu_ratio, ..Line::empty(Row::InsertMany, "insert".into()) };
        let verdicts = |line: &Line| of(line).iter().map(|f| f.verdict.unwrap()).collect::<Vec<_>>();
        assert_eq!(verdicts(&line(spread(4.0), spread(0.2))), [Verdict::Met, Verdict::Met]);
        assert_eq!(verdicts(&line(spread(3.99), spread(0.201))), [Verdict::Missed, Verdict::Missed]);
        assert_eq!(verdicts(&line(None, None)), [Verdict::NotMeasured, Verdict::NotMeasured]);
    }

    #[test]
    fn a_pause_is_judged_in_seconds() {
        let line = |value| {
            let holdfast = Some(Figures { value, ..Figures::default() });
            Line { holdfast, ratio: spread(2.0), ..Line::empty(Row::Pause, "pause".into()) }
        };
        let verdicts = |value| of(&line(value)).iter().map(|f| f.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(0.1), [None, Some(Verdict::Met)]);
        assert_eq!(verdicts(0.11), [None, Some(Verdict::Missed)]);
    }

    #[test]
    fn what_has_no_goal_is_shown_without_a_verdict_and_only_when_measured() {
        let line = |cpu_ratio| Line { cpu_ratio, ..Line::empty(Row::GroupBy, "report".into()) };
        assert_eq!(of(&line(None)).len(), 1);
        let found = of(&line(spread(0.5)));
        assert_eq!((found[1].verdict, found[1].shown.as_str()), (None, "0.5×"));
    }
}
