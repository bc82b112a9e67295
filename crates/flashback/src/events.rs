//! The wanted changes in boxcars, in the order of their commits.
//!
//! Several threads take boxcars apart and keep what is wanted ([`holdfast_changes::parts`]); then it is put together to
//! transactions, in the trail's order ([`Assembly`]).
//!
//! Failure: if fragments lie in front of where the reading began, the reading begins again further back.

use crate::error::FlashbackError;
use crate::row::RowOp;
use crate::source::{Range, Read, Source};
use holdfast_changes::{Assembly, Car, ChangesError, Fragments, Part, Position, parts};
use holdfast_types::record::{Author, AuthorNames, DecodeError, Op, Ops, Record, RecordReader, Transaction, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, TxnId, VolumeId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What may be held in memory of the trail.
const HELD_BYTES_MAX: u64 = 512 << 20;

/// Which events are wanted. Fragments are asked for before it is known whether they were committed.
pub trait Wanted: Sync {
    fn volume(&self, volume: VolumeId) -> bool;
    /// A transaction, and the position of its commit.
    fn transaction(&self, _: Lsn, _: &TxnHead) -> bool {
        true
    }
    /// The number of a database's schema at some place in the range: each schema change has a higher one.
    fn schema_epoch(&self, _: VolumeId, _: u32) {}
    /// The operations of a large transaction, before it is known whether it was committed.
    fn fragment(&self, _: TxnId) -> bool {
        true
    }
    fn row(&self, volume: VolumeId, table: TableId, op: &Op<'_>) -> bool;
    fn schema(&self, volume: VolumeId, sql: &str) -> bool;
}

/// One change that was committed.
#[derive(Clone, Debug)]
pub struct Event {
    pub head: TxnHead,
    /// The roles that made it, where the trail has them.
    pub author: Option<Arc<Author>>,
    pub lsn: Lsn,
    pub volume: VolumeId,
    pub what: What,
}

/// A commit in the trail.
#[derive(Clone, Debug)]
pub struct Commit {
    pub lsn: Lsn,
    pub head: TxnHead,
    pub author: Option<Arc<Author>>,
}

#[derive(Clone, Debug)]
pub enum What {
    /// `exact`: its texts are UTF-8.
    Row {
        table: TableId,
        op: RowOp,
        exact: bool,
    },
    Schema {
        sql: String,
    },
}

/// The wanted events in a range; and in `Read` the transactions that are not among them because parts of them are in front of
/// the trail within reach.
pub fn collect(source: &Source, range: Range, wanted: &dyn Wanted) -> Result<(Vec<Event>, Read), FlashbackError> {
    let mut begin = range;
    let whole = Range { last: range.last, ..Range::default() };
    loop {
        let held = AtomicU64::new(0);
        let (kept, mut read) = source.scan(begin, &|car, kept| {
            let bytes = of_boxcar(car, wanted, kept)?;
            check_held(held.fetch_add(bytes, Ordering::Relaxed) + bytes)
        })?;
        let (events, partial) = assembled(kept, held.into_inner())?;
        if partial.is_empty() || begin == whole {
            read.partial = partial;
            return Ok((events, read));
        }
        // Fragments lie close to their commit, except those of a transaction that took long.
        begin = whole;
    }
}

/// [`collect`], where a transaction in part is an error.
pub fn collect_whole(source: &Source, range: Range, wanted: &dyn Wanted) -> Result<(Vec<Event>, Read), FlashbackError> {
    let (events, read) = collect(source, range, wanted)?;
    match read.partial.first() {
        Some(id) => Err(FlashbackError::Parts { id: *id, first: read.first_lsn }),
        None => Ok((events, read)),
    }
}

fn check_held(bytes: u64) -> Result<(), FlashbackError> {
    if bytes > HELD_BYTES_MAX { Err(FlashbackError::TooMuch { limit: HELD_BYTES_MAX }) } else { Ok(()) }
}

/// Keeps what is wanted of a boxcar; returns the memory that it takes, about.
fn of_boxcar(car: &Car<'_>, wanted: &dyn Wanted, kept: &mut Vec<Part<'static>>) -> Result<u64, ChangesError> {
    let mut bytes = 0;
    for part in parts(*car, |volume| wanted.volume(volume)) {
        let part = part?;
        let is_transaction = match &part.what {
            holdfast_changes::What::Transaction { head, schema_epoch, .. } => {
                wanted.schema_epoch(part.volume, *schema_epoch);
                if !wanted.transaction(car.lsn, head) {
                    continue;
                }
                true
            }
            holdfast_changes::What::Fragment { txn, .. } if !wanted.fragment(*txn) => continue,
            _ => false,
        };
        let part = part.keeping(|op| {
            if let (Op::Ddl(ddl), true) = (op, is_transaction) {
                wanted.schema_epoch(part.volume, ddl.epoch_after);
            }
            is_wanted(part.volume, op, wanted)
        })?;
        // A fragment of which nothing is wanted is counted when its transaction is put together.
        if !is_transaction || !part.ops().is_empty() {
            bytes += (size_of::<Part<'_>>() + part.ops().len()) as u64;
            kept.push(part);
        }
    }
    Ok(bytes)
}

fn is_wanted(volume: VolumeId, op: &Op<'_>, wanted: &dyn Wanted) -> bool {
    match op {
        Op::Insert { table, .. } | Op::Update { table, .. } | Op::Delete { table, .. } => {
            wanted.row(volume, *table, op)
        }
        Op::Ddl(ddl) => wanted.schema(volume, ddl.text),
        Op::Pragma(sql) => wanted.schema(volume, sql),
        _ => false,
    }
}

/// The events of the transactions, and the transactions of which some are missing. `held` is the memory that `kept` takes.
fn assembled(kept: Vec<Part<'static>>, mut held: u64) -> Result<(Vec<Event>, Vec<u64>), FlashbackError> {
    let mut assembly = Assembly::new(Fragments::default(), Position::default());
    let (mut events, mut partial) = (Vec::new(), Vec::new());
    for part in kept {
        let Some(transaction) = assembly.add(part)? else { continue };
        if !transaction.is_whole {
            partial.push(transaction.head.id.0);
        }
        let (lsn, head, volume) = (transaction.start.boxcar, transaction.head, transaction.volume);
        for piece in transaction.pieces() {
            let piece = piece?;
            held = held.saturating_sub(piece.len() as u64);
            for op in Ops::new(&piece) {
                let op = op.map_err(|source| ChangesError::Boxcar { lsn, source })?;
                let Some((what, bytes)) = of_op(&op) else { continue };
                held += bytes;
                events.push(Event { head, author: transaction.author.clone(), lsn, volume, what });
            }
            check_held(held)?;
        }
    }
    Ok((events, partial))
}

/// A wanted operation, and the memory that its event takes, about.
fn of_op(op: &Op<'_>) -> Option<(What, u64)> {
    let own = size_of::<Event>() as u64;
    match op {
        Op::Ddl(ddl) => Some((What::Schema { sql: ddl.text.to_owned() }, own)),
        Op::Pragma(sql) => Some((What::Schema { sql: (*sql).to_owned() }, own)),
        _ => {
            let exact = !RowOp::is_inexact(op);
            let (table, op) = RowOp::of(op)?;
            let bytes = own + op.bytes();
            Some((What::Row { table, op, exact }, bytes))
        }
    }
}

/// The commit of a transaction. The newest one of that number.
pub fn find_commit(source: &Source, at: Option<Lsn>, id: u64) -> Result<(Option<Commit>, Read), FlashbackError> {
    // A transaction's number begins with its epoch.
    let epoch = Some((id >> 32) as u32);
    let anywhere = Range { epoch, newest_first: true, ..Range::default() };
    let range = at.map_or(anywhere, |lsn| Range { last: Some(lsn), ..Range::from(lsn) });
    let (mut found, read) = source.scan(range, &|car, kept: &mut Vec<Commit>| {
        let keep = |Transaction { head, author, .. }: Transaction<'_>| {
            if head.id.0 == id {
                let author = author.map(AuthorNames::to_author).map(Arc::new);
                kept.push(Commit { lsn: car.lsn, head, author });
            }
        };
        transactions(car.body, keep).map_err(|source| ChangesError::Boxcar { lsn: car.lsn, source }.into())
    })?;
    Ok((found.pop(), read))
}

/// The numbers of all transactions of one commit: each database's part may have its own.
pub fn ids_of(source: &Source, lsn: Lsn, hlc: Hlc) -> Result<HashSet<TxnId>, FlashbackError> {
    let range = Range { last: Some(lsn), ..Range::from(lsn) };
    let (ids, _) = source.scan(range, &|car, kept: &mut Vec<TxnId>| {
        transactions(car.body, |t| kept.extend((t.head.hlc == hlc).then_some(t.head.id)))
            .map_err(|source| ChangesError::Boxcar { lsn: car.lsn, source }.into())
    })?;
    Ok(ids.into_iter().collect())
}

/// The transactions that are behind a commit: all behind its boxcar, and these in it. In one database the order in the trail
/// is the order of the commits, whatever the clock was.
#[derive(Clone, Debug)]
pub struct Behind {
    pub lsn: Lsn,
    in_boxcar: HashSet<TxnId>,
}

impl Behind {
    pub fn commit(source: &Source, lsn: Lsn, hlc: Hlc) -> Result<Behind, FlashbackError> {
        let range = Range { last: Some(lsn), ..Range::from(lsn) };
        let (ids, _) = source.scan(range, &|car, kept: &mut Vec<TxnId>| {
            behind(car.body, hlc, kept).map_err(|source| ChangesError::Boxcar { lsn: car.lsn, source }.into())
        })?;
        Ok(Behind { lsn, in_boxcar: ids.into_iter().collect() })
    }

    pub fn has(&self, lsn: Lsn, transaction: TxnId) -> bool {
        lsn > self.lsn || (lsn == self.lsn && self.in_boxcar.contains(&transaction))
    }
}

/// The transactions of a boxcar that are behind the commit with this clock, each in its own database.
fn behind(body: &[u8], hlc: Hlc, ids: &mut Vec<TxnId>) -> Result<(), DecodeError> {
    let mut passed: HashSet<VolumeId> = HashSet::new();
    for record in RecordReader::new(body) {
        let Record::Batch(batch) = record? else { continue };
        for transaction in batch.transactions() {
            let head = transaction?.head;
            if head.hlc == hlc {
                passed.insert(batch.volume);
            } else if passed.contains(&batch.volume) {
                ids.push(head.id);
            }
        }
    }
    Ok(())
}

fn transactions(body: &[u8], mut each: impl FnMut(Transaction<'_>)) -> Result<(), DecodeError> {
    for record in RecordReader::new(body) {
        if let Record::Batch(batch) = record? {
            for transaction in batch.transactions() {
                each(transaction?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::SiteId;
    use holdfast_types::record::BatchBuilder;

    #[test]
    fn what_is_behind_a_commit_does_not_depend_on_the_clock() {
        let mut body = Vec::new();
        for (volume, transactions) in [(1, &[(1, 70), (2, 90), (3, 20)][..]), (2, &[(4, 10), (5, 95)]), (1, &[(6, 95)])]
        {
            let mut batch = BatchBuilder::begin(&mut body, VolumeId(volume), 1, 1);
            for (id, hlc) in transactions {
                let head = TxnHead { id: TxnId(*id), site: SiteId(1), hlc: Hlc(*hlc) };
                batch.begin_transaction(&mut body, head, None);
                batch.end_transaction(&mut body);
            }
            batch.finish(&mut body);
        }
        let behind = |hlc| {
            let mut ids = Vec::new();
            super::behind(&body, Hlc(hlc), &mut ids).unwrap();
            ids.into_iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(behind(90), [3, 6]);
        assert_eq!(behind(10), [5]);
        assert_eq!(behind(95), [0; 0]);
        let behind = Behind { lsn: Lsn(7), in_boxcar: HashSet::from([TxnId(3)]) };
        assert!(behind.has(Lsn(8), TxnId(1)) && behind.has(Lsn(7), TxnId(3)));
        assert!(!behind.has(Lsn(7), TxnId(1)) && !behind.has(Lsn(6), TxnId(3)));
    }
}
