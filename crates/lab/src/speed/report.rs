//! The report: one HTML file that needs nothing else. Goals first, then the table, charts, and what it ran on.

use super::results::{Figures, Line, Results, Spread};
use super::row::Unit;
use super::summary::worse;
use super::{report_floor, report_history};
use crate::bars::{Bar, Bars, Group};
use crate::chart::escape;
use crate::interactive::report::{bar, goals};
use crate::report::{definitions, failures, figure, headlines, page, ran_on, title};
use crate::report_tables::{Column, Row, optional, table};
use crate::server::{Kind, server_name};
use crate::text;

const LEAD: &str = "Holdfast and PostgreSQL by turns on the same machine, both durable: transactions a second, and what each \
    transaction costs the processor.";

/// The whole file.
pub fn html(results: &Results) -> String {
    let (version, at) = (&results.head.product_version, &results.head.started_at);
    let mut out = title("Speed", version, at, results.head.machine.first(), &results.head.paper, LEAD);
    out.push_str(&failures(&results.failures));
    out.push_str(&headlines(&results.findings));
    out.push_str(&goals(&results.findings));
    out.push_str(&lines(&results.lines));
    let rates: Vec<&Line> = results.lines.iter().filter(|line| line.row.unit() == Unit::PerSecond).collect();
    out.push_str(&bars(&rates, "Transactions a second", text::number, |f| Some(f.value)));
    let cpu = "Processor time of the server for each transaction";
    out.push_str(&bars(&rates, cpu, text::time, |f| f.cpu_us));
    out.push_str(&report_floor::html(&results.lines));
    out.push_str(&report_history::html(results));
    for server in &results.servers {
        let settings = definitions(&server.settings);
        out.push_str(&format!("<h2>Settings of {}</h2>\n{settings}", server_name(&server.server)));
    }
    out.push_str(&ran_on(&results.head.machine, &results.head.options, &results.notes, &results.head.command));
    page("speed", &out)
}

/// The table of all rows.
fn lines(lines: &[Line]) -> String {
    const COLUMNS: [Column; 8] = [
        ("Row", false),
        ("Clients", true),
        ("Holdfast", true),
        ("PostgreSQL", true),
        ("Ratio", true),
        ("Holdfast<br>CPU each", true),
        ("PostgreSQL<br>CPU each", true),
        ("CPU ratio", true),
    ];
    let rows: Vec<Row> = lines.iter().map(row).collect();
    format!(
        "<h2>Row by row</h2>\n<p class=\"caption\">Transactions a second, medians of the turns. A ratio is Holdfast's figure as a multiple of \
         PostgreSQL's, with the lowest and the highest of the rounds below it.</p>\n{}",
        table(&COLUMNS, &rows)
    )
}

fn row(line: &Line) -> Row {
    let missing: Vec<String> = line
        .missing
        .iter()
        .map(|why| format!("<br><span class=\"soft\">not measured: {}</span>", escape(why)))
        .collect();
    let flags = line.changes.iter().filter(|change| change.worse);
    let flags: Vec<String> =
        flags.map(|change| format!("<br><span class=\"verdict missed\">{}</span>", escape(&worse(change)))).collect();
    let rate = |figures: Option<Figures>| optional(figures.map(|f| f.value), |value| line.row.show(value));
    let cpu = |figures: Option<Figures>| optional(figures.and_then(|f| f.cpu_us), text::time);
    let cells = vec![
        escape(&line.what) + &missing.concat() + &flags.concat(),
        line.clients.to_string(),
        rate(line.holdfast),
        rate(line.postgres),
        spread(line.ratio),
        cpu(line.holdfast),
        cpu(line.postgres),
        spread(line.cpu_ratio),
    ];
    Row { class: if line.holdfast.is_some() { "" } else { "skipped" }, cells }
}

fn spread(spread: Option<Spread>) -> String {
    let Some(Spread { median, lowest, highest }) = spread else { return optional(None, text::times) };
    let range = format!("{} to {}", text::times(lowest), text::times(highest));
    format!("{}×<br><span class=\"soft\">{range}</span>", text::times(median))
}

/// A drawing of one figure of every row that has it.
fn bars(lines: &[&Line], title: &str, text: fn(f64) -> String, value: impl Fn(&Figures) -> Option<f64>) -> String {
    let group = |line: &&Line| {
        let of = |kind: Kind, figures: Option<Figures>| Some(bar(kind.name(), value(&figures?)?));
        let bars: Vec<Bar> =
            [of(Kind::Holdfast, line.holdfast), of(Kind::Postgres, line.postgres)].into_iter().flatten().collect();
        Group { label: format!("{}, {}", line.what, text::clients(line.clients)), bars }
    };
    let groups: Vec<Group> = lines.iter().map(group).filter(|group| !group.bars.is_empty()).collect();
    if groups.is_empty() {
        return String::new();
    }
    let drawing = Bars { title: title.to_string(), text, groups };
    format!("<h2>{title}</h2>\n{}", figure(&drawing.svg()))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_row_without_a_peer_shows_why() {
        let html = html(&sample::results());
        assert!(html.contains("not measured: PostgreSQL: no &lt;initdb&gt; here"), "{html}");
    }

    #[test]
    fn a_row_that_became_worse_is_flagged() {
        let html = html(&sample::results());
        let flag = "▼ ratio worse than in earlier runs: 0.9, it was 1 (-10 %)";
        assert_eq!(html.matches(flag).count(), 1, "{html}");
        assert!(!html.contains("▼ CPU ratio"), "{html}");
    }

    #[test]
    fn the_report_needs_nothing_else() {
        let html = html(&sample::results());
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<svg").count(), 3);
    }
}
