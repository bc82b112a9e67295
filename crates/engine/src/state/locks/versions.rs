//! Which batch changed what last, for one volume: what a branch compares with its snapshot.
//!
//! Only what may still matter is kept: versions newer than the oldest snapshot on which a branch works, or that is
//! visible. While no branch is at work the writer does not register at all; [`Versions::floor`] then says up to where
//! nothing is known, and counts as the version of everything.

use super::mode::{LockId, LockMode, Target};
use super::released::Released;
use holdfast_types::VolumeId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};

/// Batches for which the writer continues to register after the last branch has ended: short pauses between interactive
/// transactions must not make each of them begin again.
const KEEP_REGISTERING_BATCHES: u64 = 2000;

/// Versions kept; beyond it everything older counts as changed.
const VERSIONS_MAX: usize = 2_000_000;

/// What a batch raised, and the version that was there before.
type Raised = (Target, Option<u64>);

#[derive(Default)]
pub struct Versions {
    of: FxHashMap<Target, u64>,
    /// What each batch raised, in order.
    raised: VecDeque<(u64, Vec<Raised>)>,
    /// What a batch raised that is one large transaction, in order.
    adopted: VecDeque<(u64, FxHashSet<Target>)>,
    /// Nothing is known of batches up to this one.
    floor: u64,
    /// Snapshots on which branches work.
    active: BTreeMap<u64, u32>,
    /// Last batch that began while a branch was active.
    last_active: u64,
    /// The writer registers what it changes.
    registering: bool,
    /// The batch the writer is working on; its versions are not published yet.
    working: Option<u64>,
    /// The newest published batch; 0 before the first.
    published: u64,
    released: Released,
}

impl Versions {
    /// The writer begins batch `number`; readers may start at `visible`. Returns whether it has to register.
    pub fn begin_batch(&mut self, number: u64, visible: u64) -> bool {
        self.working = Some(number);
        self.released.forget(visible);
        if !self.active.is_empty() {
            self.last_active = number;
        }
        self.registering = number < self.last_active + KEEP_REGISTERING_BATCHES && self.last_active > 0;
        if self.registering && self.len() < VERSIONS_MAX {
            let oldest = self.active.keys().next().copied().unwrap_or(visible).min(visible);
            self.forget(oldest);
        } else {
            self.floor = number;
            self.of.clear();
            self.raised.clear();
            self.adopted.clear();
        }
        self.registering
    }

    /// The batch is published.
    pub fn end_batch(&mut self) {
        self.published = self.working.take().unwrap_or(self.published);
    }

    /// A lock was released, perhaps by a transaction of the batch that was published last.
    pub fn release(&mut self, target: Target, mode: LockMode) {
        let known = match target {
            Target::Row { .. } => self.newer(&target, self.published.saturating_sub(1)).is_some(),
            Target::Advisory { .. } => false,
            // Every change takes the modes of changes: who locks the table after it waits for the writer's batch.
            Target::Table(_) => !mode.excludes_changes(),
            Target::Database | Target::Schema => true,
        };
        if !known {
            self.released.add(target, mode, self.published);
        }
    }

    /// The batch that the next owner of a lock must see; 0 for none.
    pub fn before(&self, target: Target, mode: LockMode) -> u64 {
        self.released.before(target, mode)
    }

    /// The batch was given up: what it raised has the version it had before. Left in place it would hide that one,
    /// and an update made on an older snapshot would overwrite what it never saw.
    pub fn undo_batch(&mut self) {
        let Some(number) = self.working.take() else { return };
        self.floor = self.floor.min(number - 1);
        self.adopted.pop_back_if(|(last, _)| *last == number);
        let Some((_, targets)) = self.raised.pop_back_if(|(last, _)| *last == number) else { return };
        for (target, before) in targets.into_iter().rev() {
            match before {
                Some(version) => self.of.insert(target, version),
                None => self.of.remove(&target),
            };
        }
    }

    /// What is not newer than `snapshot` is of no use.
    fn forget(&mut self, snapshot: u64) {
        while self.adopted.front().is_some_and(|(number, _)| *number <= snapshot) {
            self.adopted.pop_front();
        }
        while self.raised.front().is_some_and(|(number, _)| *number <= snapshot) {
            let Some((number, targets)) = self.raised.pop_front() else { break };
            for (target, _) in targets {
                if self.of.get(&target) == Some(&number) {
                    self.of.remove(&target);
                }
            }
        }
    }

    pub fn raise(&mut self, target: Target) {
        let Some(number) = self.working else { return };
        let before = self.of.insert(target, number);
        if before == Some(number) {
            return;
        }
        match self.raised.back_mut() {
            Some((last, targets)) if *last == number => targets.push((target, before)),
            _ => self.raised.push_back((number, vec![(target, before)])),
        }
    }

    /// The batch that the writer is working on changes all of these, and they were listed before: one million are raised one by one in half a
    /// second.
    pub fn adopt(&mut self, targets: FxHashSet<Target>) {
        let Some(number) = self.working else { return };
        self.adopted.push_back((number, targets));
    }

    /// The batch that changed it after `snapshot`, if one did: published, or the one the writer is working on.
    pub fn newer(&self, target: &Target, snapshot: u64) -> Option<u64> {
        let adopted = self.adopted.iter().rev().find(|(_, targets)| targets.contains(target));
        let adopted = adopted.map_or(0, |(number, _)| *number);
        let version = self.of.get(target).copied().unwrap_or(0).max(adopted).max(self.floor);
        (version > snapshot).then_some(version)
    }

    /// Is the batch still to be published?
    pub fn is_working(&self, number: Option<u64>) -> bool {
        self.working.is_some() && (number.is_none() || self.working == number)
    }

    pub fn enter(&mut self, snapshot: u64) {
        *self.active.entry(snapshot).or_insert(0) += 1;
    }

    pub fn leave(&mut self, snapshot: u64) {
        if let Some(count) = self.active.get_mut(&snapshot) {
            *count -= 1;
            if *count == 0 {
                self.active.remove(&snapshot);
            }
        }
    }

    /// Versions kept at the moment.
    pub fn len(&self) -> usize {
        self.of.len() + self.adopted.iter().map(|(_, targets)| targets.len()).sum::<usize>()
    }
}

/// A target's full name.
pub fn id(volume: VolumeId, target: Target) -> LockId {
    LockId { volume, target }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::locking::Class;
    use holdfast_types::TableId;

    fn row(hash: u64) -> Target {
        Target::Row { class: Class::Row, table: TableId(1), hash }
    }

    #[test]
    fn what_was_not_registered_counts_as_changed() {
        let mut v = Versions::default();
        assert!(!v.begin_batch(11, 10));
        v.end_batch();
        assert_eq!(v.newer(&row(1), 10), Some(11), "nothing was registered in 11");
        assert_eq!(v.newer(&row(1), 11), None);
        v.enter(11);
        assert!(v.begin_batch(12, 11));
        v.raise(row(1));
        assert_eq!(v.newer(&row(1), 11), Some(12), "at work counts");
        v.end_batch();
        assert_eq!(v.newer(&row(1), 11), Some(12));
        assert_eq!(v.newer(&row(2), 11), None);
    }

    #[test]
    fn a_batch_given_up_leaves_the_versions_before_it() {
        let mut v = Versions::default();
        v.enter(10);
        v.begin_batch(11, 10);
        v.raise(row(1));
        v.end_batch();
        v.begin_batch(12, 10);
        v.raise(row(1));
        v.raise(row(2));
        v.raise(row(2));
        v.undo_batch();
        assert_eq!(v.newer(&row(1), 10), Some(11), "12 must not hide 11");
        assert_eq!(v.newer(&row(1), 11), None);
        assert_eq!(v.newer(&row(2), 10), None);
        v.undo_batch();
        assert_eq!(v.newer(&row(1), 10), Some(11), "once is enough");
        v.leave(10);
        v.begin_batch(12, 11);
        assert_eq!(v.len(), 0, "and it is forgotten in its turn");
    }

    #[test]
    fn a_batch_given_up_while_nothing_is_registered_hides_nothing_either() {
        let mut v = Versions::default();
        v.begin_batch(11, 10);
        v.end_batch();
        v.begin_batch(12, 10);
        v.undo_batch();
        assert_eq!(v.newer(&row(1), 10), Some(11));
        assert_eq!(v.newer(&row(1), 11), None);
    }

    #[test]
    fn what_a_large_transaction_raised_goes_with_its_batch() {
        let mut v = Versions::default();
        v.enter(10);
        v.begin_batch(11, 10);
        v.adopt([row(1), row(2)].into_iter().collect());
        v.end_batch();
        assert_eq!((v.newer(&row(1), 10), v.newer(&row(3), 10), v.len()), (Some(11), None, 2));
        v.begin_batch(12, 10);
        v.raise(row(1));
        v.adopt([row(2), row(3)].into_iter().collect());
        assert_eq!([1, 2, 3].map(|r| v.newer(&row(r), 10)), [Some(12); 3]);
        v.undo_batch();
        assert_eq!([1, 2, 3].map(|r| v.newer(&row(r), 10)), [Some(11), Some(11), None]);
        v.leave(10);
        v.begin_batch(12, 11);
        assert_eq!(v.len(), 0);
    }

    #[test]
    fn versions_go_when_no_snapshot_is_older() {
        let mut v = Versions::default();
        v.enter(10);
        for number in 11..=20 {
            assert!(v.begin_batch(number, number - 1));
            v.raise(row(number));
            v.end_batch();
        }
        assert_eq!(v.len(), 10, "the branch at 10 may ask for all");
        v.leave(10);
        v.enter(20);
        v.begin_batch(21, 20);
        assert_eq!(v.len(), 0);
        v.leave(20);
        v.end_batch();
        let last = 21 + KEEP_REGISTERING_BATCHES;
        assert!(v.begin_batch(last - 1, last - 2), "for a while after the last branch");
        assert!(!v.begin_batch(last, last - 1));
        assert_eq!(v.newer(&row(1), last - 1), Some(last));
    }
}
