//! How many sessions there are of each role, in each database and from each address.
//!
//! A session is counted first and compared afterwards, so that two that begin at once cannot both take the last place.

use super::failures::Origin;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// What sessions are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CountedBy {
    /// A role's OID.
    Role(u32),
    /// A database's OID.
    Database(u32),
    Address(Origin),
}

/// The sessions of a server.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Mutex<HashMap<CountedBy, usize>>>);

/// A session's places; dropping it gives them back.
#[derive(Default)]
pub struct Places {
    of: Option<Sessions>,
    taken: Vec<CountedBy>,
}

impl Sessions {
    /// Counts a session; returns the number with it.
    pub fn take(&self, places: &mut Places, by: CountedBy) -> usize {
        places.of.get_or_insert_with(|| self.clone());
        places.taken.push(by);
        let mut counts = self.0.lock();
        let count = counts.entry(by).or_default();
        *count += 1;
        *count
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let Some(sessions) = &self.of else { return };
        let mut counts = sessions.0.lock();
        for by in &self.taken {
            if let Some(count) = counts.get_mut(by) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(by);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back() {
        let (sessions, mut a, mut b) = (Sessions::default(), Places::default(), Places::default());
        assert_eq!(sessions.take(&mut a, CountedBy::Role(1)), 1);
        assert_eq!(sessions.take(&mut b, CountedBy::Role(1)), 2);
        assert_eq!(sessions.take(&mut b, CountedBy::Database(1)), 1);
        drop(b);
        assert_eq!(sessions.take(&mut a, CountedBy::Role(1)), 2);
        drop(a);
        assert!(sessions.0.lock().is_empty());
    }
}
