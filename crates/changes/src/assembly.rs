//! Puts parts together to transactions, and knows where reading has to begin again.
//!
//! | a transaction with fragments is | its fragments |
//! |---|---|
//! | open: neither committed nor dropped | are kept; the first one is a place for [`Assembly::restart`] |
//! | committed | are handed out with it, and forgotten at the next part |
//! | dropped, or of a database that was dropped | are forgotten |
//! | of an older epoch than the boxcar that is read | are forgotten: the master that sent them is gone |
//! | read from its middle on | are passed over: it cannot be whole |
//!
//! Failure: a fragment that the scratch file does not take or give back is an error; the reader begins again.

use crate::error::ChangesError;
use crate::part::{Part, Position, What};
use holdfast_store::fragments::Fragments;
use holdfast_types::record::{Author, DecodeError, Op, Ops, TxnHead};
use holdfast_types::{Epoch, TxnId, VolumeId};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The transactions that are under way at one place of the trail.
#[derive(Debug)]
pub struct Assembly {
    fragments: Fragments,
    /// Transactions with fragments that are neither committed nor dropped.
    open: HashMap<TxnId, Open>,
    /// Fragments are kept of a transaction that is no longer open.
    has_stale: bool,
    epoch: Epoch,
    /// The end of the last transaction that was handed out.
    end: Position,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    volume: VolumeId,
    /// Its first fragment.
    first: Position,
}

/// A committed transaction of one database.
#[derive(Debug)]
pub struct Committed<'a> {
    pub volume: VolumeId,
    /// Where its commit begins in the trail, and the place behind it.
    pub start: Position,
    pub end: Position,
    pub head: TxnHead,
    /// The roles that made it, where the trail has them.
    pub author: Option<Arc<Author>>,
    /// The schema epoch of its database before the batch that it is in.
    pub schema_epoch: u32,
    /// False: fragments are missing, because reading began behind them.
    pub is_whole: bool,
    ops: Cow<'a, [u8]>,
    pieces: Vec<Piece>,
    fragments: &'a Fragments,
}

/// Consecutive operations of a transaction.
#[derive(Clone, Debug)]
enum Piece {
    Own(Range<usize>),
    Fragment { txn: TxnId, number: usize },
}

impl Assembly {
    /// Begins at a place: parts in front of it are passed over.
    pub fn new(fragments: Fragments, from: Position) -> Assembly {
        Assembly { fragments, open: HashMap::new(), has_stale: false, epoch: Epoch(0), end: from }
    }

    /// Where reading has to begin so that each transaction behind the last one handed out is whole. A transaction that is handed
    /// out again there ends at or in front of the place where that one ended.
    pub fn restart(&self) -> Position {
        self.open.values().map(|open| open.first).min().unwrap_or(self.end)
    }

    /// A boxcar of this epoch was read. [`Assembly::add`] calls it for each part; a reader calls it for boxcars that have no
    /// part for it.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        if epoch > self.epoch {
            self.epoch = epoch;
            self.close(|txn, _| txn.epoch() < epoch);
        }
    }

    /// Takes the next part in the trail's order; returns the transaction that it commits.
    pub fn add<'a>(&'a mut self, part: Part<'a>) -> Result<Option<Committed<'a>>, ChangesError> {
        if part.start < self.end {
            return Ok(None);
        }
        self.begin_epoch(part.epoch);
        self.forget_stale();
        match part.what {
            What::Transaction { head, author, schema_epoch, ops } => {
                let lsn = part.start.boxcar;
                let (pieces, is_whole) = self.pieces(&ops).map_err(|source| ChangesError::Boxcar { lsn, source })?;
                self.end = part.end;
                let (volume, start, end, fragments) = (part.volume, part.start, part.end, &self.fragments);
                Ok(Some(Committed { volume, start, end, head, author, schema_epoch, is_whole, ops, pieces, fragments }))
            }
            What::Fragment { txn, number, ops } => {
                // Reading began behind the first one: it cannot be whole.
                if self.fragments.count(txn) == number as usize {
                    self.fragments.add(txn, &ops)?;
                    self.open.entry(txn).or_insert(Open { volume: part.volume, first: part.start });
                }
                Ok(None)
            }
            What::Dropped { txn } => {
                self.close(|of, _| of == txn);
                Ok(None)
            }
            What::VolumeDropped => {
                self.close(|_, open| open.volume == part.volume);
                Ok(None)
            }
        }
    }

    /// The pieces of a transaction's operations, and whether all of them are there. Its fragments are no longer open.
    fn pieces(&mut self, all: &[u8]) -> Result<(Vec<Piece>, bool), DecodeError> {
        let (mut pieces, mut ops) = (Vec::new(), Ops::new(all));
        let (mut own, mut before, mut is_whole) = (0, 0, true);
        while let Some(op) = ops.next() {
            let behind = ops.offset();
            if let Op::Fragments { txn, count } = op? {
                pieces.push(Piece::Own(own..before));
                let found = self.fragments.count(txn);
                pieces.extend((0..found).map(|number| Piece::Fragment { txn, number }));
                is_whole &= found == count as usize;
                self.close(|of, _| of == txn);
                own = behind;
            }
            before = behind;
        }
        pieces.push(Piece::Own(own..all.len()));
        if !is_whole {
            pieces.clear();
        }
        Ok((pieces, is_whole))
    }

    #[cfg(test)]
    pub(crate) fn fragments_bytes(&self) -> (u64, u64) {
        self.fragments.bytes()
    }

    fn close(&mut self, is_closed: impl Fn(TxnId, &Open) -> bool) {
        let before = self.open.len();
        self.open.retain(|txn, open| !is_closed(*txn, open));
        self.has_stale |= self.open.len() < before;
    }

    /// A transaction that was handed out has used its fragments until now.
    fn forget_stale(&mut self) {
        if std::mem::take(&mut self.has_stale) {
            self.fragments.retain(|txn| self.open.contains_key(&txn));
        }
    }
}

impl Committed<'_> {
    /// Its operations in order, each item whole operations as [`Ops`] reads them. One fragment at a time is in memory.
    pub fn pieces(&self) -> impl Iterator<Item = Result<Cow<'_, [u8]>, ChangesError>> {
        self.pieces.iter().map(|piece| match piece {
            Piece::Own(range) => Ok(Cow::Borrowed(&self.ops[range.clone()])),
            Piece::Fragment { txn, number } => Ok(Cow::Owned(self.fragments.get(*txn, *number)?)),
        })
    }
}
