//! Connections of branches, and those of one database that run no statement at the moment.
//!
//! The floor of branches opens, lends and reclaims connections; this file defines what a connection consists of.

use crate::state::locks::OwnerId;
use crate::state::pin::Pin;
use crate::state::running::{HookFindings, Running};
use crate::statement::cache::StatementCache;
use crate::statement::run::to_sql;
use crate::statement::temp::tables::TempTables;
use holdfast_store::apply::Applier;
use holdfast_store::schema_map::TableMap;
use holdfast_store::sqlite::{CommitGate, Conn, InterruptHandle, SqliteError, StmtId};
use holdfast_store::volume::Volume;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

/// Connections kept without a transaction, per database. The number exceeds those left in place at the same time,
/// because opening one takes a millisecond.
const IDLE_MAX: usize = 64;

/// The schema as a transaction has changed it.
#[derive(Clone)]
pub struct OwnSchema {
    pub map: Arc<TableMap>,
    pub schema: Arc<Schema>,
}

/// Statements that steer a branch.
#[derive(Clone, Copy)]
pub struct Control {
    pub begin: StmtId,
    pub rollback: StmtId,
    pub savepoint: StmtId,
    pub release: StmtId,
    pub rollback_to: StmtId,
}

/// A connection with its prepared statements.
pub struct Connection {
    pub conn: Conn,
    pub cache: StatementCache,
    /// Statements over temporary tables, while those are attached.
    pub temp_cache: StatementCache,
    pub temp_attached: bool,
    /// SQLite's page cache holds pages that were never committed.
    pub spoiled: bool,
    pub gate: CommitGate,
    pub applier: Applier,
    pub control: Control,
    pub running: Arc<Mutex<Running>>,
    pub interrupt: Arc<InterruptHandle>,
    /// The epoch of the schema it was opened under.
    pub epoch: u32,
    /// The schema was changed on it: other transactions cannot use it, even if the change is undone.
    pub changed: bool,
    /// The schema as it was changed on it.
    pub own: Option<OwnSchema>,
    /// Dropped after the connection, which uses its VFS.
    pub volume: Arc<Volume>,
}

/// The error of one of the server's own statements.
pub fn error(e: &SqliteError) -> SqlError {
    to_sql(e, "", &Schema::default())
}

impl Connection {
    /// Begins on a snapshot that the caller holds. A statement is stopped when its transaction holds more than
    /// `locks_max` locks.
    pub fn begin(
        &mut self,
        owner: OwnerId,
        session: Option<OwnerId>,
        snapshot: u64,
        locks_max: usize,
        temp: Option<&TempTables>,
    ) -> SqlResult<()> {
        self.conn.choose_snapshot(snapshot);
        if let Some(temp) = temp {
            self.attach(temp)?;
        }
        // Replayed images do not belong to a statement.
        self.conn.capture().set_bytes_max(usize::MAX);
        *self.running.lock() = Running { owner: Some(owner), session, snapshot, locks_max, ..Running::default() };
        self.run(self.control.begin)
    }

    /// Epoch of the schema it was opened under.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Prepares for statements over temporary tables that change nothing else, at a snapshot that the caller holds.
    pub fn begin_without_owner(&mut self, snapshot: u64, temp: &TempTables) -> SqlResult<()> {
        self.conn.choose_snapshot(snapshot);
        self.conn.capture().set_bytes_max(usize::MAX);
        *self.running.lock() = Running::default();
        self.attach(temp)
    }

    fn attach(&mut self, temp: &TempTables) -> SqlResult<()> {
        self.conn.attach_temp(temp.pages()).map_err(|e| error(&e))?;
        self.temp_attached = true;
        Ok(())
    }

    /// Ends SQLite's transaction so that what it did to temporary tables stays. Images of permanent tables that were put
    /// on the connection for it vanish, and leave a page cache that is useless.
    pub fn keep_temp(&mut self) -> SqlResult<()> {
        if !self.conn.capture().is_empty() {
            return Err(SqlError::internal("a statement changed temporary and permanent tables"));
        }
        if self.conn.deferred_foreign_keys() != 0 {
            let message = "changing a temporary table while a deferred foreign key is violated is not supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        self.spoiled |= self.running.lock().owner.is_some();
        self.gate.open();
        let committed = self.conn.exec("commit").map_err(|e| error(&e));
        self.gate.close();
        committed
    }

    /// Ends SQLite's transaction, if it is still open, as if it had never begun.
    pub fn undo_all(&mut self) -> SqlResult<()> {
        if self.conn.autocommit() { Ok(()) } else { self.run(self.control.rollback) }
    }

    pub fn run(&mut self, stmt: StmtId) -> SqlResult<()> {
        self.conn.run(stmt).map_err(|e| error(&e))
    }

    /// Sets the bytes of images at which a statement is stopped.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.conn.capture().set_bytes_max(bytes_max);
    }

    /// Begins to record the conflicts that a statement meets.
    pub fn listen(&mut self) {
        let mut running = self.running.lock();
        running.found = HookFindings::default();
        running.tables.clear();
        running.parents.clear();
        running.whole.clear();
        drop(running);
        self.conn.capture().clear_stop();
    }

    /// The conflicts it met.
    pub fn found(&mut self) -> HookFindings {
        let found = self.running.lock().found;
        HookFindings { needs_exclusive: found.needs_exclusive || self.conn.capture().overflowed(), ..found }
    }

    /// Undoes everything. False when the connection is useless.
    pub fn end(&mut self) -> bool {
        let ended = self.conn.autocommit() || self.conn.run(self.control.rollback).is_ok();
        self.conn.capture().clear_stop();
        self.conn.capture().take();
        self.conn.capture().forget_sequences();
        self.running.lock().owner = None;
        ended && !self.spoiled && self.detach()
    }

    /// Ends a connection with many changes, which takes as long to undo as it took to make them. Its COMMIT leads nowhere: a branch's
    /// pages vanish with its lock. The page cache is useless then, and so is the connection.
    pub fn discard(mut self) {
        if self.temp_attached || self.conn.autocommit() {
            self.end();
            return;
        }
        self.gate.open();
        // What cannot be committed is undone when the connection is closed.
        let _ = self.conn.exec("commit");
        self.gate.close();
    }

    fn detach(&mut self) -> bool {
        self.temp_cache.clear(&mut self.conn);
        !std::mem::take(&mut self.temp_attached) || self.conn.detach_temp().is_ok()
    }
}

/// A connection that a transaction has left in its place between two statements.
pub struct Kept {
    pub connection: Connection,
    /// The snapshot it reads, unless the transaction itself holds one.
    pub pin: Option<Pin>,
    pub owner: OwnerId,
    /// Images to replay if the connection is taken away.
    pub images: usize,
    /// It has many bytes of images.
    pub large: bool,
    pub until: Instant,
}

/// Connections of one database that run no statement at the moment.
#[derive(Default)]
pub struct Pool {
    pub idle: Mutex<Vec<Connection>>,
    /// Oldest first.
    pub kept: Mutex<Vec<Kept>>,
    /// Large ones whose changes are being undone on another thread.
    pub ending: Mutex<usize>,
    pub ended: Condvar,
}

impl Pool {
    pub fn give_back(&self, mut connection: Connection) {
        if !connection.end() || connection.changed {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// The connection that the owner has left here, unless it was taken away.
    pub fn kept(&self, owner: OwnerId) -> Option<Kept> {
        let mut kept = self.kept.lock();
        let at = kept.iter().rposition(|k| k.owner == owner)?;
        Some(kept.remove(at))
    }

    /// Closes all connections.
    pub fn clear(&self) {
        self.idle.lock().clear();
        self.kept.lock().clear();
        let mut ending = self.ending.lock();
        while *ending > 0 {
            self.ended.wait(&mut ending);
        }
    }
}
