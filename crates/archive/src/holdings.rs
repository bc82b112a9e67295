//! The objects of an archive, as its store lists them: by trail and segment.

use std::collections::BTreeMap;

use holdfast_trail::TrailId;
use holdfast_types::Epoch;

use crate::error::ArchiveError;
use crate::name::{ObjectName, file_from};
use crate::store::{Listed, Store};

/// One object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding {
    pub name: ObjectName,
    pub bytes: u64,
}

/// The objects of one trail.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// Objects by segment, then by epoch and last checksum.
    by_segment: BTreeMap<u32, BTreeMap<(Epoch, u32), Holding>>,
}

impl Holdings {
    /// Lists the objects of one trail.
    pub async fn of(store: &dyn Store, trail_id: TrailId) -> Result<Holdings, ArchiveError> {
        let directory = trail_id.to_string();
        let mut trails = Holdings::gather(store.list(&directory).await?);
        Ok(trails.remove(&directory).map(|(_, holdings)| holdings).unwrap_or_default())
    }

    /// Lists the objects of all trails, by their ids as text.
    pub async fn of_all(store: &dyn Store) -> Result<BTreeMap<String, (TrailId, Holdings)>, ArchiveError> {
        Ok(Holdings::gather(store.list("").await?))
    }

    /// Lists the objects of one trail that are of this epoch, from this segment on, or of a later epoch.
    pub async fn from(
        store: &dyn Store,
        trail_id: TrailId,
        epoch: Epoch,
        segment: u32,
    ) -> Result<Holdings, ArchiveError> {
        let directory = trail_id.to_string();
        let mut trails = Holdings::gather(store.list_from(&directory, &file_from(epoch, segment)).await?);
        Ok(trails.remove(&directory).map(|(_, holdings)| holdings).unwrap_or_default())
    }

    fn gather(all: Vec<Listed>) -> BTreeMap<String, (TrailId, Holdings)> {
        let mut trails = BTreeMap::new();
        for listed in all {
            // Files that are not objects of ours, or are still being written, are skipped.
            let Some(name) = ObjectName::parse(&listed.name) else { continue };
            let (_, holdings) =
                trails.entry(name.trail_id.to_string()).or_insert_with(|| (name.trail_id, Holdings::default()));
            holdings.insert(Holding { name, bytes: listed.bytes });
        }
        trails
    }

    pub fn insert(&mut self, holding: Holding) {
        let ObjectName { epoch, segment, last_checksum, .. } = holding.name;
        self.by_segment.entry(segment).or_default().insert((epoch, last_checksum), holding);
    }

    pub fn is_empty(&self) -> bool {
        self.by_segment.is_empty()
    }

    /// All objects, by segment and epoch.
    pub fn objects(&self) -> impl Iterator<Item = &Holding> {
        self.by_segment.values().flat_map(BTreeMap::values)
    }

    pub fn bytes(&self) -> u64 {
        self.objects().map(|holding| holding.bytes).sum()
    }

    /// The names of a segment's objects, the highest epoch first.
    pub fn names(&self, segment: u32) -> Vec<ObjectName> {
        self.by_segment.get(&segment).into_iter().flat_map(|by_epoch| by_epoch.values().rev()).map(|h| h.name).collect()
    }

    /// The object of a segment whose last boxcar has this checksum.
    pub fn ending_with(&self, segment: u32, last_checksum: u32) -> Option<Holding> {
        let mut by_epoch = self.by_segment.get(&segment)?.values().rev();
        by_epoch.find(|holding| holding.name.last_checksum == last_checksum).copied()
    }

    /// The objects that can belong to the history that ends with this object; all of them if it does not exist. Objects
    /// of later segments or epochs cannot belong to it, and of its own segment only this object does. The headers
    /// decide whether each leads to the next.
    pub fn up_to(&self, last: &ObjectName) -> Holdings {
        if !self.names(last.segment).contains(last) {
            return self.clone();
        }
        let is_before = |name: &ObjectName| name == last || (name.segment < last.segment && name.epoch <= last.epoch);
        let mut holdings = Holdings::default();
        self.objects().filter(|holding| is_before(&holding.name)).for_each(|holding| holdings.insert(*holding));
        holdings
    }

    pub fn first_segment(&self) -> Option<u32> {
        self.by_segment.keys().next().copied()
    }

    pub fn last_segment(&self) -> Option<u32> {
        self.by_segment.keys().next_back().copied()
    }

    /// Ranges of missing segments between the first and the last: first and last of each range.
    pub fn gaps(&self) -> Vec<(u32, u32)> {
        let pairs = self.by_segment.keys().zip(self.by_segment.keys().skip(1));
        pairs.filter(|(before, behind)| **behind > **before + 1).map(|(a, b)| (a + 1, b - 1)).collect()
    }

    /// Segments with more than one object: nodes diverged, or a master was deposed.
    pub fn forked(&self) -> Vec<u32> {
        self.by_segment.iter().filter(|(_, by_epoch)| by_epoch.len() > 1).map(|(segment, _)| *segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_forks_are_seen() {
        let mut holdings = Holdings::default();
        for (epoch, segment) in [(1, 1), (1, 2), (1, 5), (2, 5), (2, 6), (3, 9)] {
            let name = ObjectName { trail_id: TrailId([1; 16]), epoch: Epoch(epoch), segment, last_checksum: epoch };
            holdings.insert(Holding { name, bytes: 10 });
        }
        assert_eq!((holdings.gaps(), holdings.forked(), holdings.bytes()), (vec![(3, 4), (7, 8)], vec![5], 60));
        assert_eq!((holdings.first_segment(), holdings.last_segment()), (Some(1), Some(9)));
        assert_eq!(holdings.names(5).iter().map(|name| name.epoch.0).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(holdings.ending_with(5, 1).map(|found| found.name), Some(holdings.names(5)[1]));
        assert_eq!(holdings.ending_with(5, 3), None);
        let last = holdings.names(6)[0];
        assert_eq!((holdings.up_to(&last).last_segment(), holdings.up_to(&last).forked()), (Some(6), vec![5]));
        let deposed = *holdings.names(5).last().unwrap();
        assert_eq!((holdings.up_to(&deposed).last_segment(), holdings.up_to(&deposed).forked()), (Some(5), vec![]));
        assert_eq!(holdings.up_to(&ObjectName { segment: 7, ..last }), holdings);
    }
}
