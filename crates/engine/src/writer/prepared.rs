//! Keeps and ends prepared transactions in the writer.

use super::connection::Writer;
use crate::state::database::DatabaseState;
use crate::state::locks::{Grant, LockId};
use crate::state::prepared::Prepared;
use crate::state::prepared_format as format;
use crate::state::queue::{FinishPrepared, Prepare};
use crate::state::submission::{Completion, OnCompletion};
use crate::statement::collect::Ignore;
use holdfast_store::schema_map::PREPARED_TABLE;
use holdfast_types::quoting::quote_text;
use holdfast_types::record::{Author, Op, Ops};
use holdfast_types::{Level, SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::Arc;
use std::time::Instant;

const CREATE: &str = "CREATE TABLE holdfast_prepared(gid TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT NOT NULL, \
    prepared_unix_us INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (gid, part)) WITHOUT ROWID";
const INSERT: &str = "INSERT INTO main.holdfast_prepared VALUES (?1, ?2, ?3, ?4, ?5)";
const DELETE: &str = "DELETE FROM main.holdfast_prepared WHERE gid = ?1";

/// A transaction's bytes are kept in rows of this size.
const PART_BYTES: usize = 1 << 20;

impl Writer {
    /// Makes every check of a commit, leaves no trace of it, and keeps the transaction as rows.
    pub(crate) fn prepare_transaction(&mut self, request: Prepare, level: Level, done: OnCompletion) {
        let result = self.begin().and_then(|()| {
            self.changes_are_of(Some(request.locks_of));
            self.would_commit(&request.images)?;
            self.keep_prepared(&request)
        });
        self.end_prepared(result, (level, request.author.as_deref()), done);
    }

    /// Applies a prepared transaction's images, or does not, and deletes its rows.
    pub(crate) fn finish_prepared(&mut self, request: &FinishPrepared, level: Level, done: OnCompletion) {
        let result = self.begin().and_then(|()| {
            self.changes_are_of(Some(request.locks_of));
            if request.commit {
                let body = self.prepared_body(&request.gid)?;
                let (_, images) = format::decode(&body).ok_or_else(|| damaged(&request.gid))?;
                self.merge_in_savepoint(images)?;
            }
            self.run_with(DELETE, &[ValueRef::Text(request.gid.as_bytes())])
        });
        self.end_prepared(result, (level, Some(&request.author)), done);
    }

    fn would_commit(&mut self, images: &[u8]) -> SqlResult<()> {
        let mark = self.mark();
        // Nothing has changed yet: branches must not take these rows for changed. Its own locks keep others away from them.
        let registering = self.register(false);
        let merged = self.merge_in_savepoint(images);
        self.register(registering);
        merged?;
        self.undo_merge(mark)
    }

    fn keep_prepared(&mut self, request: &Prepare) -> SqlResult<()> {
        if !self.has_object(PREPARED_TABLE) {
            self.list_as_preparing()?;
            self.change_schema(CREATE)?;
        }
        for (part, bytes) in request.body.chunks(PART_BYTES).enumerate() {
            let values = [
                ValueRef::Text(request.gid.as_bytes()),
                ValueRef::Int(part as i64),
                ValueRef::Text(request.owner.as_bytes()),
                ValueRef::Int(request.prepared_unix_us),
                ValueRef::Blob(bytes),
            ];
            self.run_with(INSERT, &values)?;
        }
        Ok(())
    }

    /// Before the first one exists, so that no start misses it.
    fn list_as_preparing(&self) -> SqlResult<()> {
        let database = self.state();
        database.engine.list_as_preparing(database.id)
    }

    fn prepared_body(&mut self, gid: &str) -> SqlResult<Vec<u8>> {
        let rows = self.query_rows(&format!(
            "SELECT body FROM main.{PREPARED_TABLE} WHERE gid = {} ORDER BY part",
            quote_text(gid)
        ))?;
        let part = |row: Vec<Value>| match row.into_iter().next() {
            Some(Value::Blob(bytes)) => Ok(bytes),
            _ => Err(damaged(gid)),
        };
        Ok(rows.into_iter().map(part).collect::<SqlResult<Vec<_>>>()?.concat())
    }

    /// Commits what was done, or rolls it back; the answer leaves when that is durable.
    fn end_prepared(&mut self, result: SqlResult<()>, (level, author): (Level, Option<&Author>), done: OnCompletion) {
        let number = self.number();
        let result = result.and_then(|()| self.finish_sole());
        self.commit_or_back_out(Instant::now(), (level, author), done, answer(result, number));
    }
}

fn damaged(gid: &str) -> SqlError {
    let message = format!("the prepared transaction \"{gid}\" is damaged in {PREPARED_TABLE}");
    SqlError::new(SqlState::DATA_CORRUPTED, message)
}

/// Restores the prepared transactions of a database that is being opened: their locks, and the ids they hold.
pub fn restore(database: &Arc<DatabaseState>, writer: &mut Writer) -> SqlResult<()> {
    if !writer.has_object(PREPARED_TABLE) {
        return Ok(());
    }
    let sql = format!("SELECT gid, owner, prepared_unix_us FROM main.{PREPARED_TABLE} WHERE part = 0");
    for row in writer.query_rows(&sql)? {
        let [Value::Text(gid), Value::Text(owner), Value::Int(prepared_unix_us)] = row.as_slice() else {
            return Err(damaged("?"));
        };
        let body = writer.prepared_body(gid)?;
        let (locks, images) = format::decode(&body).ok_or_else(|| damaged(gid))?;
        let lock_owner = database.lock_owner(None, None);
        for (target, mode) in locks {
            let id = LockId { volume: database.id, target };
            if database.engine.locks.try_lock(lock_owner.id(), id, mode) != Grant::Granted {
                return Err(SqlError::internal(format!("two prepared transactions hold a lock that \"{gid}\" holds")));
            }
        }
        hold_ids(database, images, gid)?;
        let prepared =
            Prepared { owner: owner.clone(), prepared_unix_us: *prepared_unix_us, lock_owner: Some(lock_owner) };
        database.prepared.lock().insert(gid.clone(), prepared);
        tracing::info!(database = database.name, gid, "a prepared transaction waits for its end");
    }
    Ok(())
}

/// Ids of rows that do not exist yet must not be assigned again.
fn hold_ids(database: &DatabaseState, images: &[u8], gid: &str) -> SqlResult<()> {
    let map = database.map();
    for op in Ops::new(images) {
        if let Op::Insert { table, rowid: Some(rowid), .. } = op.map_err(|_| damaged(gid))?
            && let Some(table) = map.by_id(table)
        {
            database.ids.inserted(table.name.as_bytes(), rowid);
        }
    }
    Ok(())
}

/// An answer without rows.
fn answer(result: SqlResult<()>, number: u64) -> Completion {
    Completion { sink: Box::new(Ignore), result, failed_step: 0, last_insert_rowid: None, number }
}
