//! Runs one statement on one connection and reports to a sink. Every way of executing ends in this file.

use crate::statement::cache::StatementCache;
use crate::statement::model::{Statement, Step};
use crate::statement::viewer::Viewing;
use holdfast_store::capture::CaptureError;
use holdfast_store::pages::ReadError;
use holdfast_store::partition::{ChangedBy, PartitionError};
use holdfast_store::schema_map::SchemaError;
use holdfast_store::sqlite::{Conn, SqliteError, StmtId, sqlstate, take_cause};
use holdfast_store::volume::VolumeError;
use holdfast_types::schema::Schema;
use holdfast_types::{Row, SessionContext, Sink, SqlError, SqlResult, SqlState, Tag, ValueRef};

/// What to do with a row that a statement returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    Emit,
    Skip,
    /// Emit it, and stop after it.
    Last,
    /// Do not emit it, and stop.
    Stop,
}

/// What a statement runs under.
#[derive(Clone, Copy)]
pub struct Under<'a> {
    pub schema: &'a Schema,
    /// Of the session that sends it.
    pub context: &'a SessionContext,
}

/// Called for every row before it is emitted.
pub type Visit<'a> = &'a mut dyn FnMut(&dyn Row) -> SqlResult<Take>;

/// Binds the parameters, steps to the end, resets. The connection's statement cache keeps the prepared form.
pub fn run_step(
    conn: &mut Conn,
    cache: &mut StatementCache,
    under: Under<'_>,
    number: usize,
    step: &Step,
    sink: &mut dyn Sink,
) -> SqlResult<()> {
    run_step_visiting(conn, cache, under, number, step, sink, &mut |_| Ok(Take::Emit))
}

/// [`run_step`], asking about every row.
pub fn run_step_visiting(
    conn: &mut Conn,
    cache: &mut StatementCache,
    under: Under<'_>,
    number: usize,
    step: &Step,
    sink: &mut dyn Sink,
    visit: Visit<'_>,
) -> SqlResult<()> {
    let schema = under.schema;
    let sqlite = |e: SqliteError| to_sql(&e, &step.stmt.sql, schema);
    let id = cache.get(conn, &step.stmt).map_err(sqlite)?;
    if step.params.len() != step.stmt.param_count {
        let (want, have) = (step.stmt.param_count, step.params.len());
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, format!("{want} parameters needed, {have} given")));
    }
    conn.bind_all(id, &step.params).map_err(sqlite)?;
    sink.begin(number, &step.stmt.report.desc);
    let _viewing = Viewing::of(under.context);
    changes_are_of(conn, if step.stmt.report.applied { ChangedBy::Subscription } else { ChangedBy::Statement });
    let rows = step_to_end(conn, id, &step.stmt, schema, sink, visit);
    let changes = conn.changes();
    conn.reset(id);
    changes_are_of(conn, ChangedBy::Images);
    cache.has_run(conn, &step.stmt);
    let rows = rows?;
    if conn.captures() {
        conn.capture().check().map_err(not_captured)?;
    }
    let report = &step.stmt.report;
    let count = if step.stmt.columns.is_empty() { changes } else { rows };
    sink.end(&Tag { verb: report.verb, rows: report.counts.then_some(count) });
    Ok(())
}

/// For the rows of subscriptions: who makes the changes that follow.
fn changes_are_of(conn: &mut Conn, by: ChangedBy) {
    if conn.captures() {
        conn.capture().set_changed_by(by);
    }
}

/// The error of a change that is refused when its rows are captured.
pub fn not_captured(error: CaptureError) -> SqlError {
    let message = error.to_string();
    match error {
        CaptureError::Partition(PartitionError::OfAnother { by: ChangedBy::Subscription, .. }) => SqlError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            message,
        )
        .with_hint(
            "The publication's condition was changed: ALTER SUBSCRIPTION ... REFRESH PUBLICATION reads it. Else change \
                 or remove the row here.",
        ),
        CaptureError::Partition(PartitionError::OfAnother { .. }) => {
            SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message)
                .with_hint("Change them at the publisher; the subscription brings the change.")
        }
        CaptureError::Partition(PartitionError::Condition { .. }) => {
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                .with_hint("Give the table its columns back, or run ALTER SUBSCRIPTION ... REFRESH PUBLICATION.")
        }
        _ => SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message),
    }
}

fn step_to_end(
    conn: &mut Conn,
    id: StmtId,
    stmt: &Statement,
    schema: &Schema,
    sink: &mut dyn Sink,
    visit: Visit<'_>,
) -> SqlResult<u64> {
    let mut rows = 0;
    // Keys of rows to be locked come behind what the client asked for.
    let hides = !stmt.report.row_locks.is_empty();
    while conn.step(id).map_err(|e| to_sql(&e, &stmt.sql, schema))? {
        if stmt.columns.is_empty() {
            continue;
        }
        let row = conn.row(id);
        let take = visit(&row)?;
        if matches!(take, Take::Emit | Take::Last) {
            match hides {
                true => sink.row(&Shown { row: &row, len: stmt.report.desc.columns.len() })?,
                false => sink.row(&row)?,
            }
            rows += 1;
        }
        if matches!(take, Take::Last | Take::Stop) {
            break;
        }
    }
    Ok(rows)
}

/// The first columns of a row.
struct Shown<'a> {
    row: &'a dyn Row,
    len: usize,
}

impl Row for Shown<'_> {
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, i: usize) -> ValueRef<'_> {
        self.row.get(i)
    }
}

/// The error of a schema change.
pub fn schema_to_sql(error: &SchemaError, sql: &str, schema: &Schema) -> SqlError {
    match error {
        SchemaError::Sqlite(e) => to_sql(e, sql, schema),
        SchemaError::NoRowidName(_) => SqlError::new(SqlState::INVALID_TABLE_DEFINITION, error.to_string()),
        SchemaError::ReservedName(_) => SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, error.to_string()),
        SchemaError::Redefinition(_) => SqlError::internal(error.to_string()),
        SchemaError::NotAVolume(_) | SchemaError::Format { .. } => {
            SqlError::new(SqlState::DATA_CORRUPTED, error.to_string())
        }
    }
}

/// The error for the client, with the cause the VFS left behind where there is one.
pub fn to_sql(error: &SqliteError, sql: &str, schema: &Schema) -> SqlError {
    // A cause may be left over: integrity_check continues after a read that failed.
    match take_cause().filter(|_| error.is_of_the_file()) {
        Some(cause) => read_failed(&cause),
        None => sqlstate::sql_error(error, sql, Some(schema)),
    }
}

/// The error of a transaction that SQLite has ended by itself: the failed read if there was one, which some statements,
/// such as PRAGMA table_list, do not report.
pub fn ended_by_itself(otherwise: SqlError) -> SqlError {
    take_cause().map_or(otherwise, |cause| read_failed(&cause))
}

/// The error for the client of a connection that could not be opened.
pub fn not_opened(error: &VolumeError) -> SqlError {
    match error {
        VolumeError::Read(cause) => read_failed(cause),
        other => SqlError::internal(other.to_string()),
    }
}

/// How often work is repeated because its snapshot was dropped while it ran.
pub const FRESH_SNAPSHOTS_MAX: usize = 20;

/// Runs work that takes the newest snapshot each time it begins, and need not keep one: opening a connection, preparing a
/// statement. It is repeated when its snapshot was dropped because scratch space ran out.
pub fn on_a_fresh_snapshot<T>(mut work: impl FnMut() -> SqlResult<T>) -> SqlResult<T> {
    let mut tries = 0;
    loop {
        match work() {
            Err(e) if e.state() == SqlState::SNAPSHOT_TOO_OLD && tries < FRESH_SNAPSHOTS_MAX => tries += 1,
            ended => return ended,
        }
    }
}

fn read_failed(cause: &ReadError) -> SqlError {
    match cause {
        ReadError::SnapshotTooOld(_) => SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
            .with_hint("Run the long report while less is written, or raise scratch_bytes_max."),
        ReadError::Checksum { .. } => SqlError::new(SqlState::DATA_CORRUPTED, cause.to_string())
            .with_hint("Stop the server and run `holdfast check`."),
        ReadError::Io { .. } => SqlError::new(SqlState::IO_ERROR, cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_snapshot_is_taken_again_and_nothing_else_is() {
        let dropped = || not_opened(&VolumeError::Read(ReadError::SnapshotTooOld(3)));
        let mut left = FRESH_SNAPSHOTS_MAX;
        let opened = on_a_fresh_snapshot(|| match left {
            0 => Ok("opened"),
            _ => {
                left -= 1;
                Err(dropped())
            }
        });
        assert_eq!(opened.unwrap(), "opened");
        let always: SqlResult<()> = on_a_fresh_snapshot(|| Err(dropped()));
        assert_eq!(always.unwrap_err().state(), SqlState::SNAPSHOT_TOO_OLD);
        let mut calls = 0;
        let other: SqlResult<()> = on_a_fresh_snapshot(|| {
            calls += 1;
            Err(SqlError::internal("another"))
        });
        assert_eq!((other.unwrap_err().state(), calls), (SqlState::INTERNAL_ERROR, 1));
    }
}
