//! The result as text and as JSON.

use std::fmt::Write as _;

use anyhow::Context as _;

use super::check::{Circle, CrateReport, Edge, Report};

impl Report {
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// What is wrong, crate by crate, and one line for each crate; `circles` prints the allowed ones as well.
    pub fn text(&self, circles: bool) -> String {
        let mut text = String::new();
        for one in &self.crates {
            one.write_faults(&mut text, circles);
        }
        text.push_str("crate          files  imports  largest circle  up  faults  exceptions\n");
        for one in &self.crates {
            let largest = one.circles.first().map_or(1, |circle| circle.files.len());
            let _ = writeln!(
                text,
                "{:13} {:6} {:8} {largest:15} {:3} {:7} {:11}",
                one.name,
                one.files,
                one.edges.len(),
                one.upward.len(),
                one.faults.len(),
                one.exceptions
            );
        }
        let verdict = if self.clean { "ok" } else { "FAILED" };
        let _ = writeln!(text, "layers: {verdict}; a circle may have {} files", self.circle_files_max);
        text
    }

    /// What a file imports and which files import it; the file as `engine/src/gate.rs`.
    pub fn around(&self, file: &str) -> anyhow::Result<String> {
        let file = file.strip_prefix("crates/").unwrap_or(file);
        let (name, path) = file.split_once("/src/").context("the file is given as CRATE/src/FILE")?;
        let one = self.crates.iter().find(|one| one.name == name).with_context(|| format!("no crate {name}"))?;
        let mut text = format!("{file} imports\n");
        one.edges.iter().filter(|edge| edge.from == path).for_each(|edge| write_edge(&mut text, edge));
        text.push_str("and is imported by\n");
        one.edges.iter().filter(|edge| edge.to == path).for_each(|edge| write_edge(&mut text, edge));
        Ok(text)
    }
}

impl CrateReport {
    fn write_faults(&self, text: &mut String, circles: bool) {
        for circle in self.circles.iter().filter(|circle| circles || circle.too_large) {
            self.write_circle(text, circle);
        }
        for edge in &self.upward {
            let _ = writeln!(text, "{}: import goes up a floor:", self.name);
            write_edge(text, edge);
        }
        for fault in &self.faults {
            let _ = writeln!(text, "{}: {fault}", self.name);
        }
        for note in &self.notes {
            let _ = writeln!(text, "{}: note: {note}", self.name);
        }
    }

    fn write_circle(&self, text: &mut String, circle: &Circle) {
        let files = circle.files.len();
        let _ = writeln!(text, "{}: circle of {files} files, {} imports:", self.name, circle.edges.len());
        circle.edges.iter().for_each(|edge| write_edge(text, edge));
    }
}

fn write_edge(text: &mut String, edge: &Edge) {
    let _ = writeln!(text, "    {}:{} -> {} ({})", edge.from, edge.line, edge.to, edge.name);
}
