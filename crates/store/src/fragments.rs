//! Fragments of large transactions, kept until their transactions arrive. They are kept in memory up to a bound and
//! beyond it in an unlinked scratch file, so that a transaction of a gigabyte does not take a gigabyte of memory (RULE
//! 18).
//!
//! The file is closed when nothing is left in it; until then it only grows. What is kept at any time is bounded by the
//! permitted size of transactions. The file's content is worthless after a crash: the trail has it.
//!
//! Failure: a fragment that cannot be written or read ends the redo, which begins again from the trail.

use crate::pages::scratch::unlinked_file;
use holdfast_types::TxnId;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The fragments of all unfinished large transactions.
#[derive(Debug, Default)]
pub struct Fragments {
    of: HashMap<TxnId, Vec<Stored>>,
    memory_bytes: u64,
    /// Where the file is made; without it, everything stays in memory.
    beyond: Option<Beyond>,
    file: Option<(File, u64)>,
}

/// How many bytes may stay in memory, and where the rest is written.
#[derive(Clone, Debug)]
pub struct Beyond {
    pub memory_bytes_max: u64,
    pub scratch_dir: PathBuf,
}

/// Where one fragment is stored.
#[derive(Debug)]
pub enum Stored {
    Memory(Vec<u8>),
    Scratch { offset: u64, bytes: usize },
}

impl Fragments {
    pub fn new(beyond: Beyond) -> Fragments {
        Fragments { beyond: Some(beyond), ..Fragments::default() }
    }

    /// Keeps the next fragment of a transaction.
    pub fn add(&mut self, txn: TxnId, ops: &[u8]) -> io::Result<()> {
        let stored = match &self.beyond {
            Some(beyond) if self.memory_bytes + ops.len() as u64 > beyond.memory_bytes_max => {
                let (file, end) = match &mut self.file {
                    Some(file) => file,
                    none => none.insert((unlinked_file(&beyond.scratch_dir)?, 0)),
                };
                file.write_all_at(ops, *end)?;
                let stored = Stored::Scratch { offset: *end, bytes: ops.len() };
                *end += ops.len() as u64;
                stored
            }
            _ => {
                self.memory_bytes += ops.len() as u64;
                Stored::Memory(ops.to_vec())
            }
        };
        self.of.entry(txn).or_default().push(stored);
        Ok(())
    }

    /// Number of fragments kept for a transaction.
    pub fn count(&self, txn: TxnId) -> usize {
        self.of.get(&txn).map_or(0, Vec::len)
    }

    /// The operations of one fragment; fragments are numbered in the order in which they came.
    pub fn get(&self, txn: TxnId, number: usize) -> io::Result<Vec<u8>> {
        match self.of.get(&txn).and_then(|stored| stored.get(number)) {
            Some(Stored::Memory(ops)) => Ok(ops.clone()),
            Some(Stored::Scratch { offset, bytes }) => {
                let (file, _) = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
                let mut ops = vec![0; *bytes];
                file.read_exact_at(&mut ops, *offset)?;
                Ok(ops)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Keeps only the fragments of transactions for which `keep` returns true.
    pub fn retain(&mut self, keep: impl Fn(TxnId) -> bool) {
        self.of.retain(|txn, _| keep(*txn));
        let (mut memory_bytes, mut in_scratch) = (0, false);
        for stored in self.of.values().flatten() {
            match stored {
                Stored::Memory(ops) => memory_bytes += ops.len() as u64,
                Stored::Scratch { .. } => in_scratch = true,
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
