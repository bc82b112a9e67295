//! The report's parts about distances, nodes on cores of their own, and several masters to one node.
//!
//! Failure: none; a part without figures is left out.

use super::pair::Level;
use super::report_parts::{bytes, row, section};
use super::results::{Distance, Results};
use super::summary_nodes::{distance, latency, percent};
use crate::chart::{Mark, Series, escape};
use crate::report::figure;
use crate::report_tables::{Column, optional, table};
use crate::server::server_name;
use crate::text;
use crate::time_chart::{Steps, TimeChart};

/// The colour of each level, and of the round trip alone.
const LINES: [(Level, &str); 3] = [(Level::Warm, "audited"), (Level::Hot, "buffered"), (Level::Commit, "unaudited")];
const ROUND_TRIP: &str = "capture";

/// What each level adds to a commit's latency, by the distance.
pub fn distances(results: &Results) -> String {
    const COLUMNS: [Column; 11] = [
        ("Server", false),
        ("Link<br>delays", true),
        ("Round trip<br>measured", true),
        ("A sync", true),
        ("Level", false),
        ("Clients", true),
        ("A second", true),
        ("p50", true),
        ("p99", true),
        ("Added<br>to local", true),
        ("In round<br>trips", true),
    ];
    if results.distances.is_empty() {
        return String::new();
    }
    let cells = |d: &Distance| {
        let runs: Vec<String> = d.runs_p50_us.iter().map(|us| latency(*us)).collect();
        let cells = vec![
            server_name(&d.server).into(),
            distance(d),
            latency(d.link_us),
            latency(d.sync_us),
            escape(&d.level),
            d.clients.to_string(),
            text::number(d.tps),
            format!("<span title=\"runs: {}\">{}</span>", escape(&runs.join(", ")), latency(d.p50_us)),
            text::time(d.p99_us),
            optional(d.added_us, latency),
            optional(d.added_round_trips, text::times),
        ];
        row(&d.server, cells)
    };
    let charts = ["holdfast", "postgres"].into_iter().map(|server| chart(results, server));
    let mut parts: Vec<String> = charts.collect();
    parts.push(table(&COLUMNS, &results.distances.iter().map(cells).collect::<Vec<_>>()));
    let caption = "The link delivers everything half a round trip later, each way. The charts show what a level adds to the \
                   median latency of one client's commits, against local by way of the same link.";
    section("A standby at a distance", caption, &parts)
}

fn chart(results: &Results, server: &str) -> String {
    let one_client: Vec<&Distance> =
        results.distances.iter().filter(|d| d.server == server && d.clients == 1).collect();
    if one_client.is_empty() {
        return String::new();
    }
    let line = |class, label: &str, of: &dyn Fn(&Distance) -> Option<f64>| {
        let point = |d: &&Distance| {
            let y = of(d)?;
            let tooltip = format!("{label}, {}: {}", distance(d), latency(y));
            // Below zero is noise, and below the chart.
            Some(Mark { x: d.round_trip_ms, y: y.max(0.0), tooltip })
        };
        Series { class, label: label.into(), points: one_client.iter().filter_map(point).collect() }
    };
    let mut series: Vec<Series> = LINES
        .iter()
        .map(|(level, class)| line(class, level.name(), &|d| d.added_us.filter(|_| d.level == level.name())))
        .collect();
    series.push(line(ROUND_TRIP, "round trip", &|d| (d.level == Level::Local.name()).then_some(d.link_us)));
    let drawing = TimeChart {
        title: format!("Latency added by each level at {}", server_name(server)),
        x_title: "round trip that the link delays, in milliseconds",
        y_title: "added to a commit at local",
        y_text: text::time,
        y_steps: Steps::Tens,
        marks: vec![],
        series,
    };
    format!("<h3>{}</h3>\n{}", server_name(server), figure(&drawing.svg()))
}

/// The rate with each node on a core of its own.
pub fn own_cores(results: &Results) -> String {
    const COLUMNS: [Column; 11] = [
        ("Server", false),
        ("Level", false),
        ("Clients", true),
        ("A second", true),
        ("p50", true),
        ("p99", true),
        ("Master<br>CPU each", true),
        ("Standby<br>CPU each", true),
        ("Master's<br>core busy", true),
        ("by the<br>master", true),
        ("Standby's<br>core busy", true),
    ];
    let Some(first) = results.own_cores.first() else { return String::new() };
    let rows: Vec<_> = results
        .own_cores
        .iter()
        .map(|c| {
            let r = &c.rate;
            let runs: Vec<String> = r.runs.iter().map(|tps| text::number(*tps)).collect();
            let cells = vec![
                server_name(&r.server).into(),
                escape(&r.level),
                r.clients.to_string(),
                format!("<span title=\"runs: {}\">{}</span>", escape(&runs.join(", ")), text::number(r.tps)),
                text::time(r.p50_us),
                text::time(r.p99_us),
                optional(r.master_cpu_us, text::time),
                optional(r.standby_cpu_us, text::time),
                percent(c.master_core_busy),
                percent(c.master_core_own),
                percent(c.standby_core_busy),
            ];
            row(&r.server, cells)
        })
        .collect();
    let caption = format!(
        "{}. A core that is busier than the nodes on it make it has other work, which is none of the standby's.",
        escape(&first.places)
    );
    section("Each node on its own core", &caption, &[table(&COLUMNS, &rows)])
}

/// Several masters to one node.
pub fn shared_node(results: &Results) -> String {
    const COLUMNS: [Column; 9] = [
        ("Server", false),
        ("Masters to<br>one node", true),
        ("Offered<br>to each", true),
        ("A second<br>in all", true),
        ("p99 of the<br>slowest", true),
        ("Masters'<br>CPU each", true),
        ("Standbys'<br>CPU each", true),
        ("Mean lag", true),
        ("Most lag", true),
    ];
    if results.shared_node.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = results
        .shared_node
        .iter()
        .map(|s| {
            let cells = vec![
                server_name(&s.server).into(),
                s.masters.to_string(),
                text::number(s.offered_rate.round()),
                text::number(s.tps),
                text::time(s.p99_us),
                text::time(s.master_cpu_us),
                text::time(s.standby_cpu_us),
                bytes(s.lag_mean_bytes as f64),
                bytes(s.lag_most_bytes as f64),
            ];
            row(&s.server, cells)
        })
        .collect();
    let caption = "Processor time is all standbys', until they show everything, divided by all transactions. One master with the \
                   load of all is shown for comparison, as processor time falls where more transactions share a sync.";
    section("Three masters to one node", caption, &[table(&COLUMNS, &rows)])
}
