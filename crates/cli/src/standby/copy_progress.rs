//! Shows how far a base copy is, its rate and the time left: a bar on a terminal, else a line for each tenth.

use crate::time_left;
use holdfast_replication::CopyProgress;
use indicatif::{BinaryBytes, ProgressBar};
use parking_lot::Mutex;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The progress of one copy, on standard error.
pub struct CopyBar {
    bar: ProgressBar,
    is_terminal: bool,
    /// `None` before the first chunk.
    phase: Mutex<Option<Phase>>,
}

/// Copying, or a round of verification.
struct Phase {
    round: u32,
    began: Instant,
    /// Bytes that were compared when it began here.
    from_bytes: u64,
    /// Tenths that were reported.
    tenths: u64,
}

impl CopyBar {
    pub fn new() -> anyhow::Result<CopyBar> {
        let bar = ProgressBar::new(0);
        let template = "{msg} [{bar:40}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}{left}";
        bar.set_style(time_left::style(template)?);
        Ok(CopyBar { bar, is_terminal: std::io::stderr().is_terminal(), phase: Mutex::new(None) })
    }

    /// Called after every chunk.
    pub fn show(&self, done: CopyProgress) {
        if self.is_terminal {
            self.bar.set_length(done.total_bytes);
            self.bar.set_position(done.compared_bytes);
            self.bar.set_message(what(&done));
            return;
        }
        let mut phase = self.phase.lock();
        let new = || Phase { round: done.round, began: Instant::now(), from_bytes: done.compared_bytes, tenths: 0 };
        let phase = match &mut *phase {
            Some(phase) if phase.round == done.round => phase,
            other => other.insert(new()),
        };
        let tenths = done.compared_bytes * 10 / done.total_bytes.max(1);
        if tenths > phase.tenths {
            phase.tenths = tenths;
            eprintln!("holdfast: {}", line(&done, phase.from_bytes, phase.began.elapsed()));
        }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn what(done: &CopyProgress) -> String {
    let doing = if done.round == 0 { "copying" } else { "verifying" };
    match done.interruptions {
        0 => doing.to_owned(),
        1 => format!("{doing} (the link broke once)"),
        n => format!("{doing} (the link broke {n} times)"),
    }
}

/// One line: what is done, at which rate, and how long the rest takes at that rate; without the last two where the first chunk is
/// all that was copied.
fn line(done: &CopyProgress, from_bytes: u64, elapsed: Duration) -> String {
    let (copied, rest) = (done.compared_bytes - from_bytes, done.total_bytes.saturating_sub(done.compared_bytes));
    let per_second = match copied {
        0 => String::new(),
        _ => format!(", {}/s", BinaryBytes((copied as f64 / elapsed.as_secs_f64().max(0.001)) as u64)),
    };
    format!(
        "{}: {} % ({} of {}){per_second}{}",
        what(done),
        done.compared_bytes * 100 / done.total_bytes.max(1),
        BinaryBytes(done.compared_bytes),
        BinaryBytes(done.total_bytes),
        time_left::shown(copied, rest, elapsed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_and_time_left() {
        let done = CopyProgress {
            compared_bytes: 30 << 20,
            total_bytes: 100 << 20,
            interruptions: 2,
            ..CopyProgress::default()
        };
        let said = line(&done, 10 << 20, Duration::from_secs(4));
        assert_eq!(
            said,
            "copying (the link broke 2 times): 30 % (30.00 MiB of 100.00 MiB), 5.00 MiB/s, 14 seconds left"
        );
        assert!(line(&CopyProgress { round: 1, ..done }, 30 << 20, Duration::ZERO).starts_with("verifying"));
        // The first chunk of a small copy says nothing about the rest.
        let first = CopyProgress { compared_bytes: 4096, total_bytes: 20480, ..CopyProgress::default() };
        assert_eq!(line(&first, 4096, Duration::from_secs(1)), "copying: 20 % (4.00 KiB of 20.00 KiB)");
    }
}
