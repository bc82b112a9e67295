//! How long a test waits for something that another process or thread brings about.
//!
//! A wait ends unsuccessfully only when nothing has changed for as long as no machine needs: both a time and a number of
//! looks must have passed since the last change. On a busy machine each look takes longer (it asks the server that is
//! waited for), so the wait grows with the load. A wait that sees the state of what it waits for reports it with
//! [`Patience::sees`], and starts over whenever that state has changed.

use std::time::{Duration, Instant};

/// Without a change for this time, and
const UNCHANGED_MAX: Duration = Duration::from_secs(120);
/// over this number of looks, a wait is given up.
const LOOKS_MAX: u32 = 3000;
/// With changes it is given up after this: what is tried again and again changes something each time.
const TOTAL_MAX: Duration = Duration::from_secs(1800);

/// One wait. See the module.
#[derive(Debug)]
pub struct Patience {
    begun: Instant,
    since: Instant,
    looks: u32,
    seen: String,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

impl Patience {
    pub fn new() -> Patience {
        let now = Instant::now();
        Patience { begun: now, since: now, looks: 0, seen: String::new() }
    }

    /// Reports the state of what is waited for; a change starts the wait over.
    pub fn sees(&mut self, state: String) {
        if state != self.seen {
            *self = Patience { begun: self.begun, since: Instant::now(), looks: 0, seen: state };
        }
    }

    /// Counts one look.
    ///
    /// # Panics
    ///
    /// Without a change for too long.
    pub fn look(&mut self, what: &str) {
        self.looks += 1;
        let unchanged = self.since.elapsed();
        let over = self.is_over(unchanged, self.begun.elapsed());
        assert!(!over, "{what}: not so, unchanged for {} s; last seen: {:?}", unchanged.as_secs(), self.seen);
    }

    fn is_over(&self, unchanged: Duration, total: Duration) -> bool {
        self.looks > LOOKS_MAX && unchanged > UNCHANGED_MAX || total > TOTAL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_long_time_and_many_looks_without_a_change_end_it() {
        let mut wait = Patience::new();
        wait.sees("a".to_owned());
        wait.look("it");
        assert!(!wait.is_over(UNCHANGED_MAX * 2, UNCHANGED_MAX * 2), "few looks");
        wait.looks = LOOKS_MAX * 2;
        assert!(!wait.is_over(UNCHANGED_MAX / 2, UNCHANGED_MAX), "a short time");
        assert!(wait.is_over(UNCHANGED_MAX * 2, UNCHANGED_MAX * 2));
        wait.sees("a".to_owned());
        assert!(wait.looks > 0, "nothing has changed");
        wait.sees("b".to_owned());
        assert_eq!(wait.looks, 0, "progress");
        assert!(wait.is_over(Duration::ZERO, TOTAL_MAX * 2));
    }
}
