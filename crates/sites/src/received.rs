//! Reads what a publisher sends: the frames of a feed, and the messages of `pgoutput`, protocol version 1, in them. Their byte
//! tables are in [`crate::link`] and [`crate::pgoutput`]; PostgreSQL sends a few more.
//!
//! | message of PostgreSQL only | bytes |
//! |---|---|
//! | truncate | `T`, tables u32, flags u8 (1: CASCADE, 2: RESTART IDENTITY), each table u32 |
//! | type | `Y`, type u32, schema string, name string |
//! | origin | `O`, LSN u64, name string |
//! | message | `M`, what follows is for others |
//! | update, delete | `O` in the place of `K`: the whole old row |
//!
//! Source: the PostgreSQL 15 manual, 55.9 "Logical Replication Message Formats".
//!
//! Failure: a message of another form is refused; the caller ends the connection.

use crate::pgoutput::{Cell, Column, Commit, EPOCH_US};

/// A frame of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message of the output plugin.
    Data {
        end: u64,
        message: &'a [u8],
    },
    Keepalive {
        end: u64,
        wants_answer: bool,
    },
}

/// A table as the publisher describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRelation {
    pub oid: u32,
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// REPLICA IDENTITY FULL: every column counts as the key.
    pub is_full: bool,
}

/// A message of `pgoutput`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Begin {
        start: u64,
        unix_us: i64,
    },
    Relation(RemoteRelation),
    Insert {
        table: u32,
        new: Vec<Cell>,
    },
    /// `old`: the key, or the row, before; where it is not there the key has not changed.
    Update {
        table: u32,
        old: Option<Vec<Cell>>,
        new: Vec<Cell>,
    },
    Delete {
        table: u32,
        old: Vec<Cell>,
    },
    Truncate {
        tables: Vec<u32>,
    },
    Commit(Commit),
    /// Nothing that changes a row.
    Other,
}

/// A message that is not of a known form: what is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the publisher sent {0}")]
pub struct Malformed(pub String);

fn malformed(what: impl Into<String>) -> Malformed {
    Malformed(what.into())
}

/// The rest of a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| malformed("a message that is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| malformed("a message that is cut off"))
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.number::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.number()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.number()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.number()?))
    }

    /// A time, since 1970.
    fn time(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.number()?).saturating_add(EPOCH_US))
    }

    fn string(&mut self) -> Result<String, Malformed> {
        let end = self.0.iter().position(|b| *b == 0).ok_or_else(|| malformed("a string without an end"))?;
        let text = self.take(end)?.to_vec();
        self.take(1)?;
        String::from_utf8(text).map_err(|_| malformed("a name that is not UTF-8"))
    }

    fn row(&mut self) -> Result<Vec<Cell>, Malformed> {
        let count = self.u16()?;
        let mut row = Vec::new();
        for _ in 0..count {
            row.push(match self.u8()? {
                b'n' => Cell::Null,
                b'u' => Cell::Unchanged,
                b't' => {
                    let length = self.u32()? as usize;
                    Cell::Text(self.take(length)?.to_vec())
                }
                other => return Err(malformed(format!("a column of kind {other:#04x}"))),
            });
        }
        Ok(row)
    }

    /// A row behind the letter that says which it is.
    fn row_of(&mut self, letters: &[u8]) -> Result<Vec<Cell>, Malformed> {
        let letter = self.u8()?;
        match letters.contains(&letter) {
            true => self.row(),
            false => Err(malformed(format!("a row of kind {letter:#04x}"))),
        }
    }
}

/// Reads a frame.
pub fn frame(bytes: &[u8]) -> Result<Frame<'_>, Malformed> {
    let mut reader = Reader(bytes);
    match reader.u8()? {
        b'w' => {
            reader.u64()?;
            let end = reader.u64()?;
            reader.time()?;
            Ok(Frame::Data { end, message: reader.0 })
        }
        b'k' => {
            let end = reader.u64()?;
            reader.time()?;
            Ok(Frame::Keepalive { end, wants_answer: reader.u8()? != 0 })
        }
        other => Err(malformed(format!("a frame of kind {other:#04x}"))),
    }
}

/// Reads a message of `pgoutput`.
pub fn message(bytes: &[u8]) -> Result<Received, Malformed> {
    let mut reader = Reader(bytes);
    Ok(match reader.u8()? {
        b'B' => {
            let (start, unix_us) = (reader.u64()?, reader.time()?);
            reader.u32()?;
            Received::Begin { start, unix_us }
        }
        b'C' => {
            reader.u8()?;
            let (start, end, unix_us) = (reader.u64()?, reader.u64()?, reader.time()?);
            Received::Commit(Commit { start, end, unix_us, transaction: 0 })
        }
        b'R' => Received::Relation(relation(&mut reader)?),
        b'I' => Received::Insert { table: reader.u32()?, new: reader.row_of(b"N")? },
        b'U' => {
            let table = reader.u32()?;
            let has_old = matches!(reader.0.first(), Some(b'K' | b'O'));
            let old = has_old.then(|| reader.row_of(b"KO")).transpose()?;
            Received::Update { table, old, new: reader.row_of(b"N")? }
        }
        b'D' => Received::Delete { table: reader.u32()?, old: reader.row_of(b"KO")? },
        b'T' => {
            let count = reader.u32()?;
            reader.u8()?;
            Received::Truncate { tables: (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()? }
        }
        b'Y' | b'O' | b'M' => Received::Other,
        other => return Err(malformed(format!("a message of kind {other:#04x}"))),
    })
}

fn relation(reader: &mut Reader<'_>) -> Result<RemoteRelation, Malformed> {
    let (oid, schema, name) = (reader.u32()?, reader.string()?, reader.string()?);
    let is_full = reader.u8()? == b'f';
    let mut columns = Vec::new();
    for _ in 0..reader.u16()? {
        let is_key = reader.u8()? & 1 != 0;
        let (name, type_oid) = (reader.string()?, reader.u32()?);
        columns.push(Column { name, type_oid, typmod: reader.u32()? as i32, is_key });
    }
    // The catalogue's own schema has no name.
    let schema = if schema.is_empty() { "pg_catalog".to_owned() } else { schema };
    Ok(RemoteRelation { oid, schema, name, columns, is_full })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{link, pgoutput};

    fn bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    fn every_message() -> Vec<(Vec<u8>, Received)> {
        let commit = Commit { start: 2, end: 3, unix_us: EPOCH_US + 4, transaction: 0 };
        let column = |name: &str, is_key| Column { name: name.into(), type_oid: 23, typmod: -1, is_key };
        let columns = vec![column("id", true), column("v", false)];
        let sent = pgoutput::Relation { oid: 5, name: "t".into(), columns: columns.clone() };
        let relation = RemoteRelation { oid: 5, schema: "public".into(), name: "t".into(), columns, is_full: false };
        let row = vec![Cell::Text(b"1".to_vec()), Cell::Null];
        let new = vec![Cell::Text(b"2".to_vec()), Cell::Unchanged];
        let update =
            |old: Option<&[Cell]>| Received::Update { table: 5, old: old.map(<[Cell]>::to_vec), new: new.clone() };
        vec![
            (bytes(|out| pgoutput::begin(out, &commit)), Received::Begin { start: 2, unix_us: EPOCH_US + 4 }),
            (bytes(|out| pgoutput::commit(out, &commit)), Received::Commit(commit)),
            (bytes(|out| pgoutput::relation(out, &sent)), Received::Relation(relation)),
            (bytes(|out| pgoutput::insert(out, 5, &row)), Received::Insert { table: 5, new: row.clone() }),
            (bytes(|out| pgoutput::update(out, 5, None, &new)), update(None)),
            (bytes(|out| pgoutput::update(out, 5, Some(&row), &new)), update(Some(&row))),
            (bytes(|out| pgoutput::delete(out, 5, &row)), Received::Delete { table: 5, old: row.clone() }),
            // Of PostgreSQL 15, with other numbers.
            (b"T\0\0\0\x02\x01\0\0\0\x05\0\0\0\x06".to_vec(), Received::Truncate { tables: vec![5, 6] }),
            (b"D\0\0\0\x05O\0\x02t\0\0\0\x011n".to_vec(), Received::Delete { table: 5, old: row }),
        ]
    }

    #[test]
    fn messages_that_are_sent_are_read() {
        for (sent, expected) in every_message() {
            assert_eq!(message(&sent), Ok(expected));
        }
        assert_eq!(message(b"Y\0\0\0\x01public\0mood\0"), Ok(Received::Other));
    }

    #[test]
    fn a_message_that_is_cut_off_is_refused() {
        for (sent, _) in every_message() {
            for cut in 0..sent.len() {
                assert!(message(&sent[..cut]).is_err(), "{sent:?} cut at {cut}");
            }
        }
        assert!(message(b"Z").is_err() && frame(b"x").is_err() && frame(b"").is_err());
    }

    #[test]
    fn frames() {
        let sent = bytes(|out| {
            link::data(out, 7, EPOCH_US);
            out.extend_from_slice(b"abc");
        });
        assert_eq!(frame(&sent), Ok(Frame::Data { end: 7, message: b"abc" }));
        let sent = bytes(|out| link::keepalive(out, 8, EPOCH_US, true));
        assert_eq!(frame(&sent), Ok(Frame::Keepalive { end: 8, wants_answer: true }));
        assert!(frame(&sent[..17]).is_err());
    }
}
