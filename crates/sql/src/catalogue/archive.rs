//! The archive of the trail: `pg_stat_archiver` as in PostgreSQL, and `holdfast_stat_archive` with what PostgreSQL has
//! no column for.
//!
//! Where PostgreSQL shows the name of a WAL file, Holdfast shows the name of the object in the archive, without its
//! directory.

use super::pg_stat_server::since_start;
use super::table::{CatalogTable, boolean, count, moment, text};
use holdfast_types::desc::oid;
use holdfast_types::{ArchiveRow, Value};

fn optional(word: Option<&String>) -> Value {
    word.map_or(Value::Null, |word| text(&**word))
}

/// PostgreSQL's view: always one row.
pub const PG_STAT_ARCHIVER: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_stat_archiver",
    columns: &[
        ("archived_count", oid::INT8),
        ("last_archived_wal", oid::TEXT),
        ("last_archived_time", oid::TIMESTAMPTZ),
        ("failed_count", oid::INT8),
        ("last_failed_wal", oid::TEXT),
        ("last_failed_time", oid::TIMESTAMPTZ),
        ("stats_reset", oid::TIMESTAMPTZ),
    ],
    always_empty: false,
    rows: |context| {
        let a = context.live.standing().archive.unwrap_or_default();
        vec![vec![
            count(a.archived),
            optional(a.last_archived.as_ref()),
            moment(a.last_archived_us),
            count(a.failed),
            optional(a.last_failed.as_ref()),
            moment(a.last_failed_us),
            since_start(context),
        ]]
    },
};

/// One row where there is an archive.
pub const ARCHIVE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_archive",
    columns: &[
        ("place", oid::TEXT),
        ("state", oid::TEXT),
        ("archived_count", oid::INT8),
        ("archived_bytes", oid::INT8),
        ("last_archived", oid::TEXT),
        ("last_archived_time", oid::TIMESTAMPTZ),
        ("archived_lsn", oid::INT8),
        ("failed_count", oid::INT8),
        ("last_failed", oid::TEXT),
        ("last_failed_time", oid::TIMESTAMPTZ),
        ("last_error", oid::TEXT),
        ("waiting_segments", oid::INT8),
        ("waiting_bytes", oid::INT8),
        ("keep_bytes_max", oid::INT8),
        ("is_beyond", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |a: ArchiveRow| {
            vec![
                text(a.place),
                text(a.state),
                count(a.archived),
                count(a.archived_bytes),
                optional(a.last_archived.as_ref()),
                moment(a.last_archived_us),
                count(a.archived_lsn),
                count(a.failed),
                optional(a.last_failed.as_ref()),
                moment(a.last_failed_us),
                optional(a.last_error.as_ref()),
                count(a.waiting_segments),
                count(a.waiting_bytes),
                count(a.keep_bytes_max),
                boolean(a.is_beyond),
            ]
        };
        context.live.standing().archive.into_iter().map(row).collect()
    },
};
