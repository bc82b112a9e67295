//! The report's tables: rates by delay and clients, the paper's own table with this run's, sync methods.

use super::findings::DEFAULT_METHOD;
use super::results::{Rate, Results};
use crate::chart::escape;
use crate::report_tables::{NOTHING, Row, SCROLL};
use crate::server::server_name;
use crate::text;

/// The paper's table: cache, barrier, and commits a second with 1, 10, 20, 40 and 80 clients at its COMMIT_DELAY 1.
pub const PAPER: [(bool, bool, [u32; 5]); 4] = [
    (false, true, [76, 236, 358, 483, 600]),
    (false, false, [76, 248, 349, 463, 592]),
    (true, true, [79, 220, 332, 434, 586]),
    (true, false, [1358, 3848, 4270, 4435, 3980]),
];
/// Its numbers of clients.
pub const PAPER_CLIENTS: [usize; 5] = [1, 10, 20, 40, 80];

/// A table whose last columns are numbers of clients.
pub fn by_clients(heads: &[&str], clients: &[usize], rows: &[Row]) -> String {
    let heads = heads.iter().map(|h| format!("<th>{h}</th>"));
    let numbers = clients.iter().map(|n| format!("<th class=\"n\">{n}</th>"));
    let mut out = format!(
        "{SCROLL}<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n",
        heads.chain(numbers).collect::<Vec<_>>().concat()
    );
    for row in rows {
        let texts = row.cells.len() - clients.len();
        let cell = |(i, cell): (usize, &String)| match i < texts {
            true => format!("<td>{cell}</td>"),
            false => format!("<td class=\"n\">{cell}</td>"),
        };
        let cells: Vec<String> = row.cells.iter().enumerate().map(cell).collect();
        out.push_str(&format!("<tr class=\"{}\">{}</tr>\n", row.class, cells.concat()));
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A delay for people.
pub fn delay(name: &str) -> String {
    match name.parse::<f64>() {
        Ok(0.0) => "none".into(),
        Ok(us) => text::time(us),
        Err(_) => escape(name),
    }
}

/// Every server and delay of a disk with cache and barrier on.
pub fn delays(results: &Results, disk: &str) -> String {
    let clients = usual_clients(results, disk);
    let mut rows = Vec::new();
    for (name, delay_name) in servers_and_delays(results, disk) {
        let of = |n: &usize| cell(results.rate(&name, disk, (true, true), &delay_name, *n));
        let cells =
            [server_name(&name).to_string(), delay(&delay_name)].into_iter().chain(clients.iter().map(of)).collect();
        rows.push(Row { class: if delay_name == "auto" { "audited" } else { "" }, cells });
    }
    by_clients(&["Server", "Commit delay"], &clients, &rows)
}

/// Each server with each of its delays, in the order they were measured.
pub fn servers_and_delays(results: &Results, disk: &str) -> Vec<(String, String)> {
    let mut list: Vec<(String, String)> = Vec::new();
    let safe = results.rates.iter().filter(|r| r.disk == disk && r.cache && r.barrier);
    for key in safe.map(|r| (r.server.clone(), r.delay.clone())) {
        if !list.contains(&key) {
            list.push(key);
        }
    }
    list.sort_by(|a, b| a.0.cmp(&b.0));
    list
}

/// The clients of the points with the usual sync methods.
pub fn usual_clients(results: &Results, disk: &str) -> Vec<usize> {
    let is = |n: &usize| results.best("holdfast", disk, *n, false).is_some();
    results.clients().into_iter().filter(is).collect()
}

fn cell(rate: Option<&Rate>) -> String {
    let Some(rate) = rate else { return NOTHING.into() };
    let runs: Vec<String> = rate.runs.iter().map(|r| text::number(*r)).collect();
    let (mean, p99) = (text::time(rate.mean_us), text::time(rate.p99_us as f64));
    format!(
        "<span title=\"runs: {}; mean {mean}, p99 {p99}\">{}</span>",
        escape(&runs.join(", ")),
        text::number(rate.tps)
    )
}

/// Cache and barrier of the paper's disk, the paper's figures with this run's.
pub fn conditions(results: &Results) -> String {
    let mut rows = Vec::new();
    let on = |on: bool| if on { "on" } else { "off" }.to_string();
    for (cache, barrier, paper) in PAPER {
        let heads = |who: &str, delay: String| vec![on(cache), on(barrier), who.to_string(), delay];
        let mut cells = heads("the paper", "its 1".into());
        cells.extend(paper.iter().map(|n| text::number(f64::from(*n))));
        rows.push(Row { class: "skipped", cells });
        for (name, delay_name) in servers_and_delays(results, "paper") {
            let rates: Vec<_> =
                PAPER_CLIENTS.iter().map(|n| results.rate(&name, "paper", (cache, barrier), &delay_name, *n)).collect();
            if rates.iter().any(Option::is_some) {
                let mut cells = heads(server_name(&name), delay(&delay_name));
                cells.extend(rates.into_iter().map(cell));
                rows.push(Row { class: if delay_name == "auto" { "audited" } else { "" }, cells });
            }
        }
    }
    by_clients(&["Cache", "Barrier", "", "Commit delay"], &PAPER_CLIENTS, &rows)
}

/// The clients that the sync methods were compared with: those of the points with another method than the usual one.
pub fn method_clients(results: &Results) -> Vec<usize> {
    let compared = results.rates.iter().filter(|r| r.server == "holdfast" && r.method != DEFAULT_METHOD);
    let mut clients: Vec<usize> = compared.map(|r| r.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

/// Each method's syncs on each disk, and what one client and many get of them.
pub fn sync_methods(results: &Results) -> String {
    let clients = method_clients(results);
    let row = |s: &super::results::SyncMethodRate| {
        let of = |n: &usize| {
            let is = |r: &&Rate| {
                (r.server.as_str(), r.delay.as_str(), &r.disk, &r.method) == ("holdfast", "auto", &s.disk, &s.method)
                    && (r.clients, r.cache, r.barrier) == (*n, true, true)
            };
            cell(results.rates.iter().find(is))
        };
        let heads = [format!("the {} disk", s.disk), escape(&s.method), text::number(s.syncs_rate)];
        Row { class: "", cells: heads.into_iter().chain(clients.iter().map(of)).collect() }
    };
    let rows: Vec<Row> = results.sync_methods.iter().map(row).collect();
    by_clients(&["Disk", "sync_method", "Syncs a second, no server"], &clients, &rows)
}
