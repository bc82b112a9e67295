//! The comparisons a run allows: audited against the study's other configurations, and Holdfast against its peer.
//! Only rates measured in the same run are compared.

use crate::configuration::Configuration as C;
use crate::results::{PgbenchResult, Ratio, Results};
use crate::text;
use crate::verdict::Verdict;

/// Everything that can be compared in `results`.
pub fn ratios(results: &Results) -> Vec<Ratio> {
    let mut list = in_process(results);
    list.extend(over_the_wire(results));
    list.extend(pgbench(&results.pgbench));
    let missing = not_measured(&list);
    list.extend(missing);
    list
}

fn in_process(results: &Results) -> Vec<Ratio> {
    const PAIRS: [(C, &str, Option<&str>, bool); 6] = [
        (C::Unaudited, "unaudited", Some("16 in the study (2450 / 150)"), true),
        (C::Buffered, "buffered", Some("3.9 in the study (2450 / 630)"), true),
        (C::Nainsert, "nainsert", Some("2.6 in the study (2450 / 950)"), false),
        (C::SqliteFull, "stock SQLite WAL at FULL", None, true),
        (C::SqliteOff, "stock SQLite WAL at OFF, which keeps nothing", None, false),
        (C::CaptureTriggers, "capture by triggers", None, false),
    ];
    PAIRS
        .iter()
        .filter_map(|&(other, name, expected, headline)| {
            let value = quotient(results.peak_rate(C::Audited)?, results.peak_rate(other)?)?;
            Some(ratio(format!("audited against {name}, peak rate"), value, expected, headline))
        })
        .collect()
}

fn over_the_wire(results: &Results) -> Vec<Ratio> {
    let mut list = Vec::from_iter(automatic(results));
    list.extend(against_the_peer(results));
    list
}

/// The program that starts no transactions against the one that does.
fn automatic(results: &Results) -> Option<Ratio> {
    let value = quotient(results.peak_rate(C::Autotmf)?, results.peak_rate(C::AuditedWirePipeline)?)?;
    let what = "automatic transactions against explicit ones in a pipeline, peak rate";
    Some(ratio(what.to_string(), value, Some("about 1 in the study"), false))
}

fn against_the_peer(results: &Results) -> Vec<Ratio> {
    [
        (C::AuditedWireSimple, C::PostgresSimple, "one message"),
        (C::AuditedWirePipeline, C::PostgresPipeline, "pipeline"),
    ]
    .into_iter()
    .filter_map(|(ours, theirs, how)| {
        let value = quotient(results.peak_rate(ours)?, results.peak_rate(theirs)?)?;
        Some(ratio(
            format!("Holdfast against PostgreSQL, {how}, peak rate by the lab's own client"),
            value,
            None,
            false,
        ))
    })
    .collect()
}

fn pgbench(rows: &[PgbenchResult]) -> Vec<Ratio> {
    let of = |server: &str, like: &PgbenchResult| {
        rows.iter()
            .find(|r| r.server == server && r.case == like.case && r.clients == like.clients && r.skipped.is_none())
            .cloned()
    };
    let mut list = Vec::new();
    for ours in rows.iter().filter(|r| r.server == "holdfast" && r.skipped.is_none()) {
        let Some(theirs) = of("postgres", ours) else { continue };
        let clients = text::clients(ours.clients);
        let what = format!("Holdfast against PostgreSQL, pgbench, {}, {clients}", ours.case);
        let authorization = ours.case.starts_with("authorization") && ours.remark.is_none();
        if let Some(value) = quotient(ours.tps, theirs.tps) {
            let rate = ratio(format!("{what}, rate"), value, None, authorization);
            list.push(goal(ours).map_or(rate.clone(), |goal| rate.judged(goal)));
        }
        if let Some(value) = ours.server_cpu_us.zip(theirs.server_cpu_us).and_then(|(a, b)| quotient(a, b)) {
            let cpu = ratio(format!("{what}, server CPU a transaction"), value, None, false);
            list.push(if authorization { cpu.judged(cpu_goal(ours)) } else { cpu });
        }
    }
    list
}

/// The product's goal for a pgbench case.
fn goal(row: &PgbenchResult) -> Option<Goal> {
    match (row.case.as_str(), row.clients) {
        (crate::pgbench::ONE_MESSAGE | crate::pgbench::PIPELINE, _) => Some(Goal::AtLeast(2.0)),
        (crate::pgbench::FIVE_MESSAGES, _) => Some(Goal::AtLeast(1.5)),
        (crate::pgbench::INSERT, 1) | (crate::pgbench::SELECT, _) => Some(Goal::AtLeast(1.0)),
        (crate::pgbench::INSERT, 80) => Some(Goal::AtLeast(2.0)),
        _ => None,
    }
}

/// The product's goal for the processor time of an authorization.
fn cpu_goal(row: &PgbenchResult) -> Goal {
    Goal::AtMost(if row.case == crate::pgbench::FIVE_MESSAGES { 0.5 } else { 0.4 })
}

/// Limit of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    /// As reports write it.
    pub fn words(self) -> String {
        match self {
            Goal::AtLeast(limit) => format!("at least {limit}"),
            Goal::AtMost(limit) => format!("at most {limit}"),
        }
    }

    /// The value is within the limit.
    pub fn met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(limit) => value >= limit,
            Goal::AtMost(limit) => value <= limit,
        }
    }
}

impl Ratio {
    /// With a goal of the product.
    fn judged(self, goal: Goal) -> Ratio {
        let verdict = self.value.map(|value| goal.met(value)).map_or(Verdict::NotMeasured, Verdict::of);
        Ratio { expected: Some(goal.words()), verdict: Some(verdict), ..self }
    }
}

/// The goals for the authorization that the run has no figure for.
fn not_measured(list: &[Ratio]) -> Vec<Ratio> {
    let cases = [crate::pgbench::ONE_MESSAGE, crate::pgbench::PIPELINE, crate::pgbench::FIVE_MESSAGES];
    let missing = |case: &&&str| !list.iter().any(|r| r.verdict.is_some() && r.what.contains(**case));
    let ratios = |case: &&str| {
        let row = PgbenchResult::empty("holdfast", case, 0);
        let what = |of: &str| format!("Holdfast against PostgreSQL, pgbench, {case}, {of}");
        let none = |of: &str| Ratio { what: what(of), value: None, expected: None, verdict: None, headline: false };
        [
            goal(&row).map(|goal| none("rate").judged(goal)),
            Some(none("server CPU a transaction").judged(cpu_goal(&row))),
        ]
    };
    cases.iter().filter(missing).flat_map(ratios).flatten().collect()
}

/// `a` as a multiple of `b`.
pub fn quotient(a: f64, b: f64) -> Option<f64> {
    (b > 0.0 && a.is_finite()).then(|| a / b)
}

fn ratio(what: String, value: f64, expected: Option<&str>, headline: bool) -> Ratio {
    Ratio { what, value: Some(value), expected: expected.map(str::to_string), verdict: None, headline }
}
