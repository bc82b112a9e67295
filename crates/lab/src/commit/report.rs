//! The report: one HTML file that needs nothing else. Goals first, then a chart and a table for each disk, the paper's
//! table, sync methods, and what it ran on.

use super::report_tables::{self as tables, PAPER, PAPER_CLIENTS};
use super::results::{Rate, Results};
use crate::bars::{Bar, Bars, Group};
use crate::chart::{Chart, Labels, Mark, Series};
use crate::interactive::report::goals;
use crate::report::{failures, figure, headlines, page, ran_on, title};
use crate::server::server_name;
use crate::text;

const LEAD: &str = "Short transactions, each answered when it is durable: how many a second, by how many clients, when \
    the server waits a moment for more of them to share a sync.";

/// The whole file.
pub fn html(results: &Results) -> String {
    let (version, at) = (&results.head.product_version, &results.head.started_at);
    let mut out = title("Durable commits", version, at, results.head.machine.first(), &results.head.paper, LEAD);
    out.push_str(&failures(&results.failures));
    out.push_str(&headlines(&results.findings));
    for (disk, heading) in [("paper", "The paper's disk, 13 ms a sync"), ("real", "The real disk")] {
        out.push_str(&disk_section(results, disk, heading));
    }
    out.push_str(&conditions(results));
    out.push_str(&sync_methods(results));
    out.push_str(&goals(&results.findings));
    out.push_str(&ran_on(&results.head.machine, &results.head.options, &results.notes, &results.head.command));
    page("durable commits", &out)
}

fn disk_section(results: &Results, disk: &str, heading: &str) -> String {
    let keys = tables::servers_and_delays(results, disk);
    if keys.is_empty() {
        return String::new();
    }
    let clients = tables::usual_clients(results, disk);
    let mut series: Vec<Series> = Vec::new();
    for (server, delay) in &keys {
        let rates = clients.iter().filter_map(|n| results.rate(server, disk, (true, true), delay, *n));
        // Of the peer's delays only the best at each number of clients is drawn; the table has all.
        if server == "holdfast" {
            let label = format!("delay {}", tables::delay(delay));
            series.push(Series { class: class(delay), label, points: rates.map(mark).collect() });
        }
    }
    let peer = clients.iter().filter_map(|n| results.best("postgres", disk, *n, true)).map(mark).collect::<Vec<_>>();
    if !peer.is_empty() {
        series.push(Series { class: "postgres", label: "PostgreSQL, its best".into(), points: peer });
    }
    if disk == "paper" {
        series.push(paper_series(true, true, "the paper's own"));
    }
    format!(
        "<h2>{heading}</h2>\n<p class=\"caption\">Commits a second by number of clients, cache and barrier on. Point at \
         a figure for its runs.</p>\n{}{}",
        figure(&chart(heading, series).svg()),
        tables::delays(results, disk)
    )
}

fn chart(title: &str, series: Vec<Series>) -> Chart {
    Chart {
        title: title.into(),
        x_title: "clients",
        y_title: "commits a second",
        x_text: text::short,
        y_text: text::short,
        labels: Labels::Right,
        diagonal: None,
        y_max: None,
        series,
    }
}

fn class(delay: &str) -> &'static str {
    match delay {
        "auto" => "audited",
        "0" => "unaudited",
        "1000" => "buffered",
        "2000" => "nainsert",
        _ => "autotmf",
    }
}

fn mark(rate: &Rate) -> Mark {
    let tooltip = format!(
        "{}, delay {}, {}: {} a second, mean {}",
        server_name(&rate.server),
        tables::delay(&rate.delay),
        text::clients(rate.clients),
        text::number(rate.tps),
        text::time(rate.mean_us)
    );
    Mark { x: rate.clients as f64, y: rate.tps, tooltip }
}

fn paper_series(cache: bool, barrier: bool, label: &str) -> Series {
    let figures = PAPER.iter().find(|row| (row.0, row.1) == (cache, barrier)).map_or([0; 5], |row| row.2);
    let point = |(n, tps): (usize, u32)| Mark {
        x: n as f64,
        y: f64::from(tps),
        tooltip: format!("the paper, {}: {tps} a second", text::clients(n)),
    };
    let points = PAPER_CLIENTS.into_iter().zip(figures).map(point).collect();
    Series { class: "sqlite-off", label: label.into(), points }
}

fn conditions(results: &Results) -> String {
    let is = |cache: bool, barrier: bool| {
        let of = |n: &usize| results.rate("holdfast", "paper", (cache, barrier), "auto", *n);
        PAPER_CLIENTS.iter().filter_map(of).map(mark).collect::<Vec<_>>()
    };
    let all = [
        ("audited", "cache on, barrier on", is(true, true)),
        ("nainsert", "cache off, barrier on", is(false, true)),
        ("autotmf", "cache off, no barrier", is(false, false)),
        ("unaudited", "cache on, no barrier", is(true, false)),
    ];
    let mut series: Vec<Series> = all
        .into_iter()
        .filter(|(.., points)| !points.is_empty())
        .map(|(class, label, points)| Series { class, label: label.into(), points })
        .collect();
    if series.is_empty() {
        return String::new();
    }
    series.push(paper_series(true, true, "the paper, both on"));
    series.push(paper_series(true, false, "the paper, no barrier"));
    format!(
        "<h2>Write cache and barrier</h2>\n<p class=\"caption\">The paper's table. Cache on without a barrier loses \
         acknowledged commits in a power cut: it is safe with protected power only.</p>\n{}{}",
        figure(&chart("Commits a second by write cache and barrier", series).svg()),
        tables::conditions(results)
    )
}

fn sync_methods(results: &Results) -> String {
    if results.sync_methods.is_empty() {
        return String::new();
    }
    let mut groups: Vec<Group> = Vec::new();
    for s in &results.sync_methods {
        let label = format!("{} on the {} disk", s.method, s.disk);
        let bar = Bar { class: "audited", name: "syncs a second, no server", value: s.syncs_rate };
        groups.push(Group { label, bars: vec![bar] });
    }
    let drawing = Bars { title: "Syncs a second by method".into(), text: text::number, groups };
    let clients = tables::method_clients(results);
    let of_clients = match clients.as_slice() {
        [] => String::new(),
        [1] => ", and what 1 client of the server gets by the same method".to_string(),
        counts => format!(", and what {} clients of the server get by the same method", text::list(counts)),
    };
    format!(
        "<h2>Sync methods</h2>\n<p class=\"caption\">A 4 KiB block written and made durable, as pg_test_fsync \
         does{of_clients}.</p>\n{}{}",
        figure(&drawing.svg()),
        tables::sync_methods(results)
    )
}

#[cfg(test)]
mod tests {
    use super::super::{findings, sample};
    use super::*;

    fn sample_html() -> String {
        let mut results = sample::results();
        results.findings = findings::findings(&results);
        html(&results)
    }

    #[test]
    fn the_papers_figures_stand_beside_this_runs() {
        let html = sample_html();
        for part in
            ["the paper, 80 clients: 586 a second", "4\u{2009}500</span>", "PostgreSQL, its best", "two &lt;cores&gt;"]
        {
            assert!(html.contains(part), "{part}");
        }
        assert!(html.contains("Some of it could not be measured") && html.contains("missed"));
    }

    #[test]
    fn the_text_names_the_clients_that_ran() {
        let of = |clients: &[usize]| {
            let mut results = sample::results();
            results.rates.retain(|rate| rate.method != "fsync");
            let point = |n: &usize| Rate { method: "fdatasync".into(), ..sample::rate("holdfast", "auto", *n, 70.0) };
            results.rates.extend(clients.iter().map(point));
            html(&results)
        };
        assert!(of(&[1, 20]).contains("what 1 and 20 clients of the server get"));
        assert!(of(&[1, 40]).contains("what 1 and 40 clients of the server get"));
        assert!(of(&[]).contains("as pg_test_fsync does.</p>"));
    }

    #[test]
    fn the_report_needs_nothing_else() {
        let html = sample_html();
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<svg").count(), 3);
    }
}
