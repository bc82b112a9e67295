//! Where a restore ends: in front of the first commit that is not to be in.
//!
//! A boxcar has the commits of several sessions, so the end may be inside of it, and inside of a record. The commits of a
//! boxcar are numbered as *units*, in order: each transaction of a batch, and each other record. What has no clock of its own
//! has the latest of the clock so far and the time at which its boxcar was written.
//!
//! The records of one commit over several databases have the same clock reading, which no other commit has, and lie in one
//! boxcar.

use holdfast_trail::Shipped;
use holdfast_types::record::{DecodeError, Record, RecordReader};
use holdfast_types::{Hlc, TxnId};
use std::fmt;

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// All that the archive has.
    End,
    Lsn(u64),
    /// Milliseconds since 1970-01-01 UTC, inclusive.
    Time(u64),
    Transaction {
        id: u64,
        included: bool,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::End => write!(f, "the archive's end"),
            Target::Lsn(lsn) => write!(f, "LSN {lsn}"),
            Target::Time(unix_ms) => write!(f, "{}", crate::moment::show_moment(*unix_ms)),
            Target::Transaction { id, .. } => write!(f, "transaction {id}"),
        }
    }
}

/// How much of a boxcar is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All of it, and the restore continues.
    Whole,
    /// All of it, and the restore ends behind it.
    Last,
    /// This part of its body, and the restore ends.
    Part(Vec<u8>),
    /// Nothing: the restore ends in front of it.
    Nothing,
}

/// The clock over all boxcars so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Clock(pub u64);

/// A commit, or a record that is none.
struct Unit {
    /// Of a transaction.
    id: Option<(TxnId, Hlc)>,
    unix_ms: u64,
    /// The offsets of its record, and its place among the record's transactions.
    record: (usize, usize),
    place: u32,
}

fn units(boxcar: &Shipped, clock: &mut Clock) -> Result<Vec<Unit>, DecodeError> {
    let mut units = Vec::new();
    let mut reader = RecordReader::new(boxcar.body());
    loop {
        let start = reader.offset();
        let Some(record) = reader.next() else { return Ok(units) };
        let span = (start, reader.offset());
        match record? {
            Record::Batch(batch) => {
                for (place, transaction) in (0..).zip(batch.transactions()) {
                    let head = transaction?.head;
                    clock.0 = clock.0.max(head.hlc.unix_ms());
                    let (id, unix_ms) = (Some((head.id, head.hlc)), head.hlc.unix_ms());
                    units.push(Unit { id, unix_ms, record: span, place });
                }
            }
            // Not for clients to see, and no change.
            Record::Checkpoint(_) | Record::Fragment { .. } | Record::FragmentDrop { .. } => {
                units.push(Unit { id: None, unix_ms: 0, record: span, place: 0 });
            }
            _ => {
                clock.0 = clock.0.max(boxcar.written_unix_ms());
                units.push(Unit { id: None, unix_ms: clock.0, record: span, place: 0 });
            }
        }
    }
}

/// Whether a boxcar has this transaction.
pub fn contains(boxcar: &Shipped, id: u64) -> Result<bool, DecodeError> {
    let is_it = |unit: &Unit| unit.id.is_some_and(|(found, _)| found.0 == id);
    Ok(units(boxcar, &mut Clock::default())?.iter().any(is_it))
}

/// Whether a commit of a boxcar is later than a time.
pub fn is_later(boxcar: &Shipped, unix_ms: u64) -> Result<bool, DecodeError> {
    Ok(units(boxcar, &mut Clock::default())?.iter().any(|unit| unit.unix_ms > unix_ms))
}

/// How much of a boxcar is in. `clock` is moved to the latest commit that is in.
pub fn extent(target: Target, boxcar: &Shipped, clock: &mut Clock) -> Result<Extent, DecodeError> {
    if let Target::Lsn(lsn) = target
        && boxcar.end.0 > lsn
    {
        return Ok(Extent::Nothing);
    }
    let mut after = *clock;
    let units = units(boxcar, &mut after)?;
    let cut = match target {
        Target::End | Target::Lsn(_) => None,
        Target::Time(unix_ms) => units.iter().position(|unit| unit.unix_ms > unix_ms),
        Target::Transaction { id, included } => cut_at(&units, id, included),
    };
    let Some(cut) = cut else {
        *clock = after;
        return Ok(Extent::Whole);
    };
    units[..cut].iter().for_each(|unit| clock.0 = clock.0.max(unit.unix_ms));
    if cut == 0 {
        return Ok(Extent::Nothing);
    }
    if cut == units.len() {
        return Ok(Extent::Last);
    }
    let cut = &units[cut];
    let mut body = boxcar.body()[..cut.record.0].to_vec();
    if cut.place > 0
        && let Some(record) = RecordReader::new(&boxcar.body()[cut.record.0..cut.record.1]).next()
        && let Record::Batch(batch) = record?
    {
        batch.put_first(&mut body, cut.place)?;
    }
    Ok(if body.is_empty() { Extent::Nothing } else { Extent::Part(body) })
}

/// The first unit that is out, for the transaction `id`; `None` if it is not in this boxcar.
fn cut_at(units: &[Unit], id: u64, included: bool) -> Option<usize> {
    let clock = units.iter().filter_map(|unit| unit.id).find(|(found, _)| found.0 == id)?.1;
    let of_commit = |unit: &Unit| unit.id.is_some_and(|(_, hlc)| hlc == clock);
    match included {
        true => units.iter().rposition(of_commit).map(|last| last + 1),
        false => units.iter().position(of_commit),
    }
}
