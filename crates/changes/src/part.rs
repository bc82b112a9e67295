//! A boxcar's body, taken apart: its transactions, and the fragments of large ones.
//!
//! Offsets in the body are what tells two transactions of one boxcar from each other. The LSN of the boxcar and an offset in its
//! body add up to one number for each place, because a boxcar is longer than its body.
//!
//! Failure: a body that cannot be read ends with an error that names its boxcar. Parts in front of the flaw come first.

use crate::error::ChangesError;
use holdfast_types::record::{Author, AuthorNames, Batch, Op, Ops, Record, RecordReader, TxnHead};
use holdfast_types::{Epoch, Lsn, TxnId, VolumeId};
use std::borrow::Cow;
use std::sync::Arc;

/// A boxcar, borrowed from where it was read.
#[derive(Clone, Copy, Debug)]
pub struct Car<'a> {
    pub lsn: Lsn,
    pub epoch: Epoch,
    pub body: &'a [u8],
}

/// A place in the trail: a boxcar, and an offset in its body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Position {
    pub boxcar: Lsn,
    pub offset: u32,
}

impl Position {
    /// The place as one number, in the same order; no two places have the same.
    pub fn lsn(self) -> Lsn {
        Lsn(self.boxcar.0 + u64::from(self.offset))
    }
}

/// One part of a boxcar that belongs to a database.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    pub volume: VolumeId,
    pub epoch: Epoch,
    /// Where it begins, and the place behind it.
    pub start: Position,
    pub end: Position,
    pub what: What<'a>,
}

#[derive(Clone, Debug)]
pub enum What<'a> {
    /// A committed transaction. `schema_epoch` is that of its database before the batch that it is in.
    Transaction { head: TxnHead, author: Option<Arc<Author>>, schema_epoch: u32, ops: Cow<'a, [u8]> },
    /// Operations of a large transaction, which a later one refers to.
    Fragment { txn: TxnId, number: u32, ops: Cow<'a, [u8]> },
    /// The fragments of a transaction that was not committed.
    Dropped { txn: TxnId },
    /// The end of the database.
    VolumeDropped,
}

/// The parts of a boxcar that belong to the wanted databases, in order; ends after the first error.
pub fn parts<'a>(
    car: Car<'a>,
    wanted: impl Fn(VolumeId) -> bool,
) -> impl Iterator<Item = Result<Part<'a>, ChangesError>> {
    let mut records = RecordReader::new(car.body);
    let records = std::iter::from_fn(move || {
        let start = records.offset();
        records.next().map(|record| (record, start, records.offset()))
    });
    records.flat_map(move |(record, start, end)| {
        let part = |volume, what| {
            let places = [start, end].map(|offset| car.position(offset));
            wanted(volume).then_some(Ok(Part { volume, epoch: car.epoch, start: places[0], end: places[1], what }))
        };
        let (batch, single) = match record {
            Ok(Record::Batch(batch)) => (Some(batch).filter(|batch| wanted(batch.volume)), None),
            Ok(Record::Fragment { volume, txn, number, ops }) => {
                (None, part(volume, What::Fragment { txn, number, ops: Cow::Borrowed(ops.bytes()) }))
            }
            Ok(Record::FragmentDrop { volume, txn }) => (None, part(volume, What::Dropped { txn })),
            Ok(Record::VolumeDrop { volume }) => (None, part(volume, What::VolumeDropped)),
            Ok(_) => (None, None),
            Err(source) => (None, Some(Err(ChangesError::Boxcar { lsn: car.lsn, source }))),
        };
        batch.into_iter().flat_map(move |batch| transactions(car, start, batch)).chain(single)
    })
}

/// The transactions of a batch whose record begins at an offset of the body.
fn transactions<'a>(
    car: Car<'a>,
    record: usize,
    batch: Batch<'a>,
) -> impl Iterator<Item = Result<Part<'a>, ChangesError>> {
    let mut last: Option<Arc<Author>> = None;
    batch.transactions().map(move |transaction| {
        let transaction = transaction.map_err(|source| ChangesError::Boxcar { lsn: car.lsn, source })?;
        // Most have that of the one before.
        if last.as_deref().map(Author::names) != transaction.author {
            last = transaction.author.map(AuthorNames::to_author).map(Arc::new);
        }
        Ok(Part {
            volume: batch.volume,
            epoch: car.epoch,
            start: car.position(record + transaction.start),
            end: car.position(record + transaction.end),
            what: What::Transaction {
                head: transaction.head,
                author: last.clone(),
                schema_epoch: batch.schema_epoch,
                ops: Cow::Borrowed(transaction.ops.bytes()),
            },
        })
    })
}

impl Car<'_> {
    fn position(&self, offset: usize) -> Position {
        // A boxcar's length has 32 bits.
        Position { boxcar: self.lsn, offset: offset as u32 }
    }
}

impl Part<'_> {
    /// Its operations as they are in the trail.
    pub fn ops(&self) -> &[u8] {
        match &self.what {
            What::Transaction { ops, .. } | What::Fragment { ops, .. } => ops,
            What::Dropped { .. } | What::VolumeDropped => &[],
        }
    }

    /// A copy with those of its operations for which `keep` returns true, and with its references to fragments.
    pub fn keeping(&self, mut keep: impl FnMut(&Op<'_>) -> bool) -> Result<Part<'static>, ChangesError> {
        let mut kept = Vec::new();
        let (all, mut ops, mut start) = (self.ops(), Ops::new(self.ops()), 0);
        while let Some(op) = ops.next() {
            let op = op.map_err(|source| ChangesError::Boxcar { lsn: self.start.boxcar, source })?;
            let bytes = &all[start..ops.offset()];
            start = ops.offset();
            if matches!(op, Op::Fragments { .. }) || keep(&op) {
                kept.extend_from_slice(bytes);
            }
        }
        let ops = Cow::Owned(kept);
        let what = match &self.what {
            What::Transaction { head, author, schema_epoch, .. } => {
                What::Transaction { head: *head, author: author.clone(), schema_epoch: *schema_epoch, ops }
            }
            What::Fragment { txn, number, .. } => What::Fragment { txn: *txn, number: *number, ops },
            What::Dropped { txn } => What::Dropped { txn: *txn },
            What::VolumeDropped => What::VolumeDropped,
        };
        Ok(Part { volume: self.volume, epoch: self.epoch, start: self.start, end: self.end, what })
    }
}
