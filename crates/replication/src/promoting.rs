//! One promotion of a standby at a time: an operator's, or its own because the record names it.
//!
//! Failure: a promotion that is under way refuses another one.

use holdfast_standby::{Reason, Refusal};
use std::sync::atomic::{AtomicU8, Ordering};

const NONE: u8 = 0;
const UNDER_WAY: u8 = 1;
/// The role is about to end: no other promotion begins in it.
const ROLE_ENDS: u8 = 2;

/// Whether a promotion is under way in this role.
#[derive(Debug, Default)]
pub struct Promoting(AtomicU8);

impl Promoting {
    /// Begins a promotion, which lasts until the returned value is dropped, or the role has ended.
    pub fn begin(&self) -> Result<UnderWay<'_>, Refusal> {
        match self.0.compare_exchange(NONE, UNDER_WAY, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(UnderWay(self)),
            Err(_) => {
                let message = "a promotion of this server is under way already".to_owned();
                Err(Refusal::new(Reason::Failed, message, "Wait for its end: see holdfast standby status"))
            }
        }
    }

    /// The promotion was agreed on: the server opens again as the master.
    pub fn role_ends(&self) {
        self.0.store(ROLE_ENDS, Ordering::Release);
    }
}

/// A promotion under way.
pub struct UnderWay<'a>(&'a Promoting);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // A role that ends stays ended, so an error is none.
        let _ = self.0.0.compare_exchange(UNDER_WAY, NONE, Ordering::AcqRel, Ordering::Acquire);
    }
}

#[cfg(test)]
mod tests {
    use super::Promoting;

    #[test]
    fn there_is_one_promotion_at_a_time_and_none_after_it_was_agreed_on() {
        let promoting = Promoting::default();
        let first = promoting.begin().ok().unwrap();
        assert!(promoting.begin().is_err());
        drop(first);
        let second = promoting.begin().ok().unwrap();
        promoting.role_ends();
        drop(second);
        assert!(promoting.begin().is_err());
    }
}
