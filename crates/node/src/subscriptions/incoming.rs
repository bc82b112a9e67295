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
