//! The short form of the results for the terminal.

use super::results::{Change, Figures, Line, Results, Spread};
use crate::summary::{align_numbers, findings, table};
use crate::text;

/// The table, why figures are missing, and every ratio with its goal.
pub fn text(results: &Results) -> String {
    let mut out = format!("{}\n\n", lines(&results.lines));
    for line in &results.lines {
        for why in &line.missing {
            out.push_str(&format!("{}: not measured: {why}\n", line.row.name()));
        }
    }
    for line in &results.lines {
        for change in line.changes.iter().filter(|change| change.worse) {
            out.push_str(&format!("{}: {}\n", line.row.name(), worse(change)));
        }
    }
    out + &findings(&results.findings)
}

/// The flag of a figure that became worse.
pub fn worse(change: &Change) -> String {
    let (before, now) = (text::times(change.before), text::times(change.now));
    format!("▼ {} worse than in earlier runs: {now}, it was {before} ({:+.0} %)", change.what, change.growth * 100.0)
}

const HEADER: [&str; 9] =
    ["row", "clients", "Holdfast", "PostgreSQL", "ratio", "Holdfast CPU", "PostgreSQL CPU", "CPU ratio", "floor"];

fn lines(lines: &[Line]) -> comfy_table::Table {
    let mut table = table(&HEADER);
    for line in lines {
        let rate = |figures: Option<Figures>| shown(figures.map(|f| f.value), |value| line.row.show(value));
        let cpu = |figures: Option<Figures>| shown(figures.and_then(|f| f.cpu_us), text::time);
        let times = |spread: Option<Spread>| shown(spread.map(|s| s.median), text::times);
        table.add_row([
            line.row.name().to_string(),
            line.clients.to_string(),
            rate(line.holdfast),
            rate(line.postgres),
            times(line.ratio),
            cpu(line.holdfast),
            cpu(line.postgres),
            times(line.cpu_ratio),
            shown(line.floor.map(|floor| floor.value), |value| line.row.show(value)),
        ]);
    }
    align_numbers(&mut table, 1);
    table
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_string(), show)
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn the_summary_is_the_golden_one() {
        crate::golden::check("speed.txt", &super::text(&sample::results()));
    }
}
