//! The report: one HTML file that needs nothing else. Goals first, then a chart and a table for each part, checks, and
//! what it ran on.
//!
//! Failure: none; a part without figures is left out.

use super::pair::Level;
use super::report_nodes as nodes;
use super::report_parts as parts;
use super::results::{LevelRate, Results};
use crate::bars::{Bar, Bars, Group};
use crate::chart::escape;
use crate::interactive::report::{checks, goals};
use crate::report::{definitions, failures, figure, headlines, page, ran_on, title};
use crate::report_tables::{Column, Row, optional, table};
use crate::server::server_name;
use crate::text;

const LEAD: &str = "A standby has what its master has acknowledged. What that costs the master at each level, how fast a \
    standby that was away has it again, and what happens when it cannot keep up.";

/// The whole file.
pub fn html(results: &Results) -> String {
    let (version, at) = (&results.head.product_version, &results.head.started_at);
    let mut out = title("Hot standby", version, at, results.head.machine.first(), &results.head.paper, LEAD);
    out.push_str(&failures(&results.failures));
    out.push_str(&headlines(&results.findings));
    out.push_str(&goals(&results.findings));
    out.push_str(&levels(results));
    out.push_str(&nodes::distances(results));
    out.push_str(&nodes::own_cores(results));
    out.push_str(&parts::catch_ups(&results.catch_ups));
    out.push_str(&parts::large(&results.large));
    out.push_str(&parts::governor(results));
    out.push_str(&parts::reporting(&results.reporting));
    out.push_str(&nodes::shared_node(results));
    out.push_str(&checks(&results.checks));
    for server in &results.servers {
        out.push_str(&format!(
            "<h2>Settings of {}</h2>\n{}",
            server_name(&server.server),
            definitions(&server.settings)
        ));
    }
    out.push_str(&ran_on(&results.head.machine, &results.head.options, &results.notes, &results.head.command));
    page("hot standby", &out)
}

/// The colour of a server.
pub fn class(server: &str) -> &'static str {
    if server == "holdfast" { "audited" } else { "postgres" }
}

fn levels(results: &Results) -> String {
    if results.levels.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h2>What each level costs</h2>\n");
    for clients in results.clients() {
        let bar = |r: &LevelRate| Bar { class: class(&r.server), name: server_name(&r.server), value: r.tps };
        let group = |level: Level| Group {
            label: if level == Level::None { "no standby".into() } else { format!("level {}", level.name()) },
            bars: ["holdfast", "postgres"]
                .iter()
                .filter_map(|s| results.level(s, level.name(), clients).map(bar))
                .collect(),
        };
        let groups = Level::ALL.map(group).into_iter().filter(|g| !g.bars.is_empty()).collect();
        let heading = format!("Transactions a second with {clients} clients");
        let drawing = Bars { title: heading.clone(), text: text::number, groups };
        out.push_str(&format!("<h3>{heading}</h3>\n{}", figure(&drawing.svg())));
    }
    out.push_str(&level_table(results));
    out
}

fn level_table(results: &Results) -> String {
    const COLUMNS: [Column; 10] = [
        ("Server", false),
        ("Level", false),
        ("Load", false),
        ("Clients", true),
        ("A second", true),
        ("p50", true),
        ("p99", true),
        ("Master<br>CPU each", true),
        ("Standby<br>CPU each", true),
        ("Syncs<br>each", true),
    ];
    let row = |r: &LevelRate| {
        let runs: Vec<String> = r.runs.iter().map(|tps| text::number(*tps)).collect();
        let load = if r.offered_rate.is_some() { "equal rate" } else { "as fast as it goes" };
        let cells = vec![
            server_name(&r.server).into(),
            escape(&r.level),
            load.into(),
            r.clients.to_string(),
            format!("<span title=\"runs: {}\">{}</span>", escape(&runs.join(", ")), text::number(r.tps)),
            text::time(r.p50_us),
            text::time(r.p99_us),
            optional(r.master_cpu_us, text::time),
            optional(r.standby_cpu_us, text::time),
            optional(r.syncs_per_transaction, text::times),
        ];
        Row { class: if r.server == "holdfast" { "audited" } else { "" }, cells }
    };
    let rows: Vec<Row> = results.levels.iter().map(row).collect();
    table(&COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_report_needs_nothing_else() {
        let html = html(&sample::results());
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("missed") && html.contains("Example &lt;fast&gt;"));
        // Two of levels, two of distances, one of catch-up, two of each large transaction, two of the governor, one of its laws.
        assert_eq!(html.matches("<svg").count(), 12);
        assert!(html.contains("Some of it could not be measured"));
    }
}
