//! The last lines of the log that an operator should see, for the console.
//!
//! The program that installs the log's subscriber adds lines here; the ring is the process's, as the log is. The oldest lines are
//! dropped. Failure: none.

use holdfast_web::figures::Event;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Lines kept.
const LINES_MAX: usize = 500;

/// Bytes of a line.
const LINE_BYTES_MAX: usize = 1000;

struct Ring {
    number: u64,
    lines: VecDeque<Event>,
}

static RING: Mutex<Ring> = Mutex::new(Ring { number: 0, lines: VecDeque::new() });

/// Adds a line. `level`: `error`, `warn` or `info`.
pub fn add(level: &'static str, target: &str, mut text: String) {
    text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
    let mut ring = RING.lock();
    ring.number += 1;
    let number = ring.number;
    if ring.lines.len() == LINES_MAX {
        ring.lines.pop_front();
    }
    ring.lines.push_back(Event { number, unix_us: crate::clock::now_us(), level, target: target.to_owned(), text });
}

/// Lines with a higher number, oldest first; all of them where `after` is of an earlier process.
pub(super) fn after(after: u64) -> Vec<Event> {
    let ring = RING.lock();
    let after = if after > ring.number { 0 } else { after };
    ring.lines.iter().filter(|line| line.number > after).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_lines_are_cut() {
        (0..LINES_MAX + 3).for_each(|n| add("info", "test", format!("{n} {}", "ä".repeat(LINE_BYTES_MAX))));
        let all = after(0);
        assert_eq!(all.len(), LINES_MAX);
        let last = all[LINES_MAX - 1].number;
        assert!(after(last).is_empty() && after(last - 1).len() == 1 && after(last + 1).len() == LINES_MAX);
        assert!(all.iter().all(|line| line.text.len() <= LINE_BYTES_MAX && line.text.contains('ä')));
    }
}
