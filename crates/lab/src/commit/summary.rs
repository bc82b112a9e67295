//! The short form of the results for the terminal.

use super::report_tables::{delay, servers_and_delays, usual_clients};
use super::results::Results;
use crate::server::server_name;
use crate::summary::{align_numbers, findings, table};
use crate::text;

/// Rates by delay, sync methods, and every figure with its goal.
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    for disk in ["paper", "real"] {
        let clients = usual_clients(results, disk);
        if !clients.is_empty() {
            out.push_str(&format!("{}\n\n", rates(results, disk, &clients)));
        }
    }
    if !results.sync_methods.is_empty() {
        let mut table = table(&["sync method", "disk", "syncs a second"]);
        for s in &results.sync_methods {
            table.add_row([s.method.clone(), s.disk.clone(), text::number(s.syncs_rate)]);
        }
        align_numbers(&mut table, 2);
        out.push_str(&format!("{table}\n\n"));
    }
    out + &findings(&results.findings)
}

fn rates(results: &Results, disk: &str, clients: &[usize]) -> comfy_table::Table {
    let heads = clients.iter().map(|n| format!("{n} clients"));
    let heads: Vec<String> = ["server".to_string(), format!("delay, {disk} disk")].into_iter().chain(heads).collect();
    let mut table = table(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, delay_name) in servers_and_delays(results, disk) {
        let of = |n: &usize| {
            let rate = results.rate(&name, disk, (true, true), &delay_name, *n);
            rate.map_or_else(String::new, |r| text::number(r.tps))
        };
        let cells = [server_name(&name).to_string(), delay(&delay_name)].into_iter().chain(clients.iter().map(of));
        table.add_row(cells.collect::<Vec<_>>());
    }
    align_numbers(&mut table, 2);
    table
}
