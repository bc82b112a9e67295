//! The batch record: what one volume's writer published at once. Its layout is in [`super`].
//!
//! A batch is built in the buffer into which the row images are captured: [`BatchBuilder::begin`]; then for each
//! transaction [`BatchBuilder::begin_transaction`], its operations, and [`BatchBuilder::end_transaction`] (or
//! truncating the buffer to [`BatchBuilder::transaction_start`] when it is rolled back); finally
//! [`BatchBuilder::finish`]. No byte is copied twice.

use super::author::{AuthorNames, put_author, take_author};
use super::bytes::Cursor;
use super::{BATCH_VERSION, DecodeError, KIND_BATCH, LENGTH_BYTES, Ops, begin_version, end};
use crate::ids::{Hlc, SiteId, TxnId, VolumeId};

/// Offset of the number of transactions from the record's start.
const COUNT_OFFSET: usize = 22;

/// Offset of the first transaction from the record's start.
const TRANSACTIONS_OFFSET: usize = COUNT_OFFSET + 4;

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
    /// Where the roles of the transaction ended last are in the buffer, and those of the open one.
    author: Option<(usize, usize)>,
    open_author: Option<(usize, usize)>,
}

impl BatchBuilder {
    /// Begins the record for batch `number` of `volume`, whose schema epoch is `schema_epoch` before it.
    pub fn begin(buf: &mut Vec<u8>, volume: VolumeId, number: u64, schema_epoch: u32) -> BatchBuilder {
        let start = begin_version(buf, KIND_BATCH, BATCH_VERSION);
        buf.extend_from_slice(&volume.0.to_le_bytes());
        buf.extend_from_slice(&number.to_le_bytes());
        buf.extend_from_slice(&schema_epoch.to_le_bytes());
        buf.extend_from_slice(&0u32.to_le_bytes());
        BatchBuilder { start, transactions: 0, open: buf.len(), author: None, open_author: None }
    }

    /// Begins a transaction, made for these roles; its operations are appended to `buf` next.
    pub fn begin_transaction(&mut self, buf: &mut Vec<u8>, head: TxnHead, author: Option<AuthorNames<'_>>) {
        self.open = buf.len();
        buf.extend_from_slice(&0u32.to_le_bytes());
        buf.extend_from_slice(&head.id.0.to_le_bytes());
        buf.extend_from_slice(&head.site.0.to_le_bytes());
        buf.extend_from_slice(&head.hlc.0.to_le_bytes());
        self.open_author = put_author(buf, author, self.author);
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
        self.author = self.open_author;
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

/// One batch of one volume.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub volume: VolumeId,
    /// Number of this batch; a volume's batches are numbered without gaps.
    pub number: u64,
    /// The volume's schema epoch before the first transaction.
    pub schema_epoch: u32,
    /// Number of transactions.
    pub count: u32,
    has_authors: bool,
    rest: Cursor<'a>,
}

/// One transaction of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Transaction<'a> {
    pub head: TxnHead,
    /// Where its bytes begin and end, counted from the record's start.
    pub start: usize,
    pub end: usize,
    /// `None`: the server itself or a program that embeds the library made it, or a release that did not record roles.
    pub author: Option<AuthorNames<'a>>,
    pub ops: Ops<'a>,
}

impl<'a> Batch<'a> {
    pub(super) fn read(
        volume: VolumeId,
        version: u8,
        c: &mut Cursor<'a>,
        content: &'a [u8],
    ) -> Result<Batch<'a>, DecodeError> {
        let (number, schema_epoch, count) = (c.u64()?, c.u32()?, c.u32()?);
        let (has_authors, rest) = (version >= BATCH_VERSION, Cursor::new(&content[c.at()..]));
        Ok(Batch { volume, number, schema_epoch, count, has_authors, rest })
    }

    /// Appends this record with its first `count` transactions only.
    pub fn put_first(&self, buf: &mut Vec<u8>, count: u32) -> Result<(), DecodeError> {
        let mut record = BatchBuilder::begin(buf, self.volume, self.number, self.schema_epoch);
        for transaction in self.transactions().take(count as usize) {
            let transaction = transaction?;
            record.begin_transaction(buf, transaction.head, transaction.author);
            buf.extend_from_slice(transaction.ops.bytes());
            record.end_transaction(buf);
        }
        record.finish(buf);
        Ok(())
    }

    /// The transactions in order; ends after the first error.
    pub fn transactions(&self) -> impl Iterator<Item = Result<Transaction<'a>, DecodeError>> + use<'a> {
        let mut rest = self.rest;
        let (mut left, has_authors) = (self.count, self.has_authors);
        let mut author = None;
        std::iter::from_fn(move || {
            if left == 0 {
                let bytes = rest.remaining();
                rest = Cursor::new(&[]);
                return (bytes > 0).then_some(Err(DecodeError::Leftover { bytes }));
            }
            left -= 1;
            let transaction = read_transaction(&mut rest, has_authors, author);
            match &transaction {
                Ok(transaction) => author = transaction.author,
                Err(_) => (rest, left) = (Cursor::new(&[]), 0),
            }
            Some(transaction)
        })
    }
}

fn read_transaction<'a>(
    rest: &mut Cursor<'a>,
    has_author: bool,
    before: Option<AuthorNames<'a>>,
) -> Result<Transaction<'a>, DecodeError> {
    let start = TRANSACTIONS_OFFSET + rest.at();
    let length = rest.u32()? as usize;
    let content = rest.take(length)?;
    let end = TRANSACTIONS_OFFSET + rest.at();
    let mut c = Cursor::new(content);
    let head = TxnHead { id: TxnId(c.u64()?), site: SiteId(c.u16()?), hlc: Hlc(c.u64()?) };
    let author = if has_author { take_author(&mut c, before)? } else { None };
    Ok(Transaction { head, start, end, author, ops: Ops::new(&content[c.at()..]) })
}

const _: () = assert!(COUNT_OFFSET == LENGTH_BYTES + 2 + 4 + 8 + 4);
