//! Ports for tests that stop a server and start it again at the same address.
//!
//! A port that the system chooses comes from the range that outgoing connections take theirs from. While its server is
//! stopped anybody's connection may take it, and the server cannot come back. These come from below that range, and each
//! process begins to look at another place.
//!
//! Failure: none is free, or a program that does not choose its ports here takes one; then the server says so.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Outgoing connections begin at 32768 on Linux and at 49152 elsewhere.
const FIRST: u32 = 10_000;
const PORTS: u32 = 22_000;
/// Ports from where one process begins to look to where the next one does.
const PER_PROCESS: u32 = 97;

/// Chosen so far in this process.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 on which nobody listens, and which this process has not been given before.
pub fn port() -> u16 {
    let begin = std::process::id().wrapping_mul(PER_PROCESS);
    let candidates = (0..PORTS).map(|_| {
        let chosen = CHOSEN.fetch_add(1, Ordering::Relaxed);
        (FIRST + begin.wrapping_add(chosen) % PORTS) as u16
    });
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    candidates.into_iter().find(free).expect("a port on which nobody listens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_those_in_use_are_passed_over() {
        let first = port();
        // The process' own next one is taken before it is asked for.
        let next = FIRST + (u32::from(first) - FIRST + 1) % PORTS;
        let _taken = TcpListener::bind(("127.0.0.1", next as u16));
        let second = port();
        assert!(second != first && u32::from(second) != next, "{first} {second}");
        assert!(u32::from(second) < FIRST + PORTS);
    }
}
