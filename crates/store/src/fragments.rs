//! Fragments of large transactions, kept until their transactions arrive: in memory, and beyond a bound in an unlinked
//! scratch file, so that a transaction of a gigabyte does not take a gigabyte of memory (RULE 18).
//!
//! The file is given up when nothing is left in it; until then it only grows, and what is kept at a time is bounded by
//! what transactions may be large. Its content is worthless after a crash: the trail has it.
//!
//! Failure: what cannot be written or read ends the redo, which begins again from the trail.

use crate::pages::scratch::unlinked_file;
use holdfast_types::TxnId;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Default)]
pub struct Fragments {
    of: HashMap<TxnId, Vec<Place>>,
    memory_bytes: u64,
    /// Where the file goes; without, all stays in memory.
    beyond: Option<Beyond>,
    file: Option<(File, u64)>,
}

/// How much may stay in memory, and where the rest goes.
#[derive(Clone, Debug)]
pub struct Beyond {
    pub memory_bytes_max: u64,
    pub scratch_dir: PathBuf,
}

/// Where one fragment is.
#[derive(Debug)]
pub enum Place {
    Memory(Vec<u8>),
    Scratch { offset: u64, bytes: usize },
}

impl Fragments {
    pub fn new(beyond: Beyond) -> Fragments {
        Fragments { beyond: Some(beyond), ..Fragments::default() }
    }

    /// Keeps the next fragment of a transaction.
    pub fn add(&mut self, txn: TxnId, ops: &[u8]) -> io::Result<()> {
        let place = match &self.beyond {
            Some(beyond) if self.memory_bytes + ops.len() as u64 > beyond.memory_bytes_max => {
                let (file, end) = match &mut self.file {
                    Some(file) => file,
                    none => none.insert((unlinked_file(&beyond.scratch_dir)?, 0)),
                };
                file.write_all_at(ops, *end)?;
                let place = Place::Scratch { offset: *end, bytes: ops.len() };
                *end += ops.len() as u64;
                place
            }
            _ => {
                self.memory_bytes += ops.len() as u64;
                Place::Memory(ops.to_vec())
            }
        };
        self.of.entry(txn).or_default().push(place);
        Ok(())
    }

    /// How many fragments of a transaction are kept.
    pub fn count(&self, txn: TxnId) -> usize {
        self.of.get(&txn).map_or(0, Vec::len)
    }

    /// The operations of one of them, in the order in which they came.
    pub fn get(&self, txn: TxnId, number: usize) -> io::Result<Vec<u8>> {
        match self.of.get(&txn).and_then(|places| places.get(number)) {
            Some(Place::Memory(ops)) => Ok(ops.clone()),
            Some(Place::Scratch { offset, bytes }) => {
                let (file, _) = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
                let mut ops = vec![0; *bytes];
                file.read_exact_at(&mut ops, *offset)?;
                Ok(ops)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Keeps those of these transactions only.
    pub fn retain(&mut self, keep: impl Fn(TxnId) -> bool) {
        self.of.retain(|txn, _| keep(*txn));
        let (mut memory_bytes, mut in_scratch) = (0, false);
        for place in self.of.values().flatten() {
            match place {
                Place::Memory(ops) => memory_bytes += ops.len() as u64,
                Place::Scratch { .. } => in_scratch = true,
            }
        }
        self.memory_bytes = memory_bytes;
        self.file.take_if(|_| !in_scratch);
    }

    /// Bytes in memory, and the length of the file.
    pub fn bytes(&self) -> (u64, u64) {
        (self.memory_bytes, self.file.as_ref().map_or(0, |(_, end)| *end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_bound_goes_to_scratch_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = Fragments::new(Beyond { memory_bytes_max: 250, scratch_dir: dir.path().to_owned() });
        let (a, b) = (TxnId(1), TxnId(2));
        for n in 0..10 {
            kept.add(a, &[n; 100]).unwrap();
            kept.add(b, &[100 + n; 10]).unwrap();
        }
        let (memory, scratch) = kept.bytes();
        assert!(memory <= 250 && memory + scratch == 1100, "{memory}, {scratch}");
        assert_eq!((kept.count(a), kept.count(b)), (10, 10));
        for n in 0..10 {
            assert_eq!(kept.get(a, usize::from(n)).unwrap(), [n; 100]);
            assert_eq!(kept.get(b, usize::from(n)).unwrap(), [100 + n; 10]);
        }
        assert!(kept.get(a, 10).is_err());
        kept.retain(|txn| txn == b);
        assert_eq!(kept.count(a), 0);
        assert_eq!(kept.get(b, 9).unwrap(), [109; 10]);
        kept.retain(|_| false);
        assert_eq!(kept.bytes(), (0, 0), "the file is given up");
    }
}
