//! The messages of PostgreSQL's output plugin `pgoutput`, protocol version 1.
//!
//! Numbers are big-endian; a string ends with a zero byte.
//!
//! | message | bytes |
//! |---|---|
//! | begin | `B`, LSN of the commit u64, commit time i64, transaction u32 |
//! | relation | `R`, table u32, schema string, name string, replica identity `d`, columns u16; for each: flags u8 (1: in the key), name string, type u32, type modifier i32 |
//! | insert | `I`, table u32, `N`, row |
//! | update | `U`, table u32, if the key changes `K` and the old key as a row, `N`, row |
//! | delete | `D`, table u32, `K`, the old key as a row |
//! | commit | `C`, flags u8 0, LSN of the commit u64, LSN behind it u64, commit time i64 |
//! | row | columns u16; for each: `n` NULL, `u` unchanged, or `t`, bytes u32 and the text |
//!
//! Times are microseconds since 2000-01-01. A key as a row has NULL for each column outside the key.
//!
//! Source: the PostgreSQL 15 manual, 55.9 "Logical Replication Message Formats".

/// Microseconds from 1970 to 2000.
pub const EPOCH_US: i64 = 946_684_800_000_000;

/// A column as subscribers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
    /// It is part of the key by which the subscriber finds a row.
    pub is_key: bool,
}

/// A table as subscribers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    pub oid: u32,
    pub name: String,
    pub columns: Vec<Column>,
}

/// One column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Null,
    /// The subscriber keeps what it has.
    Unchanged,
    Text(Vec<u8>),
}

/// A transaction's place and time, as its first and last message have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Where its commit begins in the trail, and the place behind it.
    pub start: u64,
    pub end: u64,
    /// Since 1970.
    pub unix_us: i64,
    pub transaction: u32,
}

fn string(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end the string early.
    out.extend(text.bytes().map(|byte| if byte == 0 { b'?' } else { byte }));
    out.push(0);
}

pub fn begin(out: &mut Vec<u8>, commit: &Commit) {
    out.push(b'B');
    out.extend_from_slice(&commit.start.to_be_bytes());
    out.extend_from_slice(&(commit.unix_us - EPOCH_US).to_be_bytes());
    out.extend_from_slice(&commit.transaction.to_be_bytes());
}

pub fn commit(out: &mut Vec<u8>, commit: &Commit) {
    out.extend_from_slice(b"C\0");
    out.extend_from_slice(&commit.start.to_be_bytes());
    out.extend_from_slice(&commit.end.to_be_bytes());
    out.extend_from_slice(&(commit.unix_us - EPOCH_US).to_be_bytes());
}

pub fn relation(out: &mut Vec<u8>, relation: &Relation) {
    out.push(b'R');
    out.extend_from_slice(&relation.oid.to_be_bytes());
    string(out, "public");
    string(out, &relation.name);
    out.push(b'd');
    out.extend_from_slice(&(relation.columns.len() as u16).to_be_bytes());
    for column in &relation.columns {
        out.push(column.is_key.into());
        string(out, &column.name);
        out.extend_from_slice(&column.type_oid.to_be_bytes());
        out.extend_from_slice(&column.typmod.to_be_bytes());
    }
}

pub fn insert(out: &mut Vec<u8>, table: u32, row: &[Cell]) {
    head(out, b'I', table);
    tuple(out, b'N', row);
}

/// `old_key`: the row's key before, where it changes.
pub fn update(out: &mut Vec<u8>, table: u32, old_key: Option<&[Cell]>, row: &[Cell]) {
    head(out, b'U', table);
    if let Some(key) = old_key {
        tuple(out, b'K', key);
    }
    tuple(out, b'N', row);
}

pub fn delete(out: &mut Vec<u8>, table: u32, old_key: &[Cell]) {
    head(out, b'D', table);
    tuple(out, b'K', old_key);
}

fn head(out: &mut Vec<u8>, kind: u8, table: u32) {
    out.push(kind);
    out.extend_from_slice(&table.to_be_bytes());
}

fn tuple(out: &mut Vec<u8>, kind: u8, row: &[Cell]) {
    out.push(kind);
    // SQLite has at most 32,767 columns a table.
    out.extend_from_slice(&(row.len() as u16).to_be_bytes());
    for cell in row {
        match cell {
            Cell::Null => out.push(b'n'),
            Cell::Unchanged => out.push(b'u'),
            Cell::Text(text) => {
                out.push(b't');
                // A value has at most 1 GB.
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                out.extend_from_slice(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    /// The bytes that a stock PostgreSQL 15 sends, with other numbers.
    #[test]
    fn golden_bytes() {
        let of = Commit { start: 0x0102, end: 0x0304, unix_us: EPOCH_US + 5, transaction: 7 };
        assert_eq!(bytes(|out| begin(out, &of)), b"B\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x05\0\0\0\x07");
        assert_eq!(bytes(|out| commit(out, &of)), b"C\0\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x03\x04\0\0\0\0\0\0\0\x05");
        let column = |name: &str, type_oid, is_key| Column { name: name.into(), type_oid, typmod: -1, is_key };
        let t =
            Relation { oid: 0x4001, name: "t".into(), columns: vec![column("id", 23, true), column("v", 25, false)] };
        let expected =
            b"R\0\0\x40\x01public\0t\0d\0\x02\x01id\0\0\0\0\x17\xff\xff\xff\xff\0v\0\0\0\0\x19\xff\xff\xff\xff";
        assert_eq!(bytes(|out| relation(out, &t)), expected);
        let text = |text: &str| Cell::Text(text.into());
        let row = [text("1"), Cell::Null];
        assert_eq!(bytes(|out| insert(out, t.oid, &row)), b"I\0\0\x40\x01N\0\x02t\0\0\0\x011n");
        let changed = [text("2"), Cell::Unchanged];
        assert_eq!(bytes(|out| update(out, t.oid, None, &changed)), b"U\0\0\x40\x01N\0\x02t\0\0\0\x012u");
        let with_key = bytes(|out| update(out, t.oid, Some(&row), &changed));
        assert_eq!(with_key, b"U\0\0\x40\x01K\0\x02t\0\0\0\x011nN\0\x02t\0\0\0\x012u");
        assert_eq!(bytes(|out| delete(out, t.oid, &row)), b"D\0\0\x40\x01K\0\x02t\0\0\0\x011n");
    }
}
