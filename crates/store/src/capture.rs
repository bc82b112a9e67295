//! Turns the row changes that SQLite reports into operations of the trail (`holdfast_types::record::op`), in the order
//! in which they happen. Changes made by cascades and triggers are included.
//!
//! The operations go straight into the buffer in which the engine builds the batch's record. To undo a statement
//! that fails, the caller must do both: ROLLBACK TO and [`Capture::truncate`]. One alone is not enough, because OR FAIL
//! reports an error and leaves changes behind.
//!
//! | change | what is recorded |
//! |---|---|
//! | in another database than `main` (TEMP tables) | nothing |
//! | while everything is muted (redo, the store's own bookkeeping) | nothing |
//! | of an internal table (`holdfast_...`) by a schema change | nothing |
//! | of an internal table by anything else | error: redo could not follow |
//! | made by a schema change itself | nothing |
//! | by a foreign key action of DROP TABLE | as below |
//! | of `sqlite_sequence` | nothing here, see [`crate::sequences`] |
//! | through a blob handle | error: SQLite does not show the new value |
//! | of a table that is not in the map, or with another number of columns | error |
//! | UPDATE that changes neither key nor value | nothing, but counted; on a branch, one column as it was |
//! | UPDATE of a published table | the columns that changed, and those that subscribers need with them ([`crate::carried`]) |
//! | any other | its image |
//!
//! Failure: the hook cannot fail the statement, so the first error is kept and [`Capture::check`] returns it; a
//! transaction must not commit without asking. After an error nothing more is recorded.

use crate::carried::{Carried, UNCHANGED_BYTES_MAX};
use crate::names;
use crate::partition::{ChangedBy, PartitionError, Partitions};
use crate::schema_map::{RowKey, TableInfo, TableMap};
use crate::sequences::SequenceState;
use crate::sqlite::{ChangeKind, Conn, RowChange, RowHook, SqliteError};
use holdfast_types::ValueRef;
use holdfast_types::record::{op, put_cell};
use std::os::raw::c_int;
use std::sync::Arc;

/// Why a change could not be recorded. The transaction must be backed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("table {table} was changed through a blob handle, which cannot be audited; use UPDATE")]
    BlobHandle { table: String },
    #[error("table {table} is internal and cannot be changed")]
    Internal { table: String },
    #[error("table {table} was changed but is not known to the schema map of epoch {epoch}")]
    UnknownTable { table: String, epoch: u32 },
    #[error("table {table} has {found} columns; the schema map of epoch {epoch} has {expected}")]
    ColumnCount { table: String, found: usize, expected: usize, epoch: u32 },
    #[error(transparent)]
    Partition(#[from] PartitionError),
    #[error("cannot read column {column} of table {table}: SQLite code {code}")]
    Value { table: String, column: u16, code: c_int },
}

/// Bytes of buffer allocated ahead.
const BUFFER_BYTES_AHEAD_MAX: usize = 1 << 20;

/// Which changes are not recorded, because the trail has them already or redo repeats them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mute {
    /// Record every change.
    #[default]
    Nothing,
    /// A schema change runs. The row changes it makes itself are not recorded: redo makes them again from its text.
    /// Foreign key actions that it sets off are recorded, because redo runs without foreign keys.
    Ddl,
    /// Redo runs: every change comes from the trail.
    All,
}

/// Sees every change of a table in the map before it is recorded. Row locks and versions are kept here.
pub trait Watch: Send {
    fn on_change(&mut self, map: &TableMap, table: &TableInfo, change: &RowChange<'_>) -> Watched;
}

/// What a [`Watch`] decides about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    Record,
    /// Nothing is recorded: the change follows from another one that is recorded.
    Ignore,
    /// The statement is interrupted; nothing further is recorded until it ends.
    Stop,
}

/// A point to which [`Capture::truncate`] can return.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    len: usize,
    ops: u64,
    unchanged: u64,
    sequences: u64,
    failed: bool,
}

/// The operations captured on one connection. See the module's description.
pub struct Capture {
    map: Arc<TableMap>,
    buf: Vec<u8>,
    ops: u64,
    unchanged: u64,
    mute: Mute,
    error: Option<CaptureError>,
    pub(crate) sequences: SequenceState,
    mask: Vec<u8>,
    cells: Vec<u8>,
    watch: Option<Box<dyn Watch>>,
    stopped: bool,
    /// A statement is stopped when the buffer grows beyond this.
    bytes_max: usize,
    overflowed: bool,
    records_unchanged: bool,
    partitions: Partitions,
}

impl Capture {
    pub fn new(map: Arc<TableMap>) -> Capture {
        Capture {
            map,
            buf: Vec::new(),
            ops: 0,
            unchanged: 0,
            mute: Mute::Nothing,
            error: None,
            sequences: SequenceState::default(),
            mask: Vec::new(),
            cells: Vec::new(),
            watch: None,
            stopped: false,
            bytes_max: usize::MAX,
            overflowed: false,
            records_unchanged: false,
            partitions: Partitions::default(),
        }
    }

    /// Shows every change that would be recorded to `watch` first.
    pub fn set_watch(&mut self, watch: Box<dyn Watch>) {
        self.watch = Some(watch);
    }

    /// Also records an UPDATE that changes nothing, as an operation that writes one column with the value it had, so
    /// that the applier learns that the row was meant to be changed.
    pub fn record_unchanged(&mut self) {
        self.records_unchanged = true;
    }

    /// Forgets that a watch stopped a statement, so that the next one can run.
    pub fn clear_stop(&mut self) {
        self.stopped = false;
        self.overflowed = false;
    }

    /// From now on a statement is stopped when the captured bytes exceed `bytes_max`.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Whether a statement was stopped because it changed too much.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Sets the table map: after a schema change, or after one was rolled back.
    pub fn set_map(&mut self, map: Arc<TableMap>) {
        self.map = map;
        self.partitions.forget();
    }

    /// Sets who makes the changes from now on.
    pub fn set_changed_by(&mut self, by: ChangedBy) {
        self.partitions.by = by;
    }

    pub fn map(&self) -> &Arc<TableMap> {
        &self.map
    }

    /// Returns the previous setting.
    pub fn set_mute(&mut self, mute: Mute) -> Mute {
        std::mem::replace(&mut self.mute, mute)
    }

    /// The buffer to which operations are appended. The engine writes record heads into it, between transactions.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// Hands over the buffer and begins an empty one without an error: the transaction has committed or rolled back.
    pub fn take(&mut self) -> Vec<u8> {
        (self.ops, self.unchanged) = (0, 0);
        self.error = None;
        // The next batch is about as large as this one: growing step by step would copy it several times.
        let next = Vec::with_capacity((self.buf.len() + self.buf.len() / 4).min(BUFFER_BYTES_AHEAD_MAX));
        std::mem::replace(&mut self.buf, next)
    }

    /// Bytes in the buffer.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Operations recorded since the last [`Capture::take`].
    pub fn ops(&self) -> u64 {
        self.ops
    }

    /// Updates since the last [`Capture::take`] that wrote a row with the values it had: they dirty pages but leave
    /// no operation.
    pub fn unchanged(&self) -> u64 {
        self.unchanged
    }

    /// The current point, for [`Capture::truncate`].
    pub fn mark(&self) -> Mark {
        Mark {
            len: self.buf.len(),
            ops: self.ops,
            unchanged: self.unchanged,
            sequences: self.sequences.generation(),
            failed: self.error.is_some(),
        }
    }

    /// Forgets everything recorded since the mark. The caller also rolls back to the savepoint set at that point.
    pub fn truncate(&mut self, mark: Mark) {
        self.buf.truncate(mark.len);
        (self.ops, self.unchanged) = (mark.ops, mark.unchanged);
        self.sequences.back_to(mark.sequences);
        if !mark.failed {
            self.error = None;
        }
    }

    /// To be called when the transaction was rolled back after its counters had been recorded.
    pub fn forget_sequences(&mut self) {
        self.sequences.forget();
    }

    /// The first error since the mark before it, if any. Must be called before every commit.
    pub fn check(&self) -> Result<(), CaptureError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Appends an operation that is not a row change.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.buf);
        self.ops += 1;
    }

    fn record(&mut self, change: &RowChange<'_>) -> Result<(), CaptureError> {
        let name = || String::from_utf8_lossy(change.table()).into_owned();
        if change.blob_write() {
            return Err(CaptureError::BlobHandle { table: name() });
        }
        let map = Arc::clone(&self.map);
        let Some(table) = map.by_name(change.table()) else {
            return Err(CaptureError::UnknownTable { table: name(), epoch: map.epoch });
        };
        let (found, expected) = (change.columns(), table.column_count);
        if found != expected {
            return Err(CaptureError::ColumnCount { table: name(), found, expected, epoch: map.epoch });
        }
        if let Some(rows) = &table.subscribed_rows {
            self.partitions.check(table, rows, change)?;
        }
        if let Some(watch) = &mut self.watch {
            match watch.on_change(&map, table, change) {
                Watched::Record => {}
                Watched::Ignore => return Ok(()),
                Watched::Stop => {
                    self.stopped = true;
                    return Ok(());
                }
            }
        }
        let recorded = match change.kind() {
            ChangeKind::Insert => self.insert(table, change).map(|()| true),
            ChangeKind::Update => self.update(table, change),
            ChangeKind::Delete => self.delete(table, change).map(|()| true),
        };
        match recorded {
            Ok(true) => self.ops += 1,
            Ok(false) => self.unchanged += 1,
            Err((column, code)) => return Err(CaptureError::Value { table: name(), column, code }),
        }
        Ok(())
    }

    fn insert(&mut self, table: &TableInfo, change: &RowChange<'_>) -> Result<(), (u16, c_int)> {
        let rowid = matches!(table.key, RowKey::Rowid { .. }).then(|| change.new_rowid());
        op::put_insert(&mut self.buf, table.id, rowid, table.columns.len());
        for column in &table.columns {
            put_cell(&mut self.buf, change.after(column.index).map_err(|code| (column.index, code))?);
        }
        Ok(())
    }

    /// Returns false when nothing changes.
    fn update(&mut self, table: &TableInfo, change: &RowChange<'_>) -> Result<bool, (u16, c_int)> {
        self.mask.clear();
        self.mask.resize(table.columns.len().div_ceil(8), 0);
        self.cells.clear();
        for (position, column) in table.columns.iter().enumerate() {
            let before = change.before(column.index).map_err(|code| (column.index, code))?;
            let after = change.after(column.index).map_err(|code| (column.index, code))?;
            if !same(before, after) {
                self.mask[position / 8] |= 1 << (position % 8);
                put_cell(&mut self.cells, before);
                put_cell(&mut self.cells, after);
            }
        }
        let key_changes = match &table.key {
            RowKey::Rowid { .. } => change.old_rowid() != change.new_rowid(),
            RowKey::Columns(positions) => positions.iter().any(|&p| self.mask[p / 8] >> (p % 8) & 1 == 1),
        };
        if self.cells.is_empty() && !key_changes {
            let Some(column) = table.columns.first().filter(|_| self.records_unchanged) else { return Ok(false) };
            self.mask[0] |= 1;
            for _ in 0..2 {
                put_cell(&mut self.cells, change.before(column.index).map_err(|code| (column.index, code))?);
            }
        }
        if let Some(carried) = &table.carried {
            self.carry(carried, table, change)?;
        }
        op::put_update(&mut self.buf, table.id, key_changes);
        self.key(table, change.old_rowid(), |column| change.before(column))?;
        if key_changes {
            self.key(table, change.new_rowid(), |column| change.after(column))?;
        }
        op::put_mask(&mut self.buf, &self.mask);
        self.buf.extend_from_slice(&self.cells);
        Ok(true)
    }

    /// Puts the columns into an update's image that subscribers need in addition to those that changed.
    fn carry(&mut self, carried: &Carried, table: &TableInfo, change: &RowChange<'_>) -> Result<(), (u16, c_int)> {
        let has = |mask: &[u8], p: usize| mask[p / 8] >> (p % 8) & 1 == 1;
        let all = carried.filter.iter().any(|&p| has(&self.mask, p));
        let mut grows = false;
        let mut puts = |mask: &mut [u8], position: usize| {
            grows |= !has(mask, position);
            mask[position / 8] |= 1 << (position % 8);
        };
        carried.always.iter().for_each(|&position| puts(&mut self.mask, position));
        for &position in &carried.published {
            let column = table.columns[position].index;
            if all || !is_large(change.after(column).map_err(|code| (column, code))?) {
                puts(&mut self.mask, position);
            }
        }
        if !grows {
            return Ok(());
        }
        self.cells.clear();
        for (_, column) in table.columns.iter().enumerate().filter(|(position, _)| has(&self.mask, *position)) {
            put_cell(&mut self.cells, change.before(column.index).map_err(|code| (column.index, code))?);
            put_cell(&mut self.cells, change.after(column.index).map_err(|code| (column.index, code))?);
        }
        Ok(())
    }

    fn delete(&mut self, table: &TableInfo, change: &RowChange<'_>) -> Result<(), (u16, c_int)> {
        op::put_delete(&mut self.buf, table.id);
        self.key(table, change.old_rowid(), |column| change.before(column))?;
        op::put_count(&mut self.buf, table.columns.len());
        for column in &table.columns {
            put_cell(&mut self.buf, change.before(column.index).map_err(|code| (column.index, code))?);
        }
        Ok(())
    }

    fn key<'v>(
        &mut self,
        table: &TableInfo,
        rowid: i64,
        value: impl Fn(u16) -> Result<ValueRef<'v>, c_int>,
    ) -> Result<(), (u16, c_int)> {
        match &table.key {
            RowKey::Rowid { .. } => op::put_rowid_key(&mut self.buf, rowid),
            RowKey::Columns(positions) => {
                op::put_columns_key(&mut self.buf, positions.len());
                for &position in positions {
                    let column = table.columns[position].index;
                    put_cell(&mut self.buf, value(column).map_err(|code| (column, code))?);
                }
            }
        }
        Ok(())
    }
}

impl RowHook for Capture {
    /// Records one change. Returns true when the statement is to be interrupted.
    fn on_change(&mut self, change: &RowChange<'_>) -> bool {
        if self.error.is_some()
            || self.stopped
            || self.mute == Mute::All
            || (self.mute == Mute::Ddl && change.depth() == 0)
            || change.schema() != b"main"
            || change.table() == b"sqlite_sequence"
        {
            return self.stopped;
        }
        if !names::is_audited(change.table()) {
            if self.mute == Mute::Nothing {
                let table = String::from_utf8_lossy(change.table()).into_owned();
                self.error = Some(CaptureError::Internal { table });
            }
            return false;
        }
        let start = self.buf.len();
        if let Err(error) = self.record(change) {
            self.buf.truncate(start);
            self.error = Some(error);
        }
        if self.buf.len() > self.bytes_max {
            self.overflowed = true;
            self.stopped = true;
        }
        self.stopped
    }
}

impl Conn {
    /// From now on `capture` records every row change of this connection. Fails as [`Conn::install_row_hook`] does.
    pub fn install_capture(&mut self, capture: Capture) -> Result<(), SqliteError> {
        self.install_row_hook(capture)
    }

    /// Whether [`Conn::install_capture`] was called.
    pub fn captures(&self) -> bool {
        self.has_row_hook()
    }

    /// The connection's capture. Panics when none is installed, which is a programming error.
    pub fn capture(&mut self) -> &mut Capture {
        self.row_hook().expect("install_capture is called when a writing connection is opened")
    }
}

/// Whether a value is left out of an image where it has not changed.
fn is_large(value: ValueRef<'_>) -> bool {
    matches!(value, ValueRef::Text(bytes) | ValueRef::Blob(bytes) if bytes.len() > UNCHANGED_BYTES_MAX)
}

/// Whether two values are identical bit for bit: 0.0 and -0.0, 1 and 1.0, text and blob all differ.
fn same(a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    match (a, b) {
        (ValueRef::Real(a), ValueRef::Real(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// Makes virtual tables write what they hold back until the transaction ends (FTS5 its index). Must be called before
/// the transaction's operations are counted as complete.
pub fn flush_virtual_tables(conn: &mut Conn) -> Result<(), SqliteError> {
    conn.exec("SAVEPOINT holdfast_flush; RELEASE holdfast_flush")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_map::create_internal_tables;
    use crate::sqlite::{OpenFlags, write_through_a_blob_handle};
    use holdfast_types::ValueRef::{Blob, Int, Null, Real, Text};
    use holdfast_types::VolumeId;

    #[test]
    fn values_are_compared_as_stored() {
        assert!(same(Null, Null) && same(Real(1.5), Real(1.5)) && same(Text(b"a"), Text(b"a")));
        assert!(!same(Real(0.0), Real(-0.0)));
        assert!(!same(Int(1), Real(1.0)));
        assert!(!same(Text(b"a"), Blob(b"a")));
        assert!(!same(Null, Text(b"")));
    }

    #[test]
    fn capture_comes_before_the_first_statement() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        let map = Arc::new(create_internal_tables(&mut conn, VolumeId(1)).unwrap());
        let early = conn.prepare("DELETE FROM holdfast_tables").unwrap();
        assert!(conn.install_capture(Capture::new(Arc::clone(&map))).is_err());
        conn.finalize(early);
        conn.install_capture(Capture::new(Arc::clone(&map))).unwrap();
        assert!(conn.install_capture(Capture::new(map)).is_err(), "it is never replaced");
    }

    #[test]
    fn a_blob_handle_cannot_change_a_row_unseen() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec("CREATE TABLE t(b); INSERT INTO t VALUES(zeroblob(4))").unwrap();
        let map = create_internal_tables(&mut conn, VolumeId(1)).unwrap();
        conn.install_capture(Capture::new(Arc::new(map))).unwrap();
        write_through_a_blob_handle(&mut conn);
        assert_eq!(conn.capture().check(), Err(CaptureError::BlobHandle { table: "t".into() }));
        assert!(conn.capture().is_empty(), "it is not recorded as the DELETE that SQLite reports");
    }
}
