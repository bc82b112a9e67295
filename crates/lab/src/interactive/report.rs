//! The report: one HTML file that needs nothing else. Goals first, then charts, tables, checks, and what it ran on.

use super::results::{LongTransaction, Results};
use crate::bars::{Bar, Bars, Group};
use crate::chart::{Chart, Labels, Mark, Series, escape};
use crate::report::{definitions, failures, figure, headlines, page, ran_on, title};
use crate::report_tables::{Column, NOTHING, Row, pgbench, table};
use crate::results::PgbenchResult;
use crate::server::server_name;
use crate::study_results::{Check, Finding};
use crate::text;
use crate::verdict::{self, Verdict};

const LEAD: &str = "Transactions of several messages, each waiting for its answer: how many, how long, at what price, \
    how much they disturb each other, and what the many that are open at once take.";

/// The whole file.
pub fn html(results: &Results) -> String {
    let (version, at) = (&results.head.product_version, &results.head.started_at);
    let mut out =
        title("Interactive transactions", version, at, results.head.machine.first(), &results.head.paper, LEAD);
    out.push_str(&failures(&results.failures));
    out.push_str(&headlines(&results.findings));
    out.push_str(&goals(&results.findings));
    out.push_str(&rates(results));
    out.push_str(&sleepers(results));
    out.push_str(&memory(results));
    out.push_str(&long_transactions(&results.long_transactions));
    out.push_str(&checks(&results.checks));
    for server in &results.servers {
        out.push_str(&format!(
            "<h2>Settings of {}</h2>\n{}",
            server_name(&server.server),
            definitions(&server.settings)
        ));
    }
    out.push_str(&ran_on(&results.head.machine, &results.head.options, &results.notes, &results.head.command));
    page("interactive transactions", &out)
}

fn class(server: &str) -> &'static str {
    if server == "holdfast" { "audited" } else { "postgres" }
}

/// A bar in the colour of a server.
pub fn bar(server: &str, value: f64) -> Bar {
    Bar { class: class(server), name: server_name(server), value }
}

/// Every figure with its goal.
pub fn goals(findings: &[Finding]) -> String {
    const COLUMNS: [Column; 4] = [("Compared", false), ("This run", true), ("Goal", false), ("", false)];
    if findings.is_empty() {
        return String::new();
    }
    let row = |f: &Finding| {
        let goal = f.goal.as_deref().map_or_else(|| NOTHING.to_string(), escape);
        let verdict = f.verdict.map_or(String::new(), Verdict::html);
        Row { class: "", cells: vec![escape(&f.what), escape(&f.shown), goal, verdict] }
    };
    let rows: Vec<Row> = findings.iter().map(row).collect();
    let count = verdict::count(findings.iter().filter_map(|f| f.verdict));
    format!("<h2>Against the goals</h2>\n<p class=\"caption\">{count}</p>\n{}", table(&COLUMNS, &rows))
}

fn rates(results: &Results) -> String {
    let measured: Vec<&PgbenchResult> = results.rates.iter().filter(|r| r.skipped.is_none()).collect();
    if measured.is_empty() {
        return pgbench(&results.rates);
    }
    let mut out = String::from("<h2>Transactions a second</h2>\n");
    let rates = bars("Transactions a second", text::number, &measured, |r| Some(r.tps));
    out.push_str(&figure(&rates.svg()));
    out.push_str("<h2>Processor time of the server for each transaction</h2>\n");
    let cpu = bars("Processor time of the server for each transaction", text::time, &measured, |r| r.server_cpu_us);
    out.push_str(&figure(&cpu.svg()));
    out.push_str(&pgbench(&results.rates));
    out
}

/// A group of bars for each case, in the order they were measured.
fn bars(
    title: &str,
    text: fn(f64) -> String,
    measured: &[&PgbenchResult],
    value: impl Fn(&PgbenchResult) -> Option<f64>,
) -> Bars {
    let mut groups: Vec<Group> = Vec::new();
    for r in measured {
        let label = format!("{}, {}", r.case, text::clients(r.clients));
        let Some(bar) = value(r).map(|v| bar(&r.server, v)) else { continue };
        match groups.iter_mut().find(|g| g.label == label) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { label, bars: vec![bar] }),
        }
    }
    Bars { title: title.to_string(), text, groups }
}

fn sleepers(results: &Results) -> String {
    if results.sleepers.is_empty() {
        return String::new();
    }
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let group = |label: &str, of: fn(&super::results::Sleeper) -> &[f64]| Group {
        label: label.to_string(),
        bars: results.sleepers.iter().map(|s| bar(&s.server, mean(of(s)))).collect(),
    };
    let groups = vec![group("no client asleep", |s| &s.tps_without), group("one client asleep", |s| &s.tps_with)];
    let drawing = Bars { title: "The others' rate".into(), text: text::number, groups };
    const COLUMNS: [Column; 5] =
        [("Server", false), ("Clients", true), ("No client asleep", true), ("One asleep", true), ("Change", true)];
    let list = |rates: &[f64]| rates.iter().map(|r| text::number(*r)).collect::<Vec<_>>().join(", ");
    let row = |s: &super::results::Sleeper| {
        let change = format!("{:+.1} %", s.change() * 100.0);
        let cells =
            vec![server_name(&s.server).into(), s.clients.to_string(), list(&s.tps_without), list(&s.tps_with), change];
        Row { class: "", cells }
    };
    let rows: Vec<Row> = results.sleepers.iter().map(row).collect();
    format!(
        "<h2>While one client sleeps in a transaction</h2>\n<p class=\"caption\">Authorizations a second of the \
         others, by turns without and with the sleeper.</p>\n{}{}",
        figure(&drawing.svg()),
        table(&COLUMNS, &rows)
    )
}

fn memory(results: &Results) -> String {
    if results.memory.is_empty() {
        return String::new();
    }
    let group = |label: &str, of: fn(&super::results::MemoryUse) -> u64| Group {
        label: label.to_string(),
        bars: results.memory.iter().map(|m| bar(&m.server, of(m) as f64)).collect(),
    };
    let groups = vec![
        group("before the first connection", |m| m.before_bytes),
        group("every connection idle", |m| m.idle_bytes),
        group("every connection with a transaction open", |m| m.open_bytes),
    ];
    let drawing = Bars { title: "Memory of the server".into(), text: |v| text::bytes(v as u64), groups };
    let counts: Vec<String> = results.memory.iter().map(|m| m.connections.to_string()).take(1).collect();
    format!("<h2>Memory of {} connections</h2>\n{}", counts.concat(), figure(&drawing.svg()))
}

fn long_transactions(list: &[LongTransaction]) -> String {
    let Some(first) = list.first() else { return String::new() };
    let series = |l: &LongTransaction| Series {
        class: class(&l.server),
        label: server_name(&l.server).to_string(),
        points: marks(l),
    };
    let chart = Chart {
        title: "Time of each tenth of a long transaction".into(),
        x_title: "statements so far",
        y_title: "time of the last tenth of them",
        x_text: text::short,
        y_text: text::time,
        labels: Labels::Right,
        diagonal: None,
        y_max: None,
        series: list.iter().map(series).collect(),
    };
    const COLUMNS: [Column; 4] =
        [("Server", false), ("Last tenth against first", true), ("Commit", true), ("Others' tps meanwhile", true)];
    let row = |l: &LongTransaction| {
        let growth = crate::report_tables::optional(l.growth(), text::times);
        let cells =
            vec![server_name(&l.server).into(), growth, text::time(l.commit_ms * 1e3), text::number(l.foreign_tps)];
        Row { class: "", cells }
    };
    let rows: Vec<Row> = list.iter().map(row).collect();
    format!(
        "<h2>One transaction of {} inserts</h2>\n<p class=\"caption\">A level line: each statement costs the same, \
         however many went before.</p>\n{}{}",
        text::number(first.statements as f64),
        figure(&chart.svg()),
        table(&COLUMNS, &rows)
    )
}

fn marks(l: &LongTransaction) -> Vec<Mark> {
    let each = l.statements / l.tenths_ms.len().max(1);
    l.tenths_ms
        .iter()
        .zip(1..)
        .map(|(ms, n)| Mark {
            x: (each * n) as f64,
            y: ms * 1e3,
            tooltip: format!("{}: statements up to {} took {}", server_name(&l.server), each * n, text::time(ms * 1e3)),
        })
        .collect()
}

/// What must hold after the measurements, and what was found.
pub fn checks(checks: &[Check]) -> String {
    const COLUMNS: [Column; 4] = [("What must hold", false), ("Server", false), ("", false), ("Found", false)];
    let rows: Vec<Row> = checks
        .iter()
        .map(|c| {
            let holds = match c.holds {
                true => "<span class=\"verdict met\">✓ holds</span>",
                false => "<span class=\"verdict missed\">✗ does not hold</span>",
            };
            Row {
                class: "",
                cells: vec![escape(&c.what), server_name(&c.server).into(), holds.into(), escape(&c.found)],
            }
        })
        .collect();
    if rows.is_empty() { String::new() } else { format!("<h2>Checked afterwards</h2>\n{}", table(&COLUMNS, &rows)) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_missed_goal_does_not_look_like_a_met_one() {
        let html = super::html(&crate::interactive::sample::results());
        let change = "<td class=\"n\">-20.0 %</td><td>less than 10 %</td>";
        assert!(html.contains(&format!("{change}<td><span class=\"verdict missed\">✗ missed</span></td>")));
        assert!(html.contains("<div class=\"card missed\"><b>-20.0 %</b>"));
        assert!(html.contains("<div class=\"card met\"><b>2×</b>"));
        assert!(html.contains("<span class=\"verdict not-measured\">– not measured</span>"));
    }

    use super::*;
    use crate::interactive::sample;

    #[test]
    fn the_report_is_the_golden_one() {
        let html = html(&sample::results());
        let style = html.find("<style>").unwrap()..html.find("</style>").unwrap();
        let without_style = html.replace(&html[style], "");
        crate::golden::check("interactive.html", &without_style);
    }

    #[test]
    fn the_report_needs_nothing_else() {
        let html = html(&sample::results());
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<svg").count(), 5);
    }
}
