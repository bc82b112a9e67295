//! The dumps that the server makes of itself, and its drills: `holdfast_stat_dump`.

use super::standing::DumpRow;
use super::table::{CatalogTable, boolean, count, moment, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

fn known<T>(value: Option<T>, cell: impl Fn(T) -> Value) -> Value {
    value.map_or(Value::Null, cell)
}

/// One row where `dump.to` is set.
pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_dump",
    columns: &[
        ("place", oid::TEXT),
        ("state", oid::TEXT),
        ("last_dump", oid::TEXT),
        ("last_dump_time", oid::TIMESTAMPTZ),
        ("last_dump_lsn", oid::INT8),
        ("last_dump_seconds", oid::FLOAT8),
        ("last_dump_bytes", oid::INT8),
        ("last_dump_stored_bytes", oid::INT8),
        ("dump_count", oid::INT8),
        ("next_dump_time", oid::TIMESTAMPTZ),
        ("failed_count", oid::INT8),
        ("last_failed_time", oid::TIMESTAMPTZ),
        ("last_error", oid::TEXT),
        ("last_drill_time", oid::TIMESTAMPTZ),
        ("last_drill_ok", oid::BOOL),
        ("last_drill_lsn", oid::INT8),
        ("last_drill_seconds", oid::FLOAT8),
        ("last_restore_seconds", oid::FLOAT8),
        ("last_drill", oid::TEXT),
        ("drill_count", oid::INT8),
        ("drill_failed_count", oid::INT8),
        ("next_drill_time", oid::TIMESTAMPTZ),
        ("restorable_lsn", oid::INT8),
        ("restorable_age_seconds", oid::FLOAT8),
    ],
    always_empty: false,
    rows: |context| {
        let row = |d: DumpRow| {
            vec![
                text(d.place),
                text(d.state),
                known(d.last_dump, text),
                moment(d.last_dump_us),
                known(d.last_dump_lsn, count),
                known(d.last_dump_seconds, Value::Real),
                known(d.last_dump_bytes, count),
                known(d.last_dump_stored_bytes, count),
                count(d.dumps),
                moment(d.next_dump_us),
                count(d.failed),
                moment(d.last_failed_us),
                known(d.last_error, text),
                moment(d.last_drill_us),
                known(d.last_drill_ok, boolean),
                known(d.last_drill_lsn, count),
                known(d.last_drill_seconds, Value::Real),
                known(d.last_restore_seconds, Value::Real),
                known(d.last_drill, text),
                count(d.drills),
                count(d.drills_failed),
                moment(d.next_drill_us),
                known(d.restorable_lsn, count),
                known(d.restorable_age_seconds, Value::Real),
            ]
        };
        context.live.standing().dump.into_iter().map(row).collect()
    },
};
