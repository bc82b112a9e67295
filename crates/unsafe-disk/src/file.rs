//! The bytes of one file: what a reader sees, what the backing holds, and what lies between them in the drive's cache.
//!
//! A reader sees, from bottom to top: the backing up to where the file was last truncated; sectors of a failed sync,
//! which the kernel takes for written (only readers through the page cache see them); sectors not yet synced.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::SystemTime;

use crate::pages::{Pages, SECTOR_BYTES};
use crate::random::Random;

#[derive(Default)]
pub struct FileData {
    pub len_bytes: u64,
    /// Length of the backing file.
    durable_bytes: u64,
    /// Lengths the file has had since the last sync.
    lengths: Vec<u64>,
    /// The backing's bytes from here on were truncated away since the last sync.
    cut_off_at: Option<u64>,
    unsynced: Pages,
    /// From failed syncs: shown by the page cache, and never written.
    ghosts: Pages,
    /// The open backing file, once there is one.
    pub backing: Option<Arc<File>>,
    pub modified_unsynced: bool,
}

/// Lengths remembered of a file that is never synced.
const LENGTHS_MAX: usize = 64;

/// What a power cut did to unsynced sectors.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Torn {
    pub kept_sectors: u64,
    pub dropped_sectors: u64,
    pub garbage_sectors: u64,
    /// Files whose length or truncation was not kept.
    pub lost_lengths: u64,
}

/// How a file fares at a power cut; drawn for each file, so that one file may be whole while another has lost all.
#[derive(Clone, Copy)]
enum Fate {
    AllKept,
    AllDropped,
    /// Kept in that many of a hundred sectors.
    Mixed(u32),
}

impl FileData {
    /// A file as the backing has it.
    pub fn durable(len_bytes: u64) -> FileData {
        FileData { len_bytes, durable_bytes: len_bytes, ..FileData::default() }
    }

    pub fn is_synced(&self) -> bool {
        self.unsynced.is_empty() && self.lengths.is_empty() && self.cut_off_at.is_none()
    }

    /// True when a sync would have to change the file's length.
    pub fn length_unsynced(&self) -> bool {
        !self.lengths.is_empty()
    }

    pub fn unsynced_sectors(&self) -> u64 {
        self.unsynced.sectors()
    }

    /// What a reader sees at `offset`; shorter at the end of the file.
    pub fn read(&self, offset: u64, len_bytes: usize, direct: bool) -> io::Result<Vec<u8>> {
        let len = self.len_bytes.saturating_sub(offset).min(len_bytes as u64) as usize;
        let mut buf = vec![0; len];
        self.view(offset, &mut buf, direct)?;
        Ok(buf)
    }

    fn view(&self, offset: u64, buf: &mut [u8], direct: bool) -> io::Result<()> {
        let visible = self.cut_off_at.unwrap_or(u64::MAX).min(self.durable_bytes);
        let len = visible.saturating_sub(offset).min(buf.len() as u64) as usize;
        if let Some(backing) = &self.backing
            && len > 0
        {
            backing.read_exact_at(&mut buf[..len], offset)?;
        }
        if !direct {
            self.ghosts.overlay(offset, buf);
        }
        self.unsynced.overlay(offset, buf);
        Ok(())
    }

    /// Writes into the drive's cache. Sectors that are written in part keep the rest of what they show.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let sector = SECTOR_BYTES as u64;
        let end = offset + bytes.len() as u64;
        let (first, last) = (offset / sector * sector, end.next_multiple_of(sector));
        if first == offset && last == end {
            self.unsynced.put(offset, bytes);
        } else {
            let mut whole = vec![0; (last - first) as usize];
            self.view(first, &mut whole[..SECTOR_BYTES], false)?;
            let tail = whole.len() - SECTOR_BYTES;
            self.view(last - sector, &mut whole[tail..], false)?;
            whole[(offset - first) as usize..(end - first) as usize].copy_from_slice(bytes);
            self.unsynced.put(first, &whole);
        }
        if end > self.len_bytes {
            self.set_len(end);
        }
        Ok(())
    }

    pub fn set_len(&mut self, len_bytes: u64) {
        if len_bytes < self.len_bytes {
            self.unsynced.truncate(len_bytes);
            self.ghosts.truncate(len_bytes);
            if len_bytes < self.durable_bytes {
                self.cut_off_at = Some(self.cut_off_at.map_or(len_bytes, |at| at.min(len_bytes)));
            }
        }
        if len_bytes != self.len_bytes {
            if self.lengths.len() == LENGTHS_MAX {
                self.lengths.remove(LENGTHS_MAX / 2);
            }
            self.lengths.push(len_bytes);
        }
        self.len_bytes = len_bytes;
    }

    /// Makes everything durable. `backing` is open.
    pub fn flush(&mut self, backing: &File) -> io::Result<()> {
        if let Some(at) = self.cut_off_at.filter(|at| *at < self.durable_bytes) {
            backing.set_len(at)?;
        }
        for (offset, bytes) in self.unsynced.runs() {
            backing.write_all_at(&bytes, offset)?;
        }
        if self.length_unsynced() || !self.unsynced.is_empty() {
            // Also cuts what the last sector has behind the end of the file.
            backing.set_len(self.len_bytes)?;
        }
        self.settled(self.len_bytes);
        Ok(())
    }

    /// A sync failed: the kernel calls the pages clean, the device never got them, and the length stays.
    pub fn fail_sync(&mut self) {
        let lost = std::mem::take(&mut self.unsynced);
        self.ghosts.absorb(lost);
    }

    fn settled(&mut self, durable_bytes: u64) {
        self.unsynced = Pages::default();
        self.lengths.clear();
        self.cut_off_at = None;
        self.durable_bytes = durable_bytes;
    }

    /// The power is cut: decides for the length, a truncation and every unsynced sector, and writes the outcome.
    pub fn lose_power(&mut self, backing: &File, random: &mut Random, garbage: u32, torn: &mut Torn) -> io::Result<()> {
        let fate = match random.below(6) {
            0 => Fate::AllKept,
            1 => Fate::AllDropped,
            2 => Fate::Mixed(90),
            3 => Fate::Mixed(10),
            _ => Fate::Mixed(50),
        };
        let len_bytes = self.length_after(fate, random);
        torn.lost_lengths += u64::from(len_bytes != self.len_bytes);
        if let Some(at) = self.cut_off_at
            && fate.keeps(random)
        {
            backing.set_len(at.min(self.durable_bytes))?;
        }
        for (offset, sector) in self.unsynced.iter() {
            let keep = fate.keeps(random);
            let garbled = !keep && matches!(fate, Fate::Mixed(_)) && random.percent(garbage);
            if offset >= len_bytes || !(keep || garbled) {
                torn.dropped_sectors += 1;
            } else if keep {
                torn.kept_sectors += 1;
                backing.write_all_at(sector, offset)?;
            } else {
                torn.garbage_sectors += 1;
                let mut noise = [0; SECTOR_BYTES];
                random.fill(&mut noise);
                backing.write_all_at(&noise, offset)?;
            }
        }
        backing.set_len(len_bytes)?;
        self.settled(len_bytes);
        Ok(())
    }

    /// One of the lengths the file has had since the last sync.
    fn length_after(&self, fate: Fate, random: &mut Random) -> u64 {
        match (fate, self.lengths.is_empty()) {
            (Fate::AllKept, _) | (_, true) => self.len_bytes,
            (Fate::AllDropped, _) => self.durable_bytes,
            (Fate::Mixed(_), _) => match random.below(self.lengths.len() as u64 + 1) {
                0 => self.durable_bytes,
                n => self.lengths[n as usize - 1],
            },
        }
    }
}

impl Fate {
    fn keeps(self, random: &mut Random) -> bool {
        match self {
            Fate::AllKept => true,
            Fate::AllDropped => false,
            Fate::Mixed(percent) => random.percent(percent),
        }
    }
}

/// Sets the time of last modification, when the file system lets us.
pub fn set_modified(backing: &File, modified: SystemTime) {
    // Only a time; on a file system without it everything else still works.
    let _ = backing.set_modified(modified);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backed(bytes: &[u8]) -> (FileData, Arc<File>) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(bytes, 0).unwrap();
        let data = FileData { backing: Some(file.clone()), ..FileData::durable(bytes.len() as u64) };
        (data, file)
    }

    fn durable(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn only_a_flush_reaches_the_backing() {
        let (mut data, file) = backed(&[1; 1000]);
        data.write(990, &[2; 20]).unwrap();
        assert_eq!(
            (data.read(985, 100, false).unwrap(), durable(&file)),
            ([[1; 5].to_vec(), [2; 20].to_vec()].concat(), vec![1; 1000])
        );
        data.flush(&file).unwrap();
        assert_eq!((durable(&file)[989..].to_vec(), data.is_synced()), ([vec![1], vec![2; 20]].concat(), true));
    }

    #[test]
    fn truncated_bytes_do_not_come_back() {
        let (mut data, file) = backed(&[1; 5000]);
        data.set_len(10);
        data.set_len(3000);
        assert_eq!(data.read(0, 5000, false).unwrap(), [vec![1; 10], vec![0; 2990]].concat());
        data.flush(&file).unwrap();
        assert_eq!(durable(&file), [vec![1; 10], vec![0; 2990]].concat());
    }

    #[test]
    fn after_a_failed_sync_the_page_cache_lies() {
        let (mut data, file) = backed(&[1; 512]);
        data.write(0, &[2; 512]).unwrap();
        data.fail_sync();
        data.flush(&file).unwrap();
        assert_eq!((data.read(0, 1, false).unwrap(), data.read(0, 1, true).unwrap()), (vec![2], vec![1]));
        assert_eq!(durable(&file), vec![1; 512]);
    }

    #[test]
    fn a_power_cut_keeps_drops_and_garbles() {
        let mut torn = Torn::default();
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let (mut data, file) = backed(&[1; 4096]);
            data.write(2048, &[2; 4096]).unwrap();
            data.lose_power(&file, &mut Random::new(seed), 20, &mut torn).unwrap();
            let found = durable(&file);
            assert!(found[..2048] == [1; 2048], "what was synced stays");
            lengths.insert(found.len());
        }
        assert!(torn.kept_sectors > 50 && torn.dropped_sectors > 50 && torn.garbage_sectors > 5, "{torn:?}");
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [4096, 6144]);
    }
}
