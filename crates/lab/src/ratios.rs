//! The comparisons a run allows: audited against the study's other configurations, and Holdfast against its peer.
//! Only rates measured in the same run are compared.

use crate::configuration::Configuration as C;
use crate::results::{PgbenchResult, Ratio, Results};

/// Everything that can be compared in `results`.
pub fn ratios(results: &Results) -> Vec<Ratio> {
    let mut list = in_process(results);
    list.extend(over_the_wire(results));
    list.extend(pgbench(&results.pgbench));
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
        let clients = if ours.clients == 1 { "1 client".to_string() } else { format!("{} clients", ours.clients) };
        let what = format!("Holdfast against PostgreSQL, pgbench, {}, {clients}", ours.case);
        let authorization = ours.case.starts_with("authorization") && ours.remark.is_none();
        if let Some(value) = quotient(ours.tps, theirs.tps) {
            let expected = goal(ours);
            list.push(ratio(format!("{what}, rate"), value, expected, authorization));
        }
        if let Some(value) = ours.server_cpu_us.zip(theirs.server_cpu_us).and_then(|(a, b)| quotient(a, b)) {
            let expected = authorization.then_some(cpu_goal(ours));
            list.push(ratio(format!("{what}, server CPU a transaction"), value, expected, false));
        }
    }
    list
}

/// The product's goal for a pgbench case.
fn goal(row: &PgbenchResult) -> Option<&'static str> {
    match (row.case.as_str(), row.clients) {
        (crate::pgbench::ONE_MESSAGE | crate::pgbench::PIPELINE, _) => Some("at least 2"),
        (crate::pgbench::FIVE_MESSAGES, _) => Some("at least 1.5"),
        (crate::pgbench::INSERT, 1) | (crate::pgbench::SELECT, _) => Some("at least 1"),
        (crate::pgbench::INSERT, 80) => Some("at least 2"),
        _ => None,
    }
}

/// The product's goal for the processor time of an authorization.
fn cpu_goal(row: &PgbenchResult) -> &'static str {
    if row.case == crate::pgbench::FIVE_MESSAGES { "at most 0.5" } else { "at most 0.4" }
}

/// `a` as a multiple of `b`.
pub fn quotient(a: f64, b: f64) -> Option<f64> {
    (b > 0.0 && a.is_finite()).then(|| a / b)
}

fn ratio(what: String, value: f64, expected: Option<&str>, headline: bool) -> Ratio {
    Ratio { what, value, expected: expected.map(str::to_string), headline }
}
