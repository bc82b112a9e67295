//! Advisory locks: an application's own, which mean nothing to the server.
//!
//! A session owns them, those that end with a transaction too, so that a client never waits for itself. The function
//! behind them runs inside a statement and cannot wait there: it notes what it needs, the statement is undone, and is
//! run again when the lock is granted.

use crate::branch::Running;
use crate::database::Inner;
use crate::locks::{Grant, LockId, LockManager, LockMode, OwnerId, Target};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef, VolumeId};
use parking_lot::Mutex;
use std::sync::Arc;

/// The SQL function: `holdfast_advisory(operation, key, space)`.
pub const FUNCTION: &str = "holdfast_advisory";

/// A client's session, as far as locks outlive its transactions. They go when it is dropped.
pub struct Session {
    locks: Arc<LockManager>,
    owner: OwnerId,
    pub pid: i32,
}

impl Session {
    pub(crate) fn new(inner: &Inner, pid: i32) -> Session {
        let locks = inner.shared.locks.clone();
        let owner = locks.new_session(pid);
        Session { locks, owner, pid }
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Gives up all its advisory locks.
    pub fn unlock_all(&self) {
        self.locks.release_all(self.owner);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.locks.end(self.owner);
    }
}

/// What an operation number stands for.
struct Op {
    mode: LockMode,
    /// Ends with the transaction.
    of_transaction: bool,
    kind: Kind,
}

enum Kind {
    Wait,
    Try,
    Unlock,
    UnlockAll,
}

/// The numbers that translated statements use: 1 to 4 wait, 5 to 8 try (session, shared, transaction, transaction
/// shared), 9 and 10 unlock, 11 unlocks all.
fn op(number: i64) -> Option<Op> {
    let mode = if number % 2 == 0 { LockMode::Shared } else { LockMode::Exclusive };
    let of_transaction = matches!(number, 3 | 4 | 7 | 8);
    let kind = match number {
        1..=4 => Kind::Wait,
        5..=8 => Kind::Try,
        9 | 10 => Kind::Unlock,
        11 => Kind::UnlockAll,
        _ => return None,
    };
    Some(Op { mode, of_transaction, kind })
}

/// Runs a call on a branch's connection.
pub fn call(
    locks: &LockManager,
    volume: VolumeId,
    on: &Mutex<Running>,
    arguments: &[ValueRef<'_>],
) -> SqlResult<Value> {
    let [ValueRef::Int(number), ValueRef::Int(key), ValueRef::Int(space)] = *arguments else {
        return Err(SqlError::internal("an advisory lock was asked for with other arguments than three numbers"));
    };
    let Some(op) = op(number) else { return Err(SqlError::internal("unknown operation on an advisory lock")) };
    let mut running = on.lock();
    let Some(session) = running.session else { return Err(not_here()) };
    let id = LockId { volume, target: Target::Advisory { space: space as u8, key } };
    let granted = match op.kind {
        Kind::Unlock => return Ok(Value::Int(locks.unlock(session, id, op.mode).into())),
        Kind::UnlockAll => {
            locks.release_all(session);
            return Ok(Value::Null);
        }
        Kind::Wait if running.granted.take() == Some((id, op.mode)) => true,
        Kind::Wait | Kind::Try => locks.lock_once_more(session, id, op.mode) == Grant::Granted,
    };
    if granted && op.of_transaction {
        running.advisory.push((session, id, op.mode));
    }
    match op.kind {
        Kind::Try => Ok(Value::Int(granted.into())),
        _ if granted => Ok(Value::Null),
        _ => {
            running.found.blocked = Some((id, op.mode));
            Err(SqlError::new(SqlState::QUERY_CANCELED, "waiting for an advisory lock"))
        }
    }
}

/// Where there is no session to own a lock.
pub fn not_here() -> SqlError {
    SqlError::unsupported("an advisory lock in this place")
        .with_hint("Take it outside transactions that change the schema, and not in a library call without a session.")
}
