//! What the figures say: Holdfast compared with its peer, and both with the product's goals. Only figures of the same run
//! are compared.

use super::rates;
use super::results::{LongTransaction, MemoryUse, Results, Sleeper};
use crate::pgbench;
use crate::ratios::quotient;
use crate::results::PgbenchResult;
use crate::study_results::Finding;
use crate::text;
use crate::verdict::{StandingGoal, Verdict, not_measured};

/// Limit of a figure.
#[derive(Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// How a figure is written.
#[derive(Clone, Copy)]
enum Unit {
    Times,
    Percent,
    Bytes,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::Times => format!("{}×", text::times(value)),
            Unit::Percent => format!("{value:.1} %"),
            Unit::Bytes => text::bytes(value as u64),
        }
    }
}

const OURS: &str = "holdfast";
const THEIRS: &str = "postgres";
/// Memory of 1,000 connections with an open transaction each.
const OPEN_BYTES_MAX: f64 = 600e6;
const IDLE_BYTES_MAX: f64 = 300e3;
const SLEEPER_PERCENT_MAX: f64 = 10.0;
/// Twice the first tenth would no longer be linear.
const GROWTH_MAX: f64 = 2.0;

/// The goals of every run, as they are listed when a run has no figure for them.
const STANDING: [StandingGoal; 8] = [
    StandingGoal {
        found_by: &["five messages", "rate against"],
        what: "authorization, five messages: rate against PostgreSQL",
        goal: "at least 1.5×",
    },
    StandingGoal {
        found_by: &["five messages", "server CPU"],
        what: "authorization, five messages: server CPU a transaction against PostgreSQL",
        goal: "at most 0.5×",
    },
    StandingGoal {
        found_by: &["scale 1,", "rate against"],
        what: "TPC-B, prepared, scale 1: rate against PostgreSQL",
        goal: "at least 1×",
    },
    StandingGoal {
        found_by: &[rates::THINKING, "rate against"],
        what: "authorization with think time: rate against PostgreSQL",
        goal: "at least 1×",
    },
    StandingGoal {
        found_by: &["while a client sleeps"],
        what: "Holdfast: the others' rate changes by, while a client sleeps in a transaction",
        goal: "less than 10 %",
    },
    StandingGoal {
        found_by: &["open transactions"],
        what: "Holdfast: memory with 1000 open transactions that have each changed a row",
        goal: "at most 572 MiB",
    },
    StandingGoal {
        found_by: &["idle connections"],
        what: "Holdfast: memory of each of 1000 idle connections",
        goal: "at most 293 KiB",
    },
    StandingGoal {
        found_by: &["last tenth"],
        what: "Holdfast: last tenth of a long transaction against its first",
        goal: "at most 2×",
    },
];

/// Everything the results allow to say.
pub fn findings(results: &Results) -> Vec<Finding> {
    let mut list = Vec::new();
    for ours in results.rates.iter().filter(|r| r.server == OURS && r.skipped.is_none()) {
        list.extend(rate(results, ours));
    }
    list.extend(results.sleepers.iter().map(sleeper));
    list.extend(results.memory.iter().flat_map(memory));
    list.extend(results.long_transactions.iter().filter_map(long));
    list.extend(not_measured(&STANDING, &list));
    list
}

fn finding(what: String, value: f64, unit: Unit, goal: Option<Goal>) -> Finding {
    let (words, met) = match goal {
        Some(Goal::AtLeast(limit)) => (Some(format!("at least {}", unit.show(limit))), Some(value >= limit)),
        Some(Goal::AtMost(limit)) => (Some(format!("at most {}", unit.show(limit))), Some(value <= limit)),
        None => (None, None),
    };
    let verdict = met.map(Verdict::of);
    Finding { what, value: Some(value), shown: unit.show(value), goal: words, met, verdict, headline: false }
}

/// Rate and processor time against the peer, and failures.
fn rate(results: &Results, ours: &PgbenchResult) -> Vec<Finding> {
    let same = |r: &&PgbenchResult| r.server == THEIRS && r.case == ours.case && r.clients == ours.clients;
    let mut list = Vec::new();
    let what = format!("{}, {}", ours.case, text::clients(ours.clients));
    if let Some(theirs) = results.rates.iter().find(same).filter(|r| r.skipped.is_none()) {
        let (goal, cpu_goal) = goals(&ours.case);
        if let Some(value) = quotient(ours.tps, theirs.tps) {
            let rate = finding(format!("{what}: rate against PostgreSQL"), value, Unit::Times, goal);
            list.push(Finding { headline: goal.is_some(), ..rate });
        }
        let cpu = ours.server_cpu_us.zip(theirs.server_cpu_us).and_then(|(a, b)| quotient(a, b));
        list.extend(cpu.map(|value| {
            finding(format!("{what}: server CPU a transaction against PostgreSQL"), value, Unit::Times, cpu_goal)
        }));
    }
    list
}

/// The product's goals for a case: rate and processor time.
fn goals(case: &str) -> (Option<Goal>, Option<Goal>) {
    match case {
        pgbench::FIVE_MESSAGES => (Some(Goal::AtLeast(1.5)), Some(Goal::AtMost(0.5))),
        rates::THINKING => (Some(Goal::AtLeast(1.0)), None),
        _ if case == rates::tpcb_name(1) => (Some(Goal::AtLeast(1.0)), None),
        _ => (Some(Goal::AtLeast(1.5)), None),
    }
}

fn server(name: &str) -> &'static str {
    if name == OURS { "Holdfast" } else { "PostgreSQL" }
}

fn ours_only(name: &str, goal: Goal) -> Option<Goal> {
    (name == OURS).then_some(goal)
}

fn sleeper(s: &Sleeper) -> Finding {
    let what = format!(
        "{}: the others' rate changes by, while a client sleeps {} s in a transaction",
        server(&s.server),
        s.sleep_seconds
    );
    let change = s.change() * 100.0;
    let mut finding = finding(what, change, Unit::Percent, None);
    if s.server == OURS {
        finding.goal = Some(format!("less than {SLEEPER_PERCENT_MAX:.0} %"));
        finding.met = Some(change.abs() < SLEEPER_PERCENT_MAX);
        finding.verdict = finding.met.map(Verdict::of);
        finding.headline = true;
    }
    finding
}

fn memory(m: &MemoryUse) -> [Finding; 2] {
    let (name, n) = (server(&m.server), m.connections);
    let open = format!("{name}: memory with {n} open transactions that have each changed a row");
    let idle = format!("{name}: memory of each of {n} idle connections");
    [
        finding(open, m.open_bytes as f64, Unit::Bytes, ours_only(&m.server, Goal::AtMost(OPEN_BYTES_MAX))),
        finding(idle, m.bytes_per_idle_connection(), Unit::Bytes, ours_only(&m.server, Goal::AtMost(IDLE_BYTES_MAX))),
    ]
}

fn long(l: &LongTransaction) -> Option<Finding> {
    let what =
        format!("{}: last tenth of a {}-statement transaction against its first", server(&l.server), l.statements);
    Some(finding(what, l.growth()?, Unit::Times, ours_only(&l.server, Goal::AtMost(GROWTH_MAX))))
}

#[cfg(test)]
mod tests {
    use crate::interactive::sample;
    use crate::verdict::Verdict;

    #[test]
    fn goals_are_set_beside_the_figures() {
        let list = super::findings(&sample::results());
        let of = |what: &str| list.iter().find(|f| f.what.contains(what)).unwrap_or_else(|| panic!("{what}"));
        let rate = of("authorization, five messages, 40 clients: rate");
        assert_eq!((rate.shown.as_str(), rate.goal.as_deref(), rate.met), ("2×", Some("at least 1.5×"), Some(true)));
        let cpu = of("authorization, five messages, 40 clients: server CPU");
        assert_eq!((cpu.goal.as_deref(), cpu.met), (Some("at most 0.5×"), Some(false)));
        assert_eq!(of("TPC-B, prepared, scale 1, ").goal.as_deref(), Some("at least 1×"));
        let asleep = of("Holdfast: the others' rate");
        assert_eq!((asleep.shown.as_str(), asleep.met), ("-20.0 %", Some(false)));
        assert_eq!(of("PostgreSQL: the others' rate").met, None);
        assert_eq!(of("Holdfast: memory of each").met, Some(true));
        assert_eq!(of("Holdfast: last tenth").shown, "1.1×");
        let thinking = of("think time: rate against");
        assert_eq!((thinking.verdict, thinking.value), (Some(Verdict::NotMeasured), None), "the peer has no figure");
    }

    #[test]
    fn goals_without_a_figure_are_listed_as_not_measured() {
        let mut results = sample::results();
        (results.rates, results.sleepers, results.memory, results.long_transactions) = Default::default();
        let list = super::findings(&results);
        assert_eq!(list.len(), super::STANDING.len());
        assert!(list.iter().all(|f| f.verdict == Some(Verdict::NotMeasured) && f.met.is_none() && f.goal.is_some()));
    }
}
