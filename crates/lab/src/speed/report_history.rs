//! Earlier runs and this one: the ratios as lines, and each row's figures as a table.

use super::results::{Earlier, EarlierLine, Line, Results};
use crate::chart::{Mark, Series, escape};
use crate::report::figure;
use crate::report_tables::{Column, Row, optional, table};
use crate::text;
use crate::time_chart::{Steps, TimeChart};

/// Lines' colours, as the style sheet calls them.
const CLASSES: [&str; 11] = [
    "audited",
    "audited-2",
    "autotmf",
    "unaudited",
    "buffered",
    "nainsert",
    "sqlite-full",
    "sqlite-normal",
    "capture",
    "postgres",
    "postgres-2",
];

/// Nothing where there is no earlier run.
pub fn html(results: &Results) -> String {
    if results.history.is_empty() {
        return String::new();
    }
    let this = Earlier {
        started_at: results.head.started_at.clone(),
        product_version: results.head.product_version.clone(),
        lines: results.lines.iter().map(earlier_line).collect(),
    };
    let runs: Vec<&Earlier> = results.history.iter().chain([&this]).collect();
    let series: Vec<Series> = results
        .lines
        .iter()
        .zip(CLASSES.into_iter().cycle())
        .filter_map(|(line, class)| series(line, class, &runs))
        .collect();
    let chart = TimeChart {
        title: "Rates against PostgreSQL, run by run".into(),
        x_title: "run",
        y_title: "Holdfast's rate as a multiple of PostgreSQL's",
        y_text: text::times,
        y_steps: Steps::Tens,
        marks: Vec::new(),
        series,
    };
    let drawing = if chart.series.is_empty() { String::new() } else { figure(&chart.svg()) };
    format!(
        "<h2>Earlier runs</h2>\n<p class=\"caption\">With the same options on the same processor, from the files in this \
         directory; the last one is this run.</p>\n{drawing}{}",
        figures(results, &runs)
    )
}

fn earlier_line(line: &Line) -> EarlierLine {
    EarlierLine {
        row: line.row.name().to_string(),
        value: line.holdfast.map(|figures| figures.value),
        ratio: line.ratio.map(|ratio| ratio.median),
        cpu_ratio: line.cpu_ratio.map(|ratio| ratio.median),
    }
}

fn of<'a>(run: &'a Earlier, line: &Line) -> Option<&'a EarlierLine> {
    run.lines.iter().find(|found| found.row == line.row.name())
}

/// A row's ratio in each run that has it.
fn series(line: &Line, class: &'static str, runs: &[&Earlier]) -> Option<Series> {
    let mark = |(n, run): (usize, &&Earlier)| {
        let ratio = of(run, line)?.ratio?;
        let tooltip = format!("{}, {}: {}", line.row.name(), run.started_at, text::times(ratio));
        Some(Mark { x: (n + 1) as f64, y: ratio, tooltip })
    };
    let points: Vec<Mark> = runs.iter().enumerate().filter_map(mark).collect();
    (!points.is_empty()).then(|| Series { class, label: line.row.name().to_string(), points })
}

/// A line for each row and run.
fn figures(results: &Results, runs: &[&Earlier]) -> String {
    const COLUMNS: [Column; 6] = [
        ("Row", false),
        ("Run (UTC)", false),
        ("Version", false),
        ("Holdfast", true),
        ("Ratio", true),
        ("CPU ratio", true),
    ];
    let row = |line: &Line, run: &Earlier| {
        let found = of(run, line)?;
        let cells = vec![
            escape(line.row.name()),
            escape(&run.started_at),
            escape(&run.product_version),
            optional(found.value, |value| line.row.show(value)),
            optional(found.ratio, text::times),
            optional(found.cpu_ratio, text::times),
        ];
        Some(Row { class: "", cells })
    };
    let rows: Vec<Row> =
        results.lines.iter().flat_map(|line| runs.iter().filter_map(move |run| row(line, run))).collect();
    table(&COLUMNS, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn each_run_of_a_row_is_a_line() {
        let mut results = sample::results();
        let html = super::html(&results);
        assert_eq!(html.matches("<td>insert-1</td>").count(), 2, "{html}");
        assert_eq!(html.matches("<td>one-message</td>").count(), 1, "{html}");
        results.history.clear();
        assert_eq!(super::html(&results), "");
    }
}
