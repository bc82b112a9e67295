//! The operations by which a transaction changes a volume, one after the other.
//!
//! An operation is a tag byte and its fields (numbers and cells as in [`super::bytes`]; a *column position* counts
//! the table's stored columns from 0, generated columns left out):
//!
//! | tag | operation | fields |
//! |---|---|---|
//! | 1 | insert, rowid table | table varint, rowid signed varint, count varint, cells of all stored columns |
//! | 2 | insert, WITHOUT ROWID | table varint, count varint, cells of all stored columns |
//! | 3 | update | table varint, old key, mask, before and after cell of each column in the mask |
//! | 4 | update that changes the key | table varint, old key, new key, mask, before and after cells |
//! | 5 | delete | table varint, key, count varint, cells of all stored columns before |
//! | 6 | DDL | schema epoch after varint, SQLite version varint, schema hash after u64, text |
//! | 7 | sequence | table varint, rowid in `sqlite_sequence` signed varint, value cell |
//! | 8 | all sequences | count varint, then for each: rowid signed varint, name cell, value cell |
//! | 9 | pragma | text |
//! | 10 | fragments | transaction u64, number of fragments varint: their operations belong here |
//!
//! | part | bytes |
//! |---|---|
//! | key | varint 0 and the rowid as signed varint; or the number of key columns and a cell for each |
//! | mask | varint number of bytes, then bit `p % 8` of byte `p / 8` for column position `p`; no zero byte at the end |

use super::DecodeError;
use super::bytes::{Cells, Cursor, put_bytes, put_cell, put_signed, put_varint};
use crate::ids::{TableId, TxnId};
use crate::value::ValueRef;

const INSERT_ROWID: u8 = 1;
const INSERT_KEYED: u8 = 2;
const UPDATE: u8 = 3;
const UPDATE_KEY: u8 = 4;
const DELETE: u8 = 5;
const DDL: u8 = 6;
const SEQUENCE: u8 = 7;
const ALL_SEQUENCES: u8 = 8;
const PRAGMA: u8 = 9;
const FRAGMENTS: u8 = 10;

/// Identifies a row: its rowid, or the primary key of a WITHOUT ROWID table.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    Rowid(i64),
    Columns(Cells<'a>),
}

/// The columns an update changed, as a bit set over column positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask<'a>(pub &'a [u8]);

impl<'a> Mask<'a> {
    /// The positions in ascending order.
    pub fn positions(self) -> impl Iterator<Item = usize> + 'a {
        let bits = |byte: u8| (0..8).filter(move |bit| byte >> bit & 1 == 1);
        self.0.iter().enumerate().flat_map(move |(i, &byte)| bits(byte).map(move |bit| i * 8 + bit))
    }

    /// Number of columns in the mask.
    pub fn count(self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }
}

/// One operation, borrowed from the trail.
#[derive(Clone, Copy, Debug)]
pub enum Op<'a> {
    /// A new row; `rowid` is `None` in a WITHOUT ROWID table. `values` are all stored columns.
    Insert { table: TableId, rowid: Option<i64>, values: Cells<'a> },
    /// `changes` holds before, after, before, after ... of the columns in `mask`.
    Update { table: TableId, key: Key<'a>, new_key: Option<Key<'a>>, mask: Mask<'a>, changes: Cells<'a> },
    /// The deleted row; `before` has all its stored columns.
    Delete { table: TableId, key: Key<'a>, before: Cells<'a> },
    /// A schema change as SQLite text.
    Ddl(Ddl<'a>),
    /// An AUTOINCREMENT counter after the transaction; `rowid` is the row's own in `sqlite_sequence`.
    Sequence { table: TableId, rowid: i64, value: ValueRef<'a> },
    /// All of `sqlite_sequence`, after the transaction wrote to it directly.
    AllSequences(Sequences<'a>),
    /// A PRAGMA that sets a field in the file's header: user_version, application_id.
    Pragma(&'a str),
    /// The operations of a large transaction that were written earlier as fragments.
    Fragments { txn: TxnId, count: u32 },
}

/// A schema change, with values by which redo verifies that it has the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ddl<'a> {
    pub text: &'a str,
    /// The volume's schema epoch afterwards.
    pub epoch_after: u32,
    /// `sqlite3_libversion_number()` of the library that ran it.
    pub sqlite_version: u32,
    /// Hash of the schema's texts afterwards.
    pub schema_hash: u64,
}

/// Rows of `sqlite_sequence`: rowid, name, value.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    rest: Cursor<'a>,
    count: usize,
}

impl<'a> Iterator for Sequences<'a> {
    type Item = (i64, ValueRef<'a>, ValueRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        // Checked when the operation was read.
        Some((self.rest.signed().ok()?, self.rest.cell().ok()?, self.rest.cell().ok()?))
    }
}

/// Begins an insert of `count` stored columns; the caller appends as many cells with [`put_cell`].
pub fn put_insert(buf: &mut Vec<u8>, table: TableId, rowid: Option<i64>, count: usize) {
    match rowid {
        Some(rowid) => {
            put_head(buf, INSERT_ROWID, table);
            put_signed(buf, rowid);
        }
        None => put_head(buf, INSERT_KEYED, table),
    }
    put_varint(buf, count as u64);
}

/// Begins an update. Then follow [`put_rowid_key`] or [`put_columns_key`] (twice when `key_changes`), [`put_mask`], and
/// the before and after cells.
pub fn put_update(buf: &mut Vec<u8>, table: TableId, key_changes: bool) {
    put_head(buf, if key_changes { UPDATE_KEY } else { UPDATE }, table);
}

/// Begins a delete. Then follow the key, [`put_count`] and the cells before the change.
pub fn put_delete(buf: &mut Vec<u8>, table: TableId) {
    put_head(buf, DELETE, table);
}

/// Appends a rowid as key.
pub fn put_rowid_key(buf: &mut Vec<u8>, rowid: i64) {
    buf.push(0);
    put_signed(buf, rowid);
}

/// Appends the head of a key of `columns` columns (at least one); the caller appends that many cells.
pub fn put_columns_key(buf: &mut Vec<u8>, columns: usize) {
    put_varint(buf, columns as u64);
}

/// Appends the number of cells that follow.
pub fn put_count(buf: &mut Vec<u8>, count: usize) {
    put_varint(buf, count as u64);
}

/// Appends the mask of changed columns. Zero bytes at the end are dropped.
pub fn put_mask(buf: &mut Vec<u8>, mask: &[u8]) {
    let used = mask.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    put_bytes(buf, &mask[..used]);
}

/// Appends a whole schema change.
pub fn put_ddl(buf: &mut Vec<u8>, ddl: &Ddl<'_>) {
    buf.push(DDL);
    put_varint(buf, ddl.epoch_after.into());
    put_varint(buf, ddl.sqlite_version.into());
    buf.extend_from_slice(&ddl.schema_hash.to_le_bytes());
    put_bytes(buf, ddl.text.as_bytes());
}

/// Appends a whole AUTOINCREMENT counter.
pub fn put_sequence(buf: &mut Vec<u8>, table: TableId, rowid: i64, value: ValueRef<'_>) {
    put_head(buf, SEQUENCE, table);
    put_signed(buf, rowid);
    put_cell(buf, value);
}

/// Appends all rows of `sqlite_sequence`.
pub fn put_all_sequences<'a>(
    buf: &mut Vec<u8>,
    rows: impl ExactSizeIterator<Item = (i64, ValueRef<'a>, ValueRef<'a>)>,
) {
    buf.push(ALL_SEQUENCES);
    put_varint(buf, rows.len() as u64);
    for (rowid, name, value) in rows {
        put_signed(buf, rowid);
        put_cell(buf, name);
        put_cell(buf, value);
    }
}

/// Appends a PRAGMA statement.
pub fn put_pragma(buf: &mut Vec<u8>, text: &str) {
    buf.push(PRAGMA);
    put_bytes(buf, text.as_bytes());
}

/// Appends a reference to fragments written earlier.
pub fn put_fragments(buf: &mut Vec<u8>, txn: TxnId, count: u32) {
    buf.push(FRAGMENTS);
    buf.extend_from_slice(&txn.0.to_le_bytes());
    put_varint(buf, count.into());
}

fn put_head(buf: &mut Vec<u8>, tag: u8, table: TableId) {
    buf.push(tag);
    put_varint(buf, table.0.into());
}

/// Reads operations one after the other; ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Ops<'a> {
    cursor: Cursor<'a>,
    failed: bool,
}

impl<'a> Ops<'a> {
    pub fn new(bytes: &'a [u8]) -> Ops<'a> {
        Ops { cursor: Cursor::new(bytes), failed: false }
    }

    /// The bytes that were not read yet.
    pub fn bytes(&self) -> &'a [u8] {
        self.cursor.rest()
    }

    /// Number of bytes read so far: the offset of the next operation.
    pub fn offset(&self) -> usize {
        self.cursor.at()
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.cursor.is_empty() {
            return None;
        }
        let op = read_op(&mut self.cursor);
        self.failed = op.is_err();
        Some(op)
    }
}

fn read_op<'a>(c: &mut Cursor<'a>) -> Result<Op<'a>, DecodeError> {
    let at = c.at();
    match c.u8()? {
        tag @ (INSERT_ROWID | INSERT_KEYED) => {
            let table = read_table(c)?;
            let rowid = if tag == INSERT_ROWID { Some(c.signed()?) } else { None };
            let count = c.count()?;
            Ok(Op::Insert { table, rowid, values: c.cells(count)? })
        }
        tag @ (UPDATE | UPDATE_KEY) => {
            let table = read_table(c)?;
            let key = read_key(c)?;
            let new_key = if tag == UPDATE_KEY { Some(read_key(c)?) } else { None };
            let mask = Mask(c.bytes()?);
            Ok(Op::Update { table, key, new_key, mask, changes: c.cells(mask.count() * 2)? })
        }
        DELETE => {
            let table = read_table(c)?;
            let key = read_key(c)?;
            let count = c.count()?;
            Ok(Op::Delete { table, key, before: c.cells(count)? })
        }
        DDL => {
            let (epoch_after, sqlite_version) = (c.varint_u32()?, c.varint_u32()?);
            let schema_hash = c.u64()?;
            Ok(Op::Ddl(Ddl { text: c.string()?, epoch_after, sqlite_version, schema_hash }))
        }
        SEQUENCE => Ok(Op::Sequence { table: read_table(c)?, rowid: c.signed()?, value: c.cell()? }),
        ALL_SEQUENCES => read_sequences(c),
        PRAGMA => Ok(Op::Pragma(c.string()?)),
        FRAGMENTS => Ok(Op::Fragments { txn: TxnId(c.u64()?), count: c.varint_u32()? }),
        tag => Err(DecodeError::Tag { what: "operation", tag, at }),
    }
}

fn read_table(c: &mut Cursor<'_>) -> Result<TableId, DecodeError> {
    Ok(TableId(c.varint_u32()?))
}

fn read_key<'a>(c: &mut Cursor<'a>) -> Result<Key<'a>, DecodeError> {
    match c.count()? {
        0 => Ok(Key::Rowid(c.signed()?)),
        columns => Ok(Key::Columns(c.cells(columns)?)),
    }
}

fn read_sequences<'a>(c: &mut Cursor<'a>) -> Result<Op<'a>, DecodeError> {
    let count = c.count()?;
    let rest = *c;
    for _ in 0..count {
        c.signed()?;
        c.cell()?;
        c.cell()?;
    }
    Ok(Op::AllSequences(Sequences { rest, count }))
}
