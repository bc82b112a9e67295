//! What logical replication asks of the engine: how far a feed may read, from where a new one begins, and what the trail keeps.
//!
//! Failure: a position that cannot be noted in the data directory is held while this process runs.

use crate::api::database::Database;
use crate::api::engine::Engine;
use crate::background::checkpointer::redo_starts;
use crate::route::reader::Reader;
use crate::state::retention::Slot;
use crate::statement::run::to_sql;
use holdfast_store::schema_map::{POSITIONS_TABLE, SLOTS_TABLE, read_position};
use holdfast_store::shapes::{self, Shapes};
use holdfast_store::sqlite::{Conn, SqliteError};
use holdfast_types::record::{Record, RecordReader};
use holdfast_types::schema::Schema;
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState, TableId, Value, VolumeId};
use std::io;
use std::path::PathBuf;

impl Engine {
    /// Everything below is durable here and on the mirror, has reached its level, and is what readers see.
    pub fn shown(&self) -> Lsn {
        *self.engine().shown.lock()
    }

    /// Begins to keep the trail for a new feed. Returns where its reading begins, so that each transaction behind the second
    /// position is read whole, and that position: everything below it is durable.
    pub fn begin_feed(&self, name: &str) -> io::Result<(Lsn, Lsn)> {
        let engine = self.engine();
        let mut floor = engine.retention.lock();
        // Redo needs the fragments of what is not committed yet, as a feed does.
        let from = redo_starts(engine, &*self.0.registry);
        let here = engine.trail.durable();
        floor.hold_feed(&*engine.options.disk, &engine.dir, name, from.min(here), engine.options.segment_bytes)?;
        Ok((from.min(here), here))
    }

    /// Keeps the trail from `lsn` on for a feed, over restarts; not for one that is further behind than the trail is kept.
    pub fn hold_feed(&self, name: &str, lsn: Lsn) -> io::Result<()> {
        let engine = self.engine();
        if engine.trail.durable().0.saturating_sub(lsn.0) > engine.options.slot_keep_bytes_max {
            return Ok(());
        }
        let step_bytes = engine.options.segment_bytes;
        engine.retention.lock().hold_feed(&*engine.options.disk, &engine.dir, name, lsn, step_bytes)
    }

    /// Nothing is kept for a feed any more.
    pub fn release_feed(&self, name: &str) -> io::Result<bool> {
        let engine = self.engine();
        engine.retention.lock().release_feed(&*engine.options.disk, &engine.dir, name)
    }

    /// The feeds for which the trail is kept, with the positions from which on it is.
    pub fn feeds(&self) -> Vec<Slot> {
        self.engine().retention.lock().feeds()
    }

    /// Where scratch files are made.
    pub fn scratch_dir(&self) -> PathBuf {
        self.engine().scratch_dir()
    }

    /// The databases that are open.
    pub fn opened(&self) -> Vec<Database> {
        self.open_databases().into_iter().map(Database).collect()
    }

    /// A database by its number, opened now if need be; `None`: there is none.
    pub fn database_numbered(&self, volume: VolumeId) -> SqlResult<Option<Database>> {
        self.database_by_id(volume)
    }
}

impl Database {
    /// Its number in the trail.
    pub fn volume(&self) -> VolumeId {
        self.state().id
    }

    /// A reader on one snapshot, which shows what the trail has below the returned position, and nothing else. `from`: all below it
    /// was shown before. `pid`: the client's process number.
    pub fn reader_at_a_place(&self, from: Lsn, pid: i32) -> SqlResult<(Reader, Lsn)> {
        loop {
            let mut reader = self.reader()?;
            let (number, shown) = {
                let shown = self.state().engine.shown.lock();
                reader.begin_to_write_later(pid)?;
                (reader.take_snapshot()?, *shown)
            };
            // The batches of a boxcar are shown one by one; the position counts as shown with the first.
            if !self.has_batches_behind(number, from, shown)? {
                return Ok((reader, shown));
            }
        }
    }

    /// Whether the trail has batches of this database behind number `number` between two positions.
    fn has_batches_behind(&self, number: u64, from: Lsn, to: Lsn) -> SqlResult<bool> {
        let unreadable = |why: String| SqlError::new(SqlState::IO_ERROR, format!("the trail cannot be read: {why}"));
        for boxcar in self.state().engine.trail.read(from).map_err(|e| unreadable(e.to_string()))? {
            let boxcar = boxcar.map_err(|e| unreadable(e.to_string()))?;
            if boxcar.end > to {
                break;
            }
            for record in RecordReader::new(&boxcar.body) {
                let record = record.map_err(|e| unreadable(e.to_string()))?;
                if matches!(record, Record::Batch(batch) if batch.volume == self.volume() && batch.number > number) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// What each published table was at each schema epoch, and the epoch up to which that is known: that of what readers see.
    pub fn shapes(&self) -> SqlResult<(Shapes, u32)> {
        let mut reader = self.reader()?;
        reader.begin()?;
        let conn = reader.conn_to_prepare()?;
        let shapes = shapes::read(conn).map_err(unreadable)?;
        let position = read_position(conn).map_err(|e| SqlError::internal(e.to_string()))?;
        Ok((shapes, position.schema_epoch))
    }

    /// The table of replication slots, once there is one.
    pub fn slots_table(&self) -> Option<TableId> {
        self.state().map().object(SLOTS_TABLE)
    }

    /// Whether statements can be prepared for the table of replication slots: readers see it. One that has just been created waits for
    /// its level first.
    pub fn shows_slots_table(&self) -> SqlResult<bool> {
        let mut reader = self.reader()?;
        reader.begin()?;
        has_table(reader.conn_to_prepare()?, SLOTS_TABLE)
    }

    /// The rows of the table of replication slots, by a query of the server's own; none while there is no table.
    pub fn slot_rows(&self, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
        self.internal_rows(SLOTS_TABLE, sql)
    }

    /// The rows of the table of positions, by a query of the server's own; none while there is no table.
    pub fn position_rows(&self, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
        self.internal_rows(POSITIONS_TABLE, sql)
    }

    /// The rows of an internal table, by a query of the server's own; none while there is no table.
    fn internal_rows(&self, table: &str, sql: &str) -> SqlResult<Vec<Vec<Value>>> {
        let mut reader = self.reader()?;
        reader.begin()?;
        let conn = reader.conn_to_prepare()?;
        if has_table(conn, table)? { conn.query_rows(sql).map_err(unreadable) } else { Ok(Vec::new()) }
    }
}

/// Whether an internal table is in the snapshot of a reader's connection.
fn has_table(conn: &mut Conn, table: &str) -> SqlResult<bool> {
    let count = format!("SELECT count(*) FROM main.sqlite_schema WHERE name = '{table}'");
    Ok(conn.query_value(&count).map_err(unreadable)? != Value::Int(0))
}

fn unreadable(error: SqliteError) -> SqlError {
    to_sql(&error, "", &Schema::default())
}
