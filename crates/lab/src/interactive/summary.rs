//! The short form of the results for the terminal.

use super::results::Results;
use crate::summary::{align_numbers, checks, findings, pgbench, table};
use crate::text;

/// Rates, the other cases, and every figure with its goal.
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    if !results.rates.is_empty() {
        out.push_str(&format!("{}\n\n", pgbench(&results.rates)));
    }
    if !results.sleepers.is_empty() {
        out.push_str(&format!("{}\n\n", sleepers(results)));
    }
    if !results.memory.is_empty() {
        out.push_str(&format!("{}\n\n", memory(results)));
    }
    if !results.long_transactions.is_empty() {
        out.push_str(&format!("{}\n\n", long_transactions(results)));
    }
    out.push_str(&checks(&results.checks));
    out + &findings(&results.findings)
}

fn sleepers(results: &Results) -> comfy_table::Table {
    let mut table = table(&["one client asleep", "server", "clients", "tps without", "tps with", "change"]);
    let list = |rates: &[f64]| rates.iter().map(|r| text::number(*r)).collect::<Vec<_>>().join(", ");
    for s in &results.sleepers {
        table.add_row([
            format!("{} s in a transaction", s.sleep_seconds),
            s.server.clone(),
            s.clients.to_string(),
            list(&s.tps_without),
            list(&s.tps_with),
            format!("{:+.1} %", s.change() * 100.0),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn memory(results: &Results) -> comfy_table::Table {
    let mut table = table(&["memory", "server", "before", "idle", "each idle", "transactions open"]);
    for m in &results.memory {
        table.add_row([
            format!("{} connections", m.connections),
            m.server.clone(),
            text::bytes(m.before_bytes),
            text::bytes(m.idle_bytes),
            text::bytes(m.bytes_per_idle_connection() as u64),
            text::bytes(m.open_bytes),
        ]);
    }
    align_numbers(&mut table, 2);
    table
}

fn long_transactions(results: &Results) -> comfy_table::Table {
    let mut table = table(&["long transaction", "server", "each tenth, ms", "commit, ms", "others' tps"]);
    for l in &results.long_transactions {
        table.add_row([
            format!("{} inserts", l.statements),
            l.server.clone(),
            l.tenths_ms.iter().map(|ms| format!("{ms:.0}")).collect::<Vec<_>>().join(" "),
            format!("{:.0}", l.commit_ms),
            text::number(l.foreign_tps),
        ]);
    }
    align_numbers(&mut table, 3);
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_summary_is_the_golden_one() {
        crate::golden::check("interactive.txt", &super::text(&crate::interactive::sample::results()));
    }
}
