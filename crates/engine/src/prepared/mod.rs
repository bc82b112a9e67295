//! Prepared transactions: PREPARE TRANSACTION, and what ends them, perhaps after a restart.
//!
//! A prepared transaction is a row of `holdfast_prepared`, which goes through the trail like any other: so it is durable,
//! survives checkpoints, and reaches whoever follows the trail.
//!
//! | state | event | next |
//! |---|---|---|
//! | open on a branch | PREPARE TRANSACTION; every check of a commit passes | prepared, when its row is durable |
//! | open on a branch | PREPARE TRANSACTION; a check fails | backed out |
//! | prepared | the database is opened again | prepared, with its locks; nobody was let in before |
//! | prepared | COMMIT PREPARED | busy: its images are applied and its row goes, in one boxcar |
//! | prepared | ROLLBACK PREPARED | busy: its row goes |
//! | busy | durable | over; its locks go |
//! | busy | the boxcar failed | prepared |
//! | busy | another COMMIT or ROLLBACK PREPARED | 55000 |

mod format;
mod on_main;

use crate::batch::{BatchDone, OnDone, Ticket};
use crate::branch::{Core, Presence, schema_lock};
use crate::collect::Ignore;
use crate::database::{Database, Inner};
use crate::engine::Engine;
use crate::locks::LockMode;
use crate::main_thread::{Main, Message};
use holdfast_types::record::{Op, Ops};
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use on_main::{Finish, Prepare};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub use on_main::restore;

/// Prepared transactions of one database at a time.
const PREPARED_MAX: usize = 1000;

/// A prepared transaction, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedInfo {
    /// The name its client gave it.
    pub gid: String,
    /// The user who prepared it.
    pub owner: String,
    pub database: String,
    /// Microseconds since 1970.
    pub prepared_unix_us: i64,
}

/// What is known of one by its name.
pub struct Prepared {
    owner: String,
    prepared_unix_us: i64,
    /// Its locks; away while it is busy.
    presence: Option<Presence>,
}

/// The prepared transactions of a database, by name.
pub type Registry = BTreeMap<String, Prepared>;

fn now_unix_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as i64)
}

/// Prepares what a branch has done. The ticket says when it is durable, or why it was backed out.
pub fn prepare(inner: &Arc<Inner>, core: Core, gid: &str, owner: &str, level: Level) -> SqlResult<Ticket> {
    if core.changes_schema() {
        let message = "PREPARE TRANSACTION is not supported for a transaction that changes the schema";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    // It needs no snapshot any more, which that lock would keep usable.
    inner.shared.locks.unlock(core.owner(), schema_lock(inner), LockMode::Shared);
    let locks = inner.shared.locks.held(core.owner());
    let (images, mut presence) = core.leave();
    if presence.holds_advisory() {
        let message = "PREPARE TRANSACTION cannot keep advisory locks that end with the transaction";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let images = images.whole();
    refuse_open_keys(inner, &images)?;
    let body = format::encode(&locks, &images)
        .ok_or_else(|| SqlError::internal("a prepared transaction holds a lock that cannot be kept"))?;
    let prepared_unix_us = now_unix_us();
    take_name(inner, gid, Prepared { owner: owner.into(), prepared_unix_us, presence: None })?;
    presence.forget_session();
    let (done, ticket) = Ticket::new();
    let request =
        Prepare { gid: gid.into(), owner: owner.into(), prepared_unix_us, locks_of: presence.owner(), images, body };
    let (of, name) = (inner.clone(), gid.to_owned());
    let ended: OnDone = Box::new(move |result: BatchDone| {
        let mut registry = of.prepared.lock();
        match registry.get_mut(&name).filter(|_| result.result.is_ok()) {
            Some(prepared) => prepared.presence = Some(presence),
            None => drop((registry.remove(&name), presence)),
        }
        drop(registry);
        done(result);
    });
    send(inner, move |main| main.prepare_transaction(request, level, ended))?;
    Ok(ticket)
}

/// A key that is not locked may be taken by somebody else before COMMIT PREPARED, which must not fail.
fn refuse_open_keys(inner: &Inner, images: &[u8]) -> SqlResult<()> {
    let map = inner.map();
    // What foreign keys do is not among a branch's images: it may reach every child.
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

/// Every name is one transaction's, over all databases: those with prepared ones are open.
fn take_name(inner: &Inner, gid: &str, prepared: Prepared) -> SqlResult<()> {
    // One at a time, or two databases could take the same name.
    let _one_at_a_time = inner.shared.preparing.lock();
    let elsewhere = |of: &Arc<Inner>| of.id != inner.id && of.prepared.lock().contains_key(gid);
    let elsewhere = inner.shared.open_databases().iter().any(elsewhere);
    let mut registry = inner.prepared.lock();
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

fn send(inner: &Inner, task: impl FnOnce(&mut Main) + Send + 'static) -> SqlResult<()> {
    inner.send(Message::Task(Box::new(task)))
}

impl Database {
    /// Commits a prepared transaction, or rolls it back. The ticket says when that is durable and has reached `level`.
    ///
    /// 42704: there is none of that name; 55000: somebody else is at it; 0A000: it is another database's.
    pub fn finish_prepared(&self, gid: &str, commit: bool, level: Level) -> SqlResult<Ticket> {
        let inner = self.inner();
        inner.shared.refuse_on_standby(if commit { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" })?;
        let presence = take_locks(inner, gid)?;
        let (done, ticket) = Ticket::new();
        let request = Finish { gid: gid.into(), locks_of: presence.owner(), commit };
        let (of, name) = (inner.clone(), gid.to_owned());
        let ended: OnDone = Box::new(move |result: BatchDone| {
            let mut registry = of.prepared.lock();
            match registry.get_mut(&name).filter(|_| result.result.is_err()) {
                Some(prepared) => prepared.presence = Some(presence),
                None => drop((registry.remove(&name), presence)),
            }
            drop(registry);
            done(result);
        });
        send(inner, move |main| main.finish_prepared(&request, level, ended))?;
        Ok(ticket)
    }
}

fn take_locks(inner: &Inner, gid: &str) -> SqlResult<Presence> {
    if let Some(prepared) = inner.prepared.lock().get_mut(gid) {
        return prepared.presence.take().ok_or_else(|| {
            let message = format!("prepared transaction with identifier \"{gid}\" is busy");
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        });
    }
    let databases = inner.shared.open_databases();
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

impl Engine {
    /// The prepared transactions of all databases.
    pub fn prepared(&self) -> Vec<PreparedInfo> {
        let info = |inner: &Arc<Inner>| {
            let of = |(gid, p): (&String, &Prepared)| PreparedInfo {
                gid: gid.clone(),
                owner: p.owner.clone(),
                database: inner.name.clone(),
                prepared_unix_us: p.prepared_unix_us,
            };
            inner.prepared.lock().iter().map(of).collect::<Vec<_>>()
        };
        self.open_databases().iter().flat_map(info).collect()
    }
}

/// An answer that nobody reads the rows of.
fn answer(result: SqlResult<()>, number: u64) -> BatchDone {
    BatchDone { sink: Box::new(Ignore), result, failed_step: 0, last_insert_rowid: None, number }
}
