//! What the cuts came to.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Sums over all cuts of a run.
#[derive(Default)]
pub struct Totals {
    pub seed: u64,
    pub cuts: u32,
    /// Of the cuts, those that fell on a start or recovery.
    pub cuts_in_start: u32,
    pub acknowledged: u64,
    /// Rows found after the restarts, acknowledged or not.
    pub recovered: u64,
    /// Acknowledged and not to be read any more.
    pub lost: u64,
    /// Of those, lost loudly: the server refused to start.
    pub lost_loudly: u64,
    pub half: u64,
    pub wrong_sums: u32,
    pub refused: u32,
    /// Directories that the database's own check calls unsound.
    pub unsound: u32,
    pub sectors: [u64; 3],
    pub lost_names: u64,
    pub slow_rules_fired: u64,
    pub damage: Vec<(u32, String, Option<PathBuf>)>,
    pub took: Duration,
}

impl Totals {
    /// Nothing was lost, half there, unsound or refused.
    pub fn is_clean(&self) -> bool {
        self.lost + self.half == 0 && self.wrong_sums + self.refused + self.unsound == 0
    }

    pub fn table(&self, name: &str) -> String {
        let mut text = String::new();
        let [kept, dropped, garbage] = self.sectors;
        let _ = writeln!(text, "\n==== power cuts: {name}, seed {}, {:.0} s", self.seed, self.took.as_secs_f64());
        let rows: [(&str, String); 9] = [
            ("cuts", format!("{} ({} in a start or recovery)", self.cuts, self.cuts_in_start)),
            ("acknowledged", self.acknowledged.to_string()),
            ("recovered", format!("{} (with what was committed and not yet answered)", self.recovered)),
            ("lost", format!("{}{}", self.lost, self.loudly())),
            ("half", self.half.to_string()),
            ("wrong sums", self.wrong_sums.to_string()),
            ("refused", self.refused.to_string()),
            ("unsound", self.unsound.to_string()),
            (
                "disk",
                format!(
                    "{kept} unsynced sectors kept, {dropped} dropped, {garbage} garbage; {} names lost; {} slow syncs",
                    self.lost_names, self.slow_rules_fired
                ),
            ),
        ];
        for (name, value) in rows {
            let _ = writeln!(text, "  {name:12} {value}");
        }
        for (cut, what, kept) in &self.damage {
            let _ = writeln!(text, "  cut {cut}: {what}");
            if let Some(path) = kept {
                let _ = writeln!(text, "    the backing directory as the cut left it: {}", path.display());
            }
        }
        text
    }
}

impl Totals {
    fn loudly(&self) -> String {
        match self.lost_loudly {
            0 => String::new(),
            n => format!(" ({n} of them behind a server that refused to start)"),
        }
    }
}

/// A reason as it can be shown: printable, and not too long.
pub fn shown(reason: &str) -> String {
    const LINE_CHARS_MAX: usize = 300;
    const LINES_MAX: usize = 12;
    let lines = reason.lines().map(|line| {
        let line: String = line.chars().filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER).collect();
        let words = line.split("          ").filter(|part| !part.trim().is_empty()).collect::<Vec<_>>().join(" ... ");
        words.chars().take(LINE_CHARS_MAX).collect::<String>()
    });
    lines.filter(|line| !line.is_empty()).take(LINES_MAX).collect::<Vec<_>>().join("\n    ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_damage_fails_the_run() {
        assert!(Totals::default().is_clean());
        for totals in [
            Totals { lost: 1, ..Totals::default() },
            Totals { half: 1, ..Totals::default() },
            Totals { wrong_sums: 1, ..Totals::default() },
            Totals { refused: 1, ..Totals::default() },
            Totals { unsound: 1, ..Totals::default() },
        ] {
            assert!(!totals.is_clean());
        }
    }
}
