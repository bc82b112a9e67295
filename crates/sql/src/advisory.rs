//! Advisory locks: PostgreSQL's functions become calls of one function of the engine.
//!
//! `holdfast_advisory(op, key, space)`: `op` is a number of [`AdvisoryOp`]. A lock on one bigint is in space 0 and its
//! key is that number. A lock on two integers is in space 1 and its key is `(a << 32) | b`, with `b` taken as unsigned.
//! The arguments are never NULL. The operations that wait return NULL, the others 1 or 0. The engine reports deadlocks,
//! time-outs and limits.

/// The SQLite function behind all advisory locks; it takes three integers. The engine registers it; it is neither
/// deterministic nor innocuous.
pub const ADVISORY_FUNCTION: &str = "holdfast_advisory";

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum AdvisoryOp {
    /// Waits; held until unlocked or the session ends.
    Lock = 1,
    LockShared = 2,
    /// Waits; held to the transaction's end.
    XactLock = 3,
    XactLockShared = 4,
    /// Returns at once: 1 if the lock was free, else 0.
    TryLock = 5,
    TryLockShared = 6,
    TryXactLock = 7,
    TryXactLockShared = 8,
    /// Releases one of the session's locks. Returns 1, or 0 with a warning if the session did not hold it.
    Unlock = 9,
    UnlockShared = 10,
    /// Releases all locks of the session. Key and space are 0.
    UnlockAll = 11,
}

use AdvisoryOp::*;

/// The functions by PostgreSQL's names.
const FUNCTIONS: [(&str, AdvisoryOp); 11] = [
    ("pg_advisory_lock", Lock),
    ("pg_advisory_lock_shared", LockShared),
    ("pg_advisory_xact_lock", XactLock),
    ("pg_advisory_xact_lock_shared", XactLockShared),
    ("pg_try_advisory_lock", TryLock),
    ("pg_try_advisory_lock_shared", TryLockShared),
    ("pg_try_advisory_xact_lock", TryXactLock),
    ("pg_try_advisory_xact_lock_shared", TryXactLockShared),
    ("pg_advisory_unlock", Unlock),
    ("pg_advisory_unlock_shared", UnlockShared),
    ("pg_advisory_unlock_all", UnlockAll),
];

impl AdvisoryOp {
    /// The operation of this number.
    pub fn from_i64(number: i64) -> Option<AdvisoryOp> {
        FUNCTIONS.iter().map(|(_, op)| *op).find(|op| *op as i64 == number)
    }

    /// The operation of PostgreSQL's function of this name.
    pub fn by_name(name: &str) -> Option<AdvisoryOp> {
        FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(_, op)| *op)
    }

    /// True where the function returns `void`; the others return `boolean`.
    pub fn is_void(self) -> bool {
        matches!(self, Lock | LockShared | XactLock | XactLockShared | UnlockAll)
    }
}
