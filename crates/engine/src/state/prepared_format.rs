//! The stored form of a prepared transaction: its locks and its images.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 1 | version, 1 |
//! | 1 | 4 | number of locks, little-endian like all later numbers |
//! | 5 | 14 each | a lock: kind (0 database, 1 table, 2 row, 3 unique key), mode, table (4 bytes), hash (8 bytes) |
//! | then | the rest | operations as in the trail |
//!
//! Mode: of a row or key 0 to 3, of a table 0 to 7, in the order of PostgreSQL's manual; of the database 0.
//!
//! Failure: anything else is refused as damage; nothing here panics on any input.

use crate::state::locks::{LockMode, Target};
use holdfast_store::locking::Class;
use holdfast_types::{LockStrength, TableId, TableLockMode};

const VERSION: u8 = 1;
const LOCK_BYTES: usize = 14;

const ROW_MODES: [LockStrength; 4] =
    [LockStrength::KeyShare, LockStrength::Share, LockStrength::NoKeyUpdate, LockStrength::Update];

const TABLE_MODES: [TableLockMode; 8] = [
    TableLockMode::AccessShare,
    TableLockMode::RowShare,
    TableLockMode::RowExclusive,
    TableLockMode::ShareUpdateExclusive,
    TableLockMode::Share,
    TableLockMode::ShareRowExclusive,
    TableLockMode::Exclusive,
    TableLockMode::AccessExclusive,
];

/// A lock of the transaction's own database.
pub type Held = (Target, LockMode);

/// `None` for what no prepared transaction can hold.
fn lock_bytes((target, mode): &Held) -> Option<[u8; LOCK_BYTES]> {
    let (what, table, hash) = match target {
        Target::Database => (0, 0, 0),
        Target::Table(table) => (1, table.0, 0),
        Target::Row { class: Class::Row, table, hash } => (2, table.0, *hash),
        Target::Row { class: Class::Key, table, hash } => (3, table.0, *hash),
        Target::Row { .. } | Target::Schema | Target::Advisory { .. } => return None,
    };
    let strength = match mode {
        LockMode::Row(mode) => ROW_MODES.iter().position(|m| m == mode)?,
        LockMode::Table(mode) => TABLE_MODES.iter().position(|m| m == mode)?,
        LockMode::Shared => 0,
        LockMode::Exclusive => return None,
    };
    let mut bytes = [0; LOCK_BYTES];
    bytes[0] = what;
    bytes[1] = strength as u8;
    bytes[2..6].copy_from_slice(&u32::to_le_bytes(table));
    bytes[6..].copy_from_slice(&u64::to_le_bytes(hash));
    Some(bytes)
}

fn lock(bytes: &[u8]) -> Option<Held> {
    let (what, strength) = (bytes[0], usize::from(bytes[1]));
    let table = TableId(u32::from_le_bytes(bytes[2..6].try_into().ok()?));
    let hash = u64::from_le_bytes(bytes[6..].try_into().ok()?);
    let row = |class| Some((Target::Row { class, table, hash }, LockMode::Row(*ROW_MODES.get(strength)?)));
    match what {
        0 => Some((Target::Database, LockMode::Shared)),
        1 => Some((Target::Table(table), LockMode::Table(*TABLE_MODES.get(strength)?))),
        2 => row(Class::Row),
        3 => row(Class::Key),
        _ => None,
    }
}

/// The bytes to keep. `None` when it holds a lock that cannot be kept.
pub fn encode(locks: &[Held], images: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(5 + locks.len() * LOCK_BYTES + images.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&(locks.len() as u32).to_le_bytes());
    for held in locks {
        bytes.extend_from_slice(&lock_bytes(held)?);
    }
    bytes.extend_from_slice(images);
    Some(bytes)
}

/// The locks, and where the images begin.
pub fn decode(bytes: &[u8]) -> Option<(Vec<Held>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(5)?;
    if head[0] != VERSION {
        return None;
    }
    let count = u32::from_le_bytes(head[1..].try_into().ok()?) as usize;
    let (locks, images) = rest.split_at_checked(count.checked_mul(LOCK_BYTES)?)?;
    Some((locks.chunks_exact(LOCK_BYTES).map(lock).collect::<Option<_>>()?, images))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let row = |class, mode| (Target::Row { class, table: TableId(3), hash: 0x1122_3344_5566_7788 }, mode);
        let locks = [
            (Target::Database, LockMode::Shared),
            (Target::Table(TableId(0x0102)), LockMode::Table(TableLockMode::RowExclusive)),
            row(Class::Row, LockMode::Row(LockStrength::Update)),
            row(Class::Key, LockMode::Row(LockStrength::KeyShare)),
        ];
        let bytes = encode(&locks, b"images").unwrap();
        let golden: &[u8] = b"\x01\x04\0\0\0\
            \0\0\0\0\0\0\0\0\0\0\0\0\0\0\
            \x01\x02\x02\x01\0\0\0\0\0\0\0\0\0\0\
            \x02\x03\x03\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11\
            \x03\x00\x03\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11images";
        assert_eq!(bytes, golden);
        assert_eq!(decode(golden).unwrap(), (locks.to_vec(), &b"images"[..]));
    }

    #[test]
    fn what_cannot_be_kept_and_what_is_damaged_is_refused() {
        let advisory = (Target::Advisory { space: 0, key: 1 }, LockMode::Shared);
        assert!(encode(&[advisory], b"").is_none());
        let good = encode(&[(Target::Database, LockMode::Shared)], b"").unwrap();
        for at in 0..good.len() {
            assert!(decode(&good[..at]).is_none(), "cut at {at}");
        }
        for (at, value) in [(0, 2), (1, 9), (5, 4)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(decode(&bad).is_none(), "byte {at}");
        }
    }
}
