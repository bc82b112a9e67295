//! Ports for tests that stop a server and start it again at the same address.
//!
//! The system assigns ports from the range of outgoing connections. While a server is stopped, any other connection may
//! take its port, and the server cannot come back. The ports here are below that range, and each process begins its
//! search at another port.
//!
//! Failure: no port is free, or a program that chooses its ports otherwise takes one; then the server reports it.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Outgoing connections begin at 32768 on Linux and at 49152 elsewhere.
const FIRST: u32 = 10_000;
const PORTS: u32 = 22_000;
/// Distance between the ports at which two processes begin to search.
const PER_PROCESS: u32 = 97;

/// Number of ports chosen so far in this process.
static CHOSEN: AtomicU32 = AtomicU32::new(0);

/// Returns a port of 127.0.0.1 that no program listens on and that was not returned before in this process.
pub fn port() -> u16 {
    let begin = std::process::id().wrapping_mul(PER_PROCESS);
    let candidates = (0..PORTS).map(|_| {
        let chosen = CHOSEN.fetch_add(1, Ordering::Relaxed);
        (FIRST + begin.wrapping_add(chosen) % PORTS) as u16
    });
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    candidates.into_iter().find(free).expect("a port on which no program listens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_those_in_use_are_passed_over() {
        let first = port();
        // This process's own next port is taken before it is requested.
        let next = FIRST + (u32::from(first) - FIRST + 1) % PORTS;
        let _taken = TcpListener::bind(("127.0.0.1", next as u16));
        let second = port();
        assert!(second != first && u32::from(second) != next, "{first} {second}");
        assert!(u32::from(second) < FIRST + PORTS);
    }
}
