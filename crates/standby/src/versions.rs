//! The versions of the link protocol that this program speaks, and the one that two programs agree on.
//!
//! A release speaks its own version and that of the release before, so that nodes are upgraded one after the other
//! while clients work. Programs that are further apart refuse each other and name the one to upgrade.
//!
//! A test build can act as another release with `HOLDFAST_TEST_LINK_VERSIONS=OLDEST-NEWEST`, so that upgrades can be
//! tested before there is a next release. A release build ignores it.

use crate::frame::{VERSION, VERSION_OLDEST};
use crate::refusal::{Reason, Refusal};
use std::ops::RangeInclusive;

/// The oldest and newest version that this program speaks.
pub fn spoken() -> RangeInclusive<u8> {
    played().unwrap_or(VERSION_OLDEST..=VERSION)
}

#[cfg(debug_assertions)]
fn played() -> Option<RangeInclusive<u8>> {
    let versions = std::env::var("HOLDFAST_TEST_LINK_VERSIONS").ok()?;
    let (oldest, newest) = versions.split_once('-')?;
    Some(oldest.parse().ok()?..=newest.parse().ok()?)
}

#[cfg(not(debug_assertions))]
fn played() -> Option<RangeInclusive<u8>> {
    None
}

/// The newest version that both sides speak.
pub fn agree(newest: u8, oldest: u8) -> Result<u8, Refusal> {
    agree_with(newest, oldest, &spoken())
}

fn agree_with(newest: u8, oldest: u8, here: &RangeInclusive<u8>) -> Result<u8, Refusal> {
    let version = newest.min(*here.end());
    if version >= oldest.max(*here.start()) {
        return Ok(version);
    }
    let message = format!(
        "the other program speaks versions {oldest} to {newest} of the link protocol, this one {} to {}",
        here.start(),
        here.end()
    );
    Err(Refusal::new(Reason::Version, message, "Upgrade the older program, one release at a time, the standby first"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_meet() {
        assert_eq!(agree(VERSION, VERSION_OLDEST), Ok(VERSION));
        assert_eq!(agree(u8::MAX, VERSION), Ok(VERSION), "a newer one that still speaks ours");
        assert_eq!(agree(u8::MAX, VERSION + 1).unwrap_err().reason, Reason::Version);
        assert_eq!(agree(0, 0).unwrap_err().reason, Reason::Version);
    }

    #[test]
    fn one_release_apart_they_meet_in_the_middle() {
        assert_eq!(agree_with(2, 1, &(2..=3)), Ok(2), "the other one is older");
        assert_eq!(agree_with(3, 2, &(1..=2)), Ok(2), "and newer");
        assert!(agree_with(1, 1, &(2..=3)).unwrap_err().message.contains("1 to 1"));
        assert!(agree_with(4, 3, &(1..=2)).unwrap_err().message.contains("this one 1 to 2"));
    }
}
