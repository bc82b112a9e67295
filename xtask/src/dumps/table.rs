//! The table of figures.

use std::fmt;

/// Lines for PostgreSQL and Holdfast beside each other.
#[derive(Default)]
pub struct Table {
    rows: Vec<[String; 5]>,
}

impl Table {
    /// Adds a line and prints it at once. `ratio` is Holdfast's figure divided by PostgreSQL's; NaN: there is none.
    pub fn row(&mut self, name: &str, theirs: &str, ours: &str, ratio: f64, note: &str) {
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.2}") };
        println!("{name}: PostgreSQL {theirs}, Holdfast {ours}, ratio {ratio} {note}");
        self.rows.push([name, theirs, ours, &ratio, note].map(str::to_owned));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | PostgreSQL | Holdfast | ratio | |\n|---|---|---|---|---|")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

/// Bytes as gigabytes of 10^9 bytes, or megabytes where there are few.
pub fn gigabytes(bytes: u64) -> String {
    match bytes {
        0..100_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// The middle one.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_is_none_is_an_empty_cell() {
        let mut table = Table::default();
        table.row("size", "1 GB", "2 GB", 2.0, "goal 1");
        table.row("look", "", "1 s", f64::NAN, "");
        assert!(table.to_string().ends_with("| size | 1 GB | 2 GB | 2.00 | goal 1 |\n| look |  | 1 s |  |  |\n"));
    }
}
