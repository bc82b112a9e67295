//! Which sessions hold a snapshot, and since when: for views only, nothing depends on it.

use holdfast_types::VolumeId;
use std::collections::BTreeMap;
use std::time::Instant;

/// A snapshot that a transaction keeps.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub volume: VolumeId,
    pub number: u64,
    /// The process number its client knows; 0 for none.
    pub pid: i32,
    pub since: Instant,
}

/// An entry among the holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HolderId(u64);

/// In order of arrival.
#[derive(Default)]
pub struct Holders {
    of: BTreeMap<HolderId, Holder>,
    last: u64,
}

impl Holders {
    pub fn add(&mut self, holder: Holder) -> HolderId {
        self.last += 1;
        self.of.insert(HolderId(self.last), holder);
        HolderId(self.last)
    }

    pub fn remove(&mut self, id: HolderId) {
        self.of.remove(&id);
    }

    /// The holder that has held one the longest.
    pub fn oldest(&self) -> Option<Holder> {
        self.of.first_key_value().map(|(_, holder)| *holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_who_came_first_and_is_still_there() {
        let mut holders = Holders::default();
        let holder = |pid| Holder { volume: VolumeId(1), number: 9, pid, since: Instant::now() };
        let (first, second) = (holders.add(holder(7)), holders.add(holder(8)));
        assert_eq!(holders.oldest().map(|h| h.pid), Some(7));
        holders.remove(first);
        assert_eq!(holders.oldest().map(|h| h.pid), Some(8));
        holders.remove(second);
        assert!(holders.oldest().is_none());
    }
}
