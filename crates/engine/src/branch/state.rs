//! A transaction on a branch, between two statements: its images, its locks, its savepoints.

use super::schema_change::SCHEMA_CHANGES_TIME_MAX;
use super::size::Size;
use crate::state::branch_connection::{Connection, OwnSchema};
use crate::state::database::DatabaseState;
use crate::state::lock_owner::LockOwner;
use crate::state::locks::{LockId, LockMode, Mark, OwnerId, Target};
use crate::state::pin::Pin;
use crate::state::queue::Images;
use holdfast_store::schema_map::TableMap;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::time::Duration;

/// This many times more locks may be held under a kept snapshot.
const LOCKS_AT_SNAPSHOT: usize = 4;

/// A savepoint of the client.
struct Savepoint {
    name: String,
    ops: usize,
    count: usize,
    locks: Mark,
    own: Option<OwnSchema>,
}

/// A transaction on a branch, between statements.
pub struct BranchState {
    pub database: Arc<DatabaseState>,
    pub lock_owner: LockOwner,
    /// One snapshot for the whole transaction (REPEATABLE READ).
    pub keeps_snapshot: bool,
    /// Everything it has changed, in order: operations of the trail's format.
    pub(super) ops: Vec<u8>,
    /// With more bytes of images than this it has to leave its branch.
    pub size: Size,
    /// The last attempt was stopped at that limit.
    pub(super) overflowed: bool,
    /// The statement at work runs on a network thread, within its bounds.
    pub(super) on_a_network_thread: bool,
    pub(super) count: usize,
    savepoints: Vec<Savepoint>,
    /// REPEATABLE READ: the transaction's snapshot. Otherwise that of the connection, while it has one.
    pub(super) pin: Option<Pin>,
    /// In a transaction at the pinned snapshot, with all images replayed. Between statements it is left with the pool.
    pub(super) connection: Option<Connection>,
    /// Newest snapshot that a statement has seen: the next statement sees none that is older.
    pub seen: u64,
    /// A lock wait has ended: the next attempt sees everything published.
    pub newest: bool,
    pub last_insert_rowid: i64,
    /// The schema as it has changed it.
    pub(super) own: Option<OwnSchema>,
    /// How long its schema changes have taken.
    pub(super) schema_changes_time: Duration,
    /// An advisory lock that it waited for.
    pub(super) granted: Option<(LockId, LockMode)>,
    /// It has put its share of the database's lock aside, and holds no lock.
    pub(super) is_aside: bool,
}

impl BranchState {
    pub fn new(database: Arc<DatabaseState>, lock_owner: LockOwner) -> BranchState {
        BranchState {
            database,
            lock_owner,
            keeps_snapshot: false,
            ops: Vec::new(),
            size: Size::new(),
            overflowed: false,
            on_a_network_thread: false,
            count: 0,
            savepoints: Vec::new(),
            pin: None,
            connection: None,
            seen: 0,
            newest: false,
            last_insert_rowid: 0,
            own: None,
            schema_changes_time: Duration::ZERO,
            granted: None,
            is_aside: false,
        }
    }

    pub fn owner(&self) -> OwnerId {
        self.lock_owner.id()
    }

    /// The lock that it waited for is granted: the statement takes up advisory locks itself.
    pub fn got(&mut self, id: LockId, mode: LockMode) {
        self.granted = matches!(id.target, Target::Advisory { .. }).then_some((id, mode));
    }

    /// Releases an advisory lock that was granted and is not used.
    pub(super) fn return_advisory(&self, granted: Option<(LockId, LockMode)>) {
        if let (Some((id, mode)), Some(owner)) = (granted, self.lock_owner.advisory_owner()) {
            self.database.engine.locks.unlock(owner, id, mode);
        }
    }

    /// The owner that waits for such a lock.
    pub fn waits_as(&self, id: LockId) -> OwnerId {
        match (id.target, self.lock_owner.advisory_owner()) {
            (Target::Advisory { .. }, Some(owner)) => owner,
            _ => self.owner(),
        }
    }

    /// Puts its share of the database's lock aside while it waits, if it holds nothing else. One that keeps its snapshot relies on
    /// the lock: the schema must not change.
    pub(super) fn put_aside(&mut self) {
        let (locks, id) = (&self.database.engine.locks, self.database.database_lock());
        if !self.keeps_snapshot && self.ops.is_empty() && locks.put_aside(self.owner(), id, LockMode::Shared) {
            self.is_aside = true;
        }
    }

    pub fn ops_bytes(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has to leave its branch.
    pub fn is_too_large(&mut self) -> bool {
        let fits = |state: &BranchState| state.ops.len() <= state.size.bytes_max;
        let fits = fits(self) || (self.size.grow(&self.database.engine) && fits(self));
        // In the writer one that keeps its snapshot could not continue if anything was committed since; nor does it need new ones.
        !fits || (!self.keeps_snapshot && self.size.replays_too_much())
    }

    /// Whether its schema changes take long to repeat: then it keeps its connection.
    pub(super) fn changes_schema_slowly(&self) -> bool {
        self.schema_changes_time > SCHEMA_CHANGES_TIME_MAX
    }

    /// With more row and key locks it has to leave its branch.
    pub(super) fn locks_max(&self) -> usize {
        let max = self.database.engine.options.branch_locks_max;
        // In the writer one that keeps its snapshot could not continue if anything was committed since.
        if self.keeps_snapshot { max.saturating_mul(LOCKS_AT_SNAPSHOT) } else { max }
    }

    /// The snapshot that the transaction keeps.
    pub fn kept_snapshot(&self) -> Option<u64> {
        self.pin.as_ref().filter(|_| self.keeps_snapshot).map(Pin::snapshot)
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        self.own.as_ref().map_or_else(|| self.database.schema.read().clone(), |own| own.schema.clone())
    }

    /// The tables as the transaction sees them.
    pub fn map(&self) -> Arc<TableMap> {
        self.own.as_ref().map_or_else(|| self.database.map(), |own| own.map.clone())
    }

    /// Whether it has changed the schema.
    pub fn changes_schema(&self) -> bool {
        self.own.is_some()
    }

    /// The transaction leaves its branch: its images and its locks.
    pub fn leave(mut self) -> (Images, LockOwner) {
        self.park();
        self.own = None;
        let mut first = std::mem::take(&mut self.ops);
        let savepoints = std::mem::take(&mut self.savepoints);
        let mut after: Vec<(String, Vec<u8>)> =
            savepoints.into_iter().rev().map(|s| (s.name, first.split_off(s.ops))).collect();
        after.reverse();
        (Images { first, after }, self.lock_owner)
    }

    /// Keeps one snapshot for all statements from now on.
    pub fn keep(&mut self, snapshot: Pin) {
        self.keeps_snapshot = true;
        self.pin = Some(snapshot);
    }

    pub fn set_savepoint(&mut self, name: &str) {
        let locks = self.database.engine.locks.mark(self.owner());
        let (ops, count, own) = (self.ops.len(), self.count, self.own.clone());
        self.savepoints.push(Savepoint { name: name.to_owned(), ops, count, locks, own });
    }

    fn find(&self, name: &str) -> SqlResult<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    pub fn release(&mut self, name: &str) -> SqlResult<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Discards what came after the last savepoint, with its locks: a statement has failed, and only a return to a
    /// savepoint may follow.
    pub fn fail(&mut self) {
        if let Some(name) = self.savepoints.last().map(|s| s.name.clone()) {
            // The savepoint exists, so this cannot fail.
            self.rollback_to(&name).unwrap_or_default();
        }
    }

    /// Discards what came after the savepoint; the savepoint stays.
    pub fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at + 1);
        let (ops, count, locks) = (self.savepoints[at].ops, self.savepoints[at].count, self.savepoints[at].locks);
        if self.ops.len() > ops {
            self.ops.truncate(ops);
            self.count = count;
            let own = self.savepoints[at].own.clone();
            self.back_to_schema(own);
            self.park();
        }
        self.database.engine.locks.release_to(self.owner(), locks);
        Ok(())
    }
}
