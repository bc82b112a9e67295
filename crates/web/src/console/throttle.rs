//! Failed logins by address: after [`LOGIN_FAILURES_MAX`] within a minute, further attempts are refused unchecked until the minute is
//! over.

use crate::limits::{LOGIN_ADDRESSES_MAX, LOGIN_FAILURES_MAX};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Throttle {
    /// When the minute began, and how many logins have failed in it.
    failures: Mutex<BTreeMap<IpAddr, (Instant, u32)>>,
}

impl Throttle {
    /// `Err`: refused for so many seconds.
    pub fn admits(&self, client: IpAddr) -> Result<(), u64> {
        let failures = self.failures.lock();
        match failures.get(&client) {
            Some((since, count)) if *count >= LOGIN_FAILURES_MAX && since.elapsed() < MINUTE => {
                Err((MINUTE.saturating_sub(since.elapsed())).as_secs() + 1)
            }
            _ => Ok(()),
        }
    }

    pub fn failed(&self, client: IpAddr) {
        let mut failures = self.failures.lock();
        if failures.len() >= LOGIN_ADDRESSES_MAX {
            failures.retain(|_, (since, _)| since.elapsed() < MINUTE);
        }
        // So many addresses at a time are an attack: the oldest is forgotten.
        if failures.len() >= LOGIN_ADDRESSES_MAX
            && let Some(oldest) = failures.iter().min_by_key(|(_, (since, _))| *since).map(|(client, _)| *client)
        {
            failures.remove(&oldest);
        }
        let (since, count) = failures.entry(client).or_insert((Instant::now(), 0));
        if since.elapsed() >= MINUTE {
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
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
            throttle.failed(attacker);
        }
        assert!(throttle.admits(attacker).is_err_and(|wait| (1..=61).contains(&wait)));
        assert_eq!(throttle.admits(IpAddr::from([10, 0, 0, 2])), Ok(()));
    }

    #[test]
    fn the_list_is_bounded() {
        let throttle = Throttle::default();
        (0..LOGIN_ADDRESSES_MAX as u32 + 100).for_each(|n| throttle.failed(IpAddr::from(n.to_be_bytes())));
        assert_eq!(throttle.failures.lock().len(), LOGIN_ADDRESSES_MAX);
    }
}
