//! The report's parts over time: catch-up, the large transaction, the governor and its laws, queries on the standby.
//!
//! Failure: none; a part without figures is left out.

use super::report::class;
use super::results::{CatchUp, Governed, LargeTransaction, Law, Reporting, Results};
use super::summary_nodes::percent;
use super::timeline::{Moment, Timeline};
use crate::chart::{Series, escape};
use crate::report::figure;
use crate::report_tables::{Column, Row, optional, table};
use crate::server::server_name;
use crate::text;
use crate::time_chart::{SECONDS, Steps, TimeChart, mark};

fn rate_line(class: &'static str, label: &str, timeline: &Timeline) -> Series {
    line(class, label, &timeline.each_second(|m| Some(m.answered)), text::number)
}

fn lag_line(class: &'static str, label: &str, timeline: &Timeline) -> Series {
    let lag = |m: &Moment| Some((m.at_s, m.lag_bytes()? as f64));
    line(class, label, &timeline.0.iter().filter_map(lag).collect::<Vec<_>>(), bytes)
}

fn line(class: &'static str, label: &str, points: &[(f64, f64)], show: fn(f64) -> String) -> Series {
    let points = points.iter().map(|(at, value)| mark(label, *at, *value, show)).collect();
    Series { class, label: label.into(), points }
}

/// Bytes that were counted as a number.
pub fn bytes(value: f64) -> String {
    text::bytes(value as u64)
}

fn rate_bytes(value: f64) -> String {
    format!("{}/s", bytes(value))
}

fn rates(title: &str, marks: &[(f64, String)], series: Vec<Series>) -> String {
    let y_title = "transactions a second";
    figure(
        &TimeChart {
            title: title.into(),
            x_title: SECONDS,
            y_title,
            y_text: text::short,
            y_steps: Steps::Tens,
            marks: marks.to_vec(),
            series,
        }
        .svg(),
    )
}

fn lags(title: &str, marks: &[(f64, String)], series: Vec<Series>) -> String {
    let y_title = "behind the master";
    figure(
        &TimeChart {
            title: title.into(),
            x_title: SECONDS,
            y_title,
            y_text: bytes,
            y_steps: Steps::Twos,
            marks: marks.to_vec(),
            series,
        }
        .svg(),
    )
}

/// A part with its heading.
pub fn section(heading: &str, caption: &str, parts: &[String]) -> String {
    format!("<h2>{heading}</h2>\n<p class=\"caption\">{caption}</p>\n{}", parts.concat())
}

/// A row that is Holdfast's stands out.
pub fn row(server: &str, cells: Vec<String>) -> Row {
    Row { class: if server == "holdfast" { "audited" } else { "" }, cells }
}

/// A standby that was away.
pub fn catch_ups(list: &[CatchUp]) -> String {
    const COLUMNS: [Column; 10] = [
        ("Server", false),
        ("While it catches up", false),
        ("Missing", true),
        ("Over the link", true),
        ("First copy", true),
        ("Start to<br>caught up", true),
        ("Catch-up", true),
        ("Catch-up,<br>transactions a second", true),
        ("Standby<br>CPU each", true),
        ("The load's rate", true),
    ];
    if list.is_empty() {
        return String::new();
    }
    let cells = |c: &CatchUp| {
        let cells = vec![
            server_name(&c.server).into(),
            if c.load_goes_on { "the load continues" } else { "no load" }.into(),
            bytes(c.missing_bytes as f64),
            optional(c.link_bytes.map(|b| b as f64), bytes),
            bytes(c.copy_bytes as f64),
            c.seconds.map_or("not within the run".into(), |s| text::time(s * 1e6)),
            rate_bytes(c.catch_up_bytes_rate),
            text::number(c.catch_up_tps),
            optional(c.standby_cpu_us, text::time),
            format!("{}, {} transactions", rate_bytes(c.load_bytes_rate), text::number(c.load_tps)),
        ];
        row(&c.server, cells)
    };
    let mut parts = vec![table(&COLUMNS, &list.iter().map(cells).collect::<Vec<_>>())];
    let under_load: Vec<&CatchUp> = list.iter().filter(|c| c.load_goes_on).collect();
    let lag = |c: &&CatchUp| lag_line(class(&c.server), server_name(&c.server), &c.timeline);
    parts.push(lags("Lag of a standby that comes back", &[], under_load.iter().map(lag).collect()));
    let caption = "The standby is stopped while a load runs, and started again behind a link that counts bytes. The chart \
                   begins a line where the standby is back while the load continues.";
    section("A standby that was away", caption, &parts)
}

/// One large transaction.
pub fn large(list: &[LargeTransaction]) -> String {
    const COLUMNS: [Column; 8] = [
        ("Server", false),
        ("Acknowledged<br>after", true),
        ("Shown at the<br>standby after", true),
        ("Others<br>before", true),
        ("Others<br>meanwhile", true),
        ("Slowest<br>second", true),
        ("Most lag", true),
        ("Memory, master and standby:<br>before, at most", false),
    ];
    let Some(first) = list.first() else { return String::new() };
    let cells = |l: &LargeTransaction| {
        let memory = |before: Option<u64>, most: Option<u64>| {
            format!("{}, {}", optional(before.map(|b| b as f64), bytes), optional(most.map(|b| b as f64), bytes))
        };
        let cells = vec![
            server_name(&l.server).into(),
            text::time((l.ended_s - l.began_s) * 1e6),
            text::time((l.shown_s - l.began_s) * 1e6),
            optional(l.tps_before, text::number),
            optional(l.tps_meanwhile, text::number),
            optional(l.tps_slowest, text::number),
            optional(l.lag_most_bytes.map(|b| b as f64), bytes),
            format!(
                "{}; {}",
                memory(l.master_memory_before_bytes, l.master_memory_most_bytes),
                memory(l.standby_memory_before_bytes, l.standby_memory_most_bytes)
            ),
        ];
        row(&l.server, cells)
    };
    let mut parts = vec![table(&COLUMNS, &list.iter().map(cells).collect::<Vec<_>>())];
    for l in list {
        let marks = [(l.began_s, "sent".to_string()), (l.ended_s, "done".into()), (l.shown_s, "shown".into())];
        parts.push(format!("<h3>{}</h3>\n", server_name(&l.server)));
        parts.push(rates("Rate of the others", &marks, vec![rate_line(class(&l.server), "the others", &l.timeline)]));
        parts.push(lags("Lag of the standby", &marks, vec![lag_line(class(&l.server), "lag", &l.timeline)]));
    }
    let heading = format!("One transaction of {} in mid-load", text::bytes(first.row_bytes));
    section(&heading, "The others' transactions a second, and how far the standby's readers are behind.", &parts)
}

/// Queries on the standby.
pub fn reporting(list: &[Reporting]) -> String {
    const COLUMNS: [Column; 9] = [
        ("Server", false),
        ("Log rows", true),
        ("Query alone", true),
        ("Query during<br>the load", true),
        ("Queries", true),
        ("Master's rate<br>without", true),
        ("with", true),
        ("Most lag<br>without", true),
        ("with", true),
    ];
    if list.is_empty() {
        return String::new();
    }
    let cells = |r: &Reporting| {
        let cells = vec![
            server_name(&r.server).into(),
            text::number(r.log_rows as f64),
            text::time(r.alone_ms * 1e3),
            text::time(r.mean_ms * 1e3),
            r.queries.to_string(),
            text::number(r.tps_without),
            text::number(r.tps_with),
            optional(r.lag_most_without_bytes.map(|b| b as f64), bytes),
            optional(r.lag_most_with_bytes.map(|b| b as f64), bytes),
        ];
        row(&r.server, cells)
    };
    let caption =
        "One client groups and sorts the whole log on the standby, again and again, while the master has its load.";
    section("Reports on the standby", caption, &[table(&COLUMNS, &list.iter().map(cells).collect::<Vec<_>>())])
}

/// A load past the standby's capacity, and the laws.
pub fn governor(results: &Results) -> String {
    const COLUMNS: [Column; 14] = [
        ("Server", false),
        ("Governor", false),
        ("Load when<br>free", true),
        ("Capacity", true),
        ("Load<br>/ capacity", true),
        ("For", true),
        ("A second", true),
        ("Variation", true),
        ("with the<br>way up", true),
        ("Too much<br>in", true),
        ("Variation<br>then", true),
        ("Slowest second<br>/ mean", true),
        ("Applied<br>/ capacity", true),
        ("Most lag", true),
    ];
    let list = &results.governed;
    if list.is_empty() {
        return String::new();
    }
    let plain = |v: f64| format!("{v:.3}");
    let cells = |g: &Governed| {
        let cells = vec![
            server_name(&g.server).into(),
            match g.lag_bytes_max {
                0 => escape(&g.governor),
                most => format!("{}, W = {}", escape(&g.governor), text::bytes(most)),
            },
            rate_bytes(g.load_bytes_rate),
            rate_bytes(g.capacity_bytes_rate),
            text::times(g.load_factor),
            text::time(g.seconds * 1e6),
            optional(g.mean_tps, text::number),
            optional(g.variation, plain),
            optional(g.variation_whole, plain),
            optional(g.behind_share, percent),
            optional(g.variation_behind, plain),
            optional(g.slowest_share, plain),
            optional(g.applied_share, plain),
            optional(g.lag_most_bytes.map(|b| b as f64), bytes),
        ];
        row(&g.server, cells)
    };
    let least = list.iter().map(|g| g.load_factor).fold(f64::INFINITY, f64::min);
    let colour = |g: &Governed| match (g.server.as_str(), g.governor.as_str(), g.load_factor > least) {
        ("holdfast", "on", false) => "audited",
        ("holdfast", "on", true) => "audited-2",
        ("holdfast", ..) => "unaudited",
        (.., false) => "postgres",
        (.., true) => "postgres-2",
    };
    let label = |g: &Governed| format!("{}, {}, {}×", server_name(&g.server), g.governor, text::times(g.load_factor));
    let parts = [
        table(&COLUMNS, &list.iter().map(cells).collect::<Vec<_>>()),
        rates(
            "Rate past the capacity",
            &[],
            list.iter().map(|g| rate_line(colour(g), &label(g), &g.timeline)).collect(),
        ),
        lags("Lag past the capacity", &[], list.iter().map(|g| lag_line(colour(g), &label(g), &g.timeline)).collect()),
        laws(&results.laws),
    ];
    let caption = "The load writes more than the link lets through, by the factor shown. With its governor the master slows down to what \
                   the link lets through; without, the standby falls behind for as long as the load lasts. The first quarter is the way up and not judged.";
    section("A load past the standby's capacity", caption, &parts)
}

fn laws(list: &[Law]) -> String {
    const COLUMNS: [Column; 5] = [
        ("Law", false),
        ("Variation of<br>the 1 s rate", true),
        ("Slowest second<br>/ mean", true),
        ("Applied<br>/ capacity", true),
        ("Most lag / W", true),
    ];
    if list.is_empty() {
        return String::new();
    }
    let plain = |v: f64| format!("{v:.3}");
    let cells = |l: &Law| {
        let law = if l.in_use { format!("{}, in use", escape(&l.law)) } else { escape(&l.law) };
        let figures = [l.variation, l.slowest_share, l.applied_share, l.lag_most_share].map(plain);
        Row { class: if l.in_use { "audited" } else { "" }, cells: std::iter::once(law).chain(figures).collect() }
    };
    let drawn = |l: &Law| {
        let points: Vec<(f64, f64)> = l.bytes_rates.iter().zip(1..).map(|(b, s)| (f64::from(s), *b as f64)).collect();
        line(if l.in_use { "audited" } else { "unaudited" }, &l.law, &points, rate_bytes)
    };
    let shown = list.iter().filter(|l| l.in_use || l.law == "relay").map(drawn).collect();
    let chart = TimeChart {
        title: "The law in use and a relay".into(),
        x_title: SECONDS,
        y_title: "written a second",
        y_text: bytes,
        y_steps: Steps::Twos,
        marks: vec![],
        series: shown,
    };
    format!(
        "<h3>The laws in the simulation they were chosen by</h3>\n<p class=\"caption\">Load 1.3 times the capacity of \
         20 MB/s for five minutes, W = 64 MiB, a pause of 0.3 s every ten seconds. Relay: Galera, Rdb. Quota: MySQL Group \
         Replication.</p>\n{}{}",
        table(&COLUMNS, &list.iter().map(cells).collect::<Vec<_>>()),
        figure(&chart.svg())
    )
}
