//! Prepared transactions: PREPARE TRANSACTION, and the commands that end them, perhaps after a restart.
//!
//! A prepared transaction is a row of `holdfast_prepared`, which goes through the trail like any other: so it is durable,
//! survives checkpoints, and reaches standbys.
//!
//! | state | event | next |
//! |---|---|---|
//! | open on a branch | PREPARE TRANSACTION; every check of a commit passes | prepared, when its row is durable |
//! | open on a branch | PREPARE TRANSACTION; a check fails | backed out |
//! | prepared | the database is opened again | prepared, with its locks; no client was let in before |
//! | prepared | COMMIT PREPARED | busy: its images are applied and its row goes, in one batch |
//! | prepared | ROLLBACK PREPARED | busy: its row goes |
//! | busy | durable | over; its locks go |
//! | busy | the batch failed | prepared |
//! | busy | another COMMIT or ROLLBACK PREPARED | 55000 |

use crate::branch::schema_locks::schema_lock;
use crate::branch::state::BranchState;
use crate::state::database::{DatabaseState, Peers};
use crate::state::lock_owner::LockOwner;
use crate::state::locks::LockMode;
use crate::state::prepared::Prepared;
use crate::state::prepared_format as format;
use crate::state::queue::{FinishPrepared, Prepare, WriterCommand};
use crate::state::submission::{Completion, OnCompletion, Ticket};
use holdfast_types::record::{Author, Op, Ops};
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Prepared transactions of one database at the same time.
const PREPARED_MAX: usize = 1000;

fn now_unix_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

/// Prepares what a branch has done. The ticket reports when it is durable, or why it was rolled back.
pub fn prepare(
    database: &Arc<DatabaseState>,
    state: BranchState,
    (gid, owner): (&str, &str),
    level: Level,
    author: Option<Arc<Author>>,
) -> SqlResult<Ticket> {
    if state.changes_schema() {
        let message = "PREPARE TRANSACTION is not supported for a transaction that changes the schema";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    // It no longer needs a snapshot, which that lock would keep usable.
    database.engine.locks.unlock(state.owner(), schema_lock(database), LockMode::Shared);
    let locks = database.engine.locks.held(state.owner());
    let (images, mut lock_owner) = state.leave();
    if lock_owner.holds_advisory() {
        let message = "PREPARE TRANSACTION cannot keep advisory locks that end with the transaction";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let images = images.whole();
    refuse_open_keys(database, &images)?;
    let body = format::encode(&locks, &images)
        .ok_or_else(|| SqlError::internal("a prepared transaction holds a lock that cannot be kept"))?;
    let prepared_unix_us = now_unix_us();
    take_name(database, gid, Prepared { owner: owner.into(), prepared_unix_us, lock_owner: None })?;
    lock_owner.forget_session();
    let (done, ticket) = Ticket::new();
    let (locks_of, name) = (lock_owner.id(), gid.to_owned());
    let request = Prepare { gid: gid.into(), owner: owner.into(), prepared_unix_us, locks_of, images, body, author };
    let of = database.clone();
    let ended: OnCompletion = Box::new(move |result: Completion| {
        let mut registry = of.prepared.lock();
        match registry.get_mut(&name).filter(|_| result.result.is_ok()) {
            Some(prepared) => prepared.lock_owner = Some(lock_owner),
            None => drop((registry.remove(&name), lock_owner)),
        }
        drop(registry);
        done(result);
    });
    database.send(WriterCommand::Prepare { request, level, done: ended })?;
    Ok(ticket)
}

/// A key that is not locked may be taken by another transaction before COMMIT PREPARED, which must not fail.
fn refuse_open_keys(database: &DatabaseState, images: &[u8]) -> SqlResult<()> {
    let map = database.map();
    // The actions of foreign keys are not among a branch's images: they may reach every child.
    let child = map.tables().iter().find(|t| t.locking.has_open_keys && !t.locking.parents.is_empty());
    for op in Ops::new(images) {
        let (id, makes_a_row, acts_on_children) = match op {
            Ok(Op::Insert { table, .. }) => (table, true, false),
            Ok(Op::Update { table, .. }) => (table, true, true),
            Ok(Op::Delete { table, .. }) => (table, false, true),
            _ => continue,
        };
        let Some(table) = map.by_id(id) else { continue };
        let own = (makes_a_row && table.locking.has_open_keys).then_some(table);
        let child = child.filter(|_| acts_on_children && table.locking.is_parent);
        if let Some(table) = own.or(child) {
            let message = "PREPARE TRANSACTION is not supported for changes of tables with partial unique indexes, or \
                           unique indexes over expressions or generated columns";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail(format!("Table \"{}\" has one.", table.name)));
        }
    }
    Ok(())
}

/// A name belongs to one transaction over all databases: those with prepared transactions are open.
fn take_name(database: &DatabaseState, gid: &str, prepared: Prepared) -> SqlResult<()> {
    // One at a time, otherwise two databases could take the same name.
    let _one_at_a_time = database.engine.preparing.lock();
    let elsewhere = |of: &Arc<DatabaseState>| of.id != database.id && of.prepared.lock().contains_key(gid);
    let elsewhere = database.all().iter().any(elsewhere);
    let mut registry = database.prepared.lock();
    if elsewhere || registry.contains_key(gid) {
        let message = format!("transaction identifier \"{gid}\" is already in use");
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
    }
    if registry.len() >= PREPARED_MAX {
        let message = "maximum number of prepared transactions reached";
        return Err(SqlError::new(SqlState("53400"), message)
            .with_hint(format!("End some of the {PREPARED_MAX} that pg_prepared_xacts lists.")));
    }
    registry.insert(gid.to_owned(), prepared);
    Ok(())
}

/// Commits a prepared transaction, or rolls it back. The ticket reports when that is durable and has reached `level`.
///
/// 42704: there is none of that name; 55000: another session is ending it; 0A000: it is another database's.
pub fn finish(database: &Arc<DatabaseState>, gid: &str, commit: bool, level: Level) -> SqlResult<Ticket> {
    database.engine.refuse_on_standby(if commit { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" })?;
    let (lock_owner, author) = take_locks(database, gid)?;
    let (done, ticket) = Ticket::new();
    let request = FinishPrepared { gid: gid.into(), locks_of: lock_owner.id(), commit, author };
    let (of, name) = (database.clone(), gid.to_owned());
    let ended: OnCompletion = Box::new(move |result: Completion| {
        let mut registry = of.prepared.lock();
        match registry.get_mut(&name).filter(|_| result.result.is_err()) {
            Some(prepared) => prepared.lock_owner = Some(lock_owner),
            None => drop((registry.remove(&name), lock_owner)),
        }
        drop(registry);
        done(result);
    });
    database.send(WriterCommand::FinishPrepared { request, level, done: ended })?;
    Ok(ticket)
}

/// The locks of a prepared transaction, and the role that prepared it.
fn take_locks(database: &DatabaseState, gid: &str) -> SqlResult<(LockOwner, Author)> {
    if let Some(prepared) = database.prepared.lock().get_mut(gid) {
        let author = Author::new(&prepared.owner, &prepared.owner);
        return prepared.lock_owner.take().map(|lock_owner| (lock_owner, author)).ok_or_else(|| {
            let message = format!("prepared transaction with identifier \"{gid}\" is busy");
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        });
    }
    let databases = database.all();
    match databases.iter().find(|other| other.prepared.lock().contains_key(gid)) {
        Some(other) => {
            Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "prepared transaction belongs to another database")
                .with_hint(format!("Connect to the database \"{}\" to finish it.", other.name)))
        }
        None => {
            let message = format!("prepared transaction with identifier \"{gid}\" does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
        }
    }
}
