//! The content of the trail: the body of a boxcar is a sequence of records.
//!
//! Every record begins with six bytes, all numbers little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | length of what follows this field |
//! | 4 | 1 | kind |
//! | 5 | 1 | version of that kind's layout |
//!
//! and continues by kind and version:
//!
//! | kind, version | record | fields |
//! |---|---|---|
//! | 1, 2 | batch: what the writer of one volume published at once | volume u32, number u64, schema epoch before u32, transactions u32, then each transaction |
//! | | a transaction in it | length of what follows u32, id u64, origin site u16, clock u64, roles ([`author`]), operations ([`op`]) |
//! | 1, 1 | batch of earlier programs | the same, its transactions without roles |
//! | 2, 1 | fragment of a large transaction | volume u32, transaction u64, number from 0 u32, operations |
//! | 3, 1 | fragments dropped | volume u32, transaction u64 |
//! | 4, 1 | checkpoint of a volume | volume u32, number u64, redo start LSN u64, file size u64 bytes, file mtime i64 ns |
//! | 5, 1 | volume created | volume u32, dialect u8 (0 sqlite, 1 postgres), name string |
//! | 6, 1 | volume dropped | volume u32 |
//! | 7, 1 | parameters of a database, a role or the server, all of them | volume u32 (0: not a database's), role's name string (empty: not a role's), count u32, then each a name string and a value string |
//! | 8, 1 | role, all of it ([`access`]) | OID u32, then the role |
//! | 9, 1 | role dropped | OID u32 |
//! | 10, 1 | owner and grants of a database ([`access`]) | volume u32, then its access |
//!
//! A batch is written in version 2, and read in both: programs that know only version 1 refuse it and name its version.
//!
//! Kind 7 of a role is written by programs before roles were stored, and read by all; now a role's parameters are part of its
//! record.
//!
//! Writing appends to a `Vec<u8>` and patches lengths, so that a boxcar is built where the row images were captured
//! ([`BatchBuilder`]). Reading borrows from the boxcar ([`RecordReader`]).
//!
//! Failure: the boxcar's checksum detects damage, so a [`DecodeError`] means that a newer program wrote the boxcar, or
//! a defect. Reading never panics, whatever the bytes are.

pub mod access;
pub mod author;
mod batch;
pub mod bytes;
pub mod op;

pub use access::{AccessBody, RoleBody};
pub use author::{Author, AuthorNames};
pub use batch::{Batch, BatchBuilder, Transaction, TxnHead};
pub use bytes::{Cells, put_cell, take_cell};
pub use op::{Ddl, Key, Mask, Op, Ops, Sequences};

use crate::access::{DatabaseAccess, Role};
use crate::ids::{Lsn, TxnId, VolumeId};
use crate::schema::Dialect;
use bytes::{Cursor, put_bytes};

const KIND_BATCH: u8 = 1;
const KIND_FRAGMENT: u8 = 2;
const KIND_FRAGMENT_DROP: u8 = 3;
const KIND_CHECKPOINT: u8 = 4;
const KIND_VOLUME_CREATE: u8 = 5;
const KIND_VOLUME_DROP: u8 = 6;
const KIND_PARAMETERS: u8 = 7;
const KIND_ROLE: u8 = 8;
const KIND_ROLE_DROP: u8 = 9;
const KIND_DATABASE_ACCESS: u8 = 10;
/// The version of all kinds but batches.
const VERSION: u8 = 1;
/// The version of batches, whose transactions have roles from here on.
const BATCH_VERSION: u8 = 2;

/// Bytes of a record's length field.
const LENGTH_BYTES: usize = 4;

/// Why bytes are not a record. Offsets count from the start of the record's or transaction's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("record ends too early: {needed} bytes needed at offset {at}, {left} left")]
    Short { at: usize, needed: usize, left: usize },
    #[error("unknown {what} tag {tag} at offset {at}")]
    Tag { what: &'static str, tag: u8, at: usize },
    #[error("record kind {kind} version {version} is unknown: a newer release wrote it; use that release")]
    Version { kind: u8, version: u8 },
    #[error("number too large at offset {at}")]
    Number { at: usize },
    #[error("text at offset {at} is not UTF-8")]
    Utf8 { at: usize },
    #[error("{bytes} bytes left over after the record's last field")]
    Leftover { bytes: usize },
}

/// One record, borrowed from a boxcar.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    Batch(Batch<'a>),
    Fragment {
        volume: VolumeId,
        txn: TxnId,
        number: u32,
        ops: Ops<'a>,
    },
    FragmentDrop {
        volume: VolumeId,
        txn: TxnId,
    },
    Checkpoint(Checkpoint),
    VolumeCreate {
        volume: VolumeId,
        dialect: Dialect,
        name: &'a str,
    },
    VolumeDrop {
        volume: VolumeId,
    },
    /// The complete set of parameters with which sessions of a database or a role start.
    Parameters {
        of: ParametersOf<'a>,
        pairs: Pairs<'a>,
    },
    /// A role as it is from now on.
    Role(RoleBody<'a>),
    RoleDrop {
        oid: u32,
    },
    /// Owner and grants of a database from now on.
    DatabaseAccess {
        volume: VolumeId,
        access: AccessBody<'a>,
    },
}

/// Owner of the parameters in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParametersOf<'a> {
    Database(VolumeId),
    Role(&'a str),
    /// All sessions of the server: today the files that say which clients may connect.
    Server,
}

/// Names and values, in the order they were written.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    rest: Cursor<'a>,
    count: u32,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        // Checked when the record was read.
        Some((self.rest.string().ok()?, self.rest.string().ok()?))
    }
}

/// A volume's file is complete up to batch `number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub volume: VolumeId,
    /// The volume's last batch that is in the file.
    pub number: u64,
    /// Redo of this volume starts at the first record at or after this position.
    pub redo_start: Lsn,
    pub file_size_bytes: u64,
    /// Modification time of the file, nanoseconds since 1970-01-01 UTC.
    pub file_mtime_ns: i64,
}

/// Appends a fragment; `ops` are whole operations.
pub fn put_fragment(buf: &mut Vec<u8>, volume: VolumeId, txn: TxnId, number: u32, ops: &[u8]) {
    let start = begin(buf, KIND_FRAGMENT);
    buf.extend_from_slice(&volume.0.to_le_bytes());
    buf.extend_from_slice(&txn.0.to_le_bytes());
    buf.extend_from_slice(&number.to_le_bytes());
    buf.extend_from_slice(ops);
    end(buf, start);
}

/// Appends the record that a transaction's fragments will not be used.
pub fn put_fragment_drop(buf: &mut Vec<u8>, volume: VolumeId, txn: TxnId) {
    let start = begin(buf, KIND_FRAGMENT_DROP);
    buf.extend_from_slice(&volume.0.to_le_bytes());
    buf.extend_from_slice(&txn.0.to_le_bytes());
    end(buf, start);
}

/// Appends a checkpoint.
pub fn put_checkpoint(buf: &mut Vec<u8>, checkpoint: &Checkpoint) {
    let start = begin(buf, KIND_CHECKPOINT);
    buf.extend_from_slice(&checkpoint.volume.0.to_le_bytes());
    buf.extend_from_slice(&checkpoint.number.to_le_bytes());
    buf.extend_from_slice(&checkpoint.redo_start.0.to_le_bytes());
    buf.extend_from_slice(&checkpoint.file_size_bytes.to_le_bytes());
    buf.extend_from_slice(&checkpoint.file_mtime_ns.to_le_bytes());
    end(buf, start);
}

/// Appends the creation of a volume.
pub fn put_volume_create(buf: &mut Vec<u8>, volume: VolumeId, dialect: Dialect, name: &str) {
    let start = begin(buf, KIND_VOLUME_CREATE);
    buf.extend_from_slice(&volume.0.to_le_bytes());
    buf.push(match dialect {
        Dialect::Sqlite => 0,
        Dialect::Postgres => 1,
    });
    put_bytes(buf, name.as_bytes());
    end(buf, start);
}

/// Appends the end of a volume.
pub fn put_volume_drop(buf: &mut Vec<u8>, volume: VolumeId) {
    let start = begin(buf, KIND_VOLUME_DROP);
    buf.extend_from_slice(&volume.0.to_le_bytes());
    end(buf, start);
}

/// Appends the parameters of a database or a role.
pub fn put_parameters<'a>(
    buf: &mut Vec<u8>,
    of: ParametersOf<'_>,
    pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
) {
    let start = begin(buf, KIND_PARAMETERS);
    let (volume, role) = match of {
        ParametersOf::Database(volume) => (volume, ""),
        ParametersOf::Role(role) => (VolumeId(0), role),
        ParametersOf::Server => (VolumeId(0), ""),
    };
    buf.extend_from_slice(&volume.0.to_le_bytes());
    put_bytes(buf, role.as_bytes());
    buf.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
    for (name, value) in pairs {
        put_bytes(buf, name.as_bytes());
        put_bytes(buf, value.as_bytes());
    }
    end(buf, start);
}

/// Appends a role, all of it.
pub fn put_role(buf: &mut Vec<u8>, role: &Role) {
    let start = begin(buf, KIND_ROLE);
    buf.extend_from_slice(&role.oid.to_le_bytes());
    access::put_role_body(buf, role);
    end(buf, start);
}

/// Appends the end of a role.
pub fn put_role_drop(buf: &mut Vec<u8>, oid: u32) {
    let start = begin(buf, KIND_ROLE_DROP);
    buf.extend_from_slice(&oid.to_le_bytes());
    end(buf, start);
}

/// Appends the owner and grants of a database.
pub fn put_database_access(buf: &mut Vec<u8>, volume: VolumeId, access: &DatabaseAccess) {
    let start = begin(buf, KIND_DATABASE_ACCESS);
    buf.extend_from_slice(&volume.0.to_le_bytes());
    access::put_access_body(buf, access);
    end(buf, start);
}

/// Begins a record and returns the offset of its length field.
fn begin(buf: &mut Vec<u8>, kind: u8) -> usize {
    begin_version(buf, kind, VERSION)
}

fn begin_version(buf: &mut Vec<u8>, kind: u8, version: u8) -> usize {
    let start = buf.len();
    buf.extend_from_slice(&[0, 0, 0, 0, kind, version]);
    start
}

/// Fills in the length field at `start` with the number of bytes after it. Boxcars are far below 4 GiB
/// (`boxcar_bytes_max`), and large transactions are written in fragments.
fn end(buf: &mut [u8], start: usize) {
    let length = (buf.len() - start - LENGTH_BYTES) as u32;
    buf[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
}

/// Reads the records of a boxcar's body one after the other; ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct RecordReader<'a> {
    cursor: Cursor<'a>,
    failed: bool,
}

impl<'a> RecordReader<'a> {
    pub fn new(body: &'a [u8]) -> RecordReader<'a> {
        RecordReader { cursor: Cursor::new(body), failed: false }
    }

    fn read(&mut self) -> Result<Record<'a>, DecodeError> {
        let length = self.cursor.u32()? as usize;
        read_record(self.cursor.take(length)?)
    }
}

impl<'a> RecordReader<'a> {
    /// How many bytes were read: behind a record, the offset of its end.
    pub fn offset(&self) -> usize {
        self.cursor.at()
    }
}

impl<'a> Iterator for RecordReader<'a> {
    type Item = Result<Record<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.cursor.is_empty() {
            return None;
        }
        let record = self.read();
        self.failed = record.is_err();
        Some(record)
    }
}

fn read_record(content: &[u8]) -> Result<Record<'_>, DecodeError> {
    let mut c = Cursor::new(content);
    let (kind, version) = (c.u8()?, c.u8()?);
    let newest = if kind == KIND_BATCH { BATCH_VERSION } else { VERSION };
    if !(1..=newest).contains(&version) || !(KIND_BATCH..=KIND_DATABASE_ACCESS).contains(&kind) {
        return Err(DecodeError::Version { kind, version });
    }
    let volume = VolumeId(c.u32()?);
    let record = match kind {
        KIND_BATCH => return Batch::read(volume, version, &mut c, content).map(Record::Batch),
        KIND_FRAGMENT => {
            let (txn, number) = (TxnId(c.u64()?), c.u32()?);
            return Ok(Record::Fragment { volume, txn, number, ops: Ops::new(&content[c.at()..]) });
        }
        KIND_FRAGMENT_DROP => Record::FragmentDrop { volume, txn: TxnId(c.u64()?) },
        KIND_CHECKPOINT => Record::Checkpoint(Checkpoint {
            volume,
            number: c.u64()?,
            redo_start: Lsn(c.u64()?),
            file_size_bytes: c.u64()?,
            file_mtime_ns: c.u64()? as i64,
        }),
        KIND_VOLUME_CREATE => {
            let at = c.at();
            let dialect = match c.u8()? {
                0 => Dialect::Sqlite,
                1 => Dialect::Postgres,
                tag => return Err(DecodeError::Tag { what: "dialect", tag, at }),
            };
            Record::VolumeCreate { volume, dialect, name: c.string()? }
        }
        KIND_VOLUME_DROP => Record::VolumeDrop { volume },
        KIND_PARAMETERS => read_parameters(volume, &mut c)?,
        KIND_ROLE => Record::Role(RoleBody::take(volume.0, &mut c)?),
        KIND_ROLE_DROP => Record::RoleDrop { oid: volume.0 },
        _ => Record::DatabaseAccess { volume, access: AccessBody::take(&mut c)? },
    };
    match content.len() - c.at() {
        0 => Ok(record),
        bytes => Err(DecodeError::Leftover { bytes }),
    }
}

fn read_parameters<'a>(volume: VolumeId, c: &mut Cursor<'a>) -> Result<Record<'a>, DecodeError> {
    let role = c.string()?;
    let of = match (volume, role) {
        (VolumeId(0), "") => ParametersOf::Server,
        (VolumeId(0), role) => ParametersOf::Role(role),
        (volume, _) => ParametersOf::Database(volume),
    };
    let count = c.u32()?;
    let pairs = Pairs { rest: *c, count };
    for _ in 0..count {
        c.string()?;
        c.string()?;
    }
    Ok(Record::Parameters { of, pairs })
}

#[cfg(test)]
mod tests;
