//! The batch record: all transactions of one boxcar of one volume. Its layout is in [`super`].
//!
//! A batch is built in the buffer into which the row images are captured: [`BatchBuilder::begin`]; then for each
//! transaction [`BatchBuilder::begin_transaction`], its operations, and [`BatchBuilder::end_transaction`] (or
//! truncating the buffer to [`BatchBuilder::transaction_start`] when it is rolled back); finally
//! [`BatchBuilder::finish`]. No byte is copied twice.

use super::bytes::Cursor;
use super::{DecodeError, KIND_BATCH, LENGTH_BYTES, Ops, begin, end};
use crate::ids::{Hlc, SiteId, TxnId, VolumeId};

/// Offset of the number of transactions from the record's start.
const COUNT_OFFSET: usize = 22;

/// Offset of a transaction's clock from its start: behind length, id and site.
const HLC_OFFSET: usize = 4 + 8 + 2;

/// Identity and origin of a transaction, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnHead {
    pub id: TxnId,
    pub site: SiteId,
    pub hlc: Hlc,
}

/// Writes one batch record.
#[derive(Clone, Copy, Debug)]
pub struct BatchBuilder {
    start: usize,
    transactions: u32,
    open: usize,
}

impl BatchBuilder {
    /// Begins the record for boxcar `number` of `volume`, whose schema epoch is `schema_epoch` before it.
    pub fn begin(buf: &mut Vec<u8>, volume: VolumeId, number: u64, schema_epoch: u32) -> BatchBuilder {
        let start = begin(buf, KIND_BATCH);
        buf.extend_from_slice(&volume.0.to_le_bytes());
        buf.extend_from_slice(&number.to_le_bytes());
        buf.extend_from_slice(&schema_epoch.to_le_bytes());
        buf.extend_from_slice(&0u32.to_le_bytes());
        BatchBuilder { start, transactions: 0, open: buf.len() }
    }

    /// Begins a transaction; its operations are appended to `buf` next.
    pub fn begin_transaction(&mut self, buf: &mut Vec<u8>, head: TxnHead) {
        self.open = buf.len();
        buf.extend_from_slice(&0u32.to_le_bytes());
        buf.extend_from_slice(&head.id.0.to_le_bytes());
        buf.extend_from_slice(&head.site.0.to_le_bytes());
        buf.extend_from_slice(&head.hlc.0.to_le_bytes());
    }

    /// Buffer length before the open transaction: truncate to it to roll the transaction back.
    pub fn transaction_start(&self) -> usize {
        self.open
    }

    /// Sets the time of the transaction begun last.
    pub fn set_clock(&self, buf: &mut [u8], hlc: Hlc) {
        let at = self.open + HLC_OFFSET;
        buf[at..at + 8].copy_from_slice(&hlc.0.to_le_bytes());
    }

    /// Ends the transaction begun last.
    pub fn end_transaction(&mut self, buf: &mut [u8]) {
        end(buf, self.open);
        self.transactions += 1;
    }

    /// Number of transactions ended so far.
    pub fn transactions(&self) -> u32 {
        self.transactions
    }

    /// Ends the record.
    pub fn finish(self, buf: &mut [u8]) {
        let count = self.start + COUNT_OFFSET;
        buf[count..count + 4].copy_from_slice(&self.transactions.to_le_bytes());
        end(buf, self.start);
    }
}

/// One boxcar of one volume.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub volume: VolumeId,
    /// Number of this boxcar; a volume's boxcars are numbered without gaps.
    pub number: u64,
    /// The volume's schema epoch before the first transaction.
    pub schema_epoch: u32,
    /// Number of transactions.
    pub count: u32,
    rest: Cursor<'a>,
}

/// One transaction of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Transaction<'a> {
    pub head: TxnHead,
    pub ops: Ops<'a>,
}

impl<'a> Batch<'a> {
    pub(super) fn read(volume: VolumeId, c: &mut Cursor<'a>, content: &'a [u8]) -> Result<Batch<'a>, DecodeError> {
        let (number, schema_epoch, count) = (c.u64()?, c.u32()?, c.u32()?);
        Ok(Batch { volume, number, schema_epoch, count, rest: Cursor::new(&content[c.at()..]) })
    }

    /// Appends this record with its first `count` transactions only.
    pub fn put_first(&self, buf: &mut Vec<u8>, count: u32) -> Result<(), DecodeError> {
        let mut record = BatchBuilder::begin(buf, self.volume, self.number, self.schema_epoch);
        for transaction in self.transactions().take(count as usize) {
            let transaction = transaction?;
            record.begin_transaction(buf, transaction.head);
            buf.extend_from_slice(transaction.ops.bytes());
            record.end_transaction(buf);
        }
        record.finish(buf);
        Ok(())
    }

    /// The transactions in order; ends after the first error.
    pub fn transactions(&self) -> impl Iterator<Item = Result<Transaction<'a>, DecodeError>> + use<'a> {
        let mut rest = self.rest;
        let mut left = self.count;
        std::iter::from_fn(move || {
            if left == 0 {
                let bytes = rest.remaining();
                rest = Cursor::new(&[]);
                return (bytes > 0).then_some(Err(DecodeError::Leftover { bytes }));
            }
            left -= 1;
            let transaction = read_transaction(&mut rest);
            if transaction.is_err() {
                (rest, left) = (Cursor::new(&[]), 0);
            }
            Some(transaction)
        })
    }
}

fn read_transaction<'a>(rest: &mut Cursor<'a>) -> Result<Transaction<'a>, DecodeError> {
    let length = rest.u32()? as usize;
    let content = rest.take(length)?;
    let mut c = Cursor::new(content);
    let head = TxnHead { id: TxnId(c.u64()?), site: SiteId(c.u16()?), hlc: Hlc(c.u64()?) };
    Ok(Transaction { head, ops: Ops::new(&content[c.at()..]) })
}

const _: () = assert!(COUNT_OFFSET == LENGTH_BYTES + 2 + 4 + 8 + 4);
