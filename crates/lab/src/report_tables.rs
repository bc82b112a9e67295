//! The report's tables.

use crate::chart::escape;
use crate::configuration::Configuration;
use crate::report::{class, definitions};
use crate::results::{ConfigurationResult, PgbenchResult, Point, Results};
use crate::text;
use crate::verdict::Verdict;

/// A column's heading and whether it holds numbers.
pub type Column = (&'static str, bool);

/// A row: its class and its cells, already HTML. The last cell of a short row spans the columns that are left.
pub struct Row {
    pub class: &'static str,
    pub cells: Vec<String>,
}

/// Shown where there is no figure.
pub const NOTHING: &str = "–";

/// What a wide table begins in: it scrolls within the page, by keyboard too.
pub const SCROLL: &str = "<div class=\"scroll\" tabindex=\"0\">";

/// Columns that hold no figure in any row are left out.
pub fn table(columns: &[Column], rows: &[Row]) -> String {
    let holds = |i: usize| rows.iter().any(|r| r.cells.get(i).is_some_and(|cell| cell != NOTHING));
    let shown: Vec<usize> = (0..columns.len()).filter(|&i| !columns[i].1 || holds(i)).collect();
    let kind = |i: usize| if columns[i].1 { " class=\"n\"" } else { "" };
    let head: Vec<String> = shown.iter().map(|&i| format!("<th{}>{}</th>", kind(i), columns[i].0)).collect();
    let mut out = format!("{SCROLL}<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n", head.concat());
    for row in rows {
        let cells: Vec<String> = shown
            .iter()
            .filter_map(|&i| Some((i, row.cells.get(i)?)))
            .map(|(i, cell)| match shown.iter().filter(|&&other| other > i).count() {
                left if i + 1 == row.cells.len() && left > 0 => format!("<td colspan=\"{}\">{cell}</td>", left + 1),
                _ => format!("<td{}>{cell}</td>", kind(i)),
            })
            .collect();
        out.push_str(&format!("<tr class=\"{}\">{}</tr>\n", row.class, cells.concat()));
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// A figure, or [`NOTHING`].
pub fn optional(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NOTHING.to_string(), show)
}

fn name(configuration: Configuration) -> String {
    format!(
        "<span class=\"name\"><span class=\"key series-{}\"></span>{}</span>",
        class(configuration),
        escape(configuration.label())
    )
}

fn row_class(configuration: Configuration) -> &'static str {
    if configuration == Configuration::Audited { "audited" } else { "" }
}

/// Every configuration as fast as it goes.
pub fn peaks(results: &Results) -> String {
    const COLUMNS: [Column; 10] = [
        ("Configuration", false),
        ("A power cut<br>can lose", false),
        ("Clients", true),
        ("Completed<br>a second", true),
        ("Mean", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("Syncs<br>each", true),
        ("Server<br>CPU each", true),
    ];
    let mut rows = Vec::new();
    for c in &results.configurations {
        let head = [name(c.configuration), c.configuration.loss().text().to_string()];
        if let Some(why) = &c.skipped {
            let cells = vec![head[0].clone(), format!("not measured: {}", escape(why))];
            rows.push(Row { class: "skipped", cells });
        }
        for point in &c.peaks {
            let cells = head.iter().cloned().chain([point.clients.to_string()]).chain(figures(point)).collect();
            rows.push(Row { class: row_class(c.configuration), cells });
        }
    }
    format!(
        "<h2>As fast as it goes</h2>\n<p class=\"caption\">Every client sends its next request when it has the answer \
         to the last.</p>\n{}",
        table(&COLUMNS, &rows)
    )
}

/// Completed, mean, p50, p99, p99.9, syncs, CPU.
fn figures(p: &Point) -> [String; 7] {
    let r = &p.response;
    [
        text::number(p.completed_rate),
        text::time(r.mean_us),
        text::time(r.p50_us as f64),
        text::time(r.p99_us as f64),
        text::time(r.p999_us as f64),
        optional(p.syncs_per_transaction, text::times),
        optional(p.server_cpu_us, text::time),
    ]
}

/// The runs of pgbench, Holdfast and PostgreSQL under each other.
pub fn pgbench(rows: &[PgbenchResult]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    const COLUMNS: [Column; 7] = [
        ("Transaction", false),
        ("Server", false),
        ("Clients", true),
        ("tps", true),
        ("Mean", true),
        ("Syncs each", true),
        ("Server CPU each", true),
    ];
    let rows: Vec<Row> = rows.iter().map(pgbench_row).collect();
    format!(
        "<h2>Driven by pgbench</h2>\n<p class=\"caption\">PostgreSQL's own benchmark program sends the same script to \
         both servers, as fast as it goes, two threads.</p>\n{}",
        table(&COLUMNS, &rows)
    )
}

fn pgbench_row(r: &PgbenchResult) -> Row {
    let remark = r.skipped.as_ref().map(|why| format!("not measured: {why}")).or_else(|| r.remark.clone());
    let remark = remark.map_or(String::new(), |text| format!("<br><span class=\"soft\">{}</span>", escape(&text)));
    let case = format!("{}{remark}", escape(&r.case));
    let ours = r.server == "holdfast";
    let server = if ours { "Holdfast" } else { "PostgreSQL" }.to_string();
    let mut cells = vec![case, server, r.clients.to_string()];
    if r.skipped.is_some() {
        cells.push(NOTHING.to_string());
        return Row { class: "skipped", cells };
    }
    let failed = if r.failed > 0 { format!(" <span class=\"soft\">{} failed</span>", r.failed) } else { String::new() };
    cells.push(text::number(r.tps) + &failed);
    cells.push(text::time(r.latency_mean_ms * 1e3));
    cells.push(optional(r.syncs_per_transaction, text::times));
    cells.push(optional(r.server_cpu_us, text::time));
    Row { class: if ours { "audited" } else { "" }, cells }
}

/// Every comparison with what was expected of it.
pub fn ratios(results: &Results) -> String {
    if results.ratios.is_empty() {
        return String::new();
    }
    const COLUMNS: [Column; 4] = [("Compared", false), ("This run", true), ("Goal or expected", false), ("", false)];
    let row = |r: &crate::results::Ratio| {
        let expected = r.expected.as_deref().map_or_else(|| NOTHING.to_string(), escape);
        let value = optional(r.value, |value| format!("{}×", text::times(value)));
        Row { class: "", cells: vec![escape(&r.what), value, expected, r.verdict.map_or(String::new(), Verdict::html)] }
    };
    let rows: Vec<Row> = results.ratios.iter().map(row).collect();
    format!("<h2>Ratios of this run</h2>\n{}", table(&COLUMNS, &rows))
}

/// Each configuration's meaning, settings and points, folded away.
pub fn details(results: &Results) -> String {
    let mut out = String::from("<h2>The configurations, point by point</h2>\n");
    for c in &results.configurations {
        out.push_str(&format!("<details><summary>{}</summary>\n", name(c.configuration)));
        out.push_str(&format!("<p>{}</p>\n", escape(c.configuration.meaning())));
        if let Some(why) = &c.skipped {
            out.push_str(&format!("<p class=\"soft\">Not measured: {}</p>\n", escape(why)));
        } else {
            out.push_str(&points(c));
        }
        out.push_str("</details>\n");
    }
    out
}

fn points(c: &ConfigurationResult) -> String {
    const COLUMNS: [Column; 10] = [
        ("Offered<br>a second", true),
        ("Clients", true),
        ("Completed<br>a second", true),
        ("Mean", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("Syncs<br>each", true),
        ("Server<br>CPU each", true),
        ("Left<br>waiting", true),
    ];
    let rows: Vec<Row> = c
        .points
        .iter()
        .map(|p| {
            let cells = [optional(p.offered_rate, text::number), p.clients.to_string()]
                .into_iter()
                .chain(figures(p))
                .chain([text::number(p.waiting as f64)])
                .collect();
            Row { class: "", cells }
        })
        .collect();
    let (before, after) = (text::number(c.log_rows.0 as f64), text::number(c.log_rows.1 as f64));
    let mut out = format!("<p class=\"soft\">Log rows: {before} at the start, {after} at the end.</p>\n");
    if !c.settings.is_empty() {
        out.push_str(&definitions(&c.settings));
    }
    if !rows.is_empty() {
        out.push_str(&table(&COLUMNS, &rows));
    }
    out
}
