//! The SQL function behind advisory locks, as a branch's connection runs it.

use crate::state::advisory::not_here;
use crate::state::locks::{Grant, LockId, LockManager, LockMode, Target};
use crate::state::running::Running;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef, VolumeId};
use parking_lot::Mutex;

/// The operation behind an operation number.
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

/// Runs a call of the function on a branch's connection.
pub fn call(
    locks: &LockManager,
    volume: VolumeId,
    on: &Mutex<Running>,
    arguments: &[ValueRef<'_>],
) -> SqlResult<Value> {
    let [ValueRef::Int(number), ValueRef::Int(key), ValueRef::Int(space)] = *arguments else {
        return Err(SqlError::internal("an advisory lock was requested with arguments other than three numbers"));
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
