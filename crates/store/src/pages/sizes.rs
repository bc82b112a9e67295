//! Counts the pages of every table and index of a volume at a snapshot, by walking its b-trees (SQLite's file format,
//! section 1.6): interior and leaf pages are read, the lengths of overflow chains are computed from the cells.
//!
//! | offset in a b-tree page (after 100 bytes on page 1) | size | what |
//! |---|---|---|
//! | 0 | 1 | 2, 5: interior page of an index, of a table; 10, 13: leaf page of an index, of a table |
//! | 3 | 2 | number of cells |
//! | 8 | 4 | interior pages: the right-most child |
//! | 8 or 12 | 2 each | where the cells are |
//!
//! Failure: a page that cannot be read is the caller's error; contents that make no sense end the walk of that tree, and no
//! page is visited twice, so that a damaged tree ends.

use super::{PAGE_BYTES, PageStore, RESERVED_BYTES, ReadError};
use std::collections::{HashMap, HashSet};

const USABLE: usize = PAGE_BYTES - RESERVED_BYTES;

/// Where the b-tree page of `sqlite_schema` begins on page 1.
const FIRST_PAGE_HEADER: usize = 100;

/// Bytes of each table and index by its name in `sqlite_schema`.
pub type Sizes = HashMap<String, u64>;

/// Counts at the newest visible snapshot; returns that snapshot's number, too.
pub fn sizes(store: &PageStore) -> Result<(u64, Sizes), ReadError> {
    let (snapshot, pages) = store.acquire();
    let counted = Walk { store, snapshot, pages, seen: HashSet::new() }.all();
    store.release(snapshot);
    counted.map(|sizes| (snapshot, sizes))
}

struct Walk<'a> {
    store: &'a PageStore,
    snapshot: u64,
    pages: u32,
    seen: HashSet<u32>,
}

/// A b-tree page.
struct Node {
    bytes: [u8; PAGE_BYTES],
    /// Where its header is.
    at: usize,
}

impl Node {
    fn byte(&self, at: usize) -> usize {
        self.bytes.get(at).copied().unwrap_or(0).into()
    }

    fn u16(&self, at: usize) -> usize {
        self.byte(at) << 8 | self.byte(at + 1)
    }

    fn u32(&self, at: usize) -> u32 {
        (self.u16(at) as u32) << 16 | self.u16(at + 2) as u32
    }

    fn kind(&self) -> usize {
        self.byte(self.at)
    }

    fn is_interior(&self) -> bool {
        matches!(self.kind(), 2 | 5)
    }

    fn is_tree(&self) -> bool {
        matches!(self.kind(), 2 | 5 | 10 | 13)
    }

    fn cells(&self) -> impl Iterator<Item = usize> + '_ {
        let list = self.at + if self.is_interior() { 12 } else { 8 };
        let count = self.u16(self.at + 3).min(PAGE_BYTES / 2);
        (0..count).map(move |i| self.u16(list + 2 * i))
    }

    fn children(&self) -> Vec<u32> {
        if !self.is_interior() {
            return Vec::new();
        }
        self.cells().map(|cell| self.u32(cell)).chain([self.u32(self.at + 8)]).collect()
    }

    /// A variable-length number and where it ends.
    fn varint(&self, mut at: usize) -> (u64, usize) {
        let mut value = 0u64;
        for i in 0..9 {
            let byte = self.byte(at) as u64;
            at += 1;
            if i == 8 {
                return (value << 8 | byte, at);
            }
            value = value << 7 | (byte & 0x7f);
            if byte & 0x80 == 0 {
                break;
            }
        }
        (value, at)
    }

    /// Bytes of a cell's payload and where it begins; `None`: it has none.
    fn payload(&self, cell: usize) -> Option<(u64, usize)> {
        let start = match self.kind() {
            2 => cell + 4,
            10 | 13 => cell,
            _ => return None,
        };
        let (bytes, after) = self.varint(start);
        Some((bytes, if self.kind() == 13 { self.varint(after).1 } else { after }))
    }

    /// Bytes of a payload that are on this page; the rest is in a chain of overflow pages.
    fn local(&self, payload: u64) -> u64 {
        let (max, min) = match self.kind() {
            13 => (USABLE - 35, (USABLE - 12) * 32 / 255 - 23),
            _ => ((USABLE - 12) * 64 / 255 - 23, (USABLE - 12) * 32 / 255 - 23),
        };
        if payload <= max as u64 {
            return payload;
        }
        let kept = min as u64 + (payload - min as u64) % (USABLE as u64 - 4);
        if kept <= max as u64 { kept } else { min as u64 }
    }

    fn overflow_pages(&self) -> u64 {
        let of =
            |cell| self.payload(cell).map_or(0, |(bytes, _)| (bytes - self.local(bytes)).div_ceil(USABLE as u64 - 4));
        self.cells().map(of).sum()
    }
}

impl Walk<'_> {
    fn node(&self, page: u32) -> Result<Node, ReadError> {
        let mut bytes = [0; PAGE_BYTES];
        self.store.read(page, self.snapshot, 0, &mut bytes)?;
        Ok(Node { bytes, at: if page == 1 { FIRST_PAGE_HEADER } else { 0 } })
    }

    /// Visits the b-tree pages of a tree.
    fn visit(&mut self, root: u32, mut each: impl FnMut(&Node)) -> Result<(), ReadError> {
        let mut open = vec![root];
        while let Some(page) = open.pop() {
            if page == 0 || page > self.pages || !self.seen.insert(page) {
                continue;
            }
            let node = self.node(page)?;
            if node.is_tree() {
                each(&node);
                open.extend(node.children());
            }
        }
        Ok(())
    }

    fn all(mut self) -> Result<Sizes, ReadError> {
        let mut roots: Vec<(String, u32)> = Vec::new();
        self.visit(1, |node| {
            if node.kind() == 13 {
                roots.extend(node.cells().filter_map(|cell| schema_row(node, cell)));
            }
        })?;
        let mut sizes = Sizes::new();
        for (name, root) in roots {
            let mut pages = 0;
            self.visit(root, |node| pages += 1 + node.overflow_pages())?;
            sizes.insert(name, pages * PAGE_BYTES as u64);
        }
        Ok(sizes)
    }
}

/// Name and root page of a row of `sqlite_schema` (type, name, tbl_name, rootpage, sql). These columns are before the long
/// one, and so on the page itself.
fn schema_row(node: &Node, cell: usize) -> Option<(String, u32)> {
    let (bytes, start) = node.payload(cell)?;
    let end = start.checked_add(usize::try_from(node.local(bytes)).ok()?)?.min(PAGE_BYTES);
    let (header, mut at) = node.varint(start);
    let mut value = start.checked_add(usize::try_from(header).ok()?)?;
    let mut columns = [(0u64, 0usize); 4];
    for column in &mut columns {
        let (serial, after) = node.varint(at);
        at = after;
        *column = (serial, value);
        value = value.checked_add(serial_bytes(serial)?)?;
    }
    if value > end {
        return None;
    }
    let (serial, at) = columns[1];
    let name = String::from_utf8_lossy(node.bytes.get(at..at + serial_bytes(serial)?)?).into_owned();
    let (serial, at) = columns[3];
    let root = node.bytes.get(at..at + serial_bytes(serial)?)?.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let root = if serial == 9 { 1 } else { u32::try_from(root).ok()? };
    (root != 0).then_some((name, root))
}

/// Bytes of a value of a serial type.
fn serial_bytes(serial: u64) -> Option<usize> {
    Some(match serial {
        0 | 8 | 9 => 0,
        n @ 1..=4 => n as usize,
        5 => 6,
        6 | 7 => 8,
        n => usize::try_from(n.checked_sub(12)? / 2).ok()?,
    })
}
