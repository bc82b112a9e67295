//! The results of a person's own transactions as a table for the terminal.

use super::{OwnResults, SETTINGS};
use std::fmt::Write as _;

impl OwnResults {
    /// Transactions a second and the 95th percentile, a line for each setting, and what to set.
    pub fn text(&self) -> String {
        let mut clients: Vec<usize> = self.points.iter().map(|point| point.clients).collect();
        clients.sort_unstable();
        clients.dedup();
        let mut text = format!("{:18}", "setting");
        clients.iter().for_each(|count| _ = write!(text, "  {:>20}", format!("{count} clients")));
        text.push('\n');
        for setting in SETTINGS.iter().map(|setting| setting.name) {
            let _ = write!(text, "{setting:18}");
            for count in &clients {
                let point = self.points.iter().find(|point| point.setting == setting && point.clients == *count);
                let cell = point.map_or(String::new(), |point| format!("{:.0} tps, {:.1} ms", point.tps, point.p95_ms));
                let _ = write!(text, "  {cell:>20}");
            }
            text.push('\n');
        }
        let retries: u64 = self.points.iter().map(|point| point.retries).sum();
        let _ = writeln!(text, "\nTransactions a second, and how long 95 % of them take at most. All are safe.");
        if retries > 0 {
            let _ = writeln!(text, "{retries} were run again after a serialization failure or a deadlock.");
        }
        let _ = match self.recommended {
            None => writeln!(text, "Keep the defaults: {}.", self.why),
            Some(lines) => writeln!(text, "Set {lines} in holdfast.toml: {}.", self.why),
        };
        text
    }
}
