//! What MAIN does for prepared transactions.

use super::{Prepared, answer, format};
use crate::batch::OnDone;
use crate::branch::Presence;
use crate::database::Inner;
use crate::locks::{Grant, LockId, OwnerId};
use crate::main_thread::Main;
use holdfast_store::schema_map::PREPARED_TABLE;
use holdfast_types::record::{Op, Ops};
use holdfast_types::{Level, SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::Arc;
use std::time::Instant;

const CREATE: &str = "CREATE TABLE holdfast_prepared(gid TEXT NOT NULL, part INTEGER NOT NULL, owner TEXT NOT NULL, \
    prepared_unix_us INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (gid, part)) WITHOUT ROWID";
const INSERT: &str = "INSERT INTO main.holdfast_prepared VALUES (?1, ?2, ?3, ?4, ?5)";
const DELETE: &str = "DELETE FROM main.holdfast_prepared WHERE gid = ?1";

/// A transaction's bytes are kept in rows of this size.
const PART_BYTES: usize = 1 << 20;

/// A transaction to be prepared.
pub struct Prepare {
    pub gid: String,
    pub owner: String,
    pub prepared_unix_us: i64,
    /// The owner of its locks.
    pub locks_of: OwnerId,
    pub images: Vec<u8>,
    pub body: Vec<u8>,
}

/// A prepared transaction to be ended.
pub struct Finish {
    pub gid: String,
    pub locks_of: OwnerId,
    pub commit: bool,
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

impl Main {
    /// Makes every check of a commit, leaves no trace of it, and keeps the transaction as rows.
    pub(super) fn prepare_transaction(&mut self, request: Prepare, level: Level, done: OnDone) {
        let result = self.begin().and_then(|()| {
            self.changes_are_of(Some(request.locks_of));
            self.would_commit(&request.images)?;
            self.keep_prepared(&request)
        });
        self.end_task(result, level, done);
    }

    /// Applies a prepared transaction's images, or does not, and removes its rows.
    pub(super) fn finish_prepared(&mut self, request: &Finish, level: Level, done: OnDone) {
        let result = self.begin().and_then(|()| {
            self.changes_are_of(Some(request.locks_of));
            if request.commit {
                let body = self.prepared_body(&request.gid)?;
                let (_, images) = format::decode(&body).ok_or_else(|| damaged(&request.gid))?;
                self.merge_alone(images)?;
            }
            self.run_with(DELETE, &[ValueRef::Text(request.gid.as_bytes())])
        });
        self.end_task(result, level, done);
    }

    fn would_commit(&mut self, images: &[u8]) -> SqlResult<()> {
        let mark = self.mark();
        // Nothing has changed yet: nobody must take these rows for changed. Its own locks keep others away from them.
        let registering = self.register(false);
        let merged = self.merge_alone(images);
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

    /// Before the first one is there, so that no start misses it.
    fn list_as_preparing(&self) -> SqlResult<()> {
        let inner = self.inner();
        inner.shared.list_as_preparing(inner.id)
    }

    fn prepared_body(&mut self, gid: &str) -> SqlResult<Vec<u8>> {
        let rows = self
            .query_rows(&format!("SELECT body FROM main.{PREPARED_TABLE} WHERE gid = {} ORDER BY part", quoted(gid)))?;
        let part = |row: Vec<Value>| match row.into_iter().next() {
            Some(Value::Blob(bytes)) => Ok(bytes),
            _ => Err(damaged(gid)),
        };
        Ok(rows.into_iter().map(part).collect::<SqlResult<Vec<_>>>()?.concat())
    }

    /// Commits what was done, or backs it out; the answer leaves when that is durable.
    fn end_task(&mut self, result: SqlResult<()>, level: Level, done: OnDone) {
        let number = self.number();
        let result = result.and_then(|()| self.finish_alone());
        self.commit_or_back_out(Instant::now(), level, done, answer(result, number));
    }
}

fn damaged(gid: &str) -> SqlError {
    let message = format!("the prepared transaction \"{gid}\" is damaged in {PREPARED_TABLE}");
    SqlError::new(SqlState::DATA_CORRUPTED, message)
}

/// Takes up again the prepared transactions of a database that is being opened: their locks, and the ids they hold.
pub fn restore(inner: &Arc<Inner>, main: &mut Main) -> SqlResult<()> {
    if !main.has_object(PREPARED_TABLE) {
        return Ok(());
    }
    let sql = format!("SELECT gid, owner, prepared_unix_us FROM main.{PREPARED_TABLE} WHERE part = 0");
    for row in main.query_rows(&sql)? {
        let [Value::Text(gid), Value::Text(owner), Value::Int(prepared_unix_us)] = row.as_slice() else {
            return Err(damaged("?"));
        };
        let body = main.prepared_body(gid)?;
        let (locks, images) = format::decode(&body).ok_or_else(|| damaged(gid))?;
        let presence = Presence::new(inner, None, None);
        for (target, mode) in locks {
            let id = LockId { volume: inner.id, target };
            if inner.shared.locks.try_lock(presence.owner(), id, mode) != Grant::Granted {
                return Err(SqlError::internal(format!("two prepared transactions hold a lock that \"{gid}\" holds")));
            }
        }
        hold_ids(inner, images, gid)?;
        let prepared = Prepared { owner: owner.clone(), prepared_unix_us: *prepared_unix_us, presence: Some(presence) };
        inner.prepared.lock().insert(gid.clone(), prepared);
        tracing::info!(database = inner.name, gid, "a prepared transaction waits for its end");
    }
    Ok(())
}

/// Ids of rows that are not there yet must not be given out again.
fn hold_ids(inner: &Inner, images: &[u8], gid: &str) -> SqlResult<()> {
    let map = inner.map();
    for op in Ops::new(images) {
        if let Op::Insert { table, rowid: Some(rowid), .. } = op.map_err(|_| damaged(gid))?
            && let Some(table) = map.by_id(table)
        {
            inner.ids.inserted(table.name.as_bytes(), rowid);
        }
    }
    Ok(())
}
