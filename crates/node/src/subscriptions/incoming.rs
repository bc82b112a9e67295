//! Puts the publisher's transactions together from what arrives.
//!
//! Failure: a message of another form, or one in the wrong place, ends the connection.

use super::apply::{Change, Foreign, What};
use holdfast_sites::pgoutput::Cell;
use holdfast_sites::received::{Frame, Malformed, Received, RemoteRelation, frame, message};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;

/// From this size on a transaction is applied while it arrives.
const LARGE_BYTES: usize = 4 << 20;

/// What a frame has brought.
pub enum Arrived {
    Nothing,
    /// The publisher wants to hear from us.
    Asked,
    /// A part of a transaction that is too large to wait for its end: [`Incoming::take_part`].
    Part,
    /// A transaction, or the rest of one, and the bytes that it came in.
    Whole(Foreign, usize),
}

/// See the module.
#[derive(Default)]
pub struct Incoming {
    relations: HashMap<u32, Arc<RemoteRelation>>,
    open: Option<Foreign>,
    open_bytes: usize,
    /// The highest LSN that was named between transactions.
    pub received: u64,
}

fn violation(what: &str) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("the publisher sent {what}"))
}

fn malformed(error: Malformed) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, error.to_string())
}

impl Incoming {
    /// Takes a frame.
    pub fn take(&mut self, bytes: &[u8]) -> SqlResult<Arrived> {
        match frame(bytes).map_err(malformed)? {
            Frame::Keepalive { end, wants_answer } => {
                if self.open.is_none() {
                    self.received = self.received.max(end);
                }
                Ok(if wants_answer { Arrived::Asked } else { Arrived::Nothing })
            }
            Frame::Data { message: bytes, .. } => {
                self.open_bytes += bytes.len();
                let received = message(bytes).map_err(malformed)?;
                self.message(received)
            }
        }
    }

    /// No transaction is under way.
    pub fn is_between(&self) -> bool {
        self.open.is_none()
    }

    /// What has arrived of a large transaction.
    pub fn take_part(&mut self) -> Foreign {
        self.open_bytes = 0;
        let Some(open) = &mut self.open else { return Foreign::default() };
        let rest = open.head();
        std::mem::replace(open, rest)
    }

    fn message(&mut self, received: Received) -> SqlResult<Arrived> {
        match received {
            Received::Begin { start, unix_us } => {
                if self.open.is_some() {
                    return Err(violation("the beginning of a transaction inside another"));
                }
                self.open = Some(Foreign { start, unix_us, ..Foreign::default() });
                self.open_bytes = 0;
                return Ok(Arrived::Nothing);
            }
            Received::Relation(relation) => _ = self.relations.insert(relation.oid, Arc::new(relation)),
            Received::Insert { table, new } => self.change(table, What::Insert(new))?,
            Received::Update { table, old, new } => self.change(table, What::Update(old, new))?,
            Received::Delete { table, old } => self.change(table, What::Delete(old))?,
            Received::Truncate { tables } => {
                tables.into_iter().try_for_each(|table| self.change(table, What::Truncate))?;
            }
            Received::Commit(commit) => {
                let open = self.open.take().ok_or_else(|| violation("the end of no transaction"))?;
                self.received = self.received.max(commit.end);
                return Ok(Arrived::Whole(Foreign { end: commit.end, ..open }, self.open_bytes));
            }
            Received::Other => {}
        }
        Ok(if self.open_bytes >= LARGE_BYTES { Arrived::Part } else { Arrived::Nothing })
    }

    fn change(&mut self, table: u32, what: What) -> SqlResult<()> {
        let relation = self.relations.get(&table).cloned();
        let relation = relation.ok_or_else(|| violation("a change of a table that it did not describe"))?;
        let fits = |row: &Vec<Cell>| row.len() == relation.columns.len();
        let fits = match &what {
            What::Insert(row) | What::Delete(row) => fits(row),
            What::Update(old, new) => old.as_ref().is_none_or(fits) && fits(new),
            What::Truncate => true,
        };
        if !fits {
            let (schema, name, columns) = (&relation.schema, &relation.name, relation.columns.len());
            return Err(violation(&format!("a row of \"{schema}.{name}\" that has not its {columns} columns")));
        }
        let open = self.open.as_mut().ok_or_else(|| violation("a change outside a transaction"))?;
        open.changes.push(Change { relation, what });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_sites::pgoutput::{Column, Commit};

    fn relation(oid: u32, columns: usize) -> Received {
        let column = |n| Column { name: format!("c{n}"), type_oid: 23, typmod: -1, is_key: false };
        let (schema, name) = ("public".to_owned(), "t".to_owned());
        Received::Relation(RemoteRelation {
            oid,
            schema,
            name,
            columns: (0..columns).map(column).collect(),
            is_full: false,
        })
    }

    fn begin(start: u64) -> Received {
        Received::Begin { start, unix_us: 5 }
    }

    fn commit(end: u64) -> Received {
        Received::Commit(Commit { start: 1, end, unix_us: 5, transaction: 9 })
    }

    fn insert(cells: usize) -> Received {
        Received::Insert { table: 1, new: vec![Cell::Null; cells] }
    }

    fn taken(messages: impl IntoIterator<Item = Received>) -> (Incoming, SqlResult<Arrived>) {
        let mut incoming = Incoming::default();
        let last = messages.into_iter().try_fold(Arrived::Nothing, |_, message| incoming.message(message));
        (incoming, last)
    }

    #[test]
    fn a_transaction_is_whole_at_its_commit() {
        let (mut incoming, last) = taken([relation(1, 2), begin(10), insert(2), insert(2)]);
        assert!(matches!(last, Ok(Arrived::Nothing)) && !incoming.is_between());
        let Ok(Arrived::Whole(foreign, _)) = incoming.message(commit(30)) else { panic!("it is not whole") };
        assert_eq!((foreign.start, foreign.end, foreign.unix_us, foreign.changes.len()), (10, 30, 5, 2));
        assert!(incoming.is_between());
        assert_eq!(incoming.received, 30);
    }

    #[test]
    fn a_keepalive_inside_a_transaction_confirms_nothing() {
        let mut keepalive = Vec::new();
        holdfast_sites::link::keepalive(&mut keepalive, 99, i64::from(u32::MAX) * 1_000_000, true);
        let (mut incoming, _) = taken([relation(1, 1), begin(10), insert(1)]);
        assert!(matches!(incoming.take(&keepalive), Ok(Arrived::Asked)));
        assert_eq!(incoming.received, 0, "what follows of the transaction may be below it");
        incoming.message(commit(30)).unwrap();
        incoming.take(&keepalive).unwrap();
        assert_eq!(incoming.received, 99);
    }

    #[test]
    fn a_large_transaction_is_taken_in_parts_under_one_head() {
        let (mut incoming, _) = taken([relation(1, 1), begin(10), insert(1)]);
        incoming.open_bytes = LARGE_BYTES;
        assert!(matches!(incoming.message(insert(1)), Ok(Arrived::Part)));
        let part = incoming.take_part();
        assert_eq!((part.start, part.changes.len()), (10, 2));
        assert!(matches!(incoming.message(insert(1)), Ok(Arrived::Nothing)), "the bytes count from there again");
        let Ok(Arrived::Whole(rest, _)) = incoming.message(commit(30)) else { panic!("it is not whole") };
        assert_eq!((rest.start, rest.end, rest.changes.len()), (10, 30, 1));
    }

    #[test]
    fn what_is_in_the_wrong_place_is_refused() {
        let refused = |messages: Vec<Received>| match taken(messages).1 {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        for (messages, why) in [
            (vec![begin(1), begin(2)], "the beginning of a transaction inside another"),
            (vec![commit(1)], "the end of no transaction"),
            (vec![relation(1, 1), insert(1)], "a change outside a transaction"),
            (vec![begin(1), insert(1)], "a table that it did not describe"),
            (vec![relation(1, 2), begin(1), insert(1)], "has not its 2 columns"),
            (
                vec![
                    relation(1, 1),
                    begin(1),
                    Received::Update { table: 1, old: Some(Vec::new()), new: vec![Cell::Null] },
                ],
                "has not its 1 columns",
            ),
        ] {
            assert!(refused(messages).contains(why), "{why}");
        }
    }
}
