//! The changes in boxcars, in the order of their commits.
//!
//! A large transaction leaves its operations in fragments in front of the record that commits it; they are put in its
//! place. Fragments without such a record belong to a transaction that was not committed, and are dropped.
//!
//! Failure: if fragments lie in front of where the reading began, the reading begins again further back.

use crate::error::FlashbackError;
use crate::row::RowOp;
use crate::source::{Car, Range, Read, Source};
use holdfast_types::record::{Author, AuthorNames, DecodeError, Op, Ops, Record, RecordReader, Transaction, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, TxnId, VolumeId};
use std::collections::{BTreeMap, HashMap, HashSet};
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

impl Commit {
    fn event(&self, volume: VolumeId, what: What) -> Event {
        Event { head: self.head, author: self.author.clone(), lsn: self.lsn, volume, what }
    }
}

/// What a boxcar gives, before fragments are in their places.
enum Raw {
    Event(Event),
    Fragment { volume: VolumeId, txn: TxnId, number: u32, what: Vec<What> },
    Fragments { commit: Commit, volume: VolumeId, txn: TxnId, count: u32 },
}

/// The wanted events in a range; and in `Read` the transactions that are not among them because parts of them are in front of
/// the trail within reach.
pub fn collect(source: &Source, range: Range, wanted: &dyn Wanted) -> Result<(Vec<Event>, Read), FlashbackError> {
    let mut begin = range;
    let whole = Range { last: range.last, ..Range::default() };
    loop {
        let held = AtomicU64::new(0);
        let (raw, mut read) = source.scan(begin, &|car, kept| {
            of_boxcar(car, wanted, kept, &held).map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })?;
            match held.load(Ordering::Relaxed) > HELD_BYTES_MAX {
                true => Err(FlashbackError::TooMuch { limit: HELD_BYTES_MAX }),
                false => Ok(()),
            }
        })?;
        let (events, partial) = placed(raw);
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

fn of_boxcar(car: &Car<'_>, wanted: &dyn Wanted, kept: &mut Vec<Raw>, held: &AtomicU64) -> Result<(), DecodeError> {
    let mut bytes = 0;
    let mut author: Option<Arc<Author>> = None;
    for record in RecordReader::new(car.body) {
        match record? {
            Record::Batch(batch) if wanted.volume(batch.volume) => {
                wanted.schema_epoch(batch.volume, batch.schema_epoch);
                for transaction in batch.transactions() {
                    let Transaction { head, author: names, ops } = transaction?;
                    if wanted.transaction(car.lsn, &head) {
                        // Most have that of the one before.
                        if author.as_deref().map(Author::names) != names {
                            author = names.map(AuthorNames::to_author).map(Arc::new);
                        }
                        let commit = Commit { lsn: car.lsn, head, author: author.clone() };
                        of_transaction(&commit, batch.volume, ops, wanted, kept, &mut bytes)?;
                    }
                }
            }
            Record::Fragment { volume, txn, number, ops } if wanted.volume(volume) && wanted.fragment(txn) => {
                let mut what = Vec::new();
                for op in ops {
                    what.extend(of_op(volume, &op?, wanted, &mut bytes));
                }
                kept.push(Raw::Fragment { volume, txn, number, what });
            }
            _ => {}
        }
    }
    held.fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

fn of_transaction(
    commit: &Commit,
    volume: VolumeId,
    ops: Ops<'_>,
    wanted: &dyn Wanted,
    kept: &mut Vec<Raw>,
    bytes: &mut u64,
) -> Result<(), DecodeError> {
    for op in ops {
        let op = op?;
        if let Op::Ddl(ddl) = &op {
            wanted.schema_epoch(volume, ddl.epoch_after);
        }
        if let Op::Fragments { txn, count } = op {
            kept.push(Raw::Fragments { commit: commit.clone(), volume, txn, count });
        } else if let Some(what) = of_op(volume, &op, wanted, bytes) {
            kept.push(Raw::Event(commit.event(volume, what)));
        }
    }
    Ok(())
}

fn of_op(volume: VolumeId, op: &Op<'_>, wanted: &dyn Wanted, bytes: &mut u64) -> Option<What> {
    let what = match op {
        Op::Insert { table, .. } | Op::Update { table, .. } | Op::Delete { table, .. } => {
            if !wanted.row(volume, *table, op) {
                return None;
            }
            let exact = !RowOp::is_inexact(op);
            let (table, op) = RowOp::of(op)?;
            *bytes += op.bytes();
            What::Row { table, op, exact }
        }
        Op::Ddl(ddl) if wanted.schema(volume, ddl.text) => What::Schema { sql: ddl.text.to_owned() },
        Op::Pragma(sql) if wanted.schema(volume, sql) => What::Schema { sql: (*sql).to_owned() },
        _ => return None,
    };
    *bytes += size_of::<Raw>() as u64;
    Some(what)
}

/// Puts fragments in the places of their commits; and the transactions of which some are missing.
fn placed(raw: Vec<Raw>) -> (Vec<Event>, Vec<u64>) {
    let mut fragments: HashMap<(VolumeId, TxnId), BTreeMap<u32, Vec<What>>> = HashMap::new();
    let (mut events, mut partial) = (Vec::new(), Vec::new());
    for raw in raw {
        match raw {
            Raw::Event(event) => events.push(event),
            Raw::Fragment { volume, txn, number, what } => {
                fragments.entry((volume, txn)).or_default().insert(number, what);
            }
            Raw::Fragments { commit, volume, txn, count } => {
                let parts = fragments.remove(&(volume, txn)).unwrap_or_default();
                if parts.len() != count as usize {
                    partial.push(commit.head.id.0);
                    continue;
                }
                events.extend(parts.into_values().flatten().map(|what| commit.event(volume, what)));
            }
        }
    }
    (events, partial)
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
        transactions(car.body, keep).map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })
    })?;
    Ok((found.pop(), read))
}

/// The numbers of all transactions of one commit: each database's part may have its own.
pub fn ids_of(source: &Source, lsn: Lsn, hlc: Hlc) -> Result<HashSet<TxnId>, FlashbackError> {
    let range = Range { last: Some(lsn), ..Range::from(lsn) };
    let (ids, _) = source.scan(range, &|car, kept: &mut Vec<TxnId>| {
        transactions(car.body, |t| kept.extend((t.head.hlc == hlc).then_some(t.head.id)))
            .map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })
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
            behind(car.body, hlc, kept).map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })
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
