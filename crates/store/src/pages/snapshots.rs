//! Which snapshots exist, how large the database is in each, and which of them are being read.

use holdfast_seams::sabotage::{Sabotage, asked};
use std::collections::BTreeMap;

/// Bookkeeping of snapshots. A snapshot's number is the number of the batch that published it.
#[derive(Default)]
pub struct Snapshots {
    /// Last published.
    pub newest: u64,
    /// The last one that readers may see: its batch and all before it are on disk and have reached their levels. Readers start on it.
    pub visible: u64,
    /// Database size in pages of each snapshot that is read or may still be read.
    sizes: BTreeMap<u64, u32>,
    /// Number of readers of each snapshot.
    active: BTreeMap<u64, u32>,
    /// Snapshots below this one were expired (RULE 12).
    pub expired_below: u64,
    /// The snapshot that a checkpoint is writing; it is not expired.
    pinned: Option<u64>,
}

/// The snapshots that pruning must keep, copied once per publish.
pub struct Needed {
    /// Snapshots in use, ascending, without the expired ones.
    active: Vec<u64>,
    visible: u64,
}

impl Needed {
    /// Whether a version visible to snapshots `from..until` may still be read.
    pub fn covers(&self, from: u64, until: u64) -> bool {
        if until > self.visible {
            return true;
        }
        let i = self.active.partition_point(|a| *a < from);
        self.active.get(i).is_some_and(|a| *a < until)
    }

    /// Whether a snapshot older than `version` but at least `from` is being read.
    pub fn read_between(&self, from: u64, version: u64) -> bool {
        let i = self.active.partition_point(|a| *a < from);
        self.active.get(i).is_some_and(|a| *a < version)
    }
}

impl Snapshots {
    /// Sets the state after opening a file at batch `number` with `pages` pages.
    pub fn reset(&mut self, number: u64, pages: u32) {
        *self = Snapshots { newest: number, visible: number, ..Snapshots::default() };
        self.sizes.insert(number, pages);
    }

    pub fn publish(&mut self, number: u64, pages: u32) {
        debug_assert!(number > self.newest);
        self.newest = number;
        self.sizes.insert(number, pages);
    }

    pub fn set_visible(&mut self, number: u64) {
        let number = number.min(self.newest);
        if number > self.visible {
            self.visible = number;
            let active = &self.active;
            self.sizes.retain(|n, _| *n >= number || active.contains_key(n));
        }
    }

    /// Begins to read the newest visible snapshot. Returns its number and size.
    pub fn acquire(&mut self) -> (u64, u32) {
        *self.active.entry(self.visible).or_insert(0) += 1;
        (self.visible, self.pages_of(self.visible))
    }

    /// Begins to read the newest published snapshot. Returns its number and size.
    pub fn acquire_newest(&mut self) -> (u64, u32) {
        self.acquire_at(self.newest)
    }

    /// Begins to read a snapshot that is already being read, or one at least as new as the visible one.
    pub fn acquire_at(&mut self, number: u64) -> (u64, u32) {
        debug_assert!(number >= self.visible || self.active.contains_key(&number));
        *self.active.entry(number).or_insert(0) += 1;
        (number, self.pages_of(number))
    }

    /// Begins to read the newest visible snapshot for a checkpoint. Only one checkpoint runs at a time.
    pub fn pin(&mut self) -> (u64, u32) {
        if asked(Sabotage::StoreAhead) {
            self.pinned = Some(self.newest);
            return self.acquire_newest();
        }
        self.pinned = Some(self.visible);
        self.acquire()
    }

    pub fn unpin(&mut self, number: u64) {
        self.pinned = None;
        self.release(number);
    }

    pub fn release(&mut self, number: u64) {
        if let Some(count) = self.active.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.active.remove(&number);
                if number < self.visible {
                    self.sizes.remove(&number);
                }
            }
        }
    }

    /// Size of a snapshot that is active, visible or newer.
    pub fn pages_of(&self, number: u64) -> u32 {
        self.sizes.range(..=number).next_back().map_or(0, |(_, pages)| *pages)
    }

    pub fn needed(&self) -> Needed {
        let active = self.active.keys().copied().filter(|n| *n >= self.expired_below).collect();
        Needed { active, visible: self.visible }
    }

    /// The oldest snapshot that is being read.
    pub fn oldest_active(&self) -> Option<u64> {
        self.active.keys().copied().find(|n| *n >= self.expired_below)
    }

    /// Expires the oldest snapshot in use, if it is older than the visible one. Returns its number.
    pub fn expire_oldest(&mut self) -> Option<u64> {
        let limit = self.pinned.unwrap_or(self.visible);
        let oldest = self.oldest_active().filter(|n| *n < limit)?;
        self.expired_below = oldest + 1;
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_start_on_visible_and_keep_their_size() {
        let mut s = Snapshots::default();
        s.reset(10, 5);
        s.publish(11, 6);
        assert_eq!(s.acquire(), (10, 5), "published is not visible");
        s.set_visible(11);
        assert_eq!(s.acquire(), (11, 6));
        s.publish(12, 9);
        s.set_visible(12);
        assert_eq!(s.pages_of(10), 5);
        let n = s.needed();
        assert!(n.covers(3, 11) && n.covers(11, 12) && n.covers(12, 13));
        s.release(10);
        assert!(!s.needed().covers(3, 11));
    }

    #[test]
    fn the_visible_snapshot_does_not_expire() {
        let mut s = Snapshots::default();
        s.reset(1, 1);
        s.acquire();
        assert_eq!(s.expire_oldest(), None);
        s.publish(2, 1);
        s.set_visible(2);
        assert_eq!(s.expire_oldest(), Some(1));
        assert!(!s.needed().covers(1, 2));
    }

    #[test]
    fn what_a_checkpoint_writes_does_not_expire() {
        let mut s = Snapshots::default();
        s.reset(1, 1);
        s.acquire();
        s.publish(2, 1);
        s.set_visible(2);
        assert_eq!(s.pin(), (2, 1));
        s.publish(3, 1);
        s.set_visible(3);
        assert_eq!(s.expire_oldest(), Some(1));
        assert_eq!(s.expire_oldest(), None);
        assert!(s.needed().covers(2, 3));
        s.unpin(2);
        assert!(!s.needed().covers(2, 3));
    }
}
