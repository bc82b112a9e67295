//! The changes in boxcars, in the order of their commits.
//!
//! A large transaction leaves its operations in fragments in front of the record that commits it; they are put in its
//! place. Fragments without such a record belong to a transaction that was not committed, and are dropped.
//!
//! Failure: if fragments lie in front of where the reading began, the reading begins again further back.

use crate::error::FlashbackError;
use crate::row::RowOp;
use crate::source::{Car, Range, Read, Source};
use holdfast_types::record::{DecodeError, Op, Ops, Record, RecordReader, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, TxnId, VolumeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// What may be held in memory of the trail.
const HELD_BYTES_MAX: u64 = 512 << 20;

/// Which events are wanted. Fragments are asked for before it is known whether they were committed.
pub trait Wanted: Sync {
    fn volume(&self, volume: VolumeId) -> bool;
    fn transaction(&self, _: &TxnHead) -> bool {
        true
    }
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
    pub lsn: Lsn,
    pub volume: VolumeId,
    pub what: What,
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

/// What a boxcar gives, before fragments are in their places.
enum Raw {
    Event(Event),
    Fragment { volume: VolumeId, txn: TxnId, number: u32, what: Vec<What> },
    Fragments { head: TxnHead, lsn: Lsn, volume: VolumeId, txn: TxnId, count: u32 },
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
    for record in RecordReader::new(car.body) {
        match record? {
            Record::Batch(batch) if wanted.volume(batch.volume) => {
                for transaction in batch.transactions() {
                    let transaction = transaction?;
                    if wanted.transaction(&transaction.head) {
                        of_transaction(
                            car.lsn,
                            batch.volume,
                            (transaction.head, transaction.ops),
                            wanted,
                            kept,
                            &mut bytes,
                        )?;
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
    lsn: Lsn,
    volume: VolumeId,
    (head, ops): (TxnHead, Ops<'_>),
    wanted: &dyn Wanted,
    kept: &mut Vec<Raw>,
    bytes: &mut u64,
) -> Result<(), DecodeError> {
    for op in ops {
        let op = op?;
        if let Op::Fragments { txn, count } = op {
            kept.push(Raw::Fragments { head, lsn, volume, txn, count });
        } else if let Some(what) = of_op(volume, &op, wanted, bytes) {
            kept.push(Raw::Event(Event { head, lsn, volume, what }));
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
            Raw::Fragments { head, lsn, volume, txn, count } => {
                let parts = fragments.remove(&(volume, txn)).unwrap_or_default();
                if parts.len() != count as usize {
                    partial.push(head.id.0);
                    continue;
                }
                events.extend(parts.into_values().flatten().map(|what| Event { head, lsn, volume, what }));
            }
        }
    }
    (events, partial)
}

/// Where the commit of a transaction is: its boxcar, and its head. The newest one of that number.
pub fn find_commit(
    source: &Source,
    at: Option<Lsn>,
    id: u64,
) -> Result<(Option<(Lsn, TxnHead)>, Read), FlashbackError> {
    // A transaction's number begins with its epoch.
    let epoch = Some((id >> 32) as u32);
    let anywhere = Range { epoch, newest_first: true, ..Range::default() };
    let range = at.map_or(anywhere, |lsn| Range { last: Some(lsn), ..Range::from(lsn) });
    let (found, read) = source.scan(range, &|car, kept: &mut Vec<(Lsn, TxnHead)>| {
        heads(car.body, |head| kept.extend((head.id.0 == id).then_some((car.lsn, head))))
            .map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })
    })?;
    Ok((found.last().copied(), read))
}

/// The numbers of all transactions of one commit: each database's part may have its own.
pub fn ids_of(source: &Source, lsn: Lsn, hlc: Hlc) -> Result<HashSet<TxnId>, FlashbackError> {
    let range = Range { last: Some(lsn), ..Range::from(lsn) };
    let (ids, _) = source.scan(range, &|car, kept: &mut Vec<TxnId>| {
        heads(car.body, |head| kept.extend((head.hlc == hlc).then_some(head.id)))
            .map_err(|source| FlashbackError::Boxcar { lsn: car.lsn.0, source })
    })?;
    Ok(ids.into_iter().collect())
}

fn heads(body: &[u8], mut each: impl FnMut(TxnHead)) -> Result<(), DecodeError> {
    for record in RecordReader::new(body) {
        if let Record::Batch(batch) = record? {
            for transaction in batch.transactions() {
                each(transaction?.head);
            }
        }
    }
    Ok(())
}

/// Whether a schema change mentions a table: one of its words, quoted or not, is the name.
pub fn mentions(sql: &str, table: &str) -> bool {
    let mut rest = sql;
    while let Some(start) = rest.find(|c: char| c == '"' || c == '`' || c == '[' || c == '\'' || is_word(c)) {
        rest = &rest[start..];
        let first = rest.chars().next().unwrap_or(' ');
        let (word, behind) = match first {
            '"' | '`' | '\'' => quoted(rest, first),
            '[' => rest[1..].split_once(']').map_or((String::new(), ""), |(word, behind)| (word.to_owned(), behind)),
            _ => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if first != '\'' && word.eq_ignore_ascii_case(table) {
            return true;
        }
        rest = behind;
    }
    false
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// A quoted word at the beginning, and what is behind it.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut word = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            word.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            word.push(quote);
        } else {
            return (word, &text[at + 1..]);
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_change_mentions_its_tables() {
        for sql in [
            "DROP TABLE \"orders\"",
            "ALTER TABLE Orders ADD COLUMN x",
            "CREATE INDEX i ON [orders](a)",
            "drop table main.`orders`",
        ] {
            assert!(mentions(sql, "orders"), "{sql}");
        }
        for sql in ["DROP TABLE orders2", "CREATE TABLE x(a DEFAULT 'orders')", "DROP TABLE \"a\"\"orders\"", "'orders"]
        {
            assert!(!mentions(sql, "orders"), "{sql}");
        }
        assert!(mentions("DROP TABLE \"a\"\"b\"", "a\"b"));
    }
}
