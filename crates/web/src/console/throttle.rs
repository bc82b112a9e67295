//! Failed logins by address: after [`LOGIN_FAILURES_MAX`] within a minute, further attempts are refused unchecked until the minute is
//! over.

use crate::limits::{LOGIN_ADDRESSES_MAX, LOGIN_FAILURES_MAX};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Throttle {
    /// By network: when the minute began, and how many logins have failed in it or are being checked.
    attempts: Mutex<BTreeMap<IpAddr, (Instant, u32)>>,
}

/// The addresses that share a limit: one of IPv4, or a network of 64 bits of IPv6, which one machine may have.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

impl Throttle {
    /// Counts an attempt, before it is checked, so that attempts at the same time do not pass together.
    /// `Err`: refused for this number of seconds.
    pub fn admits(&self, client: IpAddr) -> Result<(), u64> {
        let mut attempts = self.attempts.lock();
        let client = network(client);
        if attempts.len() >= LOGIN_ADDRESSES_MAX && !attempts.contains_key(&client) {
            attempts.retain(|_, (since, _)| since.elapsed() < MINUTE);
        }
        // This number of addresses at a time is an attack: the oldest is forgotten.
        if attempts.len() >= LOGIN_ADDRESSES_MAX
            && !attempts.contains_key(&client)
            && let Some(oldest) = attempts.iter().min_by_key(|(_, (since, _))| *since).map(|(client, _)| *client)
        {
            attempts.remove(&oldest);
        }
        let (since, count) = attempts.entry(client).or_insert((Instant::now(), 0));
        if since.elapsed() >= MINUTE {
            (*since, *count) = (Instant::now(), 0);
        }
        if *count >= LOGIN_FAILURES_MAX {
            return Err(MINUTE.saturating_sub(since.elapsed()).as_secs() + 1);
        }
        *count += 1;
        Ok(())
    }

    /// An attempt was no failure.
    pub fn succeeded(&self, client: IpAddr) {
        if let Some((_, count)) = self.attempts.lock().get_mut(&network(client)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_failures_of_one_address_are_refused_and_others_are_not() {
        let (throttle, attacker) = (Throttle::default(), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..LOGIN_FAILURES_MAX {
            assert_eq!(throttle.admits(attacker), Ok(()));
        }
        assert!(throttle.admits(attacker).is_err_and(|wait| (1..=61).contains(&wait)));
        assert_eq!(throttle.admits(IpAddr::from([10, 0, 0, 2])), Ok(()));
        let v6 = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        (0..LOGIN_FAILURES_MAX as u16).for_each(|n| assert_eq!(throttle.admits(v6(n)), Ok(())));
        assert!(throttle.admits(v6(999)).is_err(), "one network");
    }

    #[test]
    fn logins_that_succeed_do_not_count() {
        let (throttle, client) = (Throttle::default(), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..LOGIN_FAILURES_MAX * 3 {
            assert_eq!(throttle.admits(client), Ok(()));
            throttle.succeeded(client);
        }
    }

    #[test]
    fn the_list_is_bounded() {
        let throttle = Throttle::default();
        (0..LOGIN_ADDRESSES_MAX as u32 + 100).for_each(|n| _ = throttle.admits(IpAddr::from(n.to_be_bytes())));
        assert_eq!(throttle.attempts.lock().len(), LOGIN_ADDRESSES_MAX);
    }
}
