//! The short form of the results for the terminal.

use crate::paper::AUTHORIZATION_TERMS;
use crate::results::{PgbenchResult, Results};
use crate::study_results::{Check, Finding};
use crate::text;
use crate::verdict::{self, Verdict};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Peak rates and ratios as text tables.
pub fn text(results: &Results) -> String {
    let mut out = format!("{}\n\n{AUTHORIZATION_TERMS}\n", peaks(results));
    if !results.pgbench.is_empty() {
        out.push_str(&format!("\n{}\n", pgbench(&results.pgbench)));
    }
    out.push('\n');
    for r in &results.ratios {
        let word = if r.verdict.is_some() { "goal" } else { "expected" };
        let expected = r.expected.as_ref().map_or(String::new(), |e| format!("  ({word}: {e})"));
        let value = r.value.map_or_else(|| "–".to_string(), |value| format!("{}×", text::times(value)));
        out.push_str(&format!("{} {value:>9}  {}{expected}\n", mark(r.verdict), r.what));
    }
    out + &goals(results.ratios.iter().filter_map(|r| r.verdict))
}

/// How many checks hold, and an empty line.
pub fn checks(checks: &[Check]) -> String {
    let held = checks.iter().filter(|c| c.holds).count();
    format!("{held} of {} checks hold\n\n", checks.len())
}

/// Every figure with its goal.
pub fn findings(findings: &[Finding]) -> String {
    let line = |f: &Finding| {
        let goal = f.goal.as_ref().map_or(String::new(), |goal| format!("  (goal: {goal})"));
        format!("{} {:>9}  {}{goal}\n", mark(f.verdict), f.shown, f.what)
    };
    let lines: String = findings.iter().map(line).collect();
    lines + &goals(findings.iter().filter_map(|f| f.verdict))
}

/// The verdict in a column of its own, or as much room.
fn mark(verdict: Option<Verdict>) -> String {
    format!("{:<14}", verdict.map_or("", Verdict::text))
}

fn goals(verdicts: impl Iterator<Item = Verdict>) -> String {
    let count = verdict::count(verdicts);
    if count.is_empty() { count } else { format!("\n{count}\n") }
}

/// An empty table.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table
}

/// Columns of numbers, from `first` on, stand to the right.
pub fn align_numbers(table: &mut Table, first: usize) {
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn peaks(results: &Results) -> Table {
    let mut table = table(&["configuration", "clients", "tps", "mean", "p99", "p99.9", "syncs each"]);
    for c in &results.configurations {
        if let Some(why) = &c.skipped {
            table.add_row([c.configuration.name(), "", why]);
        }
        for p in &c.peaks {
            table.add_row([
                c.configuration.name().to_string(),
                p.clients.to_string(),
                text::number(p.completed_rate),
                text::time(p.response.mean_us),
                text::time(p.response.p99_us as f64),
                text::time(p.response.p999_us as f64),
                p.syncs_per_transaction.map_or_else(String::new, text::times),
            ]);
        }
    }
    align_numbers(&mut table, 1);
    table
}

/// Runs of pgbench.
pub fn pgbench(rows: &[PgbenchResult]) -> Table {
    let mut table = table(&["pgbench", "server", "clients", "tps", "mean", "syncs each", "server CPU each"]);
    for r in rows {
        table.add_row([
            r.case.clone(),
            r.server.clone(),
            r.clients.to_string(),
            r.skipped.clone().unwrap_or_else(|| text::number(r.tps)),
            text::time(r.latency_mean_ms * 1e3),
            r.syncs_per_transaction.map_or_else(String::new, text::times),
            r.server_cpu_us.map_or_else(String::new, text::time),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}
