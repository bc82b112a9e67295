//! Tells the person waiting what is measured and how long it will take: a bar on a terminal, a line for each
//! configuration elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The progress of a study, counted in tenths of seconds of planned time.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts with the planned seconds.
    pub fn start(seconds: f64) -> Progress {
        let bar = ProgressBar::new(tenths(seconds));
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar:.cyan/blue} about {eta} left\n{msg}")
            .expect("the template is constant and valid");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// A new part of the study begins.
    pub fn part(&self, name: &str) {
        if self.bar.is_hidden() {
            eprintln!("{name}");
        }
        self.bar.set_message(name.to_string());
    }

    /// What is done now, within the part.
    pub fn now(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Planned time has passed.
    pub fn advance(&self, seconds: f64) {
        self.bar.inc(tenths(seconds));
    }

    /// The plan grew by that much, or shrank.
    pub fn plan(&self, seconds: f64) {
        let length = self.bar.length().unwrap_or(0) as f64 + seconds * 10.0;
        self.bar.set_length(length.max(0.0) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn tenths(seconds: f64) -> u64 {
    (seconds * 10.0) as u64
}
