//! The report: one HTML file that needs nothing else, for a person. Charts first, then tables, then what it ran on
//! and what to keep in mind.

use crate::chart::{Chart, Labels, Mark, Series, escape};
use crate::configuration::Configuration;
use crate::paper::AUTHORIZATION_TERMS;
use crate::report_tables::{self as tables, NOTHING};
use crate::results::{ConfigurationResult, Fact, Options, Point, Results};
use crate::study_results::Finding;
use crate::text;
use crate::verdict::Verdict;

const STYLE: &str = include_str!("report.css");
/// Responses above are drawn at the chart's upper edge: past the knee they grow with the time of the run.
const RESPONSE_US_DRAWN_MAX: f64 = 1e6;

/// The whole file.
pub fn html(results: &Results) -> String {
    let mut out = head(results);
    out.push_str(&charts(results));
    out.push_str(&tables::peaks(results));
    out.push_str(&tables::pgbench(&results.pgbench));
    out.push_str(&tables::ratios(results));
    out.push_str(&tables::details(results));
    out.push_str(&ran_on(&results.machine, &asked(&results.options), &results.notes, &results.command));
    page("card authorization", &out)
}

/// A file that needs nothing else.
pub fn page(study: &str, body: &str) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str(&format!("<title>Holdfast lab: {study}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"));
    out.push_str(body);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn head(results: &Results) -> String {
    let mut out = title(
        "Card authorization",
        &results.product_version,
        &results.started_at,
        results.machine.first(),
        &results.paper,
        &lead(results),
    );
    out.push_str(&format!("<p class=\"soft\">{}</p>\n", escape(AUTHORIZATION_TERMS)));
    out.push_str(&failures(&results.failures));
    let headlines = results.ratios.iter().filter(|r| r.headline);
    out.push_str(&cards(headlines.map(|r| Card {
        figure: r.value.map_or_else(|| NOTHING.to_string(), |value| format!("{}×", text::times(value))),
        what: &r.what,
        expected: r.expected.as_deref(),
        verdict: r.verdict,
    })));
    out
}

/// The heading, what was measured when and where, and the finding in a sentence or two, already HTML.
pub fn title(name: &str, version: &str, started_at: &str, machine: Option<&Fact>, paper: &str, lead: &str) -> String {
    format!(
        "<h1>{name}</h1>\n<p class=\"meta\">Holdfast {} · {} UTC · {}</p>\n<p class=\"lead\">{lead}</p>\n\
         <p class=\"soft\">{}</p>\n",
        escape(version),
        escape(started_at),
        escape(machine.map_or("", |f| &f.value)),
        escape(paper)
    )
}

/// What could not be measured.
pub fn failures(failures: &[String]) -> String {
    if failures.is_empty() {
        return String::new();
    }
    let list: Vec<String> = failures.iter().map(|f| format!("<li>{}</li>\n", escape(f))).collect();
    format!("<p><strong>Some of it could not be measured.</strong></p>\n<ul>\n{}</ul>\n", list.concat())
}

/// A figure shown large, already HTML, with what it is and what was expected.
pub struct Card<'a> {
    pub figure: String,
    pub what: &'a str,
    pub expected: Option<&'a str>,
    pub verdict: Option<Verdict>,
}

/// Figures shown large, each in the colour of its verdict.
pub fn cards<'a>(figures: impl Iterator<Item = Card<'a>>) -> String {
    let card = |card: Card<'_>| {
        let class = card.verdict.map_or(String::new(), |verdict| format!(" {}", verdict.class()));
        let (what, verdict) = (escape(card.what), card.verdict.map_or(String::new(), Verdict::html));
        let word = if card.verdict.is_some() { "goal: " } else { "" };
        let expected = card.expected.map_or(String::new(), |e| format!("<small>{word}{}</small>", escape(e)));
        format!("<div class=\"card{class}\"><b>{}</b>{verdict}<span>{what}</span>{expected}</div>\n", card.figure)
    };
    let cards: Vec<String> = figures.map(card).collect();
    if cards.is_empty() { String::new() } else { format!("<div class=\"cards\">\n{}</div>\n", cards.concat()) }
}

/// The findings that are shown large.
pub fn headlines(findings: &[Finding]) -> String {
    cards(findings.iter().filter(|f| f.headline).map(|f| Card {
        figure: escape(&f.shown),
        what: &f.what,
        expected: f.goal.as_deref(),
        verdict: f.verdict,
    }))
}

/// The finding in a sentence or two, from this run's figures.
fn lead(results: &Results) -> String {
    let rate = |c| results.peak_rate(c).map(text::number);
    let mut out = String::from(
        "Each authorization reads a terminal by an alternate key and locks it, updates its 4072-byte record, and \
         writes a 998-byte log record with four alternate keys. ",
    );
    if let (Some(audited), Some(unaudited)) = (rate(Configuration::Audited), rate(Configuration::Unaudited)) {
        out.push_str(&format!(
            "With every answer durable, Holdfast completes <strong>{audited}</strong> a second; stock SQLite with each \
             statement its own physical commit completes {unaudited}"
        ));
        match rate(Configuration::SqliteFull) {
            Some(full) => out.push_str(&format!(", and {full} with one WAL transaction each.")),
            None => out.push('.'),
        }
    }
    out
}

fn charts(results: &Results) -> String {
    let measured = |in_process: bool| -> Vec<&ConfigurationResult> {
        let of = |c: &&ConfigurationResult| c.configuration.in_process() == in_process && !c.points.is_empty();
        results.configurations.iter().filter(of).collect()
    };
    let mut out = String::new();
    for (place, heading) in [(true, "In process"), (false, "Over the wire")] {
        let list = measured(place);
        if list.is_empty() {
            continue;
        }
        out.push_str(&format!("<h2>{heading}: what is completed of what is offered</h2>\n"));
        out.push_str(
            "<p class=\"caption\">Each line follows the dotted diagonal until it can keep up no longer.</p>\n",
        );
        out.push_str(&figure(&completed(&list).svg()));
        out.push_str(&format!("<h2>{heading}: how long an authorization takes</h2>\n"));
        out.push_str(
            "<p class=\"caption\">Mean response from the request's scheduled arrival to its answer, waiting included. \
             A line that leaves through the top is saturated. Point at a dot for its percentiles.</p>\n",
        );
        out.push_str(&figure(&response(&list).svg()));
    }
    out
}

/// A drawing.
pub fn figure(svg: &str) -> String {
    format!("<figure class=\"scroll\" tabindex=\"0\">\n{svg}</figure>\n")
}

fn completed(list: &[&ConfigurationResult]) -> Chart {
    Chart {
        title: "Completed rate against offered load".into(),
        x_title: "offered, authorizations a second",
        y_title: "completed a second",
        x_text: text::short,
        y_text: text::short,
        labels: Labels::Right,
        diagonal: Some("everything offered"),
        y_max: None,
        series: series(list, |p| p.completed_rate),
    }
}

fn response(list: &[&ConfigurationResult]) -> Chart {
    Chart {
        title: "Mean response time against offered load".into(),
        x_title: "offered, authorizations a second",
        y_title: "mean response",
        x_text: text::short,
        y_text: text::time,
        labels: Labels::Above,
        diagonal: None,
        y_max: Some(RESPONSE_US_DRAWN_MAX),
        series: series(list, |p| p.response.mean_us),
    }
}

/// A line for each configuration; audited last, so that it lies on top.
fn series(list: &[&ConfigurationResult], y: impl Fn(&Point) -> f64) -> Vec<Series> {
    let mut list = list.to_vec();
    list.sort_by_key(|c| c.configuration == Configuration::Audited);
    let line = |c: &&ConfigurationResult| Series {
        class: class(c.configuration),
        label: c.configuration.label().to_string(),
        points: c
            .points
            .iter()
            .filter_map(|p| Some(Mark { x: p.offered_rate?, y: y(p), tooltip: tooltip(c.configuration, p) }))
            .collect(),
    };
    list.iter().map(line).collect()
}

fn tooltip(configuration: Configuration, p: &Point) -> String {
    let r = &p.response;
    format!(
        "{}: {} of {} a second completed\nmean {}, p50 {}, p99 {}, p99.9 {}",
        configuration.label(),
        text::number(p.completed_rate),
        text::number(p.offered_rate.unwrap_or_default()),
        text::time(r.mean_us),
        text::time(r.p50_us as f64),
        text::time(r.p99_us as f64),
        text::time(r.p999_us as f64)
    )
}

/// The style sheet's class for a configuration's colour.
pub fn class(configuration: Configuration) -> &'static str {
    match configuration {
        Configuration::Audited | Configuration::AuditedWirePipeline => "audited",
        Configuration::AuditedWireSimple => "audited-2",
        Configuration::Autotmf => "autotmf",
        Configuration::Unaudited => "unaudited",
        Configuration::Buffered => "buffered",
        Configuration::Nainsert => "nainsert",
        Configuration::SqliteFull => "sqlite-full",
        Configuration::SqliteNormal => "sqlite-normal",
        Configuration::SqliteOff => "sqlite-off",
        Configuration::CaptureTriggers => "capture",
        Configuration::PostgresPipeline => "postgres",
        Configuration::PostgresSimple => "postgres-2",
    }
}

/// What the run was asked to do.
fn asked(o: &Options) -> Vec<Fact> {
    let clients: Vec<String> = o.clients.iter().map(usize::to_string).collect();
    let delay = match o.disk_sync_ms {
        0 => "none: syncs take what the disk takes".to_string(),
        ms => format!("{ms} ms added to every sync of the in-process configurations"),
    };
    vec![
        Fact::new("Seconds a point", text::number(o.seconds_per_point)),
        Fact::new("Clients", clients.join(", ")),
        Fact::new("Log rows before, in process", text::number(o.log_rows_in_process as f64)),
        Fact::new("Log rows before, over the wire", text::number(o.log_rows_wire as f64)),
        Fact::new("Sync delay", delay),
    ]
}

/// What the figures hang on, and how to repeat the run.
pub fn ran_on(machine: &[Fact], asked: &[Fact], notes: &[String], command: &str) -> String {
    let mut out = String::from("<h2>What it ran on</h2>\n");
    out.push_str(&definitions(&[machine, asked].concat()));
    out.push_str("<h2>What to keep in mind</h2>\n<ul>\n");
    for note in notes {
        out.push_str(&format!("<li>{}</li>\n", escape(note)));
    }
    out.push_str("</ul>\n<h2>To repeat it</h2>\n");
    out.push_str(&format!("<pre>{}</pre>\n", escape(command)));
    out
}

/// Names and values.
pub fn definitions(facts: &[Fact]) -> String {
    let rows: Vec<String> =
        facts.iter().map(|f| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&f.name), escape(&f.value))).collect();
    format!("<dl>\n{}</dl>\n", rows.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn the_report_is_the_golden_one() {
        let html = html(&sample::results());
        let without_style = html.replace(STYLE, "");
        crate::golden::check("report.html", &without_style);
    }

    #[test]
    fn the_report_needs_nothing_else() {
        let html = html(&sample::results());
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.matches("<svg").count() >= 4);
    }

    #[test]
    fn the_paper_is_named_and_its_terms_are_explained_at_first_use() {
        let html = html(&sample::results());
        assert!(html.contains("The study of R. Carr"));
        for (term, explained) in [("NAInsert", "NAInsert is the paper"), ("AutoTMF", "AutoTMF is an HP product")] {
            assert_eq!(html.find(term), html.find(explained), "{term}");
        }
    }

    #[test]
    fn each_goal_has_a_mark_and_its_own_colour() {
        let mut results = sample::results();
        results.pgbench[0].tps = 20_000.0;
        results.ratios = crate::ratios::ratios(&results);
        let html = html(&results);
        // 20,000 against 12,500 is less than the goal; the processor time is within its goal; five messages did not run.
        assert!(html.contains("<div class=\"card missed\"><b>1.6×</b><span class=\"verdict missed\">✗ missed</span>"));
        assert!(
            html.contains("<td class=\"n\">0.38×</td><td>at most 0.4</td><td><span class=\"verdict met\">✓ met</span>")
        );
        assert!(html.contains("<td class=\"n\">–</td><td>at least 1.5</td><td><span class=\"verdict not-measured\">"));
        let summary = crate::summary::text(&results);
        assert!(
            summary.contains("✗ missed            1.6×") && summary.contains("✓ met              0.38×"),
            "{summary}"
        );
        assert!(summary.contains("Goals: 1 met, 1 missed, 4 not measured"), "{summary}");
        let json = serde_json::to_value(&results).unwrap();
        let verdicts: Vec<_> = json["ratios"].as_array().unwrap().iter().map(|r| r["verdict"].clone()).collect();
        assert!(verdicts.contains(&"missed".into()) && verdicts.contains(&"not_measured".into()), "{verdicts:?}");
    }

    #[test]
    fn wide_tables_and_drawings_scroll_within_the_page() {
        let html = html(&sample::results());
        assert_eq!(html.matches("<table>").count(), html.matches(&format!("{}<table>", tables::SCROLL)).count());
        assert_eq!(
            html.matches("<svg").count(),
            html.matches("<figure class=\"scroll\" tabindex=\"0\">\n<svg").count()
        );
        assert!(STYLE.contains(".scroll { overflow-x: auto;"));
    }

    #[test]
    fn results_survive_json() {
        let results = sample::results();
        let text = serde_json::to_string(&results).unwrap();
        let read: Results = serde_json::from_str(&text).unwrap();
        assert_eq!((&read.configurations.len(), &read.notes), (&results.configurations.len(), &results.notes));
        assert_eq!(read.configurations[0].points[3].response, results.configurations[0].points[3].response);
        assert!(text.contains("\"schema\":\"holdfast-lab-authorization/1\""));
    }
}
