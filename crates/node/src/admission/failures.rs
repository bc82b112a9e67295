//! Failed attempts to connect, and to log in on the console, by address: each further one is answered later.
//!
//! The answer to the first failure waits [`DELAY_FIRST`], each next one twice as long, up to the limit of the settings. Only
//! failures wait, so a client with the right password is not delayed by others behind its address. A waiting connection holds
//! no thread, and counts among those that have not completed their start-up, which are bounded.
//!
//! Failure: with more than [`ORIGINS_MAX`] addresses the one whose last failure is the oldest is forgotten.

use holdfast_wire::PeerAddress;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the answer to the first failure waits.
const DELAY_FIRST: Duration = Duration::from_millis(100);

/// Failures are forgotten when there was none for this time.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Addresses with failures that are remembered.
const ORIGINS_MAX: usize = 10_000;

/// Where connections come from: those of one origin share limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    V4([u8; 4]),
    /// The first 64 bits: the network of one machine or customer.
    V6([u8; 8]),
    User(u32),
    Unknown,
}

impl Origin {
    pub fn of(address: Option<PeerAddress>) -> Origin {
        match address {
            Some(PeerAddress::Unix { uid, .. }) => Origin::User(uid),
            Some(PeerAddress::Tcp { client, .. }) => Origin::of_ip(client.ip()),
            None => Origin::Unknown,
        }
    }

    pub fn of_ip(ip: IpAddr) -> Origin {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Origin::V4(ip.octets()),
            IpAddr::V6(ip) => ip.octets().first_chunk().map_or(Origin::Unknown, |network| Origin::V6(*network)),
        }
    }
}

#[derive(Clone, Copy)]
struct Failed {
    times: u32,
    last: Instant,
}

/// The failures of all addresses.
pub struct Failures {
    delay_max: Duration,
    by_origin: Mutex<HashMap<Origin, Failed>>,
    /// Failures since the start.
    total: AtomicU64,
}

impl Failures {
    pub fn new(delay_max: Duration) -> Failures {
        Failures { delay_max, by_origin: Mutex::default(), total: AtomicU64::new(0) }
    }

    /// How many were recorded.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Records a failure; returns how long its answer waits.
    pub fn record(&self, origin: Origin, now: Instant) -> Duration {
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut failures = self.by_origin.lock();
        let is_recent = |failed: &Failed| now.saturating_duration_since(failed.last) < FORGET_AFTER;
        let before = failures.get(&origin).filter(|failed| is_recent(failed)).map_or(0, |failed| failed.times);
        if failures.len() >= ORIGINS_MAX && !failures.contains_key(&origin) {
            failures.retain(|_, failed| is_recent(failed));
        }
        if failures.len() >= ORIGINS_MAX
            && !failures.contains_key(&origin)
            && let Some(oldest) = failures.iter().min_by_key(|(_, failed)| failed.last).map(|(origin, _)| *origin)
        {
            failures.remove(&oldest);
        }
        failures.insert(origin, Failed { times: before.saturating_add(1), last: now });
        let factor = 2u32.checked_pow(before).unwrap_or(u32::MAX);
        DELAY_FIRST.saturating_mul(factor).min(self.delay_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> Origin {
        Origin::V4(n.to_be_bytes())
    }

    #[test]
    fn the_delay_doubles_up_to_its_limit_and_is_forgotten() {
        let (failures, now) = (Failures::new(Duration::from_secs(1)), Instant::now());
        let delays: Vec<u128> = (0..6).map(|_| failures.record(v4(1), now).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(failures.record(v4(2), now), DELAY_FIRST, "another address");
        for _ in 0..100 {
            failures.record(v4(1), now);
        }
        assert_eq!(failures.record(v4(1), now + FORGET_AFTER), DELAY_FIRST);
        assert_eq!(Failures::new(Duration::ZERO).record(v4(1), now), Duration::ZERO);
    }

    #[test]
    fn the_table_is_bounded() {
        let (failures, now) = (Failures::new(Duration::from_secs(1)), Instant::now());
        for n in 0..ORIGINS_MAX as u32 + 100 {
            failures.record(v4(n), now + Duration::from_millis(u64::from(n)));
        }
        assert_eq!(failures.by_origin.lock().len(), ORIGINS_MAX);
        assert!(!failures.by_origin.lock().contains_key(&v4(0)), "the oldest is forgotten");
    }

    #[test]
    fn a_network_of_ipv6_is_one_origin() {
        let of = |client: &str| {
            let client = client.parse().unwrap();
            Origin::of(Some(PeerAddress::Tcp { client, server: client }))
        };
        assert_eq!(of("[2001:db8:1:2::1]:5"), of("[2001:db8:1:2:9::1]:6"));
        assert_ne!(of("[2001:db8:1:2::1]:5"), of("[2001:db8:1:3::1]:5"));
        assert_eq!(of("[::ffff:10.0.0.1]:5"), of("10.0.0.1:9"));
        assert_eq!(Origin::of(Some(PeerAddress::Unix { uid: 7, gid: 0, pid: None })), Origin::User(7));
    }
}
