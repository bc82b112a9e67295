//! The short form of the results for the terminal.
//!
//! Failure: none; a part without figures is left out.

use super::results::Results;
use super::summary_nodes as nodes;
use crate::server::server_name;
use crate::summary::{align_numbers, checks, findings, table};
use crate::text;

/// The tables, and every figure with its goal.
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    if !results.levels.is_empty() {
        out.push_str(&format!("{}\n\n", levels(results)));
    }
    if !results.distances.is_empty() {
        out.push_str(&format!("{}\n\n", nodes::distances(results)));
    }
    if !results.own_cores.is_empty() {
        out.push_str(&format!("{}\n\n", nodes::own_cores(results)));
    }
    if !results.catch_ups.is_empty() {
        out.push_str(&format!("{}\n\n", catch_ups(results)));
    }
    if !results.large.is_empty() {
        out.push_str(&format!("{}\n\n", large(results)));
    }
    if !results.reporting.is_empty() {
        out.push_str(&format!("{}\n\n", reporting(results)));
    }
    if !results.shared_node.is_empty() {
        out.push_str(&format!("{}\n\n", nodes::shared_node(results)));
    }
    if !results.governed.is_empty() {
        out.push_str(&format!("{}\n\n", governed(results)));
    }
    if !results.laws.is_empty() {
        out.push_str(&format!("{}\n\n", laws(results)));
    }
    out.push_str(&checks(&results.checks));
    out + &findings(&results.findings)
}

/// A figure, or nothing.
pub fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(String::new, show)
}

/// Bytes that were counted as a number.
pub fn bytes(value: f64) -> String {
    text::bytes(value as u64)
}

fn levels(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 9] =
        ["server", "level", "clients", "tps", "p50", "p99", "master CPU each", "standby CPU each", "syncs each"];
    let mut table = table(&HEAD);
    for r in &results.levels {
        table.add_row([
            server_name(&r.server).to_string(),
            if r.offered_rate.is_some() { format!("{}, equal rate", r.level) } else { r.level.clone() },
            r.clients.to_string(),
            text::number(r.tps),
            text::time(r.p50_us),
            text::time(r.p99_us),
            optional(r.master_cpu_us, text::time),
            optional(r.standby_cpu_us, text::time),
            optional(r.syncs_per_transaction, text::times),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn catch_ups(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 9] = [
        "server",
        "catch-up while",
        "missing",
        "over the link",
        "after",
        "bytes/s",
        "tps",
        "CPU each",
        "the load's bytes/s, tps",
    ];
    let mut table = table(&HEAD);
    for c in &results.catch_ups {
        table.add_row([
            server_name(&c.server).to_string(),
            if c.load_goes_on { "the load continues" } else { "no load" }.into(),
            bytes(c.missing_bytes as f64),
            optional(c.link_bytes.map(|b| b as f64), bytes),
            c.seconds.map_or("not within the run".into(), |s| text::time(s * 1e6)),
            bytes(c.catch_up_bytes_rate),
            text::number(c.catch_up_tps),
            optional(c.standby_cpu_us, text::time),
            format!("{}, {}", bytes(c.load_bytes_rate), text::number(c.load_tps)),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn large(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 9] = [
        "large transaction",
        "server",
        "done after",
        "shown after",
        "tps before",
        "meanwhile",
        "slowest second",
        "most lag",
        "memory at most",
    ];
    let mut table = table(&HEAD);
    for l in &results.large {
        let memory =
            [l.master_memory_most_bytes, l.standby_memory_most_bytes].map(|b| optional(b.map(|b| b as f64), bytes));
        table.add_row([
            text::bytes(l.row_bytes),
            server_name(&l.server).to_string(),
            text::time((l.ended_s - l.began_s) * 1e6),
            text::time((l.shown_s - l.began_s) * 1e6),
            optional(l.tps_before, text::number),
            optional(l.tps_meanwhile, text::number),
            optional(l.tps_slowest, text::number),
            optional(l.lag_most_bytes.map(|b| b as f64), bytes),
            memory.join(", "),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn reporting(results: &Results) -> comfy_table::Table {
    let mut table = table(&["reports", "server", "alone", "during load", "tps without", "with", "lag without", "with"]);
    for r in &results.reporting {
        table.add_row([
            format!("{} queries", r.queries),
            server_name(&r.server).to_string(),
            text::time(r.alone_ms * 1e3),
            text::time(r.mean_ms * 1e3),
            text::number(r.tps_without),
            text::number(r.tps_with),
            optional(r.lag_most_without_bytes.map(|b| b as f64), bytes),
            optional(r.lag_most_with_bytes.map(|b| b as f64), bytes),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn governed(results: &Results) -> comfy_table::Table {
    const HEAD: [&str; 12] = [
        "server",
        "governor",
        "load",
        "capacity",
        "for",
        "tps",
        "variation",
        "too much in",
        "variation then",
        "slowest/mean",
        "applied/capacity",
        "most lag",
    ];
    let mut table = table(&HEAD);
    let plain = |v: f64| format!("{v:.3}");
    for g in &results.governed {
        table.add_row([
            server_name(&g.server).to_string(),
            g.governor.clone(),
            format!("{}, {}×", bytes(g.load_bytes_rate), text::times(g.load_factor)),
            bytes(g.capacity_bytes_rate),
            text::time(g.seconds * 1e6),
            optional(g.mean_tps, text::number),
            optional(g.variation, plain),
            optional(g.behind_share, nodes::percent),
            optional(g.variation_behind, plain),
            optional(g.slowest_share, plain),
            optional(g.applied_share, plain),
            optional(g.lag_most_bytes.map(|b| b as f64), bytes),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn laws(results: &Results) -> comfy_table::Table {
    let mut table = table(&["law, simulated", "variation", "slowest/mean", "applied/capacity", "most lag/W"]);
    for l in &results.laws {
        let law = if l.in_use { format!("{}, in use", l.law) } else { l.law.clone() };
        let figures = [l.variation, l.slowest_share, l.applied_share, l.lag_most_share].map(|v| format!("{v:.3}"));
        table.add_row(std::iter::once(law).chain(figures));
    }
    align_numbers(&mut table, 1);
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_summary_is_the_golden_one() {
        crate::golden::check("standby.txt", &super::text(&super::super::sample::results()));
    }
}
