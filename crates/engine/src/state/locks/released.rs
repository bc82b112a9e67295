//! What was released a moment ago, and by then was published: what its next owner must see.
//!
//! A transaction's locks are released when its batch is published, before that is visible, while statements read the newest
//! visible snapshot. Who gets such a lock must not read what was there before: its owner is `behind` until that batch is
//! visible. A row that the batch has changed needs no entry here, as its version says the same ([`super::versions`]). A lock of
//! a whole table has one if it keeps changes away; those that changes take have none, as LOCK TABLE waits for the batch that the writer
//! works at, whatever is in it.

use super::mode::{LockId, LockMode, Target};
use holdfast_types::{LockStrength, TableLockMode, VolumeId};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Entries kept; beyond it everything counts as released at the newest batch.
const RELEASED_MAX: usize = 10_000;

/// The modes that have entries.
const MODES: [LockMode; 10] = [
    LockMode::Row(LockStrength::KeyShare),
    LockMode::Row(LockStrength::Share),
    LockMode::Row(LockStrength::NoKeyUpdate),
    LockMode::Row(LockStrength::Update),
    LockMode::Shared,
    LockMode::Exclusive,
    LockMode::Table(TableLockMode::Share),
    LockMode::Table(TableLockMode::ShareRowExclusive),
    LockMode::Table(TableLockMode::Exclusive),
    LockMode::Table(TableLockMode::AccessExclusive),
];

/// The locks of one volume that were released lately.
#[derive(Default)]
pub struct Released {
    of: FxHashMap<(Target, LockMode), u64>,
    /// In the order in which they were released.
    order: VecDeque<(u64, (Target, LockMode))>,
    /// What has no entry counts as released at this batch.
    floor: u64,
}

impl Released {
    /// The lock was released when `published` was the newest published batch.
    pub fn add(&mut self, target: Target, mode: LockMode, published: u64) {
        if published <= self.floor {
            return;
        }
        // Of a lock that is taken often there are many in the order while nothing becomes visible.
        if self.order.len() >= RELEASED_MAX {
            (self.of, self.order, self.floor) = (FxHashMap::default(), VecDeque::new(), published);
            return;
        }
        if self.of.insert((target, mode), published) != Some(published) {
            self.order.push_back((published, (target, mode)));
        }
    }

    /// What was released at a batch that is visible now is of no use.
    pub fn forget(&mut self, visible: u64) {
        while self.order.front().is_some_and(|(number, _)| *number <= visible) {
            let Some((number, lock)) = self.order.pop_front() else { break };
            if self.of.get(&lock) == Some(&number) {
                self.of.remove(&lock);
            }
        }
    }

    /// The batch that the next owner of the lock must see; 0 for none.
    pub fn before(&self, target: Target, mode: LockMode) -> u64 {
        if self.of.is_empty() {
            return self.floor;
        }
        let conflicting = MODES.iter().filter(|held| held.conflicts(mode));
        conflicting.filter_map(|held| self.of.get(&(target, *held))).copied().fold(self.floor, u64::max)
    }
}

/// What an owner must see before it reads anything again: the newest batch of each volume that someone had published who held a
/// lock before it.
#[derive(Default)]
pub struct Behind(Vec<(VolumeId, u64)>);

impl Behind {
    pub fn raise(&mut self, lock: LockId, batch: u64) {
        match self.0.iter_mut().find(|(volume, _)| *volume == lock.volume) {
            Some((_, number)) => *number = batch.max(*number),
            None if batch > 0 => self.0.push((lock.volume, batch)),
            None => {}
        }
    }

    /// The batch of this volume; 0 for none.
    pub fn of(&self, volume: VolumeId) -> u64 {
        self.0.iter().find(|(v, _)| *v == volume).map_or(0, |(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advisory(key: i64) -> Target {
        Target::Advisory { space: 0, key }
    }

    #[test]
    fn the_next_owner_is_told_the_batch_of_those_it_conflicts_with() {
        let mut r = Released::default();
        r.add(advisory(1), LockMode::Shared, 5);
        assert_eq!(r.before(advisory(1), LockMode::Shared), 0);
        assert_eq!(r.before(advisory(1), LockMode::Exclusive), 5);
        assert_eq!(r.before(advisory(2), LockMode::Exclusive), 0);
        r.add(advisory(1), LockMode::Exclusive, 7);
        assert_eq!(r.before(advisory(1), LockMode::Shared), 7);
        r.forget(6);
        assert_eq!(r.before(advisory(1), LockMode::Exclusive), 7);
        r.forget(7);
        assert_eq!(r.before(advisory(1), LockMode::Exclusive), 0);
    }

    #[test]
    fn every_mode_of_a_table_that_excludes_changes_has_entries() {
        use TableLockMode::*;
        let of_changes = [AccessShare, RowShare, RowExclusive, ShareUpdateExclusive].map(LockMode::Table);
        let others = [Share, ShareRowExclusive, Exclusive, AccessExclusive].map(LockMode::Table);
        assert!(of_changes.iter().all(|mode| !mode.excludes_changes() && !MODES.contains(mode)));
        assert!(others.iter().all(|mode| mode.excludes_changes() && MODES.contains(mode)));
    }

    #[test]
    fn one_that_is_released_often_takes_no_more_room_than_many() {
        let mut r = Released::default();
        for batch in 1..=3 * RELEASED_MAX as u64 {
            r.add(advisory(1), LockMode::Exclusive, batch);
            assert_eq!(r.before(advisory(1), LockMode::Exclusive), batch);
        }
        assert!(r.order.len() <= RELEASED_MAX);
    }

    #[test]
    fn too_many_count_as_released_at_the_newest_batch() {
        let mut r = Released::default();
        for key in 0..=RELEASED_MAX as i64 {
            r.add(advisory(key), LockMode::Exclusive, 3);
        }
        assert_eq!(r.before(advisory(-1), LockMode::Exclusive), 3);
        r.add(advisory(1), LockMode::Exclusive, 4);
        assert_eq!(r.before(advisory(1), LockMode::Exclusive), 4);
        assert_eq!(r.before(advisory(2), LockMode::Exclusive), 3);
    }
}
