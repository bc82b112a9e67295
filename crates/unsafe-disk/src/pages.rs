//! Sectors that lie in a cache, by their place in the file.
//!
//! Kept in pages of eight sectors with a bit for each, since most writes are whole pages. A sector is whole or absent:
//! a writer of part of one fills in the rest first.

use std::collections::BTreeMap;

/// What a disk writes or does not write as one.
pub const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;
const SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;

struct Page {
    /// Bit n: sector n is here.
    present: u8,
    bytes: Box<[u8; PAGE_BYTES]>,
}

#[derive(Default)]
pub struct Pages {
    pages: BTreeMap<u64, Page>,
    sectors: u64,
}

impl Pages {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Puts whole sectors. `offset` and the length are multiples of a sector.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        debug_assert!(offset.is_multiple_of(SECTOR_BYTES as u64) && bytes.len().is_multiple_of(SECTOR_BYTES));
        let mut offset = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = (offset % PAGE_BYTES as u64) as usize;
            let len = rest.len().min(PAGE_BYTES - at);
            let page = self.pages.entry(offset / PAGE_BYTES as u64).or_insert_with(Page::empty);
            page.bytes[at..at + len].copy_from_slice(&rest[..len]);
            for sector in at / SECTOR_BYTES..(at + len) / SECTOR_BYTES {
                self.sectors += u64::from(page.present & (1 << sector) == 0);
                page.present |= 1 << sector;
            }
            offset += len as u64;
            rest = &rest[len..];
        }
    }

    /// Copies the pages held here over `buf`, which holds the file's bytes at `offset`.
    pub fn overlay(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (start, sector) in self.from(offset / PAGE_BYTES as u64 * PAGE_BYTES as u64) {
            if start >= end {
                return;
            }
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES as u64).min(end));
            if from < to {
                let source = &sector[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
    }

    /// All sectors in order of their place.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.from(0)
    }

    fn from(&self, offset: u64) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.range(offset / PAGE_BYTES as u64..).flat_map(|(number, page)| {
            let present = (0..SECTORS).filter(|sector| page.present & (1 << sector) != 0);
            present.map(move |sector| {
                let at = sector * SECTOR_BYTES;
                (number * PAGE_BYTES as u64 + at as u64, &page.bytes[at..at + SECTOR_BYTES])
            })
        })
    }

    /// Neighbouring sectors joined, for few and large writes.
    pub fn runs(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (offset, sector) in self.iter() {
            match runs.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == offset => bytes.extend_from_slice(sector),
                _ => runs.push((offset, sector.to_vec())),
            }
        }
        runs
    }

    /// Forgets what lies behind `len_bytes`; of the sector that it cuts, the rest becomes zeros.
    pub fn truncate(&mut self, len_bytes: u64) {
        drop(self.pages.split_off(&len_bytes.div_ceil(PAGE_BYTES as u64)));
        let number = len_bytes / PAGE_BYTES as u64;
        let at = (len_bytes % PAGE_BYTES as u64) as usize;
        if let Some(page) = self.pages.get_mut(&number)
            && at > 0
        {
            page.bytes[at..].fill(0);
            let whole = at.div_ceil(SECTOR_BYTES);
            page.present &= ((1u16 << whole) - 1) as u8;
            if page.present == 0 {
                self.pages.remove(&number);
            }
        }
        self.sectors = self.pages.values().map(|page| u64::from(page.present.count_ones())).sum();
    }

    /// Takes over all sectors of `newer`.
    pub fn absorb(&mut self, newer: Pages) {
        for (offset, bytes) in newer.runs() {
            self.put(offset, &bytes);
        }
    }
}

impl Page {
    fn empty() -> Page {
        Page { present: 0, bytes: Box::new([0; PAGE_BYTES]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_lies_over_what_is_below() {
        let mut pages = Pages::default();
        pages.put(3584, &[1; 1024]);
        pages.put(8192, &[2; 512]);
        let mut buf = vec![9; 10_000];
        pages.overlay(0, &mut buf);
        assert_eq!((buf[3583], buf[3584], buf[4607], buf[4608], buf[8192], buf[8704]), (9, 1, 1, 9, 2, 9));
        let mut part = vec![9; 3];
        pages.overlay(4606, &mut part);
        assert_eq!((part, pages.sectors()), (vec![1, 1, 9], 3));
        let runs: Vec<_> = pages.runs().into_iter().map(|(offset, bytes)| (offset, bytes.len())).collect();
        assert_eq!(runs, [(3584, 1024), (8192, 512)]);
    }

    #[test]
    fn a_cut_sector_keeps_its_beginning() {
        let mut pages = Pages::default();
        pages.put(0, &[1; 8192]);
        pages.truncate(700);
        let mut buf = [9; 2048];
        pages.overlay(0, &mut buf);
        assert_eq!((buf[699], buf[700], buf[1023], buf[1024], pages.sectors()), (1, 0, 0, 9, 2));
        pages.truncate(512);
        assert_eq!(pages.sectors(), 1);
        pages.truncate(0);
        assert!(pages.is_empty());
    }
}
