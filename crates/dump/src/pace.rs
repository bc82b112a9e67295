//! How fast a dump goes: not faster than asked for, and not at the expense of the server.
//!
//! The kernel counts for each thread how long it ran and how long it waited for a processor (`/proc/thread-self/schedstat`). A
//! thread of a dump that waits much shares the processors with a busy server: it rests after each chunk, so that the server
//! commits meanwhile. On an idle machine it never waits, and never rests.
//!
//! Failure: a kernel without that file does not count; then nothing rests.

use std::time::{Duration, Instant};

/// Of the time in which a thread could have run, the part that it waited: beyond this it rests. The threads of a dump wait for each
/// other too: with two of them on two processors, and nothing else at work, 0.1 halved the rate.
const WAITED_MAX: f64 = 0.5;
/// It rests for this many times as long as the chunk took.
const REST_TIMES: u32 = 3;

/// Holds back what exceeds a rate.
pub struct Rate {
    bytes_a_second: u64,
    began: Instant,
    bytes: u64,
}

impl Rate {
    pub fn new(bytes_a_second: u64) -> Rate {
        Rate { bytes_a_second: bytes_a_second.max(1), began: Instant::now(), bytes: 0 }
    }

    pub fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.bytes_a_second as f64);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
    }
}

/// Decides when a thread rests.
pub struct Courtesy {
    last: Option<Scheduled>,
}

/// Nanoseconds that a thread ran, and waited to run.
#[derive(Clone, Copy)]
struct Scheduled {
    ran_ns: u64,
    waited_ns: u64,
}

impl Courtesy {
    /// Of the calling thread.
    pub fn begin() -> Courtesy {
        Courtesy { last: now() }
    }

    /// For how long the calling thread should rest after a chunk that took that long.
    pub fn rest(&mut self, took: Duration) -> Duration {
        let now = now();
        let waited = self.last.zip(now).map_or(0.0, |(before, now)| waited(before, now));
        self.last = now;
        if waited > WAITED_MAX { took * REST_TIMES } else { Duration::ZERO }
    }
}

/// The part of the time that was waited.
fn waited(before: Scheduled, now: Scheduled) -> f64 {
    let ran = now.ran_ns.saturating_sub(before.ran_ns) as f64;
    let waited = now.waited_ns.saturating_sub(before.waited_ns) as f64;
    if waited > 0.0 { waited / (ran + waited) } else { 0.0 }
}

fn now() -> Option<Scheduled> {
    parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// `ran waited turns`
fn parse(text: &str) -> Option<Scheduled> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(Scheduled { ran_ns: numbers.next()??, waited_ns: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_where_it_had_to_wait() {
        let at = |text: &str| parse(text).unwrap();
        assert!(waited(at("1000 100 2"), at("2000 100 3\n")) < WAITED_MAX);
        assert!(waited(at("1000 100 2"), at("2000 2100 3\n")) > WAITED_MAX);
        assert_eq!(waited(at("1000 100 2"), at("1000 100 2")), 0.0);
        assert!(parse("").is_none() && parse("x 1").is_none());
        let mut courtesy = Courtesy { last: parse("0 0 0") };
        let rest = courtesy.rest(Duration::from_millis(10));
        assert!(rest == Duration::ZERO || rest == Duration::from_millis(30));
    }
}
